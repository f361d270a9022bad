"""`hymo data`: from text to shards."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from hymo.cli.options import Json
from hymo.cli.output import Progress, count, log, print_json, print_table, size

app = App(name="data", help="Turn text into training shards.", result_action="return_value")


@app.command
def prepare(
    *inputs: Path,
    out: Path,
    validation: Annotated[tuple[Path, ...], Parameter(negative="", show_default=False)] = (),
    tokenizer: str = "byte",
    seed: int = 0,
    overwrite: Annotated[bool, Parameter(negative="")] = False,
    json: Json = False,
) -> None:
    """Read text files, drop duplicates, split, shuffle, tokenise and write checked shards.

    Split and order follow from each document's content and the seed, so two runs give identical files.

    Args:
        inputs: JSONL (field "text") or plain text files, .gz, .xz and .zst included, or folders of them.
        out: Folder of the data set.
        validation: Fixed held-out file; may be repeated. Without one, 1.5 % each become validation and test.
        tokenizer: "byte", or the path of a tokenizer.json or its folder (see `hymo tokenizer train`).
        seed: Seed of the order of documents.
        overwrite: Replace a data set that is already there.
        json: Write the manifest's summary as JSON.
    """
    import dataclasses

    from hymo.data.prepare import prepare as run
    from hymo.data.tokenizer import load_tokenizer

    manifest = run(
        inputs,
        out,
        load_tokenizer(tokenizer),
        validation_inputs=validation,
        seed=seed,
        overwrite=overwrite,
        progress=Progress() if sys.stderr.isatty() else None,
    )
    if json:
        summary = dataclasses.asdict(manifest)
        for split in summary["splits"].values():
            split["shards"] = len(split["shards"])
        print_json(summary)
        return
    rows = [
        (name, f"{split.documents:,}", count(split.tokens), size(split.bytes), str(len(split.shards)))
        for name, split in manifest.splits.items()
    ]
    print_table(f"{out} ({manifest.tokenizer})", ("split", "documents", "tokens", "text", "shards"), rows)
    print(f"{manifest.duplicates:,} duplicates dropped, {sum(manifest.quarantined.values()):,} documents quarantined")
    for warning in manifest.warnings:
        log(f"warning: {warning}")
