"""What this machine has for HyMo, which fast paths are on, and why the others are not."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import sys
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F

from hymo.core.version import VERSION
from hymo.kernels.cudnn_attention import cudnn_obstacle
from hymo.kernels.dispatch import kernel_report, machine_obstacle
from hymo.training.device import has_bf16

EXTRAS = (
    ("zstandard", "zstandard", "reading .zst files in `hymo data prepare`"),
    ("pyarrow", "pyarrow", "reading .parquet files in `hymo data prepare`, and writing them in `hymo data export`"),
    ("datatrove", "datatrove", "preparation on datatrove's executors, local, Slurm or Ray"),
    ("tokenizers", "tokenizers", "`hymo tokenizer train`; not needed to use a trained tokenizer"),
    ("datasets", "datasets", "corpora from the Hugging Face hub; data sets of tasks"),
    ("lm_eval", "lm-eval", "`hymo eval` with tasks, suites and hf: models"),
    ("transformers", "transformers", "`hymo export` and `hymo import`"),
    ("cudnn", "nvidia-cudnn-frontend", "the extra `cuda`: packed attention by cuDNN on Hopper GPUs and newer"),
    ("starlette", "starlette", "`hymo serve`, with uvicorn and prometheus-client"),
    ("tensorboard", "tensorboard", "TensorBoard as a sink of metrics (run.track)"),
    ("trackio", "trackio", "Trackio as a sink of metrics (run.track)"),
    ("wandb", "wandb", "Weights & Biases as a sink of metrics (run.track)"),
)
"""Module, distribution, and what it enables."""


@dataclass(frozen=True)
class FastPath:
    """One way to run faster than the plain PyTorch operations on a CPU."""

    name: str
    on: bool
    reason: str
    """Why it is off, or what it runs with."""


@dataclass(frozen=True)
class Extra:
    """An optional package."""

    name: str
    version: str | None
    """None if it is not installed."""
    enables: str


@dataclass(frozen=True)
class Diagnosis:
    """Everything `hymo doctor` says."""

    versions: dict[str, str]
    devices: list[str]
    threads: dict[str, int]
    fast_paths: list[FastPath]
    extras: list[Extra]

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)


def diagnose() -> Diagnosis:
    """Look at this process and machine. Nothing is downloaded, compiled or written."""
    return Diagnosis(
        versions={
            "hymo": VERSION,
            "python": sys.version.split()[0],
            "torch": torch.__version__,
            "triton": version_of("triton") or "not installed",
            "numpy": version_of("numpy") or "not installed",
            "cuda": torch.version.cuda or "none in this build of torch",
            "platform": platform.platform(),
        },
        devices=_devices(),
        threads={
            "cpus": os.cpu_count() or 1,
            "torch": torch.get_num_threads(),
            "interop": torch.get_num_interop_threads(),
        },
        fast_paths=[
            *triton_kernels(),
            compilation(),
            cuda_graphs(),
            packed_attention(),
            bfloat16(),
            grouped_mm(),
            ranks(),
        ],
        extras=[
            Extra(name, version_of(name) if importlib.util.find_spec(module) else None, enables)
            for module, name, enables in EXTRAS
        ],
    )


def triton_kernels() -> list[FastPath]:
    """Hand-written kernels, one entry per operation."""
    paths = []
    for choice in kernel_report():
        on = choice.implementation == "triton"
        reason = choice.reason if on else f"{choice.implementation} PyTorch: {choice.reason}"
        paths.append(FastPath(f"Triton {choice.operation}", on, reason))
    return paths


def compilation() -> FastPath:
    """torch.compile of blocks (training.torch_compile_gdn)."""
    name = "torch.compile"
    if reason := _no_cuda():
        return FastPath(name, False, f"{reason}; on a CPU blocks run as written")
    if next((found for c in _compilers() if (found := shutil.which(c))), None) is None:
        return FastPath(name, False, "no C++ compiler on PATH (g++, clang++ or CXX); install one")
    return FastPath(name, True, "blocks of the training step (training.torch_compile_gdn)")


def cuda_graphs() -> FastPath:
    """Captured graphs: of decoding passes, and of the training step's attention if asked for."""
    name = "CUDA graphs"
    if reason := _no_cuda() or machine_obstacle(torch.device("cuda")):
        return FastPath(name, False, reason)
    return FastPath(name, True, "decoding passes of generate and serve; attention of a run by training.cuda_graphs_mla")


def packed_attention() -> FastPath:
    """Attention of packed documents."""
    name = "cuDNN packed attention"
    reason = _no_cuda() or cudnn_obstacle(torch.device("cuda", torch.cuda.current_device()))
    return FastPath(name, not reason, reason or f"cuDNN {torch.backends.cudnn.version()}; flash attention elsewhere")


def bfloat16() -> FastPath:
    """Matrix products in bf16 (training.param_dtype, training.moe_mixed_precision)."""
    name = "bf16"
    if not _no_cuda():
        if has_bf16(torch.device("cuda")):
            return FastPath(name, True, "in hardware on this GPU; set training.param_dtype=bfloat16")
        return FastPath(name, False, "this GPU has no bf16 units (compute capability 8.0 or newer has)")
    if torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return FastPath(name, True, "in hardware on this CPU; set training.param_dtype=bfloat16")
    return FastPath(name, False, "no CUDA device, and this CPU has no bf16 instructions: float32 is faster here")


def grouped_mm() -> FastPath:
    """One product for all experts."""
    name = "grouped_mm"
    if not hasattr(F, "grouped_mm"):
        return FastPath(name, False, f"torch {torch.__version__} has none; experts run in a loop")
    if reason := _no_cuda():
        return FastPath(name, False, f"{reason}; experts run in a loop")
    capability = torch.cuda.get_device_capability()
    if capability < (8, 0):
        return FastPath(name, False, f"compute capability {capability[0]}.{capability[1]} is below 8.0")
    return FastPath(name, True, "for bf16 experts on this GPU")


def ranks() -> FastPath:
    """What several ranks talk through (`torchrun -m hymo train`)."""
    name = "several ranks"
    if not dist.is_available():
        return FastPath(name, False, "this build of torch has no torch.distributed")
    if not _no_cuda() and dist.is_nccl_available():
        return FastPath(name, True, f"over NCCL, one rank for each of {torch.cuda.device_count()} CUDA devices")
    if not dist.is_gloo_available():
        return FastPath(name, False, "this build of torch has neither gloo nor NCCL for this machine")
    return FastPath(name, True, "over gloo between CPU processes, which is for tests and not for speed")


def version_of(distribution: str) -> str | None:
    """Installed version of a package, without importing it."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _compilers() -> list[str]:
    return [name for name in (os.environ.get("CXX"), "g++", "clang++", "c++", "cl") if name]


def _no_cuda() -> str:
    """Why there is no CUDA device, or an empty string if there is one."""
    if torch.version.cuda is None:
        return "this build of torch has no CUDA"
    return "" if torch.cuda.is_available() else "no CUDA device"


def _devices() -> list[str]:
    found = [f"cpu: {platform.processor() or platform.machine()}"]
    if torch.cuda.is_available():
        for i in range(torch.cuda.device_count()):
            facts = torch.cuda.get_device_properties(i)
            capability = f"compute capability {facts.major}.{facts.minor}"
            found.append(f"cuda:{i}: {facts.name}, {facts.total_memory / 2**30:.1f} GiB, {capability}")
    if torch.backends.mps.is_available():
        found.append("mps: Apple GPU")
    return found
