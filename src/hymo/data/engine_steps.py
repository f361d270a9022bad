"""The steps of a `Job` as datatrove's pipeline steps. Importing this module needs datatrove.

Each step reads and writes the same files as the one-machine path, so ranks may die, be requeued or run twice.
"""

from __future__ import annotations

from typing import Any

from datatrove.pipeline.base import PipelineStep

from hymo.core.errors import DataError
from hymo.data.dataset import MANIFEST, SPLITS
from hymo.data.job import Job
from hymo.data.prepare import require_training_text
from hymo.data.reading import FeedReader, read_all, settle
from hymo.data.shards import ShardInfo
from hymo.data.tokenizer import Tokenizer, load_tokenizer
from hymo.data.workers import Workers


class _Step(PipelineStep):
    """A step that takes no documents from the one before and gives none to the next."""

    type = "HyMo"

    def __init__(self, job: Job) -> None:
        super().__init__()
        self.job = job

    def tokenizer(self) -> Tokenizer:
        """Return the job's tokenizer.

        Raises:
            DataError: the file is another one on this machine.
        """
        tokenizer = load_tokenizer(self.job.tokenizer)
        if tokenizer.fingerprint() != self.job.fingerprint:
            raise DataError(f"{self.job.tokenizer}: not the tokenizer that the preparation was started with")
        return tokenizer


class EncodeStep(_Step):
    """Encodes the streams of a rank: every world-size-th of all feeds' streams."""

    name = "encode"

    def run(self, data: Any = None, rank: int = 0, world_size: int = 1) -> None:
        """Write the parts of this rank's streams that are not there yet.

        A stream is read until it could fill its feed's budget by itself: whatever is too much is left out by the plan.
        """
        job = self.job
        with Workers(job, self.tokenizer(), 1) as pool, self.track_time(unit="task"):
            for feed, stream in list(job.streams())[rank::world_size]:
                reader = FeedReader(job, feed, first=stream, last=stream + 1)
                reader.read(pool, job.feeds[feed].train_tokens)
                self.stat_update("train_tokens", value=reader.tokens, unit="stream")


class PlanStep(_Step):
    """Chooses documents, order and shards; one task. Reads on where duplicates left too little."""

    name = "plan"

    def run(self, data: Any = None, rank: int = 0, world_size: int = 1) -> None:
        """Write the plan."""
        job = self.job
        with Workers(job, self.tokenizer(), 1) as pool, self.track_time(unit="task"):
            plan = settle(job, pool, read_all(job, pool))
        require_training_text(job, plan)
        job.save_plan(plan)


class WriteStep(_Step):
    """Writes the shards of a rank: every world-size-th."""

    name = "write"

    def run(self, data: Any = None, rank: int = 0, world_size: int = 1) -> None:
        """Write this rank's shards that are not there yet."""
        plan, tokenizer = self.job.load_plan(), self.tokenizer()
        with self.track_time(unit="task"):
            for split, index in plan.places()[rank::world_size]:
                info = self.job.write(plan, split, index, tokenizer)
                self.stat_update("tokens", value=info.tokens, unit="shard")


class FinishStep(_Step):
    """Writes the manifest and removes the parts; one task."""

    name = "finish"

    def run(self, data: Any = None, rank: int = 0, world_size: int = 1) -> None:
        """Finish, unless an earlier run of this task did."""
        job = self.job
        if (job.out / MANIFEST).is_file() and not job.work.exists():
            return
        plan, tokenizer = job.load_plan(), self.tokenizer()
        shards: dict[str, list[ShardInfo]] = {split: [] for split in SPLITS}
        for split, index in plan.places():
            shards[split].append(job.write(plan, split, index, tokenizer))
        job.finish(plan, shards, tokenizer)
