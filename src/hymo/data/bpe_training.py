"""Training a byte-level BPE tokenizer with Hugging Face's `tokenizers`, and what it makes of texts.

The same inputs and settings give the same file, byte for byte: the library counts pieces and settles ties by a fixed
rule, and nothing of the machine or the clock is written.

Inputs take turns: the next document comes from the input that has given the fewest bytes for its weight so far. The
sample ends before the document that would take it beyond its limit. Memory follows the number of different pieces, not
the size of the text, but the library counts pairs in 32 bits, so no more than `MOST_BYTES` are taken.
"""

from __future__ import annotations

import hashlib
import importlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hymo.core.errors import DataError, UsageError
from hymo.core.files import write_text, writing
from hymo.data.bpe import SPECIALS, SPLIT, BPETokenizer, byte_letters
from hymo.data.sources import Document, Fields, Rejected, find_files, parse_block, read_blocks
from hymo.data.tokenizer import TOKENIZER, Tokenizer

REPORT = "report.json"
VOCAB_SIZE = 64_256
"""Entries unless told otherwise: 256 bytes and 64,000 specials and merges."""
MOST_BYTES = 4_000_000_000
_BLOCK_BYTES = 1 << 20
_BATCH = 64
# Bytes done and in all, of the files as they lie on the disk.
Progress = Callable[[int, int], None]


@dataclass
class SourceCounts:
    """What a tokenizer makes of one source. `tokens` are those of the texts, without bos and eos."""

    documents: int = 0
    bytes: int = 0
    tokens: int = 0

    @property
    def bytes_per_token(self) -> float:
        """Mean length of a token."""
        return self.bytes / self.tokens


@dataclass
class Sample:
    """Documents of several inputs in turn, up to a limit; iterating once fills the counts.

    Attributes:
        inputs: files of each input.
        weights: bytes that each input gives, as shares of each other, as long as it lasts.
        limit: most bytes.
        documents, bytes: taken, by input.
        rejected: reason to count of documents that cannot be used.
        whole: whether everything was taken.
    """

    inputs: list[list[Path]]
    weights: list[float]
    limit: int
    fields: Fields = field(default_factory=Fields)
    progress: Progress | None = None
    documents: list[int] = field(default_factory=list)
    bytes: list[int] = field(default_factory=list)
    rejected: Counter[str] = field(default_factory=Counter)
    whole: bool = False

    def __iter__(self) -> Iterator[Document]:
        self.documents, self.bytes, self.rejected = [0] * len(self.inputs), [0] * len(self.inputs), Counter()
        self._sizes = {path: path.stat().st_size for files in self.inputs for path in files}
        self._read = dict.fromkeys(self._sizes, 0)
        streams = {i: self._stream(files) for i, files in enumerate(self.inputs)}
        while streams:
            turn = min(streams, key=lambda i: self.bytes[i] / self.weights[i])
            document = next(streams[turn], None)
            if document is None:
                del streams[turn]
                continue
            if sum(self.bytes) + len(document.text) > self.limit:
                return
            self.documents[turn] += 1
            self.bytes[turn] += len(document.text)
            yield document
        self.whole = True

    def _stream(self, files: Sequence[Path]) -> Iterator[Document]:
        for path in files:
            for block in read_blocks(path, self.fields, _BLOCK_BYTES):
                self._read[path] = block.position
                if self.progress:
                    self.progress(sum(self._read.values()), sum(self._sizes.values()))
                for item in parse_block(block, self.fields):
                    if isinstance(item, Document):
                        yield item
                    elif isinstance(item, Rejected):
                        self.rejected[item.reason] += 1


def sample_of(
    inputs: Sequence[str | Path],
    limit: int = MOST_BYTES,
    weights: Sequence[float] = (),
    fields: Fields | None = None,
    progress: Progress | None = None,
) -> Sample:
    """Check inputs and settings of a sample.

    Raises:
        UsageError: no input, one that cannot be read, a limit or weights out of range.
        DataError: an input is an empty file.
    """
    if not inputs:
        raise UsageError("no input files were given")
    if not 1 <= limit <= MOST_BYTES:
        raise UsageError(f"limit of {limit:,} bytes: must be 1 to {MOST_BYTES:,}")
    if weights and (len(weights) != len(inputs) or min(weights) <= 0):
        raise UsageError(f"weights {', '.join(map(str, weights))}: one above 0 for each of the {len(inputs)} inputs")
    files = [find_files([Path(path)]) for path in inputs]
    for path in (path for group in files for path in group):
        if path.stat().st_size == 0:
            raise DataError(f"{path}: the file is empty; leave it out or fill it")
    return Sample(files, list(weights) or [1.0] * len(files), limit, fields or Fields(), progress)


def count_tokens(tokenizer: Tokenizer, sample: Sample) -> dict[str, SourceCounts]:
    """Encode a sample and count by source, sources in the order of their names.

    Raises:
        DataError: the sample holds no usable document.
    """
    counts: dict[str, SourceCounts] = {}
    batch: list[Document] = []

    def count() -> None:
        for document, ids in zip(batch, tokenizer.encode_batch([each.text for each in batch]), strict=True):
            of_source = counts.setdefault(document.source, SourceCounts())
            of_source.documents += 1
            of_source.bytes += len(document.text)
            of_source.tokens += len(ids)
        batch.clear()

    for document in sample:
        batch.append(document)
        if len(batch) == _BATCH:
            count()
    count()
    _require_text(sample)
    return dict(sorted(counts.items()))


def total(counts: dict[str, SourceCounts]) -> SourceCounts:
    """The sum over sources."""
    values = counts.values()
    return SourceCounts(sum(c.documents for c in values), sum(c.bytes for c in values), sum(c.tokens for c in values))


def train(
    sample: Sample,
    out: str | Path,
    vocab_size: int = VOCAB_SIZE,
    *,
    overwrite: bool = False,
    on_phase: Callable[[str], None] | None = None,
) -> tuple[BPETokenizer, dict[str, Any]]:
    """Train on a sample, write ``tokenizer.json`` and ``report.json`` into `out` and return both.

    Args:
        sample: see `sample_of`.
        out: folder, made if it is not there.
        vocab_size: entries, exactly: specials, 256 bytes and merges.
        overwrite: replace a tokenizer that is already in `out`.
        on_phase: called with what is done next.

    Raises:
        UsageError: a size or place that cannot be; nothing has been written.
        DataError: no usable text, or too little for so many entries; nothing has been written.
        StorageError: the disk refuses.
    """
    out, smallest = Path(out), len(SPECIALS) + 256
    if vocab_size < smallest:
        raise UsageError(f"vocabulary of {vocab_size:,} entries: {smallest} are specials and bytes already")
    if (out / TOKENIZER).exists() and not overwrite:
        raise UsageError(f"{out / TOKENIZER}: is there already. Choose another folder or pass --overwrite.")
    say = on_phase or (lambda phase: None)
    say("reading and splitting the text")
    content = _train(sample, vocab_size, say)
    _require_text(sample)
    entries = len(json.loads(content)["model"]["vocab"])
    if entries != vocab_size:
        raise DataError(
            f"{sum(sample.bytes):,} bytes of text give {entries:,} entries, not {vocab_size:,}: "
            f"give more text or ask for at most {entries:,} entries"
        )
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
    write_text(out / TOKENIZER, content)
    say("counting the tokens of the text")
    tokenizer = BPETokenizer.load(out / TOKENIZER, str(out))
    report = _report(sample, tokenizer, vocab_size)
    write_text(out / REPORT, json.dumps(report, indent=1, ensure_ascii=False) + "\n")
    return tokenizer, report


def _train(sample: Sample, vocab_size: int, say: Callable[[str], None]) -> str:
    try:
        library: Any = importlib.import_module("tokenizers")
    except ImportError as error:
        raise UsageError("training needs the package tokenizers: pip install 'hymo[data]'") from error
    split, byte_level = library.pre_tokenizers.Split, library.pre_tokenizers.ByteLevel
    tokenizer = library.Tokenizer(library.models.BPE())
    tokenizer.pre_tokenizer = library.pre_tokenizers.Sequence(
        [split(library.Regex(SPLIT), "isolated"), byte_level(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = library.decoders.ByteLevel()
    trainer = library.trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIALS),
        # Every byte has an entry, whether the sample shows it or not: otherwise text would be lost.
        initial_alphabet=sorted(byte_letters().values()),
        show_progress=False,
    )

    def texts() -> Iterator[str]:
        for document in sample:
            yield document.text.decode("utf-8")
        say(f"merging pairs up to {vocab_size:,} entries")

    tokenizer.train_from_iterator(texts(), trainer)
    return str(tokenizer.to_str(pretty=True)) + "\n"


def _require_text(sample: Sample) -> None:
    if not sum(sample.bytes):
        found = ", ".join(f"{count} {reason}" for reason, count in sorted(sample.rejected.items()))
        why = f"unusable: {found}" if found else f"the first document exceeds the limit of {sample.limit:,} bytes"
        raise DataError(f"the inputs hold no usable document ({why})")


def _report(sample: Sample, tokenizer: BPETokenizer, vocab_size: int) -> dict[str, Any]:
    """What the tokenizer was made of. Nothing in it depends on when or where."""
    counts = count_tokens(tokenizer, sample)
    inputs = [
        {
            "files": [{"name": path.name, "bytes": path.stat().st_size, "sha256": _sha256(path)} for path in files],
            "weight": weight,
            "documents": documents,
            "text_bytes": text_bytes,
        }
        for files, weight, documents, text_bytes in zip(
            sample.inputs, sample.weights, sample.documents, sample.bytes, strict=True
        )
    ]
    everything = total(counts)
    return {
        "fingerprint": tokenizer.fingerprint(),
        "settings": {
            "vocab_size": vocab_size,
            "split": SPLIT,
            "specials": list(SPECIALS),
            "limit_bytes": sample.limit,
            "fields": asdict(sample.fields),
            "tokenizers": str(importlib.import_module("tokenizers").__version__),
        },
        "inputs": inputs,
        "rejected": dict(sorted(sample.rejected.items())),
        "whole_input": sample.whole,
        **_counts(everything),
        "sources": {name: _counts(each) for name, each in counts.items()},
    }


def _counts(counts: SourceCounts) -> dict[str, Any]:
    return {**asdict(counts), "bytes_per_token": round(counts.bytes_per_token, 4)}


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
