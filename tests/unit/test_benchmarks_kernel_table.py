"""The table of docs/kernels.md is the one that its results give."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

from kernel_table import PAGE, goals, rendered, results, table  # noqa: E402


def test_page_is_up_to_date() -> None:
    page = PAGE.read_text()
    assert page == rendered(page, results()), "run python benchmarks/kernel_table.py"


def test_failed_peers_and_bad_checks_show() -> None:
    shape = {"B": 4, "T": 4096, "H": 40, "K": 32, "V": 32}
    row = {"op": "gated_linear", "shape": shape, "direction": "fwd", "floor_ms": 0.04}
    good = row | {"impl": "hymo", "ms": 0.1234, "rel_err": {"o": 0.002, "dv": 0.003}}
    good |= {"extra_gib": 0.5, "inputs_gib": 0.25}
    failed = row | {"impl": "peer", "ms": None, "rel_err": {}, "failed": "refuses"}
    machine = dict.fromkeys(("device", "driver", "torch", "triton", "date", "commit", "command"), "x")
    checks = [{"rel_err": {"o": 0.1}, "bound": 0.01}, {"rel_err": {"o": 0.001}, "bound": 0.01}]
    text = table({"rows": [good, failed], "environment": machine, "parity": checks})
    assert "| gated_linear | hymo | 4, 4,096, 40, 32, 32 | fwd | 0.123 | 0.040 | 3.0e-03 | 2.0 x inputs |" in text
    assert "failed: refuses" in text
    assert "1 of 2 checks inside their bounds.\n" in text


def test_checks_of_another_commit_say_so() -> None:
    machine = dict.fromkeys(("device", "driver", "torch", "triton", "date", "command"), "x") | {"commit": "aaaaaaa"}
    checks = [{"rel_err": {"o": 0.001}, "bound": 0.01, "commit": commit} for commit in ("bbbbbbb", "aaaaaaa")]
    text = table({"rows": [], "environment": machine, "parity": checks})
    assert "2 of 2 checks inside their bounds, of commit aaaaaaa, bbbbbbb.\n" in text


def test_goals_compare_within_one_run() -> None:
    """A peer of one run is never divided by a time of another."""
    shape = {"B": 4, "T": 4096, "H": 40, "K": 32, "V": 32}
    ours = {"op": "gated_delta", "impl": "hymo", "shape": shape, "direction": "fwdbwd", "floor_ms": 0.1}
    peer = ours | {"impl": "fla-chunk_gated_delta_rule"}
    text = goals([{"rows": [ours | {"ms": 0.5}]}, {"rows": [ours | {"ms": 0.7}, peer | {"ms": 4.2}]}])
    assert "| `gated_delta`, first shape | at most 0.6 ms | 0.5 ms | met |" in text
    assert "| `chunk_gated_delta_rule` over it | at least 5 times | 6 times | met |" in text
    assert "| `gated_linear`, first shape | at most 0.35 ms | not measured | |" in text
