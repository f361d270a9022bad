"""Which device a run uses, and what of its configuration that device cannot do."""

from __future__ import annotations

import os

import torch

from hymo.core.config import HyMoConfig
from hymo.core.errors import UsageError
from hymo.core.launch import launched_ranks, local_rank


def without_effect(config: HyMoConfig, device: torch.device, ranks: int = 1) -> dict[str, str]:
    """Fields of the training group that ask for more than this device does, each with the reason and what is done.

    The switches for CUDA devices are left out elsewhere: they are on in every preset, and say what they are for.
    """
    training, found = config.training, {}
    if training.param_dtype == "bfloat16" and not has_bf16(device):
        found["training.param_dtype"] = f"this {_NAMES[device.type]} has no bf16; computing in float32"
    if device.type != "cuda":
        return found
    if training.moe_mixed_precision and not has_bf16(device):
        found["training.moe_mixed_precision"] = "this GPU has no bf16; experts compute in float32"
    if training.cuda_graphs_mla and ranks > 1:
        found["training.cuda_graphs_mla"] = "weights are gathered inside the blocks; attention runs without graphs"
    elif training.cuda_graphs_mla and not training.torch_compile_gdn:
        found["training.cuda_graphs_mla"] = "training.torch_compile_gdn is off; attention runs without graphs"
    return found


_NAMES = {"cuda": "GPU", "mps": "Mac", "cpu": "CPU"}


def has_bf16(device: torch.device) -> bool:
    """Whether a device computes in bf16: NVIDIA from compute capability 8.0 on, Macs from macOS 14 on, any CPU."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return device.type != "mps" or torch.backends.mps.is_macos_or_newer(14, 0)


def compute_dtype(config: HyMoConfig, device: torch.device) -> torch.dtype:
    """What the forward and backward pass run in: `training.param_dtype`, or fp32 where a device lacks it."""
    dtype: torch.dtype = getattr(torch, config.training.param_dtype)
    return torch.float32 if dtype is torch.bfloat16 and not has_bf16(device) else dtype


def resolve_device(name: str) -> torch.device:
    """Turn `auto` into the fastest device present; refuse one that is not there. Ranks of a machine take one each.

    On a CPU the process flushes denormal numbers to zero from then on, in NumPy's and Python's arithmetic too.

    Raises:
        UsageError: the named device is missing.
    """
    present = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name == "auto":
        name = next(kind for kind in ("cuda", "mps", "cpu") if present[kind])
    if not present[name]:
        raise UsageError(f"run.device: no {name} device here. Use auto or cpu.")
    if name == "cuda":
        _let_memory_grow()
    elif name == "cpu":
        flush_denormals()
    if name != "cuda" or launched_ranks() == 1:
        return torch.device(name)
    if local_rank() >= torch.cuda.device_count():
        raise UsageError(
            f"run.device: rank {local_rank()} of this machine has no CUDA device of its own, there are "
            f"{torch.cuda.device_count()}. Start as many ranks."
        )
    return torch.device("cuda", local_rank())


def flush_denormals() -> None:
    """Numbers too small for a normal float become 0 on the CPU, in this thread and those that it starts from now on.

    Decays make many of them, and a product with one takes a hundred times as long. So call it before PyTorch's threads
    have work: those that are there keep their mode.
    """
    torch.set_flush_denormal(True)


def spare_the_host(device: torch.device) -> None:
    """One thread for PyTorch's work on the CPU where a CUDA device computes, unless OMP_NUM_THREADS says otherwise.

    So torchrun does for each rank. What is left for the host are small tables between launches, and threads that wait
    for each other on a busy machine make the device wait for seconds.
    """
    if device.type == "cuda" and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)


def _let_memory_grow() -> None:
    """Let PyTorch's allocator extend its blocks instead of taking new ones, unless the environment says otherwise.

    Buffers by the number of documents differ in every micro-batch. In fixed blocks they leave holes, and a device that
    is nearly full is then waited for while blocks are given back.
    """
    if not {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"} & os.environ.keys():
        torch._C._accelerator_setAllocatorSettings("expandable_segments:True")
