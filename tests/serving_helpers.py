"""A server on a loopback address inside the test's process."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from hymo.inference import Engine
from hymo.inference.serving.app import Settings, create_app
from hymo.inference.serving.run import address, listen


class Served:
    """A running server."""

    def __init__(self, engine: Engine, settings: Settings) -> None:
        self.engine, self.settings = engine, settings
        self.reports: list[str] = []
        self._bound = listen("127.0.0.1", 0)
        self.url = address(self._bound)
        self.port = int(self._bound.getsockname()[1])
        self.app = create_app(engine, settings, self.reports.append)
        config = uvicorn.Config(
            self.app, log_config=None, access_log=False, lifespan="on", timeout_graceful_shutdown=20
        )
        self.server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self._bound]}, daemon=True)

    def start(self) -> None:
        self._thread.start()
        while not self.server.started:
            time.sleep(0.01)

    def stop(self) -> None:
        self.server.should_exit = True
        self._thread.join(30)
        assert not self._thread.is_alive()

    def request(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, dict[str, str], bytes]:
        """One request over a connection of its own; a body that is no bytes is sent as JSON."""
        import http.client

        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        sent = {"Content-Type": "application/json"} if data is not None else {}
        connection.request(method, path, data, {**sent, **{k.replace("_", "-"): v for k, v in headers.items()}})
        answer = connection.getresponse()
        found = answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
        connection.close()
        return found

    def complete(self, **body: Any) -> dict[str, Any]:
        status, _, data = self.request("POST", "/v1/completions", body)
        assert status == 200, data
        answer: dict[str, Any] = json.loads(data)
        return answer

    def open(self, **body: Any) -> socket.socket:
        """A connection on which a completion was asked for and nothing read."""
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        data = json.dumps(body).encode()
        head = (
            f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(data)}"
        )
        connection.sendall(head.encode() + b"\r\n\r\n" + data)
        return connection

    def load(self) -> tuple[int, int]:
        """Texts under way, requests that wait."""
        facts = json.loads(self.request("GET", "/health")[2])
        return facts["active"], facts["waiting"]

    def becomes(self, active: int, waiting: int, seconds: float = 20) -> None:
        """Wait for a load."""
        until = time.monotonic() + seconds
        while self.load() != (active, waiting):
            assert time.monotonic() < until, self.load()
            time.sleep(0.02)

    def metric(self, name: str) -> float:
        for line in self.request("GET", "/metrics")[2].decode().splitlines():
            if line.startswith(name + " "):
                return float(line.split()[1])
        return 0.0


@contextmanager
def serving(engine: Engine, **settings: Any) -> Iterator[Served]:
    served = Served(engine, Settings(**{"model": "tiny", **settings}))
    served.start()
    try:
        yield served
    finally:
        served.stop()
