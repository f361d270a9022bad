"""Stopping on request: the first signal asks, the second insists."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from hymo.training.ranks import Ranks

SIGNALS = (signal.SIGINT, signal.SIGTERM)
_SHOW_CURSOR = b"\x1b[?25h"


class Interrupted(KeyboardInterrupt):
    """A stop was asked for while waiting. Like Ctrl-C, so that whoever cleans up after that does."""


class _Stop:
    """A signal that asks for the end, once it is known."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def __call__(self) -> bool:
        """Whether a stop was asked for."""
        return self.signal is not None

    def agree(self) -> bool:
        """The same, asked where all processes of a run ask it; here there is one."""
        return self()

    @property
    def exit_code(self) -> int:
        """128 + signal: 130 for SIGINT, 143 for SIGTERM; 0 if none came."""
        return 0 if self.signal is None else 128 + self.signal


class StopRequest(_Stop):
    """Within its context, SIGINT and SIGTERM set a flag; a second signal acts as if nobody listened.

    Only the main thread can listen to signals. Elsewhere the context listens to none.
    """

    def __init__(self) -> None:
        super().__init__()
        self._waiting = False
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                self._previous[number] = signal.signal(number, self._ask)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """For a block of foreign code that may wait long: a signal ends it at once.

        Raises:
            Interrupted: a stop was asked for, before the block or in it.
        """
        self._waiting = True
        try:
            if self.signal is not None:
                raise Interrupted
            yield
        finally:
            self._waiting = False

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None:  # the second came before the first had taken its handlers away
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        self.signal = number
        # The second signal ends the process without a word, even where it hangs in foreign code: nothing can clean up
        # then, so a display that hid the cursor gives it back now.
        for descriptor in (1, 2):
            with suppress(OSError):
                if os.isatty(descriptor):
                    os.write(descriptor, _SHOW_CURSOR)
        for each in SIGNALS:
            signal.signal(each, signal.SIG_DFL)
        if self._waiting:
            self._waiting = False
            raise Interrupted


class AgreedStop(_Stop):
    """The stop request of several ranks: a signal that one of them heard counts once all have been told of it."""

    def __init__(self, heard: StopRequest, ranks: Ranks) -> None:
        super().__init__()
        self._heard, self._ranks = heard, ranks

    def agree(self) -> bool:
        """Ask all ranks, each of which calls this at the same place; whether any of them was asked to stop."""
        if self.signal is None:
            signals = [row[0] for row in self._ranks.exchange([self._heard.signal or 0])]
            self.signal = next((signal for signal in signals if signal), None)
        return self()
