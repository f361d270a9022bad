r"""Triton kernels of skip path and output gate, and of their gradient.

With m = o + skip v and y = m z (z the gate, or 1)::

    do = dy z        dz = dy m, summed over a head's channels if z has one value for them
    dskip = sum over tokens and channels of do v

The gradient by way of v is skip do: left to whoever adds up the gradients of v, it costs no traffic of its own. A
program owns some heads of a span of tokens; spans' parts of the gradient of skip are added in a fixed order.
"""

from __future__ import annotations

import triton
import triton.language as tl

NO_GATE, PER_HEAD, PER_CHANNEL = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)


@triton.jit
def _head_columns(heads, WIDTH: tl.constexpr, GROUP: tl.constexpr, BLOCK: tl.constexpr):
    """Heads (GROUP,) and channels (1, 1, BLOCK) of this program, and which heads and elements exist."""
    head = tl.program_id(1) * GROUP + tl.arange(0, GROUP)
    d = tl.arange(0, BLOCK)[None, None, :]
    known = head < heads
    inside = known[None, :, None]
    if WIDTH != BLOCK:
        inside = inside & (d < WIDTH)
    return head, d, known, inside


@triton.jit(do_not_specialize=["tokens"])
def gate_forward(
    o, v, skip, gate, y, tokens, heads,
    WIDTH: tl.constexpr, TOKENS: tl.constexpr, GROUP: tl.constexpr, BLOCK: tl.constexpr, GATE: tl.constexpr,
):  # fmt: skip
    """y = (o + skip v) gate."""
    start = tl.program_id(0) * TOKENS
    far = start.to(tl.int64) * heads
    i = tl.arange(0, TOKENS)
    head, d, known, inside = _head_columns(heads, WIDTH, GROUP, BLOCK)
    live = start + i < tokens
    inside = inside & live[:, None, None]
    row = i[:, None] * heads + head[None, :]
    place = row[:, :, None] * WIDTH + d
    scale = tl.load(skip + head, mask=known, other=0.0).to(tl.float32)[None, :, None]
    out = tl.load(o + far * WIDTH + place, mask=inside, other=0.0).to(tl.float32)
    out += scale * tl.load(v + far * WIDTH + place, mask=inside, other=0.0).to(tl.float32)
    if GATE == PER_HEAD:
        rows = live[:, None] & known[None, :]
        out *= tl.load(gate + far + row, mask=rows, other=0.0).to(tl.float32)[:, :, None]
    if GATE == PER_CHANNEL:
        out *= tl.load(gate + far * WIDTH + place, mask=inside, other=0.0).to(tl.float32)
    tl.store(y + far * WIDTH + place, out.to(y.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["tokens"])
def gate_backward(
    dy, o, v, skip, gate, do, dgate, parts, tokens, heads,
    WIDTH: tl.constexpr, SPAN: tl.constexpr, TOKENS: tl.constexpr, GROUP: tl.constexpr, BLOCK: tl.constexpr,
    GATE: tl.constexpr,
):  # fmt: skip
    """do, dgate, and each span's part of the gradient of skip -> parts (spans, H)."""
    start = tl.program_id(0) * SPAN
    far = start.to(tl.int64) * heads
    i = tl.arange(0, TOKENS)
    head, d, known, inside = _head_columns(heads, WIDTH, GROUP, BLOCK)
    scale = tl.load(skip + head, mask=known, other=0.0).to(tl.float32)[None, :, None]
    dy += far * WIDTH
    o += far * WIDTH
    v += far * WIDTH
    do += far * WIDTH
    total = tl.zeros((TOKENS, GROUP, BLOCK), tl.float32)
    count = tl.minimum(tokens - start, SPAN)
    for first in range(0, count, TOKENS):
        live = first + i < count
        mask = inside & live[:, None, None]
        row = (first + i)[:, None] * heads + head[None, :]
        place = row[:, :, None] * WIDTH + d
        pull = tl.load(dy + place, mask=mask, other=0.0).to(tl.float32)
        values = tl.load(v + place, mask=mask, other=0.0).to(tl.float32)
        passed = pull
        if GATE != NO_GATE:
            by_gate = pull * (tl.load(o + place, mask=mask, other=0.0).to(tl.float32) + scale * values)
        if GATE == PER_HEAD:
            rows = live[:, None] & known[None, :]
            passed = pull * tl.load(gate + far + row, mask=rows, other=0.0).to(tl.float32)[:, :, None]
            tl.store(dgate + far + row, tl.sum(by_gate, 2).to(dgate.dtype.element_ty), mask=rows)
        if GATE == PER_CHANNEL:
            passed = pull * tl.load(gate + far * WIDTH + place, mask=mask, other=0.0).to(tl.float32)
            tl.store(dgate + far * WIDTH + place, by_gate.to(dgate.dtype.element_ty), mask=mask)
        tl.store(do + place, passed.to(do.dtype.element_ty), mask=mask)
        total += passed * values
    by_head = tl.sum(tl.sum(total, 2), 0)
    tl.store(parts + tl.program_id(0).to(tl.int64) * heads + head, by_head, mask=known)
