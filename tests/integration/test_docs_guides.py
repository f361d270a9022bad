"""Every shell and Python block of the portal's guides, concepts and labs runs."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from hymo.cli.app import build_app, main
from hymo.data import sample_paths
from hymo.inference import Engine
from serving_helpers import serving

DOCS = Path(__file__).parents[2] / "docs"
SHORT = ["--set", "scheduler.total_tokens=6144", "--set", "training.eval_sequences=2"]
PAGES = [page for name in ("concepts", "guides", "labs") for page in sorted((DOCS / name).glob("*.md"))]


def _blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


def _run(page: Path, without: str = "") -> list[str]:
    lines = [line for block in _blocks(page, "sh") for line in block.splitlines() if line.strip() and line != without]
    for line in lines:
        hymo, *words = shlex.split(line)
        assert hymo == "hymo", line
        if words[0] == "serve":
            _serve(words)
            continue
        assert main([*words, *(SHORT if words[0] == "train" else [])]) == 0, line
    return lines


def _serve(words: list[str]) -> None:
    """What the command would start, on a free port, for one request."""
    command, bound, _ = build_app().parse_args(words, exit_on_error=False, print_error=False)
    assert command.__name__ == "serve"
    checkpoint = str(bound.arguments["checkpoint"])
    with serving(Engine.from_checkpoint(checkpoint), model=Path(checkpoint).name) as server:
        body = json.dumps({"prompt": "Once", "max_tokens": 2}).encode()
        status, _, data = server.request("POST", "/v1/completions", body)
        assert (status, json.loads(data)["usage"]["completion_tokens"]) == (200, 2)


def test_train_on_your_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = DOCS / "guides" / "train.md"
    texts = [json.loads(line)["text"] for line in sample_paths()["train"].read_text("utf-8").splitlines()[:4]]
    pieces = [piece for text in texts for piece in text.split("\n\n") if len(piece) > 300][:200]
    Path("my_text").mkdir()
    Path("my_text/a.jsonl").write_text("".join(json.dumps({"text": piece}) + "\n" for piece in pieces))
    Path("heldout.txt").write_text(json.loads(sample_paths()["validation"].read_text("utf-8").splitlines()[0])["text"])
    (config,) = _blocks(page, "yaml")
    Path("mine.yaml").write_text(config)
    assert len(_run(page)) > 10
    assert Path("exported/config.json").exists()
    assert Path("runs/mine/metrics.jsonl").exists()


def test_quickstart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All but the demo itself, whose short form takes most of a minute: `.ci/run` and the heavy test run it."""
    monkeypatch.chdir(tmp_path)
    page = DOCS / "guides" / "quickstart.md"
    assert _blocks(page, "sh")[0] == "hymo demo --short\n"
    data = ["data", "prepare", str(sample_paths()["train"]), "--out", "data"]
    data += ["--validation", str(sample_paths()["validation"])]
    assert main(data) == 0
    run = ["--set", "run.name=demo-short", "--set", "training.checkpoint_interval=4"]
    assert main(["train", "hymo_tiny", "--data", "data", *run, *SHORT]) == 0
    assert len(_run(page, without="hymo demo --short")) == 6


@pytest.mark.heavy
def test_quickstart_with_the_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert len(_run(DOCS / "guides" / "quickstart.md")) == 7


@pytest.mark.parametrize(
    "page", [p for p in PAGES if p.parent.name != "guides" and _blocks(p, "sh")], ids=lambda p: p.stem
)
def test_shell_blocks_elsewhere(page: Path) -> None:
    assert _run(page)


@pytest.mark.parametrize("page", [p for p in PAGES if _blocks(p, "python")], ids=lambda p: p.stem)
def test_python_blocks(page: Path) -> None:
    names: dict[str, Any] = {}
    for block in _blocks(page, "python"):
        exec(block, names)
    if page.stem == "mtp":
        assert names["plain"].tokens == names["drafted"].tokens
    if page.stem == "gdn-mla":
        assert [round(float(x), 6) for x in names["out"].flatten()] == [2.0, 5.0, 3.0]


def test_no_guide_hides_a_command_in_a_block_that_is_not_run() -> None:
    for page in PAGES:
        fences = re.findall(r"^```(\w*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
        assert {language for language in fences if language} <= {"sh", "python", "yaml", "text"}, page
