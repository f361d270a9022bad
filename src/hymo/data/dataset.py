"""A prepared data set on disk: ``dataset.json`` (the manifest) and one directory of shards per split."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hymo.core.errors import DataError, UsageError, nearest
from hymo.data.shards import ShardInfo, ShardReader
from hymo.data.tokenizer import Tokenizer

MANIFEST = "dataset.json"
SPLITS = ("train", "validation", "test")
FORMAT = 1
# Below this size a split is checksummed whenever it is opened: reading 1 GiB costs about a second.
VERIFY_BELOW_BYTES = 1 << 30


def fingerprint_of(shards: Sequence[ShardInfo]) -> str:
    """Return the SHA-256 over the shards' digests: it changes with any byte, document order or tokenizer."""
    return hashlib.sha256("".join(shard.digest for shard in shards).encode()).hexdigest()


@dataclass
class SplitInfo:
    """Counts and shards of one split. Tokens include one bos and one eos per document."""

    documents: int
    tokens: int
    bytes: int
    fingerprint: str
    shards: list[ShardInfo]


def split_info(shards: list[ShardInfo]) -> SplitInfo:
    """Return the counts of a split that consists of `shards`."""
    return SplitInfo(
        sum(shard.documents for shard in shards),
        sum(shard.tokens for shard in shards),
        sum(shard.text_bytes for shard in shards),
        fingerprint_of(shards),
        shards,
    )


def fingerprint_of_splits(splits: dict[str, SplitInfo]) -> str:
    """Return the fingerprint of a whole set."""
    return hashlib.sha256("".join(splits[name].fingerprint for name in SPLITS).encode()).hexdigest()


@dataclass
class Manifest:
    """The content of ``dataset.json``: what is in the set, where it came from and what was left out.

    `sources` maps a source name to split to {"documents", "tokens", "bytes"}; `quarantined` a reason to a count;
    `filtered` a source name to reason to a count.
    """

    tokenizer: str
    tokenizer_fingerprint: str
    vocab_size: int
    fingerprint: str
    splits: dict[str, SplitInfo]
    inputs: dict[str, list[str]]
    sources: dict[str, dict[str, dict[str, int]]]
    duplicates: int
    quarantined: dict[str, int]
    settings: dict[str, Any]
    warnings: list[str] = field(default_factory=list)
    filtered: dict[str, dict[str, int]] = field(default_factory=dict)
    format: int = FORMAT

    def to_json(self) -> str:
        """Return the manifest as stored: stable key order, so equal sets have equal files."""
        return json.dumps(dataclasses.asdict(self), indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def load_manifest(directory: str | Path) -> Manifest:
    """Read ``dataset.json`` of a prepared data set.

    Raises:
        UsageError: `directory` does not exist, or holds no complete data set.
        DataError: its manifest is damaged or of another format.
    """
    directory = Path(directory)
    path = directory / MANIFEST
    if not directory.is_dir():
        raise UsageError(f"{directory}: no such data set directory; make one with `hymo data prepare`")
    if not path.is_file():
        raise UsageError(f"{directory}: no {MANIFEST}, so no complete data set; run `hymo data prepare` (again)")
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        if raw["format"] != FORMAT:
            raise DataError(f"{path}: data set format {raw['format']}, this HyMo reads {FORMAT}; prepare the set again")
        raw["splits"] = {
            name: SplitInfo(**{**split, "shards": [ShardInfo(**shard) for shard in split["shards"]]})
            for name, split in raw["splits"].items()
        }
        return Manifest(**raw)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path}: damaged manifest ({error!r}); prepare the set again") from error


class Split:
    """The documents of some shards behind one index.

    Attributes:
        lengths: (documents,) int64, stored tokens of each document, bos and eos included.
        text_bytes: (documents,) int64, bytes of each original text.
        shard_of: (documents,) int32, which of `readers` holds the document.
        start_of: (documents,) int64, where it starts there.
        fingerprint: SHA-256 hex, see `fingerprint_of`.
    """

    def __init__(self, readers: Sequence[ShardReader], name: str = "train") -> None:
        if not readers:
            raise DataError(f"the {name} split holds no documents: prepare more text or give this split its own input")
        self.name = name
        self.readers = list(readers)
        self.lengths: NDArray[np.int64] = np.concatenate([np.diff(reader.offsets) for reader in readers])
        self.text_bytes: NDArray[np.int64] = np.concatenate([reader.text_bytes for reader in readers])
        counts = [reader.n_documents for reader in readers]
        self.shard_of: NDArray[np.int32] = np.repeat(np.arange(len(readers), dtype=np.int32), counts)
        self.start_of: NDArray[np.int64] = np.concatenate([reader.offsets[:-1] for reader in readers])
        self._first_document = np.cumsum([0, *counts])
        self.n_documents = int(sum(counts))
        self.n_tokens = int(self.lengths.sum())
        self.n_bytes = int(self.text_bytes.sum())
        self.fingerprint = fingerprint_of([ShardInfo(r.path.name, 0, 0, 0, r.digest) for r in readers])

    def document(self, index: int) -> NDArray[Any]:
        """Return document `index` as stored: bos, text tokens, eos."""
        shard = int(self.shard_of[index])
        return self.readers[shard].document(index - int(self._first_document[shard]))

    def identity(self, index: int) -> tuple[str, str]:
        """Return (source name, document id) of document `index`."""
        shard = int(self.shard_of[index])
        local = index - int(self._first_document[shard])
        return self.readers[shard].source(local), self.readers[shard].document_id(local)


def open_split(
    directory: str | Path, split: str = "train", tokenizer: Tokenizer | None = None, verify: bool | None = None
) -> Split:
    """Open one split of a prepared data set and check it against the manifest.

    `verify` reads every byte first; None does so for splits below 1 GiB.

    Raises:
        UsageError: no such directory or split name, or nothing in that split.
        DataError: the set is damaged or made with another tokenizer; the message names the file.
    """
    manifest = load_manifest(directory)
    if split not in manifest.splits:
        raise UsageError(
            f"{directory}: no split '{split}'{nearest(split, SPLITS)}; it has {', '.join(manifest.splits)}"
        )
    info = manifest.splits[split]
    if not info.shards:
        raise UsageError(
            f"{directory}: the {split} split holds no documents: prepare more text, or give it its own input"
            + ("" if split == "train" else f" with `hymo data prepare --{split} FILE`")
        )
    folder = Path(directory) / split
    if verify is None:
        verify = sum((folder / s.file).stat().st_size for s in info.shards if (folder / s.file).is_file()) < (
            VERIFY_BELOW_BYTES
        )
    readers = []
    for shard in info.shards:
        if not (folder / shard.file).is_file():
            raise DataError(f"{folder / shard.file}: missing, but listed in {MANIFEST}; restore it or prepare again")
        reader = ShardReader(folder / shard.file, tokenizer, verify=verify)
        if reader.digest != shard.digest or reader.split != split:
            raise DataError(f"{reader.path}: not the shard that {MANIFEST} lists; restore it or prepare again")
        readers.append(reader)
    return Split(readers, split)


def verify_dataset(directory: str | Path, tokenizer: Tokenizer | None = None) -> Manifest:
    """Read and check every byte of every split, that no held-out text is trained on, and return the manifest.

    Raises:
        DataError: naming the first damaged file and the reason, or the first held-out document that occurs in train.
    """
    manifest = load_manifest(directory)
    digests: dict[str, NDArray[np.bytes_]] = {}
    for name, info in manifest.splits.items():
        if not info.shards:
            continue
        split = open_split(directory, name, tokenizer, verify=True)
        for reader in split.readers:
            if reader.header["tokenizer"] != manifest.tokenizer_fingerprint:
                raise DataError(f"{reader.path}: foreign tokenizer: not the one that {MANIFEST} names; prepare again")
        counted = {"documents": split.n_documents, "tokens": split.n_tokens, "bytes": split.n_bytes}
        for what, count in counted.items():
            if getattr(info, what) != count:
                raise DataError(
                    f"{Path(directory) / MANIFEST}: says {getattr(info, what):,} {what} in {name}, the shards hold "
                    f"{count:,}; prepare the set again"
                )
        digests[name] = np.concatenate([reader.digests for reader in split.readers]).view("S32").ravel()
    trained = digests.get("train")
    for name in ("validation", "test"):
        if trained is None or name not in digests:
            continue
        seen = np.flatnonzero(np.isin(digests[name], trained))
        if len(seen):
            source, identity = open_split(directory, name, verify=False).identity(int(seen[0]))
            raise DataError(
                f"{directory}: {len(seen):,} documents of the {name} split are trained on, the first is '{identity}' "
                f"of source '{source}'; prepare the set again"
            )
    return manifest
