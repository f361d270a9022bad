r"""Triton kernels of `gated_linear`.

A program owns one segment of one head and walks over it in tiles. Gates enter every exponent as a sum of gates that are
all >= 0, times a rate < 0, so no exponent is ever positive and no difference of running sums is taken. Inside a tile
the pairs of rows are split into levels as in `hymo.kernels.gated_linear`; a row is a reader or a writer at a level, so
one matrix U holds the scaled keys of both, and U U^T, which is symmetric, holds the scores of the level.

Triton 3.4 to 3.7.0 is known to miscompile some kernels that turn an accumulator on Hopper. These turn some: what counts
is parity with fp64 on the GPU, for each configuration.
"""

from __future__ import annotations

import triton
import triton.language as tl

from hymo.kernels.triton_common import LOG2E, dot, exp2, prefetch, right_operand, tied, turned_operand


@triton.jit
def _segment(table, index):
    row = tl.load(table + index * 7)
    start = tl.load(table + index * 7 + 1)
    end = tl.load(table + index * 7 + 2)
    sequence = tl.load(table + index * 7 + 3)
    first = tl.load(table + index * 7 + 4)
    last = tl.load(table + index * 7 + 5)
    tile = tl.load(table + index * 7 + 6)
    return row, start, end, sequence, first, last, tile


@triton.jit
def _load(base, rows, columns, row_stride, column_stride, live, width: tl.constexpr, block: tl.constexpr):
    """Rows of a tile, zeros outside."""
    mask = live[:, None]
    if width != block:
        mask = mask & (columns < width)[None, :]
    return tl.load(base + rows[:, None] * row_stride + columns[None, :] * column_stride, mask=mask, other=0.0)


@triton.jit
def _sibling(x, rows, block: tl.constexpr):
    """Of each row, the value in the sibling block at the same place."""
    return tl.gather(x, rows ^ block, 0)


@triton.jit
def _scaled(distance, right, rate, reads, writes):
    """Keys of one level scaled to the border of their two sibling blocks: factor, and U."""
    factor = exp2(rate[None, :] * distance[:, None])
    return factor, tl.where(right[:, None], reads, writes) * factor


@triton.jit
def _unit(rows, operand: tl.constexpr):
    """The unit matrix. A product with it puts loaded keys where products put their results, for all that follows."""
    return tl.where(rows[:, None] == rows[None, :], 1.0, 0.0).to(operand)


@triton.jit
def _spans(gate, rows, tile: tl.constexpr):
    """Sums of gates from the tile's start through each row, after each row to the tile's end, and of the tile."""
    until = gate
    after = tl.zeros_like(gate)
    total = gate
    for level in tl.static_range(0, 7):
        if (1 << level) < tile:
            right = (rows & (1 << level)) != 0
            sibling = _sibling(total, rows, 1 << level)
            until += tl.where(right, sibling, 0.0)
            after += tl.where(right, 0.0, sibling)
            total += sibling
    return until, after, tl.max(total, 0)


@triton.jit
def _rates(A_log, head, s, S: tl.constexpr):
    """Decay rates -exp(A_log) in base 2; zero in padding."""
    return tl.where(s < S, -tl.exp(tl.load(A_log + head * S + s, mask=s < S, other=0.0)), 0.0) * LOG2E


@triton.jit
def summarise(
    v, b, g, A_log, states, gates, table, H,
    v_b, v_t, v_h, v_d, b_b, b_t, b_h, b_s, g_b, g_t, g_h,
    S: tl.constexpr, D: tl.constexpr, BS: tl.constexpr, BD: tl.constexpr, TILE: tl.constexpr, OPERAND: tl.constexpr,
):  # fmt: skip
    """What each segment adds to a state of zero -> states (segments, H, S, D); its sum of gates -> gates."""
    program = tl.program_id(0)
    head = (program % H).to(tl.int64)
    index = (program // H).to(tl.int64)
    row, start, end, _sequence, _first, _last, _tile = _segment(table, index)
    rows = tl.arange(0, TILE)
    s = tl.arange(0, BS)
    d = tl.arange(0, BD)
    rate = _rates(A_log, head, s, S)
    v += row * v_b + start * v_t + head * v_h
    b += row * b_b + start * b_t + head * b_h
    g += row * g_b + start * g_t + head * g_h
    state = tl.zeros((BS, BD), tl.float32)
    seen = 0.0
    unit = _unit(rows, OPERAND)
    length = (end - start).to(tl.int32)
    for offset in range(0, length, TILE):
        tile_rows = tied(rows, offset) + offset
        live = tile_rows < length
        far_rows = tile_rows.to(tl.int64)
        values = _load(v, far_rows, d, v_t, v_d, live, D, BD).to(OPERAND)
        writes = dot(tl.trans(_load(b, far_rows, s, b_t, b_s, live, S, BS).to(OPERAND)), unit, OPERAND)
        gate = tl.load(g + far_rows * g_t, mask=live, other=0.0).to(tl.float32)
        later = (rows + 1 < TILE) & (tile_rows + 1 < length)
        shifted = tl.load(g + (far_rows + 1) * g_t, mask=later, other=0.0).to(tl.float32)
        after = tl.cumsum(shifted, 0, reverse=True)
        total = tl.sum(gate, 0)
        out = writes * exp2(rate[:, None] * after[None, :])
        state = state * tl.exp2(rate * total)[:, None] + dot(out, values, OPERAND)
        seen += total
    where = states + ((index * H + head) * S + s[:, None]) * D + d[None, :]
    tl.store(where, state, mask=(s < S)[:, None] & (d < D)[None, :])
    tl.store(gates + index * H + head, seen)


@triton.jit
def scan(
    states, gates, A_log, outer, spans, H,
    S: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr, REVERSE: tl.constexpr, HAS_OUTER: tl.constexpr,
):  # fmt: skip
    """Replace what segments add to a state by the state that enters each (reverse: the gradient that leaves each).

    outer: the states (sequences, H, S, D) that enter the first segments (reverse: gradients of final states).
    """
    program = tl.program_id(0)
    blocks: tl.constexpr = (S * D + BLOCK - 1) // BLOCK
    element = (program % blocks) * BLOCK + tl.arange(0, BLOCK)
    head = ((program // blocks) % H).to(tl.int64)
    sequence = (program // (blocks * H)).to(tl.int64)
    inside = element < S * D
    s = element // D
    rate = -tl.exp(tl.load(A_log + head * S + s, mask=inside, other=0.0)) * LOG2E
    first = tl.load(spans + sequence * 2)
    count = tl.load(spans + sequence * 2 + 1)
    if HAS_OUTER:
        state = tl.load(outer + (sequence * H + head) * (S * D) + element, mask=inside, other=0.0).to(tl.float32)
    else:
        state = tl.zeros((BLOCK,), tl.float32)
    step = 1
    index = first
    if REVERSE:
        step = -1
        index = first + count - 1
    place = states + head * (S * D) + element
    size = H.to(tl.int64) * (S * D)
    limit = tl.where(inside, count, 0)
    # Four loads ahead of the store: each waits for memory, and the compiler may not move one across the other.
    next0 = tl.load(place + index * size, mask=inside, other=0.0)
    next1 = tl.load(place + (index + step) * size, mask=limit > 1, other=0.0)
    next2 = tl.load(place + (index + 2 * step) * size, mask=limit > 2, other=0.0)
    next3 = tl.load(place + (index + 3 * step) * size, mask=limit > 3, other=0.0)
    for n in range(count):
        added = next0
        next0 = next1
        next1 = next2
        next2 = next3
        next3 = tl.load(place + (index + 4 * step) * size, mask=limit > n + 4, other=0.0)
        total = tl.load(gates + index * H + head)
        tl.store(place + index * size, state, mask=inside)
        state = state * tl.exp2(rate * total) + added
        index += step


@triton.jit
def forward(
    v, b, c, g, A_log, entering, final, o, tiles, pairs, table, H,
    v_b, v_t, v_h, v_d, b_b, b_t, b_h, b_s, c_b, c_t, c_h, c_s, g_b, g_t, g_h, o_b, o_t,
    S: tl.constexpr, D: tl.constexpr, BS: tl.constexpr, BD: tl.constexpr, TILE: tl.constexpr, OPERAND: tl.constexpr,
    HAS_STATE: tl.constexpr, KEEP: tl.constexpr,
):  # fmt: skip
    """Outputs, and final states of the sequences. KEEP: for the gradient the states that enter the
    tiles -> tiles (tiles, H, D, S), and the tiles' scores -> pairs (tiles, H, TILE, TILE).
    """
    program = tl.program_id(0)
    head = (program % H).to(tl.int64)
    index = (program // H).to(tl.int64)
    row, start, end, sequence, _first, last, tile = _segment(table, index)
    rows = tl.arange(0, TILE)
    columns = tl.arange(0, TILE)
    s = tl.arange(0, BS)
    d = tl.arange(0, BD)
    rate = _rates(A_log, head, s, S)
    v += row * v_b + start * v_t + head * v_h
    b += row * b_b + start * b_t + head * b_h
    c += row * c_b + start * c_t + head * c_h
    g += row * g_b + start * g_t + head * g_h
    o += row * o_b + start * o_t + head * D
    # The state is kept turned: so the product that reads it finds its operand in registers.
    inside = (d < D)[:, None] & (s < S)[None, :]
    place = s[None, :] * D + d[:, None]
    if HAS_STATE:
        state = tl.load(entering + (index * H + head) * (S * D) + place, mask=inside, other=0.0).to(tl.float32)
    else:
        state = tl.zeros((BD, BS), tl.float32)
    if KEEP:
        tiles += (tile * H + head) * (S * D) + d[:, None] * S + s[None, :]
        pairs += (tile * H + head) * (TILE * TILE) + rows[:, None] * TILE + columns[None, :]
    unit = _unit(rows, OPERAND)
    apart = rows[:, None] ^ columns[None, :]
    length = (end - start).to(tl.int32)
    for offset in range(0, length, TILE):
        tile_rows = tied(rows, offset) + offset
        live = tile_rows < length
        far_rows = tile_rows.to(tl.int64)
        writes = dot(unit, _load(b, far_rows, s, b_t, b_s, live, S, BS).to(OPERAND), OPERAND)
        reads = dot(unit, _load(c, far_rows, s, c_t, c_s, live, S, BS).to(OPERAND), OPERAND)
        values = _load(v, far_rows, d, v_t, v_d, live, D, BD).to(OPERAND)
        gate = tl.load(g + far_rows * g_t, mask=live, other=0.0).to(tl.float32)
        ahead = far_rows + TILE
        more = ahead < length
        prefetch(v, ahead, v_t, more)
        prefetch(b, ahead, b_t, more)
        prefetch(c, ahead, c_t, more)
        prefetch(g, ahead, g_t, more)
        # Only the diagonal of this product is kept, the pairs of a row with itself, which cross no decay.
        scores = dot(reads, turned_operand(writes, OPERAND), OPERAND)
        until = gate
        after = tl.zeros_like(gate)
        total = gate
        for level in tl.static_range(0, 7):
            if (1 << level) < TILE:
                right = (rows & (1 << level)) != 0
                _factor, scaled = _scaled(tl.where(right, until, after), right, rate, reads, writes)
                # Pairs of larger levels are overwritten later, those above the diagonal in the end.
                level_scores = dot(scaled, turned_operand(scaled, OPERAND), OPERAND)
                scores = tl.where(apart >= (1 << level), level_scores, scores)
                sibling = _sibling(total, rows, 1 << level)
                until += tl.where(right, sibling, 0.0)
                after += tl.where(right, 0.0, sibling)
                total += sibling
        scores = tl.where(rows[:, None] >= columns[None, :], scores, 0.0)
        into = reads * exp2(rate[None, :] * until[:, None])
        out = writes * exp2(rate[None, :] * after[:, None])
        result = dot(scores, values, OPERAND) + dot(into, turned_operand(state, OPERAND), OPERAND)
        mask = live[:, None]
        if D != BD:
            mask = mask & (d < D)[None, :]
        tl.store(o + far_rows[:, None] * o_t + d[None, :], result.to(o.dtype.element_ty), mask=mask)
        if KEEP:
            tl.store(tiles, state.to(tiles.dtype.element_ty), mask=inside)
            tl.store(pairs, scores.to(pairs.dtype.element_ty))
            tiles += H * (S * D)
            pairs += H * (TILE * TILE)
        decay = tl.exp2(rate * tl.sum(gate, 0))
        state = state * decay[None, :] + dot(tl.trans(values), right_operand(out, OPERAND), OPERAND)
    if last != 0:
        tl.store(final + (sequence * H + head) * (S * D) + place, state, mask=inside)
