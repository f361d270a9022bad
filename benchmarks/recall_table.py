"""The tables of docs/recall.md, from the results of `benchmarks/recall.py`.

python benchmarks/recall_table.py          # rewrites the page; does nothing while there are no results
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "recall-cpu.json"
PAGE = ROOT / "docs" / "recall.md"
START, END = "<!-- results -->", "<!-- end of results -->"
MISSING = "No results are in the repository yet: run `python benchmarks/recall.py`."


def table(results: dict[str, Any]) -> str:
    """Markdown: accuracy in % by task and model, mean over seeds and their range where it is not one number."""
    rows = results["rows"]
    models = list(dict.fromkeys(row["model"] for row in rows))
    lines = [f"| asked for | chance | {' | '.join(models)} |", "|---|---|" + "---|" * len(models)]
    for task in dict.fromkeys(row["task"] for row in rows):
        found = {row["model"]: row for row in rows if row["task"] == task}
        first = next(iter(found.values()))
        for test in first["accuracy"]:
            cells = [_cell(found[model]["accuracy"][test]) if model in found else "" for model in models]
            lines.append(f"| {task}: {test} | {100 * first['chance']:.0f} | {' | '.join(cells)} |")
    sizes = [f"{min(row['parameters'] for row in rows):,} to {max(row['parameters'] for row in rows):,} parameters"]
    sizes.append(f"{rows[0]['steps']} steps of {rows[0]['sequences_per_step']} sequences")
    machine = results["environment"]
    seeds = len(next(iter(rows[0]["accuracy"].values())))
    lines += ["", f"Accuracy in %, mean (lowest to highest) of {seeds} seeds; {', '.join(sizes)}."]
    lines.append(
        f"{machine['device']}, torch {machine['torch']}, {machine['date']}, commit {machine['commit'][:9]}: "
        f"`{machine['command']}`, {sum(row['cpu_seconds'] for row in rows) / 60:.0f} minutes of CPU time."
    )
    return "\n".join(lines)


def _cell(values: list[float]) -> str:
    shown = [f"{100 * value:.0f}" for value in (statistics.mean(values), min(values), max(values))]
    return shown[0] if shown[1] == shown[2] else f"{shown[0]} ({shown[1]} to {shown[2]})"


def rendered(page: str, results: dict[str, Any] | None) -> str:
    """The page with its table replaced."""
    before, rest = page.split(START)
    after = rest.split(END)[1]
    return f"{before}{START}\n{MISSING if results is None else table(results)}\n{END}{after}"


def results() -> dict[str, Any] | None:
    """The results in the repository, if any."""
    if not RESULTS.exists():
        return None
    found: dict[str, Any] = json.loads(RESULTS.read_text())
    return found


if __name__ == "__main__":
    PAGE.write_text(rendered(PAGE.read_text(), results()))
