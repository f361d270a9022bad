"""The command `hymo` as one rank, and what can go wrong in it: for `test_ranks_faults.py` and under torchrun."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any


def command(rank: int, words: list[str], said: Path, fault: str = "") -> None:
    """Run `hymo WORDS` with a fault; what it writes goes to the file `said`-RANK."""
    with open(f"{said}-{rank}", "ab") as log:
        for descriptor in (1, 2):
            os.dup2(log.fileno(), descriptor)
    from hymo.cli import main
    from hymo.training import failures

    failures.GRACE_SECONDS = 2.0
    install(fault, rank)
    try:
        code = main(words)
    except Exception:
        traceback.print_exc()
        code = 1
    sys.stderr.flush()
    sys.exit(code)


def install(fault: str, rank: int) -> None:
    """Make something go wrong in this process, or take long."""
    from hymo.data.loader import Batch, PackedLoader
    from hymo.evaluation import perplexity
    from hymo.training import checkpointer, heartbeat
    from hymo.training.trainer import Trainer

    kind, _, at = fault.partition("@")

    def before(owner: Any, name: str, do: Callable[..., None]) -> None:
        original = getattr(owner, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            do(*args)
            return original(*args, **kwargs)

        setattr(owner, name, call)

    def in_step(trainer: Trainer, *_: Any) -> None:
        if trainer.step + 1 != int(at) or rank != 1:
            return
        if kind == "raise":
            raise ValueError("boom")
        if kind == "memory":
            raise MemoryError
        if kind == "hang":
            time.sleep(600)
        if kind == "die":
            os.kill(os.getpid(), signal.SIGKILL)

    if kind == "stall":  # whoever it is
        before(Trainer, "take_step", lambda trainer, *_: time.sleep(600 if trainer.step + 1 == int(at) else 0))
    if kind == "freeze":  # foreign code that keeps Python's lock
        sleep, heartbeat._SLACK_SECONDS = ctypes.PyDLL(None).sleep, 0.5
        before(Trainer, "take_step", lambda trainer, *_: sleep(600) if trainer.step + 1 == int(at) else None)
    if kind == "late" and rank == 1:  # with what it reads back
        from hymo.training import preflight

        before(preflight, "_flat", lambda *given: time.sleep(0.4 if len(given) == 1 else 0))  # not for what is nested
    if kind in ("raise", "memory", "hang", "die"):
        before(Trainer, "take_step", in_step)
    if kind == "poison":  # the batch at a place in the order is of bytes that no text has
        batch_at = PackedLoader.batch_at

        def poisoned(loader: PackedLoader, step: int, **place: int) -> Batch:
            batch = batch_at(loader, step, **place)
            if step == int(at):
                batch["tokens"] = 200 + batch["tokens"] % 50
            return batch

        PackedLoader.batch_at = poisoned  # type: ignore[method-assign]
    if kind == "slow_first":
        before(Trainer, "take_step", lambda trainer, *_: time.sleep(1.5 if trainer.step == 0 else 0.0))
    if kind == "slow_eval":
        before(perplexity, "_score", lambda *_: time.sleep(0.4))
    if kind == "slow_save":
        before(checkpointer, "dcp_save", lambda *_: time.sleep(1.5))


if __name__ == "__main__":  # under torchrun: FAULT on the first start only
    from hymo.cli import main

    if os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0" and "FAULT" in os.environ:
        install(os.environ["FAULT"], int(os.environ["RANK"]))
    sys.exit(main(sys.argv[1:]))
