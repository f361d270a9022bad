"""Where the portal's parts lie, and how its numbers read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
DATA = DOCS / "assets" / "data"
RESULTS = ROOT / "benchmarks" / "results"
STAGED = ROOT / "build" / "docs"
SITE = ROOT / "build" / "site"


def page_files() -> list[Path]:
    """Every page, relative to docs/; notes for contributors (README.md) and what belongs to node stay out."""
    found = (path.relative_to(DOCS) for path in DOCS.rglob("*.md") if "node_modules" not in path.parts)
    outside = {"tools", "overrides", "data", "assets"}
    return sorted(path for path in found if path.parts[0] not in outside and path.name != "README.md")


def results(name: str) -> dict[str, Any] | None:
    """A result file of the benchmarks, or None while it does not exist."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def as_json(value: Any) -> str:
    """The one form in which the portal's data are written: floats with nine digits, so that machines agree."""
    return json.dumps(_rounded(value), indent=1, ensure_ascii=False) + "\n"


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.9g}") if abs(value) > 1e-12 else 0.0
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list | tuple) else value


def number(value: float, digits: int = 0) -> str:
    """1,128,090,624 or 0.125, with a fixed number of digits."""
    return f"{value:,.{digits}f}"


def short(value: float) -> str:
    """1.13 B, 434.5 M, 57.2 k: three to four significant digits."""
    for unit, scale in (("E", 1e18), ("P", 1e15), ("T", 1e12), ("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= scale:
            shown = value / scale
            return f"{shown:.{2 if shown < 10 else 1}f} {unit}"
    return f"{value:g}"


def size(value: float) -> str:
    """Bytes in binary units."""
    for unit, shift in (("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if value >= 1 << shift:
            shown = value / (1 << shift)
            return f"{shown:.{2 if shown < 10 else 1}f} {unit}"
    return f"{value:g} B"
