r"""Gated linear attention with a rank-1 log decay, the recurrence of HyMo v1.0.

Per head, with a_s = exp(A_log_s) > 0 and a gate g_t >= 0::

    H_t = diag(exp(-a * g_t)) H_{t-1} + b_t v_t^T        H in R^{S x D}
    o_t = H_t^T c_t

Shapes: v (B,T,H,D); b, c (B,T,H,S); g (B,T,H); A_log (H,S); states (N,H,S,D), N sequences.

The chunked form needs D_ij = exp(-a (G_i - G_j)) for i >= j, with G the running sum of g inside the chunk. Splitting
it as exp(-a G_i) exp(a G_j) overflows. Instead every pair (i, j) is covered once, at the level m = 1, 2, 4, ... where i
lies in the right and j in the left of two sibling blocks of m rows. With R = G at the last row of the left sibling,
D_ij = exp(-a (G_i - R)) exp(-a (R - G_j)): both exponents are <= 0, so nothing overflows, and what underflows is
negligible.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise

import torch
from torch import Tensor

from hymo.kernels.arguments import check_cu_seqlens, check_shapes, initial, working_dtype
from hymo.kernels.chunking import chunk_layout
from hymo.kernels.dispatch import choose


def gated_linear(
    v: Tensor,
    b: Tensor,
    c: Tensor,
    g: Tensor,
    A_log: Tensor,
    initial_state: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    output_final_state: bool = False,
    implementation: str = "auto",
    chunk_size: int = 64,
) -> tuple[Tensor, Tensor | None]:
    """Run the recurrence over whole sequences.

    Args:
        v: values (B, T, H, D), any floating dtype.
        b: write keys (B, T, H, S).
        c: read keys (B, T, H, S).
        g: decay gates (B, T, H), >= 0.
        A_log: log decay rates (H, S).
        initial_state: (N, H, S, D), zeros if None; N is B, or the number of documents.
        cu_seqlens: int32 (N + 1,) document boundaries from 0 to T; needs B = 1. State restarts at each.
        output_final_state: whether to return the states after the last tokens.
        implementation: auto, recurrent (a time loop, the oracle) or chunked (parallel over chunks).
        chunk_size: tokens per chunk; changes speed, not results.

    Returns:
        o (B, T, H, D) in the dtype of v, and the final states (N, H, S, D) in fp32 (fp64 for fp64 inputs) or None.

    Raises:
        UsageError: shapes that do not fit, bad boundaries, an unknown implementation.
    """
    check_shapes(v, {"b": b, "c": c}, {"g": g})
    check_cu_seqlens(cu_seqlens, v.shape[0], v.shape[1])
    sequences = v.shape[0] if cu_seqlens is None else len(cu_seqlens) - 1
    state = initial(initial_state, sequences, v, b.shape[-1])
    if choose(implementation, v.shape[1]) == "recurrent":
        o, final = _recurrent(v, b, c, g, A_log, state, cu_seqlens)
    else:
        o, final = _chunked(v, b, c, g, A_log, state, cu_seqlens, chunk_size)
    return o, final if output_final_state else None


def _recurrent(
    v: Tensor, b: Tensor, c: Tensor, g: Tensor, A_log: Tensor, state: Tensor, cu_seqlens: Tensor | None
) -> tuple[Tensor, Tensor]:
    if cu_seqlens is not None:
        outputs, finals = [], []
        for i, (start, end) in enumerate(pairwise(cu_seqlens.tolist())):
            span = slice(start, end)
            o, final = _recurrent(v[:, span], b[:, span], c[:, span], g[:, span], A_log, state[i : i + 1], None)
            outputs.append(o)
            finals.append(final)
        return torch.cat(outputs, 1), torch.cat(finals)
    dtype = working_dtype(v)
    rate = A_log.to(dtype).exp()
    outputs = []
    for t in range(v.shape[1]):
        v_t, b_t, c_t = v[:, t].to(dtype), b[:, t].to(dtype), c[:, t].to(dtype)
        decay = torch.exp(-rate * g[:, t, :, None].to(dtype))
        state = decay[..., None] * state + b_t[..., None] * v_t[..., None, :]
        outputs.append(torch.einsum("bhsd,bhs->bhd", state, c_t))
    o = torch.stack(outputs, 1) if outputs else v
    return o.to(v.dtype), state


@lru_cache(maxsize=8)
def _levels(size: int) -> tuple[tuple[Tensor, Tensor], ...]:
    """For each level: the reference row of every row (size,), and the mask (size, size) of the pairs that it covers."""
    row = torch.arange(size)
    levels = []
    m = size // 2
    while m:
        pair = row // (2 * m)
        right = row % (2 * m) >= m
        mask = (pair[:, None] == pair[None, :]) & right[:, None] & ~right[None, :]
        levels.append((pair * 2 * m + m - 1, mask))
        m //= 2
    return tuple(levels)


def _chunked(
    v: Tensor, b: Tensor, c: Tensor, g: Tensor, A_log: Tensor, state: Tensor, cu_seqlens: Tensor | None, size: int
) -> tuple[Tensor, Tensor]:
    dtype = working_dtype(v)
    layout = chunk_layout(v.shape[0], v.shape[1], cu_seqlens, size, v.device)
    vc, bc, cc = (layout.pack(x.flatten(0, 1).to(dtype)) for x in (v, b, c))  # (n, H, C, ·)
    G = layout.pack(g.flatten(0, 1).to(dtype)).cumsum(-1)  # (n, H, C)
    rate = -A_log.to(dtype).exp()[:, None, :]  # (H, 1, S)

    scores = torch.diag_embed((cc * bc).sum(-1))
    for reference, mask in _levels(size):
        distance = (G - G.index_select(-1, reference.to(G.device))).abs()
        factor = torch.exp(rate * distance[..., None])  # (n, H, C, S), <= 1
        pairs = (cc * factor) @ (bc * factor).transpose(-1, -2)
        scores = scores + pairs * mask.to(pairs)

    total = G[..., -1:]
    write = (bc * torch.exp(rate * (total - G)[..., None])).transpose(-1, -2) @ vc  # (n, H, S, D)
    decay = torch.exp(rate * total[..., None]).transpose(-1, -2)  # (n, H, S, 1)
    entering, final = layout.scan(state, lambda h, chunk: decay[chunk] * h + write[chunk])
    o = scores @ vc + (cc * torch.exp(rate * G[..., None])) @ entering
    return layout.unpack(o).unflatten(0, v.shape[:2]).to(v.dtype), final
