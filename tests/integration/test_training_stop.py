"""Signals while the run waits for data that somebody else's iterator does not give."""

from __future__ import annotations

import contextlib
import os
import pty
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
from hymo.training.metrics import read_jsonl
from hymo.training.run import run_folder
from hymo.training.stopping import Interrupted, StopRequest
from training_helpers import child


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
    with child([sys.executable, "-c", DEAF, path, tmp_path], stdout=subprocess.PIPE) as process:
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


def test_a_second_signal_while_the_first_is_handled_is_not_lost() -> None:
    """It comes before the handler has stepped back: here, in the middle of its own first call."""
    program = """
import os, signal
from hymo.training import stopping
def twice(number, handler, set_handler=signal.signal):
    stopping.signal.signal = set_handler
    os.kill(os.getpid(), signal.SIGTERM)
    return set_handler(number, handler)
with stopping.StopRequest():
    stopping.signal.signal = twice
    os.kill(os.getpid(), signal.SIGTERM)
    print("survived")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGTERM, "", "")


def test_a_trainer_outside_the_main_thread_trains_and_listens_to_no_signal(small: HyMoConfig, tmp_path: Path) -> None:
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    results: list[Any] = []
    config = derive_config(small, scheduler={"total_steps": 2})
    thread = threading.Thread(target=lambda: results.append(trainer(config, tmp_path, iter(batches(4))).train()))
    thread.start()
    thread.join(60)
    ((step, code),) = [(result.step, result.exit_code) for result in results]
    assert (step, code) == (2, 0)
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers
    assert find_checkpoint(tmp_path)[1].step == 2


SHOWING = """
import time
from hymo.training.metrics import read_jsonl
from hymo.training.run import run_folder
from hymo.training.stopping import StopRequest
from hymo.training.view import RunView
with RunView(10, "x"), StopRequest():
    print("ready", flush=True)
    time.sleep(60)
    time.sleep(60)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_leaves_the_terminal_its_cursor(number: signal.Signals) -> None:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm"}
    with child([sys.executable, "-c", SHOWING], stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        shown = b""
        while b"ready" not in shown:
            shown += os.read(ours, 4096)
        assert b"\x1b[?25l" in shown  # the live block has hidden it
        process.send_signal(number)
        while b"\x1b[?25h" not in shown:
            shown += os.read(ours, 4096)
        process.send_signal(number)
        assert process.wait(60) == -number
    with contextlib.suppress(OSError):  # the other end is closed
        while more := os.read(ours, 4096):
            shown += more
    os.close(ours)
    assert shown.rfind(b"\x1b[?25h") > shown.rfind(b"\x1b[?25l")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_hymo_train_ends_in_a_whole_checkpoint(
    small: HyMoConfig, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    """The whole command in a process of its own, with its loader, from the first signal to the exit code."""
    config = derive_config(small, scheduler={"total_steps": 5000}, training={"max_epochs": 1000, "eval_interval": 5000})
    config = derive_config(config, training={"checkpoint_interval": 5000})
    path, run = tmp_path / "c.yaml", run_folder(config)
    path.write_text(dump_config(config))
    command = [sys.executable, "-m", "hymo"]
    with child([*command, "train", path], stderr=subprocess.PIPE) as process:
        until = time.monotonic() + 120
        while not (trained := read_jsonl(run / "metrics.jsonl")) or trained[-1].get("step", 0) < 3:
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.02)
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
    assert process.returncode == code
    assert "Traceback" not in said
    ((step, got),) = [(e["step"], e["signal"]) for e in read_jsonl(run / "events.jsonl") if e["kind"] == "interrupted"]
    assert got == number
    assert 3 <= step < 5000
    assert find_checkpoint(run)[1].step == step
    done = subprocess.run([*command, "checkpoint", "verify", str(run)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.count(": whole")) == (0, 1)
