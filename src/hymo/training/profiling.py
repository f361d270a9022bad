"""Recording what some steps did: a trace of operations and, on a CUDA device, the history of its memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import torch
from torch.profiler import ProfilerActivity, profile

PROFILES = "profiles"
"""Folder of a run that holds them."""
_HISTORY = 1_000_000
"""Most allocations of the memory history; older ones are dropped."""


class StepProfiler:
    """Records steps `first` to `last` of a run and writes them when the last has ended, or when the context ends.

    `trace-A-B.json.gz` opens in Perfetto, `memory-A-B.pickle` in PyTorch's memory viewer; A and B are the steps that
    were recorded.

    Args:
        folder: where to write; None records nothing.
        steps: first and last step, counted as in metrics.jsonl; None records nothing.
        device: that trains.
        report: told of a file (`profile`), or of why there is none (`profile_failed`).
    """

    def __init__(
        self, folder: Path | None, steps: tuple[int, int] | None, device: torch.device, report: Callable[..., None]
    ) -> None:
        self._folder, self._steps, self._report = folder, steps, report
        self._cuda = device.type == "cuda"
        self._recorder: profile | None = None
        self._seen: list[int] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    @contextmanager
    def step(self, number: int) -> Iterator[None]:
        """Around step `number`."""
        if self._folder is None or self._steps is None or not self._steps[0] <= number <= self._steps[1]:
            yield
            return
        if self._recorder is None:
            self._begin()
        yield
        self._seen.append(number)
        if number == self._steps[1]:
            self._end()

    def _begin(self) -> None:
        activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if self._cuda else [])]
        self._recorder = profile(activities=activities, record_shapes=True)
        if self._cuda:
            torch.cuda.memory._record_memory_history(max_entries=_HISTORY)
        self._recorder.start()

    def _end(self) -> None:
        recorder, self._recorder = self._recorder, None
        if recorder is None:
            return
        if self._cuda:
            torch.cuda.synchronize()
        recorder.stop()
        try:
            if self._seen and self._folder is not None:
                self._write(recorder, self._folder, f"{self._seen[0]}-{self._seen[-1]}")
        except (OSError, RuntimeError) as error:  # a profile is never worth the run
            self._report("profile_failed", error=str(error))
        finally:
            self._seen = []
            if self._cuda:
                torch.cuda.memory._record_memory_history(enabled=None)

    def _write(self, recorder: profile, folder: Path, steps: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        trace = folder / f"trace-{steps}.json.gz"
        recorder.export_chrome_trace(str(trace))
        self._report("profile", path=str(trace))
        if self._cuda:
            memory = folder / f"memory-{steps}.pickle"
            torch.cuda.memory._dump_snapshot(str(memory))
            self._report("profile", path=str(memory))
