"""The training step on a GPU: what it computes against eager fp32, what the host waits for, what memory does."""

from __future__ import annotations

import copy
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch

from decode_oracle import Figures, forced, kept
from hymo.core.load import load_config
from hymo.data import ByteTokenizer, sample_paths
from hymo.kernels.arguments import on_device
from hymo.models import Window
from hymo.training import Trainer
from hymo.training.batches import to_window

pytestmark = pytest.mark.gpu
TWIN = ["model.n_layers=4", "model.mla_layers=[0]", "training.dp_size=1", "run.device=cuda", "run.tokenizer=byte"]
"""Four layers of the flagship's width."""
STABLE = [
    "scheduler.total_steps=20000",
    "scheduler.warmup_frac=0.002",
    "scheduler.stable_frac=0.9",
    "scheduler.decay_frac=0.098",
]


def batches(rows: int, length: int, seed: int = 0) -> Iterator[dict[str, Any]]:
    """Random windows of the packaged text, cut into documents at random places."""
    text = ByteTokenizer().encode(sample_paths()["train"].read_bytes())
    rng = np.random.default_rng(seed)
    while True:
        starts = rng.integers(0, len(text) - length - 1, rows)
        tokens = np.stack([text[start : start + length + 1] for start in starts]).astype(np.int64)
        inside = rng.integers(1, rows * (length + 1), rng.integers(0, 60 * rows))
        bounds = np.unique(np.concatenate([np.arange(rows + 1) * (length + 1), inside]))
        yield {"tokens": tokens, "cu_seqlens": bounds.astype(np.int32)}


def take(trainer: Trainer) -> dict[str, float]:
    return trainer.take_step(trainer.next_windows())[0]


@pytest.fixture(scope="module")
def small() -> Trainer:
    """A trainer past compilation."""
    shape = [*TWIN, "training.micro_batch_size=2", "training.grad_accum_steps=4", "training.seq_len=512"]
    trainer = Trainer(load_config("hymo_750m", [*shape, *STABLE]), batches(2, 512))
    for _ in range(2):
        take(trainer)
    return trainer


def test_the_host_waits_once_a_step_and_nothing_is_compiled_again(small: Trainer) -> None:
    compiled = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    steps = 5
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            for _ in range(steps):
                take(small)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    waits = [f"{w.filename}:{w.lineno}" for w in seen if "synchroniz" in str(w.message)]
    assert len(waits) == steps, waits  # losses and the norm of the gradient, which decide whether the step counts
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == compiled


def test_memory_is_flat_over_200_micro_batches(small: Trainer) -> None:
    held = []
    for _ in range(50):
        take(small)
        held.append(torch.cuda.memory_allocated())
    assert max(held[10:]) == min(held[10:]), held


def test_a_logged_step_holds_no_more_than_another() -> None:
    """At a size where activations outweigh the copies of parameters by which a logged step measures its update."""
    shape = [*TWIN, "training.micro_batch_size=16", "training.grad_accum_steps=2", "training.seq_len=2048"]
    trainer = Trainer(load_config("hymo_750m", [*shape, *STABLE]), batches(16, 2048))
    take(trainer)
    peaks, records = [], []
    for telemetry in (False, True):
        torch.cuda.reset_peak_memory_stats()
        records.append(trainer.take_step(trainer.next_windows(), telemetry=telemetry)[0])
        peaks.append(torch.cuda.max_memory_allocated())
    assert [any(name.startswith("gdn/o_absmax") for name in record) for record in records] == [False, True]
    assert peaks[1] <= 1.01 * peaks[0]


def test_twenty_steps_follow_eager_fp32() -> None:
    """Losses, and the gradients of one batch for the experts that the fast step takes.

    In bf16 a few tokens whose scores are nearly equal take other experts than in fp32. The router's gradient, a small
    difference of two experts' outputs, moves with them: by a sixth for four of a hundred (eager, both dtypes).
    """
    shape = [*TWIN, "training.micro_batch_size=2", "training.grad_accum_steps=1", "training.seq_len=2048"]
    fast = Trainer(load_config("hymo_750m", [*shape, *STABLE]), batches(2, 2048))
    for _ in range(200):
        take(fast)
    plain = ["training.param_dtype=float32", "training.torch_compile_gdn=false"]
    with written():
        reference = Trainer(
            load_config("hymo_750m", [*shape, *STABLE, *plain]), batches(2, 2048, 1), model=copy.deepcopy(fast.master)
        )
    for ours, theirs in zip(reference.optimizers, fast.optimizers, strict=True):
        ours.load_state_dict(copy.deepcopy(theirs.state_dict()))
    reference.step = fast.step
    fast._stream = batches(2, 2048, 1)
    names = {name: group["name"] for group in fast.optimizers.groups for name in group["param_names"]}
    figures = Figures()
    with kept(fast.copy.model, 2 * 2048) as choices:
        found = gradients(fast, names)
    with written(), forced(reference.copy.model, choices, figures):
        wanted = gradients(reference, names)
    print(f"{figures.others} of {figures.choices} choices differ")
    assert figures.others < 0.1 * figures.choices
    for name, want in wanted.items():
        error = float((found[name] - want).norm() / want.norm())
        print(f"gradient of {name}: {error:.2e} relative")
        assert error < 5e-2, (name, error)
    for step in range(20):
        got = take(fast)
        with written():
            expected = take(reference)
        difference = abs(got["train/loss"] - expected["train/loss"]) / expected["train/loss"]
        print(f"step {step}: {got['train/loss']:.5f} {expected['train/loss']:.5f} {difference:.1e}")
        assert difference < 1e-2, (step, got, expected)


@contextmanager
def written() -> Iterator[None]:
    """No kernel of this package runs inside; each call of one asks anew, so the model under test stays outside."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HYMO_KERNELS", "chunked")
        yield


@pytest.mark.parametrize("switch", ["torch_compile_gdn", "cuda_graphs_mla", "moe_mixed_precision"])
def test_a_switch_changes_speed_only(switch: str) -> None:
    """Losses of eight steps with a switch and without it; experts in fp32 need a model in fp32 to differ."""
    dtype = "float32" if switch == "moe_mixed_precision" else "bfloat16"
    shape = [*TWIN, "training.micro_batch_size=2", "training.grad_accum_steps=2", "training.seq_len=1024"]
    found = []
    for on in (False, True):
        flags = [f"training.{switch}={str(on).lower()}", f"training.param_dtype={dtype}"]
        trainer = Trainer(load_config("hymo_750m", [*shape, *STABLE, *flags]), batches(2, 1024))
        losses, began = [], 0.0
        for step in range(8):
            if step == 4:
                torch.cuda.synchronize()
                began = time.perf_counter()
            losses.append(take(trainer)["train/loss"])
        torch.cuda.synchronize()
        print(f"{switch} {'on' if on else 'off'}: {1e3 * (time.perf_counter() - began) / 4:.1f} ms a step, {losses}")
        found.append(losses)
    for off, on in zip(*found, strict=True):
        assert abs(on - off) < 1e-3 * off


def gradients(trainer: Trainer, names: dict[str, str]) -> dict[str, torch.Tensor]:
    """Gradients of one batch by parameter group, as vectors; weights stay."""
    batch = to_window(next(batches(2, 2048, 2)), trainer.config.model.vocab_size, "test")
    inputs, targets = (on_device(x, trainer.device) for x in (batch.inputs, batch.targets))
    window = Window(inputs, targets, batch.cu_seqlens)
    model = trainer.copy.model
    sums = model.loss_sums(window)
    counts = model.target_counts(batch)
    model.weighted_total({name: value / max(1, counts[name]) for name, value in sums.items()}).backward()
    trainer.copy.collect_gradients(True)
    groups: dict[str, list[torch.Tensor]] = {}
    for name, parameter in trainer.master.named_parameters():
        if parameter.grad is not None:
            groups.setdefault(names[name], []).append(parameter.grad.flatten().clone())
        parameter.grad = None
    for module in trainer.master.modules():
        if callable(forget := getattr(module, "discard_step", None)):
            forget()
    return {name: torch.cat(parts) for name, parts in groups.items()}
