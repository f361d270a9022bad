"""The damage matrix: what happens to a checkpoint, and that the last good one is always found and never deleted."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import rank_tasks
from hymo.core.errors import CheckpointError, UsageError
from hymo.models.checkpoint import Manifest, find_checkpoint, list_checkpoints, read_manifest, verify
from hymo.training.checkpointer import Checkpointer
from rank_helpers import run_ranks
from training_helpers import SmallDisk


def manifest(step: int) -> Manifest:
    return Manifest(1, "0", "0", "hash", "tok", "data", step, step * 10, None, 1)


def tensors(step: int) -> dict[str, dict[str, torch.Tensor]]:
    return {"model": {"w": torch.full((50, 3), float(step)), "b": torch.arange(step)}}


def checkpointer(folder: Path, keep_last: int = 10, keep_every: int | None = None) -> Checkpointer:
    return Checkpointer(folder, "model: {}\n", keep_last, keep_every)


def save(saver: Checkpointer, step: int, *pinned: int) -> str:
    """Save and wait; returns the error, empty if there was none."""
    saver.start(tensors(step), manifest(step), pinned)
    (result,) = saver.finished(wait=True)
    assert result.step == step
    return result.error


@pytest.fixture(scope="session")
def of_two_ranks(tmp_path_factory: pytest.TempPathFactory, dataset: Path) -> Path:
    """The same three checkpoints, each of them written by two ranks."""
    folder = tmp_path_factory.mktemp("two-ranks") / "saved"
    config = rank_tasks.odd_config(folder, dataset)
    for result in run_ranks(2, rank_tasks.do, [(config, {"saves": ("saves", {"folder": folder})})]):
        assert result["saves"] == ["", "", ""]
    return folder


@pytest.fixture(params=["one process", "two ranks"])
def folder(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Checkpoints 1, 2 and 3."""
    if request.param == "two ranks":
        shutil.copytree(request.getfixturevalue("of_two_ranks"), tmp_path, dirs_exist_ok=True)
        return tmp_path
    saver = checkpointer(tmp_path)
    for step in (1, 2, 3):
        assert save(saver, step) == ""
    return tmp_path


def newest(folder: Path) -> tuple[int, list[str]]:
    said: list[str] = []
    return find_checkpoint(folder, said.append)[1].step, said


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def tensor_file(checkpoint: Path) -> Path:
    """The last rank's file."""
    return max(checkpoint.glob("*.distcp"))


def unreadable(file: Path) -> None:
    """A folder where the file was: reading it fails, and not for being absent."""
    file.unlink()
    file.mkdir()


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "flipped byte": (lambda c: flip(tensor_file(c)), "checksum"),
    "truncated file": (lambda c: os.truncate(tensor_file(c), 10), "10 bytes instead of"),
    "missing file": (lambda c: tensor_file(c).unlink(), "missing"),
    "missing metadata": (lambda c: (c / ".metadata").unlink(), "missing"),
    "missing manifest": (lambda c: (c / "manifest.json").unlink(), "did not finish"),
    "manifest cut short": (lambda c: os.truncate(c / "manifest.json", 40), "cannot be read"),
    "changed configuration": (lambda c: (c / "config.yaml").write_text("model: []\n"), "checksum"),
    "manifest with another number": (
        lambda c: (c / "manifest.json").write_text(
            (c / "manifest.json").read_text().replace('"tokens": 30', '"tokens": 31')
        ),
        "its own checksum differs",
    ),
    "unreadable file": (lambda c: unreadable(tensor_file(c)), "cannot be read"),
    "another format version": (
        lambda c: (c / "manifest.json").write_text(json.dumps({"format_version": 99})),
        "format version 99",
    ),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_newest_is_named_and_passed_over(folder: Path, kind: str) -> None:
    damage, reason = DAMAGE[kind]
    target = folder / "step-00000003"
    damage(target)
    with pytest.raises(CheckpointError, match=reason):
        verify(target)
    step, said = newest(folder)
    assert step == 2
    assert len(said) == 1
    assert reason in said[0]


def test_all_damaged_is_an_error_that_says_so(folder: Path) -> None:
    for path in list_checkpoints(folder):
        flip(tensor_file(path))
    with pytest.raises(CheckpointError, match="no whole checkpoint"):
        newest(folder)


def test_retention_counts_only_whole_checkpoints(folder: Path) -> None:
    flip(tensor_file(folder / "step-00000003"))
    flip(tensor_file(folder / "step-00000002"))
    saver = checkpointer(folder, keep_last=2)
    assert save(saver, 4) == ""
    assert {p.name for p in list_checkpoints(folder)} == {f"step-{s:08d}" for s in (1, 2, 3, 4)}
    assert save(saver, 5) == ""
    assert not (folder / "step-00000001").exists()
    assert newest(folder)[0] == 5


def test_retention_keeps_the_best_and_every_kth(tmp_path: Path) -> None:
    saver = checkpointer(tmp_path, keep_last=2, keep_every=4)
    for step in range(1, 11):
        assert save(saver, step, *([3] if step >= 3 else [])) == ""
    assert [int(p.name[5:]) for p in list_checkpoints(tmp_path)] == [10, 9, 8, 4, 3]


def test_a_stale_temporary_folder_is_cleared_and_never_read(folder: Path) -> None:
    shutil.copytree(folder / "step-00000003", folder / ".tmp-step-00000009")
    assert newest(folder)[0] == 3
    checkpointer(folder)
    assert not (folder / ".tmp-step-00000009").exists()


def test_retention_never_takes_the_one_just_saved(folder: Path) -> None:
    saver = checkpointer(folder, keep_last=2)
    shutil.rmtree(folder / "step-00000001")
    assert save(saver, 1) == ""  # a run that was resumed from before steps 2 and 3
    assert (folder / "step-00000001").exists()


def size(checkpoint: Path) -> int:
    """Bytes of the files that the manifest lists."""
    return sum(file["bytes"] for file in read_manifest(checkpoint).files.values())


def test_a_save_reads_its_own_files_and_no_others(tmp_path: Path) -> None:
    saver, read = checkpointer(tmp_path), []
    for step in range(1, 7):
        before = saver.digests.bytes_read
        assert save(saver, step) == ""
        read.append(saver.digests.bytes_read - before)
    sizes = [size(path) for path in reversed(list_checkpoints(tmp_path))]
    print("bytes hashed per save", read, "of checkpoints of", sizes)
    assert read == [2 * n for n in sizes]  # once for the manifest, once read back under its own name

    again = checkpointer(tmp_path)  # another process: it has verified nothing yet
    assert save(again, 7) == ""
    newest = size(tmp_path / "step-00000007")
    assert again.digests.bytes_read == sum(sizes) + 2 * newest

    touched = tensor_file(tmp_path / "step-00000002")
    os.utime(touched, ns=(1, 1))  # unchanged, but not known to be: read again
    before = again.digests.bytes_read
    assert save(again, 8) == ""
    assert again.digests.bytes_read - before == touched.stat().st_size + 2 * size(tmp_path / "step-00000008")


def test_a_change_after_it_was_verified_is_noticed(tmp_path: Path) -> None:
    saver = checkpointer(tmp_path, keep_last=2)
    assert save(saver, 1) == save(saver, 2) == ""
    flip(tensor_file(tmp_path / "step-00000002"))
    saver.start(tensors(3), manifest(3))
    (result,) = saver.finished(wait=True)
    assert "step-00000002" in result.warnings[0]
    assert {p.name for p in list_checkpoints(tmp_path)} == {f"step-{s:08d}" for s in (1, 2, 3)}


def test_nothing_is_deleted_for_a_save_that_does_not_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saver = checkpointer(tmp_path, keep_last=1)
    assert save(saver, 1) == ""
    original = Path.rename

    def lossy(path: Path, target: Path) -> Path:
        if path.is_dir():
            flip(tensor_file(path))  # what the disk gives back is not what was written
        return original(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", lossy)
        assert "its checksum differs" in save(saver, 2)
    assert newest(tmp_path)[0] == 1
    assert save(saver, 3) == ""
    assert {p.name for p in list_checkpoints(tmp_path)} == {"step-00000002", "step-00000003"}


def test_a_damaged_checkpoint_is_told_once(folder: Path) -> None:
    flip(tensor_file(folder / "step-00000002"))
    saver, told = checkpointer(folder), []
    for step in (4, 5):
        saver.start(tensors(step), manifest(step))
        told.append([len(result.warnings) for result in saver.finished(wait=True)])
    assert told == [[1], [0]]


def test_a_symlinked_checkpoint_is_read(folder: Path) -> None:
    link = folder.with_name(f"{folder.name}-latest")
    link.symlink_to(folder / "step-00000002")
    assert find_checkpoint(link)[1].step == 2


def boundaries(monkeypatch: pytest.MonkeyPatch, fail_at: int) -> list[str]:
    """Make the n-th write operation of a save fail, whatever it is; returns the operations seen."""
    import hymo.training.checkpointer as module

    seen: list[str] = []

    def guard(name: str, original: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **kwargs: object) -> object:
            seen.append(name)
            if len(seen) - 1 == fail_at:
                raise OSError(28, "No space left on device")
            return original(*args, **kwargs)

        return call

    monkeypatch.setattr(module, "dcp_save", guard("tensors", module.dcp_save))
    monkeypatch.setattr(module, "flush", guard("flush", module.flush))
    monkeypatch.setattr(Path, "write_text", guard("write", Path.write_text))
    monkeypatch.setattr(Path, "rename", guard("rename", Path.rename))
    return seen


def test_a_path_without_a_checkpoint_is_a_wrong_request(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none", tmp_path / "step-00000001"):
        with pytest.raises(UsageError, match=r"no (such folder|checkpoint there)"):
            find_checkpoint(path)


def test_a_failure_at_every_write_boundary_leaves_the_last_good_one(folder: Path) -> None:
    place, operations = 0, 0
    while True:
        with pytest.MonkeyPatch.context() as patch:
            seen = boundaries(patch, place)
            error = save(checkpointer(folder), 4)
        if error == "":
            break
        assert "No space left" in error
        after_rename = seen[-2:] == ["rename", "flush"]
        assert newest(folder)[0] == (4 if after_rename else 3)
        assert not list(folder.glob(".tmp-*"))
        if after_rename:
            shutil.rmtree(folder / "step-00000004")
        place, operations = place + 1, len(seen)
    assert operations >= 8
    assert newest(folder)[0] == 4


def test_a_full_disk_fails_the_save_and_nothing_else(small_disk: SmallDisk) -> None:
    saver = checkpointer(small_disk.path, keep_last=2)
    assert save(saver, 1) == ""
    small_disk.fill()
    assert small_disk.no_room in save(saver, 2)
    assert newest(small_disk.path)[0] == 1
    assert not list(small_disk.path.glob(".tmp-*"))
    small_disk.free()
    assert save(checkpointer(small_disk.path), 3) == ""
    assert newest(small_disk.path)[0] == 3


def test_a_failed_save_is_told_at_the_next_look(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saver = checkpointer(folder)
    with pytest.MonkeyPatch.context() as patch:
        boundaries(patch, 0)
        saver.start(tensors(4), manifest(4))
        saver._join()
    (result,) = saver.finished()
    assert (result.path, result.step) == (None, 4)
    assert saver.finished() == []


def test_two_ranks_wrote_a_file_each_and_any_number_reads_them(of_two_ranks: Path) -> None:
    from hymo.models.checkpoint import load_tensors

    checkpoint = of_two_ranks / "step-00000003"
    assert sorted(path.name for path in checkpoint.glob("*.distcp")) == ["__0_0.distcp", "__1_0.distcp"]
    assert verify(checkpoint).world_size == 2
    loaded = {"model": {"w": torch.empty(50, 3), "b": torch.empty(3, dtype=torch.int64)}}
    load_tensors(checkpoint, loaded)
    assert torch.equal(loaded["model"]["w"], torch.full((50, 3), 3.0))
    assert torch.equal(loaded["model"]["b"], torch.arange(3))


def test_what_is_saved_is_the_moment_of_the_call(tmp_path: Path) -> None:
    from hymo.models.checkpoint import load_tensors

    saver = checkpointer(tmp_path)
    state = tensors(5)
    saver.start(state, manifest(5))
    state["model"]["w"].zero_()
    (result,) = saver.finished(wait=True)
    assert result.path is not None
    loaded = {"model": {"w": torch.empty(50, 3), "b": torch.empty(5, dtype=torch.int64)}}
    load_tensors(result.path, loaded)
    assert torch.equal(loaded["model"]["w"], torch.full((50, 3), 5.0))
    assert torch.equal(loaded["model"]["b"], torch.arange(5))
    with pytest.raises(CheckpointError, match="does not fit"):
        load_tensors(result.path, {"model": {"other": torch.empty(1)}})
