"""`hymo eval`: bits per byte on held-out text."""

from __future__ import annotations

import json as jsonlib
from pathlib import Path
from typing import Literal

from hymo.cli.options import Json
from hymo.cli.output import log, print_json, print_table


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

    The figures of a run's checkpoint are kept in its folder: eval/step-N-SPLIT.json, with the other options in the name
    where they are given.

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
    from hymo.data import EvaluationWindows, open_split
    from hymo.data.of_run import data_of_run, run_of, tokenizer_of_checkpoint
    from hymo.evaluation.perplexity import evaluate as run
    from hymo.models.checkpoint import load_model
    from hymo.training.device import resolve_device

    model, config, manifest = load_model(checkpoint, resolve_device(device))
    source = str(data) if data is not None else data_of_run(config.run.data, checkpoint)
    tokenizer = tokenizer_of_checkpoint(config.run.tokenizer, manifest.tokenizer, checkpoint)
    text = open_split(source, split, tokenizer)
    windows = EvaluationWindows(text, config.training.seq_len, stride=stride, max_bytes=max_bytes, tokenizer=tokenizer)
    result = run(model, windows, batch_size, acceptance=True)
    options = {"stride": stride, "max_bytes": max_bytes}
    facts = {
        "checkpoint": str(checkpoint),
        "step": manifest.step,
        "config_hash": manifest.config_hash,
        "tokenizer": manifest.tokenizer,
        "data": source,
        "data_fingerprint": text.fingerprint,
        "split": split,
        **options,
        **result.to_dict(),
    }
    if (folder := run_of(checkpoint)) is not None:
        named = {**options, "data": None if data is None else text.fingerprint[:8]}
        given = "".join(f"-{name}-{value}" for name, value in named.items() if value is not None)
        _keep(folder / "eval" / f"step-{manifest.step:08d}-{split}{given}.json", facts)
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


def _keep(path: Path, facts: dict[str, object]) -> None:
    """Write the figures beside the run's other results; a folder that cannot be written costs only that."""
    from hymo.core.errors import HymoError
    from hymo.core.files import write_text, writing

    try:
        with writing(path.parent):
            path.parent.mkdir(exist_ok=True)
        write_text(path, jsonlib.dumps(facts, indent=1) + "\n")
    except HymoError as error:
        log(f"warning: {error}")
