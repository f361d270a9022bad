r"""The gated delta rule: memory that overwrites what its key already holds.

Per head, with alpha_t = exp(log_alpha_t) in (0, 1] and a write strength beta_t::

    S_t = alpha_t (I - beta_t k_t k_t^T) S_{t-1} + beta_t k_t v_t^T        S in R^{K x D}
    o_t = S_t^T q_t

Shapes: q, k (B,T,H,K); v (B,T,H,D); beta, log_alpha (B,T,H); states (N,H,K,D).
Source: Yang et al., "Gated Delta Networks", arXiv 2412.06464, section 3.

Chunked form, with G the running sum of log_alpha inside a chunk and Gamma_ij = exp(G_i - G_j) <= 1 for i >= j::

    L_ij = beta_i Gamma_ij (k_i . k_j),  i > j          U = (I + L)^-1 (beta * (V - exp(G) * (K S_in)))
    O = exp(G) * (Q S_in) + (Gamma * (Q K^T)) U         S_out = exp(G_C) S_in + (exp(G_C - G) * K)^T U

The unit triangular system is solved by substitution: a Neumann product fails on correlated keys.
"""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor

from hymo.kernels.arguments import (
    check_chunk_size,
    check_cu_seqlens,
    check_shapes,
    check_state,
    initial,
    needs_gradient,
    working_dtype,
)
from hymo.kernels.chunking import chunk_layout
from hymo.kernels.dispatch import choose


def gated_delta(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor,
    log_alpha: Tensor,
    initial_state: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    output_final_state: bool = False,
    implementation: str = "auto",
    chunk_size: int = 64,
) -> tuple[Tensor, Tensor | None]:
    """Run the gated delta rule over whole sequences. Keys and queries come normalised and scaled.

    Args:
        q: queries (B, T, H, K), any floating dtype.
        k: keys (B, T, H, K), of norm <= 1 for a stable rule with beta < 2.
        v: values (B, T, H, D).
        beta: write strengths (B, T, H).
        log_alpha: log decays (B, T, H), <= 0.
        initial_state: (N, H, K, D), zeros if None; N is B, or the number of documents.
        cu_seqlens: int32 (N + 1,) document boundaries from 0 to T; needs B = 1. State restarts at each.
        output_final_state: whether to return the states after the last tokens.
        implementation: auto, recurrent (a time loop, the oracle), chunked (parallel over chunks) or triton (GPU).
        chunk_size: tokens per chunk of the chunked form; changes speed, not results.

    Returns:
        o (B, T, H, D) in the dtype of v, and the final states (N, H, K, D) in fp32 (fp64 for fp64 inputs) or None.

    Raises:
        UsageError: shapes that do not fit, bad boundaries, an unknown implementation.
    """
    check_shapes(v, {"q": q, "k": k}, {"beta": beta, "log_alpha": log_alpha})
    check_cu_seqlens(cu_seqlens, v.shape[0], v.shape[1])
    check_chunk_size(chunk_size)
    sequences = v.shape[0] if cu_seqlens is None else len(cu_seqlens) - 1
    stepwise = cu_seqlens is None and not needs_gradient(q, k, v, beta, log_alpha, initial_state)
    chosen = choose(implementation, v, k.shape[-1], stepwise)
    if chosen == "step":
        from hymo.kernels.triton_recurrence_step_op import recurrence_step  # only here: Triton is optional

        check_state(initial_state, sequences, v, k.shape[-1])
        o, final = recurrence_step(v, k, q, log_alpha, beta, None, initial_state)
        return o, final if output_final_state else None
    if chosen == "triton":
        from hymo.kernels.triton_gated_delta_op import gated_delta_triton  # only here: Triton is optional

        check_state(initial_state, sequences, v, k.shape[-1])
        o, final = gated_delta_triton(q, k, v, beta, log_alpha, initial_state, cu_seqlens)
        return o, final if output_final_state else None
    state = initial(initial_state, sequences, v, k.shape[-1])
    with torch.autocast(v.device.type, enabled=False):  # it would run the products in bf16
        if chosen == "recurrent":
            o, final = _recurrent(q, k, v, beta, log_alpha, state, cu_seqlens)
        else:
            o, final = _chunked(q, k, v, beta, log_alpha, state, cu_seqlens, chunk_size)
    return o, final if output_final_state else None


def _recurrent(
    q: Tensor, k: Tensor, v: Tensor, beta: Tensor, log_alpha: Tensor, state: Tensor, cu_seqlens: Tensor | None
) -> tuple[Tensor, Tensor]:
    if cu_seqlens is not None:
        outputs, finals = [], []
        for i, (start, end) in enumerate(pairwise(cu_seqlens.tolist())):
            q_i, k_i, v_i, beta_i, log_alpha_i = (x[:, start:end] for x in (q, k, v, beta, log_alpha))
            o, final = _recurrent(q_i, k_i, v_i, beta_i, log_alpha_i, state[i : i + 1], None)
            outputs.append(o)
            finals.append(final)
        return torch.cat(outputs, 1), torch.cat(finals)
    dtype = working_dtype(v)
    outputs = []
    for t in range(v.shape[1]):
        q_t, k_t, v_t = q[:, t].to(dtype), k[:, t].to(dtype), v[:, t].to(dtype)
        state = log_alpha[:, t, :, None, None].to(dtype).exp() * state
        error = v_t - torch.einsum("bhkd,bhk->bhd", state, k_t)
        state = state + k_t[..., None] * (beta[:, t, :, None].to(dtype) * error)[..., None, :]
        outputs.append(torch.einsum("bhkd,bhk->bhd", state, q_t))
    o = torch.stack(outputs, 1) if outputs else v
    return o.to(v.dtype), state


def _chunked(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor,
    log_alpha: Tensor,
    state: Tensor,
    cu_seqlens: Tensor | None,
    size: int,
) -> tuple[Tensor, Tensor]:
    dtype = working_dtype(v)
    layout = chunk_layout(v.shape[0], v.shape[1], cu_seqlens, size, v.device)
    qc, kc, vc = (layout.pack(x.flatten(0, 1).to(dtype)) for x in (q, k, v))  # (n, H, C, ·)
    bc, gc = (layout.pack(x.flatten(0, 1).to(dtype)) for x in (beta, log_alpha))  # (n, H, C)
    G = gc.cumsum(-1)
    # Sums of gates over exactly the rows they span, and no exponential of a row's distance to itself: gradients of
    # order 1 would meet there with both signs, and their rounding would drown those of gates that forget at once.
    after = F.pad(gc[..., 1:], (0, 1)).flip(-1).cumsum(-1).flip(-1)
    below = torch.ones(size, size, dtype=torch.bool, device=v.device).tril(-1)
    # The mask comes before exp: above the diagonal the exponent is positive and could overflow.
    gamma = (G[..., :, None] - G[..., None, :]).masked_fill(~below, -torch.inf).exp()
    lower = bc[..., None] * gamma * (kc @ kc.transpose(-1, -2))
    right = torch.cat((bc[..., None] * vc, (bc * G.exp())[..., None] * kc), -1)
    solved = torch.linalg.solve_triangular(lower, right, upper=False, unitriangular=True)
    values, keys = solved.split((v.shape[-1], k.shape[-1]), -1)  # U = values - keys @ S_in
    read = gamma * (qc @ kc.transpose(-1, -2)) + torch.diag_embed((qc * kc).sum(-1))
    write = (kc * after.exp()[..., None]).transpose(-1, -2)  # (n, H, K, C)
    decay = gc.sum(-1)[..., None, None].exp()
    put, erase = write @ values, write @ keys

    entering, final = layout.scan(state, lambda s, chunk: decay[chunk] * s + put[chunk] - erase[chunk] @ s)
    o = read @ values + (qc * G.exp()[..., None] - read @ keys) @ entering
    return layout.unpack(o).unflatten(0, v.shape[:2]).to(v.dtype), final
