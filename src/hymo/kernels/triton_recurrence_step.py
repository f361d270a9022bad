r"""Triton kernel of a few tokens, as decoding reads them: state update and output of both recurrences in one launch.

A program holds the fp32 state of one head of one sequence and walks over the tokens, without chunks. On request it also
does what surrounds the recurrence in a GDN block, which would be a launch for every product and sum: rotation, keys of
norm 1, gates from projections, output norm, skip path and output gate. A token's result depends on no other row of the
batch, and on no later token, in no bit.
"""

from __future__ import annotations

import triton
import triton.language as tl

from hymo.kernels.triton_common import LOG2E, sigmoid


@triton.jit
def _softplus(x):
    """log(1 + e^x) without a positive exponent; a short series where 1 + e would round to 1."""
    e = tl.exp2(-tl.abs(x) * LOG2E)
    return tl.maximum(x, 0.0) + tl.where(e < 1e-3, e * (1.0 - 0.5 * e), tl.log(1.0 + e))


@triton.jit
def _partner(i, WIDTH: tl.constexpr, INTERLEAVED: tl.constexpr):
    """The dimension that rotates with dimension i, the number of the pair, and whether i is its first."""
    if INTERLEAVED:
        return i ^ 1, i // 2, i % 2 == 0
    return tl.where(i < WIDTH // 2, i + WIDTH // 2, i - WIDTH // 2), i % (WIDTH // 2), i < WIDTH // 2


@triton.jit
def _turned(base, i, cos, sin, live, WIDTH: tl.constexpr, INTERLEAVED: tl.constexpr):
    """A vector from memory, rotated by the angles of its token."""
    other, pair, first = _partner(i, WIDTH, INTERLEAVED)
    x = tl.load(base + i, mask=live, other=0.0).to(tl.float32)
    y = tl.load(base + other, mask=live, other=0.0).to(tl.float32)
    turn = tl.load(sin + pair, mask=live, other=0.0)
    return x * tl.load(cos + pair, mask=live, other=0.0) + tl.where(first, -y, y) * turn


@triton.jit
def step(
    v, b, c, g, beta, A_log, dt_bias, D_skip, gate, norm_weight, cos, sin, counts, state, after, o, T, H, eps,
    v_b, v_t, v_h, b_b, b_t, b_h, c_b, c_t, c_h, g_b, g_t, g_h, beta_b, beta_t, beta_h, gate_b, gate_t, cos_b, cos_t,
    S: tl.constexpr, D: tl.constexpr, BS: tl.constexpr, BD: tl.constexpr,
    DELTA: tl.constexpr, BLOCK_PARTS: tl.constexpr, ROTATE: tl.constexpr, INTERLEAVED: tl.constexpr,
    TIE: tl.constexpr, NORM: tl.constexpr, GATE: tl.constexpr, RAGGED: tl.constexpr, EVERY: tl.constexpr,
):  # fmt: skip
    """Outputs, and the state after the last token, or (EVERY) after each.

    DELTA: b, c, g are k, q, log_alpha. BLOCK_PARTS: they, g and beta are projections yet. ROTATE: keys (1), values (2).
    TIE: a rate is the mean over a rotated pair (1) or over the head (2); GATE: mean (1) or per channel (2).
    """
    head = (tl.program_id(0) % H).to(tl.int64)
    row = (tl.program_id(0) // H).to(tl.int64)
    s = tl.arange(0, BS)
    d = tl.arange(0, BD)
    key = s < S
    value = d < D
    inside = key[:, None] & value[None, :]
    place = s[:, None] * D + d[None, :]
    memory = tl.load(state + (row * H + head) * (S * D) + place, mask=inside, other=0.0)
    v += row * v_b + head * v_h
    b += row * b_b + head * b_h
    c += row * c_b + head * c_h
    g += row * g_b + head * g_h
    o += (row * T * H + head) * D
    after += (row * H + head) * (S * D)
    if EVERY:
        after += (row * (T - 1)) * H * (S * D)
    if DELTA:
        beta += row * beta_b + head * beta_h
    if BLOCK_PARTS:
        cos += row * cos_b
        sin += row * cos_b
        gate += row * gate_b + head * D
        skip = tl.load(D_skip + head).to(tl.float32)
        bias = tl.load(dt_bias + head).to(tl.float32)
    if BLOCK_PARTS or not DELTA:
        rate = tl.load(A_log + head * S + s, mask=key, other=0.0).to(tl.float32)
        if TIE == 1:
            other, _pair, _first = _partner(s, S, INTERLEAVED)
            rate = 0.5 * (rate + tl.load(A_log + head * S + other, mask=key, other=0.0).to(tl.float32))
        if TIE == 2:
            rate = tl.where(key, tl.sum(tl.where(key, rate, 0.0), 0) / S, 0.0)
        rate = -tl.exp(rate)
    many = T
    if RAGGED:
        many = tl.load(counts + row).to(tl.int32)
    for t in range(T):
        plain = tl.load(v + d, mask=value, other=0.0).to(tl.float32)
        values = plain
        decay_gate = tl.load(g).to(tl.float32)
        if BLOCK_PARTS and ROTATE == 1:
            writes = _turned(b, s, cos, sin, key, S, INTERLEAVED)
            reads = _turned(c, s, cos, sin, key, S, INTERLEAVED)
        else:
            writes = tl.load(b + s, mask=key, other=0.0).to(tl.float32)
            reads = tl.load(c + s, mask=key, other=0.0).to(tl.float32)
        if BLOCK_PARTS and ROTATE == 2:
            values = _turned(v, d, cos, sin, value, D, INTERLEAVED)
        if DELTA:
            strength = tl.load(beta).to(tl.float32)
            if BLOCK_PARTS:
                strength = sigmoid(strength)
                decay = tl.exp(rate * _softplus(decay_gate + bias))[:, None]
                writes = writes * tl.rsqrt(tl.sum(writes * writes, 0) + 1e-6)
                reads = reads * (tl.rsqrt(tl.sum(reads * reads, 0) + 1e-6) * S**-0.5)
            else:
                decay = tl.exp(decay_gate)
            next_memory = memory * decay
            error = values - tl.sum(next_memory * writes[:, None], 0)
            next_memory += writes[:, None] * (strength * error)[None, :]
        else:
            if BLOCK_PARTS:
                decay_gate = sigmoid(decay_gate + bias)
            next_memory = memory * tl.exp(rate * decay_gate)[:, None] + writes[:, None] * values[None, :]
        if RAGGED:
            next_memory = tl.where(t < many, next_memory, memory)
        memory = next_memory
        result = tl.sum(memory * reads[:, None], 0)
        if BLOCK_PARTS:
            if NORM:
                weight = tl.load(norm_weight + d, mask=value, other=0.0).to(tl.float32)
                result = result * tl.rsqrt(tl.sum(result * result, 0) / D + eps) * weight
            result += skip * plain
            if GATE != 0:
                opened = tl.where(value, sigmoid(tl.load(gate + d, mask=value, other=0.0).to(tl.float32)), 0.0)
                result = result * (tl.sum(opened, 0) / D if GATE == 1 else opened)
            cos += cos_t
            sin += cos_t
            gate += gate_t
        tl.store(o + d, result.to(o.dtype.element_ty), mask=value)
        if EVERY:
            tl.store(after + place, memory, mask=inside)
            after += H * (S * D)
        v += v_t
        b += b_t
        c += c_t
        g += g_t
        if DELTA:
            beta += beta_t
        o += H * D
    if not EVERY:
        tl.store(after + place, memory, mask=inside)
