"""The commands of the guides to recall and to HumanEval run, on a finished run."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

from hymo.cli.app import main

DOCS = Path(__file__).parents[2] / "docs"
SHORT = {
    "recall compare": ["--task", "parity", "--seeds", "1", "--set", "scheduler.total_steps=1"],
    "recall positions": ["--max-bytes", "2000"],
    "humaneval run": ["--limit", "2", "--max-new-tokens", "8"],
    "humaneval verify": [],
}


@pytest.mark.parametrize("page", ["recall.md", "humaneval.md"])
def test_the_commands_of_the_page_run(
    page: str, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(finished, "runs/small")
    text = (DOCS / page).read_text(encoding="utf-8")
    commands = [line for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]
    assert len(commands) == 3
    for command in commands:
        hymo, *words = shlex.split(command)
        assert hymo == "hymo"
        assert main([*words, *SHORT[" ".join(words[:2])]]) == 0, command
    assert capsys.readouterr().out


def test_the_python_block_runs() -> None:
    (block,) = re.findall(r"```python\n(.*?)```", (DOCS / "humaneval.md").read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {}
    exec(block, names)
    assert names["outcome"].ok
