"""The thread that runs the model, and what the event loop hands it and gets from it."""

from __future__ import annotations

import asyncio
import threading
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from hymo.core.errors import HymoError
from hymo.inference.choice import Choice, Job
from hymo.inference.request import Chunk, Request
from hymo.inference.scheduler import Scheduler
from hymo.inference.serving.metrics import Metrics


class QueueFull(Exception):  # noqa: N818 - a state, not a fault
    """Too many requests wait already."""


@dataclass(frozen=True)
class Update:
    """News of one continuation."""

    job: int
    """Which of the ticket's requests it belongs to."""
    choice: Choice
    chunk: Chunk
    finished: bool


class Failed(Exception):  # noqa: N818 - what a ticket's reader gets
    """The model failed while it worked on the ticket."""


@dataclass
class Ticket:
    """Requests of one client that are under way together."""

    jobs: list[Job] = field(default_factory=list)
    updates: asyncio.Queue[Update | Failed] = field(default_factory=asyncio.Queue)
    open: int = 0
    """Continuations that have not ended."""
    cancelled: bool = False

    async def next(self) -> Update:
        """The next news.

        Raises:
            Failed: there will be none.
        """
        update = await self.updates.get()
        if isinstance(update, Failed):
            raise update
        return update


class Worker:
    """Steps a scheduler in a thread of its own. All other methods belong to the event loop's thread.

    Args:
        make_scheduler: makes the scheduler, also a new one after a failure.
        max_waiting: most requests that wait for a row.
        metrics: told what happens.
        report: takes a line for the log.
    """

    def __init__(
        self, make_scheduler: Callable[[], Scheduler], max_waiting: int, metrics: Metrics, report: Callable[[str], None]
    ) -> None:
        self._make, self._report = make_scheduler, report
        self.scheduler = make_scheduler()
        self.max_waiting = max_waiting
        self._metrics = metrics
        self._inbox: list[Callable[[], None]] = []
        self._arriving = 0
        self._wake = threading.Condition()
        self._stopping = False
        self._broken = False
        """Whether the model failed and no scheduler can be made any more."""
        self._owners: dict[Job, tuple[Ticket, int]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="model", daemon=True)

    def start(self) -> None:
        """Begin to work for the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def stop(self) -> None:
        """End what runs and wait for the thread."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        if self._thread.is_alive():
            self._thread.join()

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive() and not self._broken

    @property
    def waiting(self) -> int:
        """Requests that have no row yet."""
        return self._arriving + len(self.scheduler.waiting)

    def submit(self, requests: Sequence[Request]) -> Ticket:
        """Queue the requests of one client, all or none.

        Raises:
            UsageError: one of them cannot be done.
            QueueFull: there is no room for them to wait in.
            Failed: the model failed for good.
        """
        for request in requests:
            self.scheduler.check(request)
        if self._broken:
            raise Failed("it cannot be started again. Restart the server; its log says why.")
        if self.waiting + len(requests) > self.max_waiting:
            raise QueueFull
        ticket = Ticket(open=sum(request.n for request in requests))
        with self._wake:
            self._arriving += len(requests)
        self._send(lambda: self._accept(ticket, requests))
        return ticket

    def cancel(self, ticket: Ticket) -> None:
        """End a ticket's requests where they are; its rows are free before the next pass."""
        if not ticket.cancelled:
            ticket.cancelled = True
            self._send(lambda: self._drop(ticket))

    def _send(self, action: Callable[[], None]) -> None:
        with self._wake:
            self._inbox.append(action)
            self._wake.notify()

    # What follows runs in the worker's thread.

    def _accept(self, ticket: Ticket, requests: Sequence[Request]) -> None:
        with self._wake:
            self._arriving -= len(requests)
        if ticket.cancelled:
            return
        if self._broken:
            self._deliver([(ticket, Failed("it cannot be started again"))])
            return
        for place, request in enumerate(requests):
            job = self.scheduler.submit(request)
            ticket.jobs.append(job)
            self._owners[job] = ticket, place

    def _drop(self, ticket: Ticket) -> None:
        for job in ticket.jobs:
            if self._owners.pop(job, None) is not None:
                self.scheduler.cancel(job)

    @property
    def _busy(self) -> bool:
        return not self._broken and not self.scheduler.idle

    def _run(self) -> None:
        while True:
            with self._wake:
                while not (self._inbox or self._stopping or self._busy):
                    self._wake.wait()
                inbox, self._inbox = self._inbox, []
                if self._stopping:
                    return
            try:
                while inbox:
                    inbox.pop(0)()
                if self._busy:
                    self._deliver(self._step())
                self._metrics.load(self.scheduler.active, len(self.scheduler.waiting), self.scheduler.bytes_used)
            except Exception as error:
                with self._wake:
                    self._inbox[:0] = inbox
                self._fail(error)

    def _step(self) -> list[tuple[Ticket, Update]]:
        news = []
        grown = self.scheduler.step()
        for choice in grown:
            owner = self._owners.get(choice.job)
            if owner is None:
                continue
            ticket, place = owner
            chunk = choice.take()
            if chunk.text or chunk.tokens or choice.finished:
                news.append((ticket, Update(place, choice, chunk, choice.finished)))
        for choice in grown:  # only now: several of a job may have ended in this pass
            if choice.job.finished:
                self._owners.pop(choice.job, None)
        return news

    def _deliver(self, news: Sequence[tuple[Ticket, Update | Failed]]) -> None:
        if news and self._loop is not None:
            try:
                self._loop.call_soon_threadsafe(_put, news)
            except RuntimeError:  # the loop has ended: nobody is there to hear it
                self._owners.clear()

    def _fail(self, error: Exception) -> None:
        """Tell everybody who waits, and go on with an empty scheduler, or refuse everything if there cannot be one."""
        self._report(f"error: the model failed: {error if isinstance(error, HymoError) else traceback.format_exc()}")
        tickets = {id(ticket): ticket for ticket, _ in self._owners.values()}
        self._owners.clear()
        self._deliver([(ticket, Failed(str(error))) for ticket in tickets.values()])
        try:
            self.scheduler = self._make()
        except Exception:  # a device that failed for good: each further call of it fails too
            self._broken = True
            self._report(f"error: the model cannot be started again: {traceback.format_exc()}")


def _put(news: Sequence[tuple[Ticket, Update | Failed]]) -> None:
    for ticket, update in news:
        ticket.updates.put_nowait(update)
