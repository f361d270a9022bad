"""Tokens per second of the training loader: `python benchmarks/loader.py [--tokens 200e6] [--out FILE]`.

Makes a data set of random tokens in a temporary folder, in documents of a web corpus's lengths (log-normal, median 600
tokens), shuffles it as a whole and reads packed batches with document boundaries from one thread: warm (in the page
cache) and cold (dropped from it before). Nothing else is part of the loop, so this is what one worker can give.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from environment import environment
from hymo.data import ByteTokenizer, PackedLoader, Split
from hymo.data.shards import ShardReader, ShardWriter


class _Wide(ByteTokenizer):
    """Stands for a tokenizer of the flagship's size, of which only the numbers matter here."""

    vocab_size = 64_256


def write_shards(folder: Path, tokens: int, shard_tokens: int) -> list[Path]:
    rng = np.random.default_rng(0)
    with ShardWriter(folder, "train", _Wide(), shard_tokens) as writer:
        written = 0
        while written < tokens:
            length = int(np.clip(rng.lognormal(np.log(600), 1.0), 8, shard_tokens - 2))
            writer.add(rng.integers(3, 64_256, length), 4 * length, "random", str(written), bytes(32))
            written += length + 2
    return [folder / info.file for info in writer.shards]


def drop_from_cache(paths: list[Path]) -> None:
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def measure(paths: list[Path], seq_len: int, batch: int, packed: bool, cold: bool, seconds: float) -> dict[str, Any]:
    if cold:
        drop_from_cache(paths)
    else:
        for path in paths:
            path.read_bytes()
    opened = time.perf_counter()
    loader = PackedLoader(Split([ShardReader(path) for path in paths]), seq_len, batch, packed=packed)
    loader.batch_at(0)
    started = time.perf_counter()
    step = 0
    while time.perf_counter() - started < seconds and step + 1 < loader.steps_per_epoch:
        step += 1
        loader.batch_at(step)
    elapsed = time.perf_counter() - started
    return {
        "impl": "hymo",
        "seq_len": seq_len,
        "batch": batch,
        "packed": packed,
        "cache": "cold" if cold else "warm",
        "tok_per_s": step * batch * seq_len / elapsed,
        "first_batch_s": started - opened,
        "steps": step,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=float, default=200e6, help="size of the data set")
    parser.add_argument("--shard-tokens", type=float, default=50e6)
    parser.add_argument("--seconds", type=float, default=5, help="length of each measurement, an epoch at most")
    parser.add_argument("--folder", type=Path, help="where the data set is made, for a disk of choice")
    parser.add_argument("--out", type=Path, help="write the rows as JSON")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        paths = write_shards(Path(folder), int(arguments.tokens), int(arguments.shard_tokens))
        rows = [
            measure(paths, seq_len, batch, packed, cold, arguments.seconds)
            for seq_len, batch in ((4096, 16), (2048, 32), (4096, 1))
            for packed in (True, False)
            for cold in (True, False)
        ]
    load = os.getloadavg()[0]
    print(f"{arguments.tokens:,.0f} tokens, {len(paths)} shards, load {load:.1f}")
    print(f"{'T':>6} {'batch':>6} {'boundaries':>11} {'cache':>6} {'M tok/s':>9} {'first batch s':>14}")
    for row in rows:
        print(
            f"{row['seq_len']:>6} {row['batch']:>6} {'yes' if row['packed'] else 'no':>11} {row['cache']:>6} "
            f"{row['tok_per_s'] / 1e6:>9.1f} {row['first_batch_s']:>14.3f}"
        )
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        facts = {**environment(), "load": load, "tokens": arguments.tokens}
        arguments.out.write_text(json.dumps({"environment": facts, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
