"""From a mixture to a job: one feed per source and configuration, each with its budget of training tokens."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hymo.core.errors import DataError, UsageError
from hymo.data.hub import HubFeed
from hymo.data.job import Job
from hymo.data.mixture import Mixture, Source, with_local, without_gated
from hymo.data.prepare import BLOCK_BYTES, check_settings, limit_fields
from hymo.data.shards import DEFAULT_SHARD_TOKENS
from hymo.data.sources import Fields, find_files
from hymo.data.streams import Feed
from hymo.data.tokenizer import Tokenizer

Fractions = tuple[float, float, float]


def make_mixture_job(
    mixture: Mixture,
    out_dir: str | Path,
    tokenizer: Tokenizer,
    *,
    train_tokens: int | None = None,
    local: Sequence[str] = (),
    skip_gated: bool = False,
    seed: int = 0,
    shard_tokens: int = DEFAULT_SHARD_TOKENS,
) -> Job:
    """Return the job that prepares a mixture, after one row of every source on the Hub was read.

    Args:
        mixture: sources and weights.
        out_dir: folder of the data set.
        tokenizer: what to encode with.
        train_tokens: training tokens, bos and eos included; the mixture's own unless given. Validation and test come
            on top, in the proportion of the mixture's fractions.
        local: NAME=PATH, files or folders to read instead of a source on the Hub.
        skip_gated: leave gated sources out; the mixture's fallback takes their weight.
        seed: of the order of documents.
        shard_tokens: most tokens in a shard.

    Raises:
        UsageError: wrong arguments; nothing has been written.
        DataError: a source is gated or cannot be reached, or a file is empty.
    """
    mixture = with_local(mixture, local)
    notes: list[str] = []
    if skip_gated:
        mixture, notes = without_gated(mixture)
    total = train_tokens if train_tokens is not None else mixture.train_tokens
    if total is None:
        raise UsageError(f"mixture {mixture.name} has no train_tokens: say how many with --train-tokens")
    check_settings(mixture.fractions, seed, total)
    feeds: list[Feed] = []
    for name, source in mixture.sources.items():
        if source.weight:
            feeds += _feeds(name, source, _fractions(mixture, name), total, shard_tokens)
    feeds = [feed for feed in feeds if feed.train_tokens]
    feeds = [feed.probe(feed.fields or Fields()) if isinstance(feed, HubFeed) else feed for feed in feeds]
    return Job(
        out=Path(out_dir),
        feeds=tuple(feeds),
        tokenizer=tokenizer.name,
        fingerprint=tokenizer.fingerprint(),
        fields=limit_fields(Fields(), shard_tokens),
        fractions=mixture.fractions,
        seed=seed,
        shard_tokens=shard_tokens,
        block_bytes=BLOCK_BYTES,
        exhausted=mixture.exhausted,
        notes=tuple(notes),
        facts={
            "mixture": mixture.name,
            "weights": {name: source.weight for name, source in mixture.sources.items()},
            "licences": {name: source.licence for name, source in mixture.sources.items()},
        },
    )


def _fractions(mixture: Mixture, name: str) -> Fractions:
    """Return how a source's documents are split, so that the whole set has the mixture's fractions.

    If one source alone makes the validation split, it gives more of its documents to it, and the others none.
    """
    train, validation, test = mixture.fractions
    if mixture.validation is not None:
        own = name == mixture.validation
        validation = validation / mixture.sources[name].weight if own else 0.0
    whole = train + validation + test
    return train / whole, validation / whole, test / whole


def _feeds(name: str, source: Source, fractions: Fractions, total: int, shard_tokens: int) -> list[Feed]:
    fields = limit_fields(Fields(text=source.text, id=source.id), shard_tokens)
    common: dict[str, Any] = {"name": name, "fields": fields, "filters": source.filters, "fractions": fractions}
    if source.local:
        return [
            Feed("train", files, round(total * source.weight * share), **common)
            for files, share in _local_files(name, source)
        ]
    return [
        HubFeed(
            "train",
            (),
            round(total * source.weight * share),
            **common,
            repository=source.hub or "",
            config=config,
            data_dir=source.data_dir,
            hub_split=source.split,
            revision=source.revision,
            only_columns=source.columns,
            gated=source.gated,
        )
        for config, share in source.parts().items()
    ]


def _local_files(name: str, source: Source) -> list[tuple[tuple[Path, ...], float]]:
    """Return files and share of each feed: one per configuration if there is a folder of its name, else one in all."""
    (first, *more) = source.local
    configs = source.configs or {}
    if configs and not more and all((first / config).is_dir() for config in configs):
        found = [(find_files([first / config]), share) for config, share in configs.items()]
    else:
        found = [(find_files(list(source.local)), 1.0)]
    for path in (path for files, _ in found for path in files):
        if path.stat().st_size == 0:
            raise DataError(f"source {name}: {path}: the file is empty; leave it out or fill it")
    return [(tuple(files), share) for files, share in found]
