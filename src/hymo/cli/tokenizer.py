"""`hymo tokenizer`: train a byte-level BPE tokenizer, and tell how a tokenizer fits a text."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from hymo.cli.options import Json
from hymo.cli.output import Progress, log, print_json, print_table, size

if TYPE_CHECKING:
    from collections.abc import Callable

    from hymo.data.bpe_training import SourceCounts

app = App(name="tokenizer", help="Train a tokenizer, and tell how it fits a text.", result_action="return_value")


@app.command
def train(
    *inputs: Path,
    out: Path,
    vocab_size: int = 64_256,
    limit_bytes: int = 4_000_000_000,
    weight: Annotated[tuple[float, ...], Parameter(negative="", show_default=False)] = (),
    overwrite: Annotated[bool, Parameter(negative="")] = False,
    json: Json = False,
) -> None:
    """Train a byte-level BPE tokenizer and write tokenizer.json and report.json.

    Text is split as GPT-4's tokenizer does, digits in groups of at most three. The same text and settings give the same
    file. Needs the package tokenizers: pip install 'hymo[data]'.

    Args:
        inputs: JSONL (field "text") or plain text files, .gz, .xz and .zst included, or folders of them.
        out: Folder of the tokenizer.
        vocab_size: Entries, exactly: 16 specials, 256 bytes and merges.
        limit_bytes: Most bytes of text to train on; inputs take turns until then.
        weight: Bytes that each input gives as shares of each other, while it lasts; once per input. Equal unless given.
        overwrite: Replace a tokenizer that is already there.
        json: Write the report as JSON.
    """
    from hymo.data.bpe_training import REPORT, SourceCounts, sample_of
    from hymo.data.bpe_training import train as run

    sample = sample_of(inputs, limit_bytes, weight, progress=_progress("read"))
    tokenizer, report = run(sample, out, vocab_size, overwrite=overwrite, on_phase=lambda phase: log(f"{phase} …"))
    if json:
        print_json(report)
        return
    counts = {
        name: SourceCounts(each["documents"], each["bytes"], each["tokens"]) for name, each in report["sources"].items()
    }
    _print_counts(f"{tokenizer.file}: {tokenizer.vocab_size:,} entries, trained on", counts)
    rejected = sum(sample.rejected.values())
    print(f"{rejected:,} documents could not be used; more in {out / REPORT}")
    if not sample.whole:
        log(f"the inputs hold more than the {limit_bytes:,} bytes of --limit-bytes; the rest was left out")


@app.command
def stats(
    tokenizer: str,
    /,
    *inputs: Path,
    limit_bytes: int = 4_000_000_000,
    json: Json = False,
) -> None:
    """Tell bytes per token of each source of a text: the more, the less there is to compute for the same text.

    Args:
        tokenizer: "byte", or the path of a tokenizer.json or its folder.
        inputs: JSONL (fields "text" and "source") or plain text files, or folders of them.
        limit_bytes: Most bytes of text to read; inputs take turns until then.
        json: Write JSON.
    """
    from hymo.data.bpe_training import count_tokens, sample_of, total
    from hymo.data.tokenizer import load_tokenizer

    loaded = load_tokenizer(tokenizer)
    sample = sample_of(inputs, limit_bytes, progress=_progress("count"))
    counts = count_tokens(loaded, sample)
    if not json:
        _print_counts(f"{tokenizer}: {loaded.vocab_size:,} entries", counts)
        if sample.rejected:
            log(f"{sum(sample.rejected.values()):,} documents could not be used")
        return
    print_json(
        {
            "tokenizer": tokenizer,
            "fingerprint": loaded.fingerprint(),
            "vocab_size": loaded.vocab_size,
            "rejected": dict(sorted(sample.rejected.items())),
            "whole_input": sample.whole,
            "total": _facts(total(counts)),
            "sources": {name: _facts(each) for name, each in counts.items()},
        }
    )


def _progress(phase: str) -> Callable[[int, int], None] | None:
    if not sys.stderr.isatty():
        return None
    show = Progress()
    return lambda done, total: show(phase, done, total)


def _facts(counts: SourceCounts) -> dict[str, float]:
    return {**asdict(counts), "bytes_per_token": counts.bytes_per_token}


def _print_counts(title: str, counts: dict[str, SourceCounts]) -> None:
    from hymo.data.bpe_training import total

    rows = [
        (name, f"{each.documents:,}", size(each.bytes), f"{each.tokens:,}", f"{each.bytes_per_token:.3f}")
        for name, each in (*counts.items(), ("all", total(counts)))
    ]
    print_table(title, ("source", "documents", "text", "tokens", "bytes per token"), rows)
