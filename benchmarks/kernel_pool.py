"""Checks of `benchmarks/kernels.py parity` over several processes: what takes their time is compiling, on the host."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any

Row = dict[str, Any]


@dataclass(frozen=True)
class Check:
    """One row of the parity table."""

    op: str
    case: str
    run: Callable[[], Row]
    """Gives the row: rel_err by tensor, bound, and what else is worth knowing."""
    group: str = ""
    """Checks of one group compile the same kernels: the first of them compiles for the others."""
    large: bool = False
    """Whether it takes so much memory that no other large one may run at the same time."""


def inside(row: Row) -> bool:
    """Whether a check was made and every error, none of them NaN, is under its bound."""
    return bool(row["rel_err"]) and all(error < row["bound"] for error in row["rel_err"].values())


@dataclass
class _Worker:
    number: int
    process: Any
    pipe: Connection
    busy: int | None = None
    """Index of the check it has, None while it has none."""
    ready: bool = False
    idle: bool = False


@dataclass
class _Queue:
    """Which check comes next: large ones early, then what compiles something new, then what is compiled."""

    checks: Sequence[Check]
    waiting: list[int]
    started: set[str] = field(default_factory=set)
    compiled: set[str] = field(default_factory=set)

    def take(self, running: list[int]) -> int | None:
        """Index of the next one beside those that are running, or None if none may run now."""
        crowded = any(self.checks[i].large for i in running)
        open_ = [i for i in self.waiting if not (crowded and self.checks[i].large)]

        def rank(i: int) -> int:
            check = self.checks[i]
            if check.large:
                return 0
            return 1 if check.group not in self.started else 2 if check.group in self.compiled else 3

        if not open_:
            return None
        best = min(open_, key=rank)
        self.waiting.remove(best)
        self.started.add(self.checks[best].group)
        return best


def run_checks(
    make: Callable[..., Sequence[Check]],
    arguments: tuple[Any, ...],
    jobs: int,
    report: Callable[[int, Row], None] = lambda index, row: None,
) -> list[Row]:
    """Rows of all checks in their order, from `jobs` processes.

    A check that raises, or whose process dies, has a row without errors that says so under "failed"; another process
    goes on in the place of that one.

    Args:
        make: gives the checks, the same ones in every process; a function of a module.
        arguments: what it is called with.
        jobs: processes.
        report: called with the index and the row of each check as it ends.
    """
    checks = make(*arguments)
    queue = _Queue(checks, list(range(len(checks))))
    rows: dict[int, Row] = {}
    context = multiprocessing.get_context("spawn")
    workers: list[_Worker] = []
    started = 0

    def start() -> None:
        nonlocal started
        started += 1
        ours, theirs = context.Pipe()
        process = context.Process(target=_work, args=(theirs, make, arguments), daemon=True)
        process.start()
        theirs.close()
        workers.append(_Worker(started, process, ours))

    def finish(index: int, row: Row) -> None:
        check = checks[index]
        rows[index] = {"op": check.op, "case": check.case, **row}
        report(index, rows[index])

    def missing(index: int, why: str) -> None:
        finish(index, {"rel_err": {}, "bound": 0.0, "failed": why})

    def gone(worker: _Worker) -> None:
        worker.process.join()
        workers.remove(worker)
        ended = f"process {worker.number} ended with exit code {worker.process.exitcode}"
        if worker.busy is not None:
            missing(worker.busy, ended)
        elif not worker.ready:
            print(f"{ended} before its first check", flush=True)
            return  # the next one would end likewise
        if queue.waiting:
            start()

    for _ in range(min(jobs, len(checks))):
        start()
    while workers:
        for pipe in wait([worker.pipe for worker in workers]):
            worker = next(w for w in workers if w.pipe is pipe)
            try:
                message = worker.pipe.recv()
            except (EOFError, OSError):
                gone(worker)
                continue
            worker.ready, worker.idle = True, True
            if message is not None:
                index, row = message
                worker.busy = None
                queue.compiled.add(checks[index].group)
                finish(index, row)
                worker.idle = "failed" not in row  # such a process ends, since its device may be in no state to go on
        for worker in [w for w in workers if w.idle]:
            running = [w.busy for w in workers if w.busy is not None]
            index_or_none = queue.take(running)
            if index_or_none is None and queue.waiting:
                continue
            worker.idle, worker.busy = False, index_or_none
            try:
                worker.pipe.send(index_or_none)
            except OSError:
                continue  # it has ended, which the next wait says
    for index in queue.waiting:
        missing(index, "no process was left")
    return [rows[index] for index in range(len(checks))]


def _work(pipe: Connection, make: Callable[..., Sequence[Check]], arguments: tuple[Any, ...]) -> None:
    """Run checks by index until told None."""
    checks = make(*arguments)
    pipe.send(None)
    while (index := pipe.recv()) is not None:
        begun = time.perf_counter()
        try:
            row = checks[index].run()
        except Exception as error:
            row = {"rel_err": {}, "bound": 0.0, "failed": f"{type(error).__name__}: {error}"[:300]}
        row["seconds"] = round(time.perf_counter() - begun, 2)
        pipe.send((index, row))
        if "failed" in row:
            pipe.close()
            os._exit(1)  # not by way of the device, which may hang
