"""What stands around a run: which code it was, where it may write, what it says of flags."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import hymo
from hymo.cli import main
from hymo.core.config import HyMoConfig
from hymo.core.errors import DataError, StorageError, UsageError
from hymo.core.files import write_text
from hymo.core.load import derive_config
from hymo.data import sample_paths
from hymo.models.checkpoint import find_checkpoint
from hymo.training.device import compute_dtype, without_effect
from hymo.training.metrics import EVENTS, read_jsonl
from hymo.training.run import open_run, run_folder
from hymo.training.view import RunView
from training_helpers import SmallDisk, stop_after

ROOT = Path(__file__).parents[2]


def git(*words: str) -> str:
    return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=True).stdout.strip()


def test_a_run_says_which_code_it_ran_and_keeps_every_start(small: HyMoConfig) -> None:
    with open_run(small) as trainer:
        stop_after(trainer, 2)
        trainer.train()
    with open_run(small) as trainer:
        trainer.train()
    first, second = json.loads((run_folder(small) / "env.json").read_text())
    assert (first["step"], second["step"]) == (0, 2)
    assert first["date"] <= second["date"]
    manifest = find_checkpoint(run_folder(small))[1]
    assert manifest.hymo_version == first["hymo"] == second["hymo"] == hymo.__version__
    if (ROOT / ".git").exists():
        assert first["commit"].removesuffix("-dirty") == git("rev-parse", "HEAD")
        assert first["commit"].endswith("-dirty") == bool(git("status", "--porcelain", "--", "src/hymo"))
    assert manifest.commit == first["commit"] == second["commit"]


@pytest.mark.parametrize(("field", "switch", "runs"), [("auto", None, "chunked"), ("auto", "recurrent", "recurrent")])
def test_a_run_says_which_kernel_it_ran(
    small: HyMoConfig, monkeypatch: pytest.MonkeyPatch, field: str, switch: str | None, runs: str
) -> None:
    monkeypatch.delenv("HYMO_KERNELS", raising=False)
    if switch is not None:
        monkeypatch.setenv("HYMO_KERNELS", switch)
    config = derive_config(small, training={"gdn_kernel": field})
    with open_run(config):
        pass
    (start,) = json.loads((run_folder(config) / "env.json").read_text())
    assert start["kernel"] == {"operation": "gated_linear", "implementation": runs, "HYMO_KERNELS": switch}


def test_data_of_another_tokenizer_or_without_held_out_text_name_the_cure(small: HyMoConfig, tmp_path: Path) -> None:
    text = sample_paths()["train"]
    tokenizer = tmp_path / "bpe"
    assert main(["tokenizer", "train", str(text), "--out", str(tokenizer), "--vocab-size", "300"]) == 0
    for name, words in (("foreign", ["--tokenizer", str(tokenizer)]), ("bare", ["--test", str(text)])):
        source = sample_paths()["validation"] if name == "bare" else text
        assert main(["data", "prepare", str(source), "--out", str(tmp_path / name), *words]) == 0
    for name, error, says in (
        ("foreign", DataError, "--set run.tokenizer=PATH"),
        ("bare", UsageError, "hymo data prepare --validation FILE"),
    ):
        with pytest.raises(error, match=says), open_run(derive_config(small, run={"data": str(tmp_path / name)})):
            pass


def test_the_commit_of_somebody_elses_repository_is_not_ours(tmp_path: Path) -> None:
    """A package installed into an environment inside a repository, as `.venv` often is."""
    for words in (
        ["init", "-q"],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "x"],
    ):
        subprocess.run(["git", "-C", str(tmp_path), *words], check=True)
    core = tmp_path / "site" / "hymo" / "core"
    shutil.copytree(ROOT / "src" / "hymo" / "core", core)
    shutil.copy(ROOT / "src" / "hymo" / "__init__.py", core.parent)
    code = "from hymo.core.version import commit; print(repr(commit()))"
    environment = {**os.environ, "PYTHONPATH": str(core.parents[1])}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout == "''\n"


def test_what_a_device_cannot_do_is_told_once_and_done_otherwise(
    small: HyMoConfig, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A T4 has no bf16 units, a Mac before macOS 14 neither: the capability checks are simulated."""
    half = derive_config(small, training={"param_dtype": "bfloat16"}, scheduler={"total_steps": 2})
    eager = derive_config(small, training={"torch_compile_gdn": False, "cuda_graphs_mla": True})
    cuda, mps, cpu = (torch.device(kind) for kind in ("cuda", "mps", "cpu"))
    for able in (True, False):
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation, able=able: able)
        monkeypatch.setattr(torch.backends.mps, "is_macos_or_newer", lambda major, minor, able=able: able)
        lacking = [] if able else ["training.param_dtype", "training.moe_mixed_precision"]
        assert list(without_effect(half, cuda)) == lacking
        assert list(without_effect(half, mps)) == lacking[:1]
        for device in (cuda, mps):
            assert compute_dtype(half, device) is (torch.bfloat16 if able else torch.float32)
    assert without_effect(half, cpu) == {}
    assert compute_dtype(half, cpu) is torch.bfloat16
    assert list(without_effect(eager, cuda))[-1] == "training.cuda_graphs_mla"
    assert "gathered" in without_effect(eager, cuda, ranks=2)["training.cuda_graphs_mla"]
    monkeypatch.setattr("hymo.training.device.has_bf16", lambda device: False)
    monkeypatch.setattr("hymo.training.run.choose", lambda name, values, states: str(values.dtype))
    with open_run(derive_config(half, run={"name": "told"}), [RunView(2, "told")]) as trainer:
        record = json.loads((run_folder(trainer.config) / "env.json").read_text())
        assert record[-1]["kernel"]["implementation"] == "torch.float32"  # what is chosen for is what is computed in
        assert {p.dtype for p in trainer.copy.model.parameters()} == {torch.float32}
        trainer.train()
        events = read_jsonl(run_folder(trainer.config) / EVENTS)
    assert [event["field"] for event in events if event["kind"] == "without_effect"] == ["training.param_dtype"]
    assert capsys.readouterr().err.count("computing in float32") == 1


def test_a_full_disk_is_one_clear_error_before_work(
    small: HyMoConfig, finished: Path, small_disk: SmallDisk, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = small_disk.path
    config = derive_config(small, run={"output_dir": str(folder)})
    small_disk.fill()
    room = f"cannot be written ({small_disk.no_room}). Free space there, then try again."
    with pytest.raises(StorageError, match=re.escape(room)), open_run(config):
        pass
    assert main(["plot", str(finished), "--out", str(folder / "a.png")]) == 1
    assert capsys.readouterr().err == f"error: {folder / 'a.png'}: {room}\n"

    small_disk.free()
    kept = folder / "kept.txt"
    write_text(kept, "old")
    small_disk.fill()
    with pytest.raises(StorageError, match=r"kept\.txt"):
        write_text(kept, "new" * 4096)
    assert kept.read_text() == "old"
    assert {path.name for path in folder.iterdir()} - {"filler"} == {"small", "kept.txt"}
    with pytest.raises(UsageError, match=r"nowhere/a: cannot be written .*Choose another place"):
        write_text(folder / "nowhere" / "a", "text")


def test_a_read_only_place_is_one_clear_error(small: HyMoConfig, small_disk: SmallDisk) -> None:
    small_disk.read_only()
    config = derive_config(small, run={"output_dir": str(small_disk.path)})
    with pytest.raises(UsageError, match=rf"small: cannot be written \({small_disk.not_writable}\)"), open_run(config):
        pass
