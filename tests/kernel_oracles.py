"""Slow numpy fp64 loops straight from the equations; they share no code with what they check."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def gated_linear_loop(
    v: Array, b: Array, c: Array, g: Array, rates: Array, state: Array | None = None
) -> tuple[Array, Array]:
    """H_t = diag(exp(-rates g_t)) H_{t-1} + b_t v_t^T; o_t = c_t^T H_t. rates = exp(A_log), states (B,H,S,D)."""
    batch, time, heads, width = v.shape
    states = b.shape[-1]
    out = np.zeros_like(v)
    final = np.zeros((batch, heads, states, width))
    for n in range(batch):
        for h in range(heads):
            memory = np.zeros((states, width)) if state is None else state[n, h].copy()
            for t in range(time):
                memory = np.diag(np.exp(-rates[h] * g[n, t, h])) @ memory + np.outer(b[n, t, h], v[n, t, h])
                out[n, t, h] = c[n, t, h] @ memory
            final[n, h] = memory
    return out, final


def gated_delta_loop(
    q: Array, k: Array, v: Array, beta: Array, log_alpha: Array, state: Array | None = None
) -> tuple[Array, Array]:
    """S_t = alpha_t (I - beta_t k_t k_t^T) S_{t-1} + beta_t k_t v_t^T; o_t = S_t^T q_t."""
    batch, time, heads, width = v.shape
    keys = k.shape[-1]
    out = np.zeros_like(v)
    final = np.zeros((batch, heads, keys, width))
    for n in range(batch):
        for h in range(heads):
            memory = np.zeros((keys, width)) if state is None else state[n, h].copy()
            for t in range(time):
                key, strength = k[n, t, h], beta[n, t, h]
                erase = np.eye(keys) - strength * np.outer(key, key)
                memory = np.exp(log_alpha[n, t, h]) * erase @ memory + strength * np.outer(key, v[n, t, h])
                out[n, t, h] = memory.T @ q[n, t, h]
            final[n, h] = memory
    return out, final


def per_document(loop: Any, streams: list[Array], extra: list[Array], bounds: list[int], state: Array | None) -> Any:
    """Run `loop` on every document by itself; outputs side by side, final states stacked."""
    outputs, finals = [], []
    for i, (start, end) in enumerate(itertools.pairwise(bounds)):
        first = None if state is None else state[i : i + 1]
        out, final = loop(*(x[:, start:end] for x in streams), *extra, first)
        outputs.append(out)
        finals.append(final)
    return np.concatenate(outputs, 1), np.concatenate(finals, 0)
