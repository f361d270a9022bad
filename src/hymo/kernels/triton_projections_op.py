"""The gradients of a GDN block's projections side by side: the launch as a custom operator, and shapes for tracing."""

from __future__ import annotations

import torch
import triton
from torch import Tensor

from hymo.kernels import triton_projections as kernels

COLUMNS, ELEMENTS = 256, 2048
"""Channels of a program in whole heads, and the elements that it holds: 16 for each thread of its four warps."""
ALIGNMENT = 64
"""Rows are padded to a multiple of so many columns: 128 bytes in 16 bits, what the matrix units' loads like best."""

_LIBRARY = "hymo::projection_gradients"
torch.library.define(
    _LIBRARY,
    "(Tensor db, Tensor dc, Tensor dgate, Tensor logits, Tensor ddt, Tensor? cos, Tensor? sin, bool split) -> Tensor",
)


def projection_gradients(
    db: Tensor,
    dc: Tensor,
    dgate: Tensor,
    logits: Tensor,
    ddt: Tensor,
    rotation: tuple[Tensor, Tensor] | None,
    split: bool,
) -> Tensor:
    """Rows [db | dc | dG | ddt | zeros] of the gradients of the products, padded to a multiple of 64 columns.

    Args:
        db, dc: gradients of the rotated keys (B, T, H, S), S even.
        dgate: of the mean of sigmoid(logits) over a head's channels (B, T, H).
        logits: (B, T, H D).
        ddt: gradient of the decay input (B, T, H).
        rotation: cos and sin of the angles, (B or 1, T, 1, S/2) or (T, 1, S/2); None for keys as they are.
        split: pairs are (i, i + S/2), else (2i, 2i + 1).

    Returns:
        (B T, columns) in the dtype of the logits.
    """
    cos, sin = rotation or (None, None)
    out: Tensor = torch.ops.hymo.projection_gradients(db, dc, dgate, logits, ddt, cos, sin, split)
    return out


def _columns(db: Tensor, logits: Tensor) -> int:
    used = 2 * db.shape[2] * db.shape[3] + logits.shape[-1] + db.shape[2]
    return -(-used // ALIGNMENT) * ALIGNMENT


def _launch(
    db: Tensor,
    dc: Tensor,
    dgate: Tensor,
    logits: Tensor,
    ddt: Tensor,
    cos: Tensor | None,
    sin: Tensor | None,
    split: bool,
) -> Tensor:
    batch, time, heads, states = db.shape
    width, columns = logits.shape[-1] // heads, _columns(db, logits)
    out = logits.new_empty((batch * time, columns))
    half, block = states // 2, int(triton.next_power_of_2(width))
    block_half = int(triton.next_power_of_2(half))
    group = min(max(1, COLUMNS // max(block, 2 * block_half)), int(triton.next_power_of_2(heads)))
    tokens = max(1, ELEMENTS // (group * max(block, 2 * block_half)))
    rest = int(triton.next_power_of_2(columns - 2 * heads * states - heads * width))
    period = 1 if cos is None else cos.numel() // half
    kernels.gradients_side_by_side[(triton.cdiv(batch * time, tokens), 3 * triton.cdiv(heads, group) + 1)](
        db.contiguous(), dc.contiguous(), dgate.contiguous(), logits.contiguous(), ddt.contiguous(),
        out if cos is None else cos.contiguous(), out if sin is None else sin.contiguous(), out, batch * time, period,
        heads, columns, HALF=half, WIDTH=width, TOKENS=tokens, GROUP=group, BLOCK_HALF=block_half, BLOCK=block,
        REST=rest, ROTATES=cos is not None, SPLIT=split, num_warps=4,
    )  # fmt: skip
    return out


def _fake(
    db: Tensor,
    dc: Tensor,
    dgate: Tensor,
    logits: Tensor,
    ddt: Tensor,
    cos: Tensor | None,
    sin: Tensor | None,
    split: bool,
) -> Tensor:
    return logits.new_empty((db.shape[0] * db.shape[1], _columns(db, logits)))


torch.library.impl(_LIBRARY, ("CPU", "CUDA"), _launch)
torch.library.register_fake(_LIBRARY, _fake)
