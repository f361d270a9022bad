"""Signals while the run waits for data that somebody else's iterator does not give."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hymo.core.config import HyMoConfig
from hymo.core.load import CHECKPOINTS, config_hash, derive_config, dump_config
from hymo.models.checkpoint import find_checkpoint
from hymo.training import Trainer
from hymo.training.checkpointer import Checkpointer
from hymo.training.stopping import Interrupted, StopRequest


def batches(count: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    return [{"tokens": rng.integers(3, 259, (2, 65))} for _ in range(count)]


def trainer(config: HyMoConfig, folder: Path, data: Any) -> Trainer:
    saver = Checkpointer(folder / CHECKPOINTS, dump_config(config), 2)
    return Trainer(config, data, checkpointer=saver, config_hash=config_hash(config))


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_blocked_iterator_hears_the_first_signal(
    small: HyMoConfig, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    """Three steps' worth of batches, then one of the two of the fourth step, then nothing for ever."""
    config = derive_config(small, training={"checkpoint_interval": 100})
    given = batches(7)
    waiting: queue.Queue[dict[str, Any]] = queue.Queue()
    for batch in given:
        waiting.put(batch)
    closed = threading.Event()

    def endless() -> Iterator[dict[str, Any]]:
        try:
            while True:
                if waiting.empty():
                    threading.Timer(0.1, os.kill, (os.getpid(), number)).start()
                yield waiting.get()
        finally:
            closed.set()

    result = trainer(config, tmp_path, endless()).train()
    assert (result.step, result.exit_code) == (3, code)
    assert closed.is_set()  # as after Ctrl-C: whoever cleans up, has
    assert find_checkpoint(tmp_path)[1].step == 3

    straight = trainer(config, tmp_path / "straight", iter(batches(24)))
    straight.train()
    resumed = trainer(config, tmp_path, iter(batches(24)))
    resumed.resume(tmp_path)
    resumed.train()
    for ours, theirs in zip(resumed.master.parameters(), straight.master.parameters(), strict=True):
        assert ours.equal(theirs)


DEAF = """
import os, signal, sys, threading, time
from pathlib import Path
import numpy as np
from hymo.core.load import CHECKPOINTS, config_hash, dump_config, load_config
from hymo.training import Trainer
from hymo.training.checkpointer import Checkpointer
config = load_config(sys.argv[1])
rng = np.random.default_rng(0)
def deaf():
    for _ in range(4):
        yield {"tokens": rng.integers(3, 259, (2, 65))}
    print("waiting", flush=True)
    while True:
        try:
            time.sleep(60)
        except BaseException:
            print("swallowed", flush=True)
saver = Checkpointer(Path(sys.argv[2]) / "checkpoints", dump_config(config), 2)
Trainer(config, deaf(), checkpointer=saver, config_hash=config_hash(config)).train()
"""


def test_a_second_signal_ends_even_an_iterator_that_swallows_the_first(small: HyMoConfig, tmp_path: Path) -> None:
    config = derive_config(small, training={"checkpoint_interval": 1})
    path = tmp_path / "c.yaml"
    path.write_text(dump_config(config))
    with subprocess.Popen([sys.executable, "-c", DEAF, path, tmp_path], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        while not (tmp_path / "checkpoints" / "step-00000002").exists():
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == "swallowed\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == -signal.SIGTERM
    assert find_checkpoint(tmp_path)[1].step == 2


def test_a_signal_between_the_look_and_the_wait_is_not_lost() -> None:
    with StopRequest() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop()
        with pytest.raises(Interrupted), stop.waiting():
            raise AssertionError("waited")
    with StopRequest() as stop:
        with stop.waiting():
            pass
        os.kill(os.getpid(), signal.SIGTERM)  # not waiting any more: only a flag
        assert stop.exit_code == 143
