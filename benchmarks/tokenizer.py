"""Speed of a tokenizer's encoder, with one and more processes: a table, and rows for a results file.

    python benchmarks/tokenizer.py TOKENIZER INPUTS... [--workers 1 2] [--repeat 3] [--json FILE] [--compare]

Texts are read first and handed over as bytes in batches of 64, as preparation does; each process encodes every n-th
batch and keeps the ids as shards store them. MB are 10^6 bytes of text; the wall clock is the best of the repeats.
`--compare` instead compares all ids with those of `tokenizers` and `transformers`, and all bytes with the text's.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from environment import environment
from hymo.data import Tokenizer, load_tokenizer
from hymo.data.bpe import BPETokenizer
from hymo.data.bpe_training import sample_of

BATCH = 64


def _encode(tokenizer: Tokenizer, batches: list[list[bytes]], start: Any, done: Any) -> None:
    start.wait()
    clock, cpu = time.perf_counter(), time.process_time()
    tokens = sum(len(ids) for batch in batches for ids in tokenizer.encode_batch(batch))
    done.put((tokens, time.perf_counter() - clock, time.process_time() - cpu))


def measure(tokenizer: Tokenizer, batches: list[list[bytes]], workers: int) -> tuple[int, float, float]:
    """Return tokens, the slowest process's seconds and the CPU seconds of all."""
    fork = multiprocessing.get_context("fork")
    start, done = fork.Event(), fork.Queue()
    processes = [
        fork.Process(target=_encode, args=(tokenizer, batches[i::workers], start, done)) for i in range(workers)
    ]
    for process in processes:
        process.start()
    start.set()
    results = [done.get() for _ in processes]
    for process in processes:
        process.join()
    return sum(r[0] for r in results), max(r[1] for r in results), sum(r[2] for r in results)


def compare(tokenizer: BPETokenizer, batches: list[list[bytes]]) -> dict[str, Any]:
    """Return for how many documents each reader of the file differs, and the CPU seconds that each took."""
    import tokenizers
    from transformers import PreTrainedTokenizerFast

    library = tokenizers.Tokenizer.from_file(str(tokenizer.file))
    library.encode_special_tokens = True
    fast = PreTrainedTokenizerFast(tokenizer_file=str(tokenizer.file), split_special_tokens=True)
    readers: dict[str, Callable[[list[str]], list[list[int]]]] = {
        "hymo": lambda texts: [ids.tolist() for ids in tokenizer.encode_batch(texts)],
        "tokenizers": lambda texts: [e.ids for e in library.encode_batch_fast(texts, add_special_tokens=False)],
        "transformers": lambda texts: fast(texts, add_special_tokens=False, return_attention_mask=False)["input_ids"],
    }
    seconds, differ = dict.fromkeys(readers, 0.0), dict.fromkeys(["bytes", *readers], 0)
    for batch in batches:
        texts = [text.decode() for text in batch]
        ids = {}
        for name, read in readers.items():
            clock = time.process_time()
            ids[name] = read(texts)
            seconds[name] += time.process_time() - clock
            differ[name] += sum(a != b for a, b in zip(ids["hymo"], ids[name], strict=True))
        differ["bytes"] += sum(
            tokenizer.decode_bytes(row) != text for row, text in zip(ids["hymo"], batch, strict=True)
        )
    return {"documents_that_differ": differ, "cpu_seconds": {name: round(value, 1) for name, value in seconds.items()}}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("tokenizer")
    parser.add_argument("inputs", nargs="+")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--compare", action="store_true")
    options = parser.parse_args()
    tokenizer = load_tokenizer(options.tokenizer)
    texts = [document.text for document in sample_of(options.inputs)]
    size = sum(map(len, texts))
    batches = [texts[i : i + BATCH] for i in range(0, len(texts), BATCH)]
    if options.compare:
        assert isinstance(tokenizer, BPETokenizer), "byte has no tokenizer.json to compare with"
        print(f"{len(texts):,} documents, {size / 1e6:.1f} MB: {json.dumps(compare(tokenizer, batches))}")
        return
    rows = []
    print(f"{len(texts):,} documents, {size / 1e6:.1f} MB; load average {os.getloadavg()[0]:.1f}")
    for workers in options.workers:
        tokens, seconds, cpu = min(
            (measure(tokenizer, batches, workers) for _ in range(options.repeat)), key=lambda result: result[1]
        )
        row = {
            "workers": workers,
            "documents": len(texts),
            "bytes": size,
            "tokens": tokens,
            "seconds": round(seconds, 3),
            "mb_per_s": round(size / seconds / 1e6, 2),
            "mb_per_cpu_s": round(size / cpu / 1e6, 2),
            "load_average": os.getloadavg()[0],
        }
        rows.append(row)
        print(
            f"{workers} processes: {row['mb_per_s']} MB/s, {row['mb_per_cpu_s']} MB a second of CPU, {tokens:,} tokens"
        )
    if options.json:
        options.json.write_text(json.dumps({"environment": environment(), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
