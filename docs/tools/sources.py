"""Values and tables that pages take from code, presets and result files by name.

A key names its source: `field hymo_small model.vocab_size`, `const hymo.data.shards:DEFAULT_SHARD_TOKENS short`,
`arg hymo.cli.data:prepare shard_tokens short`, `tested torch`, `recall copy | 32 symbols | GDN, gated_delta`.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import re
from collections.abc import Callable
from typing import Any

import yaml

from docs.tools.paths import ROOT, number, results, short, size
from hymo.core.config import GROUPS
from hymo.core.load import load_config

_UNITS: dict[str, Callable[[Any], str]] = {
    "short": lambda value: short(value).replace(".0 ", " "),
    "size": lambda value: size(value).replace(".00 ", " ").replace(".0 ", " "),
    "percent": lambda value: f"{100 * value:g} %",
    "sizes": lambda values: ", ".join(f"{100 * value:g} %" for value in values),
}


def value(key: str) -> str | None:
    """What the source named by the key says now; None if the key names no source.

    Raises:
        LookupError, AttributeError, ImportError: a source that does not exist.
    """
    kind, _, rest = key.partition(" ")
    read = _KINDS.get(kind)
    return read(rest) if read else None


def _shown(found: Any, unit: str = "") -> str:
    if unit:
        return _UNITS[unit](found)
    return number(found) if isinstance(found, int) else f"{found:g}" if isinstance(found, float) else str(found)


def _field(rest: str) -> str:
    """A field of a preset, or `default`: what a field is unless it is set."""
    owner, path, *unit = rest.split()
    group, name = path.split(".")
    if owner != "default":
        return _shown(getattr(getattr(load_config(owner), group), name), *unit)
    (field,) = (field for field in dataclasses.fields(GROUPS[group]) if field.name == name)
    if field.default is dataclasses.MISSING:
        raise LookupError(f"{path} has no default")
    return _shown(field.default, *unit)


def _const(rest: str) -> str:
    """A constant or an attribute of a class: MODULE:NAME.ATTRIBUTE."""
    place, *unit = rest.split()
    module, names = place.split(":")
    try:
        found: Any = importlib.import_module(module)
    except ImportError:
        return _shown(_written(module, names), *unit)
    for name in names.split("."):
        found = getattr(found, name)
    return _shown(found, *unit)


def _written(module: str, name: str) -> Any:
    """A constant as it stands in the file of a module that needs a package which is not here, such as Triton."""
    text = (ROOT / "src" / module.replace(".", "/")).with_suffix(".py").read_text(encoding="utf-8")
    for line in ast.parse(text).body:
        if isinstance(line, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in line.targets):
            return ast.literal_eval(line.value)
    raise LookupError(f"{module} assigns no {name}")


def _length(rest: str) -> str:
    module, name = rest.split(":")
    return number(len(getattr(importlib.import_module(module), name)))


def _arg(rest: str) -> str:
    """What an argument of a function or class is unless it is given."""
    place, name, *unit = rest.split()
    module, function = place.split(":")
    target = getattr(importlib.import_module(module), function)
    return _shown(inspect.signature(target).parameters[name].default, *unit)


def _tested(name: str) -> str:
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    found = re.search(rf"^{re.escape(name)}==(\S+)$", text, re.MULTILINE)
    if not found:
        raise LookupError(f"constraints.txt names no {name}")
    return found[1].partition("+")[0]


def _result(rest: str) -> str:
    """The environment of a result file: `result prepare-cpu date`."""
    file, name = rest.split()
    return str(_file(file)["environment"][name])


def _file(name: str) -> dict[str, Any]:
    found = results(name)
    if found is None:
        raise LookupError(f"benchmarks/results/{name}.json does not exist")
    return found


def _recall(rest: str) -> str:
    """Mean accuracy in per cent over the seeds: TASK | CASE | MODEL; or a scalar of every row: `recall steps`."""
    rows = _file("recall-cpu")["rows"]
    if "|" not in rest:
        (found,) = {row[rest] for row in rows}
        return _shown(found)
    task, case, model = (part.strip() for part in rest.split("|"))
    (row,) = (row for row in rows if row["task"] == task and row["model"] == model)
    return f"{100 * sum(row['accuracy'][case]) / len(row['accuracy'][case]):.0f}"


_KINDS: dict[str, Callable[[str], str]] = {
    "field": _field, "const": _const, "len": _length, "arg": _arg, "tested": _tested, "result": _result,
    "recall": _recall,
}  # fmt: skip


def _span(values: list[float]) -> str:
    low, high = f"{min(values):.1f}", f"{max(values):.1f}"
    return low if low == high else f"{low} to {high}"


def _prepare_table() -> str:
    lines = ["| what | workers | wall | processor time |", "|---|---|---|---|"]
    rows = _file("prepare-cpu")["rows"]
    for workers in sorted({row["workers"] for row in rows}):
        runs = [row for row in rows if row["workers"] == workers]
        spans = [f"{_span([row[key] for row in runs])} MB/s" for key in ("mb_per_s", "mb_per_processor_s")]
        lines.append(f"| preparation as a whole | {workers} | {spans[0]} | {spans[1]} |")
    return "\n".join(lines)


def _loader_table() -> str:
    lines = ["| T | batch | warm | cold |", "|---|---|---|---|"]
    rows = [row for row in _file("loader-cpu")["rows"] if row["packed"]]
    for seq_len, batch in dict.fromkeys((row["seq_len"], row["batch"]) for row in rows):
        rate = {r["cache"]: r["tok_per_s"] for r in rows if (r["seq_len"], r["batch"]) == (seq_len, batch)}
        cells = [f"{rate[cache] / 1e6:.0f} M tokens/s" for cache in ("warm", "cold")]
        lines.append(f"| {number(seq_len)} | {batch} | {cells[0]} | {cells[1]} |")
    return "\n".join(lines)


def _suite_table() -> str:
    text = (ROOT / "src/hymo/evaluation/suites/design.yaml").read_text(encoding="utf-8")
    lines = ["| task | examples | a seed changes | chance | target |", "|---|---|---|---|---|"]
    for task in yaml.safe_load(text)["tasks"].values():
        sign = "<=" if task.get("lower_is_better") else ">="
        target = f"{sign} {task['target']:g}" if "target" in task else ""
        shots = task.get("shots", "")
        lines.append(
            f"| {task['title']} | {shots} | {task.get('seed_changes', 'nothing')} | {task['chance']:g} | {target} |"
        )
    return "\n".join(lines)


TABLES: dict[str, Callable[[], str]] = {
    "prepare-cpu": _prepare_table, "loader-cpu": _loader_table, "suite design": _suite_table,
}  # fmt: skip
"""Tables between `<!--table NAME-->` and `<!--/table-->`."""
