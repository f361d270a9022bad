"""Tasks of the harness: opened with their data before any work, run on a model, summed up with errors and hashes."""

from __future__ import annotations

import functools
import importlib.metadata
import logging
import random
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import datasets
import lm_eval.api.task
import numpy as np
import torch
from lm_eval import evaluator
from lm_eval.api.samplers import get_sampler
from lm_eval.tasks import TaskManager
from lm_eval.tasks._index import TaskIndex
from lm_eval.tasks._yaml_loader import load_yaml

from hymo.core.errors import DataError, HymoError, UsageError, nearest
from hymo.evaluation.hashes import json_hash, rows_hash
from hymo.evaluation.statistics import standard_error
from hymo.evaluation.task_data import Missing, TaskData, listed

HARNESS_VERSION = importlib.metadata.version("lm_eval")
_UNMARKED = ("cruxeval_", "longproc_countdown_", "non_greedy_robustness_math_", "prompt_robustness_math_")
"""Tasks of the harness whose scoring hands the model's text to exec, eval or sympy's parse_expr, without saying so."""
_NOT_METRICS = ("name", "alias", "sample_len", "sample_count")


@dataclass(frozen=True)
class Metric:
    """One figure of a task."""

    value: float
    stderr: float | None
    """Standard error over the items; None where it is not defined."""
    higher_is_better: bool | None


@dataclass(frozen=True)
class TaskResult:
    """What a task, or a group of tasks, gave."""

    metrics: dict[str, Metric]
    """By metric and filter, as the harness names them: `acc,none`."""
    items: dict[str, list[Any]] = field(repr=False)
    """What each metric is made of, one entry an item."""
    n_items: int
    shots: int
    """Examples in the prompt."""
    task_hash: str
    """Of definition, code and data."""
    version: str
    """The definition's own."""
    truncated: int
    """Requests cut on the left."""
    shortened: int
    """Texts with fewer tokens allowed than the task asks for."""
    members: list[str]
    """Tasks of a group."""

    def to_dict(self) -> dict[str, Any]:
        """All but the items, by name."""
        return {
            "metrics": {name: vars(metric) for name, metric in self.metrics.items()},
            "items": self.n_items,
            "shots": self.shots,
            "task_hash": self.task_hash,
            "version": self.version,
            "truncated": self.truncated,
            "shortened": self.shortened,
            **({"members": self.members} if self.members else {}),
        }


class MissingDataError(UsageError):
    """Data of tasks is not there."""

    def __init__(self, missing: Sequence[Missing]) -> None:
        self.missing = list(missing)
        lines = "".join(f"\n  {line}" for line in listed(missing))
        super().__init__(f"nothing was run, since data is missing:{lines}\nThen pass --mirror MIRROR, or --download.")


class OpenTasks:
    """Tasks with their data, ready to be run.

    Args:
        names: tasks, groups or tags, or YAML files.
        include_path: folder of further definitions, which take precedence.
        data: where data sets come from.
        shots: examples in the prompt instead of the definition's; a definition's own 0 stays.
        draw_examples: let the seed draw the examples, also where the definition takes the first ones.

    Raises:
        UsageError: an unknown name, a folder that is not there, code that would be executed, more examples than there
            are.
        MissingDataError: data sets that are not there.
        DataError: data that does not fit its task.
    """

    def __init__(
        self,
        names: Sequence[str],
        data: TaskData,
        include_path: Path | None = None,
        shots: int | None = None,
        draw_examples: bool = False,
    ) -> None:
        _quiet()
        if include_path is not None and not include_path.is_dir():
            raise UsageError(f"{include_path}: no such folder. --include-path takes a folder of task definitions.")
        if shots is not None and shots < 0:
            raise UsageError(f"--num-fewshot: must be 0 or more, not {shots}.")
        self.names = list(dict.fromkeys(names))
        manager = task_manager(self.names, include_path)
        missing = [item for name in self.names for item in _missing(manager, name, data)]
        if missing:
            raise MissingDataError(missing)
        with data.serving():
            self._loaded = _guarded(self.names, lambda: manager.load(self.names))
        self.tasks: dict[str, Any] = self._loaded["tasks"]
        for task in self.tasks.values():
            own = task.get_config("num_fewshot")
            if own != 0 or shots is None:
                task.set_config(key="num_fewshot", value=(own or 0) if shots is None else shots)
            if draw_examples:
                task.sampler = get_sampler("default")(list(task.fewshot_docs()))
            _check_examples(task)
        self._hashes: dict[str, str] = {}

    def run(self, lm: Any, *, limit: int | None = None, seed: int) -> dict[str, TaskResult]:
        """Evaluate; results by name, those asked for first, then the members of groups.

        Args:
            lm: a model of the harness with `counts` and `seed`.
            limit: first so many items of each task.
            seed: of drawn examples and drawn texts.

        Raises:
            UsageError: limit below 1.
            DataError: an item that does not fit the definition.
        """
        if limit is not None and limit < 1:
            raise UsageError(f"--limit: must be at least 1, not {limit}.")
        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)
        lm.seed = seed
        lm.counts.truncated.clear()
        lm.counts.shortened.clear()
        for task in self.tasks.values():
            task.set_fewshot_seed(seed=seed)
        found: Any = _guarded(
            self.names,
            lambda: evaluator.evaluate(lm, task_dict=self._loaded, limit=limit, bootstrap_iters=0, log_samples=True),
        )
        subtasks = found["group_subtasks"]
        roots = [name for name in self.names if name in found["results"]]
        order = dict.fromkeys((*roots, *found["results"]))
        return {name: self._result(name, found, _leaves(name, subtasks), lm.counts) for name in order}

    def _result(self, name: str, found: Any, leaves: list[str], counts: Any) -> TaskResult:
        metrics, items = {}, {}
        for key, value in found["results"][name].items():
            metric, _, kind = key.partition(",")
            if key in _NOT_METRICS or metric.endswith("_stderr") or not isinstance(value, int | float):
                continue
            items[key] = [
                sample[metric]
                for leaf in leaves
                for sample in found["samples"][leaf]
                if sample["filter"] == kind and metric in sample
            ]
            better = found["higher_is_better"].get(name, {}).get(metric)
            aggregate = self.tasks[name].aggregation().get(metric) if name in self.tasks else None
            metrics[key] = Metric(float(value), standard_error(items[key], float(value), aggregate), better)
        hashes = [self._hash(leaf) for leaf in leaves]
        return TaskResult(
            metrics=metrics,
            items=items,
            n_items=sum(found["n-samples"][leaf]["effective"] for leaf in leaves),
            shots=max(found["n-shot"][leaf] for leaf in leaves),
            task_hash=hashes[0] if leaves == [name] else json_hash(hashes),
            version=str(found["versions"].get(name)),
            truncated=sum(counts.truncated[leaf] for leaf in leaves),
            shortened=sum(counts.shortened[leaf] for leaf in leaves),
            members=[] if leaves == [name] else leaves,
        )

    def _hash(self, name: str) -> str:
        """Digest of a task: definition with the code it names, items, and what examples are drawn from."""
        if name not in self._hashes:
            task = self.tasks[name]
            config = dict(vars(task.config))
            config.pop("metadata", None)  # where the definition lies
            kwargs = config.pop("dataset_kwargs", None) or {}
            config["dataset_kwargs"] = {k: v for k, v in kwargs.items() if k != "data_files"}  # the data counts instead
            config["fewshot_config"] = vars(task.fewshot_cfg)
            shown = rows_hash(task.fewshot_docs()) if config["num_fewshot"] else ""
            sampler = type(getattr(task, "sampler", None)).__name__
            self._hashes[name] = json_hash([config, sampler, str(task.VERSION), rows_hash(task.eval_docs), shown])
        return self._hashes[name]


def task_manager(names: Iterable[str], include_path: Path | None) -> TaskManager:
    """The index of a folder's definitions, with the harness's own behind them where the names need those.

    Raises:
        UsageError: a name that neither has.
    """
    own = TaskManager(include_path=None if include_path is None else str(include_path), include_defaults=False)
    try:
        for name in names:
            list(definitions(own, name))
    except UsageError:
        for name, entry in _harness_index().items():
            own.task_index.setdefault(name, entry)
        for name in names:
            list(definitions(own, name))
    return own


@functools.cache
def _harness_index() -> dict[str, Any]:
    """All definitions of the harness; reading them takes seconds."""
    return dict(TaskManager().task_index)


def definitions(manager: TaskManager, name: str) -> Iterator[dict[str, Any]]:
    """The definitions of all single tasks behind a name, functions unresolved.

    Raises:
        UsageError: no such name.
    """
    entry = manager.task_index.get(name) or _entry_of_file(name)
    if entry is None:
        raise UsageError(
            f"task '{name}': not known{nearest(name, manager.task_index)}. Name one of the harness, or pass "
            "--include-path DIR with its definition."
        )
    kind = entry.kind.name
    if kind == "TAG":
        for member in sorted(entry.tags):
            yield from definitions(manager, member)
    elif kind == "GROUP":
        for part in entry.cfg["task"]:
            member = part if isinstance(part, str) else part.get("task", part.get("group"))
            if isinstance(part, dict) and member not in manager.task_index:
                yield part  # defined in place
            else:
                yield from definitions(manager, member)
    else:
        yield entry.cfg


def _entry_of_file(name: str) -> Any:
    """The entry of a YAML file that is named instead of a task."""
    if Path(name).suffix != ".yaml" or not Path(name).is_file():
        return None
    entry: Any = TaskIndex.entry_from_path(Path(name))
    if entry is not None and entry.cfg is None:
        entry.cfg = load_yaml(name, resolve_func=False)
    return entry


def _missing(manager: TaskManager, name: str, data: TaskData) -> Iterator[Missing]:
    for definition in definitions(manager, name):
        if definition.get("unsafe_code") or str(definition.get("task")).startswith(_UNMARKED):
            raise UsageError(
                f"task '{definition['task']}': runs what the model writes, without a sandbox, and is refused."
            )
        path = definition.get("dataset_path")
        if path is None or "class" in definition or "custom_dataset" in definition:
            continue
        options = dict(definition.get("dataset_kwargs") or {})
        options.pop("trust_remote_code", None)
        if item := data.missing(name, path, definition.get("dataset_name"), options):
            yield item


def _check_examples(task: Any) -> None:
    wanted = task.get_config("num_fewshot")
    there = len(task.sampler.df) if hasattr(task, "sampler") else 0
    if there and task.fewshot_cfg.split is not None and task.fewshot_cfg.split == task.config.test_split:
        there -= 1  # not the item itself
    if wanted > there:
        raise UsageError(f"task '{task.task_name}': {wanted} examples asked for, there are {there} to draw from.")


def _leaves(name: str, subtasks: dict[str, list[str]]) -> list[str]:
    """The single tasks of a group in order, or the task itself."""
    if name not in subtasks:
        return [name]
    return [leaf for member in subtasks[name] for leaf in _leaves(member, subtasks)]


def _guarded(names: Iterable[str], call: Callable[[], Any]) -> Any:
    """Give errors of definitions and of their data the names of the tasks; those of the model stay what they are."""
    try:
        return call()
    except (HymoError, MemoryError, RuntimeError):
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".strip()
        raise DataError(f"tasks {', '.join(names)}: definition and data do not fit: {reason}") from error


class _Warnings(logging.Handler):
    """Passes the harness's warnings on, the first line of each and each once: some come for every item."""

    def emit(self, record: logging.LogRecord) -> None:
        warnings.warn(f"lm-evaluation-harness: {record.getMessage().strip().splitlines()[0]}", stacklevel=2)


def _quiet() -> None:
    """Keep the harness's notes and the bars of both libraries off stderr, and its warnings short."""
    logger = logging.getLogger("lm_eval")
    logger.setLevel(logging.WARNING)
    if not any(isinstance(handler, _Warnings) for handler in logger.handlers):
        logger.addHandler(_Warnings())
        logger.propagate = False
    lm_eval.api.task.tqdm = _no_bar
    if not sys.stderr.isatty():
        datasets.disable_progress_bars()


def _no_bar(items: Any, **_: Any) -> Any:
    return items
