r"""Triton kernels around the products of a GDN block's values: keys, output gate, and their gradients.

The products become keys b and c, rotated by position, a gate z = mean over D of sigmoid(G) and a decay input, which
stays as it is. With the gradients of those, the products' gradients are::

    of a pair (x, y) turned by phi:  dx = dx' cos phi + dy' sin phi      dy = dy' cos phi - dx' sin phi
    of a gate's logit:               dG = dz sigmoid(G) (1 - sigmoid(G)) / D

One pass over memory each way: forward turns the keys in place, backward writes rows [db | dc | dG | ddt | zeros] for
one matrix product.
"""

from __future__ import annotations

import triton
import triton.language as tl

from hymo.kernels.triton_common import sigmoid


@triton.jit
def _places(near, head, tokens, heads, row_stride, width: tl.constexpr):
    """Of tokens x heads: place in (tokens, heads), place of the first channel in a row of the result, existence."""
    token = near.to(tl.int64)[:, None]
    known = (near < tokens)[:, None] & (head < heads)[None, :]
    return token * heads + head[None, :], token * row_stride + (head * width)[None, :], known


@triton.jit
def _turn(
    keys, cos, sin, out, near, head, tokens, period, heads, row_stride,
    HALF: tl.constexpr, BLOCK_HALF: tl.constexpr, ROTATES: tl.constexpr, SPLIT: tl.constexpr, BACK: tl.constexpr,
):  # fmt: skip
    """Rotated keys, or (BACK) gradients of keys from those of rotated keys."""
    row, place, known = _places(near, head, tokens, heads, row_stride, 2 * HALF)
    pair = tl.arange(0, BLOCK_HALF)[None, None, :]
    inside = known[:, :, None]
    if HALF != BLOCK_HALF:
        inside = inside & (pair < HALF)
    if SPLIT:
        first = pair
        second = pair + HALF
    else:
        first = 2 * pair
        second = 2 * pair + 1
    keys += row[:, :, None] * (2 * HALF)
    out += place[:, :, None]
    x = tl.load(keys + first, mask=inside, other=0.0).to(tl.float32)
    y = tl.load(keys + second, mask=inside, other=0.0).to(tl.float32)
    if ROTATES:
        angle = (near % period)[:, None, None] * HALF + pair
        known_angle = (near < tokens)[:, None, None] & (pair < HALF)
        c = tl.load(cos + angle, mask=known_angle, other=0.0).to(tl.float32)
        s = tl.load(sin + angle, mask=known_angle, other=0.0).to(tl.float32)
        if BACK:
            s = -s
        turned = x * c - y * s
        y = y * c + x * s
        x = turned
    tl.store(out + first, x.to(out.dtype.element_ty), mask=inside)
    tl.store(out + second, y.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _open_gate(logits, gate, near, head, tokens, heads, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """Means of sigmoids."""
    row, _place, known = _places(near, head, tokens, heads, heads, 1)
    d = tl.arange(0, BLOCK)[None, None, :]
    inside = known[:, :, None]
    if WIDTH != BLOCK:
        inside = inside & (d < WIDTH)
    opened = sigmoid(tl.load(logits + row[:, :, None] * WIDTH + d, mask=inside, other=float("-inf")).to(tl.float32))
    tl.store(gate + row, tl.sum(opened, 2) * (1.0 / WIDTH), mask=known)


@triton.jit
def _close_gate(
    dgate, logits, out, near, head, tokens, heads, row_stride, WIDTH: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """Gradients of logits from those of the means of their sigmoids."""
    row, place, known = _places(near, head, tokens, heads, row_stride, WIDTH)
    d = tl.arange(0, BLOCK)[None, None, :]
    inside = known[:, :, None]
    if WIDTH != BLOCK:
        inside = inside & (d < WIDTH)
    gate = sigmoid(tl.load(logits + row[:, :, None] * WIDTH + d, mask=inside, other=0.0).to(tl.float32))
    pull = tl.load(dgate + row, mask=known, other=0.0).to(tl.float32)[:, :, None] * (1.0 / WIDTH)
    tl.store(out + place[:, :, None] + d, (pull * gate * (1.0 - gate)).to(out.dtype.element_ty), mask=inside)


@triton.jit
def _append(ddt, out, near, tokens, heads, row_stride, columns, REST: tl.constexpr):
    """Gradients of the decay input, and zeros up to the end of the row."""
    token = near.to(tl.int64)[:, None]
    column = tl.arange(0, REST)[None, :]
    live = (near < tokens)[:, None]
    value = tl.load(ddt + token * heads + column, mask=live & (column < heads), other=0.0)
    tl.store(out + token * row_stride + column, value.to(out.dtype.element_ty), mask=live & (column < columns))


@triton.jit(do_not_specialize=["tokens", "period"])
def keys_and_gate(
    b, c, logits, cos, sin, gate, tokens, period, heads,
    HALF: tl.constexpr, WIDTH: tl.constexpr, TOKENS: tl.constexpr, GROUP: tl.constexpr, BLOCK_HALF: tl.constexpr,
    BLOCK: tl.constexpr, SPLIT: tl.constexpr,
):  # fmt: skip
    """Programs (token blocks, 3 x head blocks): of the gate, of b, of c; without rotation those of the gate alone."""
    blocks = tl.cdiv(heads, GROUP)
    part = tl.program_id(1) // blocks
    near = tl.program_id(0) * TOKENS + tl.arange(0, TOKENS)
    head = (tl.program_id(1) % blocks) * GROUP + tl.arange(0, GROUP)
    stride = heads * (2 * HALF)
    if part == 0:
        _open_gate(logits, gate, near, head, tokens, heads, WIDTH, BLOCK)
    elif part == 1:
        _turn(b, cos, sin, b, near, head, tokens, period, heads, stride, HALF, BLOCK_HALF, True, SPLIT, False)
    else:
        _turn(c, cos, sin, c, near, head, tokens, period, heads, stride, HALF, BLOCK_HALF, True, SPLIT, False)


@triton.jit(do_not_specialize=["tokens", "period"])
def gradients_side_by_side(
    db, dc, dgate, logits, ddt, cos, sin, out, tokens, period, heads, row_stride,
    HALF: tl.constexpr, WIDTH: tl.constexpr, TOKENS: tl.constexpr, GROUP: tl.constexpr, BLOCK_HALF: tl.constexpr,
    BLOCK: tl.constexpr, REST: tl.constexpr, ROTATES: tl.constexpr, SPLIT: tl.constexpr,
):  # fmt: skip
    """Programs (token blocks, 3 x head blocks + 1): of b, of c, of G; the last one of the decay input and the zeros."""
    blocks = tl.cdiv(heads, GROUP)
    part = tl.program_id(1) // blocks
    near = tl.program_id(0) * TOKENS + tl.arange(0, TOKENS)
    head = (tl.program_id(1) % blocks) * GROUP + tl.arange(0, GROUP)
    keys = heads * (2 * HALF)
    if part == 0:
        _turn(db, cos, sin, out, near, head, tokens, period, heads, row_stride, HALF, BLOCK_HALF, ROTATES, SPLIT, True)
    elif part == 1:
        _turn(
            dc, cos, sin, out + keys, near, head, tokens, period, heads, row_stride, HALF, BLOCK_HALF, ROTATES, SPLIT,
            True,
        )  # fmt: skip
    elif part == 2:
        _close_gate(dgate, logits, out + 2 * keys, near, head, tokens, heads, row_stride, WIDTH, BLOCK)
    else:
        used = 2 * keys + heads * WIDTH
        _append(ddt, out + used, near, tokens, heads, row_stride, row_stride - used, REST)
