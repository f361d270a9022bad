"""Inputs of the recurrences for tests, and the way into Triton's interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import torch
from torch import Tensor

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
"""Whether this process interprets kernels, which must be chosen before Triton is imported."""


def run_interpreted(file: str) -> None:
    """Run a test file again in a process that interprets kernels: nothing may fail or be skipped there."""
    env = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", file]
    root = Path(__file__).parents[1]
    run = subprocess.run(command, check=False, env=env, capture_output=True, text=True, cwd=root)
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-2000:]
    assert "skipped" not in run.stdout


def linear_inputs(
    batch: int, time: int, heads: int, states: int, width: int, rates: str = "spread", seed: int = 0
) -> dict[str, Tensor]:
    """fp64 inputs; decays per step from 0.999999 to e^-40 in the mixed case."""
    rng = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=rng, dtype=torch.float64)

    g = torch.rand((batch, time, heads), generator=rng, dtype=torch.float64)
    rate = torch.logspace(-6, 1.602, heads * states, dtype=torch.float64).view(heads, states)
    if rates == "slow":
        g, rate = torch.ones_like(g), torch.full_like(rate, 1e-6)
    elif rates == "fast":
        g, rate = torch.ones_like(g), torch.full_like(rate, 40.0)
    elif rates == "alternating":
        g = (torch.arange(time) % 2).double()[None, :, None].expand_as(g).clone()
        rate = torch.full_like(rate, 40.0)
    keys = (batch, time, heads, states)
    v, b, c = normal(batch, time, heads, width), normal(*keys), normal(*keys)
    return {"v": v, "b": b, "c": c, "g": g, "A_log": rate.log()}


def delta_inputs(
    batch: int, time: int, heads: int, states: int, width: int, case: str = "mixed", seed: int = 0
) -> dict[str, Tensor]:
    """fp64 inputs with keys of norm 1."""
    rng = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=rng, dtype=torch.float64)

    keys, gates = (batch, time, heads, states), (batch, time, heads)
    q, k, v = normal(*keys), normal(*keys), normal(batch, time, heads, width)
    beta, log_alpha = (torch.rand(gates, generator=rng, dtype=torch.float64) for _ in range(2))
    if case == "correlated":
        k, beta, log_alpha = k[:, :1] + 0.05 * k, 1.9 * beta, 1e-6 * log_alpha
    elif case == "equal":
        k, beta, log_alpha = k[:, :1].expand_as(k), torch.ones_like(beta), torch.zeros_like(log_alpha)
    elif case == "fast":
        log_alpha = torch.full_like(log_alpha, 40.0)
    elif case == "alternating":
        log_alpha = (40.0 * (torch.arange(time) % 2)).double()[None, :, None].expand_as(log_alpha)
    k = k / k.norm(dim=-1, keepdim=True)
    return {"q": q * states**-0.5, "k": k, "v": v, "beta": beta, "log_alpha": -log_alpha}


def relative(got: Tensor, want: Tensor) -> float:
    return float((got.double() - want).norm() / want.norm().clamp(min=1e-30))
