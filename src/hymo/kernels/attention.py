"""Causal attention inside documents."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from itertools import groupby, pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.bias import causal_lower_right
from torch.nn.attention.varlen import varlen_attn

from hymo.kernels.arguments import check_cu_seqlens
from hymo.kernels.cudnn_attention import cudnn_obstacle, cudnn_refusal, packed_attention_cudnn

_FASTEST_FIRST = (
    SDPBackend.CUDNN_ATTENTION,
    SDPBackend.FLASH_ATTENTION,
    SDPBackend.EFFICIENT_ATTENTION,
    SDPBackend.MATH,
)


def document_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float,
    cu_seqlens: Tensor | None = None,
    bounds: Sequence[int] | None = None,
    longest: int | None = None,
) -> Tensor:
    """Grouped causal attention that never crosses a document boundary.

    Args:
        q: queries (B, T, Hq, d).
        k: keys (B, T, Hkv, d); query head i reads group i // (Hq // Hkv).
        v: values (B, T, Hkv, dv).
        scale: factor on the scores.
        cu_seqlens: int32 boundaries from 0 to T with B = 1.
        bounds: the same numbers on the host, for the form without a flash kernel; without them they are read from
            `cu_seqlens`, and a device is waited for.
        longest: no document is longer than this; T if None.

    Returns:
        (B, T, Hq, dv).

    On a GPU in half precision all documents are one call: of cuDNN's ragged kernel where `cudnn_obstacle` names
    nothing, else of flash attention. Elsewhere neighbouring documents of equal length are one batch of
    `scaled_dot_product_attention`.
    """
    if cu_seqlens is None:
        return _causal(q, k, v, scale)
    check_cu_seqlens(cu_seqlens, q.shape[0], q.shape[1])
    if one_call(q.device, q.dtype, max(q.shape[-1], v.shape[-1])):
        bound = q.shape[1] if longest is None else longest
        return _packed(q[0], k[0], v[0], scale, cu_seqlens.to(q.device, torch.int32), bound)[None]
    outputs = []
    for start, length, count in _runs(cu_seqlens.tolist() if bounds is None else bounds):
        q_run, k_run, v_run = (x[0, start : start + count * length].unflatten(0, (count, length)) for x in (q, k, v))
        outputs.append(_causal(q_run, k_run, v_run, scale).flatten(0, 1))
    return torch.cat(outputs)[None]


def one_call(device: torch.device, dtype: torch.dtype, width: int) -> bool:
    """Whether all documents are one call for heads so wide; elsewhere the host loops over their lengths."""
    return device.type == "cuda" and dtype in (torch.bfloat16, torch.float16) and width <= 256


def _cudnn_obstacle(device: torch.device, dtype: torch.dtype, heads: tuple[int, int], widths: tuple[int, int]) -> str:
    """Why flash attention runs instead, or an empty string. A constant for `torch.compile`."""
    return cudnn_obstacle(device) or cudnn_refusal(device, dtype, heads, widths)


torch.compiler.assume_constant_result(_cudnn_obstacle)


def aligned_attention(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    """Grouped causal attention of the last tokens of a sequence.

    Args:
        q: queries (B, T, Hq, d) of the last T of N tokens.
        k: keys (B, N, Hkv, d); query head i reads group i // (Hq // Hkv).
        v: values (B, N, Hkv, dv).
        scale: factor on the scores.

    Returns:
        (B, T, Hq, dv).
    """
    new, total = q.shape[1], k.shape[1]
    if new == total:
        with sdpa_kernel(list(_FASTEST_FIRST), set_priority=True):
            return _causal(q, k, v, scale)
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    bias = causal_lower_right(new, total)
    return F.scaled_dot_product_attention(q, k, v, bias, scale=scale, enable_gqa=q.shape[1] != k.shape[1]).transpose(
        1, 2
    )


def _runs(bounds: Sequence[int]) -> list[tuple[int, int, int]]:
    """Neighbouring documents of equal length as (start, length, count): each run is one batch without any copy."""
    lengths = [end - start for start, end in pairwise(bounds) if end > start]
    runs, start = [], 0
    for length, group in groupby(lengths):
        count = len(list(group))
        runs.append((start, length, count))
        start += length * count
    return runs


def _packed(q: Tensor, k: Tensor, v: Tensor, scale: float, cu_seqlens: Tensor, longest: int) -> Tensor:
    """Causal attention of all documents, (tokens, heads, width) each."""
    heads, widths = (q.shape[1], v.shape[1]), (q.shape[2], v.shape[2])
    if max(widths) <= 128 and not _cudnn_obstacle(q.device, q.dtype, heads, widths):
        # Values are a slice of a product: copied once here, not in each pass of the operation.
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        return packed_attention_cudnn(q, k, v, cu_seqlens, longest, scale)[0]
    known = inspect.signature(varlen_attn).parameters  # torch 2.11 to 2.13 differ
    options: dict[str, Any] = {"window_size": (-1, 0)} if "window_size" in known else {"is_causal": True}
    if "scale" in known:
        options["scale"] = scale
    else:
        q = q * (scale * q.shape[-1] ** 0.5)
    if "enable_gqa" in known:
        options["enable_gqa"] = q.shape[1] != k.shape[1]
    else:
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    packed: Any = varlen_attn(q, k, v, cu_seqlens, cu_seqlens, longest, longest, **options)
    out: Tensor = packed
    return out


def _causal(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    gqa = q.shape[1] != k.shape[1]
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale, enable_gqa=gqa).transpose(1, 2)
