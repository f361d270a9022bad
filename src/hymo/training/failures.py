"""One rank that fails ends all: who failed first is told through the launcher's store, and nobody waits for the dead.

A rank that raises writes its error under one key, where only the first is kept. Every rank has a thread that looks at
that key: a rank that does not end by itself soon after (it hangs, or waits for one that is gone) is ended by it.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self, TypeVar

from hymo.core.errors import HymoError, RankError, TrainingError

T = TypeVar("T")
_LOOK_SECONDS = 0.5
GRACE_SECONDS = 5.0
"""Time that a rank has to end by itself once another has failed."""
_SETTLE_SECONDS = 2.0
"""Time in which a rank that lost contact may learn who failed before it."""
_ANSWER_SECONDS = 10.0
"""Time in which the store answers unless its machine is gone."""
_CONTACT = ("gloo", "nccl", "connection", "timed out", "timeout", "socket", "store", "peer")


class FailureWatch:
    """Around everything that a rank does together with others.

    Args:
        rank: of this process.
        store: that all ranks share. It may outlive them: a launcher that restarts them keeps it.
        name: of this start, the same on all ranks and no other start's.
    """

    def __init__(self, rank: int, store: Any, name: str) -> None:
        self._rank, self._store, self._grace = rank, store, GRACE_SECONDS
        self._key = f"hymo/first_failure/{name}"
        self._alone = False
        """Whether the store's host is gone or silent."""
        self.last_words: Callable[[str], None] = lambda first: None
        """Called with the first error where this process is ended because it did not stop by itself."""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, args=(store.clone(),), name="ranks", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join(self._grace)  # it may wait long for a store whose machine is gone
        if value is not None:
            # Nothing that a dead peer leaves behind may keep this process: not a group's threads, not a device.
            threading.Thread(target=self._insist, name="end", daemon=True).start()
            try:
                self._raise_first(value)
            finally:
                if self._rank == 0:  # it may be the store's host: let the others read what is there
                    time.sleep(3 * _LOOK_SECONDS)

    @contextmanager
    def telling(self) -> Iterator[None]:
        """Tell the others of an error at once, before what surrounds the block waits for anything."""
        try:
            yield
        except BaseException as error:
            self._raise_first(error)
            raise

    def abort(self, reason: str) -> None:
        """End all ranks, this one included, from any thread: what they wait for does not come."""
        self._tell(f"rank {self._rank}: {reason}")
        if self._alone:  # nobody can be told any more
            self._end(reason)

    def _raise_first(self, value: BaseException) -> None:
        """Keep this rank's error if it is the first; raise the first one where this one only follows from it."""
        if isinstance(value, RankError):
            return
        lost = isinstance(value, RuntimeError) and not isinstance(value, HymoError)
        if lost and any(word in str(value).lower() for word in _CONTACT):
            first = self._first(wait=True)
            if first is None:
                mine = (
                    f"rank {self._rank}: lost the other ranks ({str(value).strip().splitlines()[0]}). One of them was "
                    "killed, hangs, or is slower than training.rank_timeout_minutes: its heartbeat-N.json says where."
                )
                first = self._tell(mine)
                if first == mine:
                    raise TrainingError(mine) from value
            raise RankError(first) from value
        self._tell(f"rank {self._rank}: {type(value).__name__}: {value}")

    def _tell(self, text: str) -> str:
        """Write an error if there is none yet; returns the first."""
        if self._alone:
            return text
        try:
            found: bytes = _answer(lambda: self._store.compare_set(self._key, "", text))
            return found.decode() or text
        except Exception:
            self._alone = True
            return text

    def _first(self, wait: bool = False) -> str | None:
        """The first error of any rank, if it is known."""
        until = time.monotonic() + (_SETTLE_SECONDS if wait else 0.0)
        while not self._alone:
            try:
                if _answer(lambda: self._store.check([self._key])):
                    text: str = _answer(lambda: self._store.get(self._key)).decode()
                    return text
            except Exception:
                self._alone = True
                break
            if time.monotonic() >= until:
                break
            time.sleep(0.1)
        return None

    def _look(self, store: Any) -> None:
        """Wait for the first failure of any rank, or for this one to end."""
        while not self._ended.wait(_LOOK_SECONDS):
            try:
                if not store.check([self._key]):
                    continue
                first = store.get(self._key).decode()
            except Exception:
                first = "the process that the ranks meet at is gone"
            if self._ended.wait(self._grace):
                return
            self._end(first)

    def _end(self, first: str) -> None:
        print(f"error: rank {self._rank}: ended, because it did not stop after: {first}", file=sys.stderr)
        with contextlib.suppress(Exception):
            faulthandler.dump_traceback(all_threads=True)
        with contextlib.suppress(Exception):
            self.last_words(first)
        os._exit(1)

    def _insist(self) -> None:
        time.sleep(4 * self._grace)
        os._exit(1)


def _answer(ask: Callable[[], T]) -> T:
    """What a store answers, if it does so soon: one whose machine froze or lost power says nothing for ever.

    Raises:
        TimeoutError: no answer.
        RuntimeError: the store's host is gone.
    """
    said: queue.SimpleQueue[T | Exception] = queue.SimpleQueue()

    def work() -> None:
        try:
            said.put(ask())
        except Exception as error:
            said.put(error)

    threading.Thread(target=work, name="store", daemon=True).start()
    try:
        found = said.get(timeout=_ANSWER_SECONDS)
    except queue.Empty:
        raise TimeoutError(f"no answer within {_ANSWER_SECONDS:g} s") from None
    if isinstance(found, Exception):
        raise found
    return found
