"""An endpoint that tells how a rank is: `/health` for whoever restarts it, `/metrics` for Prometheus.

It listens on 127.0.0.1 unless `run.health_host` says otherwise, takes GET alone and answers from memory: nothing that
asks can hold up or change the run.
"""

from __future__ import annotations

import json
import math
import re
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from hymo.core.errors import UsageError

PREFIX = "hymo_"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_TIMEOUT = 5.0


class Recorder:
    """A callback that keeps the newest value of every number, and counts events."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[str, float] = {}
        self._events: dict[str, int] = {}

    def on_metrics(self, record: Mapping[str, Any]) -> None:
        """Keep what is a number."""
        found = {k: float(v) for k, v in record.items() if isinstance(v, int | float) and k not in ("step", "tokens")}
        if record.get("split") == "train":
            found["tokens"] = float(record["tokens"])
        with self._lock:
            self._values |= found

    def on_event(self, kind: str, fields: Mapping[str, Any]) -> None:
        """Count it."""
        with self._lock:
            self._events[kind] = self._events.get(kind, 0) + 1

    def take(self) -> tuple[dict[str, float], dict[str, int]]:
        """Newest values by name of the metric, and numbers of events by kind."""
        with self._lock:
            return dict(self._values), dict(self._events)


def exposition(facts: Mapping[str, Any], recorder: Recorder, labels: Mapping[str, str]) -> str:
    """Everything as Prometheus text: gauges, a last part of a name that is a layer as a label, and counts of events.

    Args:
        facts: `Pulse.facts()`.
        recorder: of the run's metrics.
        labels: that every sample carries.
    """
    values, events = recorder.take()
    samples: dict[str, list[tuple[dict[str, str], float]]] = {
        "step": [({}, float(facts["step"]))],
        "same_step_seconds": [({}, float(facts["same_step_s"]))],
        "hangs": [({}, float(facts["hangs"]))],
    }
    for name, value in sorted(values.items()):
        head, _, last = name.rpartition("/")
        layer = {"layer": last} if last.isdigit() else {}
        samples.setdefault(re.sub(r"\W", "_", head if layer else name), []).append((layer, value))
    lines = []
    for name, found in samples.items():
        lines.append(f"# TYPE {PREFIX}{name} gauge")
        lines += [_sample(f"{PREFIX}{name}", {**labels, **more}, value) for more, value in found]
    lines.append(f"# TYPE {PREFIX}events_total counter")
    lines += [_sample(f"{PREFIX}events_total", {**labels, "kind": kind}, n) for kind, n in sorted(events.items())]
    return "\n".join(lines) + "\n"


def _sample(name: str, labels: Mapping[str, str], value: float) -> str:
    quoted = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
    number = repr(value) if math.isfinite(value) else {math.inf: "+Inf", -math.inf: "-Inf"}.get(value, "NaN")
    return f"{name}{{{quoted}}} {number}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


@contextmanager
def _explained(host: str, port: int) -> Iterator[None]:
    try:
        yield
    except (OSError, OverflowError) as error:
        raise UsageError(
            f"run.health_port: nobody can listen on {host}:{port} ({error}). Choose another port, or null."
        ) from None


def require_port(host: str, port: int) -> None:
    """Raise UsageError if nobody could listen there now: asked before anything is built or written."""
    with _explained(host, port), socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server does
        tried.bind((host, port))
        tried.listen()


@contextmanager
def endpoint(
    host: str, port: int, facts: Callable[[], dict[str, Any]], recorder: Recorder, labels: Mapping[str, str]
) -> Iterator[int]:
    """Answer while the block runs; yields the port.

    Args:
        host: address to listen on.
        port: to listen on; 0 takes a free one.
        facts: `Pulse.facts`.
        recorder: of the run's metrics.
        labels: of every sample.

    Raises:
        UsageError: nobody can listen there.
    """

    class Handler(BaseHTTPRequestHandler):
        timeout = _TIMEOUT

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            found = facts()
            if path == "/health":
                body = json.dumps({"ok": not found["hangs"], **labels, **found}).encode()
                self._answer(503 if found["hangs"] else 200, "application/json", body)
            elif path == "/metrics":
                self._answer(200, CONTENT_TYPE, exposition(found, recorder, labels).encode())
            else:
                self._answer(404, "text/plain; charset=utf-8", b"GET /health or /metrics\n")

        def _answer(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Who asks is no news."""

    with _explained(host, port):
        server = ThreadingHTTPServer((host, port), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, name="health", daemon=True)
    thread.start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
