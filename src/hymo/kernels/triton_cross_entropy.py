"""Triton kernel of the softcapped cross-entropy."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from hymo.kernels.triton_common import INTERPRETED, LOG2E

COLUMNS, WARPS = 2048, 8
"""Columns of a row that a program takes at a time, and its warps."""
COARSE = True
"""Whether logits of 16 bits take the device's instruction for tanh."""
BOUNDED = 64.0
"""Largest softcap whose exponentials can be summed without taking their maximum off first: V e^64 fits fp32."""


@triton.jit
def _bend(x, COARSE: tl.constexpr):
    """tanh(x), by one exponential and one reciprocal root: off by 2e-7 at most, as much as fp32 rounds by.

    An exponential that overflows gives the limit 1. Coarse, for logits that were rounded to 8 or 11 bits: the device's
    instruction, which keeps 11. Exponentials, roots and this one share a unit that is what the kernel waits for.
    """
    if COARSE:
        bent = tl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)
    else:
        root = tl.rsqrt(1.0 + tl.exp2(x * (2.0 * LOG2E)))
        bent = 1.0 - 2.0 * root * root
    return bent


@triton.jit
def _load(
    logits, places, vocabulary, softcap, inverse, CAPPED: tl.constexpr, COARSE: tl.constexpr, MASKED: tl.constexpr
):
    """Capped logits of a block in fp32 and the slope of the cap; -inf beyond the vocabulary."""
    if MASKED:
        x = tl.load(logits + places, mask=places < vocabulary, other=float("-inf")).to(tl.float32)
    else:
        x = tl.load(logits + places).to(tl.float32)
    slope = 1.0
    if CAPPED:
        bent = _bend(x * inverse, COARSE)
        slope = 1.0 - bent * bent
        x = softcap * bent
        if MASKED:
            x = tl.where(places < vocabulary, x, float("-inf"))
    return x, slope


@triton.jit
def _sum(total, peak, x, BOUNDED: tl.constexpr):
    """Running sums of exponentials relative to a running maximum, which a bound makes needless."""
    if BOUNDED:
        total += tl.exp2(x * LOG2E)
    else:
        above = tl.maximum(peak, tl.max(x, 0))
        total = total * tl.exp2((peak - above) * LOG2E) + tl.exp2((x - above) * LOG2E)
        peak = above
    return total, peak


@triton.jit
def softcap_cross_entropy(
    logits, targets, losses, softcap, vocabulary, row_stride, ignored,
    BLOCK: tl.constexpr, CAPPED: tl.constexpr, COARSE: tl.constexpr, BOUNDED: tl.constexpr, GRADIENT: tl.constexpr,
):  # fmt: skip
    """One row of logits per program: its loss, and in place of its logits their gradient.

    The log-sum-exp takes one pass, with a running maximum unless the cap bounds the logits (a maximum over the program
    in every block costs more than the arithmetic); the gradient a second one over a row that is still in cache. Only
    the last block is masked.
    """
    row = tl.program_id(0).to(tl.int64)
    logits += row * row_stride
    target = tl.load(targets + row)
    columns = tl.arange(0, BLOCK)
    whole = vocabulary // BLOCK * BLOCK
    if target == ignored:
        tl.store(losses + row, 0.0)
        if GRADIENT:
            for start in range(0, vocabulary, BLOCK):
                zeros = tl.zeros((BLOCK,), tl.float32).to(logits.dtype.element_ty)
                tl.store(logits + start + columns, zeros, mask=start + columns < vocabulary)
    else:
        # Read before the sum over the program, at which its warps wait: the gradient below takes this logit's place.
        known = (target >= 0) & (target < vocabulary)  # a target that does not exist makes the loss NaN
        hit = tl.load(logits + target, mask=known, other=float("nan")).to(tl.float32)
        peak = float("-inf")
        total = tl.zeros((BLOCK,), tl.float32)
        inverse = 1.0 / softcap if CAPPED else 0.0
        for start in range(0, whole, BLOCK):
            x, _ = _load(logits, start + columns, vocabulary, softcap, inverse, CAPPED, COARSE, False)
            total, peak = _sum(total, peak, x, BOUNDED)
        if whole < vocabulary:
            x, _ = _load(logits, whole + columns, vocabulary, softcap, inverse, CAPPED, COARSE, True)
            total, peak = _sum(total, peak, x, BOUNDED)
        lse = tl.log(tl.sum(total, 0))
        if not BOUNDED:
            lse += peak
        if CAPPED:
            hit = softcap * _bend(hit * inverse, COARSE)
        tl.store(losses + row, lse - hit)
        if GRADIENT:
            for start in range(0, whole, BLOCK):
                places = start + columns
                x, slope = _load(logits, places, vocabulary, softcap, inverse, CAPPED, COARSE, False)
                grad = (tl.exp2((x - lse) * LOG2E) - tl.where(places == target, 1.0, 0.0)) * slope
                tl.store(logits + places, grad.to(logits.dtype.element_ty))
            if whole < vocabulary:
                places = whole + columns
                x, slope = _load(logits, places, vocabulary, softcap, inverse, CAPPED, COARSE, True)
                grad = (tl.exp2((x - lse) * LOG2E) - tl.where(places == target, 1.0, 0.0)) * slope
                tl.store(logits + places, grad.to(logits.dtype.element_ty), mask=places < vocabulary)


def cross_entropy_in_place(logits: Tensor, targets: Tensor, softcap: float, ignored: int, gradient: bool) -> Tensor:
    """Losses (n,) in fp32 of logits (n, V) before the softcap; the logits are overwritten by their gradient.

    A row whose target is `ignored` has loss 0 and gradient 0. Without `gradient` the logits stay.
    """
    rows, vocabulary = logits.shape
    losses = logits.new_empty((rows,), dtype=torch.float32)
    block = min(COLUMNS, triton.next_power_of_2(vocabulary))
    coarse = COARSE and logits.element_size() < 4 and not INTERPRETED.value
    softcap_cross_entropy[(rows,)](
        logits, targets, losses, softcap, vocabulary, logits.stride(0), ignored,
        BLOCK=block, CAPPED=softcap > 0, COARSE=coarse, BOUNDED=0 < softcap <= BOUNDED, GRADIENT=gradient,
        num_warps=WARPS,
    )  # fmt: skip
    return losses
