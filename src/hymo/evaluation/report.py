"""The summary of a suite as one Markdown table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hymo.evaluation.suite import Suite

_NONE = "-"


def summary_rows(
    suite: Suite, result: Mapping[str, Any], others: Mapping[str, Mapping[str, Any]]
) -> tuple[list[str], list[list[str]]]:
    """Column titles and rows: this model, other models measured alike, and published figures.

    Args:
        suite: what was run.
        result: as `run_suite` returns it.
        others: results of other models by name.
    """
    columns = ["task", "shots", "chance", "target", "met", "this model", *(f"{name}, measured" for name in others)]
    columns += [f"{name}, published" for name in suite.references]
    rows = []
    for name, item in suite.tasks.items():
        task = result["tasks"].get(name)
        sign = _NONE if item.target is None else f"{'<=' if item.lower_is_better else '>='} {item.target:g}"
        met = _NONE if item.target is None else "not run" if task is None else "yes" if task["met"] else "no"
        published = [reference.figures.get(name) for reference in suite.references.values()]
        rows.append(
            [
                item.title,
                str(item.shots),
                f"{item.chance:g}",
                sign,
                met,
                _score(task),
                *(_score(other["tasks"].get(name)) for other in others.values()),
                *(_NONE if figure is None else f"{figure:g}" for figure in published),
            ]
        )
    return columns, rows


def markdown(suite: Suite, result: Mapping[str, Any], others: Mapping[str, Mapping[str, Any]]) -> str:
    """The table with verdict, identities, intervals, sources and notes."""
    columns, rows = summary_rows(suite, result, others)
    subject = result["subject"]
    step = f", step {subject['step']}" if "step" in subject else ""
    tasks = result["tasks"].items()
    over_seeds = [f"{name}: {task['seed_changes']}" for name, task in tasks if len(task["seeds"]) > 1]
    cut = {name: sum(run.get("truncated", 0) for run in task["facts"]) for name, task in tasks}
    limit = result.get("limit")
    lines = [
        f"# Suite {suite.name}: {subject['model']}{step}",
        "",
        *([f"Only the first {limit} items of each task: a trial, not a result.", ""] if limit else []),
        f"{verdict(result)}",
        "",
        *_table(columns, rows),
        "",
        f"Scores in per cent (byte perplexity: as it is), with {suite.confidence:.0%} intervals: a bootstrap over the "
        f"items, and where a seed changes something ({'; '.join(over_seeds) or 'nowhere'}) whatever lies further out "
        f"of that and Student's t over {len(suite.seeds)} seeds. "
        "A target is met only if the whole interval lies beyond both the target and chance.",
        "",
        f"- checkpoint {subject['checkpoint_hash']}, configuration {subject['config_hash']}, "
        f"tokenizer {subject['tokenizer_hash']}",
        f"- lm-evaluation-harness {result['harness_version']}, {subject['dtype']} on {subject['device']}, "
        f"context {subject['context']}, bos: {subject['bos']}",
        f"- requests cut on the left: {', '.join(f'{name} {count}' for name, count in cut.items() if count) or 'none'}",
        *(
            f"- {name}, published: {reference.source}" + (f" ({reference.note})" if reference.note else "")
            for name, reference in suite.references.items()
        ),
        *(
            f"- {name}, measured: checkpoint {other['subject']['checkpoint_hash']}, harness {other['harness_version']}"
            for name, other in others.items()
        ),
        *(f"- {note}" for note in suite.notes),
    ]
    return "\n".join(lines) + "\n"


def verdict(result: Mapping[str, Any]) -> str:
    """One sentence: how many targets are met, and what follows."""
    met, count = result["targets_met"], result["targets"]
    left = f" Not run: {', '.join(result['not_run'])}." if result["not_run"] else ""
    return f"{len(met)} of {count} targets met: {result['verdict']}.{left}"


def _score(task: Mapping[str, Any] | None) -> str:
    return _NONE if task is None else f"{task['value']:.4g} ({task['low']:.4g} to {task['high']:.4g})"


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (columns, ["---"] * len(columns), *rows)]
