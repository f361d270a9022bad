"""Parity and speed of the kernels on one GPU, beside their peers.

    for i in $(seq 0 15); do python benchmarks/kernel_compile.py $i 16 & done; wait
    python benchmarks/kernels.py parity --jobs 12 --json parity.json
    python benchmarks/kernels.py time --parity parity.json --json benchmarks/results/kernels-h200.json

`parity` compares outputs and every gradient with fp64, over several processes; it ends with 1 if a check is outside its
bound or was not made. `time` measures medians with CUDA events over replays of a captured graph (over plain calls where
a peer can't be captured, which the row says) and checks each row against fp64 first; it wants a quiet GPU. Peers are
used if they are installed; one that fails is listed as failed, without a time. The package's own rows come first, then
peers at the first shape, so that a run that is cut loses least; `--skip-from` goes on from what such a run has left.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
import triton

import kernel_loss
from kernel_parts import conv_jobs, conv_parity, step_jobs, step_parity
from kernel_pool import Check, Row, inside, run_checks
from kernel_recurrence import OPS, SHAPES
from kernel_recurrence import jobs as recurrence_jobs
from kernel_recurrence import parity as recurrence_parity
from kernel_tools import Job, Key, freed, key_of
from kernel_tuning import Tuning

OTHERS: dict[str, tuple[Callable[[], list[Check]], Callable[[], list[Job]]]] = {
    "linear_cross_entropy": (kernel_loss.parity, kernel_loss.jobs),
    "short_conv": (conv_parity, conv_jobs),
    "step": (step_parity, step_jobs),
}
"""Parity checks and timed rows of the other operations."""
ALL = [*OPS, *OTHERS]
SAME = ("device", "torch", "triton", "fla-core", "liger-kernel")
"""What two runs must have in common for their rows to stand in one file."""


def environment() -> dict[str, str]:
    """Where and with what the numbers were taken."""
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    found = {
        "device": torch.cuda.get_device_name(),
        "driver": subprocess.run(query, capture_output=True, text=True, check=False).stdout.split("\n")[0],
        "torch": torch.__version__,
        "triton": triton.__version__,
        "python": platform.python_version(),
        "commit": commit,
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "command": "python benchmarks/kernels.py " + " ".join(sys.argv[1:]),
    }
    for package in ("fla-core", "liger-kernel"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def checks(wanted: list[str], short: bool) -> list[Check]:
    """The checks of these operations, in the order of the table."""
    torch.backends.cuda.matmul.allow_tf32 = False
    found = [check for op in wanted for check in (recurrence_parity(op, short) if op in OPS else OTHERS[op][0]())]
    return [replace(check, run=partial(freed, check.run)) for check in found]


def jobs(wanted: list[str], shapes: Sequence[tuple[int, ...]], tuning: Tuning, with_peers: bool = True) -> list[Job]:
    """The jobs of these operations, in the order of the table."""
    found = [job for op in wanted for job in (recurrence_jobs(op, shapes, tuning) if op in OPS else OTHERS[op][1]())]
    return [job for job in found if with_peers or job.op not in OPS or not job.stage]


def run_parity(options: argparse.Namespace, found: dict[str, Any], save: Callable[[], None]) -> int:
    """Fill found["parity"]; how many checks are outside their bounds or missing."""
    done: dict[int, Row] = {}

    def report(index: int, row: Row) -> None:
        done[index] = row
        print("ok " if inside(row) else "BAD", json.dumps(row), flush=True)
        found["parity"] = [done[i] for i in sorted(done)]
        save()

    begun = time.perf_counter()
    found["parity"] = run_checks(checks, (options.only, options.short), options.jobs, report)
    bad = [row for row in found["parity"] if not inside(row)]
    print(
        f"{len(found['parity'])} checks in {time.perf_counter() - begun:.0f} s with {options.jobs} processes,", end=" "
    )
    print(f"{len(bad)} outside their bounds or missing", *map(json.dumps, bad), sep="\n", flush=True)
    return len(bad)


def known_rows(paths: list[Path], here: dict[str, str], commit: str) -> dict[Key, Row]:
    """Rows with a time that other files have, each with its commit.

    Args:
        paths: files of `time`.
        here: environment of this run, which theirs must equal in what decides times.
        commit: if not empty, only rows whose commit starts so, or this with that.

    Raises:
        SystemExit: a file is from another device or other versions.
    """
    found: dict[Key, Row] = {}
    for path in paths:
        content = json.loads(path.read_text())
        there = content["environment"]
        if other := [f"{n} {there.get(n)}, here {here.get(n)}" for n in SAME if there.get(n) != here.get(n)]:
            raise SystemExit(f"--skip-from {path}: its rows are from other surroundings: {'; '.join(other)}.")
        for row in content["rows"]:
            of = row.get("commit", there["commit"])
            if row["ms"] is not None and (not commit or of.startswith(commit) or (of and commit.startswith(of))):
                found[key_of(row)] = {**row, "commit": of}
    return found


def run_time(options: argparse.Namespace, found: dict[str, Any], save: Callable[[], None]) -> None:
    """Fill found["rows"], in the order of the table, stage by stage."""
    tuning = Tuning(options.tuning_seconds)
    tuning.install()
    found["parity"] = [row for path in options.parity for row in json.loads(path.read_text())["parity"]]
    rows = known_rows(options.skip_from, found["environment"], options.skip_commit)
    table = jobs(options.only, SHAPES[: options.shapes], tuning, not options.no_peers)
    order = {key: place for place, key in enumerate(key for job in table for key in job.row_keys())}

    def keep() -> None:
        found["rows"] = [rows[key] for key in sorted(rows, key=lambda key: order.get(key, len(order)))]
        save()

    keep()
    for job in sorted(table, key=lambda job: job.stage):
        if all(key in rows for key in job.row_keys()):
            continue
        begun = time.perf_counter()
        for row in job.rows():
            now = time.perf_counter()
            row |= {"seconds": round(now - begun, 2), "commit": found["environment"]["commit"]}
            print(f"{now - begun:.1f} s for {row['op']}, {row['impl']}, {row['direction']}", flush=True)
            rows[key_of(row)], begun = row, now
            keep()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("parity", "time"))
    parser.add_argument("--only", choices=ALL, nargs="*", default=ALL)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--jobs", type=int, default=1, help="parity: processes that share the GPU")
    parser.add_argument("--short", action="store_true", help="parity: fewer cases")
    parser.add_argument("--no-peers", action="store_true", help="time: only the package's own recurrences")
    parser.add_argument("--shapes", type=int, help="time: only the first so many shapes of the recurrences")
    parser.add_argument("--parity", type=Path, nargs="*", default=[], help="time: files of `parity` to include")
    parser.add_argument("--skip-from", type=Path, nargs="*", default=[], help="time: files whose rows are kept")
    parser.add_argument("--skip-commit", default="", help="time: of those, only the rows of this commit")
    parser.add_argument("--tuning-seconds", type=float, default=25.0, help="time: limit of a peer's tuning at a shape")
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    found: dict[str, Any] = {"environment": environment(), "rows": []}

    def save() -> None:
        if options.json:
            options.json.write_text(json.dumps(found, indent=1) + "\n")

    if options.what == "parity":
        bad = run_parity(options, found, save)
        save()
        sys.exit(bad > 0)
    run_time(options, found, save)


if __name__ == "__main__":
    main()
