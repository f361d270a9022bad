"""Equal wall clock: a recipe on as many tokens as it trains in the time that its rival takes for all of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from hymo.ablations.summary import CONFIDENCE
from hymo.ablations.variants import BASE
from hymo.evaluation.statistics import seed_interval

_NAMES = {"base": BASE, "winner": "winners", "rival": "dense transformer, no heads"}
"""Rows of the measured speeds by the variant that ran."""
_SLACK = 0.0012
"""Share of the rival's tokens by which a run may stop short of its time: a step of 32,768 of 29 million."""
_INTRO = """\
Each trained alone on one GPU for its speed; the winners then on as many tokens as they train in the rival's time, with
a schedule of that length. Seeds as above, and the rival's figures are those above.
"""


def clock_section(
    speeds: Sequence[Mapping[str, Any]], short: Sequence[Mapping[str, Any]], full: Sequence[Mapping[str, Any]]
) -> list[str]:
    """Speeds, and the difference at equal time.

    Args:
        speeds: rows of `benchmarks/train.py`, one for each of _NAMES.
        short: finished runs of the winners on the tokens that fit.
        full: rows of the comparison on all tokens.

    Raises:
        ValueError: a run whose tokens are not those that fit into the rival's time.
    """
    lines = [*_INTRO.splitlines(), ""]
    lines += ["| variant | tokens/s alone | ms a step | device busy, ms | optimizers, ms |", "|---" * 5 + "|"]
    for row in speeds:
        busy = sum(row["breakdown_ms"].values())
        cells = [_NAMES[row["name"]], f"{row['tok_per_s']:,.0f}"]
        cells += [f"{each:.1f}" for each in (row["ms_per_step"], busy, row["optimizer_ms"])]
        lines.append(f"| {' | '.join(cells)} |")
    share = _speed(speeds, "winner") / _speed(speeds, "rival")
    rival = {row["seed"]: row for row in full if row["variant"] == _NAMES["rival"] and not row.get("failed")}
    pairs = [(row, rival[row["seed"]]) for row in short if not row.get("failed") and row["seed"] in rival]
    if len(pairs) < 2:
        return [*lines, "", "Runs of equal time: not measured yet.", ""]
    for ours, theirs in pairs:
        if not share - _SLACK <= ours["tokens"] / theirs["tokens"] <= share:
            raise ValueError(
                f"seed {ours['seed']}: {ours['tokens']:,} tokens are not {share:.4f} of {theirs['tokens']:,}"
            )
    differences = [ours["bits_per_byte"] - theirs["bits_per_byte"] for ours, theirs in pairs]
    low, high = seed_interval(differences, CONFIDENCE)
    lines += ["", "| variant | tokens | seeds | bits per byte | minus the rival | paired t (95 %) |", "|---" * 6 + "|"]
    told = ("", ""), (f"{fmean(differences):+.4f}", f"{low:+.4f} to {high:+.4f}")
    for name, rows, ends in zip(("rival", "winner"), zip(*((b, a) for a, b in pairs), strict=True), told, strict=True):
        mean = fmean(row["bits_per_byte"] for row in rows)
        seeds = ", ".join(str(row["seed"]) for row in rows)
        lines.append(f"| {_NAMES[name]} | {rows[0]['tokens']:,} | {seeds} | {mean:.4f} | {' | '.join(ends)} |")
    return [*lines, ""]


def _speed(rows: Sequence[Mapping[str, Any]], name: str) -> float:
    return next(float(row["tok_per_s"]) for row in rows if row["name"] == name)
