"""`hymo recall`: what models recall, and how far back."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import App, Parameter

from hymo.cli.options import Json, Overrides
from hymo.cli.output import log, print_json, print_table

app = App(name="recall", help="Tell what models recall, and how far back.", result_action="return_value")


@app.command
def compare(
    *,
    task: Annotated[tuple[str, ...], Parameter(negative="", show_default=False)] = (),
    model: Annotated[tuple[str, ...], Parameter(negative="", show_default=False)] = (),
    seeds: int = 2,
    overrides: Overrides = (),
    json: Json = False,
) -> None:
    """Train small models with each kind of mixing on recall and state tracking, and print their accuracy.

    Args:
        task: A task of the suite; all unless given. May be repeated.
        model: A kind of model; all unless given. May be repeated.
        seeds: Runs of each pair.
        overrides: Fields of the small models' configuration to override.
        json: Write JSON.
    """
    from hymo.ablations.recall import compare as run

    def told(row: dict[str, Any]) -> None:
        log(f"{row['task']}, {row['model']}: {row['cpu_seconds']} s")

    rows = run(task, model, seeds, overrides, told)
    if json:
        print_json(rows)
        return
    names = list(dict.fromkeys(row["model"] for row in rows))
    table = []
    for asked in dict.fromkeys(row["task"] for row in rows):
        cells = {row["model"]: row["accuracy"] for row in rows if row["task"] == asked}
        tests = next(iter(cells.values()))
        table += [[f"{asked}: {test}", *(_shown(cells[name][test]) for name in names)] for test in tests]
    print_table(f"accuracy in %, mean and range over {seeds} seeds", ("task", *names), table)


def _shown(values: list[float]) -> str:
    mean = 100 * statistics.mean(values)
    return f"{mean:.0f}" if len(values) == 1 else f"{mean:.0f} ({100 * min(values):.0f}-{100 * max(values):.0f})"


@app.command
def positions(
    checkpoint: Path,
    /,
    *,
    data: Path | None = None,
    split: Literal["validation", "test"] = "validation",
    length: int = 32_768,
    joined: Annotated[bool, Parameter(negative="")] = False,
    beyond: Annotated[bool, Parameter(negative="")] = False,
    max_bytes: int | None = None,
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto",
    json: Json = False,
) -> None:
    """Measure bits per byte of held-out text by how many tokens of context each token has.

    Args:
        checkpoint: Checkpoint folder, or a run folder (its newest whole checkpoint).
        data: Data set; the run's own unless given.
        split: Part of the data set.
        length: Longest context in tokens; cut to the model's, unless --beyond.
        joined: Read the documents as one text, for sets whose documents are short.
        beyond: Read past the model's context, with rotations that it was never trained on.
        max_bytes: Score only the first so many bytes.
        device: Where to run.
        json: Write JSON.
    """
    from dataclasses import asdict

    from hymo.data import open_split
    from hymo.data.of_run import data_of_run, tokenizer_of_checkpoint
    from hymo.evaluation.positions import beyond_context, bits_per_byte_by_position
    from hymo.models.checkpoint import load_model
    from hymo.training.device import resolve_device

    network, config, manifest = load_model(checkpoint, resolve_device(device))
    source = str(data) if data is not None else data_of_run(config.run.data, checkpoint)
    tokenizer = tokenizer_of_checkpoint(config.run.tokenizer, manifest.tokenizer, checkpoint)
    text = open_split(source, split, tokenizer)
    context = network.rope_gdn.positions
    if length > context:
        if beyond:
            network = beyond_context(network, config, length)
        else:
            log(f"the context ends at {context:,} tokens: {length:,} were asked for. --beyond reads on without it.")
            length = context
    buckets = bits_per_byte_by_position(network, text, tokenizer, length, joined=joined, max_bytes=max_bytes)
    trained = config.training.seq_len
    if json:
        rows = [{**asdict(bucket), "bits_per_byte": bucket.bits_per_byte} for bucket in buckets]
        facts = {"checkpoint": str(checkpoint), "step": manifest.step, "data": source, "split": split, "joined": joined}
        print_json({**facts, "context": context, "trained_length": trained, "buckets": rows})
        return
    shown = [
        (
            f"{bucket.above + 1:,} to {bucket.up_to:,}",
            "-" if bucket.bits_per_byte is None else f"{bucket.bits_per_byte:.4f}",
            f"{bucket.bytes:,}",
            "" if bucket.up_to <= trained else "past the training length" if bucket.above >= trained else "across it",
        )
        for bucket in buckets
    ]
    title = f"{checkpoint}, step {manifest.step}, {split} of {source}; trained on {trained:,} of {context:,} tokens"
    print_table(title, ("tokens of context", "bits per byte", "bytes", ""), shown)
