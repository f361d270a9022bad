"""`hymo generate` and `hymo bench decode` say what the engine says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hymo.cli import main
from hymo.core.errors import UsageError
from hymo.data import ByteTokenizer
from hymo.inference import Engine, Sampling
from hymo.inference.bench import bench_decode


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine.from_checkpoint("demo")


def said(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    found = json.loads(capsys.readouterr().out)
    return found if isinstance(found, list) else [found]


def test_stop_n_and_alternatives(engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["generate", "demo", "The ", "--seed", "3", "--max-new-tokens", "40", "--stop", ".", "--stop", "e"]
    assert main([*words, "--n", "3", "--logprobs", "2", "--json"]) == 0
    found = said(capsys)
    wanted = engine.run([engine.request("The ", 40, Sampling(0.8, seed=3), stop=(".", "e"), alternatives=2, n=3)])[0]
    assert [one["text"] for one in found] == [one.text for one in wanted]
    assert [one["tokens"] for one in found] == [one.tokens for one in wanted]
    assert {one["finish_reason"] for one in found} == {"stop"}
    for one, own in zip(found, wanted, strict=True):
        tops = [[(top["id"], top["text"]) for top in place] for place in one["top"]]  # type: ignore[attr-defined]
        assert tops == [[(i, ByteTokenizer().decode([i])) for i, _ in token.top] for token in own.details]
    assert main([*words, "--n", "2"]) == 0
    shown = capsys.readouterr()
    assert shown.out == f"--- 1 of 2\nThe {wanted[0].text}\n--- 2 of 2\nThe {wanted[1].text}\n"
    assert "tokens/s" in shown.err


def test_prompts_from_a_file(engine: Engine, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines, strings = tmp_path / "prompts.txt", tmp_path / "prompts.jsonl"
    prompts = ["SELECT ", "é ", "", "CREATE TABLE x"]
    lines.write_text("\n".join(prompts) + "\n")
    strings.write_text('"SELECT "\n{"prompt": "\\u00e9 ", "id": 3}\n\n""\n"CREATE TABLE x"\n')
    wanted = [engine.generate(prompt, 10, Sampling(temperature=0)).text for prompt in prompts]
    for path in (lines, strings):
        words = ["generate", "demo", "--prompts", str(path), "--temperature", "0", "--max-new-tokens", "10"]
        assert main([*words, "--batch-size", "3", "--json"]) == 0
        found = said(capsys)
        assert [one["prompt"] for one in found] == prompts
        assert [one["text"] for one in found] == wanted
        assert main(words) == 0
        shown = "".join(f"---\n{prompt}{text}\n" for prompt, text in zip(prompts, wanted, strict=True))
        assert capsys.readouterr().out == shown


def test_the_streamed_text_ends_before_its_stop_string(engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "demo", "The ", "--seed", "3", "--stop", "e", "--speculative"]) == 0
    wanted = engine.generate("The ", 256, Sampling(0.8, seed=3), stop=("e",))
    assert capsys.readouterr().out == f"The {wanted.text}\n"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nowhere"], "nowhere: no such folder"),
        (["demo", "--logprobs", "2"], "--logprobs: needs --json"),
        (["demo", "--draft-depth", "1"], "--draft-depth: needs --speculative"),
        (["demo", "--speculative", "--draft-depth", "3"], "speculative: must lie in 0..2"),
        (["demo", "a", "--prompts", "FILE"], "--prompts"),
        (["demo", "--prompts", "missing.txt"], "missing.txt: cannot be read"),
        (["demo", "--prompts", "FILE"], "bad.jsonl:2: no JSON string"),
        (["demo", "--prompts", "EMPTY"], "holds no prompt"),
        (["demo", "--stop", ""], "stop: a string must have"),
        (["demo", "--n", "0"], "n: must be at least 1"),
        (["demo", "--dtype", "int8"], "dtype"),
        (["demo", "--batch-size", "0"], "--batch-size: must"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_requests(tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], says: str) -> None:
    bad, empty = tmp_path / "bad.jsonl", tmp_path / "empty.txt"
    bad.write_text('"a"\n{"text": 1}\n')
    empty.write_text("")
    names = {"FILE": str(bad), "EMPTY": str(empty)}
    assert main(["generate", *(names.get(word, word) for word in words)]) == 2
    shown = capsys.readouterr()
    assert (shown.out, shown.err.count("\n")) == ("", 1)
    assert says in shown.err


def test_a_folder_named_demo_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("demo").mkdir()
    with pytest.raises(UsageError, match="demo: no checkpoint there"):
        Engine.from_checkpoint("demo")


def test_decoding_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["bench", "decode", "demo", "--batch", "1", "--batch", "3", "--context", "20", "--new-tokens", "6"]
    assert main([*words, "--speculative", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    kinds = [(row["phase"], row["batch"], row["drafts"]) for row in rows]
    one = [("prefill", "0"), *(("decode", drafts) for drafts in ("0", "1", "2", "auto"))]
    assert kinds == [(phase, batch, drafts) for batch in (1, 3) for phase, drafts in one]
    for row in rows:
        assert row["tok_per_s"] > 0
        if row["phase"] == "prefill":
            assert row["tokens"] == 20 * row["batch"]
        else:
            assert 1 <= row["tokens"] <= 4 * row["batch"]  # the first step gives two or more
        assert (row["acceptance"] is None) == (row["drafts"] == "0")
    assert main(words) == 0
    assert "tokens/s" in capsys.readouterr().out
    (prefill, decode) = bench_decode("hymo_tiny", batches=[2], context=8, new_tokens=4)
    assert (prefill.tokens, decode.tokens, decode.config) == (16, 4, "hymo_tiny")
    with pytest.raises(UsageError, match="--batch"):
        bench_decode("demo", batches=[0])
