"""The draft depth that pays, by hand and by simulation."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hymo.inference.drafting import PROBE, Costs, Speculation, best_depth, choose_depth, expected_tokens

RATES = st.lists(st.floats(0, 1, allow_subnormal=False), min_size=1, max_size=4)


def test_expected_tokens_by_hand() -> None:
    assert [expected_tokens([0.5, 0.4], depth) for depth in (0, 1, 2)] == pytest.approx([1, 1.5, 1.7])
    assert expected_tokens([1.0, 1.0, 1.0], 3) == 4
    assert expected_tokens([0.0, 1.0], 2) == 1


@given(rates=RATES)
def test_expected_tokens_equal_a_simulation_of_the_rule(rates: list[float]) -> None:
    rng = random.Random(0)
    runs = 4000
    total = 0
    for _ in range(runs):
        total += 1
        for rate in rates:
            if rng.random() >= rate:
                break
            total += 1
    assert total / runs == pytest.approx(expected_tokens(rates, len(rates)), abs=0.12)


def test_drafting_is_off_where_it_does_not_pay() -> None:
    assert best_depth([0.9, 0.8], [1.0, 1.1, 1.2]) == 2
    assert best_depth([0.9, 0.1], [1.0, 1.1, 1.3]) == 1
    assert best_depth([0.1, 0.1], [1.0, 1.2, 1.4]) == 0
    assert best_depth([0.9, 0.9], [1.0, 2.0, 3.0]) == 0  # a pass as slow as the tokens it saves
    assert best_depth([0.0, 0.0], [1.0, 1.0, 1.0]) == 0


@given(rates=RATES, data=st.data())
def test_no_other_depth_is_faster(rates: list[float], data: st.DataObject) -> None:
    seconds = data.draw(st.lists(st.floats(0.1, 10), min_size=len(rates) + 1, max_size=len(rates) + 1))
    best = best_depth(rates, seconds)
    for depth, cost in enumerate(seconds):
        assert expected_tokens(rates, best) / seconds[best] >= expected_tokens(rates, depth) / cost


def test_unmeasured_depths_come_first_and_the_full_one_is_tried_again() -> None:
    assert choose_depth([0.1, 0.1], [None, None, None], 0) == 2
    assert choose_depth([0.1, 0.1], [None, None, 1.0], 0) == 1
    assert choose_depth([0.1, 0.1], [None, 1.0, 1.0], 0) == 0
    chosen = [choose_depth([0.1, 0.1], [1.0, 1.5, 2.0], passes) for passes in range(2 * PROBE)]
    assert [passes for passes, depth in enumerate(chosen) if depth] == [PROBE - 1, 2 * PROBE - 1]
    assert {chosen[PROBE - 1], chosen[-1]} == {2}


def test_costs_follow_the_machine_and_shrug_off_a_stall() -> None:
    costs = Costs()
    for seconds in (9.0, 9.0, 1.0):  # the first two warm up
        costs.note(1, 2, seconds)
    assert costs.of(1, 2) == [None, None, 1.0]
    costs.note(1, 2, 1000.0)
    assert costs.of(1, 2)[2] == pytest.approx(1.4)
    for _ in range(60):
        costs.note(1, 2, 0.5)
    assert costs.of(1, 2)[2] == pytest.approx(0.5, abs=1e-4)
    assert costs.of(2, 2) == [None, None, None]


def test_counts_stop_at_the_first_wrong_draft() -> None:
    stats = Speculation([0, 0], [0, 0])
    for drafts, accepted in ((2, 2), (2, 1), (2, 0), (1, 1), (0, 0)):
        stats.note(drafts, accepted)
    assert (stats.proposed, stats.accepted) == ([4, 2], [3, 1])
    assert (stats.passes, stats.tokens) == (5, 9)
    assert stats.acceptance == [0.75, 0.5]
    assert stats.tokens_per_pass == 1.8
    for _ in range(200):
        stats.note(2, 0)
    assert stats.recent[0] < 0.01
