"""What a run that ran out of memory is told: what was needed for what, and which setting to lower."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict

import torch

from hymo.core.config import HyMoConfig
from hymo.core.errors import TrainingError
from hymo.core.launch import launched_ranks
from hymo.core.load import derive_config
from hymo.core.memory import keeps_whole_gradients, training_memory

_CPU = ("can't allocate memory", "not enough memory")
"""What PyTorch says where a CPU has no memory left; it has no type of its own for that."""


@contextmanager
def memory_explained(config: HyMoConfig, device: torch.device) -> Iterator[None]:
    """Turn running out of memory into an error that a person can act on.

    Raises:
        TrainingError: the block ran out of memory.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not (isinstance(error, MemoryError | torch.OutOfMemoryError) or any(text in str(error) for text in _CPU)):
            raise
        raise TrainingError(
            f"out of memory on {device}{_held(device)}. {explain(config, device.type == 'cuda')}"
        ) from error


def explain(config: HyMoConfig, on_gpu: bool) -> str:
    """What the plan needs on one device, largest first, and which setting to lower."""
    planned = asdict(training_memory(config, launched_ranks(), on_gpu=on_gpu))
    items = sorted(planned.items(), key=lambda item: -item[1])
    needed = ", ".join(f"{name.replace('_', ' ')} {size / 2**20:,.0f} MiB" for name, size in items if size)
    return f"By plan the run needs {needed}. {advice(config, on_gpu)}"


def advice(config: HyMoConfig, on_gpu: bool) -> str:
    """The setting that saves most while it changes least."""
    cfg, ranks = config.training, launched_ranks()
    if cfg.micro_batch_size > 1:
        half = cfg.micro_batch_size // 2
        same, changes = "", {"micro_batch_size": half}
        if cfg.micro_batch_size % 2 == 0:
            changes["grad_accum_steps"] = 2 * cfg.grad_accum_steps
            same = f" with training.grad_accum_steps={2 * cfg.grad_accum_steps}, which trains on the same batches"
        halved = training_memory(derive_config(config, training=changes), ranks, on_gpu=on_gpu)
        if halved.total < training_memory(config, ranks, on_gpu=on_gpu).total:
            return f"Lower training.micro_batch_size to {half}{same}."
    if cfg.activation_checkpointing != "full":
        return "Set training.activation_checkpointing=full, which computes activations again instead of keeping them."
    if ranks > 1 and keeps_whole_gradients(cfg):
        return "Set training.reshard_after_forward=true, which keeps no weights and gradients whole."
    return "Lower training.seq_len, or take a smaller model."


def _held(device: torch.device) -> str:
    if device.type != "cuda":
        return ""
    free, total = torch.cuda.mem_get_info(device)
    held = torch.cuda.memory_reserved(device)
    return f" ({held / 2**30:.1f} of {total / 2**30:.1f} GiB held here, {free / 2**30:.1f} free)"
