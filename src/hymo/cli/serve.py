"""`hymo serve`: answer requests for continuations over HTTP."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Literal

from hymo.cli.output import log

KEY_VARIABLE = "HYMO_API_KEY"
"""Environment variable that holds the key, so that it need not stand on the command line."""


def serve(
    checkpoint: Path,
    /,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    name: str | None = None,
    slots: int = 16,
    token_budget: int | None = None,
    max_waiting: int = 256,
    max_body: int = 4 << 20,
    api_key: str | None = None,
    speculative: Literal["auto", "on", "off"] = "auto",
    dtype: Literal["float32", "float64", "bfloat16"] = "float32",
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto",
    drain_seconds: int = 30,
) -> None:
    """Serve a checkpoint: an OpenAI-compatible completions API, and a playground page for a browser.

    Ctrl-C or SIGTERM: no new request is taken, those under way are finished.

    Args:
        checkpoint: Checkpoint folder, run folder (its newest whole checkpoint), or `demo`, which hymo brings along.
        host: Address to listen at; the default is reached from this machine alone.
        port: Port to listen at; 0 takes a free one and says which.
        name: What the model is called in the API; the folder's name unless given.
        slots: Most continuations at once.
        token_budget: Most tokens of all continuations together; full contexts for all slots unless given.
        max_waiting: Most requests that wait for a slot; more are answered with 429.
        max_body: Most bytes of a request; more are answered with 413.
        api_key: Bearer token that clients must send, not empty; that of the variable HYMO_API_KEY unless given.
        speculative: Draft with the prediction heads where it is faster, always, or never; the text is the same.
        dtype: What to compute in. In float64 a text does not depend on the load at all.
        device: Where to run.
        drain_seconds: Longest time to finish requests after a signal.
    """
    from hymo.core.errors import UsageError

    for package in ("starlette", "uvicorn", "prometheus_client"):
        if importlib.util.find_spec(package) is None:
            raise UsageError(f"serving needs the package {package}: pip install 'hymo[serve]'")
    from hymo.inference import Engine
    from hymo.inference.serving.app import Settings
    from hymo.inference.serving.run import address, listen
    from hymo.inference.serving.run import serve as run
    from hymo.training.device import resolve_device

    for option, value in (("--max-waiting", max_waiting), ("--max-body", max_body), ("--drain-seconds", drain_seconds)):
        if value < 1:
            raise UsageError(f"{option}: must be at least 1, not {value}.")
    key = api_key if api_key is not None else os.environ.get(KEY_VARIABLE)
    if key is not None and (not key.strip() or key != key.strip()):  # of `--api-key "$UNSET"` no open server shall come
        source = "--api-key" if api_key is not None else KEY_VARIABLE
        raise UsageError(f"{source}: is empty or has blanks at its ends. Give a key, or leave it out to ask for none.")
    with listen(host, port) as bound:
        engine = Engine.from_checkpoint(checkpoint, str(resolve_device(device)), dtype)
        engine.settle()
        engine.scheduler(slots, token_budget)  # refuses wrong sizes before anybody connects
        called = name or checkpoint.resolve().name
        settings = Settings(
            called,
            slots,
            token_budget,
            max_waiting,
            max_body,
            api_key=key,
            speculative="auto" if speculative == "auto" else speculative == "on",
        )
        if key is None and host not in ("127.0.0.1", "::1", "localhost"):
            log("warning: reachable from other machines without a key. Set one with --api-key or HYMO_API_KEY.")
        log(f"serving {called} at {address(bound)} (playground), API at {address(bound)}/v1")
        run(engine, settings, bound, drain_seconds, log)
