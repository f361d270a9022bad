"""From text files to a data set: read, check, drop exact duplicates, split, shuffle, tokenise, write shards.

Split and order are functions of each document's hash (and the seed), never of its place in the input: reordering the
input or adding documents moves no document to another split. Any number of workers gives identical files, and so does
an interrupted preparation that is run again: see `hymo.data.job`.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from hymo.core.errors import DataError, UsageError
from hymo.data.dataset import MANIFEST, SPLITS, Manifest
from hymo.data.job import QUARANTINE, WORK_PREFIX, Job
from hymo.data.reading import Progress, read_all, settle
from hymo.data.selection import Selection
from hymo.data.shards import DEFAULT_SHARD_TOKENS, SUFFIX, ShardInfo
from hymo.data.sources import Fields, find_files
from hymo.data.streams import Feed
from hymo.data.tokenizer import Tokenizer
from hymo.data.workers import Workers

BLOCK_BYTES = 4 << 20
__all__ = ["Progress", "cores", "make_job", "prepare", "run"]


def prepare(
    inputs: Sequence[str | Path],
    out_dir: str | Path,
    tokenizer: Tokenizer,
    *,
    validation_inputs: Sequence[str | Path] = (),
    test_inputs: Sequence[str | Path] = (),
    fractions: tuple[float, float, float] = (0.97, 0.015, 0.015),
    seed: int = 0,
    fields: Fields | None = None,
    shard_tokens: int = DEFAULT_SHARD_TOKENS,
    train_tokens: int | None = None,
    overwrite: bool = False,
    workers: int | None = 1,
    progress: Progress | None = None,
) -> Manifest:
    """Write a data set to `out_dir` and return its manifest.

    Args:
        inputs: JSONL or text files, or directories of them.
        validation_inputs, test_inputs: files of fixed held-out splits. If either is given, `inputs` go to train as a
            whole, less the documents that also occur held out; else documents are split by hash.
        fractions: shares of train, validation and test for the split by hash; they sum to 1.
        seed: of the order of documents.
        fields: field names and size limits; no document may be larger than a shard either.
        shard_tokens: most tokens in a shard.
        train_tokens: training tokens to take, in reading order; held-out documents come on top. None takes all.
        overwrite: replace a data set that is already in `out_dir`.
        workers: processes that encode and write; 1 works in this one, None takes the cores that this process may use.
        progress: called with the phase, what is done and what there is in all.

    Bad documents go to ``quarantine.jsonl`` with file, line and reason, and are counted in the manifest. What an
    interrupted call with equal arguments left in `out_dir` is used, not made again.

    Raises:
        UsageError: a path or setting is wrong; nothing has been written.
        DataError: an input file is empty, no usable training document is left, or the disk refuses.
    """
    job = make_job(
        inputs,
        out_dir,
        tokenizer,
        validation_inputs=validation_inputs,
        test_inputs=test_inputs,
        fractions=fractions,
        seed=seed,
        fields=fields,
        shard_tokens=shard_tokens,
        train_tokens=train_tokens,
    )
    return run(job, tokenizer, overwrite=overwrite, workers=workers, progress=progress)


def run(
    job: Job,
    tokenizer: Tokenizer,
    *,
    overwrite: bool = False,
    workers: int | None = 1,
    progress: Progress | None = None,
) -> Manifest:
    """Do all steps of a job on this machine; arguments, result and errors as `prepare`."""
    if workers is not None and workers < 1:
        raise UsageError(f"workers must be at least 1, not {workers}")
    clear_output(job, overwrite)
    with _writing(job.out), Workers(job, tokenizer, workers or _worth(job)) as pool:
        plan = settle(job, pool, read_all(job, pool, progress))
        return write(job, plan, pool, tokenizer, progress)


def cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _worth(job: Job) -> int:
    """All cores, but no more than there are blocks: a process takes longer to start than a small file to encode."""
    sizes = [job.feeds[feed].size(stream) for feed, stream in job.streams()]
    return cores() if not all(sizes) else max(1, min(cores(), sum(sizes) // job.block_bytes))


def make_job(
    inputs: Sequence[str | Path],
    out_dir: str | Path,
    tokenizer: Tokenizer,
    *,
    validation_inputs: Sequence[str | Path] = (),
    test_inputs: Sequence[str | Path] = (),
    fractions: tuple[float, float, float] = (0.97, 0.015, 0.015),
    seed: int = 0,
    fields: Fields | None = None,
    shard_tokens: int = DEFAULT_SHARD_TOKENS,
    train_tokens: int | None = None,
) -> Job:
    """Check the arguments of `prepare` and return the job that they describe.

    Raises:
        UsageError, DataError: as `prepare`.
    """
    fields = limit_fields(fields or Fields(), shard_tokens)
    fixed = bool(validation_inputs or test_inputs)
    check_settings(None if fixed else fractions, seed, train_tokens)
    # Held-out inputs first: a text in both is held out, never trained on.
    groups = {"validation": validation_inputs, "test": test_inputs, "train": inputs}
    files = {name: find_files([Path(path) for path in paths]) for name, paths in groups.items()}
    if not files["train"]:
        raise UsageError("no input files were given")
    for path in (Path(path) for paths in groups.values() for path in paths):
        if path.is_file() and path.stat().st_size == 0:
            raise DataError(f"{path}: the file is empty; leave it out or fill it")
    return Job(
        out=Path(out_dir),
        feeds=tuple(
            Feed(name, tuple(paths), train_tokens if name == "train" else None)
            for name, paths in files.items()
            if paths
        ),
        tokenizer=tokenizer.name,
        fingerprint=tokenizer.fingerprint(),
        fields=fields,
        fractions=None if fixed else fractions,
        seed=seed,
        shard_tokens=shard_tokens,
        block_bytes=BLOCK_BYTES,
    )


def limit_fields(fields: Fields, shard_tokens: int) -> Fields:
    """Return `fields` with documents no larger than a shard.

    Raises:
        UsageError: nothing fits.
    """
    fields = dataclasses.replace(fields, max_document_bytes=min(fields.max_document_bytes, shard_tokens - 2))
    if fields.max_document_bytes < 1 or fields.text_chunk_bytes < 0:
        raise UsageError("shard_tokens must be at least 3, max_document_bytes 1 and text_chunk_bytes 0")
    return fields


def check_settings(fractions: tuple[float, float, float] | None, seed: int, train_tokens: int | None) -> None:
    """Raise `UsageError` for settings that no job can have."""
    if fractions is not None and (min(fractions) < 0 or fractions[0] == 0 or abs(sum(fractions) - 1) > 1e-6):
        raise UsageError(f"split fractions {fractions} must be three shares that sum to 1, train above 0")
    if train_tokens is not None and train_tokens < 1:
        raise UsageError(f"train_tokens must be at least 1, not {train_tokens}")
    if not -(2**127) <= seed < 2**127:
        raise UsageError(f"seed {seed} has more than 128 bits")


def write(job: Job, plan: Selection, pool: Workers, tokenizer: Tokenizer, progress: Progress | None = None) -> Manifest:
    """Write the shards of a plan that are not there yet, and finish.

    Raises:
        DataError: no training document is left.
    """
    require_training_text(job, plan)
    job.save_plan(plan)
    places = plan.places()
    total = sum(counts["bytes"] for splits in plan.sources.values() for counts in splits.values())
    shards: dict[str, list[ShardInfo]] = {split: [] for split in SPLITS}
    done = 0
    for (split, _index), info in zip(places, pool.write(places), strict=True):
        shards[split].append(info)
        done += info.text_bytes
        if progress:
            progress("write", done, total)
    return job.finish(plan, shards, tokenizer)


def require_training_text(job: Job, plan: Selection) -> None:
    """Raise `DataError` and give the job up if its plan has no training document."""
    if plan.shards("train"):
        return
    reasons = Counter(item["reason"] for item in job.rejected(plan))
    found = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items())) or "none quarantined"
    held_out = sum(len(plan.part[split]) for split in SPLITS)
    job.discard(plan)
    raise DataError(
        f"no training document is left ({held_out} held out, {plan.duplicates} duplicates, quarantined: {found}; "
        f"see {job.out / QUARANTINE}): check the input or give fewer documents to the other splits"
    )


@contextmanager
def _writing(out: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataError(f"{out}: preparation stopped ({error}): check space and permissions") from error


def clear_output(job: Job, overwrite: bool) -> None:
    """Make the output folder ready: keep what an equal, interrupted job left, remove what any other left.

    Raises:
        UsageError: there is a finished data set and `overwrite` is not set, or the place cannot be written.
    """
    out = job.out
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out}: is a file; name a directory for the data set")
    if (out / MANIFEST).exists() and not overwrite:
        raise UsageError(f"{out}: already holds a data set; name another directory, or replace it with --overwrite")
    try:
        out.mkdir(parents=True, exist_ok=True)
        # The manifest goes first: without it, what is left of the old set cannot be taken for a complete one.
        (out / MANIFEST).unlink(missing_ok=True)
        for old in out.glob(f"{WORK_PREFIX}*"):
            if old != job.work:
                shutil.rmtree(old)
        if not job.work.exists():
            for split in SPLITS:
                for path in (*(out / split).glob(f"{split}-*{SUFFIX}"), *(out / split).glob(f".{split}-*{SUFFIX}.tmp")):
                    path.unlink()
        job.work.mkdir(exist_ok=True)
        os.utime(job.work)
    except OSError as error:
        raise UsageError(f"{out}: cannot be written ({error})") from error
