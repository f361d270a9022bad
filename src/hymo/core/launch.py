"""Which of how many processes this one is, as a launcher such as torchrun says in the environment."""

from __future__ import annotations

import os


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
