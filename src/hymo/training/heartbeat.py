"""Signs of life of a run: a file that says where it is, stacks of all threads where it hangs, and the watchdog.

`heartbeat.json` in the run's folder is replaced every few seconds by a thread: time, process, machine, step, and for
how long the step has been the same. It stops only with the process, or where foreign code keeps Python's lock.
`stacks.txt` gains the stacks of all threads when the step has been the same for `training.hang_minutes`, and whenever
the process gets SIGUSR1, whatever holds which lock. Neither ends the run, unless `training.hang_abort` asks for it:
then a run that hangs tells all ranks, whose stacks are written too, and ends with exit code 1.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from hymo.core.errors import HymoError
from hymo.core.files import write_text, writing

HEARTBEAT = "heartbeat.json"
STACKS = "stacks.txt"
"""Names of the first rank's files; those of rank N are heartbeat-N.json and stacks-N.txt."""
BEAT_SECONDS = 10.0
_SLACK_SECONDS = 5.0
"""How much later than the thread the clock that no lock can stop acts: writing a heartbeat may take long."""
_LAST_SECONDS = 60.0
"""Time that the end of a run that hangs may take, whatever hangs in it."""
_SIGNAL = getattr(signal, "SIGUSR1", None)


class Pulse:
    """What one rank says of itself. A thread of `heartbeat` keeps it.

    Args:
        path: of its heartbeat file.
        step: optimizer steps done so far.
        stacks: file for stacks of all threads.
        hang_seconds: time without a step that counts as hanging; None never does.
        every: seconds between two beats.
        abort: what ends all ranks of a run that hangs, told in words what it knows; None lets it hang.
    """

    def __init__(
        self,
        path: Path,
        step: Callable[[], int],
        stacks: TextIO,
        hang_seconds: float | None,
        every: float,
        abort: Callable[[str], None] | None,
    ) -> None:
        self._path, self._step, self._stacks = path, step, stacks
        self._hang_seconds, self._every, self._abort = hang_seconds, every, abort
        self._seen, self._since, self._told = -1, time.monotonic(), False

    def facts(self) -> dict[str, Any]:
        """Time, process, machine, step, seconds at that step, and whether that is too long."""
        same = time.monotonic() - self._since
        return {
            "ts": time.time(),
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "step": max(0, self._seen),
            "same_step_s": round(same, 1),
            "hangs": self._hang_seconds is not None and same >= self._hang_seconds,
        }

    def write_stacks(self) -> None:
        """Add the stacks of all threads to the rank's file."""
        with contextlib.suppress(OSError, ValueError):
            faulthandler.dump_traceback(file=self._stacks, all_threads=True)

    def run(self, ended: threading.Event) -> None:
        """Beat until the run ends."""
        self._beat()
        while not ended.wait(self._every):
            self._beat()
        self._beat()

    def _beat(self) -> None:
        step = self._step()
        if step != self._seen:
            self._seen, self._since, self._told = step, time.monotonic(), False
            self._arm()
        facts = self.facts()
        with contextlib.suppress(HymoError):  # a full disk is no reason to stop
            write_text(self._path, json.dumps(facts))
        if facts["hangs"] and self._abort is not None and not self._told:
            self._told = True
            faulthandler.dump_traceback_later(_LAST_SECONDS, file=self._stacks, exit=True)  # instead of the one armed
            with contextlib.suppress(OSError):  # nor is it one to hang on
                self._stacks.write(f"Watchdog: no step after {step} for {facts['same_step_s']:.0f} s\n")
                self._stacks.flush()
            self.write_stacks()
            self._abort(
                f"no step after step {step} for {facts['same_step_s'] / 60:.3g} minutes (training.hang_minutes)"
            )

    def _arm(self) -> None:
        """Have stacks written by a clock of their own, which no lock of Python's can stop.

        With a watchdog it also ends the process, a little after this thread would have, if it could.
        """
        if self._hang_seconds is None:
            return
        late = 0.0 if self._abort is None else 3 * self._every + _SLACK_SECONDS
        faulthandler.dump_traceback_later(self._hang_seconds + late, file=self._stacks, exit=self._abort is not None)


@contextmanager
def heartbeat(
    folder: Path,
    step: Callable[[], int],
    hang_minutes: float | None,
    every: float = BEAT_SECONDS,
    rank: int = 0,
    abort: Callable[[str], None] | None = None,
) -> Iterator[Pulse]:
    """Keep both files of a run while the block runs.

    Args:
        folder: of the run.
        step: optimizer steps done so far.
        hang_minutes: time without a step after which stacks are written; None never does.
        every: seconds between two beats, at most.
        rank: of this process, which has files of its own.
        abort: as in `Pulse`.

    Raises:
        StorageError, UsageError: the folder cannot be written.
    """
    with writing(folder):
        stacks = _of_rank(folder / STACKS, rank).open("a", encoding="utf-8")
    ended = threading.Event()
    hang_seconds = None
    if hang_minutes is not None:
        hang_seconds = 60 * hang_minutes
        every = min(every, hang_seconds / 4)
    pulse = Pulse(_of_rank(folder / HEARTBEAT, rank), step, stacks, hang_seconds, every, abort)
    thread = threading.Thread(target=pulse.run, args=(ended,), name="heartbeat", daemon=True)
    if _SIGNAL is not None:
        faulthandler.register(_SIGNAL, file=stacks, all_threads=True)
    thread.start()
    try:
        yield pulse
    finally:
        ended.set()
        thread.join()
        faulthandler.cancel_dump_traceback_later()
        if _SIGNAL is not None:
            faulthandler.unregister(_SIGNAL)
        stacks.close()


def _of_rank(path: Path, rank: int) -> Path:
    return path if rank == 0 else path.with_stem(f"{path.stem}-{rank}")
