r"""Triton form of the short causal convolution with SiLU: kernels, custom operator, gradient.

With s_t = sum_b w_b u_{t-b} (b = 0 on the current token) and y_t = s_t sigmoid(s_t)::

    ds_t = dy_t sigmoid(s_t) (1 + s_t (1 - sigmoid(s_t)))
    du_t = sum_b w_b ds_{t+b}          dw_b = sum_t ds_t u_{t-b}

A product reaches over b tokens only if its reader is at least b tokens into its document. A program owns some channels
of a span of tokens and walks over it row by row: the last three inputs, and the unfinished gradients of the last three
tokens, stay in registers, so every row is read once. Several rows are loaded at a time, before any is stored. The
gradient forms the sums anew, so the forward pass keeps nothing; spans' parts of the taps' gradient are added in a fixed
order.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from hymo.kernels.dispatch import MOST_TAPS
from hymo.kernels.triton_common import LOG2E

CHANNELS = 128
"""Channels of a program: four for each thread of its one warp."""
SPAN = 61
"""Tokens of a program: with the three beyond them that the gradient reads, whole groups of rows."""
UNROLL = 8
"""Rows loaded at a time."""


@triton.jit
def ages(bounds, out, count, length, BLOCK: tl.constexpr):
    """Of each token the number of those before it in its document -> out (T,); bounds (count,) rise from 0 to T."""
    token = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    low = tl.zeros((BLOCK,), tl.int32)  # bounds[low] <= token < bounds[high]
    high = low + (count - 1)
    left = count - 1
    while left > 1:
        middle = (low + high) // 2
        before = tl.load(bounds + middle) <= token
        low = tl.where(before, middle, low)
        high = tl.where(before, high, middle)
        left = (left + 1) // 2
    start = tl.load(bounds + low).to(tl.int32)
    tl.store(out + token, token - start, mask=token < length)


@triton.jit
def _taps(weight, columns, inside, TAPS: tl.constexpr):
    """The taps on the current token and on the three before it, (C,) each in fp32; zeros beyond the first TAPS."""
    at = weight + columns * TAPS + (TAPS - 1)
    w0 = tl.load(at, mask=inside, other=0.0).to(tl.float32)
    w1 = tl.load(at - 1, mask=inside & (TAPS > 1), other=0.0).to(tl.float32)
    w2 = tl.load(at - 2, mask=inside & (TAPS > 2), other=0.0).to(tl.float32)
    w3 = tl.load(at - 3, mask=inside & (TAPS > 3), other=0.0).to(tl.float32)
    return w0, w1, w2, w3


@triton.jit
def _before(
    u, window, row, reached, columns, inside, stride_t, stride_c, channels,
    TAPS: tl.constexpr, HAS_WINDOW: tl.constexpr,
):  # fmt: skip
    """An input before the span: of its document, else of the window (K-1, C) before token 0, else zero; fp32."""
    place = u + row.to(tl.int64) * stride_t + columns * stride_c
    x = tl.load(place, mask=inside & (row >= 0) & reached, other=0.0).to(tl.float32)
    if HAS_WINDOW:
        place = window + (row + (TAPS - 1)) * channels + columns
        x += tl.load(place, mask=inside & (row < 0) & (row >= 1 - TAPS) & reached, other=0.0).to(tl.float32)
    return x


@triton.jit
def _silu_gate(x):
    """sigmoid(x), by the exponential of a number <= 0."""
    e = tl.exp2(-tl.abs(x) * LOG2E)
    return tl.where(x < 0, e, 1.0) / (1.0 + e)


@triton.jit
def forward(
    u, weight, window, age, y, length, channels, spans, u_b, u_t, u_c,
    TAPS: tl.constexpr, SPAN: tl.constexpr, UNROLL: tl.constexpr, CHANNELS: tl.constexpr, HAS_WINDOW: tl.constexpr,
    PACKED: tl.constexpr,
):  # fmt: skip
    """y = silu(conv(u))."""
    batch = (tl.program_id(0) // spans).to(tl.int64)
    start = (tl.program_id(0) % spans) * SPAN
    columns = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    inside = columns < channels
    u += batch * u_b
    y += (batch * length + start) * channels
    window += batch * (TAPS - 1) * channels
    w0, w1, w2, w3 = _taps(weight, columns, inside, TAPS)
    reach = 3
    if PACKED:
        reach = tl.load(age + start)
    x1 = _before(u, window, start - 1, reach >= 1, columns, inside, u_t, u_c, channels, TAPS, HAS_WINDOW)
    x2 = _before(u, window, start - 2, reach >= 2, columns, inside, u_t, u_c, channels, TAPS, HAS_WINDOW)
    x3 = _before(u, window, start - 3, reach >= 3, columns, inside, u_t, u_c, channels, TAPS, HAS_WINDOW)
    u += start.to(tl.int64) * u_t
    age += start
    count = tl.minimum(length - start, SPAN)
    for first in range(0, count, UNROLL):
        loaded = ()
        for i in tl.static_range(UNROLL):
            row = first + i
            loaded = loaded + (tl.load(u + row * u_t + columns * u_c, mask=inside & (row < count), other=0.0),)
        for i in tl.static_range(UNROLL):
            row = first + i
            if PACKED:
                within = tl.load(age + row, mask=row < count, other=3) > 0
                x1 = tl.where(within, x1, 0.0)
                x2 = tl.where(within, x2, 0.0)
                x3 = tl.where(within, x3, 0.0)
            x0 = loaded[i].to(tl.float32)
            total = w0 * x0 + w1 * x1 + w2 * x2 + w3 * x3
            out = (total * _silu_gate(total)).to(y.dtype.element_ty)
            tl.store(y + row * channels + columns, out, mask=inside & (row < count))
            x3 = x2
            x2 = x1
            x1 = x0


@triton.jit
def backward(
    u, weight, window, age, dy, du, parts, length, channels, spans, u_b, u_t, u_c, dy_b, dy_t, dy_c,
    TAPS: tl.constexpr, SPAN: tl.constexpr, UNROLL: tl.constexpr, CHANNELS: tl.constexpr, HAS_WINDOW: tl.constexpr,
    PACKED: tl.constexpr,
):  # fmt: skip
    """du, and each span's part of the taps' gradient -> parts (B * spans, 4, C), by tokens back."""
    batch = (tl.program_id(0) // spans).to(tl.int64)
    start = (tl.program_id(0) % spans) * SPAN
    columns = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    inside = columns < channels
    u += batch * u_b
    dy += batch * dy_b + start.to(tl.int64) * dy_t
    du += (batch * length + start) * channels
    window += batch * (TAPS - 1) * channels
    parts += tl.program_id(0).to(tl.int64) * 4 * channels
    w0, w1, w2, w3 = _taps(weight, columns, inside, TAPS)
    reach = 3
    if PACKED:
        reach = tl.load(age + start)
    x1 = _before(u, window, start - 1, reach >= 1, columns, inside, u_t, u_c, channels, TAPS, HAS_WINDOW)
    x2 = _before(u, window, start - 2, reach >= 2, columns, inside, u_t, u_c, channels, TAPS, HAS_WINDOW)
    x3 = _before(u, window, start - 3, reach >= 3, columns, inside, u_t, u_c, channels, TAPS, HAS_WINDOW)
    # Gradients of the last three tokens, as far as the rows read contribute.
    d1 = tl.zeros((CHANNELS,), tl.float32)
    d2 = d1
    d3 = d1
    sum0 = d1
    sum1 = d1
    sum2 = d1
    sum3 = d1
    u += start.to(tl.int64) * u_t
    age += start
    count = tl.minimum(length - start, SPAN)
    # Three rows more than the span: they read its last tokens, which is all they contribute here.
    readers = tl.minimum(length - start, SPAN + 3)
    for first in range(0, count + 3, UNROLL):
        loaded = ()
        grads = ()
        for i in tl.static_range(UNROLL):
            row = first + i
            live = inside & (row < readers)
            loaded = loaded + (tl.load(u + row * u_t + columns * u_c, mask=live, other=0.0),)
            grads = grads + (tl.load(dy + row * dy_t + columns * dy_c, mask=live, other=0.0),)
        for i in tl.static_range(UNROLL):
            row = first + i
            x0 = loaded[i].to(tl.float32)
            total = w0 * x0
            if PACKED:
                reach = tl.load(age + row, mask=row < readers, other=3)
                within = reach > 0
                x1 = tl.where(within, x1, 0.0)
                x2 = tl.where(within, x2, 0.0)
                x3 = tl.where(within, x3, 0.0)
            total += w1 * x1 + w2 * x2 + w3 * x3
            gate = _silu_gate(total)
            dsum = grads[i].to(tl.float32) * gate * (1.0 + total * (1.0 - gate))
            if PACKED:
                d1 += tl.where(reach >= 1, w1 * dsum, 0.0)
                d2 += tl.where(reach >= 2, w2 * dsum, 0.0)
                d3 += tl.where(reach >= 3, w3 * dsum, 0.0)
            else:
                d1 += w1 * dsum
                d2 += w2 * dsum
                d3 += w3 * dsum
            done = row - 3
            mask = inside & (done >= 0) & (done < count)
            tl.store(du + done * channels + columns, d3.to(du.dtype.element_ty), mask=mask)
            own = tl.where(row < count, dsum, 0.0)
            sum0 += own * x0
            sum1 += own * x1
            sum2 += own * x2
            sum3 += own * x3
            d3 = d2
            d2 = d1
            d1 = w0 * dsum
            x3 = x2
            x2 = x1
            x1 = x0
    tl.store(parts + columns, sum0, mask=inside)
    tl.store(parts + channels + columns, sum1, mask=inside)
    tl.store(parts + 2 * channels + columns, sum2, mask=inside)
    tl.store(parts + 3 * channels + columns, sum3, mask=inside)


_LIBRARY = "hymo::short_conv"
torch.library.define(_LIBRARY, "(Tensor u, Tensor weight, Tensor? window, Tensor? cu_seqlens) -> Tensor")
torch.library.define(
    _LIBRARY + "_backward",
    "(Tensor dy, Tensor u, Tensor weight, Tensor? window, Tensor? cu_seqlens) -> (Tensor, Tensor)",
)


def short_conv_triton(u: Tensor, weight: Tensor, window: Tensor | None, cu_seqlens: Tensor | None) -> Tensor:
    """Arguments as `hymo.kernels.short_conv`, already checked."""
    y: Tensor = torch.ops.hymo.short_conv(u, weight, window, cu_seqlens)
    return y


def _ages(u: Tensor, cu_seqlens: Tensor | None) -> Tensor:
    """(T,) int32 tokens before each in its document, or any tensor if there are no documents."""
    if cu_seqlens is None:
        return u
    length = u.shape[1]
    out = torch.empty(length, dtype=torch.int32, device=u.device)
    bounds = cu_seqlens.to(u.device)
    ages[(triton.cdiv(length, 256),)](bounds, out, len(bounds), length, BLOCK=256, num_warps=4)
    return out


def _launch(
    kernel: Any,
    u: Tensor,
    weight: Tensor,
    window: Tensor | None,
    cu_seqlens: Tensor | None,
    tensors: tuple[Tensor, ...],
    strides: tuple[int, ...] = (),
) -> None:
    batch, length, channels = u.shape
    spans = triton.cdiv(length, SPAN)
    kernel[(batch * spans, triton.cdiv(channels, CHANNELS))](
        u, weight.contiguous(), u if window is None else window.to(u.dtype).contiguous(), _ages(u, cu_seqlens),
        *tensors, length, channels, spans, *u.stride(), *strides,
        TAPS=weight.shape[1], SPAN=SPAN, UNROLL=UNROLL, CHANNELS=CHANNELS, HAS_WINDOW=window is not None,
        PACKED=cu_seqlens is not None, num_warps=1,
    )  # fmt: skip


def _forward(u: Tensor, weight: Tensor, window: Tensor | None, cu_seqlens: Tensor | None) -> Tensor:
    y = u.new_empty(u.shape)
    _launch(forward, u, weight, window, cu_seqlens, (y,))
    return y


def _backward(
    dy: Tensor, u: Tensor, weight: Tensor, window: Tensor | None, cu_seqlens: Tensor | None
) -> tuple[Tensor, Tensor]:
    batch, length, channels = u.shape
    du = u.new_empty(u.shape)
    parts = u.new_empty((batch * triton.cdiv(length, SPAN), MOST_TAPS, channels), dtype=torch.float32)
    _launch(backward, u, weight, window, cu_seqlens, (dy, du, parts), dy.stride())
    return du, parts.sum(0).flip(0)[-weight.shape[1] :].T.to(weight.dtype).contiguous()


def _forward_fake(u: Tensor, weight: Tensor, window: Tensor | None, cu_seqlens: Tensor | None) -> Tensor:
    return u.new_empty(u.shape)


def _backward_fake(
    dy: Tensor, u: Tensor, weight: Tensor, window: Tensor | None, cu_seqlens: Tensor | None
) -> tuple[Tensor, Tensor]:
    return u.new_empty(u.shape), weight.new_empty(weight.shape)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _gradient(ctx: Any, dy: Tensor) -> tuple[Any, ...]:
    du, dweight = torch.ops.hymo.short_conv_backward(dy, *ctx.saved_tensors)
    return du, dweight, None, None


torch.library.impl(_LIBRARY, ("CPU", "CUDA"), _forward)
torch.library.impl(_LIBRARY + "_backward", ("CPU", "CUDA"), _backward)
torch.library.register_fake(_LIBRARY, _forward_fake)
torch.library.register_fake(_LIBRARY + "_backward", _backward_fake)
torch.library.register_autograd(_LIBRARY, _gradient, setup_context=_setup)
