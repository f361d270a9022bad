"""Bits per byte by position: sums equal the plain evaluation's, and each token stands in the bucket of its context."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch

from hymo.cli.app import main
from hymo.core.errors import UsageError
from hymo.core.load import load_config
from hymo.data import ByteTokenizer, EvaluationWindows, open_split
from hymo.evaluation.perplexity import evaluate
from hymo.evaluation.positions import beyond_context, bits_per_byte_by_position, edges
from hymo.models import HyMo, build_hymo

BYTES = ByteTokenizer()


@pytest.fixture(scope="module")
def model() -> HyMo:
    return build_hymo(load_config("hymo_tiny"), seed=1).double().eval()


def test_edges() -> None:
    assert edges(40) == [40]
    assert edges(64) == [64]
    assert edges(65) == [64, 65]
    assert edges(32_768) == [64 << i for i in range(10)]


@pytest.mark.parametrize("batch_size", [1, 3])
def test_sums_are_those_of_the_evaluation(model: HyMo, dataset: Path, batch_size: int) -> None:
    split = open_split(dataset, "validation", BYTES)
    buckets = bits_per_byte_by_position(model, split, BYTES, 200, max_bytes=1500, batch_size=batch_size)
    expected = evaluate(model, EvaluationWindows(split, 200, max_bytes=1500, tokenizer=BYTES), 2)
    assert [(b.above, b.up_to) for b in buckets] == [(0, 64), (64, 128), (128, 200)]
    assert sum(b.nats for b in buckets) == pytest.approx(expected.nats, rel=1e-9)
    assert sum(b.bytes for b in buckets) == expected.bytes == 1500
    assert sum(b.tokens for b in buckets) == expected.tokens


def test_joined_documents_equal_a_loop(model: HyMo, dataset: Path) -> None:
    split = open_split(dataset, "validation", BYTES)
    text = [int(i) for n in range(2) for i in split.document(n)]
    size = int(split.text_bytes[:2].sum())
    buckets = bits_per_byte_by_position(model, split, BYTES, 240, joined=True, max_bytes=size - 1)
    sums = {64: [0.0, 0], 128: [0.0, 0], 240: [0.0, 0]}
    with torch.no_grad():
        for start in range(0, len(text) - 2, 240):
            piece = torch.tensor(text[start : start + 241])
            logprobs = torch.log_softmax(model(piece[None, :-1])[0], -1)
            for place, target in enumerate(piece[1:].tolist()):
                if start + place + 1 < len(text) - 1 and target > 2:  # neither the last eos nor a mark within
                    cell = sums[min(end for end in sums if place < end)]
                    cell[0] -= float(logprobs[place, target])
                    cell[1] += 1
    assert sum(int(n) for _, n in sums.values()) == size
    for bucket in buckets:
        nats, count = sums[bucket.up_to]
        assert (bucket.nats, bucket.bytes) == (pytest.approx(nats, rel=1e-9), count)
        assert bucket.bits_per_byte == pytest.approx(nats / math.log(2) / count, rel=1e-9)


def test_the_end_of_the_context(model: HyMo, dataset: Path) -> None:
    split = open_split(dataset, "validation", BYTES)
    with pytest.raises(UsageError, match=r"length: 257 is not in 1\.\.256"):
        bits_per_byte_by_position(model, split, BYTES, 257)
    longer = beyond_context(model, load_config("hymo_tiny"), 300).double()
    for module in longer.modules():
        if hasattr(module, "reset_buffers") and hasattr(module, "frequencies"):
            module.reset_buffers()
    near = bits_per_byte_by_position(longer, split, BYTES, 300, joined=True, max_bytes=600)
    tokens = torch.arange(200)[None] % 250 + 3
    with torch.no_grad():
        assert torch.allclose(longer(tokens), model(tokens), atol=1e-9)
    assert [b.up_to for b in near] == [64, 128, 256, 300]
    assert near[-1].bytes > 0


def test_command(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["recall", "positions", str(finished), "--max-bytes", "3000", "--joined"]
    assert main([*words, "--json"]) == 0
    shown = capsys.readouterr()
    facts = json.loads(shown.out)
    assert "the context ends at 256 tokens: 32,768 were asked for" in shown.err
    assert (facts["context"], facts["trained_length"]) == (256, 64)
    assert [row["up_to"] for row in facts["buckets"]] == [64, 128, 256]
    assert all(0 < row["bits_per_byte"] < 20 for row in facts["buckets"])
    assert main([*words, "--length", "400", "--beyond"]) == 0
    shown = capsys.readouterr()
    assert "257 to 400" in shown.out
    assert shown.out.count("past the training length") == 3
    assert main([*words, "--length", "0"]) == 2


def test_compare_command(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["recall", "compare", "--task", "parity", "--seeds", "1", "--set", "scheduler.total_steps=1"]
    words += ["--model", "attention", "--model", "GDN, gated_delta", "--set", "training.micro_batch_size=2"]
    assert main([*words, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["model"] for row in rows] == ["attention", "GDN, gated_delta"]
    assert main(words) == 0
    shown = capsys.readouterr()
    assert "parity: bits 1 to 32" in shown.out
    assert "parity, attention" in shown.err
    assert main([*words, "--task", "party"]) == 2
    assert "did you mean 'parity'" in capsys.readouterr().err
