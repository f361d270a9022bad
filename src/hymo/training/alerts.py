"""Telling somebody outside of what a person should look at: a web hook or a command, called beside the training.

`run.alert` is an http(s) address that JSON is posted to, or a shell command that reads it from stdin; `env:NAME` takes
either from the environment, since an address may be a secret. What is sent has `text` (one line), `run`, `kind`,
`host`, `ts` and the event's own fields. Delivery never holds the run up, and its failure is told once.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Mapping
from typing import Any

from hymo.core.errors import UsageError
from hymo.training.follow import plain_line

TOLD = frozenset(
    ("failed", "skip", "spike", "rewind", "checkpoint_failed", "damaged_checkpoint", "interrupted", "verdict", "stop")
)
"""Events that are passed on."""
_FROM_ENVIRONMENT = "env:"
_QUIET_SECONDS = 60.0
"""Time in which a second event of the same kind is not passed on."""
_TIMEOUT = 10.0


def resolved(target: str) -> str:
    """What `run.alert` stands for.

    Raises:
        UsageError: it names a variable that is not set.
    """
    if not target.startswith(_FROM_ENVIRONMENT):
        return target
    name = target.removeprefix(_FROM_ENVIRONMENT)
    value = os.environ.get(name, "")
    if not value:
        raise UsageError(f"run.alert: the environment variable {name} is not set. Set it to an address or a command.")
    return value


class Alerts:
    """A callback that passes events on, in a thread of its own.

    Args:
        target: an http(s) address, a shell command, or `env:NAME`.
        run: name of the run.
    """

    def __init__(self, target: str, run: str) -> None:
        self._target, self._run = resolved(target), run
        self._queue: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._last: dict[str, float] = {}
        self._failed = False
        self._thread = threading.Thread(target=self._deliver, name="alerts", daemon=True)
        self._thread.start()

    def on_metrics(self, record: Mapping[str, Any]) -> None:
        """Numbers are no reason to call anybody."""

    def on_event(self, kind: str, fields: Mapping[str, Any]) -> None:
        """Pass an event on, unless one of its kind was a moment ago."""
        now = time.monotonic()
        if kind not in TOLD or now - self._last.get(kind, -_QUIET_SECONDS) < _QUIET_SECONDS:
            return
        self._last[kind] = now
        facts = {"text": f"{self._run}: {plain_line({'kind': kind, **fields}, 0)}", "run": self._run, "kind": kind}
        self._queue.put(
            json.dumps({**facts, "host": socket.gethostname(), "ts": time.time(), **fields}, default=str).encode()
        )

    def close(self) -> None:
        """Wait a moment for what is on its way."""
        self._queue.put(None)
        self._thread.join(2 * _TIMEOUT)

    def _deliver(self) -> None:
        while (message := self._queue.get()) is not None:
            try:
                self._send(message)
            except Exception as error:
                if not self._failed:  # the target may hold a secret, so that it is not named
                    with contextlib.suppress(OSError):
                        print(f"run.alert: not delivered ({type(error).__name__})", file=sys.stderr)
                self._failed = True

    def _send(self, message: bytes) -> None:
        if self._target.startswith(("http://", "https://")):
            request = urllib.request.Request(self._target, message, {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=_TIMEOUT):
                return
        subprocess.run(self._target, shell=True, input=message, timeout=_TIMEOUT, check=True, stdout=subprocess.DEVNULL)
