"""The commands of the guide to operation run, and its table says what they say."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hymo.cli import main
from hymo.cli.output import count, size
from hymo.core.load import RESUMABLE

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "operate.md").read_text(encoding="utf-8")
COMMANDS = [line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]


def test_every_command_runs(
    tmp_path: Path, finished: Path, dataset: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(finished, tmp_path / "runs" / "books")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "books").symlink_to(dataset)
    for command in COMMANDS:
        hymo, *words = shlex.split(command)
        assert hymo == "hymo"
        assert main(words) == 0, command
    assert {"start.sh", "job.sh", "task.yaml", "jobset.yaml"} <= {path.name for path in tmp_path.iterdir()}
    assert not list(tmp_path.rglob(".preflight-*"))
    shown = capsys.readouterr().out
    assert "work lost with a machine, at most" in shown
    assert "cost so far" in shown


def test_the_table_says_what_the_commands_say(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [re.sub(r"<!--.*?-->", "", line) for line in PAGE.splitlines() if line.startswith("| <!--=op.")]
    plans = [shlex.split(command) for command in COMMANDS if command.startswith("hymo plan")]
    assert len(rows) == len(plans) == 4
    for row, words in zip(rows, plans, strict=True):
        assert main([*words[1:], "--json"]) == 0
        plan = json.loads(capsys.readouterr().out)
        speed, price = plan["throughput"], float(words[words.index("--price") + 1])
        name, tokens, days, cost, disk, lost = (cell.strip() for cell in row.strip("|").split("|"))
        assert name.startswith(f"{plan['gpus']} x ")
        assert name.endswith(f"at {price:g}")
        assert tokens == count(speed["tokens_per_second"])
        assert days == f"{plan['tokens'] / speed['tokens_per_second'] / 86400:.1f}"
        hours = plan["tokens"] / speed["tokens_per_second"] / 3600
        assert cost == f"{hours * plan['gpus'] * price:,.0f}"
        assert disk == f"{size(plan['checkpoint_disk_bytes'])} and {size(plan['data_bytes'])}"
        again = min(1.0, 4000 * plan["tokens_per_step"] / speed["tokens_per_second"] / 3600)
        assert lost == f"{again:.2f} h, for {again * plan['gpus'] * price:,.0f}"


def test_what_it_says_of_fields_is_true() -> None:
    fields = ("run.track", "run.alert", "run.health_port", "training.hang_minutes", "training.hang_abort")
    assert set(fields) <= set(RESUMABLE)
    assert "training.spike_rewind" not in RESUMABLE
    assert all(f"`{field}`" in PAGE for field in (*fields, "training.spike_rewind"))
    shipped = {path.name for path in (ROOT / "launch").iterdir()}
    assert shipped == {"torchrun.sh", "nodes.sh", "slurm.sh", "skypilot.yaml", "jobset.yaml"}


@pytest.mark.heavy
def test_the_rehearsal_runs(tmp_path: Path, dataset: Path) -> None:
    """On two ranks of this machine: nothing is lost at the signal, and every step is there once."""
    words = [
        sys.executable,
        str(ROOT / "benchmarks" / "rehearsal.py"),
        "hymo_tiny",
        "--ranks",
        "2",
        "--data",
        str(dataset),
    ]
    words += ["--out", str(tmp_path / "out"), "--runs", str(tmp_path / "runs"), "--steps", "20"]
    words += ["--set", "training.grad_accum_steps=2", "--set", "training.micro_batch_size=4"]
    variables = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
    }
    subprocess.run(words, env=variables, capture_output=True, check=True, timeout=200)
    found = json.loads((tmp_path / "out" / "rehearsal.json").read_text())
    assert [found[part]["exit"] for part in ("preflight", "interrupted", "resumed", "watch", "plot")] == [
        0,
        143,
        0,
        0,
        0,
    ]
    assert (found["steps_lost"], found["steps_in_order"], found["last_checkpoint"]["step"]) == (0, True, 20)
    assert (tmp_path / "out" / "loss.png").stat().st_size > 1000
