"""The tables of docs/recall.md are those that its results give, and the results are of the suite as it is."""

from __future__ import annotations

import sys
from pathlib import Path

from hymo.ablations.recall import CONFIG, MODELS
from hymo.core.load import load_config
from hymo.evaluation.recall import SUITE

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

from recall_table import PAGE, rendered, results, table  # noqa: E402


def test_page_is_up_to_date() -> None:
    page = PAGE.read_text()
    assert page == rendered(page, results()), "run python benchmarks/recall_table.py"


def test_the_results_cover_the_suite() -> None:
    found = results()
    assert found is not None
    rows = {(row["task"], row["model"]): row for row in found["rows"]}
    assert set(rows) == {(task.name, model) for task in SUITE for model in MODELS}
    config = load_config(CONFIG)
    for task in SUITE:
        for model in MODELS:
            row = rows[task.name, model]
            assert list(row["accuracy"]) == list(task.tests)
            assert all(len(values) >= 2 and 0 <= min(values) <= max(values) <= 1 for values in row["accuracy"].values())
            assert (row["steps"], row["chance"]) == (config.total_steps, task.chance)


def test_cells() -> None:
    rows = [
        {"task": "t", "model": m, "chance": 0.25, "accuracy": {"x": a}, "parameters": 9, "steps": 3, "cpu_seconds": 60}
        for m, a in (("a", [0.5, 0.7]), ("b", [1.0, 1.0]))
    ]
    machine = dict.fromkeys(("device", "torch", "date", "commit", "command"), "x")
    text = table({"rows": [{**row, "sequences_per_step": 2} for row in rows], "environment": machine})
    assert "| t: x | 25 | 60 (50 to 70) | 100 |" in text
    assert "2 minutes of CPU time" in text
