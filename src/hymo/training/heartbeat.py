"""Signs of life of a run: a file that says where it is, and stacks of all threads where it does not go on.

`heartbeat.json` in the run's folder is replaced every few seconds by a thread: time, process, machine, step, and for
how long the step has been the same. It stops only with the process, or where foreign code keeps Python's lock.
`stacks.txt` gains the stacks of all threads when the step has been the same for `training.hang_minutes`, and whenever
the process gets SIGUSR1, whatever holds which lock. Neither ends the run.
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
from typing import TextIO

from hymo.core.errors import HymoError
from hymo.core.files import write_text, writing

HEARTBEAT = "heartbeat.json"
STACKS = "stacks.txt"
"""Names of the first rank's files; those of rank N are heartbeat-N.json and stacks-N.txt."""
BEAT_SECONDS = 10.0
_SIGNAL = getattr(signal, "SIGUSR1", None)


@contextmanager
def heartbeat(
    folder: Path, step: Callable[[], int], hang_minutes: float | None, every: float = BEAT_SECONDS, rank: int = 0
) -> Iterator[None]:
    """Keep both files of a run while the block runs.

    Args:
        folder: of the run.
        step: optimizer steps done so far.
        hang_minutes: time without a step after which stacks are written; None never does.
        every: seconds between two beats.
        rank: of this process, which has files of its own.

    Raises:
        StorageError, UsageError: the folder cannot be written.
    """
    with writing(folder):
        stacks = _of_rank(folder / STACKS, rank).open("a", encoding="utf-8")
    ended = threading.Event()
    beats = _Beats(
        _of_rank(folder / HEARTBEAT, rank), step, stacks, None if hang_minutes is None else 60 * hang_minutes
    )
    thread = threading.Thread(target=beats.run, args=(ended, every), name="heartbeat", daemon=True)
    if _SIGNAL is not None:
        faulthandler.register(_SIGNAL, file=stacks, all_threads=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        faulthandler.cancel_dump_traceback_later()
        if _SIGNAL is not None:
            faulthandler.unregister(_SIGNAL)
        stacks.close()


def _of_rank(path: Path, rank: int) -> Path:
    return path if rank == 0 else path.with_stem(f"{path.stem}-{rank}")


class _Beats:
    """The thread's work and what it remembers."""

    def __init__(self, path: Path, step: Callable[[], int], stacks: TextIO, hang_seconds: float | None) -> None:
        self._path, self._step, self._stacks, self._hang_seconds = path, step, stacks, hang_seconds
        self._seen, self._since = -1, time.monotonic()

    def run(self, ended: threading.Event, every: float) -> None:
        """Beat until the run ends."""
        self._beat()
        while not ended.wait(every):
            self._beat()
        self._beat()

    def _beat(self) -> None:
        step = self._step()
        if step != self._seen:
            self._seen, self._since = step, time.monotonic()
            if self._hang_seconds is not None:  # by a clock of its own, which no lock of Python's can stop
                faulthandler.dump_traceback_later(self._hang_seconds, file=self._stacks)
        facts = {"ts": time.time(), "pid": os.getpid(), "host": socket.gethostname(), "step": step}
        with contextlib.suppress(HymoError):  # a full disk is no reason to stop
            write_text(self._path, json.dumps({**facts, "same_step_s": round(time.monotonic() - self._since, 1)}))
