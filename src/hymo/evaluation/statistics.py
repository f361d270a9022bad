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
