"""Triton kernels of a mixture of experts in a decoding pass: shapes that do not depend on the routing.

Of few tokens each copy is a program's own (BY_COPY); of many, an expert takes all tokens and keeps those that chose it:
it reads its weights once, which is what takes the time. Copies of a token are numbered token * (k + 1) + j, the shared
expert's last.
"""

from __future__ import annotations

import triton
import triton.language as tl

from hymo.kernels.triton_step import product


@triton.jit
def route(
    x, norm, router, bias, h, chosen, weights, SCALE,
    DIM: tl.constexpr, E: tl.constexpr, TOP: tl.constexpr, BE: tl.constexpr, BX: tl.constexpr, BK: tl.constexpr,
    EPS: tl.constexpr, SOFTMAX: tl.constexpr,
):  # fmt: skip
    """h = norm(x) (tokens, DIM); the TOP experts of each token (tokens, TOP) and their weights."""
    token = tl.program_id(0).to(tl.int64)
    full = tl.arange(0, BX)
    line = tl.load(x + token * DIM + full, mask=full < DIM, other=0.0).to(tl.float32)
    factor = tl.rsqrt(tl.sum(line * line, 0) / DIM + EPS)
    e = tl.arange(0, BE)
    scores = tl.zeros((BE,), tl.float32)
    for start in tl.static_range(0, DIM, BK):
        k = start + tl.arange(0, BK)
        piece = tl.load(x + token * DIM + k, mask=k < DIM, other=0.0).to(tl.float32) * factor
        piece *= tl.load(norm + k, mask=k < DIM, other=0.0).to(tl.float32)
        rounded = piece.to(h.dtype.element_ty)
        tl.store(h + token * DIM + k, rounded, mask=k < DIM)
        part = tl.load(router + e[:, None] * DIM + k[None, :], mask=(e < E)[:, None] & (k < DIM)[None, :], other=0.0)
        scores += tl.sum(part * rounded.to(tl.float32)[None, :], 1)
    if SOFTMAX:
        scores = tl.where(e < E, scores, -float("inf"))
        scores = tl.exp(scores - tl.max(scores, 0))
        scores = scores / tl.sum(scores, 0)
    else:
        scores = tl.sigmoid(scores)
    order = tl.where(e < E, scores + tl.load(bias + e, mask=e < E, other=0.0), -float("inf"))
    total = 0.0
    for j in tl.static_range(TOP):
        best = tl.argmax(order, 0)
        own = tl.sum(tl.where(e == best, scores, 0.0), 0)
        total += own
        order = tl.where(e == best, -float("inf"), order)
        tl.store(chosen + token * TOP + j, best)
        tl.store(weights + token * TOP + j, own)
    tl.debug_barrier()
    for j in tl.static_range(TOP):
        own = tl.load(weights + token * TOP + j)
        tl.debug_barrier()
        tl.store(weights + token * TOP + j, own / (total + 1e-20) * SCALE)


@triton.jit
def _copies(chosen, place, M, E: tl.constexpr, TOP: tl.constexpr, BM: tl.constexpr, BY_COPY: tl.constexpr):
    """The expert of a program and, of each of its tokens, the copy that goes there, or -1."""
    if BY_COPY:
        m = place // (TOP + 1) + tl.zeros((BM,), tl.int32)
        j = place % (TOP + 1)
        expert = tl.load(chosen + (place // (TOP + 1)) * TOP + j, mask=j < TOP, other=E)
        copy = tl.where(tl.arange(0, BM) == 0, place, -1)
    else:
        m = tl.program_id(2) * BM + tl.arange(0, BM)
        expert = place
        copy = tl.full((BM,), -1, tl.int32)
        for j in tl.static_range(TOP):
            theirs = tl.load(chosen + m * TOP + j, mask=m < M, other=-1)
            copy = tl.where(theirs == expert, m * (TOP + 1) + j, copy)
        copy = tl.where((expert == E) & (m < M), m * (TOP + 1) + TOP, copy)
    return m, expert, copy


@triton.jit
def up(
    h, w1, w3, s1, s3, chosen, out, M,
    DIM: tl.constexpr, HIDDEN: tl.constexpr, E: tl.constexpr, TOP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    BK: tl.constexpr, BY_COPY: tl.constexpr, OPERAND: tl.constexpr,
):  # fmt: skip
    """silu(w1 h) * w3 h of every copy (copies, HIDDEN)."""
    m, expert, copy = _copies(chosen, tl.program_id(1), M, E, TOP, BM, BY_COPY)
    if tl.max(copy, 0) >= 0:
        n = tl.program_id(0) * BN + tl.arange(0, BN)
        if expert < E:
            first = w1 + expert.to(tl.int64) * (HIDDEN * DIM)
            second = w3 + expert.to(tl.int64) * (HIDDEN * DIM)
        else:
            first = s1 + expert.to(tl.int64) * 0
            second = s3 + expert.to(tl.int64) * 0
        live = copy >= 0
        a = product(h, DIM, h, first, m, live, n, HIDDEN, DIM, 0.0, False, BM, BN, BK, OPERAND)
        b = product(h, DIM, h, second, m, live, n, HIDDEN, DIM, 0.0, False, BM, BN, BK, OPERAND)
        result = a * tl.sigmoid(a) * b
        mask = live[:, None] & (n < HIDDEN)[None, :]
        tl.store(out + copy[:, None] * HIDDEN + n[None, :], result.to(out.dtype.element_ty), mask=mask)


@triton.jit
def down(
    h, w2, s2, chosen, out, M,
    DIM: tl.constexpr, HIDDEN: tl.constexpr, E: tl.constexpr, TOP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    BK: tl.constexpr, BY_COPY: tl.constexpr, OPERAND: tl.constexpr,
):  # fmt: skip
    """w2 h of every copy (copies, DIM)."""
    _m, expert, copy = _copies(chosen, tl.program_id(1), M, E, TOP, BM, BY_COPY)
    if tl.max(copy, 0) >= 0:
        n = tl.program_id(0) * BN + tl.arange(0, BN)
        if expert < E:  # noqa: SIM108 - a choice at run time
            w = w2 + expert.to(tl.int64) * (HIDDEN * DIM)
        else:
            w = s2 + expert.to(tl.int64) * 0
        live = copy >= 0
        total = product(h, HIDDEN, h, w, copy, live, n, DIM, HIDDEN, 0.0, False, BM, BN, BK, OPERAND)
        mask = live[:, None] & (n < DIM)[None, :]
        tl.store(out + copy[:, None] * DIM + n[None, :], total.to(out.dtype.element_ty), mask=mask)


@triton.jit
def join(x, y, weights, SIZE, DIM: tl.constexpr, TOP: tl.constexpr, SHARED: tl.constexpr, BLOCK: tl.constexpr):
    """x += the weighted outputs of a token's experts, and the shared one's."""
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = place < SIZE
    token = place // DIM
    column = place % DIM
    total = tl.load(x + place, mask=mask, other=0.0).to(tl.float32)
    for j in tl.static_range(TOP):
        part = tl.load(y + (token * (TOP + 1) + j) * DIM + column, mask=mask, other=0.0).to(tl.float32)
        total += part * tl.load(weights + token * TOP + j, mask=mask, other=0.0)
    if SHARED:
        total += tl.load(y + (token * (TOP + 1) + TOP) * DIM + column, mask=mask, other=0.0).to(tl.float32)
    tl.store(x + place, total.to(x.dtype.element_ty), mask=mask)
