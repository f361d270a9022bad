"""The tables of docs/kernels.md, from the results of `benchmarks/kernels.py`: one for each version of Triton.

python benchmarks/kernel_table.py          # rewrites the page; does nothing while there are no results
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = [ROOT / "benchmarks" / "results" / f"{name}.json" for name in ("kernels-h200", "kernels-h200-triton371")]
PAGE = ROOT / "docs" / "kernels.md"
START, END = "<!-- results -->", "<!-- end of results -->"
MISSING = "No results are in the repository yet: run `python benchmarks/kernels.py` on a GPU."


def table(results: dict[str, Any]) -> str:
    """Markdown of the timed rows, of the parity checks and of the machine."""
    lines = ["| operation | implementation | B, T, H, K, V | direction | ms | floor | largest error | extra memory |"]
    lines.append("|---|---|---|---|---|---|---|---|")
    for row in results["rows"]:
        shape = ", ".join(f"{row['shape'][name]:,}" for name in "BTHKV")
        time = f"{row['ms']:.3f}" if row["ms"] is not None else f"failed: {row.get('failed', '')[:60]}"
        error = f"{max(row['rel_err'].values()):.1e}" if row.get("rel_err") else ""
        cells = (row["op"], row["impl"], shape, row["direction"], time, f"{row['floor_ms']:.3f}", error, memory(row))
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


def memory(row: dict[str, Any]) -> str:
    """Peak memory of a call beside its inputs: as a multiple of them, or in GiB."""
    if "inputs_gib" in row:
        return f"{row['extra_gib'] / row['inputs_gib']:.1f} x inputs"
    return f"{row['extra_gib']:.2f} GiB" if "extra_gib" in row else ""


def rendered(page: str, results: list[dict[str, Any]]) -> str:
    """The page with its tables replaced."""
    before, rest = page.split(START)
    after = rest.split(END)[1]
    tables = "\n\n".join(map(table, results)) or MISSING
    return f"{before}{START}\n{tables}\n{END}{after}"


def results() -> list[dict[str, Any]]:
    """The results in the repository."""
    return [json.loads(path.read_text()) for path in RESULTS if path.exists()]


if __name__ == "__main__":
    PAGE.write_text(rendered(PAGE.read_text(), results()))
