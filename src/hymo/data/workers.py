"""Processes that encode blocks and write shards."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait as wait_for
from types import TracebackType
from typing import Any

from hymo.core.errors import DataError
from hymo.data.job import Job, Place
from hymo.data.selection import Selection
from hymo.data.shards import ShardInfo
from hymo.data.sources import Block
from hymo.data.tokenizer import Tokenizer, load_tokenizer

QUEUED_PER_WORKER = 2
"""Blocks that wait for each worker: more would only hold memory."""


class Workers:
    """Does the steps of a job in `count` processes, or in this one if that is 1."""

    def __init__(self, job: Job, tokenizer: Tokenizer, count: int) -> None:
        self._job, self._tokenizer, self._count = job, tokenizer, count
        self._pool: ProcessPoolExecutor | None = None
        self._pending: set[Future[Any]] = set()
        if count > 1:
            self._pool = ProcessPoolExecutor(
                count, multiprocessing.get_context("spawn"), initializer=_start, initargs=(job,)
            )

    def encode(self, place: Place, block: Block) -> None:
        """Encode a block now or soon; waits where enough of them wait already."""
        if self._pool is None:
            self._job.encode(place, block, self._tokenizer)
            return
        while len(self._pending) >= self._count * QUEUED_PER_WORKER:
            self._collect()
        self._pending.add(self._pool.submit(_encode, place, block))

    def wait(self) -> None:
        """Return when everything that was given to `encode` is on the disk."""
        while self._pending:
            self._collect()

    def _collect(self) -> None:
        done, self._pending = wait(self._pending, return_when=FIRST_COMPLETED)
        for future in done:
            _result(future)

    def write(self, places: Sequence[tuple[str, int]]) -> Iterator[ShardInfo]:
        """Write the shards at (split, index) of the saved plan and yield their facts in that order."""
        if self._pool is None:
            plan = self._job.load_plan()
            for split, index in places:
                yield self._job.write(plan, split, index, self._tokenizer)
            return
        for future in [self._pool.submit(_write, split, index) for split, index in places]:
            yield _result(future)

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=kind is None, cancel_futures=True)


def _result(future: Future[Any]) -> Any:
    try:
        return future.result()
    except BrokenProcessPool as error:
        raise DataError(
            "a worker process was killed (out of memory?); run the same command again, with fewer workers if that "
            "repeats: finished parts are kept. A script of your own must call this under `if __name__ == '__main__'`"
        ) from error


_state: dict[str, Any] = {}


def _start(job: Job) -> None:
    # Ctrl-C reaches the whole process group; the parent alone decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _state.update(job=job, tokenizer=load_tokenizer(job.tokenizer))


def _end_with_parent() -> None:
    """A pool's workers hold both ends of their queue, so they would wait for a dead parent for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait_for([parent.sentinel])
        os._exit(1)


def _encode(place: Place, block: Block) -> None:
    _state["job"].encode(place, block, _state["tokenizer"])


def _write(split: str, index: int) -> ShardInfo:
    plan: Selection | None = _state.get("plan")
    if plan is None:
        plan = _state["plan"] = _state["job"].load_plan()
    info: ShardInfo = _state["job"].write(plan, split, index, _state["tokenizer"])
    return info
