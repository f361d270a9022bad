"""From text files to a data set: read, check, drop exact duplicates, split, shuffle, tokenise, write shards.

Split and order are functions of each document's hash (and the seed), never of its place in the input: reordering the
input or adding documents moves no document to another split, and two runs give identical files.

Texts wait in a temporary file inside the output directory, so memory holds an index only.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from hymo.core.errors import DataError, UsageError
from hymo.core.files import write_text
from hymo.data.dataset import MANIFEST, SPLITS, Manifest, SplitInfo, fingerprint_of
from hymo.data.shards import DEFAULT_SHARD_TOKENS, SUFFIX, ShardWriter
from hymo.data.sources import Fields, Rejected, find_files, read_documents
from hymo.data.tokenizer import Tokenizer

QUARANTINE = "quarantine.jsonl"
# phase ("read" or "write"), bytes done, bytes in all
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class _Entry:
    """A kept document: its place in the temporary file and, as `key`, in the shuffled split."""

    key: bytes
    offset: int
    size: int
    source: str
    id: str


def split_of(digest: bytes, fractions: tuple[float, float, float]) -> str:
    """Return the split of a document from the SHA-256 of its text and the shares of train, validation and test."""
    salted = hashlib.sha256(b"hymo split" + digest).digest()
    share = int.from_bytes(salted[:8], "big") / 2**64
    _, validation, test = fractions
    if share < validation:
        return "validation"
    return "test" if share < validation + test else "train"


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
    overwrite: bool = False,
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
        overwrite: replace a data set that is already in `out_dir`.
        progress: called with the phase, the bytes done and the bytes in all.

    Bad documents go to ``quarantine.jsonl`` with file, line and reason, and are counted in the manifest.

    Raises:
        UsageError: a path or setting is wrong; nothing has been written.
        DataError: an input file is empty, no usable training document is left, or the disk refuses.
    """
    fields = fields or Fields()
    fields = dataclasses.replace(fields, max_document_bytes=min(fields.max_document_bytes, shard_tokens - 2))
    fixed = bool(validation_inputs or test_inputs)
    if fields.max_document_bytes < 1 or fields.text_chunk_bytes < 0:
        raise UsageError("shard_tokens must be at least 3, max_document_bytes 1 and text_chunk_bytes 0")
    if not fixed and (min(fractions) < 0 or fractions[0] == 0 or abs(sum(fractions) - 1) > 1e-6):
        raise UsageError(f"split fractions {fractions} must be three shares that sum to 1, train above 0")
    # Held-out inputs first: a text in both is held out, never trained on.
    groups = {"validation": validation_inputs, "test": test_inputs, "train": inputs}
    files = {name: find_files([Path(path) for path in paths]) for name, paths in groups.items()}
    if not files["train"]:
        raise UsageError("no input files were given")
    for path in (Path(path) for paths in groups.values() for path in paths):
        if path.is_file() and path.stat().st_size == 0:
            raise DataError(f"{path}: the file is empty; leave it out or fill it")

    out = Path(out_dir)
    _clear_output(out, overwrite)
    with _writing(out), tempfile.TemporaryFile(dir=out) as spool:
        entries, duplicates, quarantined = _collect(out, spool, files, fixed, fractions, seed, fields, progress)
        found = ", ".join(f"{count} {reason}" for reason, count in sorted(quarantined.items())) or "none quarantined"
        if not entries["train"]:
            kept = sum(map(len, entries.values()))
            raise DataError(
                f"no training document is left ({kept} held out, {duplicates} duplicates, quarantined: {found}; "
                f"see {out / QUARANTINE}): check the input or give fewer documents to the other splits"
            )
        splits, sources = _write(out, spool, entries, tokenizer, shard_tokens, progress)
        manifest = Manifest(
            tokenizer=tokenizer.name,
            tokenizer_fingerprint=tokenizer.fingerprint(),
            vocab_size=tokenizer.vocab_size,
            fingerprint=hashlib.sha256("".join(splits[name].fingerprint for name in SPLITS).encode()).hexdigest(),
            splits=splits,
            inputs={name: [str(path) for path in paths] for name, paths in files.items() if paths},
            sources=sources,
            duplicates=duplicates,
            quarantined=dict(sorted(quarantined.items())),
            settings={
                "split": "by input" if fixed else list(fractions),
                "seed": seed,
                "shard_tokens": shard_tokens,
                **dataclasses.asdict(fields),
            },
            warnings=[
                f"the {name} split is empty: give more documents, a larger fraction or its own input"
                for name in ("validation", "test")
                if not entries[name] and (groups[name] or (not fixed and fractions[SPLITS.index(name)] > 0))
            ],
        )
        write_text(out / MANIFEST, manifest.to_json())
    return manifest


@contextmanager
def _writing(out: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataError(f"{out}: preparation stopped ({error}): check space and permissions") from error


def _clear_output(out: Path, overwrite: bool) -> None:
    """Make `out` ready: refuse a finished data set unless told otherwise, remove the leftovers of an unfinished one."""
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out}: is a file; name a directory for the data set")
    if (out / MANIFEST).exists() and not overwrite:
        raise UsageError(f"{out}: already holds a data set; choose another directory or ask to overwrite it")
    try:
        out.mkdir(parents=True, exist_ok=True)
        # The manifest goes first: without it, what is left of the old set cannot be taken for a complete one.
        (out / MANIFEST).unlink(missing_ok=True)
        for split in SPLITS:
            for path in (*(out / split).glob(f"{split}-*{SUFFIX}"), *(out / split).glob(f".{split}-*{SUFFIX}.tmp")):
                path.unlink()
    except OSError as error:
        raise UsageError(f"{out}: cannot be written ({error})") from error


def _collect(
    out: Path,
    spool: IO[bytes],
    files: dict[str, list[Path]],
    fixed: bool,
    fractions: tuple[float, float, float],
    seed: int,
    fields: Fields,
    progress: Progress | None,
) -> tuple[dict[str, list[_Entry]], int, Counter[str]]:
    """Read everything once: good texts into `spool`, bad ones into the quarantine file."""
    entries: dict[str, list[_Entry]] = {name: [] for name in SPLITS}
    seen: set[bytes] = set()
    quarantined: Counter[str] = Counter()
    duplicates = offset = before = 0
    total = sum(path.stat().st_size for paths in files.values() for path in paths)
    salt = seed.to_bytes(16, "little", signed=True)

    def on_read(position: int) -> None:
        if progress:
            progress("read", min(before + position, total), total)

    with (out / QUARANTINE).open("w", encoding="utf-8", errors="backslashreplace") as quarantine:
        for group, paths in files.items():
            for path in paths:
                for item in read_documents(path, fields, on_read):
                    if isinstance(item, Rejected):
                        quarantined[item.reason] += 1
                        quarantine.write(json.dumps(dataclasses.asdict(item), ensure_ascii=False) + "\n")
                        continue
                    digest = hashlib.sha256(item.text).digest()
                    if digest in seen:
                        duplicates += 1
                        continue
                    seen.add(digest)
                    split = group if fixed else split_of(digest, fractions)
                    if fixed and split != "train":
                        key = offset.to_bytes(16, "big")  # given held-out text keeps its order
                    else:
                        key = hashlib.blake2b(digest, digest_size=16, salt=salt).digest()
                    entries[split].append(_Entry(key, offset, len(item.text), item.source, item.id))
                    spool.write(item.text)
                    offset += len(item.text)
                before += path.stat().st_size
                on_read(0)
    return entries, duplicates, quarantined


def _write(
    out: Path,
    spool: IO[bytes],
    entries: dict[str, list[_Entry]],
    tokenizer: Tokenizer,
    shard_tokens: int,
    progress: Progress | None,
) -> tuple[dict[str, SplitInfo], dict[str, dict[str, dict[str, int]]]]:
    """Tokenise the spooled texts in the order of their keys and write the shards of every split."""
    sources: dict[str, dict[str, dict[str, int]]] = defaultdict(dict)
    splits = {}
    total = sum(entry.size for kept in entries.values() for entry in kept)
    done = 0
    for split, kept in entries.items():
        tokens = 0
        with ShardWriter(out / split, split, tokenizer, shard_tokens) as writer:
            for entry in sorted(kept, key=lambda entry: entry.key):
                spool.seek(entry.offset)
                ids = tokenizer.encode(spool.read(entry.size))
                writer.add(ids, entry.size, entry.source, entry.id)
                counts = sources[entry.source].setdefault(split, {"documents": 0, "tokens": 0, "bytes": 0})
                counts["documents"] += 1
                counts["tokens"] += len(ids) + 2
                counts["bytes"] += entry.size
                tokens += len(ids) + 2
                done += entry.size
                if progress:
                    progress("write", done, total)
        shards = writer.shards
        splits[split] = SplitInfo(len(kept), tokens, sum(entry.size for entry in kept), fingerprint_of(shards), shards)
    return splits, dict(sources)
