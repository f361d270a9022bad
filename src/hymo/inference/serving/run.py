"""Running the application until a signal ends it."""

from __future__ import annotations

import socket
from collections.abc import Callable

import uvicorn

from hymo.core.errors import UsageError
from hymo.inference.engine import Engine
from hymo.inference.serving.app import Settings, create_app


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes any free one.

    Raises:
        UsageError: the address cannot be used.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        bound.listen(1024)
    except (OSError, OverflowError) as error:
        bound.close()
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"{host}:{port}: cannot listen there ({reason}). Choose another --host or --port.") from None
    return bound


def address(bound: socket.socket) -> str:
    """Where a browser finds what listens there."""
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def serve(
    engine: Engine, settings: Settings, bound: socket.socket, drain_seconds: int, report: Callable[[str], None]
) -> None:
    """Serve until SIGINT or SIGTERM. Then no connection is taken any more, and requests under way are finished.

    The signal is raised again at the end, so that the process ends as one that it ended.
    """
    config = uvicorn.Config(
        create_app(engine, settings, report),
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=drain_seconds,
        server_header=False,
        lifespan="on",
        ws="none",
    )
    uvicorn.Server(config).run(sockets=[bound])
