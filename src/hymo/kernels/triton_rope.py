"""A Triton kernel for rotary positions without gradients: one pass over memory instead of nine."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _rotate(
    x, cos, sin, out, ROWS, heads, period, x_token, x_head,
    HALF: tl.constexpr, BH: tl.constexpr, BLOCK: tl.constexpr, SPLIT: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    i = tl.arange(0, BH)
    inside = (row < ROWS)[:, None] & (i < HALF)[None, :]
    token = row // heads
    base = token * x_token + (row % heads) * x_head
    if SPLIT:
        first = i
        second = i + HALF
    else:
        first = 2 * i
        second = 2 * i + 1
    a = tl.load(x + base[:, None] + first[None, :], mask=inside, other=0.0).to(tl.float32)
    b = tl.load(x + base[:, None] + second[None, :], mask=inside, other=0.0).to(tl.float32)
    angle = (token % period)[:, None] * HALF + i[None, :]
    c = tl.load(cos + angle, mask=inside, other=0.0).to(tl.float32)
    s = tl.load(sin + angle, mask=inside, other=0.0).to(tl.float32)
    where = out + row[:, None] * (2 * HALF)
    tl.store(where + first[None, :], (a * c - b * s).to(out.dtype.element_ty), mask=inside)
    tl.store(where + second[None, :], (b * c + a * s).to(out.dtype.element_ty), mask=inside)


def rotate(x: Tensor, cos: Tensor, sin: Tensor, split: bool) -> Tensor:
    """x (B, T, heads, d) by the angles (B or 1, T, 1, d/2) or (T, 1, d/2); pairs (i, i + d/2) if `split`."""
    batch, time, heads, width = x.shape
    if x.stride(-1) != 1 or (batch > 1 and x.stride(0) != time * x.stride(1)):
        x = x.contiguous()
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    rows = batch * time * heads
    period = cos.numel() // (width // 2)
    block = 64
    _rotate[(triton.cdiv(rows, block),)](
        x, cos.contiguous(), sin.contiguous(), out, rows, heads, period, x.stride(1), x.stride(2), HALF=width // 2,
        BH=triton.next_power_of_2(width // 2), BLOCK=block, SPLIT=split,
    )  # fmt: skip
    return out
