"""Which checkpoints are kept: one rule for the run that saves them and for `hymo checkpoint prune`."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hymo.core.config import TrainingConfig


def pinned_steps(trainer: Mapping[str, Any], config: TrainingConfig) -> set[int]:
    """Steps that a run keeps whatever their age: the best, and the last of the stable phase if asked.

    Args:
        trainer: `Manifest.trainer` of the newest checkpoint.
        config: what the run asks for.
    """
    best, schedule = trainer.get("best_step"), trainer.get("scheduler")
    pinned = set() if best is None else {int(best)}
    if config.keep_stable and schedule is not None:
        pinned.add(int(schedule["warmup_steps"]) + int(schedule["stable_steps"]))
    return pinned


def surplus(
    whole: Sequence[tuple[Path, int]], keep_last: int, keep_every: int | None, pinned: Collection[int]
) -> list[Path]:
    """Which of the whole checkpoints (folder, step), newest first, retention does not keep."""
    return [
        path
        for path, step in whole[keep_last:]
        if step not in pinned and not (keep_every is not None and step % keep_every == 0)
    ]


def delete_checkpoints(folders: Iterable[Path]) -> None:
    """Delete checkpoints; one that is gone already is no error.

    Raises:
        OSError: one cannot be deleted.
    """
    for folder in folders:
        try:
            shutil.rmtree(folder)
        except FileNotFoundError:
            continue
