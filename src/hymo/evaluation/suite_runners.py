"""What runs a task of a suite: the harness, the held-out text, or code of its own named `module:function`."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import lm_eval.tasks
import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from hymo.core.errors import HymoError, UsageError
from hymo.evaluation.statistics import Array
from hymo.evaluation.subject import Subject
from hymo.evaluation.task_data import Missing, TaskData
from hymo.evaluation.tasks import MissingDataError, OpenTasks

HARNESS, HELD_OUT = "harness", "heldout"


class SuiteItem(BaseModel):
    """A task in a suite file."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    title: str
    runner: str = HARNESS
    """`harness`, `heldout`, or `module:function`, a function (name, SuiteItem, Place) that returns a `Runner`."""
    task: str = ""
    """The harness's name for it."""
    definitions: str = ""
    """Folder of the harness's definitions that has it; empty for a task of `--include-path`."""
    metric: str = ""
    score: Literal["percent", "byte_perplexity"] = "percent"
    lower_is_better: bool = False
    shots: int = Field(default=0, ge=0)
    draw_examples: bool = False
    """Let the seed draw the examples where the definition takes the first ones."""
    seed_changes: str = ""
    """What another seed changes; empty if nothing."""
    chance: float
    """Score of a guess."""
    target: float | None = None


@dataclass(frozen=True)
class Scores:
    """What one run of a task gave."""

    items: Array
    """(n,) score of each item in 0..1; for byte perplexity (n, 2) nats and bytes of each document."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Hashes, versions and counts, as plain values."""


@dataclass(frozen=True)
class Place:
    """Where a suite finds what it needs."""

    data: TaskData
    documents: Callable[[], tuple[list[bytes], dict[str, Any]]]
    """The held-out documents, and what identifies them; raises a HymoError if there are none."""
    include_path: Path | None = None
    limit: int | None = None
    """First so many items of each task."""


class Runner(Protocol):
    """Runs one task."""

    def missing(self) -> list[Missing]:
        """What the task needs and does not find; asked before any work."""

    def check(self, subject: Subject) -> None:
        """Refuse a model that the task cannot run with a UsageError; asked before any task runs."""

    def run(self, subject: Subject, seed: int) -> Scores:
        """Evaluate. Items come in the same order for every seed."""


class HarnessRunner:
    """A task or group of the harness."""

    def __init__(self, name: str, item: SuiteItem, place: Place) -> None:
        self._name, self._item, self._place = name, item, place
        self._open: OpenTasks | None = None

    def missing(self) -> list[Missing]:
        """Data sets that are not there."""
        item, place = self._item, self._place
        folder = Path(lm_eval.tasks.__file__).parent / item.definitions if item.definitions else place.include_path
        try:
            self._open = OpenTasks([item.task], place.data, folder, item.shots, item.draw_examples)
        except MissingDataError as error:
            return [Missing(self._name, missing.what, missing.remedy) for missing in error.missing]
        return []

    def check(self, subject: Subject) -> None:
        """Any model will do."""

    def run(self, subject: Subject, seed: int) -> Scores:
        """Evaluate with the seed's examples."""
        assert self._open is not None, "missing() comes first"
        found = self._open.run(subject.lm, limit=self._place.limit, seed=seed)[self._item.task]
        if self._item.metric not in found.items:
            raise UsageError(
                f"suite task {self._name}: no metric '{self._item.metric}'. It has {', '.join(found.metrics)}."
            )
        return Scores(np.asarray(found.items[self._item.metric], dtype=np.float64), found.to_dict())


class HeldOutRunner:
    """The held-out text, cut and scored as `hymo eval` does."""

    def __init__(self, name: str, item: SuiteItem, place: Place) -> None:
        self._name, self._place = name, place
        self._found: tuple[list[bytes], dict[str, Any]] | None = None

    def missing(self) -> list[Missing]:
        """The held-out text, if it is not there."""
        try:
            self._found = self._place.documents()
        except HymoError as error:
            return [Missing(self._name, "held-out text", f"{error}")]
        return []

    def check(self, subject: Subject) -> None:
        """Any model will do."""

    def run(self, subject: Subject, seed: int) -> Scores:
        """Nats and bytes of each document."""
        assert self._found is not None, "missing() comes first"
        documents, facts = self._found
        documents = documents[: self._place.limit]
        nats = subject.lm.score_documents(documents)
        items = [(-value, len(text)) for value, text in zip(nats, documents, strict=True)]
        return Scores(np.asarray(items, dtype=np.float64), facts)


class _Absent:
    """Stands for a runner that this version does not have."""

    def __init__(self, name: str) -> None:
        self._name = name

    def missing(self) -> list[Missing]:
        return [Missing(self._name, "its runner", f"This version has none. Leave it out: --skip {self._name}")]

    def check(self, subject: Subject) -> None:
        raise UsageError(f"suite task {self._name}: no runner in this version.")

    def run(self, subject: Subject, seed: int) -> Scores:
        raise UsageError(f"suite task {self._name}: no runner in this version.")


def make_runner(name: str, item: SuiteItem, place: Place) -> Runner:
    """Return the runner of a suite's task."""
    if item.runner == HARNESS:
        return HarnessRunner(name, item, place)
    if item.runner == HELD_OUT:
        return HeldOutRunner(name, item, place)
    module, _, function = item.runner.partition(":")
    try:
        there = importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        there = False
    if not there:
        return _Absent(name)
    runner: Runner = getattr(importlib.import_module(module), function)(name, item, place)
    return runner
