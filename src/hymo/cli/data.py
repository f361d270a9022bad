"""`hymo data`: from text to shards, and what is in them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, Parameter

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
        strict: Exit with 1 if any document was quarantined; the set is written all the same.
        overwrite: Replace a data set that is already there.
        json: Write the manifest's summary as JSON.
    """
    from hymo.core.errors import UsageError
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
    try:
        progress = _Progress() if sys.stderr.isatty() else None
        manifest = run(job, made, overwrite=overwrite, workers=workers, progress=progress)
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
def sources(mixture: str = "hymo_mixture", /, *, json: Json = False) -> None:
    """List the sources of a mixture with weight, tokens, terms, and what is still to be confirmed.

    Args:
        mixture: YAML file, or hymo_mixture.
        json: Write JSON.
    """
    from hymo.data.mixture import load_mixture

    loaded = load_mixture(mixture)
    if json:
        print_json(loaded.model_dump(mode="json"))
        return
    rows = []
    for name, source in loaded.sources.items():
        place = ", ".join(map(str, source.local)) or "/".join(
            part for part in (source.hub, source.config or source.data_dir) if part
        )
        if source.configs and not source.local:
            place += f" ({len(source.configs)} configurations)"
        tokens = count(source.weight * loaded.train_tokens) if loaded.train_tokens else "-"
        gated = "yes" if source.gated else "no"
        rows.append((name, f"{100 * source.weight:.4g} %", tokens, gated, source.licence, place))
    print_table(loaded.name, ("source", "weight", "tokens", "gated", "licence", "place"), rows, left=(0, 3, 4, 5))
    for name, source in loaded.sources.items():
        if source.to_confirm:
            print(f"to confirm for {name}: {'; '.join(source.to_confirm)}")


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


@app.command
def verify(dataset: Path, /, *, tokenizer: str | None = None, json: Json = False) -> None:
    """Read every byte of a data set and check it: checksums, counts, tokenizer, no held-out text in train.

    Args:
        dataset: Folder of the data set.
        tokenizer: Check that the shards belong to this tokenizer, too.
        json: Write the result as JSON.
    """
    from hymo.data import load_tokenizer, verify_dataset

    manifest = verify_dataset(dataset, None if tokenizer is None else load_tokenizer(tokenizer))
    shards = sum(len(split.shards) for split in manifest.splits.values())
    documents = sum(split.documents for split in manifest.splits.values())
    if json:
        print_json({"whole": True, "shards": shards, "documents": documents, "fingerprint": manifest.fingerprint})
    else:
        print(f"{dataset}: whole. {shards:,} shards, {documents:,} documents, no held-out document in train")
        print(f"fingerprint {manifest.fingerprint}")


@app.command
def inspect(
    path: Path,
    /,
    *,
    split: Literal["train", "validation", "test"] = "train",
    first: int = 0,
    documents: int = 3,
    characters: int = 300,
    tokenizer: str | None = None,
    json: Json = False,
) -> None:
    """Show documents of a data set with source, id and size, or the header of one shard.

    Args:
        path: Folder of a data set, or a shard (.hymo).
        split: Part of the data set.
        first: First document to show.
        documents: How many to show.
        characters: How much text of each to show.
        tokenizer: The set's tokenizer; the one that its manifest names unless given.
        json: Write JSON.
    """
    from hymo.core.errors import UsageError
    from hymo.data import load_manifest, load_tokenizer, open_split
    from hymo.data.shards import ShardReader

    if path.is_file():
        header = ShardReader(path).header
        if json:
            print_json(header)
        else:
            rows = [(key, str(value)) for key, value in header.items() if key != "sections"]
            print_table(str(path), ("header", "value"), rows, left=(0, 1))
        return
    manifest = load_manifest(path)
    made = load_tokenizer(manifest.tokenizer if tokenizer is None else tokenizer)
    data = open_split(path, split, made, verify=False)
    if not 0 <= first < data.n_documents or documents < 1 or characters < 0:
        raise UsageError(f"--first must be in 0..{data.n_documents - 1}, --documents 1 or more, --characters 0 or more")
    shown = []
    for index in range(first, min(first + documents, data.n_documents)):
        source, identity = data.identity(index)
        text = made.decode(data.document(index))
        shown.append(
            {
                "document": index,
                "source": source,
                "id": identity,
                "tokens": int(data.lengths[index]),
                "bytes": int(data.text_bytes[index]),
                "text": text[:characters],
            }
        )
    if json:
        print_json(shown)
        return
    for item in shown:
        sizes = f"{item['tokens']:,} tokens, {item['bytes']:,} bytes"
        print(f"--- {split} {item['document']}: {item['source']} {item['id']}, {sizes}\n{item['text']}")


@app.command
def stats(dataset: Path, /, *, json: Json = False) -> None:
    """Count documents, tokens and bytes of a data set by split and source, and how long documents are.

    Args:
        dataset: Folder of the data set.
        json: Write JSON.
    """
    import numpy as np

    from hymo.data import load_manifest, open_split

    manifest = load_manifest(dataset)
    splits: dict[str, dict[str, float]] = {}
    for name, info in manifest.splits.items():
        if info.documents:
            lengths = open_split(dataset, name, verify=False).lengths
            splits[name] = {
                "documents": info.documents,
                "tokens": info.tokens,
                "bytes": info.bytes,
                "shards": len(info.shards),
                # bos and eos hold no byte of the text
                "bytes_per_token": info.bytes / max(1, info.tokens - 2 * info.documents),
                **{f"length_p{p}": float(np.percentile(lengths, p)) for p in (5, 50, 95)},
                "length_max": int(lengths.max()),
            }
    if json:
        names = ("sources", "quarantined", "filtered", "duplicates", "warnings")
        print_json({"splits": splits, **{name: getattr(manifest, name) for name in names}})
        return
    rows = [
        (
            name,
            f"{facts['documents']:,}",
            count(facts["tokens"]),
            size(facts["bytes"]),
            f"{facts['bytes_per_token']:.3f}",
            *(f"{facts[f'length_{key}']:,.0f}" for key in ("p5", "p50", "p95", "max")),
        )
        for name, facts in splits.items()
    ]
    columns = ("split", "documents", "tokens", "text", "B/token", "length 5 %", "50 %", "95 %", "longest")
    print_table(f"{dataset} ({manifest.tokenizer})", columns, rows)
    _print_sources(manifest)


@app.command
def export(dataset: Path, /, *, to: Literal["megatron", "datatrove", "llmc"], out: Path, json: Json = False) -> None:
    """Write a data set in the format of another trainer. Documents stay `bos text eos`.

    Args:
        dataset: Folder of the data set.
        to: Megatron-LM's .bin and .idx, datatrove's .ds, or the .bin of llm.c.
        out: Folder for the files.
        json: Write the names of the files as JSON.
    """
    from hymo.data.export import export as run

    files = run(dataset, out, to)
    if json:
        print_json([str(path) for path in files])
    else:
        for path in files:
            print(f"{path}  {size(path.stat().st_size)}")


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
        _print_sources(manifest)
    print(f"{manifest.duplicates:,} duplicates dropped, {sum(manifest.quarantined.values()):,} documents quarantined")
    for warning in manifest.warnings:
        log(f"warning: {warning}")


def _print_sources(manifest: Manifest) -> None:
    total = sum(split.get("train", {}).get("tokens", 0) for split in manifest.sources.values())
    rows = []
    for name in {**manifest.sources, **manifest.filtered}:
        train = manifest.sources.get(name, {}).get("train", {"documents": 0, "tokens": 0})
        filtered = ", ".join(f"{n:,} {reason}" for reason, n in manifest.filtered.get(name, {}).items())
        share = f"{100 * train['tokens'] / total:.1f} %" if total else "-"
        rows.append((name, f"{train['documents']:,}", count(train["tokens"]), share, filtered or "-"))
    print_table("sources of train", ("source", "documents", "tokens", "share", "filtered"), rows, left=(0, 4))


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
