"""Scores on CUDA: those of the CPU, whatever the batch."""

from __future__ import annotations

import random

import pytest

from hymo.evaluation.scoring import Row, score_rows
from model_helpers import build

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("recurrence", ["gated_linear", "gated_delta"])
def test_scores_on_cuda_are_those_of_the_cpu_for_any_batch(recurrence: str) -> None:
    rng = random.Random(0)
    rows = []
    for _ in range(40):
        ids = rng.choices(range(3, 64), k=rng.randrange(2, 150))
        count = rng.randrange(1, len(ids))
        rows.append(Row(tuple(ids[:-1]), tuple(ids[-count:])))
    model = build(double=True, gdn_recurrence=recurrence)
    exact = [total for total, _ in score_rows(model, rows, 8, 2)]
    model = build(gdn_recurrence=recurrence).cuda()
    found = {size: score_rows(model, rows, size, 2) for size in (1, 8, 40)}
    for scores in found.values():
        assert [total for total, _ in scores] == pytest.approx(exact, rel=1e-4)
    for size in (1, 40):
        assert [total for total, _ in found[size]] == pytest.approx([total for total, _ in found[8]], rel=1e-5)
    shuffled = rows[:]
    rng.shuffle(shuffled)
    by_row = dict(zip(rows, found[8], strict=True))
    assert score_rows(model, shuffled, 8, 2) == [by_row[row] for row in shuffled]
