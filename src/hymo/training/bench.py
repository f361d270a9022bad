"""How fast the training step is, and where its time goes.

The measured steps are the trainer's own, on batches of its own loader: real documents, the real schedule, optimizers
and clipping included. Validation, checkpoints and the first steps (compilation, allocator) are left out.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from hymo.core.accounting import flops_per_token
from hymo.core.config import HyMoConfig
from hymo.core.errors import UsageError
from hymo.core.hardware import match_device
from hymo.data import load_tokenizer, open_split
from hymo.training.ranks import ALONE, Ranks
from hymo.training.run import training_loader
from hymo.training.trainer import Trainer

KINDS = {
    "communication": r"nccl",
    "recurrence": r"^(states|scan|summarise(_gradient)?|forward|backward)$",
    "attention": r"flash|fmha|cudnn.*sdpa|sdpa|attention",
    "cross-entropy": r"cross_entropy",
    "matrix products": r"gemm|nvjet|cutlass|cublas|sm90_xmma|splitKreduce|grouped",
    "sorting and counting": r"sort|radix|histogram|bincount|scan_kernel|cumsum",
    "fused by the compiler": r"^triton_",
    "copies": r"memcpy|memset|copy",
}
"""What a kernel's name says it belongs to; the first pattern that fits, anything else is elementwise."""


@dataclass
class StepTiming:
    """Throughput of the training step, over all ranks; memory and the parts of a step are this rank's.

    Times are wall clock over all measured steps, device work included.
    """

    config: str
    device: str
    ranks: int
    tokens_per_step: int
    micro_batch_size: int
    micro_batches: int
    seq_len: int
    mtp_depth: int
    param_dtype: str
    kernels: str
    compiled: bool
    steps: int
    seconds: float
    warmup_steps: int
    warmup_seconds: float
    ms_per_step: float
    tokens_per_second: float
    flops_per_token: float
    mfu: float | None
    peak_memory_gb: float | None
    loss_first: float
    loss_last: float
    parts_ms: dict[str, float] = field(default_factory=dict)
    """Milliseconds of device time per step by kind of kernel; empty without a CUDA device."""
    idle_ms: float | None = None
    """What of the profiled step no kernel covers: launches the device waited for."""

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)


def bench_training(
    config: HyMoConfig, *, seconds: float = 30.0, warmup: int = 5, breakdown: bool = True, ranks: Ranks = ALONE
) -> StepTiming:
    """Train for some time and measure it. Nothing is saved.

    Args:
        config: of the run; `run.data` must name a prepared data set.
        seconds: how long to measure at least.
        warmup: optimizer steps before it.
        breakdown: profile one more step, on a CUDA device.
        ranks: who trains together; all call this at once.

    Raises:
        UsageError: no data, or too few steps in the configuration for a measurement.
    """
    if warmup < 1 or seconds <= 0:
        raise UsageError(f"--warmup {warmup} and --seconds {seconds:g} must be at least one step and above 0.")
    if config.run.data is None:
        raise UsageError("run.data: not set. Prepare text with `hymo data prepare`, then pass --data DIR.")
    loader = training_loader(config, open_split(config.run.data, "train", load_tokenizer(config.run.tokenizer)))
    trainer = Trainer(config, loader, ranks=ranks)
    _sync(trainer)
    began = time.perf_counter()
    first = last = _steps(trainer, 1)
    _steps(trainer, warmup - 1)
    warmed = time.perf_counter() - began
    if trainer.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    done, began = 0, time.perf_counter()
    while ranks.exchange([done == 0 or time.perf_counter() - began < seconds])[0][0]:
        last = _steps(trainer, 1)
        done += 1
    _sync(trainer)
    elapsed = time.perf_counter() - began
    cfg = config.training
    tokens = cfg.sequences_per_step * cfg.seq_len
    flops = flops_per_token(config.model, cfg.seq_len, mtp=config.model.mtp_depth > 0)
    cuda = trainer.device.type == "cuda"
    name = torch.cuda.get_device_name() if cuda else "cpu"
    hardware = match_device(name)
    rate = done * tokens / elapsed
    result = StepTiming(
        config=config.run.name,
        device=name,
        ranks=ranks.size,
        tokens_per_step=tokens,
        micro_batch_size=cfg.micro_batch_size,
        micro_batches=cfg.grad_accum_steps * cfg.dp_size // ranks.size,
        seq_len=cfg.seq_len,
        mtp_depth=config.model.mtp_depth,
        param_dtype=cfg.param_dtype,
        kernels=cfg.gdn_kernel,
        compiled=cuda and cfg.torch_compile_gdn,
        steps=done,
        seconds=elapsed,
        warmup_steps=warmup,
        warmup_seconds=warmed,
        ms_per_step=1e3 * elapsed / done,
        tokens_per_second=rate,
        flops_per_token=flops,
        mfu=rate * flops / hardware.peak / ranks.size if hardware is not None and hardware.peak else None,
        peak_memory_gb=torch.cuda.max_memory_allocated() / 1e9 if cuda else None,
        loss_first=first,
        loss_last=last,
    )
    if breakdown and cuda:
        result.parts_ms, result.idle_ms = _breakdown(trainer)
    return result


def _sync(trainer: Trainer) -> None:
    if trainer.device.type == "cuda":
        torch.cuda.synchronize()


def _steps(trainer: Trainer, count: int) -> float:
    """Take optimizer steps and return the loss of the last."""
    loss = float("nan")
    for _ in range(count):
        if trainer.step >= trainer.config.total_steps:
            raise UsageError(f"scheduler.total_steps: {trainer.config.total_steps} are too few to measure. Raise it.")
        loss = trainer.take_step(trainer.next_windows())[0]["train/loss"]
    return loss


def _breakdown(trainer: Trainer) -> tuple[dict[str, float], float]:
    """Device milliseconds of one step by kind of kernel, and the time that none covers."""
    with profile(activities=[ProfilerActivity.CUDA]) as recorded:
        began = time.perf_counter()
        _steps(trainer, 1)
        _sync(trainer)
        wall = time.perf_counter() - began
    parts: dict[str, float] = defaultdict(float)
    busy = 0.0
    for event in recorded.key_averages():
        spent = event.self_device_time_total / 1e3
        busy += spent
        parts[kind_of(event.key)] += spent
    return dict(sorted(parts.items(), key=lambda item: -item[1])), max(0.0, 1e3 * wall - busy)


def kind_of(kernel: str) -> str:
    """Return which of `KINDS` a kernel's name belongs to, or "elementwise"."""
    return next((kind for kind, pattern in KINDS.items() if re.search(pattern, kernel, re.IGNORECASE)), "elementwise")
