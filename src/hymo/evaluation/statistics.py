"""Errors and intervals of scores."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Array = NDArray[np.float64]
RESAMPLES = 10_000
_RESAMPLES_ERROR = 200
_BATCH_ELEMENTS = 1 << 24


def standard_error(
    items: Sequence[Any], value: float, aggregate: Callable[[list[Any]], Any] | None = None
) -> float | None:
    """Standard error of a score over its items.

    That of the mean if the score is the items' mean, else a bootstrap of `aggregate`; None if neither applies.
    """
    if len(items) < 2:
        return None
    try:
        numbers = np.asarray(items, dtype=np.float64)
    except (TypeError, ValueError):
        numbers = np.empty(0)
    if numbers.ndim == 1 and len(numbers) and math.isclose(numbers.mean(), value, rel_tol=1e-9, abs_tol=1e-12):
        return float(numbers.std(ddof=1) / math.sqrt(len(numbers)))
    if aggregate is None:
        return None
    rng = np.random.default_rng(0)
    drawn = [aggregate([items[i] for i in rng.integers(0, len(items), len(items))]) for _ in range(_RESAMPLES_ERROR)]
    return float(np.std(drawn, ddof=1))


def seed_interval(scores: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """Student's t interval of the mean of scores of several seeds."""
    values = np.asarray(scores, dtype=np.float64)
    if len(values) < 2:
        raise ValueError("an interval over seeds needs two or more")
    half = stats.t.ppf(0.5 + confidence / 2, len(values) - 1) * values.std(ddof=1) / math.sqrt(len(values))
    return float(values.mean() - half), float(values.mean() + half)


def pooled_half_width(scores: Array, confidence: float = 0.95) -> float:
    """Half of the interval of the difference of any two variants' means, from the error that all variants share.

    Args:
        scores: (variants, seeds), two or more of each; a seed is a block that every variant has run with.
        confidence: of one difference; several are not corrected for.

    The error is the residual of variants x blocks, with (variants - 1)(seeds - 1) degrees of freedom (two-way analysis
    of variance without replication). It is better known than the spread of one pair over few seeds, if all pairs
    spread alike. For two variants it is the paired t interval.
    """
    variants, seeds = scores.shape
    if variants < 2 or seeds < 2:
        raise ValueError("a pooled interval needs two or more variants and seeds")
    residual = scores - scores.mean(1, keepdims=True) - scores.mean(0, keepdims=True) + scores.mean()
    freedom = (variants - 1) * (seeds - 1)
    error = float((residual**2).sum()) / freedom
    return float(stats.t.ppf(0.5 + confidence / 2, freedom) * math.sqrt(2 * error / seeds))


def bootstrap_interval(
    items: Array, statistic: Callable[[Array], Array], confidence: float = 0.95, resamples: int = RESAMPLES
) -> tuple[float, float]:
    """Percentile bootstrap over items.

    Args:
        items: (n, ...) one row an item.
        statistic: takes (r, n, ...) resamples and returns (r,) scores.
        confidence: share of resamples inside.
        resamples: how many to draw, always the same ones.
    """
    rng = np.random.default_rng(0)
    batch = max(1, _BATCH_ELEMENTS // max(1, items.size))
    scores = [
        statistic(items[rng.integers(0, len(items), (min(batch, resamples - done), len(items)))])
        for done in range(0, resamples, batch)
    ]
    low, high = np.quantile(np.concatenate(scores), (0.5 - confidence / 2, 0.5 + confidence / 2))
    return float(low), float(high)
