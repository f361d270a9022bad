"""`hymo data`: the commands that look into data sets and mixtures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from hymo.cli.options import Json
from hymo.cli.output import count, print_json, print_table, size

if TYPE_CHECKING:
    from hymo.data import Manifest


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
    print_sources(manifest)


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


def print_sources(manifest: Manifest) -> None:
    """Print training documents and tokens by source, and what was filtered."""
    total = sum(split.get("train", {}).get("tokens", 0) for split in manifest.sources.values())
    rows = []
    for name in {**manifest.sources, **manifest.filtered}:
        train = manifest.sources.get(name, {}).get("train", {"documents": 0, "tokens": 0})
        filtered = ", ".join(f"{n:,} {reason}" for reason, n in manifest.filtered.get(name, {}).items())
        share = f"{100 * train['tokens'] / total:.1f} %" if total else "-"
        rows.append((name, f"{train['documents']:,}", count(train["tokens"]), share, filtered or "-"))
    print_table("sources of train", ("source", "documents", "tokens", "share", "filtered"), rows, left=(0, 4))
