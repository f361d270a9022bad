"""The README's commands and figures are those of the package."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from hymo.cli.app import COMMANDS, main
from hymo.cli.output import count
from hymo.core.accounting import count_parameters
from hymo.core.load import load_config, preset_names
from hymo.data import sample_paths

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_first_screen_shows_exactly_the_two_commands() -> None:
    blocks = re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
    commands = [line.split("#")[0].strip() for line in blocks[0].splitlines()]
    assert commands == ["make demo", "make test"]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert all(re.search(rf"^{command.split()[1]}:", makefile, re.MULTILINE) for command in commands)


@pytest.mark.parametrize("name", preset_names())
def test_preset_table(name: str) -> None:
    row = re.search(rf"^\| `{name}` \|(.*)$", README, re.MULTILINE)
    assert row is not None
    stored, active, layers, width, context, vocabulary = (cell.strip() for cell in row[1].split("|")[:6])
    model = load_config(name).model
    total = count_parameters(model)
    for shown, exact in ((stored, total.stored), (active, total.active)):
        number, unit = shown.split()
        digits = len(number.partition(".")[2])
        assert float(number) == round(exact / {"M": 1e6, "B": 1e9}[unit], digits)
    shown_sizes = [int(cell.replace(",", "").split()[0]) for cell in (layers, width, context, vocabulary)]
    assert shown_sizes == [model.n_layers, model.dim, model.max_seq_len, model.vocab_size]


@pytest.mark.parametrize("command", [name for name, _, _ in COMMANDS])
def test_every_command_is_listed(command: str) -> None:
    assert f"`hymo {command}" in README


def test_the_commands_from_own_text_to_a_continuation_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = sample_paths()["train"].read_text(encoding="utf-8").splitlines()
    texts = [json.loads(line)["text"] for line in lines[:3]]
    Path("books").mkdir()
    for name, text in zip(("books/one.txt", "books/two.txt", "heldout.txt"), texts, strict=True):
        Path(name).write_text(text, encoding="utf-8")
    blocks = re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
    commands = [shlex.split(line) for line in blocks[1].splitlines()]
    assert [words[:2] for words in commands][:2] == [["hymo", "data"], ["hymo", "train"]]
    short = ["--set", "scheduler.total_tokens=4096", "--set", "training.eval_sequences=2"]
    for words in commands:
        assert main([*words[1:], *(short if words[1] == "train" else [])]) == 0, words
    assert "Once upon a time" in capsys.readouterr().out


def test_the_python_block_runs() -> None:
    (block,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    names: dict[str, Any] = {}
    exec(block, names)
    assert names["logits"].shape == (2, 128, 259)


def test_linked_files_exist() -> None:
    links = re.findall(r"\]\((?!http)([^)#]+)\)", README)
    assert links
    assert all((ROOT / link).exists() for link in links)


def test_counts_read_well() -> None:
    shown = [count(n) for n in (999, 1000, 1_128_090_624, 30e9, 434_457_600)]
    assert shown == ["999", "1.0 k", "1.13 B", "30.0 B", "434.5 M"]
