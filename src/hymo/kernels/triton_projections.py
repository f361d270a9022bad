r"""A Triton kernel that puts the gradients of a GDN block's projections side by side, for one matrix product.

The block turns products of its values into keys b and c (rotated by position), a gate z = mean over D of sigmoid(G)
and a decay input. With the gradients of what it made of them, those of the products are::

    of a pair (x, y) turned by phi:  dx = dx' cos phi + dy' sin phi      dy = dy' cos phi - dx' sin phi
    of a gate's logit:               dG = dz sigmoid(G) (1 - sigmoid(G)) / D

One pass over memory reads them and writes rows [db | dc | dG | ddt | zeros].
"""

from __future__ import annotations

import triton
import triton.language as tl

from hymo.kernels.triton_common import sigmoid


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
    live = near < tokens
    token = near.to(tl.int64)
    keys = heads * (2 * HALF)
    if part == 3:
        column = tl.arange(0, REST)
        inside = live[:, None] & (column < heads)[None, :]
        value = tl.load(ddt + token[:, None] * heads + column[None, :], mask=inside, other=0.0)
        place = token[:, None] * row_stride + (2 * keys + heads * WIDTH + column)[None, :]
        inside = live[:, None] & (2 * keys + heads * WIDTH + column < row_stride)[None, :]
        tl.store(out + place, value.to(out.dtype.element_ty), mask=inside)
    else:
        head = (tl.program_id(1) % blocks) * GROUP + tl.arange(0, GROUP)
        row = (token[:, None] * heads + head[None, :])[:, :, None]
        known = (live[:, None] & (head < heads)[None, :])[:, :, None]
        if part == 2:
            d = tl.arange(0, BLOCK)[None, None, :]
            inside = known
            if WIDTH != BLOCK:
                inside = known & (d < WIDTH)
            gate = sigmoid(tl.load(logits + row * WIDTH + d, mask=inside, other=0.0).to(tl.float32))
            pull = tl.load(dgate + row, mask=known, other=0.0).to(tl.float32) * (1.0 / WIDTH)
            place = token[:, None, None] * row_stride + (2 * keys + head * WIDTH)[None, :, None] + d
            tl.store(out + place, (pull * gate * (1.0 - gate)).to(out.dtype.element_ty), mask=inside)
        else:
            pair = tl.arange(0, BLOCK_HALF)[None, None, :]
            inside = known
            if HALF != BLOCK_HALF:
                inside = known & (pair < HALF)
            if SPLIT:
                first = pair
                second = pair + HALF
            else:
                first = 2 * pair
                second = 2 * pair + 1
            if part == 0:
                x = tl.load(db + row * (2 * HALF) + first, mask=inside, other=0.0)
                y = tl.load(db + row * (2 * HALF) + second, mask=inside, other=0.0)
            else:
                x = tl.load(dc + row * (2 * HALF) + first, mask=inside, other=0.0)
                y = tl.load(dc + row * (2 * HALF) + second, mask=inside, other=0.0)
            x = x.to(tl.float32)
            y = y.to(tl.float32)
            if ROTATES:
                angle = (near % period)[:, None, None] * HALF + pair
                known_angle = live[:, None, None] & (pair < HALF)
                c = tl.load(cos + angle, mask=known_angle, other=0.0).to(tl.float32)
                s = tl.load(sin + angle, mask=known_angle, other=0.0).to(tl.float32)
                turned = x * c + y * s
                y = y * c - x * s
                x = turned
            place = token[:, None, None] * row_stride + (part * keys + head * (2 * HALF))[None, :, None]
            tl.store(out + place + first, x.to(out.dtype.element_ty), mask=inside)
            tl.store(out + place + second, y.to(out.dtype.element_ty), mask=inside)
