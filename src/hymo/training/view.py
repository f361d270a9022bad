"""What a person sees of a run: one live block on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

_PLAIN_SECONDS = 10.0
_SHOWN = (
    "resume",
    "extend",
    "skip",
    "spike",
    "rewind",
    "verdict",
    "interrupted",
    "checkpoint_failed",
    "checkpoint_warning",
    "damaged_checkpoint",
    "without_effect",
    "profile",
    "profile_failed",
)


class RunView:
    """Shows progress on stderr. A context manager, so that the terminal is always left as it was."""

    def __init__(self, total_steps: int, name: str) -> None:
        self._total, self._name = total_steps, name
        self._console = Console(stderr=True)
        self._progress: Progress | None = None
        self._validation = ""
        self._last_line = 0.0

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._progress = Progress(
                TextColumn("[bold]{task.description}"),
                BarColumn(),
                TaskProgressColumn(),
                TextColumn("{task.fields[status]}"),
                TimeRemainingColumn(),
                console=self._console,
            )
            self._task = self._progress.add_task(self._name, total=self._total, status="")
            self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.stop()

    def on_metrics(self, record: Mapping[str, Any]) -> None:
        """Move the bar, or print a line now and then."""
        if record["split"] == "val":
            self._validation = f"val {record['val/bits_per_byte']:.3f} bits/byte"
            self._print(f"step {record['step']}: {self._validation}, loss {record['val/loss']:.4f}")
            return
        rate = record["perf/tok_per_s"]
        speed = f"{rate / 1e3:.1f} k" if rate >= 1e3 else f"{rate:.0f}"
        status = f"loss {record['train/loss']:.3f}  {speed} tok/s  {self._validation}"
        if self._progress is not None:
            self._progress.update(self._task, completed=record["step"], status=status)
        elif time.monotonic() - self._last_line >= _PLAIN_SECONDS or record["step"] in (1, self._total):
            self._print(f"step {record['step']}/{self._total}: {status.strip()}")
            self._last_line = time.monotonic()

    def on_event(self, kind: str, fields: Mapping[str, Any]) -> None:
        """Print what a person should know of; routine events stay in the files."""
        if kind in _SHOWN:
            details = ", ".join(f"{key} {value}" for key, value in fields.items())
            self._print(f"{kind.replace('_', ' ')}: {details}")

    def _print(self, text: str) -> None:
        if self._progress is not None:
            self._progress.console.print(text, markup=False, highlight=False)
        else:
            print(text, file=sys.stderr, flush=True)
