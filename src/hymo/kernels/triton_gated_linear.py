r"""Triton kernels of `gated_linear`.

A program owns one segment of one head and walks over it in tiles. Gates enter every exponent as a sum of gates that are
all >= 0, times a rate < 0, so no exponent is ever positive and no difference of running sums is taken. Inside a tile
the pairs of rows are split into levels as in `hymo.kernels.gated_linear`; a row is a reader or a writer at a level, so
one matrix U holds the scaled keys of both, and U U^T, which is symmetric, holds the scores of the level.

    read_gradient    forward over a segment: gradients of read keys; the states that enter tiles, transposed
    write_gradient   backward over a segment: gradients of write keys, values, gates and states

Each of the two needs few enough registers for several programs per multiprocessor; one kernel for both did not.

Transposed products are formed by swapping operands: Triton before 3.7.1 miscompiles a transposed accumulator on Hopper.
"""

from __future__ import annotations

import triton
import triton.language as tl

from hymo.kernels.triton_common import LOG2E, dot, exp2, prefetch, sum_before


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
    length = (end - start).to(tl.int32)
    for offset in range(0, length, TILE):
        live = offset + rows < length
        values = _load(v, rows, d, v_t, v_d, live, D, BD)
        writes = _load(b, rows, s, b_t, b_s, live, S, BS).to(tl.float32)
        gate = tl.load(g + rows * g_t, mask=live, other=0.0).to(tl.float32)
        later = (rows + 1 < TILE) & (offset + rows + 1 < length)
        shifted = tl.load(g + (rows + 1) * g_t, mask=later, other=0.0).to(tl.float32)
        after = tl.cumsum(shifted, 0, reverse=True)
        total = tl.sum(gate, 0)
        out = tl.exp2(rate[None, :] * after[:, None])
        state = state * tl.exp2(rate * total)[:, None] + dot(tl.trans((writes * out).to(OPERAND)), values, OPERAND)
        seen += total
        v += TILE * v_t
        b += TILE * b_t
        g += TILE * g_t
    where = states + ((index * H + head) * S + s[:, None]) * D + d[None, :]
    tl.store(where, state, mask=(s < S)[:, None] & (d < D)[None, :])
    tl.store(gates + index * H + head, seen)


@triton.jit
def summarise_gradient(
    c, g, A_log, do, returned, gates, table, H,
    c_b, c_t, c_h, c_s, g_b, g_t, g_h, do_b, do_t, do_h, do_d,
    S: tl.constexpr, D: tl.constexpr, BS: tl.constexpr, BD: tl.constexpr, TILE: tl.constexpr, OPERAND: tl.constexpr,
):  # fmt: skip
    """Gradient of each segment's entering state for none of its leaving state -> returned (segments, H, D, S)."""
    program = tl.program_id(0)
    head = (program % H).to(tl.int64)
    index = (program // H).to(tl.int64)
    row, start, end, _sequence, _first, _last, _tile = _segment(table, index)
    rows = tl.arange(0, TILE)
    s = tl.arange(0, BS)
    d = tl.arange(0, BD)
    rate = _rates(A_log, head, s, S)
    c += row * c_b + start * c_t + head * c_h
    g += row * g_b + start * g_t + head * g_h
    do += row * do_b + start * do_t + head * do_h
    state = tl.zeros((BD, BS), tl.float32)
    seen = 0.0
    length = (end - start).to(tl.int32)
    for offset in range(0, length, TILE):
        live = offset + rows < length
        grads = _load(do, rows, d, do_t, do_d, live, D, BD).to(OPERAND)
        reads = _load(c, rows, s, c_t, c_s, live, S, BS).to(tl.float32)
        gate = tl.load(g + rows * g_t, mask=live, other=0.0).to(tl.float32)
        into = reads * exp2(rate[None, :] * (seen + tl.cumsum(gate, 0))[:, None])
        state += dot(tl.trans(grads), into, OPERAND)
        seen += tl.sum(gate, 0)
        c += TILE * c_t
        g += TILE * g_t
        do += TILE * do_t
    where = returned + (index * H + head) * (S * D) + d[:, None] * S + s[None, :]
    tl.store(where, state, mask=(d < D)[:, None] & (s < S)[None, :])
    tl.store(gates + index * H + head, seen)


@triton.jit
def scan(
    states, gates, A_log, outer, spans, H,
    S: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr, TRANSPOSED: tl.constexpr, REVERSE: tl.constexpr,
    HAS_OUTER: tl.constexpr,
):  # fmt: skip
    """Replace what segments add to a state by the state that enters each (reverse: the gradient that leaves each).

    outer: the states (sequences, H, S, D) that enter the first segments (reverse: gradients of final states).
    TRANSPOSED: `states` are (segments, H, D, S).
    """
    program = tl.program_id(0)
    blocks: tl.constexpr = (S * D + BLOCK - 1) // BLOCK
    element = (program % blocks) * BLOCK + tl.arange(0, BLOCK)
    head = ((program // blocks) % H).to(tl.int64)
    sequence = (program // (blocks * H)).to(tl.int64)
    inside = element < S * D
    if TRANSPOSED:
        s = element % S
        d = element // S
    else:
        s = element // D
        d = element % D
    rate = -tl.exp(tl.load(A_log + head * S + s, mask=inside, other=0.0)) * LOG2E
    first = tl.load(spans + sequence * 2)
    count = tl.load(spans + sequence * 2 + 1)
    if HAS_OUTER:
        state = tl.load(outer + ((sequence * H + head) * S + s) * D + d, mask=inside, other=0.0).to(tl.float32)
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
    v, b, c, g, A_log, entering, final, o, table, H,
    v_b, v_t, v_h, v_d, b_b, b_t, b_h, b_s, c_b, c_t, c_h, c_s, g_b, g_t, g_h, o_b, o_t,
    S: tl.constexpr, D: tl.constexpr, BS: tl.constexpr, BD: tl.constexpr, TILE: tl.constexpr, OPERAND: tl.constexpr,
    HAS_STATE: tl.constexpr,
):  # fmt: skip
    """Outputs, and final states of the sequences."""
    program = tl.program_id(0)
    head = (program % H).to(tl.int64)
    index = (program // H).to(tl.int64)
    row, start, end, sequence, _first, last, _tile = _segment(table, index)
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
    inside = (s < S)[:, None] & (d < D)[None, :]
    if HAS_STATE:
        state = tl.load(entering + ((index * H + head) * S + s[:, None]) * D + d[None, :], mask=inside, other=0.0)
        state = state.to(tl.float32)
    else:
        state = tl.zeros((BS, BD), tl.float32)
    apart = rows[:, None] ^ columns[None, :]
    length = (end - start).to(tl.int32)
    for offset in range(0, length, TILE):
        live = offset + rows < length
        values = _load(v, rows, d, v_t, v_d, live, D, BD)
        writes = _load(b, rows, s, b_t, b_s, live, S, BS).to(tl.float32)
        reads = _load(c, rows, s, c_t, c_s, live, S, BS).to(tl.float32)
        gate = tl.load(g + rows * g_t, mask=live, other=0.0).to(tl.float32)
        ahead = tl.minimum(rows + TILE, length - 1 - offset)
        prefetch(v + ahead * v_t)
        prefetch(b + ahead * b_t)
        prefetch(c + ahead * c_t)
        prefetch(g + ahead * g_t)
        # Only the diagonal of this product is kept, the pairs of a row with itself, which cross no decay.
        scores = dot(reads, tl.trans(writes.to(OPERAND)), OPERAND)
        until = gate
        after = tl.zeros_like(gate)
        total = gate
        for level in tl.static_range(0, 7):
            if (1 << level) < TILE:
                right = (rows & (1 << level)) != 0
                _factor, scaled = _scaled(tl.where(right, until, after), right, rate, reads, writes)
                scaled = scaled.to(OPERAND)
                # Pairs of larger levels are overwritten later, those above the diagonal in the end.
                scores = tl.where(apart >= (1 << level), dot(scaled, tl.trans(scaled), OPERAND), scores)
                sibling = _sibling(total, rows, 1 << level)
                until += tl.where(right, sibling, 0.0)
                after += tl.where(right, 0.0, sibling)
                total += sibling
        scores = tl.where(rows[:, None] >= columns[None, :], scores, 0.0)
        into = reads * tl.exp2(rate[None, :] * until[:, None])
        out = writes * tl.exp2(rate[None, :] * after[:, None])
        result = dot(scores, values, OPERAND) + dot(into, state, OPERAND)
        mask = live[:, None]
        if D != BD:
            mask = mask & (d < D)[None, :]
        tl.store(o + rows[:, None] * o_t + d[None, :], result.to(o.dtype.element_ty), mask=mask)
        decay = tl.exp2(rate * tl.max(total, 0))
        state = state * decay[:, None] + dot(tl.trans(out.to(OPERAND)), values, OPERAND)
        v += TILE * v_t
        b += TILE * b_t
        c += TILE * c_t
        g += TILE * g_t
        o += TILE * o_t
    if last != 0:
        tl.store(final + ((sequence * H + head) * S + s[:, None]) * D + d[None, :], state, mask=inside)


@triton.jit
def read_gradient(
    v, b, c, g, A_log, do, entering, tiles, dc, by_read, dA, table, H,
    v_b, v_t, v_h, v_d, b_b, b_t, b_h, b_s, c_b, c_t, c_h, c_s, g_b, g_t, g_h, do_b, do_t, do_h, do_d, tokens,
    S: tl.constexpr, D: tl.constexpr, BS: tl.constexpr, BD: tl.constexpr, TILE: tl.constexpr, OPERAND: tl.constexpr,
    HAS_STATE: tl.constexpr,
):  # fmt: skip
    """Forward over a segment: gradients of the read keys, and what `write_gradient` needs.

    tiles (tiles, H, D, S): the state that enters each tile. by_read (B, T, H): what each read adds to the gradient of
    every gate between it and what it reads, summed over states. dA (segments, H, S): the reads' part for A_log.
    """
    program = tl.program_id(0)
    head = (program % H).to(tl.int64)
    index = (program // H).to(tl.int64)
    row, start, end, _sequence, _first, _last, tile = _segment(table, index)
    rows = tl.arange(0, TILE)
    columns = tl.arange(0, TILE)
    s = tl.arange(0, BS)
    d = tl.arange(0, BD)
    rate = _rates(A_log, head, s, S)
    v += row * v_b + start * v_t + head * v_h
    b += row * b_b + start * b_t + head * b_h
    c += row * c_b + start * c_t + head * c_h
    g += row * g_b + start * g_t + head * g_h
    do += row * do_b + start * do_t + head * do_h
    dc += ((row * tokens + start) * H + head) * S
    by_read += (row * tokens + start) * H + head
    tiles += (tile * H + head) * (S * D)
    inside = (d < D)[:, None] & (s < S)[None, :]
    place = d[:, None] * S + s[None, :]
    if HAS_STATE:
        turned = entering + (index * H + head) * (S * D) + s[None, :] * D + d[:, None]
        state = tl.load(turned, mask=inside, other=0.0).to(tl.float32)
    else:
        state = tl.zeros((BD, BS), tl.float32)
    rate_grad = tl.zeros((BS,), tl.float32)
    later = rows[:, None] > columns[None, :]
    apart = rows[:, None] ^ columns[None, :]
    unit = tl.where(apart == 0, 1.0, 0.0).to(OPERAND)
    length = (end - start).to(tl.int32)
    for offset in range(0, length, TILE):
        live = offset + rows < length
        values = _load(v, rows, d, v_t, v_d, live, D, BD).to(OPERAND)
        grads = _load(do, rows, d, do_t, do_d, live, D, BD).to(OPERAND)
        raw_writes = _load(b, rows, s, b_t, b_s, live, S, BS).to(OPERAND)
        raw_reads = _load(c, rows, s, c_t, c_s, live, S, BS).to(OPERAND)
        gate = tl.load(g + rows * g_t, mask=live, other=0.0).to(tl.float32)
        ahead = tl.minimum(rows + 2 * TILE, length - 1 - offset)
        prefetch(v + ahead * v_t)
        prefetch(do + ahead * do_t)
        prefetch(b + ahead * b_t)
        prefetch(c + ahead * c_t)
        prefetch(g + ahead * g_t)
        # Products with the unit matrix put the keys where products put their results, for all that follows.
        writes = dot(unit, raw_writes, OPERAND)
        reads = dot(unit, raw_reads, OPERAND)
        products = dot(grads, tl.trans(values), OPERAND)
        read_grad = tl.zeros((TILE, BS), tl.float32)
        x = tl.zeros((TILE, BS), tl.float32)
        until = gate
        after = tl.zeros_like(gate)
        totals = gate
        for level in tl.static_range(0, 7):
            if (1 << level) < TILE:
                right = (rows & (1 << level)) != 0
                factor = exp2(rate[None, :] * tl.where(right, until, after)[:, None])
                covered = tl.where(((apart >> level) == 1) & later, products, 0.0)
                read = dot(covered, writes * factor, OPERAND)
                read_grad += factor * read
                # Rounded as `write_gradient` rounds it: what a pair adds here and takes away there cancels exactly.
                x += (reads * factor).to(OPERAND).to(tl.float32) * read
                sibling = _sibling(totals, rows, 1 << level)
                until += tl.where(right, sibling, 0.0)
                after += tl.where(right, 0.0, sibling)
                totals += sibling
        total = tl.max(totals, 0)
        into = exp2(rate[None, :] * until[:, None])
        by_state = into * dot(grads, state, OPERAND)
        read_grad += by_state
        x += reads * by_state
        rate_grad += tl.sum(until[:, None] * x, 0)
        tl.store(by_read + rows * H, tl.sum(x * rate[None, :], 1) * (1.0 / LOG2E), mask=live)
        # Pairs of a row with itself cross no decay: they join after the gates' part is formed.
        read_grad += tl.sum(tl.where(apart == 0, products, 0.0), 1)[:, None] * writes
        mask = live[:, None]
        if S != BS:
            mask = mask & (s < S)[None, :]
        tl.store(dc + rows[:, None] * (H * S) + s[None, :], read_grad.to(dc.dtype.element_ty), mask=mask)
        tl.store(tiles + place, state.to(tiles.dtype.element_ty), mask=inside)
        out = writes * exp2(rate[None, :] * after[:, None])
        state = state * tl.exp2(rate * total)[None, :] + dot(tl.trans(values), out, OPERAND)
        v += TILE * v_t
        b += TILE * b_t
        c += TILE * c_t
        g += TILE * g_t
        do += TILE * do_t
        dc += TILE * H * S
        by_read += TILE * H
        tiles += H * (S * D)
    tl.store(dA + (index * H + head) * S + s, rate_grad * rate * (1.0 / LOG2E), mask=s < S)


@triton.jit
def write_gradient(
    v, b, c, g, A_log, do, tiles, leaving, by_read, dv, db, dg, dA, dinitial, table, H,
    v_b, v_t, v_h, v_d, b_b, b_t, b_h, b_s, c_b, c_t, c_h, c_s, g_b, g_t, g_h, do_b, do_t, do_h, do_d,
    tokens,
    S: tl.constexpr, D: tl.constexpr, BS: tl.constexpr, BD: tl.constexpr, TILE: tl.constexpr, OPERAND: tl.constexpr,
    HAS_LEAVING: tl.constexpr, TURNED: tl.constexpr, HAS_INITIAL: tl.constexpr,
):  # fmt: skip
    """Backward over a segment, after `read_gradient`: gradients of values, write keys, gates and initial states.

    leaving: gradients of the states that leave the segments, (segments, H, D, S) if TURNED, else (segments, H, S, D).
    """
    program = tl.program_id(0)
    head = (program % H).to(tl.int64)
    index = (program // H).to(tl.int64)
    row, start, end, sequence, first, _last, tile = _segment(table, index)
    rows = tl.arange(0, TILE)
    columns = tl.arange(0, TILE)
    s = tl.arange(0, BS)
    d = tl.arange(0, BD)
    rate = _rates(A_log, head, s, S)
    length = (end - start).to(tl.int32)
    count = (length + TILE - 1) // TILE
    at = start + (count - 1) * TILE  # the last tile's first token
    v += row * v_b + at * v_t + head * v_h
    b += row * b_b + at * b_t + head * b_h
    c += row * c_b + at * c_t + head * c_h
    g += row * g_b + at * g_t + head * g_h
    do += row * do_b + at * do_t + head * do_h
    dv += ((row * tokens + at) * H + head) * D
    db += ((row * tokens + at) * H + head) * S
    dg += (row * tokens + at) * H + head
    by_read += (row * tokens + at) * H + head
    tiles += ((tile + count - 1) * H + head) * (S * D)
    inside = (d < D)[:, None] & (s < S)[None, :]
    place = d[:, None] * S + s[None, :]
    turned = s[None, :] * D + d[:, None]
    grad = tl.zeros((BD, BS), tl.float32)
    if HAS_LEAVING:
        where = place if TURNED else turned
        grad = tl.load(leaving + (index * H + head) * (S * D) + where, mask=inside, other=0.0).to(tl.float32)
    rate_grad = tl.zeros((BS,), tl.float32)
    earlier = rows[:, None] < columns[None, :]
    apart = rows[:, None] ^ columns[None, :]
    unit = tl.where(apart == 0, 1.0, 0.0).to(OPERAND)
    ones = tl.full((TILE, BD), 1.0, tl.float32).to(OPERAND)
    lines = tl.arange(0, 16)
    for n in range(count):
        offset = (count - 1 - n) * TILE
        live = offset + rows < length
        values = _load(v, rows, d, v_t, v_d, live, D, BD).to(OPERAND)
        grads = _load(do, rows, d, do_t, do_d, live, D, BD).to(OPERAND)
        raw_writes = _load(b, rows, s, b_t, b_s, live, S, BS).to(OPERAND)
        raw_reads = _load(c, rows, s, c_t, c_s, live, S, BS).to(OPERAND)
        gate = tl.load(g + rows * g_t, mask=live, other=0.0).to(tl.float32)
        if n + 1 < count:
            prefetch(v + (rows - TILE) * v_t)
            prefetch(do + (rows - TILE) * do_t)
            prefetch(b + (rows - TILE) * b_t)
            prefetch(c + (rows - TILE) * c_t)
            prefetch(g + (rows - TILE) * g_t)
            prefetch(tiles - H * (S * D) + lines * (S * D // 16))
        writes = dot(unit, raw_writes, OPERAND)
        reads = dot(unit, raw_reads, OPERAND)
        products = dot(values, tl.trans(grads), OPERAND)  # the transpose of P = dO V^T
        scores = dot(raw_reads, tl.trans(raw_writes), OPERAND)
        inside_grad = tl.zeros((TILE, BS), tl.float32)
        z = tl.zeros((TILE, BS), tl.float32)
        until = gate
        after = tl.zeros_like(gate)
        totals = gate
        for level in tl.static_range(0, 7):
            if (1 << level) < TILE:
                right = (rows & (1 << level)) != 0
                factor, scaled = _scaled(tl.where(right, until, after), right, rate, reads, writes)
                scaled = scaled.to(OPERAND)
                scores = tl.where(apart >= (1 << level), dot(scaled, tl.trans(scaled), OPERAND), scores)
                covered = tl.where(((apart >> level) == 1) & earlier, products, 0.0)
                written = dot(covered, scaled, OPERAND)
                inside_grad += factor * written
                z += scaled.to(tl.float32) * written
                sibling = _sibling(totals, rows, 1 << level)
                until += tl.where(right, sibling, 0.0)
                after += tl.where(right, 0.0, sibling)
                totals += sibling
        total = tl.max(totals, 0)
        decay = tl.exp2(rate * total)
        out = exp2(rate[None, :] * after[:, None])
        scores = tl.where(earlier, 0.0, scores)
        turned_grads = tl.trans(grads)
        value_grad = dot(turned_grads, scores, OPERAND) + dot(grad, tl.trans((writes * out).to(OPERAND)), OPERAND)
        mask = live[:, None]
        if D != BD:
            mask = mask & (d < D)[None, :]
        tl.store(dv + rows[:, None] * (H * D) + d[None, :], tl.trans(value_grad).to(dv.dtype.element_ty), mask=mask)
        leaving_grad = out * dot(values, grad, OPERAND)

        # What flows across token t: reads from t on, less those of what is written from t on in this tile; what is
        # written before t and read after the tile; what crosses all of the tile, the same for every t.
        y = writes * leaving_grad
        state = tl.load(tiles + place, mask=inside, other=0.0)
        across = dot(ones, grad * decay[None, :] * state.to(tl.float32), OPERAND)
        inner = tl.sum(z * rate[None, :], 1) * (1.0 / LOG2E)
        outer = tl.sum(y * rate[None, :], 1) * (1.0 / LOG2E)
        read_part = tl.load(by_read + rows * H, mask=live, other=0.0)
        gate_grad = tl.cumsum(read_part - inner, 0, reverse=True) + sum_before(outer, rows, columns)
        gate_grad += tl.sum(across * rate[None, :], 1) * (1.0 / LOG2E)
        tl.store(dg + rows * H, gate_grad.to(dg.dtype.element_ty), mask=live)
        across = tl.where(rows[:, None] == 0, total * across, 0.0)
        rate_grad += tl.sum(after[:, None] * y - until[:, None] * z + across, 0)

        # Pairs of a row with itself cross no decay: they join after the flow is known.
        mask = live[:, None]
        if S != BS:
            mask = mask & (s < S)[None, :]
        write_grad = inside_grad + leaving_grad + tl.sum(tl.where(apart == 0, products, 0.0), 1)[:, None] * reads
        tl.store(db + rows[:, None] * (H * S) + s[None, :], write_grad.to(db.dtype.element_ty), mask=mask)

        into = reads * exp2(rate[None, :] * until[:, None])
        grad = grad * decay[None, :] + dot(turned_grads, into, OPERAND)
        v -= TILE * v_t
        b -= TILE * b_t
        c -= TILE * c_t
        g -= TILE * g_t
        do -= TILE * do_t
        dv -= TILE * H * D
        db -= TILE * H * S
        dg -= TILE * H
        by_read -= TILE * H
        tiles -= H * (S * D)
    tl.store(dA + (index * H + head) * S + s, rate_grad * rate * (1.0 / LOG2E), mask=s < S)
    if HAS_INITIAL:
        reached = tl.where(inside, first, 0) != 0
        tl.store(dinitial + (sequence * H + head) * (S * D) + turned, grad, mask=reached)
