r"""Triton kernel of a few tokens at a time, as decoding reads them: both recurrences, state update and output in one launch.

A program holds the fp32 state of one head of one sequence and walks over the tokens, without chunks. On request it also
does what surrounds the recurrence in a GDN block, which would be a launch for every product and sum: rotation, keys of
norm 1, gates from projections, output norm, skip path and output gate. A token's result depends on no other row of the
batch, and on no later token, in no bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from hymo.kernels.triton_common import LOG2E, padded


@triton.jit
def _sigmoid(x):
    e = tl.exp2(-tl.abs(x) * LOG2E)
    return tl.where(x < 0, e, 1.0) / (1.0 + e)


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

    DELTA: b, c, g are k, q, log_alpha. BLOCK_PARTS: they, g and beta are projections yet; ROTATE: keys (1) or values (2);
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
                strength = _sigmoid(strength)
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
                decay_gate = _sigmoid(decay_gate + bias)
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
                opened = tl.where(value, _sigmoid(tl.load(gate + d, mask=value, other=0.0).to(tl.float32)), 0.0)
                if GATE == 1:
                    result = result * (tl.sum(opened, 0) / D)
                else:
                    result = result * opened
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


@dataclass(frozen=True)
class BlockParts:
    """What a GDN block does around its recurrence; tensors as the block has them."""

    dt_bias: Tensor
    """(H,)."""
    D_skip: Tensor
    """(H,)."""
    gate: Tensor | None
    """(B, T, H D): projection of the output gate, before its sigmoid."""
    gate_mean: bool
    """Whether the gate is averaged over a head."""
    norm_weight: Tensor | None
    """(D,): weight of the RMSNorm of a head's output."""
    eps: float
    """Of that norm."""
    rotation: tuple[Tensor, Tensor] | None
    """cos and sin, fp32, (B, T, 1, pairs)."""
    rotate_values: bool
    """Whether values rotate in place of keys."""
    interleaved: bool
    """Whether pairs are (2i, 2i + 1)."""
    tie: str
    """Whether states share their rate: "none", "pair" (the rotated ones) or "head"."""


_LIBRARY = "hymo::recurrence_step"
torch.library.define(
    _LIBRARY,
    "(Tensor v, Tensor b, Tensor c, Tensor g, Tensor? beta, Tensor? A_log, Tensor state, bool every)"
    " -> (Tensor, Tensor)",
)


def recurrence_step(
    v: Tensor,
    b: Tensor,
    c: Tensor,
    g: Tensor,
    beta: Tensor | None,
    A_log: Tensor | None,
    state: Tensor | None,
    every: bool = False,
) -> tuple[Tensor, Tensor]:
    """`gated_linear`, or with beta `gated_delta` of (k, q, log_alpha) as (b, c, g), over a few tokens, no gradients.

    Returns:
        o (B, T, H, D), and the state after the last token (B, H, S, D), or with `every` after each (B, T, H, S, D).
    """
    if state is None:
        state = v.new_zeros((v.shape[0], v.shape[2], b.shape[-1], v.shape[3]), dtype=torch.float32)
    o, after = torch.ops.hymo.recurrence_step(v, b, c, g, beta, A_log, state, every)
    return o, after


def block_step(
    v: Tensor,
    b: Tensor,
    c: Tensor,
    dt: Tensor,
    beta: Tensor | None,
    A_log: Tensor,
    state: Tensor,
    parts: BlockParts,
    counts: Tensor | None = None,
    every: bool = False,
    out: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The recurrence with all that a GDN block does around it: from projections to gated outputs, without gradients.

    Args:
        v: values (B, T, H, D).
        b: projections (B, T, H, S) of the write keys; c: of the read keys; dt, beta (B, T, H): of the gates.
        A_log: log decay rates (H, S), not averaged yet.
        state: fp32 (B, H, S, D).
        parts: everything else of the block.
        counts: (B,) valid tokens of each row; None is all. Others leave the state as it is.
        every: whether to return the state after every token.
        out: where to put the last state, fp32 (B, H, S, D); may be `state` itself. A new tensor if None.

    Returns:
        Gated outputs (B, T, H, D), and states as `recurrence_step`.
    """
    return _launch(v, b, c, dt, beta, A_log, state, every, parts, counts, out)


def _launch(
    v: Tensor,
    b: Tensor,
    c: Tensor,
    g: Tensor,
    beta: Tensor | None,
    A_log: Tensor | None,
    state: Tensor,
    every: bool,
    parts: BlockParts | None = None,
    counts: Tensor | None = None,
    out: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    batch, length, heads, width = v.shape
    d_state = b.shape[-1]
    v, b, c = (x if x.stride(-1) == 1 else x.contiguous() for x in (v, b, c))
    state = state.float().contiguous()
    shape = (batch, length, heads, d_state, width) if every else state.shape
    after = torch.empty(shape, dtype=torch.float32, device=v.device) if out is None else out
    assert after.is_contiguous() and after.shape == shape
    o = torch.empty(v.shape, dtype=v.dtype, device=v.device)
    spare = v
    rotation = gate = norm = None
    if parts is not None:
        norm, gate = parts.norm_weight, parts.gate if parts.gate is None else parts.gate.contiguous()
        if parts.rotation is not None:
            rotation = tuple(x.expand(batch, length, 1, -1) for x in parts.rotation)
    size = padded(d_state) * padded(width)
    step[(batch * heads,)](
        v, b, c, g,
        spare if beta is None else beta,
        spare if A_log is None else A_log.contiguous(),
        spare if parts is None else parts.dt_bias,
        spare if parts is None else parts.D_skip,
        spare if gate is None else gate,
        spare if norm is None else norm,
        spare if rotation is None else rotation[0],
        spare if rotation is None else rotation[1],
        spare if counts is None else counts,
        state, after, o, length, heads, 0.0 if parts is None else parts.eps,
        *v.stride()[:3], *b.stride()[:3], *c.stride()[:3], *g.stride(),
        *((0, 0, 0) if beta is None else beta.stride()),
        *((0, 0) if gate is None else gate.stride()[:2]),
        *((0, 0) if rotation is None else rotation[0].stride()[:2]),
        S=d_state, D=width, BS=padded(d_state), BD=padded(width),
        DELTA=beta is not None, BLOCK_PARTS=parts is not None,
        ROTATE=0 if parts is None or rotation is None else 2 if parts.rotate_values else 1,
        INTERLEAVED=parts is not None and parts.interleaved,
        TIE=0 if parts is None else ("none", "pair", "head").index("head" if beta is not None else parts.tie),
        NORM=norm is not None,
        GATE=0 if parts is None or gate is None else 1 if parts.gate_mean else 2,
        RAGGED=counts is not None, EVERY=every,
        num_warps=max(1, min(8, size // 1024)),
    )  # fmt: skip
    return o, after


def _forward(
    v: Tensor, b: Tensor, c: Tensor, g: Tensor, beta: Tensor | None, A_log: Tensor | None, state: Tensor, every: bool
) -> tuple[Tensor, Tensor]:
    return _launch(v, b, c, g, beta, A_log, state, every)


def _forward_fake(
    v: Tensor, b: Tensor, c: Tensor, g: Tensor, beta: Tensor | None, A_log: Tensor | None, state: Tensor, every: bool
) -> tuple[Tensor, Tensor]:
    shape = (*v.shape[:3], b.shape[-1], v.shape[3]) if every else state.shape
    return v.new_empty(v.shape), v.new_empty(shape, dtype=torch.float32)


torch.library.impl(_LIBRARY, ("CPU", "CUDA"), _forward)
torch.library.register_fake(_LIBRARY, _forward_fake)
