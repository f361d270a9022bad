"""What a GDN block makes of its values ahead of the recurrence: keys, output gate and decay input.

    b = rope(b_proj(v))      c = rope(c_proj(v))      z = mean over D of sigmoid(g_proj(v))      dt = dt_proj(v)

The gradient of v by way of four products is one product of their gradients side by side with their weights one upon the
other, and those of the four weights are one product as well. On a GPU a kernel puts the gradients side by side as it
undoes rotation and gate. That saves four partial gradients of v in memory, and the pass that would add them up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from hymo.kernels.arguments import needs_gradient, working_dtype
from hymo.kernels.dispatch import choose_projections
from hymo.models.rope import Rotation, apply_rope

Projected = tuple[Tensor, Tensor, Tensor | None, Tensor]
"""b, c (B, T, H, S); gate (B, T, H) in fp32, or (B, T, H, D), or None; dt (B, T, H)."""
Weights = tuple[Tensor, Tensor, Tensor | None, Tensor]
"""Of b and c (H S, H D), of the gate (H D, H D) or None, and of the decay input (H, H D)."""


def project(
    v: Tensor, weights: Weights, heads: int, rotation: Rotation | None, pairing: str, mean: bool = True
) -> Projected:
    """Keys, gate and decay input of values.

    Args:
        v: (B, T, H D).
        weights: of b and c, of the gate (None for no gate), of the decay input.
        heads: H.
        rotation: of the keys by position, as for `apply_rope`; None leaves them.
        pairing: the pairs that rotate.
        mean: whether a head has one gate, the mean over its channels.
    """
    gated = weights[2] is not None and mean
    if gated and needs_gradient(v, *weights) and choose_projections(v, weights[0].shape[0] // heads) == "triton":
        cos, sin = rotation or (None, None)
        return _one_product_back(v, *weights, cos, sin, heads, pairing)
    return _forward(v, weights, heads, rotation, pairing, mean)[0]


def _forward(
    v: Tensor, weights: Weights, heads: int, rotation: Rotation | None, pairing: str, mean: bool
) -> tuple[Projected, Tensor]:
    """What `project` returns, and the gate's logits (B, T, H D); without a gate, any tensor."""
    b_weight, c_weight, g_weight, dt_weight = weights
    b, c = (F.linear(v, weight).unflatten(-1, (heads, -1)) for weight in (b_weight, c_weight))
    if rotation is not None:
        b, c = apply_rope(b, rotation, pairing), apply_rope(c, rotation, pairing)
    dt = F.linear(v, dt_weight)
    if g_weight is None:
        return (b, c, None, dt), v
    logits = F.linear(v, g_weight)
    gate: Tensor = torch.sigmoid(logits).unflatten(-1, (heads, -1))
    return (b, c, gate.mean(-1, dtype=working_dtype(v)) if mean else gate, dt), logits


class _OneProductBack(torch.autograd.Function):
    """`_forward` with its gradient as two matrix products."""

    @staticmethod
    def forward(
        ctx: Any,
        v: Tensor,
        b_weight: Tensor,
        c_weight: Tensor,
        g_weight: Tensor,
        dt_weight: Tensor,
        cos: Tensor | None,
        sin: Tensor | None,
        heads: int,
        pairing: str,
    ) -> Projected:
        rotation = None if cos is None or sin is None else (cos, sin)
        weights = b_weight, c_weight, g_weight, dt_weight
        projected, logits = _forward(v, weights, heads, rotation, pairing, True)
        ctx.save_for_backward(v, *weights, cos, sin, logits)
        ctx.pairing = pairing
        return projected

    @staticmethod
    def backward(ctx: Any, db: Tensor, dc: Tensor, dgate: Tensor, ddt: Tensor) -> tuple[Tensor | None, ...]:
        from hymo.kernels.triton_projections_op import projection_gradients  # only here: Triton is optional

        v, b_weight, c_weight, g_weight, dt_weight, cos, sin, logits = ctx.saved_tensors
        weights = b_weight, c_weight, g_weight, dt_weight
        rotation = None if cos is None else (cos, sin)
        side = projection_gradients(db, dc, dgate, logits, ddt, rotation, ctx.pairing != "interleaved")
        rows = [weight.shape[0] for weight in weights]
        zeros = b_weight.new_zeros(side.shape[1] - sum(rows), b_weight.shape[1])
        dv = (side @ torch.cat((*weights, zeros))).view_as(v)
        dweights = (side.T @ v.reshape(-1, v.shape[-1])).split([*rows, zeros.shape[0]])
        return dv, *dweights[:4], None, None, None, None


_one_product_back: Callable[..., Projected] = _OneProductBack.apply
