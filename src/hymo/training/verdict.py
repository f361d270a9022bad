"""The verdict of a young run on itself: whether its first steps look like those of a run worth days.

At `training.verdict_step` the first rank reads the run's own records and judges each of them. What cannot be judged
(no plan for the loss, a device without a known peak) is told and counts for nothing. `hymo watch` shows the outcome;
with `training.verdict_gate` a run that fails saves and ends, and can be taken up again all the same.
"""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hymo.core.config import HyMoConfig
from hymo.core.errors import UsageError
from hymo.core.planner import plan
from hymo.training.metrics import EVENTS, Record, read_jsonl, read_metrics
from hymo.training.spikes import Spikes

FIRST_BLOCK = "layers.0."
"""How the parameters of the first block begin."""
MOST_SHARE = 0.5
"""Of the squared gradient that the first block may have: beyond, it trains and the rest follows."""
MOST_UNEVEN = 1.0
"""Coefficient of variation of the experts' load: at 1 a few of them do most of the work."""
MOST_DROPPED = 0.05
"""Of the tokens that experts may refuse."""
LEAST_MEMORY = 1.0
"""Tokens that the slowest tenth of a block's decays must remember."""
MOST_SPIKES = 0.02
"""Of the records that may be spikes."""
LEAST_SPEED = 0.8
"""Of the planned tokens per second."""


@dataclass(frozen=True)
class Finding:
    """One thing that was judged."""

    name: str
    ok: bool | None
    """None if it cannot be judged."""
    text: str
    """What was found, and the cure if it is bad."""


@dataclass(frozen=True)
class Verdict:
    """All findings."""

    findings: tuple[Finding, ...]

    @property
    def failed(self) -> tuple[Finding, ...]:
        """What is bad."""
        return tuple(finding for finding in self.findings if finding.ok is False)

    def event(self) -> dict[str, Any]:
        """As fields of an event: `passed`, and each finding by its name."""
        words = {True: "ok", False: "FAIL", None: "-"}
        return {"passed": not self.failed} | {f.name: f"{words[f.ok]}: {f.text}" for f in self.findings}


def verdict(config: HyMoConfig, folder: Path, device: str | None, ranks: int) -> Verdict:
    """Judge a run by its records up to now.

    Args:
        config: the run.
        folder: its folder.
        device: short name of its devices (`hymo.core.hardware`); None for one that is not known.
        ranks: of them.
    """
    train = [record for record in read_metrics(folder) if record.get("split") == "train"]
    late = train[-max(1, len(train) // 10) :]
    skipped = sum(event["kind"] == "skip" for event in read_jsonl(folder / EVENTS))
    return Verdict(
        (
            _loss(config, train, late),
            _spikes(config, train, skipped),
            _first_block(config, late),
            _load(late),
            _dropped(late),
            _decays(late),
            _reduction(config, ranks),
            _speed(config, train, device, ranks),
        )
    )


def _loss(config: HyMoConfig, train: Sequence[Record], late: Sequence[Record]) -> Finding:
    losses = _values(late, "train/loss")
    if not losses:
        return Finding("loss", False, "no finite loss among the last records")
    first, now, planned = _values(train, "train/loss")[0], statistics.fmean(losses), config.training.verdict_loss
    text = f"{first:.3f} at first, {now:.3f} now"
    if planned is None:
        return Finding("loss", None if now < first else False, f"{text}, none planned (training.verdict_loss)")
    cure = "" if now <= planned else "; compare learning rates and data with the run that the plan is from"
    return Finding("loss", now <= planned, f"{text}, {planned:g} planned{cure}")


def _spikes(config: HyMoConfig, train: Sequence[Record], skipped: int) -> Finding:
    spikes = Spikes(min(config.training.spike_window, max(2, len(train) // 4)), config.training.spike_sigmas)
    found = sum(spikes.is_spike(record["step"], loss) for record in train for loss in _values([record], "train/loss"))
    ok = not skipped and found <= MOST_SPIKES * len(train)
    cure = "" if ok else "; lower the learning rates, or set training.spike_rewind"
    return Finding("spikes", ok, f"{found} in {len(train)} records, {skipped} steps skipped{cure}")


def _first_block(config: HyMoConfig, late: Sequence[Record]) -> Finding:
    shares = _values(late, "train/first_block_share")
    if not shares:
        return Finding("first_block", None, "its share of the gradient was not recorded")
    share, shifted = statistics.fmean(shares), [layer + 1 for layer in config.model.mla_layers]
    if share <= MOST_SHARE:
        return Finding("first_block", True, f"{share:.0%} of the squared gradient")
    moved = [layer for layer in shifted if layer < config.model.n_layers]
    return Finding("first_block", False, f"{share:.0%} of the squared gradient; shift model.mla_layers to {moved}")


def _load(late: Sequence[Record]) -> Finding:
    layers = _layers(late, "moe/load_cv/")
    if not layers:
        return Finding("load", None, "no experts")
    worst = max(layers, key=lambda layer: layers[layer])
    ok = layers[worst] <= MOST_UNEVEN
    cure = "" if ok else "; raise model.moe_bias_speed"
    return Finding("load", ok, f"CV {layers[worst]:.2f} in layer {worst}, the worst{cure}")


def _dropped(late: Sequence[Record]) -> Finding:
    layers = _layers(late, "moe/dropped/")
    if not layers:
        return Finding("dropped", True, "no token (dropless)")
    worst = max(layers, key=lambda layer: layers[layer])
    ok = layers[worst] <= MOST_DROPPED
    cure = "" if ok else "; raise model.capacity_factor, or set it to null"
    return Finding("dropped", ok, f"{layers[worst]:.1%} of the tokens in layer {worst}, the worst{cure}")


def _decays(late: Sequence[Record]) -> Finding:
    layers = _layers(late, "gdn/tau_90/")
    if not layers:
        return Finding("decays", None, "no recurrence")
    dead = [layer for layer, tokens in layers.items() if tokens < LEAST_MEMORY]
    still = [value for value in _values(late, "update_ratio/adamw.decay") if value == 0.0]
    if not dead and not still:
        return Finding("decays", True, f"the slowest tenth remembers {min(layers.values()):.2g} tokens or more")
    found = f"layers {dead} forget within a token" if dead else "they do not move"
    return Finding("decays", False, f"{found}; set model.gdn_decay_init=log_uniform or lower optimizer.decay_group_eps")


def _reduction(config: HyMoConfig, ranks: int) -> Finding:
    name = config.training.reduce_dtype
    if ranks == 1 or name == "float32":
        return Finding("reduction", True, "gradients are summed in fp32")
    return Finding("reduction", None, f"gradients of {ranks} ranks are summed in {name}: compare with float32")


def _speed(config: HyMoConfig, train: Sequence[Record], device: str | None, ranks: int) -> Finding:
    rates = _values(train, "perf/tok_per_s")
    if not rates:
        return Finding("speed", None, "no throughput was recorded")
    rate, planned = statistics.median(rates), None
    if device is not None:
        with contextlib.suppress(UsageError):  # a plan that says it cannot fit, of a run that does
            planned = plan(config, device, ranks).throughput
    if planned is None:
        return Finding("speed", None, f"{rate:,.0f} tokens per second, no plan for this device")
    share = rate / planned.tokens_per_second
    cure = "" if share >= LEAST_SPEED else "; hymo doctor says which fast paths are off"
    return Finding("speed", share >= LEAST_SPEED, f"{rate:,.0f} tokens per second, {share:.0%} of the plan{cure}")


def _values(records: Sequence[Record], name: str) -> list[float]:
    """What is finite among a metric's values."""
    return [float(record[name]) for record in records if record.get(name) is not None]


def _layers(records: Sequence[Record], prefix: str) -> dict[int, float]:
    """Means of a metric by layer."""
    names = {name for record in records for name in record if name.startswith(prefix)}
    found = {int(name.removeprefix(prefix)): _values(records, name) for name in names}
    return {layer: statistics.fmean(values) for layer, values in sorted(found.items()) if values}
