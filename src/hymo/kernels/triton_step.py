r"""Triton kernels of a decoding pass: a few new tokens of each of some rows.

A pass waits for weights to arrive and for kernels to start, so there are few kernels and each reads its weights once.
Tokens are numbered row * W + t: W new tokens a row, of which row r has read[r] (0: the row is not to be touched).
Products take operands of the model's type and add in fp32.
"""

from __future__ import annotations

import triton
import triton.language as tl

from hymo.kernels.triton_common import dot


@triton.jit
def product(
    x, x_m, norm, w, m, live, n, limit,
    K: tl.constexpr, EPS: tl.constexpr, NORM: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    OPERAND: tl.constexpr,
):  # fmt: skip
    """Rows m of x (M, K), normed if asked for, times rows n of w (N, K): fp32 (BM, BN).

    One row (BM = 1) goes without matrix units, in a loop that is unrolled: all weights are on their way at once. One
    warp a program is best there: it needs no exchange between the layouts of its operands.
    """
    if BM == 1:
        parts = tl.zeros((BN, BK), tl.float32)
        squares = tl.zeros((1, BK), tl.float32)
        for start in tl.static_range(0, K, BK):
            k = start + tl.arange(0, BK)
            row = live[:, None]
            column = (n < limit)[:, None]
            if K % BK != 0:
                row = row & (k < K)[None, :]
                column = column & (k < K)[None, :]
            weights = tl.load(w + n[:, None] * K + k[None, :], mask=column, other=0.0).to(tl.float32)
            values = tl.load(x + m[:, None] * x_m + k[None, :], mask=row, other=0.0).to(tl.float32)
            if NORM:
                squares += values * values
                values *= tl.load(norm + k, mask=k < K, other=0.0).to(tl.float32)[None, :]
            parts += weights * values
        result = tl.sum(parts, 1)[None, :]
        if NORM:
            result *= tl.rsqrt(tl.sum(squares, 1) / K + EPS)[:, None]
    else:
        total = tl.zeros((BM, BN), tl.float32)
        square = tl.zeros((BM,), tl.float32)
        for start in range(0, K, BK):
            k = start + tl.arange(0, BK)
            row = live[:, None]
            column = (n < limit)[:, None]
            if K % BK != 0:
                row = row & (k < K)[None, :]
                column = column & (k < K)[None, :]
            weights = tl.load(w + n[:, None] * K + k[None, :], mask=column, other=0.0)
            values = tl.load(x + m[:, None] * x_m + k[None, :], mask=row, other=0.0)
            if NORM:
                wide = values.to(tl.float32)
                square += tl.sum(wide * wide, 1)
                values = wide * tl.load(norm + k, mask=k < K, other=0.0).to(tl.float32)[None, :]
            total += dot(values, tl.trans(weights), OPERAND)
        result = total
        if NORM:
            result *= tl.rsqrt(square / K + EPS)[:, None]
    return result


@triton.jit
def project(
    x, norm, w0, w1, w2, w3, out, before, M, x_m, out_m,
    N0: tl.constexpr, N1: tl.constexpr, N2: tl.constexpr, N3: tl.constexpr, K: tl.constexpr, EPS: tl.constexpr,
    NORM: tl.constexpr, ADD: tl.constexpr, BEFORE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    OPERAND: tl.constexpr,
):  # fmt: skip
    """out (M, N0 + N1 + N2 + N3) = x [w0; w1; w2; w3]^T; plus what `out` holds (ADD), plus `before` (BEFORE)."""
    program = tl.program_id(0)
    m = tl.program_id(1) * BM + tl.arange(0, BM)
    c0: tl.constexpr = (N0 + BN - 1) // BN
    c1: tl.constexpr = c0 + (N1 + BN - 1) // BN
    c2: tl.constexpr = c1 + (N2 + BN - 1) // BN
    if program < c0:
        w = w0
        block = program
        limit = N0
        place = 0
    elif program < c1:
        w = w1
        block = program - c0
        limit = N1
        place = N0
    elif program < c2:
        w = w2
        block = program - c1
        limit = N2
        place = N0 + N1
    else:
        w = w3
        block = program - c2
        limit = N3
        place = N0 + N1 + N2
    n = block * BN + tl.arange(0, BN)
    live = m < M
    result = product(x, x_m, norm, w, m, live, n, limit, K, EPS, NORM, BM, BN, BK, OPERAND)
    mask = live[:, None] & (n < limit)[None, :]
    where = out + m[:, None] * out_m + place + n[None, :]
    if ADD:
        result += tl.load(where, mask=mask, other=0.0).to(tl.float32)
    if BEFORE:
        result += tl.load(before + m[:, None] * out_m + n[None, :], mask=mask, other=0.0).to(tl.float32)
    tl.store(where, result.to(out.dtype.element_ty), mask=mask)


@triton.jit
def enter(
    x, norm, w_in, w_skip, taps, window, u, v, skip, read, ROWS,
    DIM: tl.constexpr, INNER: tl.constexpr, TAPS: tl.constexpr, TP: tl.constexpr, W: tl.constexpr, WP: tl.constexpr,
    EPS: tl.constexpr, NORM: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, OPERAND: tl.constexpr,
):  # fmt: skip
    """v = silu(conv(in_proj(norm(x)))) (tokens, INNER), skip = skip_proj(norm(x)) (tokens, DIM); NORM off: x is normed.

    window (ROWS, TAPS - 1, INNER): one new token a row moves it on; of more, `u` (ROWS, W, INNER) keeps the inputs.
    """
    program = tl.program_id(0)
    place = tl.program_id(1) * BM + tl.arange(0, BM)
    row = place // WP
    t = place % WP
    live = (row < ROWS) & (t < W)
    m = row * W + t
    blocks: tl.constexpr = (INNER + BN - 1) // BN
    if program < blocks:
        n = program * BN + tl.arange(0, BN)
        inside = live[:, None] & (n < INNER)[None, :]
        at = row[:, None] * ((TAPS - 1) * INNER) + n[None, :]
        if W == 1:  # the window comes while the product is formed
            j = tl.arange(0, TP)
            held = inside[:, None, :] & (j < TAPS - 1)[None, :, None]
            places = window + at[:, None, :] + j[None, :, None] * INNER
            old = tl.load(places, mask=held, other=0.0)
            weight = tl.load(
                taps + n[None, :] * TAPS + j[:, None],
                mask=(n < INNER)[None, :] & (j < TAPS - 1)[:, None],
                other=0.0,
            )
            fresh = tl.load(read + row, mask=live, other=0) > 0
        tap = tl.load(taps + n * TAPS + TAPS - 1, mask=n < INNER, other=0.0).to(tl.float32)
        result = product(x, DIM, norm, w_in, m, live, n, INNER, DIM, EPS, NORM, BM, BN, BK, OPERAND)
        value = result.to(window.dtype.element_ty)
        total = value.to(tl.float32) * tap[None, :]
        if W == 1:
            total += tl.sum(old.to(tl.float32) * weight.to(tl.float32)[None, :, :], 1)
            tl.debug_barrier()  # a value may be held by several threads: all have read before one writes
            tl.store(places - INNER, old, mask=held & (j > 0)[None, :, None] & fresh[:, None, None])
            tl.store(window + at + (TAPS - 2) * INNER, value, mask=inside & fresh[:, None])
        else:
            tl.store(u + m[:, None] * INNER + n[None, :], value, mask=inside)
            tl.debug_barrier()  # the other tokens of the row lie with other threads
            for back in tl.static_range(1, TAPS):
                index = t + TAPS - 1 - back  # over the window, then the new inputs
                held = inside & (index < TAPS - 1)[:, None]
                new = inside & (index >= TAPS - 1)[:, None]
                old = tl.load(window + at + index[:, None] * INNER, mask=held, other=0.0)
                own = tl.load(u + (m - back)[:, None] * INNER + n[None, :], mask=new, other=0.0)
                tap = tl.load(taps + n * TAPS + TAPS - 1 - back, mask=n < INNER, other=0.0).to(tl.float32)
                total += (old + own).to(tl.float32) * tap[None, :]
        out = total * tl.sigmoid(total)
        tl.store(v + m[:, None] * INNER + n[None, :], out.to(v.dtype.element_ty), mask=inside)
    else:
        n = (program - blocks) * BN + tl.arange(0, BN)
        result = product(x, DIM, norm, w_skip, m, live, n, DIM, DIM, EPS, NORM, BM, BN, BK, OPERAND)
        inside = live[:, None] & (n < DIM)[None, :]
        tl.store(skip + m[:, None] * DIM + n[None, :], result.to(skip.dtype.element_ty), mask=inside)


@triton.jit
def rotated(base, place, cos, sin, position, inside, S: tl.constexpr, SPLIT: tl.constexpr):
    """base[place], rotated by the angle of a position; pairs (i, i + S/2) if SPLIT, else (2i, 2i + 1)."""
    half: tl.constexpr = S // 2
    if SPLIT:
        pair = place % half
        other = tl.where(place < half, place + half, place - half)
        first = place < half
    else:
        pair = place // 2
        other = tl.where(place % 2 == 0, place + 1, place - 1)
        first = place % 2 == 0
    c = tl.load(cos + position * half + pair, mask=inside, other=0.0).to(tl.float32)
    s = tl.load(sin + position * half + pair, mask=inside, other=0.0).to(tl.float32)
    own = tl.load(base + place, mask=inside, other=0.0).to(tl.float32)
    partner = tl.load(base + other, mask=inside, other=0.0).to(tl.float32)
    return own * c + tl.where(first, -partner, partner) * s


@triton.jit
def recur(
    y, v, rates, bias, through, cos, sin, lengths, read, state, o, keys, gates, LAST, H,
    S: tl.constexpr, D: tl.constexpr, BS: tl.constexpr, BD: tl.constexpr, W: tl.constexpr, ROTATE: tl.constexpr,
    SPLIT: tl.constexpr,
):  # fmt: skip
    """The recurrence of one head of one row over its new tokens, skip and gate included: o (tokens, H * D).

    y (tokens, b | c | g | dt) before any activation. One new token: the state moves on. More: the state stays, and
    keys (tokens, H * S) and gates (tokens, H) keep what `commit` needs.
    """
    program = tl.program_id(0)
    head = program % H
    row = (program // H).to(tl.int64)
    s = tl.arange(0, BS)
    d = tl.arange(0, BD)
    in_s = s < S
    in_d = d < D
    count = tl.load(read + row)
    past = tl.load(lengths + row)
    rate = tl.load(rates + head * S + s, mask=in_s, other=0.0)
    where = state + ((row * H + head) * S + s[:, None]) * D + d[None, :]
    inside = in_s[:, None] & in_d[None, :]
    held = tl.load(where, mask=inside, other=0.0)
    shift = tl.load(bias + head)
    pass_on = tl.load(through + head)
    width = H * (2 * S + D + 1)
    for t in tl.static_range(W):
        token = row * W + t
        line = y + token * width
        position = tl.minimum(past + t, LAST)
        if ROTATE:
            write = rotated(line + head * S, s, cos, sin, position, in_s, S, SPLIT)
            look = rotated(line + (H + head) * S, s, cos, sin, position, in_s, S, SPLIT)
        else:
            write = tl.load(line + head * S + s, mask=in_s, other=0.0)
            look = tl.load(line + (H + head) * S + s, mask=in_s, other=0.0)
        opening = tl.load(line + 2 * H * S + head * D + d, mask=in_d, other=0.0)
        gate = tl.sigmoid(tl.load(line + H * (2 * S + D) + head) + shift)
        value = tl.load(v + token * (H * D) + head * D + d, mask=in_d, other=0.0).to(tl.float32)
        moved = held * tl.exp(-rate * gate)[:, None] + write[:, None] * value[None, :]
        held = tl.where(t < count, moved, held)
        out = tl.sum(held * look[:, None], 0) + pass_on * value
        out *= tl.sum(tl.where(in_d, tl.sigmoid(opening), 0.0), 0) / D
        tl.store(o + token * (H * D) + head * D + d, out.to(o.dtype.element_ty), mask=in_d)
        if W > 1:
            tl.store(keys + (token * H + head) * S + s, write, mask=in_s)
            tl.store(gates + token * H + head, gate)
    if W == 1:
        tl.store(where, held, mask=inside)


@triton.jit
def commit(
    keys, gates, u, v, rates, keep, state, window, ROWS, POOL, H,
    S: tl.constexpr, D: tl.constexpr, BS: tl.constexpr, BD: tl.constexpr, W: tl.constexpr, TAPS: tl.constexpr,
):  # fmt: skip
    """Move states (layers, POOL, H, S, D) and windows (layers, POOL, TAPS - 1, H * D) past keep[row] tokens."""
    head = tl.program_id(0)
    row = tl.program_id(1).to(tl.int64)
    layer = tl.program_id(2).to(tl.int64)
    s = tl.arange(0, BS)
    d = tl.arange(0, BD)
    in_s = s < S
    in_d = d < D
    kept = tl.load(keep + row)
    rate = tl.load(rates + (layer * H + head) * S + s, mask=in_s, other=0.0)
    where = state + (((layer * POOL + row) * H + head) * S + s[:, None]) * D + d[None, :]
    inside = in_s[:, None] & in_d[None, :]
    held = tl.load(where, mask=inside, other=0.0)
    token = (layer * ROWS + row) * W
    for t in tl.static_range(W):
        gate = tl.load(gates + (token + t) * H + head)
        write = tl.load(keys + ((token + t) * H + head) * S + s, mask=in_s, other=0.0)
        value = tl.load(v + (token + t) * (H * D) + head * D + d, mask=in_d, other=0.0).to(tl.float32)
        moved = held * tl.exp(-rate * gate)[:, None] + write[:, None] * value[None, :]
        held = tl.where(t < kept, moved, held)
    tl.store(where, held, mask=inside & (kept > 0))
    slots = window + (layer * POOL + row) * ((TAPS - 1) * H * D) + head * D + d
    inputs = u + token * (H * D) + head * D + d
    for place in tl.static_range(TAPS - 1):  # a place is read by those before it only: they are written first
        index = place + kept
        old = tl.load(slots + index * (H * D), mask=in_d & (index < TAPS - 1), other=0.0)
        new = tl.load(inputs + (index - TAPS + 1) * (H * D), mask=in_d & (index >= TAPS - 1), other=0.0)
        tl.debug_barrier()
        tl.store(slots + place * (H * D), tl.where(index < TAPS - 1, old, new), mask=in_d)
        tl.debug_barrier()
