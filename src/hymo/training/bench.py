"""How fast the training step is, and where its time goes.

The measured steps are the trainer's own, on batches of its own loader: real documents, the real schedule, optimizers
and clipping included. Validation, checkpoints and the first steps (compilation, allocator) are left out.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from hymo.core.accounting import attention_flops, flops_per_token, used_per_token
from hymo.core.config import HyMoConfig
from hymo.core.errors import UsageError
from hymo.core.hardware import Device, match_device
from hymo.core.memory import training_memory
from hymo.data import load_tokenizer, open_split
from hymo.training.ranks import ALONE, Ranks
from hymo.training.run import training_loader
from hymo.training.trainer import Trainer

COMMUNICATION = "communication"
KINDS = {
    COMMUNICATION: r"nccl",
    "recurrence": r"^(states|scan|prepare|summarise(_gradient)?|forward|backward)$",
    "short convolution": r"^(conv_(forward|backward)|ages)$",
    "keys and gates": r"^(gate_(forward|backward)|keys_and_gate|gradients_side_by_side)$",
    "sums of gradients": r"^add_all$",
    "attention": r"flash|fmha|cudnn|sdpa|attention",
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
    impl: str
    device: str
    gpus: int
    """Ranks, whatever they run on."""
    micro_batch: int
    """Sequences of a forward pass."""
    micro_batches: int
    """Forward passes of a rank per step."""
    tokens_per_step: int
    optimizer: str
    seq_len: int
    mtp_depth: int
    param_dtype: str
    kernels: str
    compiled: bool
    steps: int
    seconds: float
    warmup_steps: int
    warmup_seconds: float
    first_step_seconds: float
    """Compilation included; short where the compiler's cache is warm."""
    ms_per_step: float
    tok_per_s: float
    flops_per_token: float
    mfu: float | None
    peak_gib: float | None
    planned_gib: float
    """What `hymo plan` expects a rank to occupy."""
    loss_first: float
    loss_last: float
    breakdown_ms: dict[str, float] = field(default_factory=dict)
    """Milliseconds of device time per step by kind of kernel; empty without a CUDA device."""
    floors_ms: dict[str, float] = field(default_factory=dict)
    """Least time that arithmetic or memory traffic of a kind takes by the device's data sheet, see `floors`."""
    idle_ms: float | None = None
    """What of the profiled step no kernel covers: launches the device waited for."""
    exposed_communication_ms: float | None = None
    """Communication of the profiled step while no other kernel runs."""
    optimizer_ms: float | None = None
    """The update by both optimizers in a step of its own, waited for before and after."""

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
    _sync(trainer)
    first_seconds = time.perf_counter() - began
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
        impl="hymo",
        device=name,
        gpus=ranks.size,
        tokens_per_step=tokens,
        optimizer="AdamW" if trainer.optimizers.normuon is None else "NorMuon + AdamW",
        micro_batch=cfg.micro_batch_size,
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
        first_step_seconds=first_seconds,
        ms_per_step=1e3 * elapsed / done,
        tok_per_s=rate,
        flops_per_token=flops,
        mfu=rate * flops / hardware.peak / ranks.size if hardware is not None and hardware.peak else None,
        peak_gib=torch.cuda.max_memory_allocated() / 2**30 if cuda else None,
        planned_gib=training_memory(config, ranks.size, on_gpu=cuda).total / 2**30,
        loss_first=first,
        loss_last=last,
    )
    if breakdown:
        result.optimizer_ms = _optimizer_ms(trainer)
    if breakdown and cuda:
        result.floors_ms = floors(config, tokens // ranks.size, hardware)
        step = _profile(trainer)
        result.breakdown_ms, result.idle_ms, result.exposed_communication_ms = step.parts, step.idle, step.exposed
    return result


def floors(config: HyMoConfig, tokens: int, hardware: Device | None) -> dict[str, float]:
    """Least milliseconds of a step of `tokens` on one device for four kinds of kernel; empty for an unknown device.

    Matrix products and attention: their arithmetic at the peak (6 per parameter used, attention three times forward).
    Cross-entropy: every logit written once as a gradient and read once. Recurrence: keys, queries, values and outputs
    once forward, those and their gradients once backward.
    """
    if hardware is None or hardware.peak is None or hardware.bandwidth is None:
        return {}
    model = config.model
    blocks = model.n_layers - len(model.mla_layers)
    width = model.gdn_d_inner // model.gdn_headdim * model.gdn_d_state
    numbers = blocks * (2 * width + 2 * model.gdn_d_inner + 2 * (2 * width + model.gdn_d_inner) + model.gdn_d_inner)
    element = 4 if config.training.param_dtype == "float32" else 2
    work = {
        "matrix products": 6 * used_per_token(model, training=True) / hardware.peak,
        "attention": 3 * attention_flops(model, config.training.seq_len) / hardware.peak,
        "cross-entropy": 2 * element * model.vocab_size * (1 + model.mtp_depth) / hardware.bandwidth,
        "recurrence": element * numbers / hardware.bandwidth,
    }
    return {kind: 1e3 * tokens * seconds for kind, seconds in work.items()}


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


@dataclass(frozen=True)
class _Profile:
    """One step on the device, in milliseconds."""

    parts: dict[str, float]
    """By kind of kernel; kernels that run side by side count each."""
    idle: float
    """What no kernel covers."""
    exposed: float
    """Communication while nothing else runs."""


def _profile(trainer: Trainer) -> _Profile:
    with profile(activities=[ProfilerActivity.CUDA]) as recorded:
        began = time.perf_counter()
        _steps(trainer, 1)
        _sync(trainer)
        wall = time.perf_counter() - began
    parts: dict[str, float] = defaultdict(float)
    spans: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
    for event in recorded.events() or ():
        if event.device_type.name == "CUDA" and not event.is_user_annotation:
            kind = kind_of(event.name)
            parts[kind] += event.self_device_time_total / 1e3
            spans[kind == COMMUNICATION].append((event.time_range.start / 1e3, event.time_range.end / 1e3))
    busy, working = covered([*spans[True], *spans[False]]), covered(spans[False])
    ordered = dict(sorted(parts.items(), key=lambda item: -item[1]))
    return _Profile(ordered, max(0.0, 1e3 * wall - busy), busy - working)


def covered(spans: Iterable[tuple[float, float]]) -> float:
    """Length of the union of intervals (start, end)."""
    total, reached = 0.0, float("-inf")
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total


def _optimizer_ms(trainer: Trainer) -> float | None:
    """Milliseconds of both optimizers' update in one more step, waited for before and after; None if it was skipped."""
    optimizers, spent = trainer.optimizers, []
    update = optimizers.step

    def timed() -> None:
        _sync(trainer)
        began = time.perf_counter()
        update()
        _sync(trainer)
        spent.append(1e3 * (time.perf_counter() - began))

    optimizers.step = timed  # type: ignore[method-assign]
    try:
        _steps(trainer, 1)
    finally:
        del optimizers.step
    return spent[0] if spent else None


def kind_of(kernel: str) -> str:
    """Return which of `KINDS` a kernel's name belongs to, or "elementwise"."""
    return next((kind for kind, pattern in KINDS.items() if re.search(pattern, kernel, re.IGNORECASE)), "elementwise")
