"""Sampling against brute force over small vocabularies."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hymo.core.errors import UsageError
from hymo.inference import Sampling


def brute_force(
    logits: list[float], seen: list[bool], temperature: float, k: int, p: float, m: float, r: float
) -> list[float]:
    """The same rules, one token at a time, in plain Python."""
    scaled = [(x / r if x > 0 else x * r) if s else x for x, s in zip(logits, seen, strict=True)]
    top = max(scaled)
    weights = [math.exp((x - top) / temperature) for x in scaled]
    total = sum(weights)
    probs = [w / total for w in weights]
    ranked = sorted(range(len(probs)), key=lambda i: -probs[i])
    if 0 < k < len(probs):
        for i in ranked[k:]:
            probs[i] = 0.0
    mass = sum(probs)
    reached = 0.0
    for i in ranked:
        if reached >= p * mass and p < 1:
            probs[i], _ = 0.0, None
        else:
            reached += probs[i]
    most = max(probs)
    probs = [q if q >= m * most else 0.0 for q in probs]
    total = sum(probs)
    return [q / total for q in probs]


@given(
    logits=st.lists(st.integers(-400, 400), min_size=2, max_size=9, unique=True),
    temperature=st.sampled_from([0.3, 0.7, 1.0, 1.7]),
    k=st.integers(0, 10),
    p=st.sampled_from([0.1, 0.35, 0.6, 0.93, 1.0]),
    m=st.sampled_from([0.0, 0.05, 0.3]),
    r=st.sampled_from([1.0, 1.3]),
    data=st.data(),
)
@settings(deadline=None, max_examples=200)
def test_probabilities_equal_brute_force(
    logits: list[int], temperature: float, k: int, p: float, m: float, r: float, data: st.DataObject
) -> None:
    values = [x / 100 for x in logits]
    seen = data.draw(st.lists(st.booleans(), min_size=len(values), max_size=len(values)))
    sampling = Sampling(temperature, k, p, m, r)
    got = sampling.probabilities(torch.tensor([values], dtype=torch.float64), torch.tensor([seen]))[0]
    want = brute_force(values, seen, temperature, k, p, m, r)
    torch.testing.assert_close(got, torch.tensor(want, dtype=torch.float64), rtol=1e-9, atol=1e-9)


def test_temperature_zero_takes_the_most_likely() -> None:
    got = Sampling(temperature=0).probabilities(torch.tensor([[0.1, 2.0, -1.0], [3.0, 2.0, 2.9]]))
    assert got.tolist() == [[0, 1, 0], [1, 0, 0]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "extreme",
    [{"temperature": 1e-300}, {"temperature": 1e-40}, {"temperature": 1e6}, {"top_p": 1e-300}, {"min_p": 1.0}],
    ids=str,
)
def test_extreme_values_give_a_distribution(extreme: dict[str, float], dtype: torch.dtype) -> None:
    logits = torch.tensor([[15.0, 14.9, -15.0, -torch.inf]], dtype=dtype)
    for penalty in (0.01, 1.0, 100.0):
        got = Sampling(**extreme, repetition_penalty=penalty).probabilities(logits, logits > -99)  # type: ignore[arg-type]
        assert float(got.sum()) == pytest.approx(1)
        assert float(got[0, 3]) == 0
        if extreme != {"temperature": 1e6}:
            assert got[0].tolist() == [1, 0, 0, 0]


@pytest.mark.parametrize(
    "wrong",
    [{"temperature": t} for t in (-1.0, 1e300, math.inf, math.nan)]
    + [{"top_k": -1}, {"top_p": 0.0}, {"min_p": 1.5}, {"seed": -1}]
    + [{"repetition_penalty": r} for r in (0.0, 1e-9, 1e9, math.nan)],
    ids=str,
)
def test_a_value_out_of_range_is_named(wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))):
        Sampling(**wrong)  # type: ignore[arg-type]
