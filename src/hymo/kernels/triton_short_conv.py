r"""Triton kernels of the short causal convolution with SiLU, and of its gradient.

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

import triton
import triton.language as tl

from hymo.kernels.triton_common import sigmoid


@triton.jit(do_not_specialize=["count"])
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
def _group(base, first, count, columns, inside, stride_t, stride_c, unroll):
    """Rows `first` and the next of a span, all loaded before anything waits; zeros from `count` on."""
    rows = ()
    for i in tl.static_range(unroll):
        live = inside & (first + i < count)
        rows = rows + (tl.load(base + (first + i) * stride_t + columns * stride_c, mask=live, other=0.0),)  # noqa: RUF005
    return rows


@triton.jit
def conv_forward(
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
        loaded = _group(u, first, count, columns, inside, u_t, u_c, UNROLL)
        for i in tl.static_range(UNROLL):
            row = first + i
            if PACKED:
                within = tl.load(age + row, mask=row < count, other=3) > 0
                x1 = tl.where(within, x1, 0.0)
                x2 = tl.where(within, x2, 0.0)
                x3 = tl.where(within, x3, 0.0)
            x0 = loaded[i].to(tl.float32)
            total = w0 * x0 + w1 * x1 + w2 * x2 + w3 * x3
            out = (total * sigmoid(total)).to(y.dtype.element_ty)
            tl.store(y + row * channels + columns, out, mask=inside & (row < count))
            x3 = x2
            x2 = x1
            x1 = x0


@triton.jit
def conv_backward(
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
        loaded = _group(u, first, readers, columns, inside, u_t, u_c, UNROLL)
        grads = _group(dy, first, readers, columns, inside, dy_t, dy_c, UNROLL)
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
            gate = sigmoid(total)
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
