"""Learning rates at several widths: what the same change of the rates does to each."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from hymo.ablations.report import base_name
from hymo.ablations.variants import BASE

_POWERS = {"both halved": -1, BASE: 0, "both doubled": 1}
"""Variants of the family `rates` by the power of two that multiplies both rates."""
_INTRO = """\
NorMuon's and AdamW's rates halved and doubled together; bits per byte, mean over seeds. The last column is the least
point of the parabola through the three, as a multiple of the rates: no figure where it lies outside what was tried.
"""


def sweep_section(rows: Sequence[dict[str, Any]]) -> list[str]:
    """A table for each base that was swept: widths down, rates across, and where a parabola through them is least."""
    lines = [*_INTRO.splitlines(), ""]
    by_base: dict[str, dict[int, list[dict[str, Any]]]] = {}
    for row in rows:
        if row["variant"] in _POWERS and not row.get("failed"):
            by_base.setdefault(base_name(row), {}).setdefault(row["width"], []).append(row)
    for base, by_width in sorted(by_base.items()):
        lines += [f"Base: {base}.", ""]
        lines += ["| width | active parameters | stored | seeds | halved | as they are | doubled | least at |"]
        lines.append("|---" * 8 + "|")
        lines += [_line(width, by_width[width]) for width in sorted(by_width)]
        lines.append("")
    return lines


def _line(width: int, rows: list[dict[str, Any]]) -> str:
    seeds = set.intersection(*({r["seed"] for r in rows if r["variant"] == v} for v in {r["variant"] for r in rows}))
    scores = {
        power: fmean(row["bits_per_byte"] for row in rows if row["variant"] == variant and row["seed"] in seeds)
        for variant, power in _POWERS.items()
        if seeds & {row["seed"] for row in rows if row["variant"] == variant}
    }
    cells = [str(width), f"{rows[0]['active_parameters']:,}", f"{rows[0]['stored_parameters']:,}", str(len(seeds))]
    cells += [f"{scores[power]:.4f}" if power in scores else "" for power in _POWERS.values()]
    place = least(scores)
    return f"| {' | '.join([*cells, '' if math.isnan(place) else f'{2**place:.2f}'])} |"


def least(scores: Mapping[int, float]) -> float:
    """Where the parabola through values at -1, 0 and 1 is least; no number without all three, or outside of them."""
    if scores.keys() != {-1, 0, 1}:
        return math.nan
    bend = scores[-1] - 2 * scores[0] + scores[1]
    place = (scores[-1] - scores[1]) / (2 * bend) if bend > 0 else math.nan
    return place if abs(place) <= 1 else math.nan
