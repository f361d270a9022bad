"""Which implementation of a recurrence runs, and why."""

from __future__ import annotations

import importlib.util
import os
import warnings
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from hymo.core.errors import UsageError, nearest

IMPLEMENTATIONS = ("auto", "recurrent", "chunked", "triton")
SWITCH = "HYMO_KERNELS"
"""Environment variable that stands for `auto`: one of the implementations, for every recurrence."""
SHORT = 16
"""Longest sequence for which `auto` takes the plain loop: below it, chunking costs more than it saves."""
WIDEST = 128
"""Largest d_state and headdim of the Triton kernels."""
MOST_TAPS = 4
"""Longest filter of the Triton convolution: what its programs hold in registers."""


def choose(implementation: str, v: Tensor, d_state: int, stepwise: bool = False) -> str:
    """Resolve `auto` for values v (B, T, H, D) and keys of d_state; refuse an unknown name.

    `auto` is the loop for short sequences; for others the Triton kernels on a CUDA device, and chunked elsewhere. Where
    the kernels can't take an input on such a device, `auto` falls back to chunked and says why, once for each reason.
    Asked for by name, triton is an error where it can't run.

    stepwise: whether a short sequence may go to the kernel of a few tokens, "step", which knows neither gradients nor
    documents.
    """
    implementation, source = _wanted(implementation)
    _check_name(implementation, source, IMPLEMENTATIONS)
    if implementation == "triton" and (why := obstacle(v, d_state)):
        raise UsageError(f"{source}='triton': {why}. Use auto, recurrent or chunked.")
    if implementation != "auto":
        return implementation
    if v.shape[1] <= SHORT:
        return "step" if stepwise and v.device.type == "cuda" and not obstacle(v, d_state) else "recurrent"
    if v.device.type != "cuda":
        return "chunked"
    why = obstacle(v, d_state)
    if why and v.numel() and not torch.compiler.is_compiling():
        _fall_back(why)
    return "chunked" if why else "triton"


def choose_short_conv(implementation: str, u: Tensor, weight: Tensor, window: Tensor | None) -> str:
    """Resolve the implementation of `short_conv`, plain or triton, as `choose` does for the recurrences."""
    return _choose_kernel(implementation, u, conv_obstacle(u, weight, window), "short convolution")


def choose_output_gate(implementation: str, o: Tensor) -> str:
    """Resolve the implementation of `output_gate`, plain or triton, for outputs o (B, T, H, D)."""
    return _choose_kernel(implementation, o, gate_obstacle(o), "output gate")


def choose_projections(v: Tensor, d_state: int) -> str:
    """Resolve how a GDN block's projections of values v (B, T, H D) are made, plain or triton.

    Under autocast, which does not keep values and weights to one type, they are always plain, as without a gate of one
    value per head: there is no kernel to ask for.
    """
    if torch.is_autocast_enabled(v.device.type):
        return "plain"
    return _choose_kernel("auto", v, projections_obstacle(v, d_state), "projection of the values")


def choose_accumulate(x: Tensor) -> str:
    """Resolve how many tensors like x are added to their sums, plain or triton."""
    return _choose_kernel("auto", x, machine_obstacle(x.device), "sum of gradients")


def _choose_kernel(implementation: str, x: Tensor, why: str, operation: str) -> str:
    """Plain or triton for an operation on x that `why` keeps from its kernel."""
    implementation, source = _wanted(implementation)
    if source == SWITCH:
        _check_name(implementation, source, IMPLEMENTATIONS)
        implementation = implementation if implementation in ("auto", "triton") else "plain"
    _check_name(implementation, source, ("auto", "plain", "triton"))
    if implementation == "triton" and why:
        raise UsageError(f"{source}='triton': {why}. Use auto or plain.")
    if implementation != "auto":
        return implementation
    if x.device.type != "cuda":
        return "plain"
    if why and x.numel() and not torch.compiler.is_compiling():
        _fall_back(why, f"{operation} runs in its slower plain form", 5)
    return "plain" if why else "triton"


def conv_obstacle(u: Tensor, weight: Tensor, window: Tensor | None) -> str:
    """Why the Triton convolution can't take inputs u (B, T, C) and taps (C, K), or an empty string."""
    if why := machine_obstacle(u.device):
        return why
    if u.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        return f"the Triton convolution takes fp32, bf16 and fp16, not {u.dtype}"
    if weight.shape[1] > MOST_TAPS:
        return f"the Triton convolution takes up to {MOST_TAPS} taps, not {weight.shape[1]}"
    if window is not None and window.requires_grad and torch.is_grad_enabled():
        return "the Triton convolution has no gradient of the window"
    return "" if u.numel() else "there is nothing to compute"


def gate_obstacle(o: Tensor) -> str:
    """Why the Triton output gate can't take outputs o (B, T, H, D), or an empty string."""
    if why := machine_obstacle(o.device):
        return why
    if o.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        return f"the Triton output gate takes fp32, bf16 and fp16, not {o.dtype}"
    if o.shape[-1] > WIDEST:
        return f"the Triton output gate takes heads up to {WIDEST} wide, not {o.shape[-1]}"
    return "" if o.numel() else "there is nothing to compute"


def projections_obstacle(v: Tensor, d_state: int) -> str:
    """Why the Triton kernels can't make keys and gate of products of v (B, T, H D), or an empty string."""
    if why := machine_obstacle(v.device):
        return why
    if v.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        return f"the Triton projections take fp32, bf16 and fp16, not {v.dtype}"
    if d_state % 2:
        return f"the Triton projections take keys of pairs of states, not of {d_state}"
    return "" if v.numel() else "there is nothing to compute"


def _wanted(implementation: str) -> tuple[str, str]:
    """The implementation asked for, and by what: the argument, or for `auto` the environment."""
    if implementation == "auto" and SWITCH in os.environ:
        return os.environ[SWITCH], SWITCH
    return implementation, "implementation"


def _check_name(implementation: str, source: str, known: tuple[str, ...]) -> None:
    if implementation not in known:
        raise UsageError(
            f"{source}='{implementation}': unknown{nearest(implementation, known)}. Known: {', '.join(known)}."
        )


@lru_cache(maxsize=64)
def _fall_back(why: str, what: str = "recurrence runs in its slower chunked form", level: int = 4) -> None:
    """Warn of a fallback where the operation was called; cached, so once for each reason."""
    warnings.warn(f"the {what}: {why}", stacklevel=level)


def obstacle(v: Tensor, d_state: int) -> str:
    """Why the Triton kernels can't run values v (B, T, H, D) with keys of d_state, or an empty string."""
    if why := machine_obstacle(v.device):
        return why
    if v.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        return f"the Triton kernels take fp32, bf16 and fp16, not {v.dtype}"
    if max(d_state, v.shape[-1]) > WIDEST:
        return f"the Triton kernels hold states up to {WIDEST} x {WIDEST}, not {d_state} x {v.shape[-1]}"
    if max(d_state, v.shape[-1]) > 64 and v.device.type == "cuda":
        needed, available = 166 if v.dtype is torch.float32 else 144, shared_memory(v.device)
        if available < needed:
            state = f"{d_state} x {v.shape[-1]}"
            return f"states of {state} need {needed} KiB of shared memory in a block, this GPU has {available}"
    return "" if v.numel() else "there is nothing to compute"


def shared_memory(device: torch.device) -> int:
    """KiB of shared memory that a block may have on a CUDA device. A constant for `torch.compile`."""
    from triton.runtime import driver  # only here: Triton is optional

    index = torch.cuda.current_device() if device.index is None else device.index
    return int(driver.active.utils.get_device_properties(index)["max_shared_mem"]) // 1024


torch.compiler.assume_constant_result(shared_memory)


def machine_obstacle(device: torch.device) -> str:
    """Why no Triton kernel can run on this device, or an empty string. A constant for `torch.compile`."""
    return _machine_obstacle(device)


torch.compiler.assume_constant_result(machine_obstacle)


@lru_cache(maxsize=8)
def _machine_obstacle(device: torch.device) -> str:
    if importlib.util.find_spec("triton") is None:
        return "the package triton is not installed"
    if device.type != "cuda":
        interpreted = os.environ.get("TRITON_INTERPRET") == "1"
        return "" if interpreted and device.type == "cpu" else f"Triton kernels need a CUDA device, not {device.type}"
    if torch.version.hip is not None:
        return "the Triton kernels are not tested on AMD GPUs"
    capability = torch.cuda.get_device_capability(device)
    return "" if capability >= (8, 0) else f"they need compute capability 8.0, this GPU has {capability}"


class KernelChoice(NamedTuple):
    """What runs for one operation on this machine."""

    operation: str
    implementation: str
    reason: str


def kernel_report() -> list[KernelChoice]:
    """What `auto` takes for each operation of this package on this machine, and why."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    why = machine_obstacle(device) if device.type == "cuda" else "no CUDA device"
    fast = "" if why else f"triton runs on {torch.cuda.get_device_name()}"
    forced = os.environ.get(SWITCH, "auto")
    rows = []
    for operation in ("gated_linear", "gated_delta"):
        if forced != "auto":
            rows.append(KernelChoice(operation, forced, f"set by {SWITCH}"))
        else:
            rows.append(KernelChoice(operation, "chunked" if why else "triton", why or fast))
    plain = forced not in ("auto", "triton")
    reason = f"set by {SWITCH}" if plain else why or fast
    chosen = "plain" if why or plain else "triton"
    operations = ("short_conv", "output_gate", "projections", "accumulate")
    rows += [KernelChoice(operation, chosen, reason) for operation in operations]
    rows.append(KernelChoice("linear_cross_entropy", "chunked" if why else "triton", why or fast))
    return rows
