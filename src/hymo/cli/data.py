"""`hymo data`: from text to shards, and what is in them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, Parameter

from hymo.cli.data_look import export, inspect, print_sources, sources, stats, verify
from hymo.cli.options import Json
from hymo.cli.output import count, log, print_json, print_table, size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cyclopts import Token

    from hymo.data import Manifest

app = App(
    name="data", help="Turn text into training shards, check them and look into them.", result_action="return_value"
)


def _whole(_: type, tokens: Sequence[Token]) -> int:
    """Read a whole number that may be written like 30e9."""
    (token,) = tokens
    value = float(token.value)
    if not value.is_integer():
        raise ValueError(f"{token.value} is no whole number")
    return int(value)


_Tokens = Annotated[int | None, Parameter(converter=_whole)]
_Files = Annotated[tuple[Path, ...], Parameter(negative="", show_default=False)]
_Words = Annotated[tuple[str, ...], Parameter(negative="", show_default=False)]
_Flag = Annotated[bool, Parameter(negative="", show_default=False)]


@app.command
def prepare(
    *inputs: Path,
    out: Path,
    validation: _Files = (),
    test: _Files = (),
    tokenizer: str = "byte",
    train_tokens: _Tokens = None,
    local: _Words = (),
    skip_gated: _Flag = False,
    seed: int = 0,
    text_field: str = "text",
    source_field: str = "source",
    id_field: str = "id",
    shard_tokens: int = 50_000_000,
    workers: int | None = None,
    engine: Literal["datatrove"] | None = None,
    executor: Literal["local", "slurm", "ray"] = "local",
    tasks: int | None = None,
    partition: str | None = None,
    time: str = "24:00:00",
    memory_gb: int = 4,
    dry_run: _Flag = False,
    strict: _Flag = False,
    overwrite: _Flag = False,
    json: Json = False,
) -> int:
    """Read text files, drop duplicates, split, shuffle, tokenise and write checked shards.

    Split and order follow from each document's content and the seed, so two runs give identical files, with any number
    of workers. After an interrupt the same command goes on.

    Args:
        inputs: JSONL, Parquet or plain text files, .gz, .xz and .zst included, or folders of them; or one mixture: a
            YAML file, or hymo_mixture.
        out: Folder of the data set.
        validation: Fixed held-out file; may be repeated. Without one, 1.5 % each become validation and test.
        test: Fixed file of the test split; may be repeated.
        tokenizer: "byte", or a tokenizer file.
        train_tokens: Training tokens to take, in reading order, such as 30e9; held-out documents come on top.
        local: NAME=PATH: read that source of a mixture from files; may be repeated.
        skip_gated: Leave out the sources of a mixture that need a login; another takes their weight.
        seed: Seed of the order of documents.
        text_field: Field or column that holds the text.
        source_field: Field that names a document's source.
        id_field: Field that names a document.
        shard_tokens: Most tokens in a shard; a longer document is quarantined.
        workers: Processes; the cores that this process may use unless given.
        engine: Work in tasks of datatrove instead, on one machine or many that share a file system.
        executor: Where the engine's tasks run.
        tasks: Tasks of the engine; as many as workers, or 1, unless given.
        partition: Slurm's partition.
        time: Slurm's time limit of a task.
        memory_gb: Memory of a task on Slurm or Ray.
        dry_run: Write Slurm's job files and a script that submits them, and submit nothing.
        strict: Exit with 1 if any document was quarantined; the set is written all the same.
        overwrite: Replace a data set that is already there.
        json: Write the manifest's summary as JSON.
    """
    from hymo.core.errors import UsageError
    from hymo.data.engine import SUBMIT, Cluster, logs_of, run_on_engine
    from hymo.data.mixture import is_mixture, load_mixture
    from hymo.data.prepare import make_job, run
    from hymo.data.recipe import make_mixture_job
    from hymo.data.sources import Fields
    from hymo.data.tokenizer import load_tokenizer

    made = load_tokenizer(tokenizer)
    if is_mixture(inputs):
        if validation or test:
            raise UsageError("a mixture makes its own validation and test splits: leave --validation and --test out")
        job = make_mixture_job(
            load_mixture(inputs[0]),
            out,
            made,
            train_tokens=train_tokens,
            local=local,
            skip_gated=skip_gated,
            seed=seed,
            shard_tokens=shard_tokens,
        )
    else:
        if local or skip_gated:
            raise UsageError("--local and --skip-gated belong to a mixture: give its YAML file instead of text files")
        job = make_job(
            inputs,
            out,
            made,
            validation_inputs=validation,
            test_inputs=test,
            seed=seed,
            fields=Fields(text=text_field, source=source_field, id=id_field),
            shard_tokens=shard_tokens,
            train_tokens=train_tokens,
        )
    if engine is None and (executor != "local" or tasks is not None or dry_run):
        raise UsageError("--executor, --tasks and --dry-run belong to an engine: add --engine datatrove")
    try:
        if engine is None:
            progress = _Progress() if sys.stderr.isatty() else None
            manifest = run(job, made, overwrite=overwrite, workers=workers, progress=progress)
        else:
            cluster = Cluster(executor, tasks or workers or 1, workers, partition, time, memory_gb)
            finished = run_on_engine(job, cluster, overwrite=overwrite, dry_run=dry_run)
            if finished is None:
                print(logs_of(job) / SUBMIT if dry_run else f"submitted; logs in {logs_of(job)}")
                return 0
            manifest = finished
    except KeyboardInterrupt:
        log("\ninterrupted. What is done is kept: run the same command again to go on.")
        return 130
    _print_manifest(manifest, out, json)
    quarantined = sum(manifest.quarantined.values())
    if strict and quarantined:
        log(f"error: {quarantined:,} documents were quarantined, see {out / 'quarantine.jsonl'} (--strict)")
        return 1
    return 0


@app.command
def heldout(
    *inputs: Path,
    out: Path,
    against: _Files,
    tokenizer: str = "byte",
    documents: int | None = None,
    text_field: str = "text",
    source_field: str = "source",
    id_field: str = "id",
    strict: _Flag = False,
    overwrite: _Flag = False,
    json: Json = False,
) -> int:
    """Make a fixed held-out set of documents that a training set does not contain, by hash.

    Read it with `hymo eval CHECKPOINT --data OUT`.

    Args:
        inputs: JSONL, Parquet or plain text files, or folders of them.
        out: Folder of the held-out set; its documents become the validation split.
        against: Data set whose training documents must not occur; may be repeated. Those found are left out.
        tokenizer: "byte", or a tokenizer file: that of the checkpoints to be measured.
        documents: How many to keep at most, chosen by hash; all unless given.
        text_field: Field or column that holds the text.
        source_field: Field that names a document's source.
        id_field: Field that names a document.
        strict: Exit with 1 if any document was left out; the set is written all the same.
        overwrite: Replace a data set that is already there.
        json: Write the manifest's summary as JSON.
    """
    from hymo.data.heldset import held_out_set
    from hymo.data.sources import Fields
    from hymo.data.tokenizer import load_tokenizer

    manifest = held_out_set(
        inputs,
        out,
        load_tokenizer(tokenizer),
        against=against,
        documents=documents,
        fields=Fields(text=text_field, source=source_field, id=id_field),
        overwrite=overwrite,
    )
    _print_manifest(manifest, out, json)
    left_out = sum(manifest.quarantined.values())
    if left_out:
        reasons = ", ".join(f"{n:,} {reason}" for reason, n in manifest.quarantined.items())
        log(f"{'error' if strict else 'warning'}: left out: {reasons}; see {out / 'quarantine.jsonl'}")
    return 1 if strict and left_out else 0


def _print_manifest(manifest: Manifest, out: Path, json: bool) -> None:
    import dataclasses

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
    if len(manifest.sources) > 1:
        print_sources(manifest)
    print(f"{manifest.duplicates:,} duplicates dropped, {sum(manifest.quarantined.values()):,} documents quarantined")
    for warning in manifest.warnings:
        log(f"warning: {warning}")


class _Progress:
    """One line on a terminal that is rewritten at every whole per cent."""

    def __init__(self) -> None:
        self._shown = ("", -1)

    def __call__(self, phase: str, done: int, total: int) -> None:
        percent = 100 * done // total if total else 100
        if (phase, percent) != self._shown:
            self._shown = (phase, percent)
            end = "\n" if percent == 100 else ""
            amount = count(total) + " tokens" if phase == "tokens" else size(total)
            print(f"\r{phase} {percent:3d} % of {amount}", end=end, file=sys.stderr, flush=True)


for command in (verify, inspect, stats, sources, export):
    app.command(command)
