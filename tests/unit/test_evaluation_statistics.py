"""Intervals against scipy's own, and against least squares."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from hymo.evaluation.statistics import Array, bootstrap_interval, pooled_half_width, seed_interval, standard_error

scores = st.floats(-10, 10, width=32, allow_subnormal=False)


def _spread(values: Array) -> bool:
    return bool(values.std() > 1e-3)


@given(arrays(np.float64, st.integers(2, 12), elements=scores).filter(_spread), st.sampled_from([0.8, 0.95, 0.99]))
def test_seed_interval_is_scipys_t_interval(values: Array, confidence: float) -> None:
    expected = stats.ttest_1samp(values, 0).confidence_interval(confidence)
    assert seed_interval(list(values), confidence) == pytest.approx((expected.low, expected.high), rel=1e-9, abs=1e-9)


@given(
    arrays(np.float64, st.tuples(st.just(2), st.integers(2, 8)), elements=scores).filter(lambda x: _spread(x[0] - x[1]))
)
def test_two_variants_pool_to_the_paired_t_interval(pair: Array) -> None:
    expected = stats.ttest_rel(pair[0], pair[1]).confidence_interval(0.95)
    assert pooled_half_width(pair) == pytest.approx((expected.high - expected.low) / 2, rel=1e-6)


@given(arrays(np.float64, st.tuples(st.integers(2, 6), st.integers(2, 5)), elements=scores).filter(_spread))
def test_the_pooled_error_is_the_residual_of_variants_and_blocks(table: Array) -> None:
    variants, seeds = table.shape
    design = np.zeros((table.size, variants + seeds))
    for i in range(variants):
        for j in range(seeds):
            design[i * seeds + j, [i, variants + j]] = 1
    fitted = design @ np.linalg.lstsq(design, table.ravel(), rcond=None)[0]
    freedom = table.size - np.linalg.matrix_rank(design)
    error = ((table.ravel() - fitted) ** 2).sum() / freedom
    expected = stats.t.ppf(0.975, freedom) * np.sqrt(2 * error / seeds)
    assert pooled_half_width(table) == pytest.approx(expected, rel=1e-6, abs=1e-9)


def test_pooled_intervals_hold_as_often_as_they_say() -> None:
    rng = np.random.default_rng(5)
    inside = 0
    for _ in range(2000):
        table = rng.normal(size=(5, 2)) + rng.normal(size=2) * 3  # no variant differs, seeds do
        difference = table[1].mean() - table[0].mean()
        inside += abs(difference) <= pooled_half_width(table)
    assert inside / 2000 == pytest.approx(0.95, abs=0.02)  # four standard deviations of the share


def test_too_little_for_an_interval() -> None:
    with pytest.raises(ValueError, match="two or more"):
        seed_interval([1.0])
    for shape in ((1, 3), (3, 1)):
        with pytest.raises(ValueError, match="two or more"):
            pooled_half_width(np.zeros(shape))


@given(arrays(np.float64, st.integers(2, 40), elements=scores).filter(_spread))
def test_standard_error_of_a_mean_is_scipys(values: Array) -> None:
    assert standard_error(list(values), float(values.mean())) == pytest.approx(stats.sem(values), rel=1e-9)


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=5, deadline=None)
def test_bootstrap_is_scipys_within_its_own_noise(seed: int) -> None:
    values = np.random.default_rng(seed).exponential(size=60)
    ours = bootstrap_interval(values, lambda drawn: drawn.mean(1))
    theirs = stats.bootstrap((values,), np.mean, method="percentile", n_resamples=10_000, rng=np.random.default_rng(1))
    # The 2.5 % point of 10,000 resamples scatters by about 0.03 standard errors; two of them, five deviations.
    slack = 0.2 * stats.sem(values)
    expected = theirs.confidence_interval
    assert ours == pytest.approx((expected.low, expected.high), abs=slack)
