"""Suites of benchmarks: a YAML file with tasks, shots, seeds, targets and a decision rule; how one is run and judged.

Where a seed changes nothing, the interval of a score is a bootstrap over the items. Where it changes something, the
interval spans that and Student's t over the seeds: seeds that agree say nothing of how few the items are. A target is
met only if the whole interval lies beyond both the target and chance.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from hymo.core import yaml12
from hymo.core.errors import ConfigError, UsageError, nearest
from hymo.evaluation.statistics import Array, bootstrap_interval, seed_interval
from hymo.evaluation.subject import Subject
from hymo.evaluation.suite_runners import Runner, SuiteItem

_FOLDER = "suites"


class Rule(BaseModel):
    """A verdict and the number of met targets that it needs."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    at_least: int
    verdict: str


class Reference(BaseModel):
    """Published figures of another model."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    source: str
    note: str = ""
    """How they were measured."""
    figures: dict[str, float]
    """By task, in per cent."""


class Suite(BaseModel):
    """A suite file."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    name: str
    seeds: list[int] = Field(min_length=2)
    confidence: float = Field(gt=0, lt=1)
    tasks: dict[str, SuiteItem]
    decision: list[Rule]
    references: dict[str, Reference] = {}
    notes: list[str] = []

    @field_validator("decision")
    @classmethod
    def _has_a_verdict_for_none(cls, rules: list[Rule]) -> list[Rule]:
        if not any(rule.at_least <= 0 for rule in rules):
            raise ValueError("no verdict for a model that meets no target; add one with at_least: 0")
        return rules

    @property
    def gates(self) -> list[str]:
        """Tasks with a target."""
        return [name for name, item in self.tasks.items() if item.target is not None]

    def verdict(self, met: int) -> str:
        """What the decision rule says."""
        return next(rule.verdict for rule in sorted(self.decision, key=lambda r: -r.at_least) if met >= rule.at_least)


def suite_names() -> list[str]:
    """Suites of the package."""
    folder = resources.files("hymo.evaluation") / _FOLDER
    return sorted(item.name.removesuffix(".yaml") for item in folder.iterdir() if item.name.endswith(".yaml"))


def load_suite(name: str) -> Suite:
    """Read a suite of the package, or a file.

    Raises:
        UsageError: neither.
        ConfigError: the file is no suite; the message names the key.
    """
    if name in suite_names():
        text = (resources.files("hymo.evaluation") / _FOLDER / f"{name}.yaml").read_text(encoding="utf-8")
        value, _ = yaml12.parse(text, f"{name}.yaml")
    elif Path(name).is_file():
        value, _ = yaml12.read(Path(name))
    else:
        raise UsageError(f"suite '{name}': not known{nearest(name, suite_names())}. Name one, or a YAML file.")
    try:
        return Suite.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfigError(f"{name}: {'.'.join(map(str, first['loc']))}: {first['msg']}. Correct it.") from None


def run_suite(
    suite: Suite,
    runners: Mapping[str, Runner],
    subject: Subject,
    report: Callable[[str], None] = lambda message: None,
) -> dict[str, Any]:
    """Run the tasks that have a runner; the others count as not run and their targets as not met.

    Returns:
        Plain values for the result file: every task's scores, intervals and facts, and the verdict.

    Raises:
        UsageError: a task that cannot run this model, before any task runs.
    """
    for runner in runners.values():
        runner.check(subject)
    tasks: dict[str, Any] = {}
    for name, runner in runners.items():
        item = suite.tasks[name]
        seeds = suite.seeds if item.seed_changes else suite.seeds[:1]
        runs = []
        for seed in seeds:
            report(f"{name}, seed {seed}")
            runs.append(runner.run(subject, seed))
        tasks[name] = judge(item, seeds, [run.items for run in runs], suite.confidence)
        tasks[name]["facts"] = [run.facts for run in runs]
    met = [name for name in suite.gates if tasks.get(name, {}).get("met")]
    return {
        "suite": suite.name,
        "subject": subject.facts,
        "confidence": suite.confidence,
        "tasks": tasks,
        "not_run": [name for name in suite.tasks if name not in tasks],
        "targets": len(suite.gates),
        "targets_met": met,
        "verdict": suite.verdict(len(met)),
    }


def judge(item: SuiteItem, seeds: list[int], runs: list[Array], confidence: float) -> dict[str, Any]:
    """Score, interval and whether the target is met.

    Args:
        item: the task in the suite.
        seeds: of the runs.
        runs: one array of items for each seed, see `Scores`.
        confidence: of the intervals.
    """
    statistic = STATISTICS[item.score]
    scores = [float(statistic(items[None])[0]) for items in runs]
    over_items = bootstrap_interval(np.mean(runs, axis=0), statistic, confidence)
    over_seeds = seed_interval(scores, confidence) if len(scores) > 1 else over_items
    low, high = min(over_seeds[0], over_items[0]), max(over_seeds[1], over_items[1])
    if item.target is None:
        met = None
    elif item.lower_is_better:
        met = high < min(item.target, item.chance)
    else:
        met = low > max(item.target, item.chance)
    return {
        "shots": item.shots,
        "metric": item.metric,
        "items": len(runs[0]),
        "value": float(np.mean(scores)),
        "low": low,
        "high": high,
        "interval_over_seeds": over_seeds if len(scores) > 1 else None,
        "interval_over_items": over_items,
        "seeds": seeds,
        "seed_changes": item.seed_changes or "nothing",
        "scores": scores,
        "chance": item.chance,
        "target": item.target,
        "met": met,
    }


def _percent(items: Array) -> Array:
    """Mean of (r, n) items in per cent."""
    mean: Array = 100 * items.mean(axis=1)
    return mean


def _byte_perplexity(items: Array) -> Array:
    """exp(nats per byte) of (r, n, 2) documents, each with its nats and bytes."""
    sums = items.sum(axis=1)
    value: Array = np.exp(sums[:, 0] / sums[:, 1])
    return value


STATISTICS: dict[Literal["percent", "byte_perplexity"], Callable[[Array], Array]] = {
    "percent": _percent,
    "byte_perplexity": _byte_perplexity,
}
