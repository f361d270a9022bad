"""The commands and code blocks of the guides to generation and serving run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from hymo.cli.app import COMMANDS, build_app, main
from hymo.inference import Engine
from hymo.inference.serving.protocol import _NEUTRAL, CompletionBody
from serving_helpers import serving

DOCS = Path(__file__).parents[2] / "docs"


def blocks(name: str) -> list[tuple[str, str]]:
    return re.findall(r"```(sh|python)\n(.*?)```", (DOCS / name).read_text(encoding="utf-8"), re.DOTALL)


def test_the_guide_to_generation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("prompts.txt").write_text("SELECT \nCREATE TABLE \nPRAGMA ")
    names: dict[str, Any] = {}
    for kind, block in blocks("generation.md"):
        if kind == "python":
            exec(block, names)
            continue
        for line in block.splitlines():
            hymo, *words = shlex.split(line)
            assert hymo == "hymo"
            short = ["--max-new-tokens", "16"] if words[0] == "generate" and "--max-new-tokens" not in words else []
            assert main([*words, *short]) == 0, line
    assert capsys.readouterr().out.count("The SQLite ") >= 3
    assert [len(texts) for texts in names["texts"]] == [2, 2]
    assert names["job"].finished


def test_the_guide_to_serving() -> None:
    found = blocks("serving.md")
    page = (DOCS / "serving.md").read_text(encoding="utf-8")
    app = build_app()
    with serving(Engine.from_checkpoint("demo"), model="demo") as server:
        for kind, block in found:
            if kind == "python":
                exec(block.replace("http://127.0.0.1:8000", server.url), {})
                continue
            for line in block.splitlines():
                command, *words = shlex.split(line)
                if command == "hymo":
                    parsed = app.parse_args(words, exit_on_error=False, print_error=False)
                    assert parsed[0].__name__ == "serve"
                    continue
                assert command == "curl"
                path = words[0].removeprefix("http://127.0.0.1:8000")
                body = words[words.index("-d") + 1].encode() if "-d" in words else None
                status, _, data = server.request("GET" if body is None else "POST", path, body)
                assert (status, bool(data)) == (200, True), line
    for field in (*CompletionBody.model_fields, *_NEUTRAL):
        assert f"`{field}" in page or field in ("presence_penalty", "frequency_penalty"), field
    assert "serve" in {name for name, _, _ in COMMANDS}
