"""`hymo doctor --preflight`: every fault that would end a run of days is found before it starts, with its cure."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rank_faults
from hymo.cli import main
from hymo.core.config import HyMoConfig
from hymo.core.load import derive_config, dump_config
from hymo.training import preflight, track
from hymo.training.trainer import Trainer
from rank_helpers import Job

NAMES = ["ranks", "devices", "all-reduce", "packages", "memory", "disk", "data", "step", "checkpoint"]


def run(config: HyMoConfig, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, tuple[str, str]]]:
    """Exit code, and (state, text) of each line by its check."""
    path = Path(config.run.output_dir if Path(config.run.output_dir).is_dir() else Path.cwd()) / "c.yaml"
    path.write_text(dump_config(config))
    code = main(["doctor", "--preflight", str(path), *words])
    return code, lines(capsys.readouterr().out)


def lines(text: str) -> dict[str, tuple[str, str]]:
    found = [re.fullmatch(r"(ok|FAIL|-) +(\S+) +(.+)", line) for line in text.splitlines()]
    assert all(found), text
    return {m[2]: (m[1], m[3]) for m in found if m is not None}


def test_a_run_that_can_start(small: HyMoConfig, capsys: pytest.CaptureFixture[str]) -> None:
    code, told = run(small, capsys)
    assert (code, list(told), {state for state, _ in told.values()}) == (0, NAMES, {"ok"})
    assert "2 passes of 2 sequences" in told["ranks"][1]
    assert "256 tokens" in told["step"][1]  # 4 sequences of 64
    assert "read back equal" in told["checkpoint"][1]
    assert sorted(p.name for p in Path(small.run.output_dir).iterdir()) == ["c.yaml"]  # nothing stays


def too_long(config: HyMoConfig, folder: Path) -> HyMoConfig:
    return derive_config(
        config, scheduler={"total_steps": 10**8}, training={"keep_every": 1, "max_epochs": 10**7}
    )  # a checkpoint per step, for good: more than any disk holds


def corrupt(config: HyMoConfig, folder: Path) -> HyMoConfig:
    data = shutil.copytree(str(config.run.data), folder / "damaged")
    shard = next((data / "train").glob("*.hymo"))
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)
    return derive_config(config, run={"data": str(data)})


def too_large(config: HyMoConfig, folder: Path) -> HyMoConfig:
    return derive_config(config, training={"micro_batch_size": 10**7})


def unwritable(config: HyMoConfig, folder: Path) -> HyMoConfig:
    (folder / "file").write_text("a file where the run's folder should be")
    return derive_config(config, run={"output_dir": str(folder / "file" / "runs")})


def untracked(config: HyMoConfig, folder: Path) -> HyMoConfig:
    return derive_config(config, run={"track": ("wandb",)})


FAULTS: dict[Callable[[HyMoConfig, Path], HyMoConfig], tuple[str, str, str]] = {
    too_long: ("disk", "needed for checkpoints. Free space there", "checkpoint"),
    corrupt: ("data", "damaged: section 'tokens' does not match its checksum. Prepare the data set again", "step"),
    too_large: ("memory", "Lower training.micro_batch_size to 5000000", "step"),
    unwritable: ("disk", "cannot be written (Not a directory). Set run.output_dir elsewhere", "checkpoint"),
    untracked: ("packages", "wandb is not installed. Install it with `pip install 'hymo[track]'`", "step"),
}
"""What is done to the run -> the check that fails, what it says, and the first check that is then left out."""


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.__name__)
def test_a_fault_is_one_line_with_its_cure(
    fault: Callable[[HyMoConfig, Path], HyMoConfig],
    small: HyMoConfig,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(track._MODULES, "wandb", "no_such_module")
    monkeypatch.chdir(tmp_path)
    name, says, left_out = FAULTS[fault]
    code, told = run(fault(small, tmp_path), capsys)
    assert code == 1
    failed = [check for check, (state, _) in told.items() if state == "FAIL"]
    assert failed == ([name, "data"] if fault is too_large else [name]), told
    assert says in told[name][1]
    assert told[left_out] == ("-", f"not tried: {told[left_out][1].split()[2]} failed.")
    assert not list(tmp_path.rglob(".preflight-*"))


def test_a_checkpoint_that_reads_back_differently(
    small: HyMoConfig, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Trainer.resume

    def resume(self: Trainer, path: Path) -> None:
        original(self, path)
        next(iter(self.parameters.values())).data.add_(1e-3)

    monkeypatch.setattr(Trainer, "resume", resume)
    code, told = run(small, capsys)
    assert (code, told["checkpoint"][0]) == (1, "FAIL")
    assert "read back differs from what was saved" in told["checkpoint"][1]


def test_a_reader_that_does_nothing_is_found(
    small: HyMoConfig, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Trainer, "resume", lambda self, path: None)
    code, told = run(small, capsys)
    assert code == 1
    assert (told["checkpoint"][0], "read back differs" in told["checkpoint"][1]) == ("FAIL", True)


def test_a_wrong_number_of_ranks(small: HyMoConfig, capsys: pytest.CaptureFixture[str]) -> None:
    code, told = run(small, capsys, "--ranks", "3")
    assert code == 1
    assert told["ranks"][0] == "FAIL"
    assert "do not divide over 3 ranks. Start 1 or 2 ranks" in told["ranks"][1]
    code, told = run(small, capsys, "--ranks", "2")
    assert (code, told["ranks"][1]) == (0, "2, 1 of them here, each with 1 passes of 2 sequences a step")


def test_quick_leaves_the_model_out(small: HyMoConfig, capsys: pytest.CaptureFixture[str]) -> None:
    code, told = run(small, capsys, "--quick")
    assert (code, list(told), {state for state, _ in told.values()}) == (0, NAMES[:-2], {"ok"})


@pytest.mark.parametrize("fault", ["", "late"])
def test_two_ranks_try_it_together(small: HyMoConfig, tmp_path: Path, fault: str) -> None:
    """Also if the second one is still reading the checkpoint when the first is through."""
    path = tmp_path / "c.yaml"
    path.write_text(dump_config(small))
    job = Job(2, rank_faults.command, ["doctor", "--preflight", str(path)], tmp_path / "said", fault)
    assert job.exits(60) == [0, 0], (tmp_path / "said-0").read_text() + (tmp_path / "said-1").read_text()
    told = lines((tmp_path / "said-0").read_text())
    assert (list(told), {state for state, _ in told.values()}) == (NAMES, {"ok"})
    assert "4 MiB over gloo" in told["all-reduce"][1]
    assert (tmp_path / "said-1").read_text() == ""  # the first one speaks for all


def test_a_rank_that_fails_in_the_step_is_told_by_the_first(small: HyMoConfig, tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(dump_config(small))
    job = Job(2, rank_faults.command, ["doctor", "--preflight", str(path)], tmp_path / "said", "raise@1")
    assert job.exits(60) == [1, 1]
    said = [line for line in (tmp_path / "said-0").read_text().splitlines() if line.startswith(("ok", "FAIL", "-"))]
    assert said[-1].startswith("FAIL  step ")
    assert "ValueError: boom" in said[-1]
    assert not list(tmp_path.glob("**/.preflight-*"))


def test_ranks_that_do_not_divide_the_step_are_told_once(small: HyMoConfig, tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(dump_config(derive_config(small, training={"grad_accum_steps": 1})))
    job = Job(2, rank_faults.command, ["doctor", "--preflight", str(path)], tmp_path / "said")
    assert job.exits(60) == [1, 0]
    told = lines((tmp_path / "said-0").read_text())
    assert told["ranks"][0] == "FAIL"
    assert "Start 1 ranks" in told["ranks"][1]
    assert told["data"][0] == "ok"  # what needs no group is tried all the same
    assert (tmp_path / "said-1").read_text() == ""


def test_json_and_words_that_need_a_run(small: HyMoConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(dump_config(derive_config(small, run={"data": None})))
    assert main(["doctor", "--preflight", str(path), "--json"]) == 1
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    assert [check["name"] for check in found] == NAMES
    data = next(check for check in found if check["name"] == "data")
    assert (data["ok"], "hymo data prepare" in data["text"]) == (False, True)
    assert main(["doctor", "--preflight", str(path), "--data", str(small.run.data)]) == 0
    capsys.readouterr()
    for words in (["--ranks", "2"], ["--data", "x"], ["--quick"], ["--preflight", str(path), "--ranks", "0"]):
        assert main(["doctor", *words]) == 2
    assert "need --preflight CONFIG" in capsys.readouterr().err


def test_speed_is_bytes_by_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 2.0, 10.0, 14.0])
    monkeypatch.setattr(preflight.time, "perf_counter", lambda: next(clock))
    assert preflight._speed(tmp_path / "f", 3 << 20) == ((3 << 20) / 2, (3 << 20) / 4)
    assert os.listdir(tmp_path) == []
