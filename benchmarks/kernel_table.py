"""The table of docs/kernels.md, from the results of `benchmarks/kernels.py`.

python benchmarks/kernel_table.py          # rewrites the page; does nothing while there are no results
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "kernels-h200.json"
PAGE = ROOT / "docs" / "kernels.md"
START, END = "<!-- results -->", "<!-- end of results -->"
MISSING = "No results are in the repository yet: run `python benchmarks/kernels.py` on a GPU."


def table(results: dict[str, Any]) -> str:
    """Markdown of the timed rows, of the parity checks and of the machine."""
    lines = ["| operation | implementation | B, T, H, K, V | direction | ms | floor | largest error |"]
    lines.append("|---|---|---|---|---|---|---|")
    for row in results["rows"]:
        shape = ", ".join(f"{row['shape'][name]:,}" for name in "BTHKV")
        time = f"{row['ms']:.3f}" if row["ms"] is not None else f"failed: {row.get('failed', '')[:60]}"
        error = f"{max(row['rel_err'].values()):.1e}" if row.get("rel_err") else ""
        cells = (row["op"], row["impl"], shape, row["direction"], time, f"{row['floor_ms']:.3f}", error)
        lines.append(f"| {' | '.join(cells)} |")
    checks = results.get("parity", [])
    inside = sum(max(row["rel_err"].values()) < row["bound"] for row in checks)
    machine = results["environment"]
    lines += ["", f"Parity with fp64: {inside} of {len(checks)} checks inside their bounds."]
    lines.append(
        f"{machine['device']}, driver {machine['driver']}, torch {machine['torch']}, Triton {machine['triton']}, "
        f"{machine['date']}, commit {machine['commit'][:9]}: `{machine['command']}`."
    )
    return "\n".join(lines)


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
