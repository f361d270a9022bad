r"""Triton kernels of `gated_delta`.

A program owns one segment of one head and walks over it in tiles of C rows, in the chunked form of
`hymo.kernels.gated_delta`. The unit triangular matrix I + L is inverted by halves, T <- T - T (L between siblings) T
for blocks of 1, 2, 4, ... rows: substitution by blocks, safe on correlated keys where a Neumann product is not.
`prepare` does that for all tiles at once, so that no sweep waits for its chain of small products.

A segment maps the state that enters it to the one that leaves it by an affine map: `summarise` finds its matrix
(carried from the identity) and its offset (carried from zero), and `scan` composes the maps of a sequence.
"""

from __future__ import annotations

import triton
import triton.language as tl

from hymo.kernels.triton_common import LOG2E, dot, prefetch, right_operand, sum_before, tied, turned_operand
from hymo.kernels.triton_gated_linear import _load, _segment


@triton.jit
def _product(x, y, exact: tl.constexpr):
    """x @ y in tf32, or in fp32 where inputs are."""
    if exact:
        return tl.dot(x, y, input_precision="tf32x3")
    return tl.dot(x, y, input_precision="tf32")


@triton.jit
def _small_product(x, y, exact: tl.constexpr):
    """x @ y of blocks of an inverse. fp16 keeps the digits of tf32, and its operands are half as many."""
    if exact:
        return tl.dot(x, y, input_precision="tf32x3")
    return tl.dot(x.to(tl.float16), right_operand(y, tl.float16))


@triton.jit
def _inverse(matrix, apart, tile: tl.constexpr, exact: tl.constexpr):
    """(I + matrix)^-1 of a strictly lower triangular matrix. Its entries are those of products of I - beta k k^T."""
    result = tl.where(apart == 0, 1.0, 0.0) - tl.where(apart == 1, matrix, 0.0)
    for level in tl.static_range(1, 7):
        if (1 << level) < tile:
            between = tl.where((apart >> level) == 1, matrix, 0.0)
            result -= _small_product(_small_product(result, between, exact), result, exact)
    return result


@triton.jit
def _between(sums, rows, columns):
    """Decay between rows i >= j of a tile, from running sums of gates; zero above the diagonal."""
    difference = tl.minimum(sums[:, None] - sums[None, :], 0.0)
    return tl.where(rows[:, None] >= columns[None, :], tl.exp2(difference * LOG2E), 0.0)


@triton.jit
def _edges(gate, rows, columns):
    """Decay from the tile's start through each row, after it to the end, and of the tile."""
    turned = tl.sum(tl.where(rows[:, None] == columns[None, :], gate[:, None], 0.0), 0)
    after = tl.sum(tl.where(rows[:, None] < columns[None, :], turned[None, :], 0.0), 1)
    until = tl.exp2(tl.cumsum(gate, 0) * LOG2E)
    return until, tl.exp2(tl.minimum(after, 0.0) * LOG2E), tl.exp2(tl.sum(gate, 0) * LOG2E)


@triton.jit
def prepare(
    q, k, beta, g, inverses, pairs, table, H,
    q_b, q_t, q_h, q_s, k_b, k_t, k_h, k_s, beta_b, beta_t, beta_h, g_b, g_t, g_h,
    S: tl.constexpr, BS: tl.constexpr, TILE: tl.constexpr, OPERAND: tl.constexpr, EXACT: tl.constexpr,
    SHARES: tl.constexpr,
):  # fmt: skip
    """What tiles need of no state: (I + L)^-1 -> inverses, decayed scores -> pairs, both (tiles, H, TILE, TILE).

    SHARES programs share the tiles of a segment.
    """
    program = tl.program_id(0)
    share = program % SHARES
    head = ((program // SHARES) % H).to(tl.int64)
    index = (program // SHARES // H).to(tl.int64)
    row, start, end, _sequence, _first, _last, tile = _segment(table, index)
    rows = tl.arange(0, TILE)
    columns = tl.arange(0, TILE)
    s = tl.arange(0, BS)
    q += row * q_b + start * q_t + head * q_h
    k += row * k_b + start * k_t + head * k_h
    beta += row * beta_b + start * beta_t + head * beta_h
    g += row * g_b + start * g_t + head * g_h
    place = ((tile + share) * H + head) * (TILE * TILE) + rows[:, None] * TILE + columns[None, :]
    inverses += place
    pairs += place
    apart = rows[:, None] ^ columns[None, :]
    length = (end - start).to(tl.int32)
    for step in range(share, (length + TILE - 1) // TILE, SHARES):
        tile_rows = rows + step * TILE
        live = tile_rows < length
        far_rows = tile_rows.to(tl.int64)
        keys = _load(k, far_rows, s, k_t, k_s, live, S, BS).to(OPERAND)
        queries = _load(q, far_rows, s, q_t, q_s, live, S, BS).to(OPERAND)
        strength = tl.load(beta + far_rows * beta_t, mask=live, other=0.0).to(tl.float32)
        gate = tl.load(g + far_rows * g_t, mask=live, other=0.0).to(tl.float32)
        between = _between(tl.cumsum(gate, 0), rows, columns)
        scores = between * dot(queries, tl.trans(keys), OPERAND)
        lower = strength[:, None] * between * dot(keys, tl.trans(keys), OPERAND)
        inverse = _inverse(tl.where(rows[:, None] > columns[None, :], lower, 0.0), apart, TILE, EXACT)
        tl.store(pairs, scores.to(pairs.dtype.element_ty))
        tl.store(inverses, inverse.to(inverses.dtype.element_ty))
        pairs += H * (SHARES * TILE * TILE)
        inverses += H * (SHARES * TILE * TILE)


@triton.jit
def summarise(
    k, v, beta, g, inverses, states, maps, table, H,
    k_b, k_t, k_h, k_s, v_b, v_t, v_h, v_d, beta_b, beta_t, beta_h, g_b, g_t, g_h,
    S: tl.constexpr, D: tl.constexpr, BS: tl.constexpr, BD: tl.constexpr, TILE: tl.constexpr, OPERAND: tl.constexpr,
    EXACT: tl.constexpr,
):  # fmt: skip
    """The map of each segment: offset -> states (segments, H, S, D), matrix -> maps (segments, H, S, S)."""
    program = tl.program_id(0)
    head = (program % H).to(tl.int64)
    index = (program // H).to(tl.int64)
    row, start, end, _sequence, _first, _last, tile = _segment(table, index)
    rows = tl.arange(0, TILE)
    columns = tl.arange(0, TILE)
    s = tl.arange(0, BS)
    d = tl.arange(0, BD)
    z = tl.arange(0, BS)
    k += row * k_b + start * k_t + head * k_h
    v += row * v_b + start * v_t + head * v_h
    beta += row * beta_b + start * beta_t + head * beta_h
    g += row * g_b + start * g_t + head * g_h
    inverses += (tile * H + head) * (TILE * TILE) + rows[:, None] * TILE + columns[None, :]
    state = tl.zeros((BS, BD), tl.float32)
    matrix = tl.where(s[:, None] == z[None, :], 1.0, 0.0)
    length = (end - start).to(tl.int32)
    for offset in range(0, length, TILE):
        tile_rows = tied(rows, offset) + offset
        live = tile_rows < length
        far_rows = tile_rows.to(tl.int64)
        keys = _load(k, far_rows, s, k_t, k_s, live, S, BS).to(OPERAND)
        values = _load(v, far_rows, d, v_t, v_d, live, D, BD).to(tl.float32)
        strength = tl.load(beta + far_rows * beta_t, mask=live, other=0.0).to(tl.float32)
        gate = tl.load(g + far_rows * g_t, mask=live, other=0.0).to(tl.float32)
        inverse = tl.load(inverses).to(tl.float32)
        inverses += H * (TILE * TILE)
        until, after, total = _edges(gate, rows, columns)
        error = values - until[:, None] * dot(keys, right_operand(state, OPERAND), OPERAND)
        drift = -until[:, None] * dot(keys, right_operand(matrix, OPERAND), OPERAND)
        written = tl.trans((keys.to(tl.float32) * after[:, None]).to(OPERAND))
        state = state * total + dot(
            written, right_operand(_product(inverse, strength[:, None] * error, EXACT), OPERAND), OPERAND
        )
        matrix = matrix * total + dot(
            written, right_operand(_product(inverse, strength[:, None] * drift, EXACT), OPERAND), OPERAND
        )
    program = index * H + head
    inside = (s < S)[:, None]
    tl.store(states + (program * S + s[:, None]) * D + d[None, :], state, mask=inside & (d < D)[None, :])
    tl.store(maps + (program * S + s[:, None]) * S + z[None, :], matrix, mask=inside & (z < S)[None, :])


@triton.jit
def scan(
    states, maps, outer, spans, H,
    S: tl.constexpr, D: tl.constexpr, BS: tl.constexpr, BD: tl.constexpr, REVERSE: tl.constexpr,
    HAS_OUTER: tl.constexpr,
):  # fmt: skip
    """Replace the segments' offsets by the state that enters each (reverse: the gradient that leaves each)."""
    blocks: tl.constexpr = (D + BD - 1) // BD
    program = tl.program_id(0)
    d = (program % blocks) * BD + tl.arange(0, BD)
    head = ((program // blocks) % H).to(tl.int64)
    sequence = (program // (blocks * H)).to(tl.int64)
    s = tl.arange(0, BS)
    z = tl.arange(0, BS)
    inside = (s < S)[:, None] & (d < D)[None, :]
    square = (s < S)[:, None] & (z < S)[None, :]
    first = tl.load(spans + sequence * 2)
    count = tl.load(spans + sequence * 2 + 1)
    place = s[:, None] * D + d[None, :]
    if HAS_OUTER:
        state = tl.load(outer + (sequence * H + head) * (S * D) + place, mask=inside, other=0.0).to(tl.float32)
    else:
        state = tl.zeros((BS, BD), tl.float32)
    turned = s[:, None] * S + z[None, :]
    step = 1
    index = first
    if REVERSE:
        turned = s[:, None] + z[None, :] * S
        step = -1
        index = first + count - 1
    for _n in range(count):
        where = states + (index * H + head) * (S * D) + place
        added = tl.load(where, mask=inside, other=0.0)
        matrix = tl.load(maps + (index * H + head) * (S * S) + turned, mask=square, other=0.0)
        tl.store(where, state, mask=inside)
        state = tl.dot(matrix, state, input_precision="tf32x3") + added
        index += step


@triton.jit
def forward(
    q, k, v, beta, g, inverses, pairs, entering, final, o, tiles, table, H,
    q_b, q_t, q_h, q_s, k_b, k_t, k_h, k_s, v_b, v_t, v_h, v_d, beta_b, beta_t, beta_h, g_b, g_t, g_h, tokens,
    S: tl.constexpr, D: tl.constexpr, BS: tl.constexpr, BD: tl.constexpr, TILE: tl.constexpr, OPERAND: tl.constexpr,
    EXACT: tl.constexpr, HAS_STATE: tl.constexpr, OUTPUT: tl.constexpr, KEEP: tl.constexpr,
):  # fmt: skip
    """OUTPUT: outputs, and final states. KEEP: the states that enter the tiles -> tiles (tiles, H, S, D)."""
    program = tl.program_id(0)
    head = (program % H).to(tl.int64)
    index = (program // H).to(tl.int64)
    row, start, end, sequence, _first, last, tile = _segment(table, index)
    rows = tl.arange(0, TILE)
    columns = tl.arange(0, TILE)
    s = tl.arange(0, BS)
    d = tl.arange(0, BD)
    k += row * k_b + start * k_t + head * k_h
    v += row * v_b + start * v_t + head * v_h
    beta += row * beta_b + start * beta_t + head * beta_h
    g += row * g_b + start * g_t + head * g_h
    if OUTPUT:
        q += row * q_b + start * q_t + head * q_h
        o += ((row * tokens + start) * H + head) * D
    if KEEP:
        tiles += (tile * H + head) * (S * D)
    tile_place = (tile * H + head) * (TILE * TILE) + rows[:, None] * TILE + columns[None, :]
    inverses += tile_place
    pairs += tile_place
    place = s[:, None] * D + d[None, :]
    inside = (s < S)[:, None] & (d < D)[None, :]
    if HAS_STATE:
        state = tl.load(entering + (index * H + head) * (S * D) + place, mask=inside, other=0.0).to(tl.float32)
    else:
        state = tl.zeros((BS, BD), tl.float32)
    length = (end - start).to(tl.int32)
    for offset in range(0, length, TILE):
        tile_rows = tied(rows, offset) + offset
        live = tile_rows < length
        far_rows = tile_rows.to(tl.int64)
        keys = _load(k, far_rows, s, k_t, k_s, live, S, BS).to(OPERAND)
        values = _load(v, far_rows, d, v_t, v_d, live, D, BD).to(tl.float32)
        strength = tl.load(beta + far_rows * beta_t, mask=live, other=0.0).to(tl.float32)
        gate = tl.load(g + far_rows * g_t, mask=live, other=0.0).to(tl.float32)
        ahead = far_rows + TILE
        prefetch(k, ahead, k_t, ahead < length)
        prefetch(v, ahead, v_t, ahead < length)
        if OUTPUT:
            prefetch(q, ahead, q_t, ahead < length)
        inverse = tl.load(inverses).to(tl.float32)
        inverses += H * (TILE * TILE)
        until, after, total = _edges(gate, rows, columns)
        error = values - until[:, None] * dot(keys, right_operand(state, OPERAND), OPERAND)
        update = _product(inverse, strength[:, None] * error, EXACT)
        if OUTPUT:
            queries = _load(q, far_rows, s, q_t, q_s, live, S, BS).to(OPERAND)
            scores = tl.load(pairs)
            pairs += H * (TILE * TILE)
            result = dot(scores, right_operand(update, OPERAND), OPERAND)
            result += until[:, None] * dot(queries, right_operand(state, OPERAND), OPERAND)
            mask = live[:, None] & (d < D)[None, :]
            tl.store(o + far_rows[:, None] * (H * D) + d[None, :], result.to(o.dtype.element_ty), mask=mask)
        if KEEP:
            tl.store(tiles + place, state.to(tiles.dtype.element_ty), mask=inside)
            tiles += H * (S * D)
        written = tl.trans((keys.to(tl.float32) * after[:, None]).to(OPERAND))
        state = state * total + dot(written, right_operand(update, OPERAND), OPERAND)
    if OUTPUT:
        reached = tl.where(inside, last, 0) != 0
        tl.store(final + (sequence * H + head) * (S * D) + place, state, mask=reached)


@triton.jit
def backward(
    q, k, v, beta, g, inverses, kept_scores, do, tiles, leaving, dq, dk, dv, dbeta, dg, dinitial, table, H,
    q_b, q_t, q_h, q_s, k_b, k_t, k_h, k_s, v_b, v_t, v_h, v_d, beta_b, beta_t, beta_h, g_b, g_t, g_h,
    do_b, do_t, do_h, do_d, tokens,
    S: tl.constexpr, D: tl.constexpr, BS: tl.constexpr, BD: tl.constexpr, TILE: tl.constexpr, OPERAND: tl.constexpr,
    EXACT: tl.constexpr, HAS_LEAVING: tl.constexpr, HAS_INITIAL: tl.constexpr, FULL: tl.constexpr,
):  # fmt: skip
    """FULL: all gradients. Else only what each segment adds to the gradient of its entering state -> leaving."""
    program = tl.program_id(0)
    head = (program % H).to(tl.int64)
    index = (program // H).to(tl.int64)
    row, start, end, sequence, first, _last, tile = _segment(table, index)
    rows = tl.arange(0, TILE)
    columns = tl.arange(0, TILE)
    s = tl.arange(0, BS)
    d = tl.arange(0, BD)
    length = (end - start).to(tl.int32)
    count = (length + TILE - 1) // TILE
    q += row * q_b + start * q_t + head * q_h
    k += row * k_b + start * k_t + head * k_h
    beta += row * beta_b + start * beta_t + head * beta_h
    g += row * g_b + start * g_t + head * g_h
    do += row * do_b + start * do_t + head * do_h
    if FULL:
        v += row * v_b + start * v_t + head * v_h
        token = (row * tokens + start) * H + head
        dq += token * S
        dk += token * S
        dv += token * D
        dbeta += token
        dg += token
        tiles += (tile * H + head) * (S * D)
    tile_place = rows[:, None] * TILE + columns[None, :]
    turned_place = rows[:, None] + columns[None, :] * TILE
    inverses += (tile * H + head) * (TILE * TILE) + tile_place
    kept_scores += (tile * H + head) * (TILE * TILE)
    later = rows[:, None] > columns[None, :]
    earlier = rows[:, None] < columns[None, :]
    place = s[:, None] * D + d[None, :]
    inside = (s < S)[:, None] & (d < D)[None, :]
    leaving += (index * H + head) * (S * D)
    if HAS_LEAVING and FULL:
        grad = tl.load(leaving + place, mask=inside, other=0.0).to(tl.float32)
    else:
        grad = tl.zeros((BS, BD), tl.float32)
    for n in range(count):
        step = count - 1 - n
        tile_rows = tied(rows, step) + step * TILE
        live = tile_rows < length
        far_rows = tile_rows.to(tl.int64)
        keys = _load(k, far_rows, s, k_t, k_s, live, S, BS).to(OPERAND)
        queries = _load(q, far_rows, s, q_t, q_s, live, S, BS).to(OPERAND)
        grads = _load(do, far_rows, d, do_t, do_d, live, D, BD).to(OPERAND)
        strength = tl.load(beta + far_rows * beta_t, mask=live, other=0.0).to(tl.float32)
        gate = tl.load(g + far_rows * g_t, mask=live, other=0.0).to(tl.float32)
        ahead = far_rows - TILE
        prefetch(q, ahead, q_t, ahead >= 0)
        prefetch(k, ahead, k_t, ahead >= 0)
        prefetch(do, ahead, do_t, ahead >= 0)
        if FULL:
            prefetch(v, ahead, v_t, ahead >= 0)
        received = dot(keys, right_operand(grad, OPERAND), OPERAND)
        until, after, total = _edges(gate, rows, columns)
        inverse = tl.load(inverses + step.to(tl.int64) * H * (TILE * TILE)).to(tl.float32)
        turned_scores = tl.load(kept_scores + step.to(tl.int64) * H * (TILE * TILE) + turned_place)
        update_grad = dot(turned_scores, grads, OPERAND)
        update_grad += after[:, None] * received
        x = _product(tl.trans(inverse), update_grad, EXACT)
        error_grad = strength[:, None] * x
        if FULL:
            sums = tl.cumsum(gate, 0)
            between = _between(sums, rows, columns)
            difference = tl.minimum(sums[None, :] - sums[:, None], 0.0)
            turned_between = tl.where(later, 0.0, tl.exp2(difference * LOG2E))
            similar = dot(keys, tl.trans(keys), OPERAND)
            values = _load(v, far_rows, d, v_t, v_d, live, D, BD).to(tl.float32)
            state = tl.load(tiles + step.to(tl.int64) * (H * S * D) + place, mask=inside, other=0.0)
            turned_state = tl.trans(state)
            error = values - until[:, None] * dot(keys, state, OPERAND)
            update = _product(inverse, strength[:, None] * error, EXACT)
            score_grad = tl.where(earlier, 0.0, dot(grads, turned_operand(update, OPERAND), OPERAND))
            turned_score_grad = turned_between * dot(update, tl.trans(grads), OPERAND)
            crossed = tl.where(later, -between * dot(x, turned_operand(update, OPERAND), OPERAND), 0.0)
            turned_crossed = tl.where(earlier, -turned_between * dot(update, turned_operand(x, OPERAND), OPERAND), 0.0)
            mixed = strength[:, None] * crossed + strength[None, :] * turned_crossed
            read_state = dot(grads, turned_state, OPERAND)
            kept_state = dot(error_grad, turned_state, OPERAND)
            left_state = dot(update, turned_operand(grad, OPERAND), OPERAND)
            strength_grad = tl.sum(x * error, 1) + tl.sum(crossed * similar, 1)

            # Of each pair of rows, the flow across the gates between them: what row i reads of what row j wrote.
            scores = tl.load(kept_scores + step.to(tl.int64) * H * (TILE * TILE) + tile_place).to(tl.float32)
            flows = tl.where(later, score_grad * scores, 0.0) + strength[:, None] * crossed * similar
            wide_keys = keys.to(tl.float32)
            reads = tl.sum(queries.to(tl.float32) * read_state - wide_keys * kept_state, 1)
            writes = after * tl.sum(wide_keys * left_state, 1)
            # Pairs i >= t > j cross gate t.
            crossing = dot(tl.where(later, 0.0, 1.0), right_operand(flows, OPERAND), OPERAND)
            inner = tl.sum(tl.where(later, crossing, 0.0), 1)
            gate_grad = inner + tl.cumsum(until * reads, 0, reverse=True) + sum_before(writes, rows, columns)
            gate_grad += total * tl.sum(tl.sum(grad * state.to(tl.float32), 1), 0)
            # Last a product as wide as the state: the compiler shares out warps over all products after it.
            query_grad = until[:, None] * read_state + dot(between * score_grad, keys, OPERAND)
            key_grad = dot(turned_score_grad, queries, OPERAND) + after[:, None] * left_state
            key_grad += dot(mixed, keys, OPERAND) - until[:, None] * kept_state
            mask = live[:, None] & (s < S)[None, :]
            at_key = far_rows[:, None] * (H * S) + s[None, :]
            tl.store(dq + at_key, query_grad.to(dq.dtype.element_ty), mask=mask)
            tl.store(dk + at_key, key_grad.to(dk.dtype.element_ty), mask=mask)
            mask = live[:, None] & (d < D)[None, :]
            tl.store(dv + far_rows[:, None] * (H * D) + d[None, :], error_grad.to(dv.dtype.element_ty), mask=mask)
            tl.store(dbeta + far_rows * H, strength_grad.to(dbeta.dtype.element_ty), mask=live)
            tl.store(dg + far_rows * H, gate_grad.to(dg.dtype.element_ty), mask=live)
        read = tl.trans((queries.to(tl.float32) * until[:, None]).to(OPERAND))
        kept = tl.trans((keys.to(tl.float32) * until[:, None]).to(OPERAND))
        grad = grad * total + dot(read, grads, OPERAND) - dot(kept, right_operand(error_grad, OPERAND), OPERAND)
    if not FULL:
        tl.store(leaving + place, grad, mask=inside)
    if HAS_INITIAL and FULL:
        reached = tl.where(inside, first, 0) != 0
        tl.store(dinitial + (sequence * H + head) * (S * D) + place, grad, mask=reached)
