"""How far each feed is read: to its end, or until its share of the training tokens is there.

Reading ahead of what is needed changes nothing, since the choice (`Job.plan`) cuts each feed where its budget is
reached. Where duplicates leave too little, reading goes on; where a feed ends too early, `Job.exhausted` decides.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Protocol

from hymo.data.job import Job, Place
from hymo.data.selection import Selection
from hymo.data.sources import Block

# phase ("read", "tokens" or "write"), done, in all: bytes, tokens, bytes
Progress = Callable[[str, int, int], None]
# stream, its next block (None at its end), training tokens of the feed so far
Report = Callable[[int, Block | None, int], None]
MAX_PASSES = 4
"""How often a source may be repeated: beyond about four passes, new tokens are worth more (Muennighoff et al. 2023)."""


class Encoder(Protocol):
    """Encodes blocks, now or soon."""

    def encode(self, place: Place, block: Block) -> None:
        """Take a block."""

    def wait(self) -> None:
        """Return when all blocks taken are on the disk."""


class FeedReader:
    """Reads one feed, or its streams from `first` to before `last`, in order and remembers where it stopped."""

    def __init__(
        self, job: Job, feed: int, report: Report | None = None, first: int = 0, last: int | None = None
    ) -> None:
        self._job, self._feed, self._report = job, feed, report
        self._last = job.feeds[feed].streams if last is None else last
        self._stream, self._block = first, 0
        self._blocks: Iterator[Block] | None = None
        self._waiting: deque[Place] = deque()
        self.tokens = 0
        """Training tokens of all parts so far, before duplicates are dropped."""

    @property
    def exhausted(self) -> bool:
        """Whether there is nothing left."""
        return self._stream == self._last

    def read(self, encoder: Encoder, until: int | None) -> None:
        """Read on until there are `until` training tokens; None reads all."""
        job, feed = self._job, self._feed
        while not self.exhausted:
            self._known()
            if self.exhausted or (until is not None and self._count() >= until):
                break
            if self._blocks is None:
                self._blocks = islice(job.blocks(feed, self._stream), self._block, None)
            block = next(self._blocks, None)
            if self._report:
                self._report(self._stream, block, self.tokens)
            if block is None:
                encoder.wait()
                job.end(feed, self._stream, self._block, exhausted=True)
                self._next()
                continue
            place = (feed, self._stream, self._block)
            if job.part(place) is None:
                encoder.encode(place, block)
            self._waiting.append(place)
            self._block += 1
        encoder.wait()
        self._count()
        if not self.exhausted:
            job.end(feed, self._stream, self._block, exhausted=False)

    def _known(self) -> None:
        """Pass over what an earlier run has read."""
        while self._block == 0 and not self.exhausted and (end := self._job.ended(self._feed, self._stream)):
            self._waiting += [(self._feed, self._stream, block) for block in range(end["blocks"])]
            self._block = end["blocks"]
            if not end["exhausted"]:
                break
            if self._report:
                self._report(self._stream, None, self.tokens)
            self._next()

    def _next(self) -> None:
        self._stream, self._block, self._blocks = self._stream + 1, 0, None

    def _count(self) -> int:
        while self._waiting and (facts := self._job.part(self._waiting[0])):
            self.tokens += facts["train_tokens"]
            self._waiting.popleft()
        return self.tokens


def read_all(job: Job, encoder: Encoder, progress: Progress | None = None) -> list[FeedReader]:
    """Write the parts that all feeds' budgets need, as far as can be told before duplicates are known."""
    bar = _Bar(job, progress)
    readers = [FeedReader(job, number, bar.of(number)) for number in range(len(job.feeds))]
    for reader, feed in zip(readers, job.feeds, strict=True):
        reader.read(encoder, feed.train_tokens)
        bar.feed_done(reader.tokens)
    return readers


def settle(job: Job, encoder: Encoder, readers: list[FeedReader]) -> Selection:
    """Read on, re-weight or repeat until every budget is met or nothing is left, and return the plan."""
    asked = [feed.train_tokens for feed in job.feeds]
    budgets, passes = list(asked), [1] * len(asked)
    while True:
        plan = job.plan(budgets, passes)
        short = [i for i, budget in enumerate(budgets) if budget is not None and plan.offered[i] < budget]
        unread = [i for i in short if not readers[i].exhausted]
        for i in unread:
            # As many duplicates again are expected among what is read now.
            rate = min(4.0, max(1.0, readers[i].tokens / max(1, plan.offered[i])))
            missing = (budgets[i] or 0) - plan.offered[i]
            readers[i].read(encoder, readers[i].tokens + round(missing * rate))
        if unread:
            continue
        changed = _share_out(job, asked, plan.offered, budgets, passes)
        if changed == (budgets, passes):
            plan.warnings += _explain(job, asked, plan.offered, budgets, passes)
            return plan
        budgets, passes = changed


def _share_out(
    job: Job, asked: list[int | None], offered: list[int], budgets: list[int | None], passes: list[int]
) -> tuple[list[int | None], list[int]]:
    """Return budgets and passes after the feeds that ended early; those of feeds that did not are only raised.

    Budgets are a function of what short feeds offer, so the order in which feeds turn out short makes no difference.
    """
    passes = list(passes)
    missing, open_feeds = 0, []
    for i, wanted in enumerate(asked):
        if wanted is None:
            continue
        budget = budgets[i]
        if budget is not None and offered[i] >= budget:
            open_feeds.append(i)
            continue
        passes[i] = 1
        if job.exhausted == "repeat" and offered[i]:
            passes[i] = min(MAX_PASSES, -(-wanted // offered[i]))
        missing += wanted - (offered[i] if passes[i] == 1 else min(wanted, passes[i] * offered[i]))
    new = list(budgets)
    for i, wanted in enumerate(asked):
        if wanted is not None and i not in open_feeds and job.exhausted != "repeat":
            new[i] = None
        elif wanted is not None and i in open_feeds and missing and job.exhausted != "stop":
            weight = wanted / sum(asked[k] or 0 for k in open_feeds)
            new[i] = max(budgets[i] or 0, wanted + round(missing * weight))
    return new, passes


def _explain(
    job: Job, asked: list[int | None], offered: list[int], budgets: list[int | None], passes: list[int]
) -> list[str]:
    lines = []
    total = sum(wanted or 0 for wanted in asked)
    got = 0
    for feed, wanted, there, budget, turns in zip(job.feeds, asked, offered, budgets, passes, strict=True):
        if wanted is None:
            continue
        taken = min(there * turns, budget) if budget is not None else there
        got += taken
        name = feed.name or "the input"
        if there < wanted:
            how = f"{name} holds {there:,} of the {wanted:,} training tokens asked of it"
            if turns > 1:
                how += f": it is repeated, {min(turns, -(-wanted // there))} passes"
            elif job.exhausted == "reweight" and len(asked) > 1:
                how += ": the others make up for it by weight"
            lines.append(how)
    if total - got > len(asked):  # budgets are rounded
        lines.append(f"the set has {total - got:,} training tokens fewer than the {total:,} asked for")
    return lines


class _Bar:
    """Progress over all feeds: bytes of files, or tokens where all feeds have budgets."""

    def __init__(self, job: Job, progress: Progress | None) -> None:
        self._job, self._progress = job, progress
        self._sizes = [[feed.size(stream) for stream in range(feed.streams)] for feed in job.feeds]
        self._total = sum(map(sum, self._sizes))
        self._budget = sum(feed.train_tokens or 0 for feed in job.feeds)
        self._in_tokens = all(feed.train_tokens is not None for feed in job.feeds)
        self._tokens = 0

    def of(self, feed: int) -> Report | None:
        if self._progress is None:
            return None
        progress = self._progress
        before = sum(sum(sizes) for sizes in self._sizes[:feed])

        def report(stream: int, block: Block | None, tokens: int) -> None:
            if self._in_tokens:
                progress("tokens", min(self._tokens + tokens, self._budget), self._budget)
            else:
                sizes = self._sizes[feed]
                done = sizes[stream] if block is None else min(block.position, sizes[stream])
                progress("read", before + sum(sizes[:stream]) + done, self._total)

        return report

    def feed_done(self, tokens: int) -> None:
        """Report the tokens of a feed that was read far enough."""
        if self._progress is not None and self._in_tokens:
            self._tokens += tokens
            self._progress("tokens", min(self._tokens, self._budget), self._budget)
