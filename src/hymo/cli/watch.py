"""`hymo watch`: a run as it goes, or as it went."""

from __future__ import annotations

import math
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from hymo.cli.output import log

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import RenderableType

    from hymo.training.follow import RunFollower

_GLANCE = 0.1
"""Longest time in seconds until a signal is noticed."""


def watch(
    run: Path,
    /,
    *,
    once: Annotated[bool, Parameter(negative="")] = False,
    interval: float = 1.0,
    price: float | None = None,
) -> int:
    """Show a run as it goes: a dashboard on a terminal, one line a record elsewhere. Leaves when the run has ended.

    Watching never touches the run; Ctrl-C ends the watching only. Exit code 1 if the run failed or its process is gone
    without having ended it, 130 after Ctrl-C, else 0.

    Args:
        run: Run folder.
        once: Show the present moment and leave.
        interval: Seconds between two looks.
        price: Price of one device-hour, for the cost so far.
    """
    from hymo.core.errors import UsageError
    from hymo.training.dashboard import plain_summary
    from hymo.training.follow import RunFollower

    if not interval > 0:
        raise UsageError(f"--interval {interval}: must be above 0 seconds.")
    if price is not None and not 0 <= price < math.inf:
        raise UsageError(f"--price {price}: must be a number of at least 0.")
    follower = RunFollower(run)
    if sys.stdout.isatty() and os.environ.get("TERM") != "dumb":
        if code := _live(follower, once, interval, price):
            return code
    elif once:
        follower.poll()
        print(plain_summary(follower, price))
    else:
        _lines(follower, interval)
    if follower.status == "lost":
        log(f"error: {follower.cure}")
    return 1 if follower.status in ("failed", "lost") else 0


def _lines(follower: RunFollower, interval: float) -> None:
    from hymo.training.follow import plain_line

    while True:
        for record in follower.poll():
            print(plain_line(record, follower.config.total_steps))
        sys.stdout.flush()
        if follower.ended:
            return
        time.sleep(interval)


def _live(follower: RunFollower, once: bool, interval: float, price: float | None) -> int:
    """Draw until the run ends or a signal comes; 0, or 128 + signal."""
    from rich.console import Console
    from rich.live import Live

    from hymo.training.dashboard import dashboard
    from hymo.training.stopping import StopRequest

    console = Console()

    def screen() -> RenderableType:
        return dashboard(follower, console.width, price)

    follower.poll()
    # An exception while the display starts or stops would leave the terminal without a cursor: signals only ask.
    with StopRequest() as stop, Live(screen(), console=console, auto_refresh=False) as live:
        while not (once or follower.ended or stop()):
            _sleep(interval, stop)
            follower.poll()
            live.update(screen(), refresh=True)
    return stop.exit_code


def _sleep(seconds: float, stop: Callable[[], bool]) -> None:
    until = time.monotonic() + seconds
    while not stop() and (left := until - time.monotonic()) > 0:
        time.sleep(min(left, _GLANCE))
