"""Which documents a data set keeps, in which split, in which order, and where its shards end.

All of it follows from the documents' digests, the order of reading and the settings.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hymo.data.dataset import SPLITS
from hymo.data.shards import DIGEST_BYTES, ShardReader
from hymo.data.streams import Feed

Counts = dict[str, dict[str, dict[str, int]]]


@dataclass(frozen=True)
class Candidates:
    """What a feed offers: its parts in reading order."""

    feed: Feed
    readers: Sequence[ShardReader]


@dataclass
class Selection:
    """The plan of a data set's shards.

    Attributes:
        parts: file names of the parts.
        names: source name that replaces the documents' own, by part; "" for none.
        part, document: by split, (documents,) int32 each: where each document of the split is, in order.
        bounds: by split, (shards + 1,) int64: shard i is documents bounds[i] to bounds[i + 1].
        sources: documents, tokens and bytes by source and split.
        duplicates: documents left out since their text occurs earlier.
        offered: by feed, the training tokens that were there to choose from, duplicates apart.
        warnings: what the user should know.
    """

    parts: list[str]
    names: list[str]
    part: dict[str, NDArray[np.int32]]
    document: dict[str, NDArray[np.int32]]
    bounds: dict[str, NDArray[np.int64]]
    sources: Counts = field(default_factory=dict)
    duplicates: int = 0
    offered: list[int] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def shards(self, split: str) -> int:
        """How many shards a split has."""
        return len(self.bounds[split]) - 1

    def shard(self, split: str, index: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Return part and document numbers of one shard, (documents,) each."""
        start, stop = self.bounds[split][index : index + 2]
        return self.part[split][start:stop], self.document[split][start:stop]

    def source_of(self, part: int, reader: ShardReader, document: int) -> str:
        """Return the source name of a document."""
        return self.names[part] or reader.source(document)

    def save(self, path: Path) -> None:
        """Write the plan to a file."""
        facts = {
            "parts": self.parts,
            "names": self.names,
            "sources": self.sources,
            "duplicates": self.duplicates,
            "offered": self.offered,
            "warnings": self.warnings,
        }
        arrays: dict[str, NDArray[np.generic]] = {"facts": np.frombuffer(json.dumps(facts).encode(), dtype=np.uint8)}
        for split in SPLITS:
            arrays |= {f"{split}_part": self.part[split], f"{split}_document": self.document[split]}
            arrays[f"{split}_bounds"] = self.bounds[split]
        with path.open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]

    @classmethod
    def load(cls, path: Path) -> Selection:
        """Read what `save` wrote."""
        with np.load(path) as arrays:
            facts = json.loads(arrays["facts"].tobytes())
            by_split = [
                {split: arrays[f"{split}_{kind}"] for split in SPLITS} for kind in ("part", "document", "bounds")
            ]
        return cls(part=by_split[0], document=by_split[1], bounds=by_split[2], **facts)


def split_of(digest: bytes, fractions: tuple[float, float, float]) -> str:
    """Return the split of a document from the SHA-256 of its text and the shares of train, validation and test."""
    salted = hashlib.sha256(b"hymo split" + digest).digest()
    share = int.from_bytes(salted[:8], "big") / 2**64
    _, validation, test = fractions
    if share < validation:
        return "validation"
    return "test" if share < validation + test else "train"


def select(
    candidates: Sequence[Candidates], fractions: tuple[float, float, float] | None, seed: int, shard_tokens: int
) -> Selection:
    """Choose from the candidates of all feeds, in order of feeds.

    Of equal texts the first that is kept counts; a feed's training documents are taken in reading order until its
    budget is reached. Held-out documents that a feed names keep their order; digest and seed shuffle all others.
    """
    parts: list[str] = []
    names: list[str] = []
    chosen: dict[str, list[NDArray[np.int32]]] = {split: [] for split in SPLITS}
    orders: dict[str, list[NDArray[np.uint8]]] = {split: [] for split in SPLITS}
    lengths: dict[str, list[NDArray[np.int64]]] = {split: [] for split in SPLITS}
    sources: Counts = {}
    kept_digests = np.empty((0, DIGEST_BYTES), dtype=np.uint8)
    duplicates, offered = 0, []
    for group in candidates:
        if not group.readers:
            offered.append(0)
            continue
        digests = np.concatenate([reader.digests for reader in group.readers])
        tokens = np.concatenate([np.diff(reader.offsets) for reader in group.readers])
        text_bytes = np.concatenate([reader.text_bytes for reader in group.readers])
        where = np.concatenate(
            [
                np.stack([np.full(r.n_documents, len(parts) + i), np.arange(r.n_documents)], axis=1)
                for i, r in enumerate(group.readers)
            ]
        ).astype(np.int32)
        new = first_occurrences(np.concatenate([kept_digests, digests]))[len(kept_digests) :]
        splits = _splits(digests, group.feed.split, fractions)
        train = new & (splits == SPLITS.index("train"))
        reached = np.cumsum(np.where(train, tokens, 0))
        offered.append(int(reached[-1]))
        within = np.ones(len(new), dtype=bool)
        if (budget := group.feed.train_tokens) is not None:
            # The document that reaches the budget is the last one taken.
            within[np.searchsorted(reached, budget) + 1 :] = False
        duplicates += int((within & ~new).sum())
        keep = new & within
        kept_digests = np.concatenate([kept_digests, digests[keep]])
        labels = _labels(group)
        for number, split in enumerate(SPLITS):
            members = keep & (splits == number)
            chosen[split].append(where[members])
            orders[split].append(digests[members])
            lengths[split].append(tokens[members])
            for name, index in labels[1].items():
                counted = members & (labels[0] == index)
                if counted.any():
                    sources.setdefault(name, {})[split] = _add(
                        sources.get(name, {}).get(split),
                        int(counted.sum()),
                        int(tokens[counted].sum()),
                        int(text_bytes[counted].sum()),
                    )
        parts += [reader.path.name for reader in group.readers]
        names += [group.feed.name or ""] * len(group.readers)

    selection = Selection(parts, names, {}, {}, {}, dict(sorted(sources.items())), duplicates, offered)
    for split in SPLITS:
        where = np.concatenate([np.empty((0, 2), np.int32), *chosen[split]])
        size = np.concatenate([np.empty(0, np.int64), *lengths[split]])
        if fractions is not None or split == "train":
            order = shuffled(np.concatenate([np.empty((0, DIGEST_BYTES), np.uint8), *orders[split]]), seed)
            where, size = where[order], size[order]
        selection.part[split], selection.document[split] = where[:, 0].copy(), where[:, 1].copy()
        selection.bounds[split] = shard_bounds(size, shard_tokens)
    return selection


def first_occurrences(digests: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Mark the first of equal rows of (documents, 32): (documents,)."""
    words = np.ascontiguousarray(digests).view("<u8").reshape(-1, DIGEST_BYTES // 8)
    order = np.lexsort(words.T)  # stable: equal rows stay in reading order
    ordered = words[order]
    first = np.ones(len(digests), dtype=bool)
    first[order[1:]] = (ordered[1:] != ordered[:-1]).any(axis=1)
    return first


def shuffled(digests: NDArray[np.uint8], seed: int) -> NDArray[np.int64]:
    """Return the order (documents,) of distinct digests (documents, 32) under a seed, whatever order they come in."""
    salt = seed.to_bytes(16, "little", signed=True)
    keys = b"".join(hashlib.blake2b(row.tobytes(), digest_size=16, salt=salt).digest() for row in digests)
    words = np.frombuffer(keys, dtype=">u8").reshape(-1, 2)
    return np.lexsort((words[:, 1], words[:, 0]))


def shard_bounds(lengths: NDArray[np.int64], shard_tokens: int) -> NDArray[np.int64]:
    """Cut documents of `lengths` tokens into shards of at most `shard_tokens`: (shards + 1,) document numbers."""
    until = np.cumsum(lengths)
    bounds = [0]
    while bounds[-1] < len(lengths):
        before = int(until[bounds[-1] - 1]) if bounds[-1] else 0
        bounds.append(int(np.searchsorted(until, before + shard_tokens, side="right")))
    return np.array(bounds, dtype=np.int64)


def _splits(digests: NDArray[np.uint8], split: str, fractions: tuple[float, float, float] | None) -> NDArray[np.int8]:
    """Number of each document's split in SPLITS."""
    if fractions is None:
        return np.full(len(digests), SPLITS.index(split), dtype=np.int8)
    return np.array([SPLITS.index(split_of(row.tobytes(), fractions)) for row in digests], dtype=np.int8)


def _labels(group: Candidates) -> tuple[NDArray[np.int64], dict[str, int]]:
    """Number of each document's source, and the numbers' names."""
    numbers: dict[str, int] = {}
    columns = []
    for reader in group.readers:
        names = [group.feed.name or name for name in reader.sources]
        table = np.array([numbers.setdefault(name, len(numbers)) for name in names], dtype=np.int64)
        columns.append(table[reader.source_index])
    return np.concatenate(columns), numbers


def _add(old: dict[str, int] | None, documents: int, tokens: int, size: int) -> dict[str, int]:
    old = old or {"documents": 0, "tokens": 0, "bytes": 0}
    return {
        "documents": old["documents"] + documents,
        "tokens": old["tokens"] + tokens,
        "bytes": old["bytes"] + size,
    }
