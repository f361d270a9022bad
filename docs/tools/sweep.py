"""Learning rates at several widths: what the same change of the rates does to each."""

from __future__ import annotations

import math
from typing import Any

from docs.tools.paths import results
from hymo.ablations.variants import BASE

RESULTS = "rates-h200"
_STEPS = {"both halved": -1, BASE: 0, "both doubled": 1}
"""Variants of the family `rates` by the power of two that multiplies both rates."""


def sweep_section() -> list[str]:
    """A table for each base that was swept: widths down, rates across, and where a parabola through them is least."""
    found = results(RESULTS)
    if found is None:
        return []
    lines = ["## rates: Learning rates, at several widths", ""]
    lines.append(
        "NorMuon's and AdamW's rates halved and doubled together; bits per byte, one seed. The last column is the"
    )
    lines += ["least point of the parabola through the three, as a multiple of the rates.", ""]
    for preset in sorted({row["preset"] for row in found["rows"]}):
        lines += [f"Base: {preset}.", ""]
        lines += [
            "| width | active parameters | halved | as they are | doubled | least at |",
            "|---|---|---|---|---|---|",
        ]
        for width in sorted({row["width"] for row in found["rows"] if row["preset"] == preset}):
            rows = [row for row in found["rows"] if (row["preset"], row["width"]) == (preset, width)]
            by_step = {_STEPS[row["variant"]]: row for row in rows}
            scores = [by_step[step]["bits_per_byte"] for step in (-1, 0, 1)]
            cells = [str(width), f"{rows[0]['active_parameters']:,}", *(f"{score:.4f}" for score in scores)]
            lines.append(f"| {' | '.join(cells)} | {2 ** least(scores):.2f} |")
        lines.append("")
    lines += [_origin(found), ""]
    return lines


def least(scores: list[float]) -> float:
    """Where the parabola through values at -1, 0 and 1 is least; no number where it opens downwards."""
    before, here, after = scores
    bend = before - 2 * here + after
    return (before - after) / (2 * bend) if bend > 0 else math.nan


def _origin(found: dict[str, Any]) -> str:
    rows, machine = found["rows"], found["environment"]
    days = sorted({row["date"][:10] for row in rows})
    return f"{rows[0]['device']}, torch {machine['torch']}, {days[0]}, {rows[0]['tokens']:,} tokens a run."
