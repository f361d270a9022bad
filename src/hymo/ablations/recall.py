"""What each kind of mixing can recall and track: small models trained on `hymo.evaluation.recall`, side by side.

Every model has two layers of the same width and feed-forward, the same initialisation where they share parameters, and
sees the same batches. They differ in which layers attend and in the recurrence of the others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch

from hymo.core.config import HyMoConfig
from hymo.core.errors import UsageError, nearest
from hymo.core.load import derive_config, load_config
from hymo.evaluation.recall import SUITE, Task, accuracy
from hymo.models import HyMo, build_hymo
from hymo.training.optimizers import build_optimizers
from hymo.training.scheduler import JointWSDScheduler

_T = TypeVar("_T")

CONFIG = Path(__file__).with_name("recall.yaml")
_LONG_MEMORY = {"gdn_decay_init": "log_uniform", "gdn_output_norm": True}
MODELS: Mapping[str, Mapping[str, Any]] = {
    "attention": {"mla_layers": [0, 1]},
    "GDN, gated_linear": {"mla_layers": [], "gdn_recurrence": "gated_linear"},
    "GDN, gated_linear, long memory": {"mla_layers": [], "gdn_recurrence": "gated_linear", **_LONG_MEMORY},
    "GDN, gated_delta": {"mla_layers": [], "gdn_recurrence": "gated_delta"},
    "hybrid, gated_linear": {"mla_layers": [1], "gdn_recurrence": "gated_linear"},
    "hybrid, gated_delta": {"mla_layers": [1], "gdn_recurrence": "gated_delta"},
}
"""Changes of the configuration by name: attention alone, recurrence alone, and a layer of each.

The decays of v1.0 forget within a few tokens at initialisation. `long memory` starts gated_linear where gated_delta
starts, with time constants up to the context and normalised outputs, so that the two rules alone differ.
"""
_TEST_ROWS = 256
_TEST_SEED = 1 << 40
"""Seeds of training batches lie far below."""


def compare(
    tasks: Sequence[str] = (),
    models: Sequence[str] = (),
    seeds: int = 2,
    overrides: Sequence[str] = (),
    progress: Callable[[dict[str, Any]], None] | None = None,
) -> list[dict[str, Any]]:
    """Train every model on every task and measure it on sequences it has not seen.

    Args:
        tasks: names in the suite; all if empty.
        models: names in `MODELS`; all if empty.
        seeds: runs of each pair; a seed decides initialisation and training batches, never the test.
        overrides: of the configuration, as `section.field=value`.
        progress: given each row when it is done.

    Returns:
        Rows with task, model, parameters, chance, accuracy (by test, then by seed) and cpu_seconds, all seeds together.

    Raises:
        UsageError: an unknown name or no seed.
    """
    known = {task.name: task for task in SUITE}
    chosen = [_named(name, known, "task") for name in tasks] or list(known.values())
    kinds = {name: _named(name, MODELS, "model") for name in models or MODELS}
    if seeds < 1:
        raise UsageError(f"seeds: must be at least 1, not {seeds}.")
    base = load_config(CONFIG, overrides)
    rows = []
    for task in chosen:
        for name, changes in kinds.items():
            config = derive_config(base, model={**changes, "vocab_size": task.vocab_size})
            row = _measure(task, name, config, seeds)
            rows.append(row)
            if progress is not None:
                progress(row)
    return rows


def train_on(task: Task, config: HyMoConfig, seed: int) -> HyMo:
    """Train one model on fresh batches of a task; returns it in evaluation mode."""
    model = build_hymo(config, seed=seed)
    optimizers = build_optimizers(model, config.optimizer)
    schedule = JointWSDScheduler.from_config(optimizers, config.scheduler, config.total_steps)
    model.train()
    for step in range(config.total_steps):
        batch = task.draw(seed * config.total_steps + step, config.training.micro_batch_size)
        schedule.set(step)
        loss = model.loss(batch.tokens, batch.targets)["loss"]
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), config.training.grad_clip)
        optimizers.step()
        optimizers.zero_grad()
    return model.eval()


def _measure(task: Task, name: str, config: HyMoConfig, seeds: int) -> dict[str, Any]:
    began = time.process_time()
    found: dict[str, list[float]] = {test: [] for test in task.tests}
    for seed in range(seeds):
        model = train_on(task, config, seed)
        for test, draw in task.tests.items():
            found[test].append(accuracy(model, draw(_TEST_SEED, _TEST_ROWS)))
    return {
        "task": task.name,
        "model": name,
        "parameters": sum(p.numel() for p in model.parameters()),
        "steps": config.total_steps,
        "sequences_per_step": config.training.micro_batch_size,
        "chance": task.chance,
        "accuracy": found,
        "cpu_seconds": round(time.process_time() - began, 1),
    }


def _named(name: str, known: Mapping[str, _T], kind: str) -> _T:
    if name not in known:
        raise UsageError(f"{name}: unknown {kind}{nearest(name, known)}. Known: {'; '.join(known)}.")
    return known[name]
