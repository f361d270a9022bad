"""From windows of tokens to inputs, targets and document boundaries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hymo.kernels.arguments import boundaries_on, check_cu_seqlens
from hymo.kernels.cross_entropy import IGNORE_INDEX


@dataclass(frozen=True, eq=False)
class Window:
    """Inputs and targets of one forward pass.

    No tuple: FSDP moves tensors in tuples to the device, and boundaries on the host are read without waiting for it.
    """

    inputs: Tensor
    """(B, T) int64."""
    targets: Tensor
    """(B, T) int64 next tokens, -100 where there is none."""
    cu_seqlens: Tensor | None
    """int32 boundaries over the B*T flattened inputs, or None for one sequence per row."""


def split_window(tokens: Tensor, cu_seqlens: Tensor | None = None) -> Window:
    """Cut windows (B, T+1) into inputs and next-token targets.

    `cu_seqlens` bounds documents over the B*(T+1) flattened tokens. A target in another document than its input is
    ignored; boundaries are moved to the flattened inputs, each row start among them.
    """
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    if cu_seqlens is None:
        return Window(inputs, targets, None)
    rows, width = tokens.shape
    check_cu_seqlens(cu_seqlens, 1, tokens.numel())
    starts = cu_seqlens[:-1].to("cpu", torch.int64)
    starts = starts[starts < tokens.numel()]  # empty documents at the end
    row, column = starts // width, starts % width
    first = torch.zeros(rows, width, dtype=torch.bool)
    first[row, column] = True
    targets = targets.masked_fill(first[:, 1:].to(tokens.device), IGNORE_INDEX)
    inside = first[:, :-1].clone()
    inside[:, 0] = True
    bounds = torch.cat((inside.flatten().nonzero().flatten(), torch.tensor([rows * (width - 1)])))
    return Window(inputs, targets, bounds.to(torch.int32))


def as_window(batch: Mapping[str, Any]) -> Window:
    """The window of a batch of one's own loader: `tokens` (B, T + 1) and optional `cu_seqlens`, NumPy arrays."""
    bounds = batch.get("cu_seqlens")
    return split_window(torch.from_numpy(batch["tokens"]), None if bounds is None else torch.from_numpy(bounds))


def ahead(window: Window, depth: int) -> Tensor:
    """(B, max(0, T - depth)) targets of the head that predicts token t + depth + 1 from position t.

    A target counts only if the tokens t + 1 .. t + depth, which the head was given, have targets before them and lie
    in the document of t.
    """
    targets, bounds = window.targets, window.cu_seqlens
    width = max(0, targets.shape[1] - depth)
    valid = torch.ones_like(targets[:, :width], dtype=torch.bool)
    if bounds is not None and depth:
        bounds = boundaries_on(bounds, targets.device).to(targets.device, torch.int64)
        first = torch.zeros(targets.numel() + 1, dtype=torch.bool, device=targets.device)
        first = first.index_fill_(0, bounds, True)[:-1].view_as(targets)
    for step in range(depth):
        valid &= targets[:, step : step + width] != IGNORE_INDEX
        if bounds is not None:
            valid &= ~first[:, step + 1 : step + 1 + width]
    return targets[:, depth:].masked_fill(~valid, IGNORE_INDEX)
