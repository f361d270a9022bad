"""The Triton form of a GDN block's projections as a custom operator: launches, shapes for tracing, and the gradient."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
import triton
from torch import Tensor

from hymo.kernels import triton_projections as kernels

COLUMNS, ELEMENTS = 256, 1024
"""Channels of a program in whole heads, and the elements that it holds: 8 for each thread of its four warps."""
ALIGNMENT = 64
"""Rows of gradients are padded to a multiple of so many columns: 128 bytes in 16 bits."""

_LIBRARY = "hymo::projections"
torch.library.define(
    _LIBRARY,
    "(Tensor v, Tensor b_weight, Tensor c_weight, Tensor g_weight, Tensor dt_weight, Tensor? cos, Tensor? sin,"
    " bool split) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
)
torch.library.define(
    _LIBRARY + "_backward",
    "(Tensor db, Tensor dc, Tensor dgate, Tensor ddt, Tensor logits, Tensor? cos, Tensor? sin, bool split) -> Tensor",
)


def projections_triton(
    v: Tensor, weights: tuple[Tensor, Tensor, Tensor, Tensor], rotation: tuple[Tensor, Tensor] | None, split: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Rotated keys b and c (B, T, H, S), gate (B, T, H) in fp32, and decay input (B, T, H).

    Args:
        v: (B, T, H D).
        weights: of b and c (H S, H D), S even, of the gate (H D, H D) and of the decay input (H, H D).
        rotation: cos and sin of the angles, (B or 1, T, 1, S/2) or (T, 1, S/2); None for keys as they are.
        split: pairs are (i, i + S/2), else (2i, 2i + 1).
    """
    b, c, gate, dt, _logits = torch.ops.hymo.projections(v, *weights, *(rotation or (None, None)), split)
    return b, c, gate, dt


def _shape(heads: int, states: int, width: int) -> dict[str, Any]:
    block, half = int(triton.next_power_of_2(width)), states // 2
    block_half = int(triton.next_power_of_2(half))
    widest = max(block, 2 * block_half)
    group = min(max(1, COLUMNS // widest), int(triton.next_power_of_2(heads)))
    tokens = max(1, ELEMENTS // (group * widest))
    blocks = {"TOKENS": tokens, "GROUP": group, "BLOCK_HALF": block_half, "BLOCK": block}
    return {"HALF": half, "WIDTH": width, **blocks, "num_warps": 4}


def _columns(db: Tensor, logits: Tensor) -> int:
    used = 2 * db.shape[2] * db.shape[3] + logits.shape[-1] + db.shape[2]
    return -(-used // ALIGNMENT) * ALIGNMENT


def _forward(
    v: Tensor,
    b_weight: Tensor,
    c_weight: Tensor,
    g_weight: Tensor,
    dt_weight: Tensor,
    cos: Tensor | None,
    sin: Tensor | None,
    split: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    heads = dt_weight.shape[0]
    b, c, logits, dt = (F.linear(v, weight) for weight in (b_weight, c_weight, g_weight, dt_weight))
    b, c = b.unflatten(-1, (heads, -1)), c.unflatten(-1, (heads, -1))
    gate = v.new_empty((*v.shape[:2], heads), dtype=torch.float32)
    constants = _shape(heads, b.shape[-1], v.shape[-1] // heads)
    tokens, blocks = v.shape[0] * v.shape[1], triton.cdiv(heads, constants["GROUP"])
    kernels.keys_and_gate[(triton.cdiv(tokens, constants["TOKENS"]), blocks if cos is None else 3 * blocks)](
        b, c, logits, gate if cos is None else cos.contiguous(), gate if sin is None else sin.contiguous(), gate,
        tokens, 1 if cos is None else cos.numel() // constants["HALF"], heads, SPLIT=split, **constants,
    )  # fmt: skip
    return b, c, gate, dt, logits


def _backward(
    db: Tensor,
    dc: Tensor,
    dgate: Tensor,
    ddt: Tensor,
    logits: Tensor,
    cos: Tensor | None,
    sin: Tensor | None,
    split: bool,
) -> Tensor:
    """Rows [db | dc | dG | ddt | zeros] of the gradients of the products."""
    batch, time, heads, states = db.shape
    width, columns = logits.shape[-1] // heads, _columns(db, logits)
    out = logits.new_empty((batch * time, columns))
    constants = _shape(heads, states, width)
    grid = triton.cdiv(batch * time, constants["TOKENS"]), 3 * triton.cdiv(heads, constants["GROUP"]) + 1
    kernels.gradients_side_by_side[grid](
        db.contiguous(), dc.contiguous(), dgate.contiguous(), logits.contiguous(), ddt.contiguous(),
        out if cos is None else cos.contiguous(), out if sin is None else sin.contiguous(), out, batch * time,
        1 if cos is None else cos.numel() // constants["HALF"], heads, columns, ROTATES=cos is not None, SPLIT=split,
        REST=int(triton.next_power_of_2(columns - 2 * heads * states - heads * width)), **constants,
    )  # fmt: skip
    return out


def _forward_fake(
    v: Tensor, b_weight: Tensor, c_weight: Tensor, g_weight: Tensor, dt_weight: Tensor, *_rest: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    tokens, heads = v.shape[:2], dt_weight.shape[0]
    return (
        v.new_empty((*tokens, heads, b_weight.shape[0] // heads)),
        v.new_empty((*tokens, heads, c_weight.shape[0] // heads)),
        v.new_empty((*tokens, heads), dtype=torch.float32),
        v.new_empty((*tokens, heads)),
        v.new_empty((*tokens, g_weight.shape[0])),
    )


def _backward_fake(db: Tensor, _dc: Tensor, _dgate: Tensor, _ddt: Tensor, logits: Tensor, *_rest: Any) -> Tensor:
    return logits.new_empty((db.shape[0] * db.shape[1], _columns(db, logits)))


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.set_materialize_grads(False)  # nobody has a gradient of the logits
    ctx.save_for_backward(*inputs[:7], output[4])
    ctx.split = inputs[7]


def _gradient(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
    """One product for v, of gradients side by side and weights one upon the other, and one for the weights."""
    v, *weights, cos, sin, logits = ctx.saved_tensors
    rows = [weight.shape[0] for weight in weights]
    keys, scalars = (*v.shape[:2], rows[3], rows[0] // rows[3]), (*v.shape[:2], rows[3])
    db, dc, dgate, ddt = (
        v.new_zeros(shape) if grad is None else grad
        for grad, shape in zip(grads[:4], (keys, keys, scalars, scalars), strict=True)
    )
    side = torch.ops.hymo.projections_backward(db, dc, dgate, ddt, logits, cos, sin, ctx.split)
    rows.append(side.shape[1] - sum(rows))
    zeros = weights[0].new_zeros((rows[-1], v.shape[-1]))
    dv = (side @ torch.cat((*weights, zeros))).view_as(v)
    dweights = (side.T @ v.reshape(-1, v.shape[-1])).split(rows)
    return dv, *dweights[:4], None, None, None


torch.library.impl(_LIBRARY, ("CPU", "CUDA"), _forward)
torch.library.impl(_LIBRARY + "_backward", ("CPU", "CUDA"), _backward)
torch.library.register_fake(_LIBRARY, _forward_fake)
torch.library.register_fake(_LIBRARY + "_backward", _backward_fake)
torch.library.register_autograd(_LIBRARY, _gradient, setup_context=_setup)
