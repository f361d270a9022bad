"""Speed of a whole preparation: `python benchmarks/prepare.py FILES… [--tokenizer T] [--workers 1 2]`.

Runs it with each number of workers, checks that all write the same set, and prints megabytes of text per second of wall
time and per second of processor time: on a busy machine only the second says what the program needs.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

from environment import environment
from hymo.data import load_tokenizer, prepare


def measure(arguments: argparse.Namespace, workers: int, out: Path) -> dict[str, Any]:
    load = os.getloadavg()[0]
    before, started = processor_seconds(), time.perf_counter()
    manifest = prepare(
        arguments.inputs,
        out,
        load_tokenizer(arguments.tokenizer),
        validation_inputs=arguments.validation,
        workers=workers,
    )
    wall = time.perf_counter() - started
    used = processor_seconds() - before
    size = sum(split.bytes for split in manifest.splits.values())
    return {
        "impl": "hymo",
        "workers": workers,
        "bytes": size,
        "tokens": sum(split.tokens for split in manifest.splits.values()),
        "seconds": wall,
        "mb_per_s": size / 1e6 / wall,
        "mb_per_processor_s": size / 1e6 / used,
        "load_before": load,
        "fingerprint": manifest.fingerprint,
    }


def processor_seconds() -> float:
    """Of this process and of the workers that have ended."""
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in usage)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("inputs", type=Path, nargs="+")
    parser.add_argument("--validation", type=Path, nargs="*", default=())
    parser.add_argument("--tokenizer", default="byte")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="where the data sets are made")
    parser.add_argument("--out", type=Path, help="write the rows as JSON")
    arguments = parser.parse_args()
    rows = []
    for turn in range(arguments.repeat):
        for workers in arguments.workers:
            with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
                rows.append(measure(arguments, workers, Path(folder) / f"{turn}-{workers}"))
    assert len({row["fingerprint"] for row in rows}) == 1, "the number of workers changed the result"
    print(f"{'workers':>8} {'seconds':>8} {'MB/s':>7} {'MB per processor s':>19} {'load before':>12}")
    for row in rows:
        print(
            f"{row['workers']:>8} {row['seconds']:>8.1f} {row['mb_per_s']:>7.1f} {row['mb_per_processor_s']:>19.1f} "
            f"{row['load_before']:>12.1f}"
        )
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps({"environment": environment(), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
