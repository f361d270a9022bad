"""`hymo checkpoint`: what is whole, what is not, and what retention takes."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from hymo.cli import main
from hymo.core.load import derive_config, dump_config, load_config
from hymo.models.checkpoint import list_checkpoints, read_manifest
from hymo.training.lock import claimed
from hymo.training.metrics import read_metrics


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


def retention(run: Path, **fields: int | None) -> None:
    path = run / "config.yaml"
    path.write_text(dump_config(derive_config(load_config(path), training=fields)))


def best(run: Path, step: int | None) -> None:
    folder = run / "checkpoints" / "step-00000012"
    manifest = read_manifest(folder)
    manifest.trainer["best_step"] = step
    (folder / "manifest.json").write_text(manifest.to_json())


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


def output(words: list[str], capsys: pytest.CaptureFixture[str], code: int = 0) -> Any:
    assert main(["checkpoint", *words, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def steps(run: Path) -> list[int]:
    return [int(path.name[5:]) for path in list_checkpoints(run / "checkpoints")]


def test_list_tells_what_each_is(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    best(run, 6)
    rows = output(["list", str(run)], capsys)
    losses = {r["step"]: r["val/loss"] for r in read_metrics(run) if r["split"] == "val"}
    assert set(losses) == {6, 12}
    assert [row["step"] for row in rows] == [12, 9, 6, 3]
    assert [row["tokens"] for row in rows] == [12 * 256, 9 * 256, 6 * 256, 3 * 256]
    assert [row["val_loss"] for row in rows] == [losses[12], None, losses[6], None]
    assert [row["best"] for row in rows] == [False, False, True, False]
    assert all(row["whole"] for row in rows)
    folder = run / "checkpoints" / "step-00000009"
    assert rows[1]["bytes"] == sum(f.stat().st_size for f in folder.iterdir())
    manifest = read_manifest(folder)
    assert rows[1]["bytes"] > sum(file["bytes"] for file in manifest.files.values())

    assert main(["checkpoint", "list", str(run)]) == 0
    shown = capsys.readouterr().out
    assert f"{losses[6]:.4f}" in shown
    assert "whole, best" in shown
    (row,) = output(["list", str(folder)], capsys)
    assert (row["step"], row["whole"]) == (9, True)


def test_verify_names_file_and_reason(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["checkpoint", "verify", str(run)]) == 0
    assert capsys.readouterr().out.count(": whole") == 4
    there = run / "checkpoints"
    (tensors,) = (there / "step-00000006").glob("*.distcp")
    flip(tensors)
    (there / "step-00000003" / "manifest.json").unlink()
    assert main(["checkpoint", "verify", str(run)]) == 1
    shown = capsys.readouterr()
    assert shown.out.count(": whole") == 2
    assert f"{tensors}: its checksum differs" in shown.err
    assert "step-00000003: no manifest.json" in shown.err
    rows = output(["verify", str(there / "step-00000006")], capsys, code=1)
    assert (rows[0]["whole"], rows[0]["tokens"]) == (False, None)
    assert tensors.name in rows[0]["damage"]
    assert main(["checkpoint", "list", str(run)]) == 0
    assert "its checksum differs" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("keep_last", "keep_every", "best_step", "left"),
    [(1, None, None, [12]), (2, None, 3, [12, 9, 3]), (1, 6, 9, [12, 9, 6]), (9, None, None, [12, 9, 6, 3])],
)
def test_prune_follows_the_runs_retention(
    run: Path,
    capsys: pytest.CaptureFixture[str],
    keep_last: int,
    keep_every: int | None,
    best_step: int | None,
    left: list[int],
) -> None:
    retention(run, keep_last=keep_last, keep_every=keep_every)
    best(run, best_step)
    gone = [step for step in (12, 9, 6, 3) if step not in left]
    planned = output(["prune", str(run), "--dry-run"], capsys)
    assert [row["step"] for row in planned["removed"]] == gone
    assert steps(run) == [12, 9, 6, 3]
    done = output(["prune", str(run)], capsys)
    assert {**done, "dry_run": True} == planned
    assert done["bytes"] == sum(row["bytes"] for row in done["removed"])
    assert steps(run) == left


def test_prune_counts_only_whole_ones_and_deletes_no_damaged_one(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    retention(run, keep_last=1)
    flip(run / "checkpoints" / "step-00000012" / "config.yaml")
    assert main(["checkpoint", "prune", str(run)]) == 0
    shown = capsys.readouterr()
    assert "deleted" in shown.out
    assert "step-00000012" in shown.err
    newest_whole = json.loads((run / "checkpoints" / "step-00000009" / "manifest.json").read_text())
    assert steps(run) == sorted({12, 9, newest_whole["trainer"]["best_step"]}, reverse=True)


def test_prune_keeps_out_of_a_live_run(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    retention(run, keep_last=1)
    with claimed(run):
        assert main(["checkpoint", "prune", str(run)]) == 2
        shown = capsys.readouterr().err
        assert f"another process is training there (pid {os.getpid()}). It prunes after every save by itself" in shown
        assert "run.name" not in shown
        assert main(["checkpoint", "prune", str(run), "--dry-run"]) == 0
    assert steps(run) == [12, 9, 6, 3]


def test_reading_passes_over_damage_and_says_so_in_one_line(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flip(run / "checkpoints" / "step-00000012" / "config.yaml")
    for _ in range(2):  # each time, not once per process
        assert main(["generate", str(run), "a", "--max-new-tokens", "1", "--json"]) == 0
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("warning: passed over a damaged checkpoint: ")
        assert "step-00000012/config.yaml: its checksum differs" in line


def test_wrong_places(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    for words, says in (
        (["list", str(tmp_path / "none")], "no such folder"),
        (["verify", str(tmp_path / "empty")], "no checkpoint there"),
        (["prune", str(run / "checkpoints" / "step-00000003")], "not a run"),
    ):
        assert main(["checkpoint", *words]) == 2
        assert says in capsys.readouterr().err
