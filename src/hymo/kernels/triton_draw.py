"""Triton kernels that draw tokens from logits by inverting the distribution function, a row at a time in two steps.

`tally` sums the exponentials of each block of a row; `draw` finds the block that a row's uniform number falls into, and
the token in it. Sums of probabilities are fp64, so that a block more or less decides nothing.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _capped(x, closed, CAP: tl.constexpr):
    """Softcapped logits in fp32, closed tokens at -inf."""
    wide = x.to(tl.float32)
    if CAP > 0:
        # tanh(z) = 1 - 2 / (e^2z + 1): an exponential that overflows still gives 1
        wide = CAP * (1 - 2 / (tl.exp(wide * (2 / CAP)) + 1))
    return wide + closed


@triton.jit
def tally(
    raw, closed, temperatures, tops, places, sums, weights, V, W,
    BLOCK: tl.constexpr, CAP: tl.constexpr,
):  # fmt: skip
    """Of each block of logits raw (rows, V): the greatest, its place, and the sums of exp at temperature 1 and T.

    Both sums are relative to the block's greatest logit. Temperatures hold for W rows each.
    """
    block = tl.program_id(0)
    row = tl.program_id(1).to(tl.int64)
    i = block * BLOCK + tl.arange(0, BLOCK)
    inside = i < V
    x = tl.load(raw + row * V + i, mask=inside, other=0.0)
    logit = _capped(x, tl.load(closed + i, mask=inside, other=-float("inf")), CAP)
    top = tl.max(logit, 0)
    below = logit - tl.where(top == -float("inf"), 0.0, top)
    temperature = tl.load(temperatures + row // W).to(tl.float32)
    heat = tl.where(temperature > 0, temperature, 1.0)
    slot = row * tl.num_programs(0) + block
    tl.store(tops + slot, top)
    tl.store(places + slot, block * BLOCK + tl.argmax(logit, 0))
    tl.store(sums + slot, tl.sum(tl.exp(below), 0))
    tl.store(weights + slot, tl.sum(tl.exp(below / heat).to(tl.float64), 0))


@triton.jit
def draw(
    raw, closed, temperatures, uniforms, tops, places, sums, weights, tokens, answer, V, W, ANSWER,
    BLOCKS: tl.constexpr, BB: tl.constexpr, BLOCK: tl.constexpr, CAP: tl.constexpr,
):  # fmt: skip
    """Each row's token -> tokens, answer[row, place]; its log-probability at temperature 1 -> answer[row, W + place].

    At temperature 0 the most likely token; else the first whose cumulated probability exceeds the uniform number.
    """
    line = tl.program_id(0).to(tl.int64)
    row = line // W
    place = line % W
    b = tl.arange(0, BB)
    inside = b < BLOCKS
    top = tl.load(tops + line * BLOCKS + b, mask=inside, other=-float("inf"))
    highest = tl.max(top, 0)
    total = tl.sum(tl.load(sums + line * BLOCKS + b, mask=inside, other=0.0) * tl.exp(top - highest), 0)
    temperature = tl.load(temperatures + row).to(tl.float32)
    if temperature > 0:
        weight = tl.load(weights + line * BLOCKS + b, mask=inside, other=0.0)
        weight = weight * tl.exp((top - highest) / temperature).to(tl.float64)
        reached = tl.cumsum(weight, 0)
        all_weight = tl.max(reached, 0)
        goal = tl.load(uniforms + line) * all_weight
        hit = tl.sum((reached <= goal).to(tl.int32), 0)
        hit = tl.minimum(hit, tl.sum((reached < all_weight).to(tl.int32), 0))  # rounding near 1
        before = tl.max(tl.where(b < hit, reached, 0.0), 0)
        i = hit * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(raw + line * V + i, mask=i < V, other=0.0)
        logit = _capped(x, tl.load(closed + i, mask=i < V, other=-float("inf")), CAP)
        share = before + tl.cumsum(tl.exp((logit - highest) / temperature).to(tl.float64), 0)
        last = tl.max(share, 0)
        found = tl.sum((share <= goal).to(tl.int32), 0)
        found = hit * BLOCK + tl.minimum(found, tl.sum((share < last).to(tl.int32), 0))
    else:
        at = tl.load(places + line * BLOCKS + b, mask=inside, other=0)
        found = tl.min(tl.where(inside & (top == highest), at, 2147483647), 0)
    chosen = _capped(tl.load(raw + line * V + found), tl.load(closed + found), CAP)
    tl.store(tokens + line, found.to(tl.int64))
    tl.store(answer + row * ANSWER + place, found.to(tl.float64))
    tl.store(answer + row * ANSWER + W + place, (chosen - highest - tl.log(total)).to(tl.float64))


@triton.jit
def accept(drawn, tokens, read, keep, W: tl.constexpr):
    """keep (rows,): how many of a row's tokens were right: the first, and the drafts up to the first that differs."""
    row = tl.program_id(0).to(tl.int64)
    given = tl.load(read + row)
    kept = tl.minimum(given, 1)
    right = given > 0
    for place in tl.static_range(1, W):
        same = tl.load(tokens + row * W + place) == tl.load(drawn + row * W + place - 1)
        right = right & same & (place < given)
        kept += right.to(tl.int32)
    tl.store(keep + row, kept)
