"""A held-out set: fixed documents that a training set is known not to contain."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hymo.core.errors import DataError, UsageError
from hymo.core.files import write_text, writing
from hymo.data.dataset import MANIFEST, SPLITS, Manifest, fingerprint_of_splits, open_split, split_info
from hymo.data.prepare import limit_fields
from hymo.data.shards import DEFAULT_SHARD_TOKENS, SUFFIX, ShardInfo, ShardWriter
from hymo.data.sources import Document, Fields, Rejected, find_files, read_documents
from hymo.data.tokenizer import Tokenizer

SEEN = "seen_in_training"
SPLIT = "validation"


def held_out_set(
    inputs: Sequence[str | Path],
    out_dir: str | Path,
    tokenizer: Tokenizer,
    *,
    against: Sequence[str | Path],
    documents: int | None = None,
    fields: Fields | None = None,
    overwrite: bool = False,
) -> Manifest:
    """Write a data set whose validation split is the documents of `inputs` that no set of `against` trains on.

    Documents keep their order. With `documents`, the ones whose digests hash lowest are taken, whatever the order of
    the input. The original byte count of each is stored with it, as in every shard. ``quarantine.jsonl`` and
    `quarantined` of the manifest tell what was left out, documents that are trained on with the reason
    "seen_in_training".

    Args:
        inputs: JSONL, Parquet or text files, or folders of them; read twice.
        out_dir: folder of the new set; its only split is validation.
        against: prepared data sets; the digest of every document of their train splits is looked up.
        documents: how many to take at most; None takes all.
        fields: field names and size limits.
        overwrite: replace a data set that is already in `out_dir`.

    Raises:
        UsageError: wrong arguments, or a set without a train split.
        DataError: nothing is left, or a set is damaged.
    """
    if not inputs:
        raise UsageError("no input files were given")
    if not against:
        raise UsageError("no data set was named whose training documents must not occur")
    if documents is not None and documents < 1:
        raise UsageError(f"documents must be at least 1, not {documents}")
    out = Path(out_dir)
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out}: is a file; name a directory for the data set")
    if (out / MANIFEST).exists() and not overwrite:
        raise UsageError(f"{out}: already holds a data set; name another directory, or replace it with --overwrite")
    files = find_files([Path(path) for path in inputs])
    fields = limit_fields(fields or Fields(), DEFAULT_SHARD_TOKENS)
    trained = np.unique(np.concatenate([_digests(directory) for directory in against]))

    chosen, rejected, duplicates = _choose(files, fields, trained)
    reasons = dict(sorted(Counter(item.reason for item in rejected).items()))
    if not chosen:
        raise DataError(f"no document is left of {', '.join(map(str, inputs))} ({reasons or 'none'}); give other text")
    if documents is not None:
        chosen = set(sorted(chosen, key=lambda digest: hashlib.sha256(digest).digest())[:documents])
    with writing(out):
        _clear(out)
        shards, counts = _write(files, fields, chosen, out, tokenizer)
    splits = {name: split_info(shards if name == SPLIT else []) for name in SPLITS}
    manifest = Manifest(
        tokenizer=tokenizer.name,
        tokenizer_fingerprint=tokenizer.fingerprint(),
        vocab_size=tokenizer.vocab_size,
        fingerprint=fingerprint_of_splits(splits),
        splits=splits,
        inputs={SPLIT: [str(path) for path in files]},
        sources={source: {SPLIT: numbers} for source, numbers in sorted(counts.items())},
        duplicates=duplicates,
        quarantined=reasons,
        settings={"against": [str(directory) for directory in against], "documents": documents},
    )
    lines = [json.dumps(vars(item), ensure_ascii=False) + "\n" for item in rejected]
    write_text(out / "quarantine.jsonl", "".join(lines))
    write_text(out / MANIFEST, manifest.to_json())
    return manifest


def _digests(directory: str | Path) -> NDArray[np.bytes_]:
    split = open_split(directory, "train", verify=False)
    for reader in split.readers:
        reader.verify("digests")
    return np.concatenate([reader.digests for reader in split.readers]).view("S32").ravel()


def _documents(files: Sequence[Path], fields: Fields) -> Iterator[tuple[Document | Rejected, bytes]]:
    for path in files:
        for item in read_documents(path, fields):
            yield item, hashlib.sha256(item.text).digest() if isinstance(item, Document) else b""


def _choose(
    files: Sequence[Path], fields: Fields, trained: NDArray[np.bytes_]
) -> tuple[set[bytes], list[Rejected], int]:
    """Return the digests that are free, what is left out and why, and the number of duplicates."""
    free: set[bytes] = set()
    rejected, duplicates = [], 0
    for item, digest in _documents(files, fields):
        if isinstance(item, Rejected):
            rejected.append(item)
        elif digest in free:
            duplicates += 1
        elif _holds(trained, digest):
            rejected.append(Rejected(item.id, 0, SEEN, f"source '{item.source}'"))
        else:
            free.add(digest)
    return free, rejected, duplicates


def _holds(trained: NDArray[np.bytes_], digest: bytes) -> bool:
    wanted = np.frombuffer(digest, dtype="S32")
    place = int(np.searchsorted(trained, wanted)[0])
    return place < len(trained) and bool(trained[place] == wanted[0])


def _clear(out: Path) -> None:
    """Make the folder ready; the manifest goes first, so that what is left cannot be taken for a complete set."""
    out.mkdir(parents=True, exist_ok=True)
    (out / MANIFEST).unlink(missing_ok=True)
    for split in SPLITS:
        for path in (out / split).glob(f"{split}-*{SUFFIX}"):
            path.unlink()


def _write(
    files: Sequence[Path], fields: Fields, chosen: set[bytes], out: Path, tokenizer: Tokenizer
) -> tuple[list[ShardInfo], dict[str, dict[str, int]]]:
    """Write the chosen documents, each at its first occurrence; return the shards and counts by source."""
    left = set(chosen)
    counts: dict[str, dict[str, int]] = {}
    with ShardWriter(out / SPLIT, SPLIT, tokenizer) as writer:
        for item, digest in _documents(files, fields):
            if isinstance(item, Rejected) or digest not in left:
                continue
            left.discard(digest)
            ids = tokenizer.encode(item.text)
            writer.add(ids, len(item.text), item.source, item.id, digest)
            own = counts.setdefault(item.source, {"documents": 0, "tokens": 0, "bytes": 0})
            own["documents"] += 1
            own["tokens"] += len(ids) + 2
            own["bytes"] += len(item.text)
    return writer.shards, counts
