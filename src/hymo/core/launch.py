"""Which of how many processes this one is, as a launcher such as torchrun says; and how many a run divides over."""

from __future__ import annotations

import os

from hymo.core.config import HyMoConfig
from hymo.core.errors import ConfigError


def launched_ranks() -> int:
    """How many processes the launcher started for this run; 1 without a launcher."""
    return int(os.environ.get("WORLD_SIZE", "1")) if "RANK" in os.environ else 1


def launched_rank() -> int:
    """Number of this process among them, from 0."""
    return int(os.environ["RANK"]) if launched_ranks() > 1 else 0


def local_rank() -> int:
    """Number of this process on its machine, from 0: which device is its own."""
    return int(os.environ.get("LOCAL_RANK", "0")) if launched_ranks() > 1 else 0


def start_number() -> int:
    """How often the launcher has restarted these processes."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


def check_ranks(config: HyMoConfig, size: int) -> None:
    """Refuse a number of ranks that the configuration does not divide over.

    Raises:
        ConfigError: naming the field and what would do.
    """
    cfg = config.training
    forward = cfg.grad_accum_steps * cfg.dp_size
    if forward % size:
        *fitting, last = (str(n) for n in range(1, forward + 1) if forward % n == 0)
        choice = f"{', '.join(fitting)} or {last}" if fitting else last
        raise ConfigError(
            f"training.grad_accum_steps: {cfg.grad_accum_steps} x dp_size {cfg.dp_size} = {forward} forward passes per "
            f"step do not divide over {size} ranks. Start {choice} ranks, or raise it and lower "
            "training.micro_batch_size by the same factor, which trains on the same batches."
        )
    if size % cfg.dp_replicate and size > 1:
        raise ConfigError(
            f"training.dp_replicate: {cfg.dp_replicate} replicas do not divide {size} ranks. Set a divisor of {size}; "
            "1 shards the weights over all ranks."
        )
