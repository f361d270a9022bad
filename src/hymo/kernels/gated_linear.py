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

from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from hymo.core.errors import UsageError
from hymo.kernels.arguments import (
    check_chunk_size,
    check_cu_seqlens,
    check_shapes,
    check_state,
    initial,
    needs_gradient,
    working_dtype,
)
from hymo.kernels.chunking import ChunkLayout, chunk_layout, decay_
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
        implementation: auto, recurrent (a time loop, the oracle), chunked (parallel over chunks) or triton (GPU).
        chunk_size: tokens per chunk of the chunked form; changes speed, not results.

    Returns:
        o (B, T, H, D) in the dtype of v, and the final states (N, H, S, D) in fp32 (fp64 for fp64 inputs) or None.

    Raises:
        UsageError: shapes that do not fit, bad boundaries, an unknown implementation.
    """
    check_shapes(v, {"b": b, "c": c}, {"g": g})
    if A_log.shape != (v.shape[2], b.shape[-1]):
        raise UsageError(f"A_log: expected (heads, d_state) = ({v.shape[2]}, {b.shape[-1]}), got {tuple(A_log.shape)}")
    check_chunk_size(chunk_size)
    check_cu_seqlens(cu_seqlens, v.shape[0], v.shape[1])
    sequences = v.shape[0] if cu_seqlens is None else len(cu_seqlens) - 1
    stepwise = cu_seqlens is None and not needs_gradient(v, b, c, g, A_log, initial_state)
    chosen = choose(implementation, v, b.shape[-1], stepwise)
    if chosen == "step":
        from hymo.kernels.triton_recurrence_step_op import recurrence_step  # only here: Triton is optional

        check_state(initial_state, sequences, v, b.shape[-1])
        o, final = recurrence_step(v, b, c, g, None, A_log, initial_state)
        return o, final if output_final_state else None
    if chosen == "triton":
        from hymo.kernels.triton_gated_linear_op import gated_linear_triton  # only here: Triton is optional

        check_state(initial_state, sequences, v, b.shape[-1])
        o, final = gated_linear_triton(v, b, c, g, A_log, initial_state, cu_seqlens)
        return o, final if output_final_state else None
    state = initial(initial_state, sequences, v, b.shape[-1])
    with torch.autocast(v.device.type, enabled=False):  # it would run the products in bf16
        if chosen == "recurrent":
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


class _Chunked(torch.autograd.Function):
    """The chunked form with its gradient written out: half the work of differentiating every level.

    With Gamma = -rate G, P = dO V^T and D the gradient of the state that leaves a chunk, the keys' gradients have a
    part through states, dC = exp(Gamma) (dO H^T) and dB = exp(Gamma_C - Gamma) (V D^T), and a part inside the chunk
    over the same levels as the forward pass. The log decay of token t collects what flows across it: reads at i >= t
    of what was written before t, by way of c dC - b dB.
    """

    @staticmethod
    def forward(
        ctx: Any,
        v: Tensor,
        b: Tensor,
        c: Tensor,
        g: Tensor,
        A_log: Tensor,
        state: Tensor,
        cu_seqlens: Tensor | None,
        size: int,
    ) -> tuple[Tensor, Tensor]:
        dtype = working_dtype(v)
        layout = chunk_layout(v.shape[0], v.shape[1], cu_seqlens, size, v.device)
        vc, bc, cc = (layout.pack(x.flatten(0, 1).to(dtype)).contiguous() for x in (v, b, c))  # (n, H, C, .)
        gates = layout.pack(g.flatten(0, 1).to(dtype))  # (n, H, C)
        # Differences of the running sum are what counts: in fp32 it would lose slow steps beside fast ones.
        G = gates.to(torch.float64 if gates.device.type != "mps" else dtype).cumsum(-1)
        rate = -A_log.to(dtype).exp()[:, None, :]  # (H, 1, S), negative

        factors = []
        scores = torch.diag_embed((cc * bc).sum(-1))
        for reference, mask in _levels(size):
            distance = (G - G.index_select(-1, reference.to(G.device))).abs().to(dtype)
            factor = decay_(rate * distance[..., None])  # (n, H, C, S), <= 1
            factors.append(factor)
            pairs = (cc * factor) @ (bc * factor).transpose(-1, -2)
            scores.addcmul_(pairs, mask.to(pairs))

        total = G[..., -1:]
        after, G, total = (total - G).to(dtype), G.to(dtype), total.to(dtype)
        into, out_of = decay_(rate * G[..., None]), decay_(rate * after[..., None])  # (n, H, C, S)
        write = (bc * out_of).transpose(-1, -2) @ vc  # (n, H, S, D)
        decay = decay_(rate * total[..., None]).transpose(-1, -2)  # (n, H, S, 1)
        entering, final = layout.scan(state, lambda h, chunk: torch.addcmul(write[chunk], decay[chunk], h))
        o = torch.matmul(scores, vc).add_((cc * into) @ entering)
        ctx.save_for_backward(vc, bc, cc, gates, rate, scores, into, out_of, decay, entering, *factors)
        ctx.layout, ctx.dtypes, ctx.shape = layout, [x.dtype for x in (v, b, c, g, A_log)], v.shape[:2]
        return layout.unpack(o).unflatten(0, v.shape[:2]).to(v.dtype), final

    @staticmethod
    def backward(ctx: Any, do: Tensor, dfinal: Tensor) -> tuple[Tensor | None, ...]:
        vc, bc, cc, gates, rate, scores, into, out_of, decay, entering, *factors = ctx.saved_tensors
        layout: ChunkLayout = ctx.layout
        doc = layout.pack(do.flatten(0, 1).to(vc.dtype)).contiguous()
        read = (cc * into).transpose(-1, -2) @ doc  # (n, H, S, D)
        leaving, dstate = layout.reverse_scan(
            dfinal.to(vc.dtype), lambda d, chunk: torch.addcmul(read[chunk], decay[chunk], d)
        )

        P = doc @ vc.transpose(-1, -2)
        dv = (scores.transpose(-1, -2) @ doc).add_((bc * out_of) @ leaving)
        dc_state = into * (doc @ entering.transpose(-1, -2))
        db_state = out_of * (vc @ leaving.transpose(-1, -2))
        dc_inside, db_inside = torch.zeros_like(cc), torch.zeros_like(bc)
        for (_, mask), factor in zip(_levels(layout.size), factors, strict=True):
            masked = P * mask.to(P)
            dc_inside.addcmul_(factor, masked @ (bc * factor))
            db_inside.addcmul_(factor, masked.transpose(-1, -2) @ (cc * factor))

        # The diagonal of P crosses no decay: it joins the keys' gradients only after the gates' are formed.
        x = cc * (dc_state + dc_inside) - bc * db_inside
        y = bc * db_state
        w = (decay * leaving * entering).sum(-1)  # (n, H, S)
        by_rate = rate.squeeze(1)  # (H, S)
        # What flows across each token, state by state: formed from gates, not from their running sums, whose rounding
        # would drown the rates' gradient where slow and fast steps meet.
        before = F.pad(y[..., :-1, :], (0, 0, 1, 0)).cumsum(-2)  # no cumsum less y: the last row's y can dwarf the rest
        across = x.flip(-2).cumsum(-2).flip(-2) + before + w[..., None, :]
        dg = torch.einsum("nhcs,hs->nhc", across, by_rate)
        drate = torch.einsum("nhcs,nhc->hs", across, gates)
        diagonal = torch.diagonal(P, dim1=-2, dim2=-1)[..., None]
        dc = dc_state.add_(dc_inside).addcmul_(diagonal, bc)
        db = db_state.add_(db_inside).addcmul_(diagonal, cc)
        tokens = (layout.unpack(grad).unflatten(0, ctx.shape) for grad in (dv, db, dc, dg))
        grads = [grad.to(dtype) for grad, dtype in zip((*tokens, drate * by_rate), ctx.dtypes, strict=True)]
        return (*grads, dstate, None, None)


_chunked: Callable[..., tuple[Tensor, Tensor]] = _Chunked.apply
