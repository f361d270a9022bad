"""Triton kernels of the gradient of `gated_linear`; see `triton_gated_linear` for the method.

summarise_gradient    what each segment adds to the gradient of its entering state
states                forward over a segment again: the states that enter its tiles
backward              backward over a segment: all gradients
"""

from __future__ import annotations

import triton
import triton.language as tl

from hymo.kernels.triton_common import LOG2E, dot, exp2, prefetch, right_operand, tied, turned_operand
from hymo.kernels.triton_gated_linear import _load, _rates, _segment, _sibling, _spans, _unit


@triton.jit
def summarise_gradient(
    c, g, A_log, do, returned, gates, table, H,
    c_b, c_t, c_h, c_s, g_b, g_t, g_h, do_b, do_t, do_h, do_d,
    S: tl.constexpr, D: tl.constexpr, BS: tl.constexpr, BD: tl.constexpr, TILE: tl.constexpr, OPERAND: tl.constexpr,
):  # fmt: skip
    """Gradient of each segment's entering state for none of its leaving state -> returned (segments, H, S, D)."""
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
    state = tl.zeros((BS, BD), tl.float32)
    seen = 0.0
    unit = _unit(rows, OPERAND)
    length = (end - start).to(tl.int32)
    for offset in range(0, length, TILE):
        tile_rows = tied(rows, offset) + offset
        live = tile_rows < length
        far_rows = tile_rows.to(tl.int64)
        grads = _load(do, far_rows, d, do_t, do_d, live, D, BD).to(OPERAND)
        reads = dot(tl.trans(_load(c, far_rows, s, c_t, c_s, live, S, BS).to(OPERAND)), unit, OPERAND)
        gate = tl.load(g + far_rows * g_t, mask=live, other=0.0).to(tl.float32)
        into = reads * exp2(rate[:, None] * (seen + tl.cumsum(gate, 0))[None, :])
        state += dot(into, grads, OPERAND)
        seen += tl.sum(gate, 0)
    where = returned + ((index * H + head) * S + s[:, None]) * D + d[None, :]
    tl.store(where, state, mask=(s < S)[:, None] & (d < D)[None, :])
    tl.store(gates + index * H + head, seen)


@triton.jit
def states(
    v, b, g, A_log, entering, tiles, table, H,
    v_b, v_t, v_h, v_d, b_b, b_t, b_h, b_s, g_b, g_t, g_h,
    S: tl.constexpr, D: tl.constexpr, BS: tl.constexpr, BD: tl.constexpr, TILE: tl.constexpr, OPERAND: tl.constexpr,
    HAS_STATE: tl.constexpr,
):  # fmt: skip
    """The state that enters each tile of a segment -> tiles (tiles, H, S, D)."""
    program = tl.program_id(0)
    head = (program % H).to(tl.int64)
    index = (program // H).to(tl.int64)
    row, start, end, _sequence, _first, _last, tile = _segment(table, index)
    rows = tl.arange(0, TILE)
    s = tl.arange(0, BS)
    d = tl.arange(0, BD)
    rate = _rates(A_log, head, s, S)
    v += row * v_b + start * v_t + head * v_h
    b += row * b_b + start * b_t + head * b_h
    g += row * g_b + start * g_t + head * g_h
    tiles += (tile * H + head) * (S * D)
    inside = (s < S)[:, None] & (d < D)[None, :]
    place = s[:, None] * D + d[None, :]
    if HAS_STATE:
        state = tl.load(entering + (index * H + head) * (S * D) + place, mask=inside, other=0.0).to(tl.float32)
    else:
        state = tl.zeros((BS, BD), tl.float32)
    unit = _unit(rows, OPERAND)
    length = (end - start).to(tl.int32)
    for offset in range(0, length, TILE):
        tile_rows = tied(rows, offset) + offset
        live = tile_rows < length
        far_rows = tile_rows.to(tl.int64)
        values = _load(v, far_rows, d, v_t, v_d, live, D, BD).to(OPERAND)
        writes = dot(tl.trans(_load(b, far_rows, s, b_t, b_s, live, S, BS).to(OPERAND)), unit, OPERAND)
        gate = tl.load(g + far_rows * g_t, mask=live, other=0.0).to(tl.float32)
        _until, after, _total = _spans(gate, rows, TILE)
        tl.store(tiles + place, state.to(tiles.dtype.element_ty), mask=inside)
        out = writes * exp2(rate[:, None] * after[None, :])
        state = state * tl.exp2(rate * tl.sum(gate, 0))[:, None] + dot(out, values, OPERAND)
        tiles += H * (S * D)


@triton.jit
def backward(
    v, b, c, g, A_log, do, tiles, kept_scores, leaving, dv, db, dc, dg, dA, dinitial, table, H,
    v_b, v_t, v_h, v_d, b_b, b_t, b_h, b_s, c_b, c_t, c_h, c_s, g_b, g_t, g_h, do_b, do_t, do_h, do_d, tokens, segments,
    S: tl.constexpr, D: tl.constexpr, BS: tl.constexpr, BD: tl.constexpr, TILE: tl.constexpr, OPERAND: tl.constexpr,
    HAS_LEAVING: tl.constexpr, HAS_INITIAL: tl.constexpr, KEPT: tl.constexpr,
):  # fmt: skip
    """Backward over a segment: all gradients. dA (H, S, segments): the segments' parts for A_log.

    KEPT: states and scores of the tiles come from the forward pass, the states turned; else from `states`, and scores
    are formed here.
    leaving (segments, H, S, D): gradients of the states that leave the segments. Keys, their gradients and the flows
    across gates are (states, rows): in this order all products of a level but its scores take their operands from
    registers. A state's flow across gate t is a sum over pairs that cross t, each formed by itself, nothing subtracted.
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
    at = start
    v += row * v_b + at * v_t + head * v_h
    b += row * b_b + at * b_t + head * b_h
    c += row * c_b + at * c_t + head * c_h
    g += row * g_b + at * g_t + head * g_h
    do += row * do_b + at * do_t + head * do_h
    dv += ((row * tokens + at) * H + head) * D
    db += ((row * tokens + at) * H + head) * S
    dc += ((row * tokens + at) * H + head) * S
    dg += (row * tokens + at) * H + head
    tiles += (tile * H + head) * (S * D)
    kept_scores += (tile * H + head) * (TILE * TILE)
    turned_place = rows[:, None] + columns[None, :] * TILE
    inside = (s < S)[:, None] & (d < D)[None, :]
    place = s[:, None] * D + d[None, :]
    kept_place = s[:, None] + d[None, :] * S if KEPT else place
    grad = tl.zeros((BS, BD), tl.float32)
    if HAS_LEAVING:
        grad = tl.load(leaving + (index * H + head) * (S * D) + place, mask=inside, other=0.0).to(tl.float32)
    rate_grad = tl.zeros((BS, TILE // 4), tl.float32)
    lower = rows[:, None] > columns[None, :]
    upper = rows[:, None] < columns[None, :]
    apart = rows[:, None] ^ columns[None, :]
    unit = _unit(rows, OPERAND)
    # Of what row r reads before the tile or is read of it after: the gates crossed, as columns.
    reads_cross = tl.where(upper, 0.0, 1.0).to(OPERAND)
    writes_cross = tl.where(upper, 1.0, 0.0).to(OPERAND)
    for n in range(count):
        step = count - 1 - n
        tile_rows = tied(rows, step) + step * TILE
        live = tile_rows < length
        far_rows = tile_rows.to(tl.int64)
        raw_writes = _load(b, far_rows, s, b_t, b_s, live, S, BS).to(OPERAND)
        raw_reads = _load(c, far_rows, s, c_t, c_s, live, S, BS).to(OPERAND)
        values = _load(v, far_rows, d, v_t, v_d, live, D, BD).to(OPERAND)
        grads = _load(do, far_rows, d, do_t, do_d, live, D, BD).to(OPERAND)
        gate = tl.load(g + far_rows * g_t, mask=live, other=0.0).to(tl.float32)
        state = tl.load(tiles + step.to(tl.int64) * (H * S * D) + kept_place, mask=inside, other=0.0)
        ahead = far_rows - TILE
        more = ahead >= 0
        prefetch(v, ahead, v_t, more)
        prefetch(do, ahead, do_t, more)
        prefetch(b, ahead, b_t, more)
        prefetch(c, ahead, c_t, more)
        prefetch(g, ahead, g_t, more)
        lines = tl.arange(0, 16).to(tl.int64)
        prefetch(tiles + (step - 1).to(tl.int64) * (H * S * D), lines, S * D // 16, (lines >= 0) & (step > 0))
        if KEPT:
            next_scores = kept_scores + (step - 1).to(tl.int64) * (H * TILE * TILE)
            prefetch(next_scores, lines, 64, (lines * 64 < TILE * TILE) & (step > 0))
        writes = dot(tl.trans(raw_writes), unit, OPERAND)
        reads = dot(tl.trans(raw_reads), unit, OPERAND)
        # P = dO V^T below the diagonal, its mirror image above.
        pairs = dot(grads, tl.trans(values), OPERAND)
        diagonal = tl.sum(tl.where(apart == 0, pairs, 0.0), 0)
        pairs = tl.where(lower, pairs, tl.where(upper, dot(values, tl.trans(grads), OPERAND), 0.0))
        until, after, _total = _spans(gate, rows, TILE)
        decay = tl.exp2(rate * tl.sum(gate, 0))

        # Through the states: what is read of the one that enters, what is written into the one that leaves.
        into = exp2(rate[:, None] * until[None, :])
        out = exp2(rate[:, None] * after[None, :])
        across = tl.sum(grad * state.to(tl.float32), 1) * decay
        read_grad = into * dot(state, tl.trans(grads), OPERAND)
        write_grad = out * dot(grad, tl.trans(values), OPERAND)
        flow = dot(reads * read_grad, reads_cross, OPERAND) + dot(writes * write_grad, writes_cross, OPERAND)
        flow += across[:, None]
        value_grad = dot(tl.trans((writes * out).to(OPERAND)), right_operand(grad, OPERAND), OPERAND)
        grad = grad * decay[:, None] + dot(reads * into, grads, OPERAND)

        # Inside the tile. A pair's gradient reaches both its rows: one product with the symmetric pairs serves both.
        if KEPT:
            scores = tl.load(kept_scores + step.to(tl.int64) * (H * TILE * TILE) + turned_place)  # turned already
        else:
            scores = dot(raw_reads, tl.trans(raw_writes), OPERAND)
        near = gate
        far = tl.zeros_like(gate)
        totals = gate
        for level in tl.static_range(0, 7):
            if (1 << level) < TILE:
                right = ((rows & (1 << level)) != 0)[None, :]
                covered = (apart >> level) == 1
                factor = exp2(rate[:, None] * tl.where(right, near[None, :], far[None, :]))
                keys = tl.where(right, reads, writes)
                scaled = keys * factor
                rounded = scaled.to(OPERAND)
                if not KEPT:
                    level_scores = dot(tl.trans(rounded), right_operand(scaled, OPERAND), OPERAND)
                    scores = tl.where(covered, level_scores, scores)
                part = factor * dot(rounded, turned_operand(tl.where(covered, pairs, 0.0), OPERAND), OPERAND)
                read_grad = tl.where(right, read_grad + part, read_grad)
                write_grad = tl.where(right, write_grad, write_grad + part)
                reader = ((rows & (1 << level)) != 0)[:, None]
                crossed = ((apart >> level) == 0) & (reader != upper)
                flow += dot(keys * part, tl.where(crossed, 1.0, 0.0), OPERAND)
                if (2 << level) < TILE:
                    sibling = _sibling(totals, rows, 1 << level)
                    near += tl.where((rows & (1 << level)) != 0, sibling, 0.0)
                    far += tl.where((rows & (1 << level)) != 0, 0.0, sibling)
                    totals += sibling
        by_gate = tl.reshape(gate[None, :] * flow, (BS, 2, TILE // 4, 2))  # sums that stay inside a thread
        rate_grad += tl.sum(tl.sum(by_gate, 3), 1)
        gate_grad = tl.sum(rate[:, None] * flow, 0) * (1.0 / LOG2E)
        tl.store(dg + far_rows * H, gate_grad.to(dg.dtype.element_ty), mask=live)

        # A row reading itself crosses no gate: it joins the keys' gradients after the flows are formed.
        read_grad += diagonal[None, :] * writes
        write_grad += diagonal[None, :] * reads
        mask = live[:, None]
        if S != BS:
            mask = mask & (s < S)[None, :]
        key_place = far_rows[:, None] * (H * S) + s[None, :]
        tl.store(dc + key_place, tl.trans(read_grad.to(dc.dtype.element_ty)), mask=mask)
        tl.store(db + key_place, tl.trans(write_grad.to(db.dtype.element_ty)), mask=mask)
        if not KEPT:
            scores = tl.where(lower, 0.0, scores)  # symmetric up to the mask, so their transpose costs nothing
        value_grad += dot(scores, grads, OPERAND)
        mask = live[:, None]
        if D != BD:
            mask = mask & (d < D)[None, :]
        tl.store(dv + far_rows[:, None] * (H * D) + d[None, :], value_grad.to(dv.dtype.element_ty), mask=mask)
    tl.store(dA + (head * S + s) * segments + index, tl.sum(rate_grad, 1) * rate * (1.0 / LOG2E), mask=s < S)
    if HAS_INITIAL:
        reached = tl.where(inside, first, 0) != 0
        tl.store(dinitial + (sequence * H + head) * (S * D) + place, grad, mask=reached)
