"""Signs of life, stacks of what hangs, and what a run without memory is told."""

from __future__ import annotations

import errno
import faulthandler
import json
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from hymo.core.config import HyMoConfig
from hymo.core.errors import TrainingError
from hymo.core.load import config_hash, derive_config, load_config
from hymo.core.memory import training_memory
from hymo.training.heartbeat import Pulse, heartbeat
from hymo.training.out_of_memory import advice, explain, memory_explained
from hymo.training.run import open_run, run_folder


def wait(done: Callable[[], bool]) -> None:
    until = time.monotonic() + 30
    while not done():
        assert time.monotonic() < until
        time.sleep(0.01)


def beat(folder: Path) -> dict[str, Any]:
    path = folder / "heartbeat.json"
    return json.loads(path.read_text()) if path.exists() else {}


def test_the_file_says_where_the_run_is(tmp_path: Path) -> None:
    step = 3
    with heartbeat(tmp_path, lambda: step, None, every=0.02):
        wait(lambda: beat(tmp_path).get("same_step_s", 0) >= 0.2)
        said = beat(tmp_path)
        assert (said["pid"], said["host"], said["step"]) == (os.getpid(), socket.gethostname(), 3)
        assert abs(said["ts"] - time.time()) < 30
        step = 4
        wait(lambda: beat(tmp_path)["step"] == 4)
        assert (tmp_path / "stacks.txt").read_text() == ""


def test_a_step_that_does_not_end_leaves_its_stacks(tmp_path: Path) -> None:
    def hang_here() -> None:
        wait(lambda: "hang_here" in (tmp_path / "stacks.txt").read_text())

    with heartbeat(tmp_path, lambda: 0, 0.1 / 60, every=0.02):
        hang_here()
    said = (tmp_path / "stacks.txt").read_text()
    assert said.startswith("Timeout (")
    assert said.count("Timeout (") == 1  # once for a step, not at each beat


def test_a_full_disk_keeps_no_run_that_hangs(tmp_path: Path) -> None:
    def write(text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    told: list[str] = []
    ended = threading.Event()
    with (tmp_path / "stacks.txt").open("w", encoding="utf-8") as stacks:
        full = SimpleNamespace(write=write, flush=stacks.flush, fileno=stacks.fileno)
        pulse = Pulse(tmp_path / "heartbeat.json", lambda: 7, full, 0.01, 0.02, told.append)  # type: ignore[arg-type]
        thread = threading.Thread(target=pulse.run, args=(ended,))
        thread.start()
        try:
            wait(lambda: bool(told) or not thread.is_alive())
        finally:
            ended.set()
            thread.join()
            faulthandler.cancel_dump_traceback_later()
    assert [text.split(" for ")[0] for text in told] == ["no step after step 7"]


def test_a_run_that_goes_on_leaves_none(tmp_path: Path) -> None:
    began = time.monotonic()
    with heartbeat(tmp_path, lambda: int(50 * (time.monotonic() - began)), 0.4 / 60, every=0.02):
        time.sleep(1)
    assert (tmp_path / "stacks.txt").read_text() == ""


def test_sigusr1_shows_the_stacks_and_ends_nothing(small: HyMoConfig) -> None:
    config = derive_config(small, scheduler={"total_steps": 2})
    with open_run(config) as trainer:
        os.kill(os.getpid(), signal.SIGUSR1)
        result = trainer.train()
    assert (result.step, result.exit_code) == (2, 0)
    said = (run_folder(config) / "stacks.txt").read_text()
    assert "test_sigusr1_shows_the_stacks" in said
    assert beat(run_folder(config))["step"] == 2
    assert signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL


def test_when_it_looks_decides_no_result(small: HyMoConfig) -> None:
    assert config_hash(derive_config(small, training={"hang_minutes": None})) == config_hash(small)


CUDA = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
CPU = RuntimeError("[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory: you tried to ...")


@pytest.mark.parametrize("error", [CUDA, CPU, MemoryError()], ids=["cuda", "cpu", "python"])
def test_a_run_without_memory_says_what_to_lower(
    small: HyMoConfig, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def full(*_: object, **__: object) -> None:
        raise error

    with open_run(small) as trainer:
        monkeypatch.setattr(trainer.copy.model, "loss_sums", full)
        with pytest.raises(TrainingError, match=r"out of memory on cpu\. By plan the run needs ") as caught:
            trainer.train()
    said = str(caught.value)
    assert said.endswith(
        "Lower training.micro_batch_size to 1 with training.grad_accum_steps=4, which trains on the same batches."
    )


def test_what_is_needed_is_the_plans_largest_first() -> None:
    config = load_config("hymo_750m")
    for gpu in (False, True):
        figures = [int(size.replace(",", "")) for size in re.findall(r"([\d,]+) MiB", explain(config, gpu))]
        assert figures == sorted(figures, reverse=True)
        assert sum(figures) == pytest.approx(training_memory(config, on_gpu=gpu).total / 2**20, rel=1e-4)


def test_other_errors_stay_what_they_are() -> None:
    config = load_config("hymo_tiny")
    for error in (RuntimeError("shapes differ"), ValueError("x")):
        with pytest.raises(type(error), match=str(error)), memory_explained(config, torch.device("cpu")):
            raise error


@pytest.mark.parametrize(
    ("ranks", "training", "says"),
    [
        (1, {"micro_batch_size": 5}, "Lower training.micro_batch_size to 2."),
        (1, {"micro_batch_size": 1}, "Set training.activation_checkpointing=full"),
        (1, {"micro_batch_size": 1, "activation_checkpointing": "full"}, "Lower training.seq_len"),
        # One pass a step: in two, the sum of its gradients would take more than half the activations leave.
        (8, {"micro_batch_size": 2, "activation_checkpointing": "full", "dp_size": 8, "seq_len": 64},
         "Set training.reshard_after_forward=true"),
        (8, {"micro_batch_size": 1, "activation_checkpointing": "full", "reshard_after_forward": True, "dp_size": 8},
         "Lower training.seq_len"),
    ],
)  # fmt: skip
def test_the_setting_to_lower(monkeypatch: pytest.MonkeyPatch, ranks: int, training: dict[str, Any], says: str) -> None:
    monkeypatch.setattr("hymo.training.out_of_memory.launched_ranks", lambda: ranks)
    config = derive_config(load_config("hymo_tiny"), training={"grad_accum_steps": 1, **training})
    assert advice(config, on_gpu=False).startswith(says)
