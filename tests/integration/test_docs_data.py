"""The guide's commands run, in order, in a folder with a little text."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest

from hymo.cli.app import main
from hymo.data import load_manifest, sample_paths

PAGE = Path(__file__).parents[2] / "docs" / "data.md"


def test_the_commands_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rng = random.Random(0)
    texts = [json.loads(line)["text"] for line in sample_paths()["train"].read_text("utf-8").splitlines()]
    pieces = [piece for text in texts for piece in text.split("\n\n") if len(piece) > 200][:600]
    Path("my_text").mkdir()
    Path("my_text/a.jsonl").write_text("".join(json.dumps({"text": piece}) + "\n" for piece in pieces[:500]))
    Path("my_text/b.txt").write_text("\n\n".join(pieces[500:]))
    Path("my_held_out.jsonl").write_text(sample_paths()["validation"].read_text("utf-8"))
    Path("my_code").mkdir()
    code = [f"def f{i}(x):\n    return x * {rng.random()}\n" for i in range(60)]
    rows = [{"content": text, "lang": "python", "sha": f"{i:x}"} for i, text in enumerate(code)]
    Path("my_code/code.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    page = PAGE.read_text(encoding="utf-8")
    (mixture,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    Path("mine.yaml").write_text(mixture)

    commands = [line for block in re.findall(r"```sh\n(.*?)```", page, re.DOTALL) for line in block.splitlines()]
    assert len(commands) > 12
    for command in commands:
        if command.startswith("hymo train"):
            command += " --set scheduler.total_steps=2"
        hymo, *words = re.findall(r'"[^"]*"|\S+', command)
        assert hymo == "hymo"
        assert main([word.strip('"') for word in words]) == 0, command

    assert load_manifest("data").splits["test"].documents > 0
    assert load_manifest("many").fingerprint == load_manifest("data").fingerprint
    assert load_manifest("fixed").splits["validation"].documents == 9
    mixed = load_manifest("mixed").sources
    assert abs(mixed["notes"]["train"]["tokens"] - 14_000) < 8_000  # one long document more
    assert mixed["code"]["train"]["tokens"] >= 6_000
    assert "validation" not in mixed["code"]
    assert load_manifest("code").sources["python"]["train"]["documents"] > 40
