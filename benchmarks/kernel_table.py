"""The tables of docs/kernels.md, from the results of `benchmarks/kernels.py`: one for each Triton, and the goals.

python benchmarks/kernel_table.py          # rewrites the page; does nothing while there are no results
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kernel_pool import Row, inside

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
    held = sum(map(inside, checks))
    machine = results["environment"]
    commits = {check.get("commit", machine["commit"]) for check in checks}
    of = f", of commit {', '.join(sorted(commits))}" if commits - {machine["commit"]} else ""
    lines += ["", f"Parity with fp64: {held} of {len(checks)} checks inside their bounds{of}."]
    lines.append(
        f"{machine['device']}, driver {machine['driver']}, torch {machine['torch']}, Triton {machine['triton']}, "
        f"{machine['date']}, commit {machine['commit'][:9]}: `{machine['command']}`."
    )
    return "\n".join(lines)


Goal = tuple[str, Callable[[list[Row]], float | None], str, float, str]
FIRST, MANY, WIDE = (4, 4096, 40, 32, 32), (16, 4096, 40, 32, 32), (4, 4096, 10, 128, 128)
HEAD = (1, 16384, 1, 896, 64256)
LINEAR, DELTA, LOSS = "gated_linear", "gated_delta", "linear_cross_entropy"


def row_of(rows: list[Row], op: str, shape: tuple[int, ...], impl: str = "hymo") -> Row:
    """The measurement forward and backward, empty if there is none."""
    for row in rows:
        same = (row["op"], row["impl"], row["direction"]) == (op, impl, "fwdbwd")
        if same and tuple(row["shape"].values()) == shape and row["ms"] is not None:
            return row
    return {}


def ratio(above: Any, below: Any) -> float | None:
    """above / below, if both are there."""
    return None if above is None or below is None else float(above) / float(below)


def slower(rows: list[Row], op: str, shape: tuple[int, ...], peer: str) -> float | None:
    """How many times longer a peer takes in the same run."""
    return ratio(row_of(rows, op, shape, peer).get("ms"), row_of(rows, op, shape).get("ms"))


def over_floor(rows: list[Row], op: str, shape: tuple[int, ...]) -> float | None:
    """How many times its byte floor it takes."""
    row = row_of(rows, op, shape)
    return ratio(row.get("ms"), row.get("floor_ms"))


def extra(rows: list[Row], op: str, shape: tuple[int, ...]) -> float | None:
    """Memory of a call beside its inputs, in multiples of them; for the head in GiB."""
    row = row_of(rows, op, shape)
    return ratio(row.get("extra_gib"), row.get("inputs_gib", 1.0))


GOALS: tuple[Goal, ...] = (
    ("`gated_linear`, first shape", lambda r: row_of(r, LINEAR, FIRST).get("ms"), "at most", 0.35, "ms"),
    ("`chunk_gla` over it", lambda r: slower(r, LINEAR, FIRST, "fla-chunk_gla"), "at least", 7, "times"),
    ("`gated_delta`, first shape", lambda r: row_of(r, DELTA, FIRST).get("ms"), "at most", 0.6, "ms"),
    (
        "`chunk_gated_delta_rule` over it",
        lambda r: slower(r, DELTA, FIRST, "fla-chunk_gated_delta_rule"),
        "at least",
        5,
        "times",
    ),
    ("`gated_delta`, K = V = 128", lambda r: row_of(r, DELTA, WIDE).get("ms"), "at most", 1.48, "ms"),
    (
        "`gated_linear`, B 16, over its floor",
        lambda r: over_floor(r, LINEAR, (16, *FIRST[1:])),
        "at most",
        2.5,
        "times",
    ),
    ("`gated_delta`, B 16, over its floor", lambda r: over_floor(r, DELTA, (16, *FIRST[1:])), "at most", 2.5, "times"),
    (
        "`gated_linear`, 131,072 over 32,768 tokens",
        lambda r: ratio(*(row_of(r, LINEAR, (1, t, *FIRST[2:])).get("ms") for t in (131072, 32768))),
        "at most",
        4.4,
        "times",
    ),
    ("memory of `gated_linear`", lambda r: extra(r, LINEAR, FIRST), "at most", 3, "times its inputs"),
    ("memory of `gated_delta`", lambda r: extra(r, DELTA, FIRST), "at most", 3, "times its inputs"),
    ("the same, K = V = 128", lambda r: extra(r, DELTA, WIDE), "at most", 3, "times its inputs"),
    ("head and cross-entropy", lambda r: row_of(r, LOSS, HEAD).get("ms"), "at most", 11.8, "ms"),
    ("compiled over it", lambda r: slower(r, LOSS, HEAD, "torch.compile"), "at least", 1, "times"),
    ("Liger over it", lambda r: slower(r, LOSS, HEAD, "liger"), "at least", 1, "times"),
    ("memory of it", lambda r: extra(r, LOSS, HEAD), "at most", 1, "GiB"),
)
"""What was wanted of each kernel, forward and backward."""


def goals(results: list[dict[str, Any]]) -> str:
    """Markdown of the goals: what each asks for, the best that one run reached, and whether that is enough."""
    lines = ["| goal, forward and backward | asked for | reached | |", "|---|---|---|---|"]
    for name, measure, side, bound, unit in GOALS:
        found = [value for result in results if (value := measure(result["rows"])) is not None]
        asked = f"{side} {bound:g} {unit}"
        if not found:
            lines.append(f"| {name} | {asked} | not measured | |")
            continue
        best = min(found) if side == "at most" else max(found)
        met = best <= bound if side == "at most" else best >= bound
        lines.append(f"| {name} | {asked} | {best:.3g} {unit} | {'met' if met else 'missed'} |")
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
    tables = "\n\n".join([*map(table, results), *([goals(results)] if results else [])]) or MISSING
    return f"{before}{START}\n{tables}\n{END}{after}"


def results() -> list[dict[str, Any]]:
    """The results in the repository."""
    return [json.loads(path.read_text()) for path in RESULTS if path.exists()]


if __name__ == "__main__":
    PAGE.write_text(rendered(PAGE.read_text(), results()))
