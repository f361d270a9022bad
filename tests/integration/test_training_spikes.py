"""A loss spike: the run goes back to its newest checkpoint and goes on as if the batch had never been there."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rank_faults
from hymo.core.config import HyMoConfig
from hymo.core.errors import UsageError
from hymo.core.load import derive_config, dump_config
from hymo.data import ByteTokenizer, open_split
from hymo.data.loader import PackedLoader
from hymo.models.checkpoint import find_checkpoint
from hymo.training.follow import RunFollower
from hymo.training.metrics import read_jsonl, read_metrics
from hymo.training.replay import replay
from hymo.training.run import open_run, run_folder, training_loader
from hymo.training.spikes import Spikes, batch_of
from hymo.training.trainer import Trainer
from rank_helpers import Job
from training_helpers import stop_after

POISONED = 8
"""Place in the order of the batch that makes the spike, so it comes in step 9."""


@given(st.sets(st.integers(0, 30)))
def test_steps_take_the_batches_that_are_not_left_out(left_out: set[int]) -> None:
    kept = (batch for batch in count() if batch not in left_out)
    assert [batch_of(step, sorted(left_out)) for step in range(40)] == [next(kept) for _ in range(40)]


def test_what_a_spike_is() -> None:
    spikes = Spikes(4, 3.0)
    losses = [5.0, 4.8, 4.9, 4.7]
    assert not any(spikes.is_spike(i, loss) for i, loss in enumerate(losses))
    limit = statistics.mean(losses) + 3 * statistics.stdev(losses)
    assert spikes.limit == pytest.approx(limit)
    assert not spikes.is_spike(4, math.nan)
    assert spikes.is_spike(4, limit + 1e-6)
    assert spikes.limit == pytest.approx(limit)  # what was a spike is not usual
    assert not spikes.is_spike(4, limit - 1e-6)
    assert spikes.limit != pytest.approx(limit)
    assert Spikes(4, 3.0).limit == math.inf
    again = Spikes(4, 3.0)
    again.load_state_dict(spikes.state_dict())
    assert again.limit == spikes.limit


def spiked(config: HyMoConfig, **more: Any) -> HyMoConfig:
    training: dict[str, Any] = {"spike_rewind": True, "spike_window": 3, "spike_sigmas": 3.0}
    training |= {"checkpoint_interval": 5, "eval_interval": 50, **more}
    return derive_config(config, scheduler={"total_steps": 14}, training=training)


def curve(folder: Path) -> list[tuple[int, float, float]]:
    found = [r for r in read_metrics(folder) if r["split"] == "train"]
    return [(r["step"], r["train/loss"], r["train/grad_norm"]) for r in found]


@pytest.fixture
def poison(monkeypatch: pytest.MonkeyPatch) -> None:
    original = PackedLoader.batch_at

    def batch_at(loader: PackedLoader, step: int, **place: int) -> Any:
        batch = original(loader, step, **place)
        if step == POISONED:
            batch["tokens"] = 200 + batch["tokens"] % 50
        return batch

    monkeypatch.setattr(PackedLoader, "batch_at", batch_at)


def without_the_batch(config: HyMoConfig) -> list[tuple[int, float, float]]:
    """The curve of a plain trainer over the same batches in the same order, but for the poisoned one."""
    loader = training_loader(config, open_split(str(config.run.data), "train", ByteTokenizer()))
    passes = config.training.grad_accum_steps

    def batches() -> Iterator[dict[str, np.ndarray[Any, Any]]]:
        for step in range(config.total_steps + 1):
            if step != POISONED:
                yield from (loader.batch_at(step, micro=i, n_micro=passes) for i in range(passes))

    trainer = Trainer(derive_config(config, training={"spike_rewind": False}), batches())
    found = []
    for _ in range(config.total_steps):
        record, _ = trainer.take_step(trainer.next_windows())
        found.append((trainer.step, record["train/loss"], record["train/grad_norm"]))
    return found


@pytest.mark.usefixtures("poison")
def test_the_run_goes_on_as_if_the_batch_had_never_been_there(small: HyMoConfig) -> None:
    config = spiked(small)
    folder = run_folder(config)
    with open_run(config) as trainer:
        assert trainer.train().step == 14
    assert curve(folder) == without_the_batch(config)
    events = read_jsonl(folder / "events.jsonl")
    (spike,) = [e for e in events if e["kind"] == "spike"]
    (rewind,) = [e for e in events if e["kind"] == "rewind"]
    assert (spike["step"], spike["loss"] > spike["limit"]) == (9, True)
    assert (rewind["step"], rewind["spike"], rewind["batch"], rewind["tokens"]) == (5, 9, POISONED, 5 * 256)
    assert find_checkpoint(folder)[1].trainer["spikes"]["left_out"] == [POISONED]
    assert [replay(folder, step).equal for step in (5, 8, 9, 10, 14)] == [True] * 5
    run = RunFollower(folder)
    run.poll()
    assert (run.status, run.step) == ("finished", 14)


@pytest.mark.usefixtures("poison")
def test_an_interruption_changes_nothing(small: HyMoConfig) -> None:
    """Stopped just before the spike, and again after the rewind: what is usual and left out is in the checkpoint."""
    config = spiked(small, num_workers=2)
    for step in (7, 11):
        with open_run(config) as trainer:
            stop_after(trainer, step)
            assert trainer.train().step == step
    with open_run(config) as trainer:
        trainer.train()
    events = read_jsonl(run_folder(config) / "events.jsonl")
    assert [(e["step"], e["batch"]) for e in events if e["kind"] == "rewind"] == [(7, POISONED)]
    assert curve(run_folder(config)) == without_the_batch(config)


@pytest.mark.usefixtures("poison")
def test_where_it_cannot_go_back_it_goes_on(small: HyMoConfig) -> None:
    for name, more, why in (
        ("unsaved", {"checkpoint_interval": 50}, "nothing was saved yet"),
        ("often", {"max_skipped_steps": 0}, "0 rewinds to step 5 did not help (training.max_skipped_steps)"),
    ):
        config = derive_config(spiked(small, **more), run={"name": name})
        with open_run(config) as trainer:
            assert trainer.train().step == 14
        events = read_jsonl(run_folder(config) / "events.jsonl")
        assert [e["kept"] for e in events if e["kind"] == "spike" and e["step"] == 9] == [why]
        assert not [e for e in events if e["kind"] in ("rewind", "resume")]
    with pytest.raises(UsageError, match=r"training\.spike_rewind: batches of an iterator"):
        Trainer(config, iter([]))


@pytest.mark.usefixtures("poison")
def test_a_batch_that_the_data_cannot_spare_is_kept(small: HyMoConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The data hold the batches of 14 steps and no more: a spike is no reason to end the run."""
    monkeypatch.setattr(PackedLoader, "epochs_needed", lambda loader, steps: 1 + (steps > 14))
    config = spiked(small, max_epochs=1)
    with open_run(config) as trainer:
        assert trainer.train().step == 14
    events = read_jsonl(run_folder(config) / "events.jsonl")
    kept = [e["kept"] for e in events if e["kind"] == "spike" and e["step"] == 9]
    assert ["15 steps need 2 epochs" in why for why in kept] == [True]
    assert not [e for e in events if e["kind"] in ("rewind", "resume")]


@pytest.mark.heavy
def test_two_ranks_go_back_together(small: HyMoConfig, tmp_path: Path) -> None:
    config = spiked(derive_config(small, training={"start_timeout_minutes": 1.0, "rank_timeout_minutes": 0.5}))
    path = tmp_path / "c.yaml"
    path.write_text(dump_config(config))
    job = Job(2, rank_faults.command, ["train", str(path)], tmp_path / "said", f"poison@{POISONED}")
    assert job.exits(60) == [0, 0], (tmp_path / "said-0").read_text()
    events = read_jsonl(run_folder(config) / "events.jsonl")
    assert [(e["step"], e["batch"]) for e in events if e["kind"] == "rewind"] == [(5, POISONED)]
    steps, losses, _ = zip(*curve(run_folder(config)), strict=True)
    assert steps == tuple(range(1, 15))
    expected = [loss for _, loss, _ in without_the_batch(config)]
    assert losses == pytest.approx(expected, rel=1e-5)  # sums in another order
    alone = derive_config(config, training={"spike_rewind": False}, run={"name": "alone"})
    with open_run(alone) as trainer:
        stop_after(trainer, 5)
        trainer.train()
    shares = [
        [r["train/first_block_share"] for r in read_metrics(run_folder(each)) if r["split"] == "train"][:5]
        for each in (config, alone)
    ]
    assert shares[0] == pytest.approx(shares[1], rel=1e-3)  # over slices as over whole gradients
    assert all(0 < share < 1 for share in shares[1])
