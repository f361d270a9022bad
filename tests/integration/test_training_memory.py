"""Memory stays flat over steps, saves, evaluations and generations."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import torch

from hymo.core.config import HyMoConfig
from hymo.core.load import derive_config
from hymo.data import ByteTokenizer, EvaluationWindows, open_split
from hymo.evaluation.perplexity import evaluate
from hymo.inference import Engine, Sampling
from hymo.models.checkpoint import Manifest
from hymo.training.checkpointer import Checkpointer
from hymo.training.run import open_run


def resident() -> int:
    """Resident memory of this process in bytes."""
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_two_hundred_steps_need_no_more_than_sixty(small: HyMoConfig) -> None:
    config = derive_config(
        small,
        scheduler={"total_steps": 200},
        training={"grad_accum_steps": 1, "eval_interval": 50, "checkpoint_interval": 50, "log_interval": 10},
    )
    at: dict[int, int] = {}
    with open_run(config) as trainer:
        original = trainer.next_windows

        def watch() -> list:  # type: ignore[type-arg]
            if trainer.step in (60, 199):
                at[trainer.step] = resident()
            return original()

        trainer.next_windows = watch  # type: ignore[method-assign]
        trainer.train()
    print(f"resident: {at[60] / 2**20:.1f} MiB after 60 steps, {at[199] / 2**20:.1f} after 199")
    assert at[199] <= 1.05 * at[60]


def test_twenty_saves_need_no_more_than_two(small: HyMoConfig, tmp_path: Path) -> None:
    with open_run(small) as trainer:
        state = trainer.state()
        state["model"]["ballast"] = torch.zeros(4 << 20)  # 16 MiB: a copy kept per save would show
        saver = Checkpointer(tmp_path / "saves", "", 2)
        sizes = []
        for step in range(1, 21):
            saver.start(state, Manifest(1, "", "", "", "", "", step, 0, None, 1))
            assert saver.finished(wait=True)[0].error == ""
            sizes.append(resident())
    print("resident after saves, MiB:", [round(size / 2**20, 1) for size in sizes])
    assert sizes[-1] <= 1.05 * sizes[1]


def test_evaluation_and_generation_give_back_what_they_take(small: HyMoConfig, dataset: Path) -> None:
    tokenizer = ByteTokenizer()
    windows = EvaluationWindows(open_split(dataset, "validation", tokenizer), 64, max_bytes=4000, tokenizer=tokenizer)
    with open_run(small) as trainer:
        engine = Engine(trainer.master, tokenizer)

        def work() -> None:
            evaluate(trainer.master, windows, 16)
            engine.generate("The ", 60, Sampling(seed=0), speculative=True)

        for _ in range(3):
            work()
        before = resident()
        live = sum(issubclass(type(item), torch.Tensor) for item in gc.get_objects())
        for _ in range(10):
            work()
        assert resident() <= 1.05 * before
        assert sum(issubclass(type(item), torch.Tensor) for item in gc.get_objects()) <= live
