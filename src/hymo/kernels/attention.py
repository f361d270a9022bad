"""Causal attention inside documents."""

from __future__ import annotations

from itertools import pairwise

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
        cu_seqlens: int32 boundaries from 0 to T with B = 1; documents of equal length run as one batch.

    Returns:
        (B, T, Hq, dv).
    """
    if cu_seqlens is None:
        return _causal(q, k, v, scale)
    check_cu_seqlens(cu_seqlens, q.shape[0], q.shape[1])
    starts_by_length: dict[int, list[int]] = {}
    bounds = cu_seqlens.tolist()
    for start, end in pairwise(bounds):
        if end > start:
            starts_by_length.setdefault(end - start, []).append(start)
    places, outputs = [], []
    for length, starts in starts_by_length.items():
        place = (torch.tensor(starts)[:, None] + torch.arange(length)).to(q.device)
        places.append(place.flatten())
        outputs.append(_causal(q[0][place], k[0][place], v[0][place], scale).flatten(0, 1))
    order = torch.argsort(torch.cat(places))
    return torch.cat(outputs).index_select(0, order)[None]


def _causal(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    gqa = q.shape[1] != k.shape[1]
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale, enable_gqa=gqa).transpose(1, 2)
