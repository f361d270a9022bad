"""The loop: normalisation, skipping, resuming, recording."""

from __future__ import annotations

import errno
import hashlib
import math
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from hymo.core.config import HyMoConfig
from hymo.core.errors import CheckpointError, DataError, TrainingError, UsageError
from hymo.core.load import derive_config
from hymo.data import ByteTokenizer, prepare, sample_paths
from hymo.models import HyMo, Window, build_hymo
from hymo.models.checkpoint import find_checkpoint, list_checkpoints, load_model
from hymo.training import Trainer
from hymo.training.batches import to_window
from hymo.training.metrics import JsonlSink, read_jsonl, read_metrics
from hymo.training.run import open_run, run_folder
from training_helpers import stop_after


class Recorder:
    """Keeps what the trainer says."""

    def __init__(self) -> None:
        self.metrics: list[dict[str, Any]] = []
        self.events: list[tuple[str, dict[str, Any]]] = []

    def on_metrics(self, record: Any) -> None:
        self.metrics.append(dict(record))

    def on_event(self, kind: str, fields: Any) -> None:
        self.events.append((kind, dict(fields)))

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [fields for name, fields in self.events if name == kind]


def windows(steps: int, rows: int, seq_len: int, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.integers(3, 259, (rows, seq_len + 1)) for _ in range(steps)]


def uneven(tokens: np.ndarray, width: int) -> np.ndarray:
    """Boundaries that leave rows with very different numbers of targets."""
    rows = tokens.shape[0]
    cuts = {row * width for row in range(rows + 1)}
    cuts |= {row * width + i for row in range(0, rows, 3) for i in range(0, width, 2)}
    return np.array(sorted(cuts), dtype=np.int32)


def hashes(model: torch.nn.Module) -> str:
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode() + tensor.detach().contiguous().numpy().tobytes())
    return digest.hexdigest()


def plain(small: HyMoConfig, **training: Any) -> HyMoConfig:
    return derive_config(small, training={"eval_interval": 1000, "checkpoint_interval": 1000, **training})


def test_accumulation_does_not_change_the_gradient(small: HyMoConfig) -> None:
    """One micro-batch of 6 rows and six of one row, with boundaries that depend on the row alone, train alike."""
    tokens = windows(3, 6, 64)

    def rows(step: np.ndarray, pieces: int) -> Iterator[dict[str, np.ndarray]]:
        per_row = [uneven(step[i : i + 1], 65) if i % 2 else np.array([0, 65], np.int32) for i in range(6)]
        size = 6 // pieces
        for p in range(pieces):
            mine = per_row[p * size : (p + 1) * size]
            cu = np.unique(np.concatenate([c + 65 * i for i, c in enumerate(mine)])).astype(np.int32)
            yield {"tokens": step[p * size : (p + 1) * size], "cu_seqlens": cu}

    results = {}
    for pieces in (1, 2, 6):
        config = plain(
            derive_config(small, scheduler={"total_steps": 3}), micro_batch_size=6 // pieces, grad_accum_steps=pieces
        )
        recorder = Recorder()
        trainer = Trainer(config, (b for step in tokens for b in rows(step, pieces)), callbacks=[recorder])
        trainer.train()
        losses = [record["train/loss"] for record in recorder.metrics]
        results[pieces] = (losses, torch.cat([p.detach().flatten() for p in trainer.master.parameters()]))
    for pieces in (2, 6):
        np.testing.assert_allclose(results[pieces][0], results[1][0], rtol=1e-6)
        difference = (results[pieces][1] - results[1][1]).norm() / results[1][1].norm()
        assert difference < 1e-5


def test_loss_is_the_mean_over_all_valid_targets(small: HyMoConfig) -> None:
    """Against logits and plain cross-entropy over explicit lists of positions."""
    tokens = windows(1, 2, 64)[0]
    bounds = uneven(tokens, 65)
    config = plain(derive_config(small, scheduler={"total_steps": 1}), micro_batch_size=2, grad_accum_steps=1)
    model = build_hymo(config)
    document = np.searchsorted(bounds, np.arange(tokens.size), side="right").reshape(tokens.shape)
    total, count = 0.0, 0
    flat = torch.from_numpy(tokens)
    for row in range(2):
        for start in np.unique(document[row]):
            span = np.flatnonzero(document[row] == start)
            if len(span) < 2:
                continue
            piece = flat[row, span]
            logits = model(piece[None, :-1])[0]
            total += float(F.cross_entropy(logits, piece[1:], reduction="sum").detach())
            count += len(piece) - 1
    recorder = Recorder()
    Trainer(config, iter([{"tokens": tokens, "cu_seqlens": bounds}]), callbacks=[recorder], model=model).train()
    assert recorder.metrics[0]["train/loss"] == pytest.approx(total / count, rel=1e-5)


def test_interrupt_saves_and_tells_its_code(small: HyMoConfig) -> None:
    recorder = Recorder()
    with open_run(small, [recorder]) as trainer:
        stop_after(trainer, 3)
        result = trainer.train()
    assert (result.exit_code, result.step) == (143, 3)
    assert find_checkpoint(run_folder(small))[1].step == 3
    assert recorder.of("interrupted") == [{"step": 3, "signal": 15}]


def poison(model: HyMo, at: set[int], monkeypatch: pytest.MonkeyPatch) -> None:
    calls = {"n": 0}
    original = model.loss_sums

    def bad(*args: Any, **kwargs: Any) -> dict[str, Tensor]:
        sums = original(*args, **kwargs)
        if calls["n"] in at:
            sums["main"] = sums["main"] * math.nan
        calls["n"] += 1
        return sums

    monkeypatch.setattr(model, "loss_sums", bad)


def test_a_non_finite_step_changes_nothing_and_is_named(small: HyMoConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    config = plain(derive_config(small, scheduler={"total_steps": 3}), micro_batch_size=2, grad_accum_steps=1)
    tokens = [{"tokens": t} for t in windows(3, 2, 64)]
    recorder = Recorder()
    trainer = Trainer(config, iter(tokens), callbacks=[recorder])
    poison(trainer.master, {1}, monkeypatch)
    seen = []
    original = trainer._optimizer_step

    def watch(*args: Any, **kwargs: Any) -> Any:
        before = hashes(trainer.master)
        out = original(*args, **kwargs)
        seen.append(before == hashes(trainer.master))
        return out

    monkeypatch.setattr(trainer, "_optimizer_step", watch)
    result = trainer.train()
    assert seen == [False, True, False]
    (event,) = recorder.of("skip")
    assert event["step"] == 2
    assert result.tokens == 2 * 2 * 64
    assert [round(r["train/lr_factor"], 6) for r in recorder.metrics] == [
        round(trainer.scheduler.factor(s), 6) for s in range(3)
    ]


def test_the_tensor_whose_gradient_is_bad_is_named(small: HyMoConfig) -> None:
    config = plain(derive_config(small, scheduler={"total_steps": 2}), micro_batch_size=2, grad_accum_steps=1)
    recorder = Recorder()
    trainer = Trainer(config, ({"tokens": t} for t in windows(2, 2, 64)), callbacks=[recorder])
    trainer.master.layers[2].out_proj.weight.register_hook(lambda grad: grad * math.nan)
    trainer.train()
    assert [event["tensor"] for event in recorder.of("skip")] == ["layers.2.out_proj.weight"] * 2


def test_the_loss_that_is_not_finite_is_named(small: HyMoConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    config = plain(derive_config(small, scheduler={"total_steps": 2}), micro_batch_size=2, grad_accum_steps=1)
    named = []
    for poisoned in ("main", "mtp_1", "mtp_2"):
        recorder = Recorder()
        trainer = Trainer(config, ({"tokens": t} for t in windows(2, 2, 64)), callbacks=[recorder])
        original = trainer.master.loss_sums

        def sums(*args: Any, original: Any = original, poisoned: str = poisoned, **kwargs: Any) -> Any:
            return {n: v * (math.inf if n == poisoned else 1) for n, v in original(*args, **kwargs).items()}

        monkeypatch.setattr(trainer.master, "loss_sums", sums)
        trainer.train()
        named.append({event["tensor"] for event in recorder.of("skip")})
    assert named == [{"loss"}, {"mtp_1"}, {"mtp_2"}]


def test_a_norm_that_overflows_is_named_with_its_largest_gradient(small: HyMoConfig) -> None:
    config = plain(derive_config(small, scheduler={"total_steps": 1}), micro_batch_size=2, grad_accum_steps=1)
    recorder = Recorder()
    trainer = Trainer(config, ({"tokens": t} for t in windows(1, 2, 64)), callbacks=[recorder])
    for layer, size in ((0, 1e38), (2, 2e38)):
        weight = trainer.master.layers[layer].norm.weight
        weight.register_hook(lambda grad, size=size: torch.full_like(grad, size))
    trainer.train()
    (event,) = recorder.of("skip")
    assert event["tensor"] == "gradient norm, largest in layers.2.norm.weight"


def test_an_interrupted_validation_is_made_up(small: HyMoConfig) -> None:
    straight, cut = Recorder(), Recorder()
    with open_run(derive_config(small, run={"name": "straight"}), [straight]) as trainer:
        trainer.train()
    with open_run(small, [cut]) as trainer:
        original = trainer._validate_if_due

        def signalled(stop: Any) -> None:
            if trainer.step == 12:
                stop.signal = 15
            original(stop)

        trainer._validate_if_due = signalled  # type: ignore[method-assign]
        assert trainer.train().exit_code == 143
    with open_run(small, [cut]) as trainer:
        assert trainer.train().exit_code == 0
    losses = [[r["val/loss"] for r in recorder.metrics if r["split"] == "val"] for recorder in (straight, cut)]
    assert losses[0] == losses[1]
    assert len(losses[0]) == 2


def test_the_best_is_saved_when_it_is_found(small: HyMoConfig) -> None:
    config = derive_config(small, training={"eval_interval": 4, "checkpoint_interval": 100, "keep_last": 1})
    with open_run(config) as trainer:
        trainer.train()
        best = trainer.best_step
    assert best in {int(p.name[5:]) for p in list_checkpoints(run_folder(config) / "checkpoints")}


def test_a_restart_from_nothing_replaces_what_was_recorded(small: HyMoConfig) -> None:
    for _ in range(2):
        sink = JsonlSink(run_folder(small))
        sink.on_event("start", {"step": 0})
        for step in (1, 2):
            sink.on_metrics({"step": step, "split": "train"})
        sink.close()
    assert [record["step"] for record in read_metrics(run_folder(small))] == [1, 2]


def test_a_clock_that_goes_back_hides_no_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first process ran an hour ahead: its steps past 2 are redone by the second, which started from there."""
    clock = {"now": 3600.0}
    monkeypatch.setattr("hymo.training.metrics.time.time", lambda: clock["now"])
    for now, first, until in ((3600.0, 0, 4), (0.0, 2, 6)):
        clock["now"] = now
        sink = JsonlSink(tmp_path)
        sink.on_event("resume" if first else "start", {"step": first})
        for step in range(first + 1, until + 1):
            sink.on_metrics({"step": step, "split": "train", "by": now})
        sink.close()
    found = [(r["step"], r["by"]) for r in read_metrics(tmp_path)]
    assert found == [(1, 3600.0), (2, 3600.0), (3, 0.0), (4, 0.0), (5, 0.0), (6, 0.0)]


def test_checkpoints_without_their_configuration_are_not_trained_over(small: HyMoConfig) -> None:
    with open_run(small) as trainer:
        stop_after(trainer, 2)
        trainer.train()
    (run_folder(small) / "config.yaml").unlink()
    with pytest.raises(UsageError, match=r"config\.yaml: missing, but the folder holds checkpoints"), open_run(small):
        pass
    assert [p.name for p in list_checkpoints(run_folder(small) / "checkpoints")] == ["step-00000002"]


def test_too_many_non_finite_steps_stop_the_run(small: HyMoConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    config = plain(small, micro_batch_size=2, grad_accum_steps=1, max_skipped_steps=2)
    trainer = Trainer(config, ({"tokens": t} for t in windows(12, 2, 64)))
    poison(trainer.master, set(range(100)), monkeypatch)
    with pytest.raises(TrainingError, match=r"step 3: .*not finite 3 times in a row"):
        trainer.train()


def test_gradient_is_clipped_to_the_global_norm(small: HyMoConfig) -> None:
    config = plain(small, micro_batch_size=2, grad_accum_steps=1, grad_clip=0.5)
    trainer = Trainer(config, iter([]))
    for p in trainer.master.parameters():
        p.grad = torch.full_like(p, 0.25)
    count = sum(p.numel() for p in trainer.master.parameters())
    norm = trainer._clip()
    assert float(norm) == pytest.approx(0.25 * math.sqrt(count), rel=1e-5)
    after = math.sqrt(sum(float(p.grad.square().sum()) for p in trainer.master.parameters() if p.grad is not None))
    assert after == pytest.approx(0.5, rel=1e-4)


def test_records_events_and_checkpoint_of_a_run(small: HyMoConfig) -> None:
    with open_run(small) as trainer:
        trainer.train()
        weights = hashes(trainer.master)
    folder = run_folder(small)
    records = read_metrics(folder)
    train = [r for r in records if r["split"] == "train"]
    assert [r["step"] for r in train] == list(range(1, 13))
    assert [r["tokens"] for r in train] == [256 * i for i in range(1, 13)]
    assert all(r["lr/matrix"] / r["lr/embedding"] == pytest.approx(0.02 / 0.003) for r in train)
    names = set(train[0])
    for name in ("gdn/o_absmax/1", "gdn/state_absmax/1", "gdn/tau_50/1", "mla/logit_absmax/0", "moe/load_cv/0"):
        assert name in names
    assert any(name.startswith("update_ratio/normuon") for name in names)
    assert [e["step"] for e in read_jsonl(folder / "events.jsonl") if e["kind"] == "checkpoint"] == [6, 12]
    model, config, manifest = load_model(folder)
    assert hashes(model) == weights
    assert config.model == small.model
    assert (manifest.step, manifest.tokens) == (12, 3072)
    assert (folder / "env.json").exists()


def test_two_processes_cannot_share_a_run(small: HyMoConfig) -> None:
    with open_run(small), pytest.raises(UsageError, match="another process is training there"), open_run(small):
        pass


def test_a_read_only_target_is_refused_before_work(small: HyMoConfig, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    config = derive_config(small, run={"output_dir": str(tmp_path / "file")})
    with pytest.raises(UsageError, match="cannot be written"), open_run(config):
        pass


def test_changed_data_is_refused_before_work(small: HyMoConfig, tmp_path: Path) -> None:
    with open_run(small) as trainer:
        stop_after(trainer, 2)
        trainer.train()
    paths = sample_paths()
    shorter = tmp_path / "shorter.jsonl"
    shorter.write_text("".join(paths["train"].read_text().splitlines(keepends=True)[:-1]))
    prepare([shorter], tmp_path / "other", ByteTokenizer(), validation_inputs=[paths["validation"]])
    config = derive_config(small, run={"data": str(tmp_path / "other")})
    with pytest.raises(DataError, match="changed since the checkpoint"), open_run(config):
        pass


def test_another_configuration_is_refused_before_work(small: HyMoConfig) -> None:
    with open_run(small) as trainer:
        stop_after(trainer, 2)
        trainer.train()
    before = sorted(p.name for p in list_checkpoints(run_folder(small) / "checkpoints"))
    with pytest.raises(UsageError, match="another configuration"), open_run(derive_config(small, training={"seed": 5})):
        pass
    assert sorted(p.name for p in list_checkpoints(run_folder(small) / "checkpoints")) == before


def test_more_steps_than_data_is_refused_before_work(small: HyMoConfig) -> None:
    config = derive_config(small, scheduler={"total_steps": 10**6})
    with pytest.raises(UsageError, match="max_epochs"), open_run(config):
        pass
    assert not run_folder(config).exists()


def test_vocabulary_below_the_tokenizer_is_refused(small: HyMoConfig) -> None:
    with (
        pytest.raises(UsageError, match=r"model\.vocab_size: 100 is below the tokenizer's 259"),
        open_run(derive_config(small, model={"vocab_size": 100})),
    ):
        pass


def test_any_iterator_of_batches_trains_and_an_early_end_is_told(small: HyMoConfig) -> None:
    config = plain(derive_config(small, scheduler={"total_steps": 2}), micro_batch_size=2, grad_accum_steps=2)
    data = [{"tokens": torch.from_numpy(t)} for t in windows(4, 2, 64)]
    assert Trainer(config, iter(data)).train().step == 2
    with pytest.raises(TrainingError, match="data ended after 1 of 2 micro-batches"):
        Trainer(config, iter(data[:3])).train()


GOOD = windows(1, 2, 64)[0]
CUT = np.array([0, 65, 130], np.int32)
TAKEN: dict[str, Any] = {
    "uint16": {"tokens": GOOD.astype(np.uint16)},
    "read only": {"tokens": np.broadcast_to(GOOD[:1], (2, 65))},
    "backwards": {"tokens": GOOD[:, ::-1]},
    "nested lists": {"tokens": GOOD.tolist(), "cu_seqlens": CUT.tolist()},
    "tensors": {"tokens": torch.from_numpy(GOOD).int(), "cu_seqlens": torch.from_numpy(CUT)},
}
REFUSED: dict[str, tuple[Any, str]] = {
    "an id too large": ({"tokens": np.where(GOOD.max() == GOOD, 259, GOOD)}, r"token 259 is not in 0\.\.258"),
    "a negative id": ({"tokens": GOOD - 259}, r"token -\d+ is not in"),
    "fractions": ({"tokens": GOOD / 2}, "float64 instead of integers"),
    "one dimension": ({"tokens": GOOD[0]}, r"shape \(65,\)"),
    "no target": ({"tokens": GOOD[:, :1]}, r"shape \(2, 1\)"),
    "no row": ({"tokens": GOOD[:0]}, r"shape \(0, 65\)"),
    "ragged": ({"tokens": [[5, 6], [7]]}, "no array of integers"),
    "text": ({"tokens": "text"}, "no array of integers"),
    "another name": ({"input_ids": GOOD}, "without 'tokens'"),
    "no mapping": ([GOOD], "is list without 'tokens'"),
    "boundaries that end early": ({"tokens": GOOD, "cu_seqlens": CUT[:2]}, "must rise from 0 to 130"),
    "fractional boundaries": ({"tokens": GOOD, "cu_seqlens": CUT / 1}, "cu_seqlens: torch.float64 instead"),
}


@pytest.mark.parametrize("kind", [*TAKEN, *REFUSED])
def test_batches_from_outside_are_checked(small: HyMoConfig, kind: str) -> None:
    config = plain(derive_config(small, scheduler={"total_steps": 2}), micro_batch_size=2, grad_accum_steps=1)
    batch, says = (TAKEN[kind], "") if kind in TAKEN else REFUSED[kind]
    trainer = Trainer(config, iter([{"tokens": GOOD}, batch]))
    if kind in TAKEN:
        assert trainer.train().step == 2
        return
    with pytest.raises(DataError, match=rf"^step 2, micro-batch 0: .*{says}"):
        trainer.train()


def test_bf16_computes_on_a_copy_and_updates_fp32_masters(small: HyMoConfig) -> None:
    losses = {}
    data = [{"tokens": t} for t in windows(4, 2, 64)] * 3
    for dtype in ("float32", "bfloat16"):
        config = plain(small, micro_batch_size=2, grad_accum_steps=1, param_dtype=dtype)
        config = derive_config(config, model={"moe_bias_update": "sign"})
        recorder = Recorder()
        trainer = Trainer(config, iter(data), callbacks=[recorder])
        trainer.train()
        losses[dtype] = [r["train/loss"] for r in recorder.metrics]
        assert all(p.dtype is torch.float32 for p in trainer.master.parameters())
    working = trainer.copy.model
    assert working.embed.weight.dtype is torch.bfloat16
    ours, theirs = working.mixtures()[0], trainer.master.mixtures()[0]
    assert ours.bias is theirs.bias
    assert ours.bias.dtype is torch.float32
    assert ours.router.dtype is torch.float32
    assert bool(theirs.bias.abs().max() > 0)
    np.testing.assert_allclose(losses["bfloat16"], losses["float32"], rtol=0.02)
    assert losses["bfloat16"][-1] < losses["bfloat16"][0] - 0.1


def test_a_full_disk_costs_records_and_not_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sink = JsonlSink(tmp_path)
    (tmp_path / "metrics.jsonl").unlink()
    (tmp_path / "metrics.jsonl").symlink_to("/dev/full")
    for step in (1, 2):
        sink.on_metrics({"step": step})
    sink.on_event("checkpoint_failed", {"step": 2})
    sink.close()
    assert capsys.readouterr().err.count("metrics.jsonl: cannot be written (No space left on device)") == 1
    assert [event["kind"] for event in read_jsonl(tmp_path / "events.jsonl")] == ["checkpoint_failed"]


@pytest.mark.parametrize(("saves", "then"), [(0, "start again: nothing was saved"), (1, "resume from step 4")])
def test_a_last_save_that_fails_is_an_error_naming_what_is_left(
    small: HyMoConfig, monkeypatch: pytest.MonkeyPatch, saves: int, then: str
) -> None:
    from hymo.training import checkpointer

    original, calls = checkpointer.dcp_save, []

    def full(*arguments: Any, **named: Any) -> Any:
        calls.append(1)
        if len(calls) > saves:
            raise OSError(errno.ENOSPC, "No space left on device")
        return original(*arguments, **named)

    monkeypatch.setattr(checkpointer, "dcp_save", full)
    config = derive_config(small, training={"checkpoint_interval": 4, "async_checkpoint": False, "keep_stable": False})
    message = f"step 12: the last checkpoint could not be saved.*then {then}"
    with pytest.raises(CheckpointError, match=message), open_run(config) as trainer:
        trainer.train()
    assert len(list_checkpoints(run_folder(config) / "checkpoints")) == saves


def test_threads_that_build_batches_change_no_step(small: HyMoConfig) -> None:
    losses = []
    for workers in (0, 3):
        with open_run(derive_config(small, training={"num_workers": workers}, run={"name": f"w{workers}"})) as trainer:
            losses.append([trainer.take_step(trainer.next_windows())[0]["train/loss"] for _ in range(6)])
    assert losses[0] == losses[1]


def test_the_next_batches_are_built_within_a_step_and_taken_only_at_their_place(small: HyMoConfig) -> None:
    with open_run(small) as trainer:
        loader, counted = trainer.loader, trainer.copy.model.target_counts
        assert loader is not None
        original, asked, counts = loader.batch_at, [], []

        def batch_at(place: int, **share: int) -> Any:
            asked.append(place)
            return original(place, **share)

        def target_counts(window: Window) -> dict[str, int]:
            counts.append(counted(window))
            return counts[-1]

        loader.batch_at = batch_at  # type: ignore[method-assign]
        trainer.copy.model.target_counts = target_counts  # type: ignore[method-assign]

        def taken(place: int) -> None:
            """A step on the batch at this place: nothing else, however it was come by."""
            found = trainer.next_windows()
            for micro, window in enumerate(found):
                want = to_window(original(place, micro=micro, n_micro=2), 259, "here")
                assert all(map(torch.equal, vars(window).values(), vars(want).values()))
            trainer.take_step(found)

        taken(0)
        assert (asked, len(counts)) == ([0, 0, 1, 1], 4)  # those of the next step, in this one
        taken(1)
        assert (asked[4:], len(counts)) == ([2, 2], 6)
        trainer.spikes.leave_out(2)  # as after a rewind
        taken(3)
        assert asked[6:] == [3, 3, 4, 4]
        trainer.step = 0
        taken(0)
        assert asked[10:] == [0, 0, 1, 1]
        trainer.step = trainer.config.total_steps - 1
        taken(12)
        assert asked[14:] == [12, 12]  # none follow


def test_building_batches_ahead_counts_as_waiting_for_data(small: HyMoConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that goes on while batches are built and by a second in each backward pass, on a CPU."""
    now = 0.0
    config = derive_config(small, training={"log_interval": 1, "spike_rewind": False})
    monkeypatch.setattr("hymo.training.trainer.time", SimpleNamespace(perf_counter=lambda: now, monotonic=lambda: 0.0))
    with open_run(config) as trainer:
        assert trainer.loader is not None
        recorder, batch_at, run = Recorder(), trainer.loader.batch_at, trainer.passes.run

        def slow(seconds: float, function: Any) -> Any:
            def call(*arguments: Any, **named: Any) -> Any:
                nonlocal now
                now += seconds
                return function(*arguments, **named)

            return call

        trainer.callbacks.append(recorder)
        trainer.loader.batch_at = slow(1.5, batch_at)  # type: ignore[method-assign]
        trainer.passes.run = slow(1.0, run)  # type: ignore[method-assign]
        trainer.train()
    shares = [record["perf/data_wait"] for record in recorder.metrics if record["split"] == "train"]
    # Two micro-batches: those of the first two steps in the first, none in the last.
    assert shares == pytest.approx([6 / 7, *[3 / 4] * 10, 0.0])


def test_what_is_wrong_with_the_next_batches_is_told_in_its_own_step(small: HyMoConfig) -> None:
    with open_run(small) as trainer:
        loader = trainer.loader
        assert loader is not None
        original = loader.batch_at

        def batch_at(place: int, **share: int) -> Any:
            batch = original(place, **share)
            return {**batch, "tokens": batch["tokens"] + 300 * (place == 2)}

        loader.batch_at = batch_at  # type: ignore[method-assign]
        for _ in range(2):
            trainer.take_step(trainer.next_windows())
        with pytest.raises(DataError, match="step 3, micro-batch 0: token"):
            trainer.next_windows()


def test_mtp_anneals_to_nothing(small: HyMoConfig) -> None:
    trainer = Trainer(derive_config(small, model={"mtp_anneal_frac": 0.5}), iter([]))
    scales = []
    for trainer.step in range(12):
        scales.append(trainer._mtp_scale())
    assert scales == pytest.approx([1, 1, 1, 1, 1, 1, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6, 0])


def test_checkpoint_of_another_model_does_not_load(small: HyMoConfig, tmp_path: Path) -> None:
    with open_run(small) as trainer:
        stop_after(trainer, 1)
        trainer.train()
    other = Trainer(derive_config(small, model={"dim": 64}), iter([]))
    with pytest.raises(CheckpointError, match="another configuration"):
        other.resume(run_folder(small))
