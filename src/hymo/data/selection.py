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
from hymo.data.parts import PartIndex
from hymo.data.shards import DIGEST_BYTES, ShardReader
from hymo.data.streams import Feed

Counts = dict[str, dict[str, dict[str, int]]]


@dataclass(frozen=True)
class Candidates:
    """What a feed offers.

    Attributes:
        feed: where it comes from.
        blocks: its parts in reading order, None for those without a document.
        fractions: shares of train, validation and test by hash; None: all goes to the feed's split.
        budget: training tokens to take; None: all.
        passes: how often the training documents may be taken to reach the budget.
    """

    feed: Feed
    blocks: Sequence[PartIndex | None]
    fractions: tuple[float, float, float] | None = None
    budget: int | None = None
    passes: int = 1


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
        used: by feed, how many parts were looked at until the budget was reached.
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
    used: list[int] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def shards(self, split: str) -> int:
        """How many shards a split has."""
        return len(self.bounds[split]) - 1

    def places(self) -> list[tuple[str, int]]:
        """Return split and index of every shard."""
        return [(split, index) for split in SPLITS for index in range(self.shards(split))]

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
            "used": self.used,
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


def select(candidates: Sequence[Candidates], seed: int, shard_tokens: int) -> Selection:
    """Choose from the candidates of all feeds, in order of feeds.

    Of equal texts the first that is kept counts; a feed's training documents are taken in reading order until its
    budget is reached, and what comes after is not looked at. Held-out documents that a feed names keep their order;
    digest and seed shuffle all others.
    """
    plan = Selection([], [], {}, {}, {})
    chosen = {split: [np.empty((0, 2), np.int32)] for split in SPLITS}
    keys = {split: [np.empty((0, DIGEST_BYTES), np.uint8)] for split in SPLITS}
    lengths = {split: [np.empty(0, np.int64)] for split in SPLITS}
    kept_digests = keys["train"][0]
    for group in candidates:
        parts = [part for part in group.blocks if part is not None]
        if not parts:
            plan.offered.append(0)
            plan.used.append(len(group.blocks))
            continue
        digests = np.concatenate([part.digests for part in parts])
        tokens = np.concatenate([part.lengths for part in parts])
        where = _places(parts, len(plan.parts))
        new = first_occurrences(np.concatenate([kept_digests, digests]))[len(kept_digests) :]
        splits = _splits(digests, group.feed.split, group.fractions)
        reached = np.cumsum(np.where(new & (splits == SPLITS.index("train")), tokens, 0))
        plan.offered.append(int(reached[-1]))
        # The document that reaches the budget is the last one taken.
        stop = len(new)
        plan.used.append(len(group.blocks))
        if group.budget is not None and reached[-1] >= group.budget:
            stop = int(np.searchsorted(reached, group.budget)) + 1
            plan.used[-1] = _blocks_until(group.blocks, stop)
        plan.duplicates += int((~new[:stop]).sum())
        keep = new & (np.arange(len(new)) < stop)
        kept_digests = np.concatenate([kept_digests, digests[keep]])
        members: list[tuple[str, NDArray[np.int64], int]] = [
            (split, np.flatnonzero(keep & (splits == number)), 0) for number, split in enumerate(SPLITS)
        ]
        members += _again(group, members[SPLITS.index("train")][1], tokens)
        sizes = (tokens, np.concatenate([part.text_bytes for part in parts]))
        for split, documents, turn in members:
            chosen[split].append(where[documents])
            keys[split].append(_turned(digests[documents], turn))
            lengths[split].append(tokens[documents])
            _count(plan.sources, split, _labels(group.feed, parts), documents, *sizes)
        plan.parts += [part.name for part in parts]
        plan.names += [group.feed.name or ""] * len(parts)

    plan.sources = dict(sorted(plan.sources.items()))
    by_hash = any(group.fractions is not None for group in candidates)
    for split in SPLITS:
        where, size = np.concatenate(chosen[split]), np.concatenate(lengths[split])
        if by_hash or split == "train":
            order = shuffled(np.concatenate(keys[split]), seed)
            where, size = where[order], size[order]
        plan.part[split], plan.document[split] = where[:, 0].copy(), where[:, 1].copy()
        plan.bounds[split] = shard_bounds(size, shard_tokens)
    return plan


def _places(parts: Sequence[PartIndex], first: int) -> NDArray[np.int32]:
    """Part, counted from `first`, and document within it of each document: (documents, 2)."""
    pairs = [
        np.stack([np.full(part.documents, first + i), np.arange(part.documents)], axis=1)
        for i, part in enumerate(parts)
    ]
    return np.concatenate(pairs).astype(np.int32)


def _blocks_until(blocks: Sequence[PartIndex | None], documents: int) -> int:
    """How many blocks hold the first `documents` documents."""
    until = np.cumsum([0 if part is None else part.documents for part in blocks])
    return int(np.searchsorted(until, documents)) + 1


def _again(
    group: Candidates, documents: NDArray[np.int64], tokens: NDArray[np.int64]
) -> list[tuple[str, NDArray[np.int64], int]]:
    """Take a short feed's training documents again, up to its budget or its number of passes."""
    taken = int(tokens[documents].sum())
    extra = []
    for turn in range(1, group.passes):
        missing = (group.budget or 0) - turn * taken
        if missing <= 0 or not taken:
            break
        last = int(np.searchsorted(np.cumsum(tokens[documents]), missing)) + 1
        extra.append(("train", documents[:last], turn))
    return extra


def _turned(digests: NDArray[np.uint8], turn: int) -> NDArray[np.uint8]:
    """Give repeated documents a place of their own in the order."""
    if not turn:
        return digests
    rows = b"".join(hashlib.sha256(turn.to_bytes(4, "little") + row.tobytes()).digest() for row in digests)
    return np.frombuffer(rows, dtype=np.uint8).reshape(-1, DIGEST_BYTES)


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


def _labels(feed: Feed, parts: Sequence[PartIndex]) -> tuple[NDArray[np.int64], dict[str, int]]:
    """Number of each document's source, and the numbers' names."""
    numbers: dict[str, int] = {}
    columns = []
    for part in parts:
        names = [feed.name or name for name in part.sources]
        table = np.array([numbers.setdefault(name, len(numbers)) for name in names], dtype=np.int64)
        columns.append(table[part.source_index])
    return np.concatenate(columns), numbers


def _count(
    sources: Counts,
    split: str,
    labels: tuple[NDArray[np.int64], dict[str, int]],
    documents: NDArray[np.int64],
    tokens: NDArray[np.int64],
    text_bytes: NDArray[np.int64],
) -> None:
    """Add documents to the counts of their sources."""
    numbers, names = labels
    for name, number in names.items():
        own = documents[numbers[documents] == number]
        if len(own):
            counts = sources.setdefault(name, {}).setdefault(split, {"documents": 0, "tokens": 0, "bytes": 0})
            counts["documents"] += len(own)
            counts["tokens"] += int(tokens[own].sum())
            counts["bytes"] += int(text_bytes[own].sum())
