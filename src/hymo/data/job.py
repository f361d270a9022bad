"""One preparation as steps that any number of processes can share and that an interrupted run picks up again.

    encode   each block of each input stream -> a part: the documents as tokens, with their digests
    plan     all parts -> which documents are kept, in which split, in which order, where shards end
    write    each shard -> its file
    finish   the manifest; the parts go

A step reads files and writes files, each under its name only when it is complete. What a file holds depends on the
input and the settings alone, so who computes it, in which order and how often it was interrupted make no difference.
Parts are shards themselves, in a folder that is named after the settings: other settings never meet old parts.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeAlias

from hymo.core.errors import DataError
from hymo.core.files import write_text
from hymo.data.dataset import MANIFEST, SPLITS, Manifest, fingerprint_of_splits, split_info
from hymo.data.parts import Parts
from hymo.data.selection import Candidates, Selection, select, split_of
from hymo.data.shards import SUFFIX, VERSION, ShardInfo, ShardWriter
from hymo.data.sources import Block, Fields, Filtered, Rejected, parse_block
from hymo.data.streams import Feed
from hymo.data.tokenizer import Tokenizer

QUARANTINE = "quarantine.jsonl"
WORK_PREFIX = ".work-"
Place: TypeAlias = tuple[int, int, int]
"""Feed, stream of the feed and block of the stream, each from 0."""


@dataclass(frozen=True)
class Job:
    """What to prepare, where, and how. Every process of a preparation holds an equal one.

    Attributes:
        out: folder of the data set.
        feeds: inputs; held-out ones first, since a text that occurs twice belongs to the first.
        tokenizer: its spec, and `fingerprint`, its SHA-256.
        fractions: shares of train, validation and test by hash; None where each feed names its split.
        exhausted: what to do about a feed that ends before its `train_tokens`: "stop" leaves it at that, "reweight"
            takes the rest from the other feeds, "repeat" shows its documents again.
        notes: warnings for the manifest that were known beforehand.
        facts: further settings for the manifest.
        seed: of the order of documents.
        shard_tokens: most tokens in a shard.
        block_bytes: text per part, about.
    """

    out: Path
    feeds: tuple[Feed, ...]
    tokenizer: str
    fingerprint: str
    fields: Fields
    fractions: tuple[float, float, float] | None
    seed: int
    shard_tokens: int
    block_bytes: int
    exhausted: Literal["stop", "reweight", "repeat"] = "stop"
    notes: tuple[str, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def work(self) -> Path:
        """Folder of the parts; its name changes with anything that changes the result."""
        settings = dataclasses.asdict(self) | {"out": None, "version": VERSION}
        settings["feeds"] = [feed.identity() for feed in self.feeds]
        settings["tokenizer"] = None
        text = json.dumps(settings, sort_keys=True, default=str)
        return self.out / f"{WORK_PREFIX}{hashlib.sha256(text.encode()).hexdigest()[:16]}"

    @cached_property
    def _files(self) -> Parts:
        return Parts(self.work)

    def streams(self) -> Iterator[tuple[int, int]]:
        """Yield (feed, stream) in order."""
        for number, feed in enumerate(self.feeds):
            for stream in range(feed.streams):
                yield number, stream

    def blocks(self, feed: int, stream: int) -> Iterator[Block]:
        """Read one stream; without end for a source that has none."""
        return self.feeds[feed].blocks(stream, self.fields_of(feed), self.block_bytes)

    def fields_of(self, feed: int) -> Fields:
        """Return the field names of a feed."""
        return self.feeds[feed].fields or self.fields

    def fractions_of(self, feed: int) -> tuple[float, float, float] | None:
        """Return the shares by which a feed's documents are split, None if it names their split."""
        return self.feeds[feed].fractions or self.fractions

    # encode

    def encode(self, place: Place, block: Block, tokenizer: Tokenizer) -> dict[str, Any]:
        """Write the part of one block and return its facts: see `part`."""
        name = _name(place)
        feed = self.feeds[place[0]]
        fractions = self.fractions_of(place[0])
        rejected = []
        filtered: Counter[str] = Counter()
        train_tokens = 0
        with ShardWriter(self.work, name, tokenizer, shard_tokens=1 << 62) as writer:
            for item in parse_block(block, self.fields_of(place[0]), feed.filters):
                if isinstance(item, Rejected):
                    rejected.append(dataclasses.asdict(item))
                    continue
                if isinstance(item, Filtered):
                    filtered[item.reason] += 1
                    continue
                ids = tokenizer.encode(item.text)
                digest = hashlib.sha256(item.text).digest()
                writer.add(ids, len(item.text), item.source, item.id, digest)
                if (split_of(digest, fractions) if fractions else feed.split) == "train":
                    train_tokens += len(ids) + 2
        facts = {
            "position": block.position,
            "documents": sum(shard.documents for shard in writer.shards),
            "tokens": sum(shard.tokens for shard in writer.shards),
            "bytes": sum(shard.text_bytes for shard in writer.shards),
            "train_tokens": train_tokens,
            "filtered": dict(sorted(filtered.items())),
            "rejected": rejected,
        }
        write_text(self.work / f"{name}.json", json.dumps(facts))
        return facts

    def part(self, place: Place) -> dict[str, Any] | None:
        """Return the facts of a finished part, or None.

        They are documents, tokens, bytes, `train_tokens` before duplicates are dropped, position, and what was filtered
        and rejected.
        """
        return _load(self.work / f"{_name(place)}.json")

    def end(self, feed: int, stream: int, blocks: int, exhausted: bool) -> None:
        """Note that a stream was read for `blocks` blocks, and whether that was all of it."""
        text = json.dumps({"blocks": blocks, "exhausted": exhausted})
        write_text(self.work / f"{feed:03d}-{stream:06d}.end.json", text)

    def ended(self, feed: int, stream: int) -> dict[str, Any] | None:
        """Return what `end` noted, or None."""
        return _load(self.work / f"{feed:03d}-{stream:06d}.end.json")

    # plan

    def parts(self, feed: int) -> list[Place]:
        """Return a feed's parts in reading order, up to the first stream that was not read to its end.

        What lies behind that is left out, since how far streams were read must not change what is taken.

        Raises:
            DataError: a part is missing: encoding is not finished.
        """
        found = []
        for stream in range(self.feeds[feed].streams):
            end = self.ended(feed, stream)
            if end is None:
                raise DataError(f"{self.work}: stream {stream} of feed {feed} was not read; run it again")
            for block in range(end["blocks"]):
                place = (feed, stream, block)
                if not (self.work / f"{_name(place)}.json").is_file():
                    raise DataError(f"{self.work}: part {_name(place)} is missing; run it again")
                found.append(place)
            if not end["exhausted"]:
                break
        return found

    def plan(self, budgets: Sequence[int | None] | None = None, passes: Sequence[int] | None = None) -> Selection:
        """Choose documents, their split, order and shard from all parts; the same for any number of workers.

        Args:
            budgets: training tokens to take from each feed; its own `train_tokens` by default.
            passes: how often a feed's training documents may be taken; once by default.
        """
        candidates = []
        for number, feed in enumerate(self.feeds):
            # A block without a document has no file.
            indices = [self._files.index(f"{_name(place)}-00000{SUFFIX}") for place in self.parts(number)]
            candidates.append(
                Candidates(
                    feed,
                    indices,
                    self.fractions_of(number),
                    feed.train_tokens if budgets is None else budgets[number],
                    1 if passes is None else passes[number],
                )
            )
        return select(candidates, self.seed, self.shard_tokens)

    def save_plan(self, plan: Selection) -> None:
        """Keep a plan for other processes."""
        plan.save(self.work / "plan.npz")

    def load_plan(self) -> Selection:
        """Return the plan that `save_plan` kept."""
        return Selection.load(self.work / "plan.npz")

    # write

    def write(self, plan: Selection, split: str, index: int, tokenizer: Tokenizer) -> ShardInfo:
        """Write one shard, unless it is there from an interrupted run."""
        marker = self.work / f"{split}-{index:05d}.json"
        path = self.out / split / f"{split}-{index:05d}{SUFFIX}"
        if (known := _load(marker)) and path.is_file():
            return ShardInfo(**known)
        parts, documents = plan.shard(split, index)
        writer = ShardWriter(self.out / split, split, tokenizer, self.shard_tokens, first=index)
        for part, document in zip(parts.tolist(), documents.tolist(), strict=True):
            reader = self._files.reader(plan.parts[part])
            writer.add(
                reader.document(document)[1:-1],
                int(reader.text_bytes[document]),
                plan.source_of(part, reader, document),
                reader.document_id(document),
                reader.digests[document].tobytes(),
            )
        (info,) = writer.close()
        write_text(marker, json.dumps(dataclasses.asdict(info)))
        return info

    # finish

    def finish(self, plan: Selection, shards: dict[str, list[ShardInfo]], tokenizer: Tokenizer) -> Manifest:
        """Write quarantine list and manifest, remove the parts, and return the manifest."""
        quarantined = self._quarantine(plan)
        splits = {name: split_info(shards[name]) for name in SPLITS}
        if self.fractions is None:
            asked = {feed.split for feed in self.feeds}
        else:
            asked = {name for name, share in zip(SPLITS, self.fractions, strict=True) if share}
        manifest = Manifest(
            tokenizer=tokenizer.name,
            tokenizer_fingerprint=self.fingerprint,
            vocab_size=tokenizer.vocab_size,
            fingerprint=fingerprint_of_splits(splits),
            splits=splits,
            inputs=self._inputs(),
            sources=plan.sources,
            duplicates=plan.duplicates,
            quarantined=dict(sorted(quarantined.items())),
            filtered=self._filtered(plan),
            settings={
                "split": list(self.fractions) if self.fractions else "by input",
                "seed": self.seed,
                "shard_tokens": self.shard_tokens,
                "exhausted": self.exhausted,
                "train_tokens": sum(feed.train_tokens or 0 for feed in self.feeds) or None,
                **dataclasses.asdict(self.fields),
                **self.facts,
            },
            warnings=[
                *self.notes,
                *plan.warnings,
                *(
                    f"the {name} split is empty: give more documents, a larger fraction or its own input"
                    for name in ("validation", "test")
                    if name in asked and not splits[name].documents
                ),
            ],
        )
        write_text(self.out / MANIFEST, manifest.to_json())
        self.discard()
        return manifest

    def discard(self, plan: Selection | None = None) -> None:
        """Remove the parts; with a plan, the list of what it rejects stays."""
        if plan is not None:
            self._quarantine(plan)
        self._files.clear()
        shutil.rmtree(self.work, ignore_errors=True)

    def rejected(self, plan: Selection) -> Iterator[dict[str, Any]]:
        """Yield the rejected documents of all parts that a plan looks at, in order."""
        for _feed, facts in self._used(plan):
            yield from facts["rejected"]

    def _used(self, plan: Selection) -> Iterator[tuple[Feed, dict[str, Any]]]:
        for number, feed in enumerate(self.feeds):
            for place in self.parts(number)[: plan.used[number]]:
                facts = self.part(place)
                if facts is not None:
                    yield feed, facts

    def _filtered(self, plan: Selection) -> dict[str, dict[str, int]]:
        counts: dict[str, Counter[str]] = {}
        for feed, facts in self._used(plan):
            if facts["filtered"]:
                counts.setdefault(feed.name or "", Counter()).update(facts["filtered"])
        return {name: dict(sorted(reasons.items())) for name, reasons in sorted(counts.items())}

    def _quarantine(self, plan: Selection) -> Counter[str]:
        reasons: Counter[str] = Counter()
        with (self.out / QUARANTINE).open("w", encoding="utf-8", errors="backslashreplace") as file:
            for item in self.rejected(plan):
                reasons[item["reason"]] += 1
                file.write(json.dumps(item, ensure_ascii=False) + "\n")
        return reasons

    def _inputs(self) -> dict[str, list[str]]:
        inputs: dict[str, list[str]] = {}
        for feed in self.feeds:
            inputs.setdefault(feed.split, []).extend(feed.describe())
        return inputs


def _name(place: Place) -> str:
    feed, stream, block = place
    return f"{feed:03d}-{stream:06d}-{block:07d}"


def _load(path: Path) -> dict[str, Any] | None:
    try:
        loaded: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return loaded
