"""The Triton kernel of a few tokens as functions: the recurrences alone, and a whole GDN block between projections."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hymo.kernels import triton_recurrence_step as kernels
from hymo.kernels.triton_common import padded


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
    assert after.is_contiguous()
    assert after.shape == shape
    o = torch.empty(v.shape, dtype=v.dtype, device=v.device)
    spare = v
    rotation = gate = norm = None
    if parts is not None:
        norm, gate = parts.norm_weight, parts.gate if parts.gate is None else parts.gate.contiguous()
        if parts.rotation is not None:
            rotation = tuple(x.expand(batch, length, 1, -1) for x in parts.rotation)
    size = padded(d_state) * padded(width)
    kernels.step[(batch * heads,)](
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
