"""The launcher that gives ranks time to save."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from torch.distributed.elastic.multiprocessing.api import PContext

from hymo.training.torchrun import GRACE_SECONDS, be_patient

SLOW = """
import pathlib, signal, sys, time
def save(*_):
    time.sleep(3)
    pathlib.Path(sys.argv[1]).write_text("saved")
    sys.exit(143)
signal.signal(signal.SIGTERM, save)
pathlib.Path(sys.argv[1]).write_text("begun")
time.sleep(60)
"""


def test_the_time_is_the_longer_of_both(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    monkeypatch.setattr(PContext, "close", lambda *args: told.append(args))
    be_patient()
    context: Any = object()
    PContext.close(context, signal.SIGTERM, 30)
    PContext.close(context, signal.SIGTERM, 2 * GRACE_SECONDS)
    PContext.close(context)
    assert told == [
        (context, signal.SIGTERM, GRACE_SECONDS),
        (context, signal.SIGTERM, 2 * GRACE_SECONDS),
        (context, None, GRACE_SECONDS),
    ]


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("launcher", "left"), [("torch.distributed.run", "begun"), ("hymo.training.torchrun", "saved")]
)
def test_a_rank_that_saves_is_waited_for(launcher: str, left: str, tmp_path: Path) -> None:
    """Both are told to wait one second; PyTorch's own then kills a save of three."""
    script, state = tmp_path / "slow.py", tmp_path / "state"
    script.write_text(SLOW)
    words = [sys.executable, "-m", launcher, "--standalone", "--nproc-per-node", "1"]
    words += ["--shutdown-timeout", "1", str(script), str(state)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(words, env=environment, stderr=subprocess.DEVNULL) as process:
        until = time.monotonic() + 60
        while not state.exists():
            assert time.monotonic() < until
            time.sleep(0.05)
        process.terminate()
        assert process.wait(30) != 0
    assert state.read_text() == left
