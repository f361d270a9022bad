"""Generation against a loop of full forward passes."""

from __future__ import annotations

import math

import pytest
import torch

from hymo.core.errors import UsageError
from hymo.core.load import derive_config, load_config
from hymo.data import ByteTokenizer
from hymo.inference import Engine, Sampling
from hymo.models import build_hymo

TOKENIZER = ByteTokenizer()


@pytest.fixture(scope="module", params=["gated_linear", "gated_delta"])
def engine(request: pytest.FixtureRequest) -> Engine:
    config = derive_config(load_config("hymo_tiny"), model={"gdn_recurrence": request.param, "vocab_size": 270})
    torch.manual_seed(0)
    model = build_hymo(config, seed=3)
    with torch.no_grad():  # larger embeddings: a random model whose choices are not all ties
        model.embed.weight.mul_(5)
    return Engine(model.double(), TOKENIZER)


def test_greedy_equals_a_loop_of_full_passes(engine: Engine) -> None:
    prompt = "select * from"
    ids = [TOKENIZER.bos_id, *TOKENIZER.encode(prompt).tolist()]
    want, logprobs = [], []
    with torch.no_grad():
        for _ in range(40):
            logits = engine.model(torch.tensor([ids]))[0, -1].clone()
            logits[[1, 2]] = -math.inf
            logits[259:] = -math.inf
            token = int(logits.argmax())
            if token == TOKENIZER.eos_id:
                break
            want.append(token)
            logprobs.append(float(torch.log_softmax(logits, -1)[token]))
            ids.append(token)
    result = engine.generate(prompt, 40, Sampling(temperature=0))
    assert result.tokens == want
    assert result.logprobs == pytest.approx(logprobs, abs=1e-9)
    assert result.text == TOKENIZER.decode(want)
    assert result.finish_reason == ("length" if len(want) == 40 else "stop")


def test_a_seed_repeats_and_no_seed_differs(engine: Engine) -> None:
    first = engine.generate("a", 30, Sampling(seed=7)).tokens
    assert engine.generate("a", 30, Sampling(seed=7)).tokens == first
    assert engine.generate("a", 30, Sampling(seed=8)).tokens != first
    assert engine.generate("a", 30).tokens != engine.generate("a", 30).tokens


def test_sampled_frequencies_match_the_distribution(engine: Engine) -> None:
    """One token, 4,000 seeds: chi-square against the model's own top-4 distribution."""
    sampling = Sampling(top_k=4)
    ids = torch.tensor([[TOKENIZER.bos_id, *TOKENIZER.encode("x").tolist()]])
    with torch.no_grad():
        logits = engine.model(ids)[:, -1]
        logits[:, [1, 2]] = -math.inf
        logits[:, 259:] = -math.inf
    probabilities = sampling.probabilities(logits)[0]
    draws = torch.multinomial(probabilities, 4000, replacement=True, generator=torch.Generator().manual_seed(0))
    tokens = [engine.generate("x", 1, Sampling(top_k=4, seed=s)).tokens for s in range(400)]
    own = torch.tensor([ids[0] if ids else TOKENIZER.eos_id for ids in tokens])
    for counts, n in ((torch.bincount(draws, minlength=270), 4000), (torch.bincount(own, minlength=270), 400)):
        kept = probabilities > 0
        assert int(counts[~kept].sum()) == 0
        statistic = ((counts[kept] - n * probabilities[kept]) ** 2 / (n * probabilities[kept])).sum()
        assert float(statistic) < 16.27  # chi-square, 3 degrees of freedom, p = 0.001


def test_requests_beyond_the_context_are_refused(engine: Engine) -> None:
    with pytest.raises(UsageError, match="exceed the context of 256"):
        engine.generate("x" * 200, 60)
    with pytest.raises(UsageError, match="max_new_tokens"):
        engine.generate("x", 0)
    assert len(engine.generate("x" * 195, 60, Sampling(temperature=0)).tokens) <= 60
