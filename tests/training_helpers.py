"""What several tests of the trainer do."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from hymo.training import Trainer


def stop_after(trainer: Trainer, step: int) -> None:
    """Make the trainer believe that a SIGTERM came after `step`."""
    original = trainer._between_steps

    def between(stop: Any) -> None:
        original(stop)
        if trainer.step == step:
            stop.signal = 15

    trainer._between_steps = between  # type: ignore[method-assign]


def fill(folder: Path) -> None:
    """Take all the room of a small file system, with a file `filler`."""
    with (folder / "filler").open("wb", buffering=0) as stream, contextlib.suppress(OSError):
        while stream.write(b"x" * 1024):
            pass
