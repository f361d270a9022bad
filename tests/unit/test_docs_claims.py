"""Pages of claims show the rows of their family, preset and comparison; else they say that nothing was measured."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))  # the tools live beside the pages, outside the package

from docs.tools import claims, references  # noqa: E402


def row(family: str, variant: str, seed: int, score: float | None, **changes: Any) -> dict[str, Any]:
    known = {"preset": "hymo_ablation", "group": "g", "tokens": 29_000_000, "date": "2026-12-01T08:00:00+00:00"}
    known |= {
        "seconds": 60.0,
        "tok_per_s": 483_333.0,
        "peak_gib": 12.5,
        "active_parameters": 30_811_218,
        "embedding_parameters": 6_291_456,
        "epochs": 1,
        "heldout_bytes": 1_006_030,
        "device": "GPU",
    }
    known |= {
        "flops_per_token": 274_520_556,
        "cache_bytes": 2048,
        "state_bytes": 1024,
        "load_balance": {"load_cv": 0.25},
    }
    curve = [] if score is None else [[14_500_000, 30.0, score + 0.5], [29_000_000, 60.0, score]]
    key = f"{family}{variant}{seed}"
    own = {"key": key, "family": family, "variant": variant, "seed": seed, "bits_per_byte": score, "curve": curve}
    return known | own | ({"failed": "it diverged"} if score is None else {}) | changes


ROWS = [
    *(row("base", "base", seed, score) for seed, score in enumerate((1.30, 1.32))),
    *(row("A", "dense", seed, score) for seed, score in enumerate((1.35, 1.37))),
    row("A", "every block", 0, None),
    row("B", "AdamW", 0, 1.5),
    row("A", "dense", 0, 9.0, group="other"),
    row("A", "dense", 0, 9.0, preset="hymo_demo"),
]


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"environment": {"torch": "2.11.0"}, "rows": ROWS}
    monkeypatch.setattr(claims, "results", lambda name: found if name == "ablations-h200" else None)


def test_without_results_nothing_is_claimed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "results", lambda name: None)
    pages = [claims.claim_page(i) for i in range(7)]
    assert sum("Not measured yet." in page for page in pages) == 6  # the owners' share is counted
    assert claims.index_page().count("not measured yet |") == 6
    assert "9 runs" in pages[0]
    assert "hymo ablate A --preset hymo_ablation" in pages[0]


@pytest.mark.usefixtures("measured")
def test_a_measured_claim() -> None:
    page = claims.claim_page(0)
    assert "| dense | whether experts pay at all | 2 | 1.3600 ± " in page
    assert "| +0.0500 | **+0.0500 to +0.0500** |" in page
    assert "| dense | 30,811,218 | 274.5 | 483,333 | 60.0 | not reached | not reached | 12.50 | " in page
    assert "9.0000" not in page
    assert "AdamW" not in page
    assert "Not measured yet." not in page
    assert "| measured, 2 seeds |" in claims.index_page()  # its variant failed: nothing to judge by
    assert "AdamW" in claims.claim_page(1)
    assert "Not measured yet." in claims.claim_page(5)


@pytest.mark.parametrize(
    ("scores", "verdict"),
    [((1.29, 1.31), "refuted"), ((1.31, 1.33), "held"), ((1.20, 1.32), "undecided"), ((1.25,), "undecided")],
)
def test_the_rule_decides(monkeypatch: pytest.MonkeyPatch, scores: tuple[float, ...], verdict: str) -> None:
    """Equal differences have an interval without width; unequal ones a wide one; one seed none."""
    rows = [*ROWS[:2], *(row("A", "every block", seed, score) for seed, score in enumerate(scores))]
    monkeypatch.setattr(claims, "results", lambda name: {"environment": {}, "rows": rows})
    assert f"**{verdict.capitalize()} at this scale.** 'every block' minus base is " in claims.claim_page(0)
    assert f"| {verdict} at this scale, " in claims.index_page()


@pytest.mark.usefixtures("measured")
def test_every_comparison_has_a_table() -> None:
    page = claims.comparisons_page()
    assert [line for line in page.splitlines() if line.startswith("## ")] == [
        "## A: Where the experts are",
        "## B: Who updates which matrix",
        "## What none of this can show",
    ]
    assert "9.0000" not in page
    assert "Time counts training steps" in page


def test_shared_devices_show_no_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{**each, "parallel": 8} for each in ROWS]
    monkeypatch.setattr(claims, "results", lambda name: {"environment": {}, "rows": rows})
    page = claims.claim_page(0)
    assert "| dense | 30,811,218 | 274.5 | not reached | 12.50 | " in page
    assert "Up to 8 runs shared a device" in page
    assert "483,333" not in page


def test_the_benchmark_table_of_ablations() -> None:
    lines = references._ablation_table(ROWS[3:5])
    assert lines[2] == "| `hymo_ablation` | A | dense | 1 | 29,000,000 | 1.3700 | 483,333 | 12.5 |"
    assert lines[3] == "| `hymo_ablation` | A | every block | 0 | 29,000,000 | failed |  |  |"


def test_owners_by_cost_are_within_the_rule() -> None:
    page = claims.claim_page(3)
    shares = [float(line.split("|")[2]) for line in page.splitlines() if line.startswith(("| 2 ", "| 4 ", "| 8 "))]
    assert len(shares) == 3
    assert all(1 <= share <= 1.05 for share in shares)
