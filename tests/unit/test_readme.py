"""The README's commands and figures are those of the package."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hymo.cli.app import COMMANDS
from hymo.cli.output import count
from hymo.core.accounting import count_parameters
from hymo.core.load import load_config, preset_names

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
    stored, active, layers, width, context = (cell.strip() for cell in row[1].split("|")[:5])
    model = load_config(name).model
    total = count_parameters(model)
    for shown, exact in ((stored, total.stored), (active, total.active)):
        number, unit = shown.split()
        digits = len(number.partition(".")[2])
        assert float(number) == round(exact / {"M": 1e6, "B": 1e9}[unit], digits)
    assert [int(cell.replace(",", "")) for cell in (layers, width, context)] == [
        model.n_layers,
        model.dim,
        model.max_seq_len,
    ]


@pytest.mark.parametrize("command", [name for name, _, _ in COMMANDS])
def test_every_command_is_listed(command: str) -> None:
    assert f"`hymo {command}" in README


def test_linked_files_exist() -> None:
    links = re.findall(r"\]\((?!http)([^)#]+)\)", README)
    assert links
    assert all((ROOT / link).exists() for link in links)


def test_counts_read_well() -> None:
    shown = [count(n) for n in (999, 1000, 1_128_090_624, 30e9, 434_457_600)]
    assert shown == ["999", "1.0 k", "1.13 B", "30.0 B", "434.5 M"]
