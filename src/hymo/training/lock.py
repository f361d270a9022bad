"""The lock of a run folder: held by the one process that trains there, and looked at by those that watch.

The kernel gives the lock back however the process ends, so a free lock on this machine means that nobody trains. The
file also names the process, for messages and because file systems shared by machines may not share locks.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hymo.core.errors import UsageError
from hymo.core.files import writing

LOCK = "run.lock"
_GRACE = 0.5
"""Seconds to wait for a lock that somebody only looks at."""
_ADVICE = "Stop it first, or start another run with --set run.name=NAME."


@dataclass(frozen=True)
class Holder:
    """Who holds a run's lock, or held it last."""

    held: bool
    pid: int | None = None
    here: bool = True
    """Whether it was taken on this machine; on another one, `held` may be wrong."""


@contextmanager
def claimed(folder: Path, advice: str = _ADVICE) -> Iterator[None]:
    """Hold the run's lock: two processes must never write one folder.

    Args:
        folder: of the run; made if it is not there.
        advice: what a person can do if another process holds the lock.

    Raises:
        UsageError: another process holds it, or the folder cannot be written.
        StorageError: the disk is full.
    """
    with writing(folder, "Set run.output_dir elsewhere, or change its permissions."):
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / LOCK).open("ab", buffering=0)
    with lock:
        until = time.monotonic() + _GRACE
        while not _take(lock.fileno(), fcntl.LOCK_EX):
            if time.monotonic() > until:
                other = holder(folder)
                who = "" if other is None or other.pid is None else f" (pid {other.pid})"
                raise UsageError(f"{folder}: another process is training there{who}. {advice}")
            time.sleep(_GRACE / 10)
        with writing(folder):
            lock.truncate(0)
            lock.write(json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode())
        yield


def holder(folder: Path) -> Holder | None:
    """Who trains in a run folder, without disturbing it; None if nobody ever took its lock, or it cannot be read."""
    try:
        with (folder / LOCK).open(encoding="utf-8") as lock:
            held = not _take(lock.fileno(), fcntl.LOCK_SH)
            text = lock.read()
    except OSError:
        return None
    try:
        said = json.loads(text)
        return Holder(held, int(said["pid"]), said["host"] == socket.gethostname())
    except (ValueError, KeyError, TypeError):
        return Holder(held)


def _take(descriptor: int, kind: int) -> bool:
    """Take a lock if it is free; closing the file gives it back."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
