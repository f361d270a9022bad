"""`hymo eval`: bits per byte on held-out text."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from hymo.cli.options import Json
from hymo.cli.output import print_json, print_table


def evaluate(
    checkpoint: Path,
    /,
    *,
    data: Path | None = None,
    split: Literal["validation", "test"] = "validation",
    stride: int | None = None,
    max_bytes: int | None = None,
    batch_size: int = 8,
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto",
    json: Json = False,
) -> None:
    """Measure bits per byte, perplexities and the prediction heads' acceptance of a checkpoint on held-out text.

    Args:
        checkpoint: Checkpoint folder, or a run folder (its newest whole checkpoint).
        data: Data set; the run's own unless given.
        split: Part of the data set.
        stride: Tokens between window starts in long documents; the training length (no overlap) unless given.
        max_bytes: Score only the first so many bytes.
        batch_size: Rows per forward pass; changes speed, not results.
        device: Where to run.
        json: Write JSON.
    """
    from hymo.core.errors import UsageError
    from hymo.data import EvaluationWindows, open_split, tokenizer_of_run
    from hymo.evaluation.perplexity import evaluate as run
    from hymo.models.checkpoint import load_model
    from hymo.training.trainer import resolve_device

    model, config, manifest = load_model(checkpoint, resolve_device(device))
    source = str(data) if data is not None else config.run.data
    if source is None:
        raise UsageError("eval: the run names no data set; pass --data DIR.")
    tokenizer = tokenizer_of_run(config.run.tokenizer, checkpoint)
    windows = EvaluationWindows(
        open_split(source, split, tokenizer),
        config.training.seq_len,
        stride=stride,
        max_bytes=max_bytes,
        tokenizer=tokenizer,
    )
    result = run(model, windows, batch_size, acceptance=True)
    facts = {
        "checkpoint": str(checkpoint),
        "step": manifest.step,
        "config_hash": manifest.config_hash,
        "tokenizer": manifest.tokenizer,
        "data": source,
        "split": split,
        **result.to_dict(),
    }
    if json:
        print_json(facts)
        return
    rows = [
        ("bits per byte", f"{result.bits_per_byte:.4f}"),
        ("byte perplexity", f"{result.byte_perplexity:.4f}"),
        ("token perplexity", f"{result.token_perplexity:.4f}"),
        ("nats per token", f"{result.loss:.4f}"),
        *((f"drafts of head {depth} that agree", f"{rate:.1%}") for depth, rate in enumerate(result.acceptance, 1)),
        ("text", f"{result.bytes:,} bytes, {result.tokens:,} tokens"),
    ]
    print_table(f"{checkpoint}, step {manifest.step}, {split} of {source}", ("measure", "value"), rows)
