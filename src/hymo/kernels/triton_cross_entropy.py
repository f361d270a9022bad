"""Triton kernel of the softcapped cross-entropy."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from hymo.kernels.triton_common import LOG2E


@triton.jit
def _tanh(x):
    """tanh by one exponential of a number <= 0; the device has an instruction, but it keeps 11 bits only."""
    e = tl.exp2(tl.abs(x) * (-2.0 * LOG2E))
    return tl.where(x < 0, -1.0, 1.0) * (1.0 - e) / (1.0 + e)


@triton.jit
def softcap_cross_entropy(
    logits, targets, losses, softcap, vocabulary, row_stride, ignored,
    BLOCK: tl.constexpr, CAPPED: tl.constexpr, GRADIENT: tl.constexpr,
):  # fmt: skip
    """One row of logits per program: its loss, and in place of its logits their gradient.

    The log-sum-exp takes one pass with a running maximum, the gradient a second one over a row that is still in cache.
    """
    row = tl.program_id(0).to(tl.int64)
    logits += row * row_stride
    target = tl.load(targets + row)
    columns = tl.arange(0, BLOCK)
    if target == ignored:
        tl.store(losses + row, 0.0)
        if GRADIENT:
            for start in range(0, vocabulary, BLOCK):
                zeros = tl.zeros((BLOCK,), tl.float32).to(logits.dtype.element_ty)
                tl.store(logits + start + columns, zeros, mask=start + columns < vocabulary)
    else:
        peak = float("-inf")
        total = tl.zeros((BLOCK,), tl.float32)
        for start in range(0, vocabulary, BLOCK):
            inside = start + columns < vocabulary
            x = tl.load(logits + start + columns, mask=inside, other=float("-inf")).to(tl.float32)
            if CAPPED:
                x = tl.where(inside, softcap * _tanh(x / softcap), float("-inf"))
            above = tl.maximum(peak, tl.max(x, 0))
            total = total * tl.exp2((peak - above) * LOG2E) + tl.exp2((x - above) * LOG2E)
            peak = above
        lse = peak + tl.log(tl.sum(total, 0))
        known = (target >= 0) & (target < vocabulary)  # a target that does not exist makes the loss NaN
        hit = tl.load(logits + target, mask=known, other=float("nan")).to(tl.float32)
        if CAPPED:
            hit = softcap * _tanh(hit / softcap)
        tl.store(losses + row, lse - hit)
        if GRADIENT:
            for start in range(0, vocabulary, BLOCK):
                inside = start + columns < vocabulary
                x = tl.load(logits + start + columns, mask=inside, other=0.0).to(tl.float32)
                slope = 1.0
                if CAPPED:
                    bent = _tanh(x / softcap)
                    slope = 1.0 - bent * bent
                    x = softcap * bent
                grad = tl.exp2((x - lse) * LOG2E) - tl.where(start + columns == target, 1.0, 0.0)
                tl.store(logits + start + columns, (grad * slope).to(logits.dtype.element_ty), mask=inside)


def cross_entropy_in_place(logits: Tensor, targets: Tensor, softcap: float, ignored: int, gradient: bool) -> Tensor:
    """Losses (n,) in fp32 of logits (n, V) before the softcap; the logits are overwritten by their gradient.

    A row whose target is `ignored` has loss 0 and gradient 0. Without `gradient` the logits stay.
    """
    rows, vocabulary = logits.shape
    losses = logits.new_empty((rows,), dtype=torch.float32)
    block = min(8192, triton.next_power_of_2(vocabulary))
    softcap_cross_entropy[(rows,)](
        logits, targets, losses, softcap, vocabulary, logits.stride(0), ignored,
        BLOCK=block, CAPPED=softcap > 0, GRADIENT=gradient, num_warps=8,
    )  # fmt: skip
    return losses
