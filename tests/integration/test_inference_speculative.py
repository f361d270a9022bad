"""Drafting never changes what is written: greedy token for token, sampled in distribution; rollback leaves no trace."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from hymo.cli import main
from hymo.core.errors import UsageError
from hymo.core.load import derive_config, load_config
from hymo.data import ByteTokenizer, open_split
from hymo.inference import Engine, Generation, Sampling
from hymo.inference.request import Drafts
from hymo.inference.serving.app import Settings, create_app
from hymo.models import DecodeState, HyMo, build_hymo
from inference_helpers import drafter, slow_generation

TOKENIZER = ByteTokenizer()
LENGTH = 64


@pytest.fixture(scope="module")
def count(request: pytest.FixtureRequest) -> int:
    """Prompts: a sample by default, the full 200 with --run-heavy."""
    return 200 if request.config.getoption("--run-heavy") else 16


@pytest.fixture(scope="module", params=["gated_linear", "gated_delta"])
def recurrence(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def model(recurrence: str, dataset: Path) -> HyMo:
    return drafter(recurrence, dataset)


def prompts(dataset: Path, count: int) -> Iterator[str]:
    split = open_split(dataset, "validation", TOKENIZER)
    rng = np.random.default_rng(0)
    for _ in range(count):
        text = TOKENIZER.decode(split.document(int(rng.integers(split.n_documents)))[1:-1])
        start = int(rng.integers(len(text) - 20))
        yield text[start : start + int(rng.integers(1, 20))]


def test_greedy_equals_plain_in_fp64(recurrence: str, dataset: Path, count: int) -> None:
    """For every draft depth, in ragged batches. One text in four is read by full passes too.

    Also with a penalty on repetition: without one so small a model falls into a loop that its heads learn well.
    """
    engine = Engine(drafter(recurrence, dataset, double=True), TOKENIZER)
    texts = list(product(prompts(dataset, count), (1.0, 1.4)))
    stats = engine.new_speculation()

    def run(drafts: Drafts, slots: int) -> list[Generation]:
        rules = [Sampling(temperature=0, repetition_penalty=penalty) for _, penalty in texts]
        requests = [engine.request(text, LENGTH, rule, drafts) for (text, _), rule in zip(texts, rules, strict=True)]
        return [generation for (generation,) in engine.run(requests, slots)]

    plain = run(False, slots=8)
    for (text, penalty), found in list(zip(texts, plain, strict=True))[::4]:
        request = engine.request(text, LENGTH, Sampling(temperature=0, repetition_penalty=penalty))
        tokens, *_ = slow_generation(engine.model, TOKENIZER, request, 0)
        assert found.tokens == tokens
    depths: tuple[Drafts, ...] = (1, 2, "auto")
    for drafts, slots in zip(depths, (1, 5, 11), strict=True):
        for (text, _), wanted, drafted in zip(texts, plain, run(drafts, slots), strict=True):
            assert drafted.tokens == wanted.tokens, (text, drafts)
            assert drafted.logprobs == pytest.approx(wanted.logprobs, abs=1e-9)
            assert drafted.finish_reason == wanted.finish_reason
            assert drafted.speculation is not None
            if drafts == 2:
                stats.add(drafted.speculation)
    print("accepted", stats.accepted, "of", stats.proposed)
    for depth in range(2):  # both outcomes were exercised, at both depths
        assert 20 < stats.accepted[depth] < stats.proposed[depth] - 20


def test_greedy_equals_plain_in_fp32_but_for_near_ties(model: HyMo, dataset: Path, count: int) -> None:
    engine = Engine(model, TOKENIZER)
    ties = []
    for prompt in prompts(dataset, count):
        plain = engine.generate(prompt, LENGTH, Sampling(temperature=0)).tokens
        drafted = engine.generate(prompt, LENGTH, Sampling(temperature=0), speculative=True).tokens
        if plain != drafted:
            place = next(i for i, (a, b) in enumerate(zip(plain, drafted, strict=False)) if a != b)
            ids = [1, *TOKENIZER.encode(prompt).tolist(), *plain[:place]]
            with torch.no_grad():
                logits = model(torch.tensor([ids]))[0, -1]
            gap = abs(float(logits[plain[place]] - logits[drafted[place]]))
            print(f"near tie after {prompt!r} + {place} tokens: gap {gap:.2e}")
            assert gap < 1e-4
            ties.append(gap)
    assert len(ties) <= 3


def test_sampled_text_is_the_same_with_drafts(recurrence: str, dataset: Path) -> None:
    """Token for token from the same seed, since the draw at each place decides about the draft."""
    engine = Engine(drafter(recurrence, dataset, double=True), TOKENIZER)
    requests = [
        engine.request("the ", 24, Sampling(temperature, top_k, top_p, min_p, seed=seed), n=3)
        for seed in range(4)
        for temperature, top_k, top_p, min_p in ((0.9, 3, 1.0, 0.0), (0.5, 0, 0.9, 0.0), (1.1, 40, 1.0, 0.05))
    ]
    plain = engine.run(requests)
    stats = engine.new_speculation()
    for depth in (1, 2):
        drafted = engine.run([replace(request, speculative=depth) for request in requests], slots=7)
        for wanted, found in zip(plain, drafted, strict=True):
            assert [generation.tokens for generation in found] == [generation.tokens for generation in wanted]
            for generation in found:
                assert generation.speculation is not None
                stats.add(generation.speculation)
    for depth in range(2):
        assert 50 < stats.accepted[depth] < stats.proposed[depth] - 50


@pytest.mark.parametrize("keep", [0, 1, 2, 3])
def test_a_rejected_draft_leaves_no_trace(model: HyMo, keep: int) -> None:
    prompt = torch.tensor([[1, *TOKENIZER.encode("SQLite is a ").tolist()]])
    read = torch.tensor([[60, 70, 80]])
    other = read.clone()
    other[0, keep:] = torch.tensor([200, 210, 220])[keep:]

    def verified(tokens: Tensor) -> DecodeState:
        state = model.init_state(1)
        model.decode_hidden(prompt, state)
        model.decode_hidden(tokens, state, keep_history=True)
        state.rollback(torch.tensor([keep]))
        return state

    first, second = verified(read), verified(other)
    alone = model.init_state(1)
    model.decode_hidden(prompt, alone)
    for t in range(keep):
        model.decode_hidden(read[:, t : t + 1], alone)
    used = int(alone.lengths)
    assert first.lengths.tolist() == second.lengths.tolist() == [used] == [prompt.shape[1] + keep]
    for a, b, c in zip(first.layers, second.layers, alone.layers, strict=True):
        for name in a.tensors():
            x, y, z = (getattr(cache, name) for cache in (a, b, c))
            if name in ("latent", "rope_keys"):
                x, y, z = x[:, :used], y[:, :used], z[:, :used]
            assert torch.equal(x, y), name
            if x.numel():
                assert float((x - z).norm() / z.norm()) < 1e-6, name


def test_a_model_without_heads_cannot_draft() -> None:
    model = build_hymo(derive_config(load_config("hymo_tiny"), model={"mtp_depth": 0}))
    engine = Engine(model, TOKENIZER)
    for refused in (
        lambda: engine.generate("a", 4, speculative=True),
        engine.new_speculation,
        lambda: create_app(engine, Settings(model="bare", speculative=True)),
    ):
        with pytest.raises(UsageError, match="no prediction heads"):
            refused()
    create_app(engine, Settings(model="bare"))  # "auto" is as far as drafts pay: none


def test_the_command_tells_tokens_per_pass(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["generate", str(finished), "The", "--max-new-tokens", "40", "--temperature", "0", "--speculative"]
    words += ["--draft-depth", "2"]
    assert main([*words, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    result = Engine.from_checkpoint(finished).generate("The", 40, Sampling(temperature=0), speculative=True)
    stats = result.speculation
    assert stats is not None
    assert stats.tokens == stats.passes + sum(stats.accepted)  # each pass gives one of its own and those it accepts
    assert said["tokens_per_pass"] == stats.tokens / stats.passes
    assert main(words) == 0
    assert f"{stats.tokens / stats.passes:.2f} tokens a pass" in capsys.readouterr().err
    assert main([*words[:-3], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tokens_per_pass"] is None
