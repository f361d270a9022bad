"""What a GDN block makes of its values ahead of the recurrence: keys, output gate and decay input.

    b = rope(b_proj(v))      c = rope(c_proj(v))      z = mean over D of sigmoid(g_proj(v))      dt = dt_proj(v)

On a GPU one kernel turns the keys and forms the gate. The gradient of v by way of four products is then one product of
their gradients side by side with their weights one upon the other, and those of the four weights are one product as
well: no partial gradients of v lie in memory to be added up.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from hymo.kernels.arguments import working_dtype
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
    b_weight, c_weight, g_weight, dt_weight = weights
    if g_weight is not None and mean and choose_projections(v, b_weight.shape[0] // heads) == "triton":
        from hymo.kernels.triton_projections_op import projections_triton  # only here: Triton is optional

        return projections_triton(v, (b_weight, c_weight, g_weight, dt_weight), rotation, pairing != "interleaved")
    b, c = (F.linear(v, weight).unflatten(-1, (heads, -1)) for weight in (b_weight, c_weight))
    if rotation is not None:
        b, c = apply_rope(b, rotation, pairing), apply_rope(c, rotation, pairing)
    dt = F.linear(v, dt_weight)
    if g_weight is None:
        return b, c, None, dt
    gate: Tensor = torch.sigmoid(F.linear(v, g_weight)).unflatten(-1, (heads, -1))
    return b, c, gate.mean(-1, dtype=working_dtype(v)) if mean else gate, dt
