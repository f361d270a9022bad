"""Which decoding passes are recorded, counted over whole runs: by passes that compute nothing, so without a GPU."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from hymo.data import ByteTokenizer
from hymo.inference import Engine, Request, Sampling, recorded
from hymo.inference.fixed import FixedState
from hymo.inference.recorded import Answer
from hymo.inference.request import Drafts
from hymo.models import HyMo
from model_helpers import build

Size = tuple[int, int]
"""Rows and tokens of a row."""
KEPT, PATIENCE = 0.48, 512
LETTER, OTHER = 65, 66


class Counted:
    """In the place of `Recorded`: every draft is kept with probability `KEPT`, by the text's own random numbers."""

    events: list[tuple[Size, Size | None]] = []
    """Of each pass the rows and tokens that it was needed for, and those of the recording; of a recording None."""

    def __init__(self, model: HyMo, state: FixedState, rows: int, width: int, closed: Tensor, draws: bool) -> None:
        assert draws
        self.rows, self.width, self.draws = rows, width, draws
        self.hidden = torch.zeros(rows, width, model.config.dim)

    def record(self, pool: Any) -> None:
        """As `Recorded.record`."""
        self.events.append(((self.rows, self.width), None))

    def replay(self, packet: Sequence[Sequence[float]], chain: Tensor | None = None) -> Answer:
        """As `Recorded.replay`."""
        self.events.append(((len(packet), int(max(line[1] for line in packet))), (self.rows, self.width)))
        lines = []
        for line in packet:
            drawn = [LETTER if number < KEPT else OTHER for number in line[3 : 2 + self.width]]
            lines.append([*drawn, OTHER, *[-1.0] * self.width, *[LETTER] * (self.width - 1)])
        return Answer(torch.tensor(lines, dtype=torch.float64), None)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    monkeypatch.setattr(recorded, "Recorded", Counted)
    monkeypatch.setattr(recorded, "obstacle", lambda model: "")
    monkeypatch.setattr(Counted, "events", [])
    return Engine(build(vocab_size=259, n_layers=2, mla_layers=[1], max_seq_len=4096), ByteTokenizer())


def request(seed: int, new: int, drafts: Drafts = False) -> Request:
    return Request((1, 65, 66), new, Sampling(seed=seed), speculative=drafts)


def made() -> list[Size]:
    """Recordings in order."""
    return [size for size, ran in Counted.events if ran is None]


def passes() -> list[tuple[Size, Size]]:
    """What each pass was needed for, and what it ran in."""
    return [(needed, ran) for needed, ran in Counted.events if ran is not None]


def own_size(needed: Size) -> Size:
    """The recording made for so many rows and tokens in a state of 16 rows."""
    return next(rows for rows in (1, 2, 4, 8, 16) if rows >= needed[0]), needed[1]


def begin_batch(engine: Engine, drafts: Drafts = False) -> None:
    """A few passes over 16 texts that might become long, so that the state has room for 16 of them."""
    scheduler = engine.scheduler(16)
    jobs = [scheduler.submit(request(row, 3000, drafts)) for row in range(16)]
    for _ in range(3):
        scheduler.step()
    for job in jobs:
        scheduler.cancel(job)
    assert scheduler.idle
    assert made() == [(16, 1 + int(drafts))]


def test_a_batch_that_ends_records_nothing(engine: Engine) -> None:
    """The benchmark's: 16 texts of two drafts end one by one, three times over."""
    for seed in range(3):
        engine.run([request(16 * seed + row, 256, 2) for row in range(16)], 16)
    assert made() == [(16, 3)]
    misplaced = Counter(own_size(needed) for needed, ran in passes() if own_size(needed) != ran)
    assert {rows for rows, _ in misplaced} == {1, 2, 4, 8}  # it did shrink
    assert max(misplaced.values()) > 8


@pytest.mark.parametrize("drafts", [False, 2])
def test_a_long_text_after_a_batch_gets_a_pass_of_its_own(engine: Engine, drafts: Drafts) -> None:
    """Once as many passes as a recording is worth have run in the batch's; those sent ahead are counted too."""
    own, batch = (1, 1 + int(drafts)), (16, 1 + int(drafts))
    begin_batch(engine, drafts)
    engine.run([request(99, 3000, drafts)], 16)
    assert made() == [batch, own]
    sizes = [ran for needed, ran in passes() if needed == own]
    assert sizes == [batch] * PATIENCE + [own] * (len(sizes) - PATIENCE)
    assert len(sizes) > 2 * PATIENCE


def test_texts_one_after_another_share_their_patience(engine: Engine) -> None:
    """Each is too short for a recording to pay, all together are not."""
    begin_batch(engine)
    for seed in range(10):
        engine.run([request(seed, 101)], 16)
    assert made() == [(16, 1), (1, 1)]
    assert [ran for needed, ran in passes() if needed == (1, 1)] == [(16, 1)] * PATIENCE + [(1, 1)] * (1000 - PATIENCE)


def test_a_server_records_what_it_lacks_and_what_pays(engine: Engine) -> None:
    """Texts of several lengths come at any time, a third with drafts, in 16 slots."""
    rng = random.Random(0)
    begin_batch(engine)
    Counted.events.clear()
    scheduler = engine.scheduler(16)
    for step in range(8000):
        if rng.random() < 0.03 and len(scheduler.waiting) < 4:
            scheduler.submit(request(step, rng.choice((8, 60, 400)), rng.choice((False, False, 2))))
        if not scheduler.idle:
            scheduler.step()
    waited: Counter[Size] = Counter()
    there: list[Size] = [(16, 1)]
    paid: list[Size] = []
    missing: list[Size] = []
    for needed, ran in Counted.events:
        size = own_size(needed)
        larger = [one for one in there if one[0] >= size[0] and one[1] >= size[1]]
        if ran is None:
            assert size not in there
            assert waited[size] == PATIENCE or not larger
            (paid if larger else missing).append(size)
            there.append(size)
        elif size in there:
            assert ran == size
        else:
            assert ran == min(larger, key=lambda one: one[0] * one[1])
            waited[size] += 1
    assert max(waited.values()) == PATIENCE
    assert len(paid) >= 3
    assert all(width == 3 for _, width in missing)  # of one token a row the largest was there


def test_a_text_that_drafts_as_far_as_it_pays_has_all_drafts_judged_that_are_made(engine: Engine) -> None:
    """Depths that are not recorded yet cannot be timed: until they are, the wider pass is used to the full."""
    text = engine.run([request(7, 400, "auto")], 1)[0][0]
    assert made() == [(1, 3)]
    assert text.speculation is not None
    assert text.speculation.passes == len(passes())
    needed = [width for (_, width), _ in passes()]
    assert needed[:-2] == [3] * (len(needed) - 2)  # the last two may have room for fewer
    _, one, two = engine._costs.of(1, 2)
    assert one is None
    assert two is not None


def test_the_time_of_a_larger_pass_is_not_that_of_a_smaller(engine: Engine) -> None:
    begin_batch(engine, 2)
    before = dict(engine._costs._count)
    engine.run([request(99, 40, 2)], 16)
    assert passes()[-1][1] == (16, 3)
    assert engine._costs._count == before
