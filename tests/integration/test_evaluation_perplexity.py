"""Bits per byte against plain log-likelihoods of whole documents."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from hymo.core.load import load_config
from hymo.data import ByteTokenizer, EvaluationWindows, open_split
from hymo.evaluation.perplexity import evaluate
from hymo.models import build_hymo


@pytest.fixture(scope="module")
def model() -> torch.nn.Module:
    return build_hymo(load_config("hymo_tiny"), seed=1).double()


def test_equals_a_loop_over_documents(model: torch.nn.Module, dataset: Path) -> None:
    split = open_split(dataset, "validation", ByteTokenizer())
    windows = EvaluationWindows(split, 96, max_bytes=1500, tokenizer=ByteTokenizer())
    nats, tokens = 0.0, 0
    with torch.no_grad():
        for text in windows.documents(ByteTokenizer()):
            ids = torch.tensor([1, *ByteTokenizer().encode(text).tolist()])
            for start in range(0, len(ids) - 1, 96):
                piece = ids[start : start + 97]
                logprobs = torch.log_softmax(model(piece[None, :-1])[0], -1)
                nats -= float(logprobs.gather(-1, piece[1:, None]).sum())
                tokens += len(piece) - 1
    model.train()
    result = evaluate(model, windows, batch_size=3)
    assert model.training
    assert (result.tokens, result.bytes) == (tokens, 1500)
    assert result.nats == pytest.approx(nats, rel=1e-9)
    assert result.bits_per_byte == pytest.approx(nats / math.log(2) / 1500, rel=1e-9)
    assert result.byte_perplexity == pytest.approx(2**result.bits_per_byte, rel=1e-9)
    assert result.token_perplexity == pytest.approx(math.exp(nats / tokens), rel=1e-9)


@pytest.mark.parametrize("stride", [None, 20])
def test_acceptance_equals_a_loop_over_positions(dataset: Path, stride: int | None) -> None:
    model = build_hymo(load_config("hymo_tiny"), seed=3).double().eval()
    with torch.no_grad():
        model.embed.weight[[40, 70, 104, 118]] *= 30  # few candidates, so that heads agree now and then
    split = open_split(dataset, "validation", ByteTokenizer())
    windows = EvaluationWindows(split, 40, stride=stride, max_bytes=130, tokenizer=ByteTokenizer())
    agreed, judged = [0, 0], [0, 0]
    with torch.no_grad():
        for text in windows.documents(ByteTokenizer()):
            ids = torch.tensor([1, *ByteTokenizer().encode(text).tolist()])
            scored = 0
            for start in range(0, len(ids) - 1, stride or 40):
                piece = ids[start : start + 41]
                new = scored - start  # targets up to here belong to the window before
                scored = max(scored, start + len(piece) - 1)
                choice = [int(model(piece[None, : t + 1])[0, -1].argmax()) for t in range(len(piece) - 1)]
                for t in range(max(new, 0), len(piece) - 1):
                    chain = model.forward_with_hidden(piece[None, : t + 1])[1][0, -1]
                    for depth, block in enumerate(model.mtp.blocks, 1):
                        if t + depth + 1 >= len(piece):
                            break
                        chain, out = block(chain, model.embed_tokens(piece[t + depth]))
                        agreed[depth - 1] += int(model.logits(out).argmax()) == choice[t + depth]
                        judged[depth - 1] += 1
                if scored == len(ids) - 1:
                    break
    result = evaluate(model, windows, batch_size=2, acceptance=True)
    assert result.acceptance == tuple(a / j for a, j in zip(agreed, judged, strict=True))
    assert all(0 < rate < 1 for rate in result.acceptance)
    assert result.to_dict()["acceptance_2"] == result.acceptance[1]
    plain = evaluate(model, windows, batch_size=2)
    assert (plain.acceptance, plain.nats) == ((), result.nats)


@pytest.mark.parametrize("batch_size", [1, 2, 7])
def test_does_not_depend_on_the_batch_size(model: torch.nn.Module, dataset: Path, batch_size: int) -> None:
    split = open_split(dataset, "validation", ByteTokenizer())
    windows = EvaluationWindows(split, 64, max_bytes=1000, tokenizer=ByteTokenizer())
    assert evaluate(model, windows, batch_size).nats == pytest.approx(evaluate(model, windows, 4).nats, rel=1e-10)
