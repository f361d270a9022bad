"""Pages of claims show the rows of their family, preset and comparison; else they say that nothing was measured."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))  # the tools live beside the pages, outside the package

from docs.tools import claims, clock, references, sweep  # noqa: E402


def row(family: str, variant: str, seed: int, score: float | None, **changes: Any) -> dict[str, Any]:
    known = {"preset": "hymo_ablation", "group": "g", "tokens": 29_000_000, "date": "2026-12-01T08:00:00+00:00"}
    known |= {
        "seconds": 60.0,
        "tok_per_s": 483_333.0,
        "peak_gib": 12.5,
        "active_parameters": 30_811_218,
        "stored_parameters": 67_970_130,
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


def only(monkeypatch: pytest.MonkeyPatch, rows: list[dict[str, Any]]) -> None:
    """Let the pages find these rows of ablations, and no other result."""
    found = {"environment": {"torch": "2.11.0"}, "rows": rows}
    monkeypatch.setattr(claims, "results", lambda name: found if name == "ablations-h200" else None)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, ROWS)


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
    assert "| dense | 30,811,218 | 67,970,130 | 274.5 | 483,333 | 60.0 | not reached | not reached | 12.50 | " in page
    assert "9.0000" not in page
    assert "AdamW" not in page
    assert "Not measured yet." not in page
    assert claims.index_page().count("| measured |") == 1  # the variant of its rule failed: nothing to judge by
    assert "AdamW" in claims.claim_page(1)
    assert "Not measured yet." in claims.claim_page(5)


def shown(monkeypatch: pytest.MonkeyPatch, index: int, rows: list[dict[str, Any]]) -> str:
    """The line of a claim's page that says the verdict, which its list says too."""
    only(monkeypatch, rows)
    (line,) = (line for line in claims.claim_page(index).splitlines() if " at this scale, " in line)
    assert f"| {line.split('**')[1][0].lower()}{line.split('**')[1][1:-1]} |" in claims.index_page()
    return line


@pytest.mark.parametrize(
    ("scores", "verdict"),
    [
        ((1.29, 1.31), "Refuted at this scale, 2 of 3 seeds."),  # equal differences have an interval without width
        ((1.31, 1.33), "Not refuted at this scale, 2 of 3 seeds."),
        ((1.20, 1.32), "Not refuted at this scale, 2 of 3 seeds."),
        ((1.20,), "Not refuted at this scale, 1 of 3 seeds."),
    ],
)
def test_an_interval_decides_where_the_rule_says_so(
    monkeypatch: pytest.MonkeyPatch, scores: tuple[float, ...], verdict: str
) -> None:
    rows = [*ROWS[:2], *(row("A", "every block", seed, score) for seed, score in enumerate(scores))]
    line = shown(monkeypatch, 0, rows)
    assert line.startswith(f"**{verdict}** 'every block' minus base: -0." if scores[0] < 1.30 else f"**{verdict}** ")


def test_tokens_to_the_target_decide_for_optimizers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any of the other partitions refutes; one that never gets there does not."""
    base = [row("base", "base", seed, 1.30) for seed in (0, 1)]
    slow = [row("B", "AdamW", seed, 2.0) for seed in (0, 1)]
    fast = [row("B", "NorMuon everywhere", seed, 1.20) for seed in (0, 1)]
    line = shown(monkeypatch, 1, [*base, *slow])
    assert line == "**Not refuted at this scale, 2 of 3 seeds.** 'AdamW': 0 of 2 pairs have a figure."
    line = shown(monkeypatch, 1, [*base, *slow, *fast])
    # Both curves fall by 0.5 bits over the last 14.5 M tokens, and lie 0.1 bits apart.
    assert line.startswith("**Refuted at this scale, 2 of 3 seeds.** ")
    assert "'NorMuon everywhere' minus base: -2.90 M tokens to the target, paired -2.90 to -2.90." in line


@pytest.mark.parametrize(
    ("difference", "share", "refuted"), [(0.05, 0.4, False), (-0.01, 0.4, True), (0.05, 0.1, True)]
)
def test_heads_are_judged_by_the_mean_and_by_their_gradient(
    monkeypatch: pytest.MonkeyPatch, difference: float, share: float, refuted: bool
) -> None:
    base = [row("base", "base", seed, score, heads_gradient=share) for seed, score in enumerate((1.3, 1.4))]
    bare = [row("C", "no heads", seed, score + difference) for seed, score in enumerate((1.2, 1.5))]
    line = shown(monkeypatch, 2, [*base, *bare])
    assert line.startswith("**Refuted" if refuted else "**Not refuted")
    assert f"Heads' share of the gradient: {share:.2f}, {share:.2f}." in line


def test_the_base_counts_with_the_seeds_of_the_family(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other families' further seeds move neither its mean nor its intervals."""
    mine = [*ROWS[:2], *(row("A", "every block", seed, 1.25) for seed in (0, 1))]
    alone = shown(monkeypatch, 0, mine)
    more = [row("base", "base", 2, 5.0), *(row("next", "winners", seed, 1.0) for seed in (0, 1, 2))]
    assert shown(monkeypatch, 0, [*mine, *more]) == alone
    assert "2 of 3 seeds" in alone


def test_a_choice_and_its_confirmation_stand_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [row("base", "base", seed, 1.3) for seed in range(5)]
    rows += [row("next", "winners", seed, 1.2 if seed < 2 else 1.25) for seed in range(5)]
    rows += [row("next", "dense transformer, no heads", seed, 1.22) for seed in range(5)]
    only(monkeypatch, rows)
    chosen, confirmed = claims.comparisons_page().split("## next: ")[1:]
    assert "| winners | -0.0200 | " in chosen
    assert "| winners | +0.0300 | " in confirmed  # against the rival, not the base
    assert "-0.1000" in chosen
    assert "-0.0500" in confirmed


def test_failed_runs_alone_are_no_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = [*ROWS[:2], row("A", "every block", 0, None)]
    only(monkeypatch, failed)
    assert "## A" not in claims.comparisons_page()
    assert "Not measured yet." in claims.claim_page(0)


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
    only(monkeypatch, rows)
    page = claims.claim_page(0)
    assert "| dense | 30,811,218 | 67,970,130 | 274.5 | not reached | 12.50 | " in page
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


@given(st.tuples(*[st.floats(1, 2, allow_subnormal=False)] * 3))
def test_the_least_point_of_a_parabola(scores: tuple[float, float, float]) -> None:
    bend, slope, _ = np.polyfit([-1, 0, 1], scores, 2)
    assume(abs(bend) > 1e-3 and abs(abs(slope) - 2 * abs(bend)) > 1e-6)
    found = sweep.least(dict(zip((-1, 0, 1), scores, strict=True)))
    if bend > 0 and abs(slope) < 2 * bend:
        assert found == pytest.approx(-slope / (2 * bend), abs=1e-6)
    else:
        assert math.isnan(found)


def test_rates_at_several_widths() -> None:
    """A row a width, rates in the order of their size, over the seeds that all have; 2 ** 0.5 where it lies halfway."""
    rows = [
        row("rates", name, 0, score, width=width, start="winners", stored_parameters=75_682_962)
        for width, scores in ((512, (2.0, 1.0, 1.0)), (256, (1.5, 1.0, 1.5)))
        for name, score in zip(("both halved", "base", "both doubled"), scores, strict=True)
    ]
    rows += [{**rows[1], "seed": 1, "bits_per_byte": 9.0}, {**rows[1], "variant": "NorMuon halved"}]
    rows += [{**rows[0], "width": 128}, {**rows[1], "width": 128}, {**rows[2], "width": 128, "failed": "it diverged"}]
    section = sweep.sweep_section(rows)
    assert "Base: 'winners' of `hymo_ablation`." in section
    assert section[-4:] == [
        "| 128 | 30,811,218 | 75,682,962 | 1 | 2.0000 | 1.0000 |  |  |",
        "| 256 | 30,811,218 | 75,682,962 | 1 | 1.5000 | 1.0000 | 1.5000 | 1.00 |",
        "| 512 | 30,811,218 | 75,682,962 | 1 | 2.0000 | 1.0000 | 1.0000 | 1.41 |",
        "",
    ]


def test_equal_wall_clock_pairs_what_the_time_allowed_with_all_that_the_rival_had() -> None:
    times = {"ms_per_step": 64.0, "optimizer_ms": 16.0, "breakdown_ms": {"a": 1.5, "b": 2.0}}
    speeds = [
        {"name": name, "tok_per_s": speed, **times} for name, speed in (("winner", 500_000.4), ("rival", 800_000.0))
    ]
    short = [row("base", "base", seed, score, tokens=18_100_000) for seed, score in ((2, 1.5), (3, 1.75), (9, 9.0))]
    short.append(row("base", "base", 4, None))
    full = [
        *(row("next", "dense transformer, no heads", seed, 1.25) for seed in (2, 3, 4)),
        row("base", "base", 2, 5.0),
    ]
    section = clock.clock_section(speeds, short, full)
    assert "| winners | 500,000 | 64.0 | 3.5 | 16.0 |" in section
    assert "| dense transformer, no heads | 29,000,000 | 2, 3 | 1.2500 |  |  |" in section
    # Differences 0.25 and 0.5: mean 0.375, half width t(0.975, 1) x 0.1768 / sqrt(2) = 12.706 x 0.125.
    assert "| winners | 18,100,000 | 2, 3 | 1.6250 | +0.3750 | -1.2133 to +1.9633 |" in section
    assert "Runs of equal time: not measured yet." in clock.clock_section(speeds, short[:1], full)
    for tokens in (18_000_000, 18_200_000):
        with pytest.raises(ValueError, match=r"tokens are not 0\.6250 of 29,000,000"):
            clock.clock_section(speeds, [{**each, "tokens": tokens} for each in short], full)
