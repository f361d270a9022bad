"""A run that was interrupted, politely or not, ends exactly as one that was not."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from hymo.core.config import HyMoConfig
from hymo.core.load import derive_config, dump_config
from hymo.models.checkpoint import find_checkpoint
from hymo.training import Trainer
from hymo.training.metrics import read_jsonl, read_metrics
from hymo.training.run import open_run, run_folder

KEYS = ("train/loss", "train/mtp_1", "train/mtp_2", "train/grad_norm", "val/loss", "lr/matrix", "tokens")


def state_hash(trainer: Trainer) -> str:
    """Weights, router buffers, both optimizers' states and RNG, bit for bit."""
    digest = hashlib.sha256()

    def add(value: Any, path: str) -> None:
        if isinstance(value, dict):
            for key in sorted(value):
                add(value[key], f"{path}/{key}")
        else:
            digest.update(path.encode() + value.detach().cpu().contiguous().numpy().tobytes())

    add(trainer.state(), "")
    return digest.hexdigest()


def curve(config: HyMoConfig) -> dict[tuple[int, str], dict[str, Any]]:
    """What a run recorded, as if it had never been interrupted."""
    records = read_metrics(run_folder(config))
    return {(r["step"], r["split"]): {key: r.get(key) for key in KEYS} for r in records}


def run(config: HyMoConfig, until: int | None = None) -> str:
    with open_run(config) as trainer:
        if until is not None:
            stop_at(trainer, until)
        trainer.train()
        return state_hash(trainer)


def stop_at(trainer: Trainer, step: int) -> None:
    """Deliver a real SIGTERM to this process after `step`."""
    original = trainer._between_steps

    def between(stop: Any) -> None:
        original(stop)
        if trainer.step == step:
            os.kill(os.getpid(), signal.SIGTERM)

    trainer._between_steps = between  # type: ignore[method-assign]


@pytest.mark.parametrize("recurrence", ["gated_linear", "gated_delta"])
def test_sixty_steps_are_thirty_and_thirty(small: HyMoConfig, recurrence: str) -> None:
    config = derive_config(
        small,
        model={"gdn_recurrence": recurrence},
        scheduler={"total_steps": 60},
        training={"grad_accum_steps": 1, "eval_interval": 20, "checkpoint_interval": 50},
    )
    straight = derive_config(config, run={"name": "straight"})
    want = run(straight)
    run(config, until=30)
    torch.manual_seed(999)  # a resumed process starts with other RNG states: they must come from the checkpoint
    torch.rand(7)
    assert find_checkpoint(run_folder(config))[1].step == 30
    assert run(config) == want
    assert curve(config) == curve(straight)
    assert len(curve(config)) == 60 + 3


def killed_run(config: HyMoConfig, folder: Path, kills: int, seed: int) -> list[int]:
    """Train in processes of which `kills` are killed -9 at random steps; returns the steps at which it happened."""
    path = folder / "config.yaml"
    path.write_text(dump_config(config))
    rng, instants = random.Random(seed), []
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    total = config.total_steps
    while True:
        process = subprocess.Popen(
            [sys.executable, "-m", "hymo", "train", str(path)], env=environment, stderr=subprocess.PIPE, text=True
        )
        if len(instants) == kills:
            _, errors = process.communicate(timeout=240)
            assert process.returncode == 0, errors
            return instants
        done = len(read_jsonl(run_folder(config) / "metrics.jsonl"))
        target = done + rng.randint(1, max(2, total // (2 * kills)))
        while process.poll() is None and len(read_jsonl(run_folder(config) / "metrics.jsonl")) < target:
            time.sleep(0.005)
        time.sleep(rng.random() * 0.05)
        process.kill()
        assert process.wait() == -signal.SIGKILL  # it had not ended by itself
        assert process.stderr is not None
        process.stderr.close()
        recorded = read_jsonl(run_folder(config) / "metrics.jsonl")
        instants.append(recorded[-1]["step"] if recorded else 0)


def check_kills(small: HyMoConfig, tmp_path: Path, recurrence: str, kills: int, seed: int) -> None:
    config = derive_config(
        small,
        model={"gdn_recurrence": recurrence},
        scheduler={"total_steps": 14 * kills},
        training={"grad_accum_steps": 1, "eval_interval": 1000, "checkpoint_interval": 3, "keep_last": 3},
        run={"name": "killed"},
    )
    straight = derive_config(config, run={"name": "straight"})
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    want = run(straight)
    print(f"killed -9 at steps {killed_run(config, tmp_path, kills, seed)} of {config.total_steps} ({recurrence})")
    assert run(config) == want
    assert curve(config) == curve(straight)
    torch.set_num_threads(threads)


def test_five_kills_change_nothing(small: HyMoConfig, tmp_path: Path) -> None:
    check_kills(small, tmp_path, "gated_linear", kills=5, seed=1)


@pytest.mark.heavy
@pytest.mark.parametrize(("recurrence", "seed"), [("gated_linear", 2), ("gated_delta", 3)])
@pytest.mark.timeout(3000)
def test_many_kills_change_nothing(small: HyMoConfig, tmp_path: Path, recurrence: str, seed: int) -> None:
    check_kills(small, tmp_path, recurrence, kills=25, seed=seed)
