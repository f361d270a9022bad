"""The schedule against a table built step by step in exact arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from hymo.core.config import SchedulerConfig
from hymo.core.errors import CheckpointError, ConfigError, TrainingError
from hymo.training.normuon import NorMuon
from hymo.training.scheduler import JointWSDScheduler

FLAGSHIP = {"warmup_frac": 0.02, "stable_frac": 0.83, "decay_frac": 0.15, "min_lr_ratio": 0.05}


def table(total: int, warmup: int, decay: int, ratio: str, shape: str = "linear") -> list[float]:
    """Walk through the phases, one step after the other."""
    factors: list[float] = []
    while len(factors) < warmup:
        factors.append(float(Fraction(len(factors) + 1, warmup)))
    while len(factors) < total - decay:
        factors.append(1.0)
    floor = Fraction(ratio)
    for i in range(1, decay + 1):
        if shape == "linear":
            factors.append(float(1 - (1 - floor) * Fraction(i, decay)))
        else:
            factors.append(float(1 - (1 - floor) * Fraction(math.sqrt(i / decay))))
    return factors


def factors(scheduler: JointWSDScheduler) -> list[float]:
    return [scheduler.factor(step) for step in range(scheduler.total_steps)]


def test_the_flagship():
    scheduler = JointWSDScheduler(total_steps=57_220, **FLAGSHIP)
    assert (scheduler.warmup_steps, scheduler.stable_steps, scheduler.decay_steps) == (1_145, 47_492, 8_583)
    assert factors(scheduler) == pytest.approx(table(57_220, 1_145, 8_583, "0.05"), rel=1e-12)
    assert scheduler.factor(0) == 1 / 1_145
    assert scheduler.factor(1_144) == scheduler.factor(48_636) == 1.0 > scheduler.factor(48_637)
    assert scheduler.factor(57_219) == 0.05


@pytest.mark.parametrize("shape", ["linear", "sqrt"])
@pytest.mark.parametrize(
    ("total", "fractions", "warmup", "decay"),
    [
        (1, (0.02, 0.83, 0.15), 0, 1),
        (2, (0.02, 0.83, 0.15), 1, 1),
        (3, (0.02, 0.83, 0.15), 1, 1),
        (10, (0.0, 0.8, 0.2), 0, 2),
        (10, (0.1, 0.9, 0.0), 1, 0),
        (1, (1.0, 0.0, 0.0), 1, 0),
        (1, (0.0, 0.0, 1.0), 0, 1),
        (3, (0.5, 0.0, 0.5), 2, 1),
        (7, (0.0, 1.0, 0.0), 0, 0),
        (100, (0.07, 0.64, 0.29), 7, 29),  # 0.07 * 100 is above 7 in floats
        (300, (0.02, 0.83, 0.15), 6, 45),
    ],
)
def test_against_the_table(total, fractions, warmup, decay, shape):
    w, s, d = fractions
    scheduler = JointWSDScheduler(
        total_steps=total, warmup_frac=w, stable_frac=s, decay_frac=d, min_lr_ratio=0.05, decay_shape=shape
    )
    assert (scheduler.warmup_steps, scheduler.decay_steps, scheduler.total_steps) == (warmup, decay, total)
    assert factors(scheduler) == pytest.approx(table(total, warmup, decay, "0.05", shape), rel=1e-12)
    assert scheduler.factor(total - 1) == (0.05 if d else 1.0)


@given(
    total=st.integers(1, 3_000),
    cuts=st.tuples(st.integers(0, 100), st.integers(0, 100)).map(sorted),
    ratio=st.floats(0, 1, allow_subnormal=False),
    shape=st.sampled_from(["linear", "sqrt"]),
)
def test_any_schedule_rises_rests_and_falls_to_the_ratio(total, cuts, ratio, shape):
    scheduler = JointWSDScheduler(
        total_steps=total,
        warmup_frac=cuts[0] / 100,
        stable_frac=(cuts[1] - cuts[0]) / 100,
        decay_frac=(100 - cuts[1]) / 100,
        min_lr_ratio=ratio,
        decay_shape=shape,
    )
    values = factors(scheduler)
    assert len(values) == total
    assert min(scheduler.warmup_steps, scheduler.stable_steps, scheduler.decay_steps) >= 0
    rise, fall = values[: scheduler.warmup_steps], values[scheduler.decay_start :]
    assert rise == sorted(rise)
    assert fall == sorted(fall, reverse=True)
    assert set(values[scheduler.warmup_steps : scheduler.decay_start]) <= {1.0}
    assert all(min(ratio, 1 / total) <= value <= 1 for value in values)
    if cuts[1] < 100:
        assert values[-1] == ratio


def optimizers() -> list[torch.optim.Optimizer]:
    matrix, vector = nn.Parameter(torch.ones(2, 2)), nn.Parameter(torch.ones(2))
    return [NorMuon([matrix], 0.02), torch.optim.AdamW([vector], lr=3e-4)]


def test_both_optimizers_follow_with_a_constant_ratio():
    muon, adamw = optimizers()
    scheduler = JointWSDScheduler([muon, adamw], total_steps=300, **FLAGSHIP)
    for step, factor in enumerate(table(300, 6, 45, "0.05")):
        assert scheduler.set(step) == pytest.approx(factor, rel=1e-12)
        rates = muon.param_groups[0]["lr"], adamw.param_groups[0]["lr"]
        assert rates == pytest.approx((0.02 * factor, 3e-4 * factor), rel=1e-12)
        assert rates[0] / rates[1] == pytest.approx(0.02 / 3e-4, rel=1e-12)


def test_a_schedule_built_over_moved_rates_keeps_the_peaks():
    pair = optimizers()
    JointWSDScheduler(pair, total_steps=300, **FLAGSHIP).set(0)
    again = JointWSDScheduler(pair, total_steps=300, **FLAGSHIP)
    again.set(100)
    assert [o.param_groups[0]["lr"] for o in pair] == [0.02, 3e-4]


def test_extension_keeps_the_steps_taken_and_decays_at_the_new_end():
    scheduler = JointWSDScheduler(total_steps=300, **FLAGSHIP)
    before = factors(scheduler)[:200]
    scheduler.extend(1_000, from_step=200)
    assert factors(scheduler)[:200] == before
    assert factors(scheduler) == pytest.approx(table(1_000, 6, 150, "0.05"), rel=1e-12)
    restored = JointWSDScheduler(total_steps=1_000, **FLAGSHIP)
    assert factors(restored) != factors(scheduler)  # a fresh one would warm up for 20 steps
    restored.load_state_dict(scheduler.state_dict())
    assert factors(restored) == factors(scheduler)


@pytest.mark.parametrize("from_step", [50, 10])
def test_a_long_decay_starts_no_earlier_than_the_checkpoint(from_step):
    scheduler = JointWSDScheduler(total_steps=100, warmup_frac=0.1, stable_frac=0.4, decay_frac=0.5, min_lr_ratio=0.0)
    scheduler.extend(101, from_step=from_step)
    assert (scheduler.warmup_steps, scheduler.decay_start) == (10, 51)
    scheduler = JointWSDScheduler(total_steps=10, warmup_frac=0.0, stable_frac=0.1, decay_frac=0.9, min_lr_ratio=0.1)
    scheduler.extend(11, from_step=1)
    assert factors(scheduler) == pytest.approx(table(11, 0, 10, "0.1"), rel=1e-12)


@pytest.mark.parametrize(("total", "step"), [(300, 100), (1_000, 5), (1_000, 256), (200, 100)])
def test_extension_from_elsewhere_is_refused(total, step):
    scheduler = JointWSDScheduler(total_steps=300, **FLAGSHIP)
    with pytest.raises(ConfigError, match="extend"):
        scheduler.extend(total, from_step=step)


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"stable_frac": 0.8}, "sum to 0.97"),
        ({"warmup_frac": -0.02, "stable_frac": 0.87}, "warmup_frac"),
        ({"min_lr_ratio": 1.5}, "min_lr_ratio"),
        ({"total_steps": 0}, "total_steps"),
        ({"decay_shape": "cosine"}, "decay_shape"),
        ({"decay_frac": math.nan}, "decay_frac"),
    ],
)
def test_bad_values_are_named(change, key):
    with pytest.raises(ConfigError, match=key):
        JointWSDScheduler(**{"total_steps": 100, **FLAGSHIP, **change})


@pytest.mark.parametrize("step", [-1, 300])
def test_steps_outside_the_schedule_are_errors(step):
    with pytest.raises(TrainingError, match=f"step {step}"):
        JointWSDScheduler(total_steps=300, **FLAGSHIP).factor(step)


def test_built_from_a_config():
    config = SchedulerConfig(total_steps=300, **FLAGSHIP)
    assert factors(JointWSDScheduler.from_config([], config, 300)) == factors(
        JointWSDScheduler(total_steps=300, **FLAGSHIP)
    )


def test_a_foreign_state_is_refused():
    with pytest.raises(CheckpointError, match="last_epoch"):
        JointWSDScheduler(total_steps=300, **FLAGSHIP).load_state_dict({"last_epoch": 3})
