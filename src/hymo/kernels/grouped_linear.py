"""One matrix product per group of rows: the experts of a mixture."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from hymo.core.errors import UsageError


def grouped_linear(x: Tensor, weight: Tensor, counts: Tensor, implementation: str = "auto") -> Tensor:
    """Multiply each group of rows by its own matrix.

    Args:
        x: rows (N, in), sorted by group.
        weight: one matrix per group (E, out, in).
        counts: int (E,) rows of each group, summing to N.
        implementation: auto, loop (the oracle, any dtype) or grouped (`torch.nn.functional.grouped_mm`).

    Returns:
        (N, out). Groups without rows get a gradient of exact zeros.
    """
    if implementation == "auto":
        implementation = "grouped" if x.is_cuda and x.dtype is torch.bfloat16 else "loop"
    if implementation == "grouped":
        ends = counts.cumsum(0).to(torch.int32)
        out: Tensor = F.grouped_mm(x, weight.transpose(-1, -2), offs=ends)
        return out
    if implementation != "loop":
        raise UsageError(f"implementation='{implementation}': unknown. Known: auto, loop, grouped.")
    parts = x.split(counts.tolist())
    return torch.cat([F.linear(part, weight[e]) for e, part in enumerate(parts)])
