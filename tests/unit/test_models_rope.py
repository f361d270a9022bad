"""Rotary embedding: angles, relative positions, extension, and what the recurrence makes of it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from hymo.core.errors import UsageError
from hymo.kernels import gated_linear
from hymo.models import RotaryEmbedding, apply_rope
from model_helpers import build, close, draw_tokens

PAIRINGS = ("half_split", "interleaved")


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def table(dim: int, length: int, theta: float = 10_000.0, factor: float = 1.0) -> RotaryEmbedding:
    rope = RotaryEmbedding(dim, length, theta, factor).double()
    rope.reset_buffers()
    return rope


def rotated(x: Tensor, start: int, rope: RotaryEmbedding, pairing: str) -> Tensor:
    positions = torch.arange(x.shape[1]) + start
    return apply_rope(x, rope(positions, int(positions[-1])), pairing)


@pytest.mark.parametrize("pairing", PAIRINGS)
@pytest.mark.parametrize("dim", [2, 6, 32])
def test_pairs_turn_by_their_angle(pairing: str, dim: int) -> None:
    x = normal(1, 40, 3, dim)
    got = rotated(x, 5, table(dim, 64), pairing)
    for pair in range(dim // 2):
        i, j = (pair, pair + dim // 2) if pairing == "half_split" else (2 * pair, 2 * pair + 1)
        for t in (0, 1, 39):
            angle = (t + 5) / 10_000 ** (2 * pair / dim)
            a, b = x[0, t, :, i], x[0, t, :, j]
            close(got[0, t, :, i], a * math.cos(angle) - b * math.sin(angle))
            close(got[0, t, :, j], a * math.sin(angle) + b * math.cos(angle))


@pytest.mark.parametrize("pairing", PAIRINGS)
def test_scores_depend_on_the_difference_of_positions(pairing: str) -> None:
    rope = table(32, 4096)
    q, k = normal(1, 10, 1, 32), normal(1, 10, 1, 32, seed=1)

    def scores(start: int) -> Tensor:
        return torch.einsum("bthd,bshd->ts", rotated(q, start, rope, pairing), rotated(k, start, rope, pairing))

    for start in (1, 77, 4086):
        close(scores(start), scores(0))
    shifted = torch.einsum("bthd,bshd->ts", rotated(q, 5, rope, pairing), rotated(k, 0, rope, pairing))
    assert float((shifted - scores(0)).abs().max()) > 0.1


def test_the_pairings_differ() -> None:
    x, rope = normal(1, 4, 1, 8), table(8, 16)
    assert float((rotated(x, 0, rope, "half_split") - rotated(x, 0, rope, "interleaved")).abs().max()) > 0.1


@pytest.mark.parametrize("sharing", ["pair", "head"])
@pytest.mark.parametrize("pairing", PAIRINGS)
def test_the_recurrence_reads_relative_positions(pairing: str, sharing: str) -> None:
    """Learned decays, unequal over the states: the read still depends on differences, for decays tied over pairs."""
    model = build(double=True, rope_pairing=pairing, gdn_decay_sharing=sharing)
    block: Any = model.layers[1]
    with torch.no_grad():
        block.A_log.copy_(2 * normal(*block.A_log.shape) - 3)
    rope, (heads, states) = table(8, 4096), block.A_log.shape
    b, c, v = normal(1, 50, heads, states), normal(1, 50, heads, states, seed=1), normal(1, 50, heads, 5, seed=2)
    g = torch.rand((1, 50, heads), generator=torch.Generator().manual_seed(3), dtype=torch.float64)

    def read(start: int, log_rates: Tensor) -> Tensor:
        return gated_linear(v, rotated(b, start, rope, pairing), rotated(c, start, rope, pairing), g, log_rates)[0]

    tied = block.shared_log_rates().detach()
    for start in (1, 1000, 4000):
        close(read(start, tied), read(0, tied), 1e-9)
    assert float((read(1000, block.A_log) - read(0, block.A_log)).detach().abs().max()) > 0.01  # untied: absolute
    if sharing == "head":
        close(tied, block.A_log.mean(-1, keepdim=True).expand_as(tied))
    else:
        pairs = [(i, i + 4) if pairing == "half_split" else (2 * i, 2 * i + 1) for i in range(4)]
        for i, j in pairs:
            mean = (block.A_log[:, i] + block.A_log[:, j]) / 2
            close(tied[:, i], mean)
            close(tied[:, j], mean)


@pytest.mark.parametrize(
    "changes",
    [{}, {"rope_pairing": "interleaved"}, {"gdn_recurrence": "gated_delta"}, {"qk_rope_head_dim": 16}],
    ids=str,
)
def test_the_whole_model_is_blind_to_absolute_positions(changes: dict[str, Any]) -> None:
    model = build(double=True, **changes)
    tokens = draw_tokens(2, 40)
    logits, _ = model.forward_with_hidden(tokens)
    for start in (1, 64, 120):
        close(model.forward_with_hidden(tokens, start_pos=start)[0], logits)


def test_no_position_beyond_the_table() -> None:
    rope = table(8, 16)
    rope(torch.arange(16), 15)
    with pytest.raises(UsageError, match="position 16 is beyond the context of 16"):
        rope(torch.arange(17), 16)


@pytest.mark.parametrize("length", [4096, 10**6])
def test_far_positions_are_exact(length: int) -> None:
    rope = RotaryEmbedding(4, length, 10_000.0)
    position = length - 1
    for pair in range(2):
        angle = position * 10_000 ** (-2 * pair / 4)
        assert abs(float(rope.cos[position, pair]) - math.cos(angle)) < 1e-6
        assert abs(float(rope.sin[position, pair]) - math.sin(angle)) < 1e-6


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_tables_stay_fp32(dtype: torch.dtype) -> None:
    """cos of a position rounded to bf16 is off by up to 0.4 %, and positions no longer add up."""
    model = build().to(dtype)
    for rope in (model.rope_mla, model.rope_gdn):
        assert rope.cos.dtype is rope.sin.dtype is torch.float32


def test_half_inputs_turn_in_fp32() -> None:
    x = normal(1, 64, 2, 32)
    rope = RotaryEmbedding(32, 64, 10_000.0)
    for dtype in (torch.bfloat16, torch.float16):
        got = rotated(x.to(dtype), 0, rope, "half_split")
        assert got.dtype is dtype
        exact = rotated(x.to(dtype).double(), 0, rope, "half_split")
        assert torch.equal(got, exact.float().to(dtype)) or float((got - exact).abs().max()) < 0.02


def yarn_frequencies(dim: int, length: int, theta: float, factor: float) -> np.ndarray[Any, Any]:
    """YaRN from the paper's definition by turns: r(p) = L theta_p / 2 pi turns over the trained context.

    Pairs of 32 turns or more keep their frequency, pairs of 1 turn or fewer are slowed by the factor, and between the
    pair indices of these bounds (rounded outwards to whole pairs, as published implementations do) the mix is linear.
    """
    plain = np.array([theta ** (-2 * p / dim) for p in range(dim // 2)])
    # Continuous pair index at which a pair makes the given number of turns.
    at = {turns: dim / 2 * math.log(length / (2 * math.pi * turns), theta) for turns in (32, 1)}
    low, high = max(math.floor(at[32]), 0), min(math.ceil(at[1]), dim - 1)
    mixed = []
    for p, frequency in enumerate(plain):
        slowed = min(max((p - low) / (high - low), 0.0), 1.0)
        mixed.append(frequency * ((1 - slowed) + slowed / factor))
    return np.array(mixed)


@pytest.mark.parametrize(
    ("dim", "length", "factor"), [(32, 4096, 8.0), (32, 4096, 2.0), (64, 2048, 16.0), (8, 160, 4.0)]
)
def test_yarn_frequencies(dim: int, length: int, factor: float) -> None:
    rope = table(dim, length, factor=factor)
    expected = yarn_frequencies(dim, length, 10_000.0, factor)
    close(rope.frequencies(), expected, 1e-12)
    assert rope.positions == length * factor
    for position in (0, length - 1, length, int(length * factor) - 1):
        close(rope.cos[position], np.cos(position * expected), 1e-9)
        close(rope.sin[position], np.sin(position * expected), 1e-9)
    # The fastest pair is untouched, and no pair turns further over the long context than it can have by plain slowing.
    assert float(rope.frequencies()[0]) == 1.0
    turns = length * np.array([10_000.0 ** (-2 * p / dim) for p in range(dim // 2)]) / (2 * math.pi)
    slow = np.nonzero(turns < 0.5)[0]
    if len(slow):
        last = slow[-1]
        assert math.isclose(float(rope.frequencies()[last]), 10_000.0 ** (-2 * last / dim) / factor)
    assert math.isclose(rope.score_scale, (0.1 * math.log(factor) + 1) ** 2)


def test_yarn_extends_the_context_of_a_model() -> None:
    model = build(double=True, yarn_factor=2.0)
    tokens = draw_tokens(1, 320)
    logits = model(tokens)
    close(model.forward_with_hidden(tokens[:, :20], start_pos=300)[0], logits[:, :20])
    with pytest.raises(UsageError, match="320"):
        model(draw_tokens(1, 321))
    plain = build(double=True)
    plain.load_state_dict(model.state_dict())
    assert float((plain(tokens[:, :100]) - logits[:, :100]).abs().max()) > 1e-4
