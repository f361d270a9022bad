"""Causal attention inside documents."""

from __future__ import annotations

from itertools import groupby, pairwise

import torch
import torch.nn.functional as F
from torch import Tensor

from hymo.kernels.arguments import check_cu_seqlens


def document_attention(q: Tensor, k: Tensor, v: Tensor, scale: float, cu_seqlens: Tensor | None = None) -> Tensor:
    """Grouped causal attention that never crosses a document boundary.

    Args:
        q: queries (B, T, Hq, d).
        k: keys (B, T, Hkv, d); query head i reads group i // (Hq // Hkv).
        v: values (B, T, Hkv, dv).
        scale: factor on the scores.
        cu_seqlens: int32 boundaries from 0 to T with B = 1.

    Returns:
        (B, T, Hq, dv).
    """
    if cu_seqlens is None:
        return _causal(q, k, v, scale)
    check_cu_seqlens(cu_seqlens, q.shape[0], q.shape[1])
    outputs = []
    for start, length, count in _runs(cu_seqlens.tolist()):
        q_run, k_run, v_run = (x[0, start : start + count * length].unflatten(0, (count, length)) for x in (q, k, v))
        outputs.append(_causal(q_run, k_run, v_run, scale).flatten(0, 1))
    return torch.cat(outputs)[None]


def _runs(bounds: list[int]) -> list[tuple[int, int, int]]:
    """Neighbouring documents of equal length as (start, length, count): each run is one batch without any copy."""
    lengths = [end - start for start, end in pairwise(bounds) if end > start]
    runs, start = [], 0
    for length, group in groupby(lengths):
        count = len(list(group))
        runs.append((start, length, count))
        start += length * count
    return runs


def _causal(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    gqa = q.shape[1] != k.shape[1]
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale, enable_gqa=gqa).transpose(1, 2)
