"""Drafting never changes what is written: greedy token for token, sampled in distribution; rollback leaves no trace."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from hymo.cli import main
from hymo.core.errors import UsageError
from hymo.core.load import derive_config, load_config
from hymo.data import ByteTokenizer, PackedLoader, open_split
from hymo.inference import Engine, Sampling
from hymo.models import DecodeState, HyMo, build_hymo
from hymo.training import Trainer

TOKENIZER = ByteTokenizer()
LENGTH = 64


@pytest.fixture(scope="module")
def count(request: pytest.FixtureRequest) -> int:
    """Prompts: a sample by default, the full 200 with --run-heavy."""
    return 200 if request.config.getoption("--run-heavy") else 16


@pytest.fixture(scope="module", params=["gated_linear", "gated_delta"])
def model(request: pytest.FixtureRequest, dataset: Path) -> HyMo:
    """A model trained just long enough for its drafts to be right sometimes and wrong sometimes."""
    config = derive_config(
        load_config("hymo_tiny"),
        model={"dim": 32, "gdn_d_inner": 64, "n_routed_experts": 4, "moe_inter_dim": 32, "gdn_chunk_size": 16}
        | {"gdn_recurrence": request.param},
        scheduler={"total_steps": 100, "stable_frac": 0.83, "decay_frac": 0.15},
        training={"micro_batch_size": 4, "seq_len": 128, "log_interval": 1000},
        run={"device": "cpu"},
    )
    loader = PackedLoader(open_split(dataset, "train", TOKENIZER), 128, 4)
    trainer = Trainer(config, loader)
    trainer.train()
    return trainer.master


def prompts(dataset: Path, count: int) -> Iterator[str]:
    split = open_split(dataset, "validation", TOKENIZER)
    rng = np.random.default_rng(0)
    for _ in range(count):
        text = TOKENIZER.decode(split.document(int(rng.integers(split.n_documents)))[1:-1])
        start = int(rng.integers(len(text) - 20))
        yield text[start : start + int(rng.integers(1, 20))]


def test_greedy_equals_plain_in_fp64(model: HyMo, dataset: Path, count: int) -> None:
    """Also with a penalty on repetition: without one so small a model falls into a loop that its heads learn well."""
    engine = Engine(_copy(model).double(), TOKENIZER)
    stats = engine.new_speculation()
    for prompt, penalty in product(prompts(dataset, count), (1.0, 1.4)):
        greedy = Sampling(temperature=0, repetition_penalty=penalty)
        plain = engine.generate(prompt, LENGTH, greedy)
        drafted = engine.generate(prompt, LENGTH, greedy, speculative=True)
        assert drafted.tokens == plain.tokens, prompt
        assert drafted.logprobs == pytest.approx(plain.logprobs, abs=1e-9)
        assert drafted.finish_reason == plain.finish_reason
        assert drafted.speculation is not None
        for depth in range(2):
            stats.proposed[depth] += drafted.speculation.proposed[depth]
            stats.accepted[depth] += drafted.speculation.accepted[depth]
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


def test_sampled_text_keeps_its_distribution(model: HyMo) -> None:
    """Three tokens after a prompt, drafted or not: two-sample chi-square over the most frequent outcomes."""
    engine = Engine(model, TOKENIZER)
    counts: list[dict[tuple[int, ...], int]] = [{}, {}]
    for seed in range(300):
        for mode in (False, True):
            sampling = Sampling(temperature=0.9, top_k=3, seed=seed + 10_000 * mode)
            tokens = tuple(engine.generate("the ", 3, sampling, speculative=mode).tokens)
            counts[mode][tokens] = counts[mode].get(tokens, 0) + 1
    frequent = [t for t in counts[0] | counts[1] if counts[0].get(t, 0) + counts[1].get(t, 0) >= 12]
    rest = [300 - sum(c.get(t, 0) for t in frequent) for c in counts]
    rows = [(counts[0].get(t, 0), counts[1].get(t, 0)) for t in frequent] + [(rest[0], rest[1])]
    statistic = sum((a - b) ** 2 / (a + b) for a, b in rows if a + b)
    degrees = len(rows) - 1
    assert degrees >= 5
    # Wilson-Hilferty: chi-square at p = 0.001
    limit = degrees * (1 - 2 / (9 * degrees) + 3.09 * (2 / (9 * degrees)) ** 0.5) ** 3
    assert statistic < limit


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
    with pytest.raises(UsageError, match="no prediction heads"):
        Engine(model, TOKENIZER).generate("a", 4, speculative=True)


def _copy(model: HyMo) -> HyMo:
    clone = build_hymo(model.config)
    clone.load_state_dict(model.state_dict())
    return clone


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
