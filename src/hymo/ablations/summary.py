"""What rows of a comparison say together: means, paired differences with intervals, costs."""

from __future__ import annotations

import statistics as plain
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hymo.ablations.rows import Row
from hymo.ablations.variants import BASE
from hymo.evaluation.statistics import pooled_half_width, seed_interval

Interval = tuple[float, float]
CONFIDENCE = 0.95
TARGET_SLACK = 1.01
"""The target is the base's final figure times this: reached by the base itself, on its way."""


@dataclass(frozen=True)
class Summary:
    """One variant over its seeds."""

    name: str
    seeds: tuple[int, ...]
    bits_per_byte: tuple[float, ...]
    """Final held-out figure of each seed."""
    mean: float
    interval: Interval | None
    """Student's t interval of the mean over seeds; None with one seed."""
    difference: float | None
    """Mean over the seeds shared with the base of variant minus base; None for the base and without such a seed."""
    paired: Interval | None
    """Student's t interval of the differences by seed; None with fewer than two."""
    pooled: Interval | None
    """Interval from the error that all variants share; None with fewer than two seeds or three variants."""
    rows: tuple[Row, ...]

    def mean_of(self, name: str) -> float | None:
        """Mean over seeds of a number of the rows; None if a row lacks it."""
        values = [row.get(name) for row in self.rows]
        return (
            None if any(value is None for value in values) else plain.fmean(float(v) for v in values if v is not None)
        )


def summarise(rows: Sequence[Row], reference: str = BASE) -> list[Summary]:
    """One summary a variant, what they are compared with first; rows without a finite figure are left out."""
    by_name: dict[str, dict[int, Row]] = {}
    for row in rows:
        if row.get("bits_per_byte") is not None and not row.get("failed"):
            by_name.setdefault(row["variant"], {})[row["seed"]] = row
    base = by_name.get(reference, {})
    half = _pooled(by_name, base)
    names = sorted(by_name, key=lambda name: name != reference)
    return [_summary(name, by_name[name], {} if name == reference else base, half) for name in names]


def _summary(name: str, by_seed: dict[int, Row], base: dict[int, Row], half: float | None) -> Summary:
    seeds = tuple(sorted(by_seed))
    scores = tuple(by_seed[seed]["bits_per_byte"] for seed in seeds)
    shared = [seed for seed in seeds if seed in base]
    differences = [by_seed[seed]["bits_per_byte"] - base[seed]["bits_per_byte"] for seed in shared]
    difference = plain.fmean(differences) if differences else None
    many = len(differences) > 1
    pooled = (difference - half, difference + half) if many and half is not None and difference is not None else None
    return Summary(
        name=name,
        seeds=seeds,
        bits_per_byte=scores,
        mean=plain.fmean(scores),
        interval=seed_interval(scores, CONFIDENCE) if len(scores) > 1 else None,
        difference=difference,
        paired=seed_interval(differences, CONFIDENCE) if many else None,
        pooled=pooled,
        rows=tuple(by_seed[seed] for seed in seeds),
    )


def _pooled(by_name: dict[str, dict[int, Row]], base: dict[int, Row]) -> float | None:
    """Half width from all variants that share the base's seeds; None where there is too little to pool."""
    seeds = sorted(base)
    whole = [found for found in by_name.values() if set(seeds) <= found.keys()]
    if len(seeds) < 2 or len(whole) < 3:
        return None
    return pooled_half_width(np.array([[rows[s]["bits_per_byte"] for s in seeds] for rows in whole]), CONFIDENCE)


def target_of(summaries: Sequence[Summary]) -> float:
    """Bits per byte whose first crossing is timed: just above the base's final figure."""
    return TARGET_SLACK * summaries[0].mean


def time_to(row: Row, target: float) -> float | None:
    """Seconds of training until the held-out figure was at `target`, between validations by a straight line."""
    return _reached(row, target, 1)


def tokens_to(row: Row, target: float) -> float | None:
    """The same in tokens, which do not depend on what else the device did."""
    return _reached(row, target, 0)


def has_clock(row: Row) -> bool:
    """Whether a run had its device for itself, so that its clock says something; of a resumed one nobody knows."""
    return row.get("parallel", 1) == 1 and not row.get("resumed_at")


def alone(summaries: Sequence[Summary]) -> bool:
    """Whether every run has a clock that says something."""
    return all(has_clock(row) for each in summaries for row in each.rows)


def _reached(row: Row, target: float, axis: int) -> float | None:
    before: list[Any] | None = None
    for point in row["curve"]:
        at, score = point[axis], point[2]
        if score is not None and score <= target:
            if before is None or before[2] is None or before[2] <= score:
                return float(at)
            share = (before[2] - target) / (before[2] - score)
            return float(before[axis] + share * (at - before[axis]))
        before = point
    return None
