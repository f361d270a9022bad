"""Shards: token files that are memory-mapped for reading and checked before use.

One rule for document ends (everywhere in HyMo): a stored document is ``bos + text tokens + eos``. The model thus meets
a document's start in training, evaluation and generation alike as the single token bos, and its first text token is
predicted from it. bos itself is never a target, since what precedes it belongs to another document.

Layout, all little-endian, every section padded with zeros to a multiple of 64 bytes::

    magic "HYMOSHRD" · uint32 version · uint32 header length · header (JSON, padded with spaces) · SHA-256 of all before
    tokens          uint16 below 65,536 vocabulary entries, else uint32, (tokens,)
    offsets         int64 (documents + 1,): document i is tokens[offsets[i]:offsets[i + 1]]
    text_bytes      int64 (documents,): bytes of the original UTF-8 text
    digests         uint8 (documents * 32,): SHA-256 of each original text
    source_index    int32 (documents,): into the header's list of source names
    id_offsets      int64 (documents + 1,): into id_bytes
    id_bytes        uint8: the document ids, UTF-8, one after the other

The header holds the SHA-256 of every section, padding included, so that no byte of a shard is outside a checksum.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hymo.core.errors import DataError
from hymo.data.tokenizer import Tokenizer

MAGIC = b"HYMOSHRD"
VERSION = 2
SUFFIX = ".hymo"
DEFAULT_SHARD_TOKENS = 50_000_000
_PRELUDE = struct.Struct("<8sII")
DIGEST_BYTES = 32
_ALIGN = 64
_SECTIONS = ("tokens", "offsets", "text_bytes", "digests", "source_index", "id_offsets", "id_bytes")


def _padded(size: int) -> int:
    return -(-size // _ALIGN) * _ALIGN


def _section_digest(data: NDArray[Any]) -> str:
    """SHA-256 of a section that includes its zero padding."""
    digest = hashlib.sha256(data.view(np.uint8).data)
    digest.update(bytes(_padded(data.nbytes) - data.nbytes))
    return digest.hexdigest()


@dataclass(frozen=True)
class ShardInfo:
    """What a manifest keeps of one shard. `digest` is the SHA-256 of its header, which covers its content."""

    file: str
    tokens: int
    documents: int
    text_bytes: int
    digest: str


class ShardWriter:
    """Writes the documents of one split into shards ``<split>-<index>.hymo`` in `directory`, counted from `first`.

    A document never crosses a shard. A shard appears under its name only when it is complete and on the disk
    (temporary file, fsync, rename). Use it as a context manager; `close` returns the list of shards.
    """

    def __init__(
        self,
        directory: str | Path,
        split: str,
        tokenizer: Tokenizer,
        shard_tokens: int = DEFAULT_SHARD_TOKENS,
        first: int = 0,
    ) -> None:
        self.directory = Path(directory)
        self.split = split
        self.tokenizer = tokenizer
        self.shard_tokens = shard_tokens
        self._first = first
        self.shards: list[ShardInfo] = []
        self._dtype = np.dtype("<u2" if tokenizer.vocab_size < 65_536 else "<u4")
        self._clear()
        self.directory.mkdir(parents=True, exist_ok=True)

    def _clear(self) -> None:
        self._documents: list[NDArray[Any]] = []
        self._text_bytes: list[int] = []
        self._digests: list[bytes] = []
        self._ids: list[bytes] = []
        self._source_index: list[int] = []
        self._sources: dict[str, int] = {}
        self._tokens = 0

    def add(
        self,
        ids: NDArray[np.integer[Any]],
        text_bytes: int,
        source: str = "",
        document_id: str = "",
        digest: bytes | None = None,
    ) -> None:
        """Store one document: `ids` (n,) from `encode`, without specials; `text_bytes` of the original text.

        `digest` is the SHA-256 of that text; without it, it is taken of what `ids` decode to.

        Raises:
            DataError: the document is empty, longer than a shard, or contains ids that text cannot have.
        """
        tok = self.tokenizer
        where = f"document '{document_id}' of source '{source}'"
        if len(ids) == 0 or text_bytes <= 0:
            raise DataError(f"{where} is empty: leave it out")
        if len(ids) + 2 > self.shard_tokens:
            raise DataError(f"{where} has {len(ids) + 2:,} tokens, a shard holds {self.shard_tokens:,}: cut it")
        if ids.min() < 0 or ids.max() >= tok.vocab_size or np.isin(ids, (tok.bos_id, tok.eos_id, tok.pad_id)).any():
            raise DataError(f"{where} has special ids or ids outside 0..{tok.vocab_size - 1}: encode it again")
        if self._tokens + len(ids) + 2 > self.shard_tokens:
            self._flush()
        self._documents.append(np.concatenate(([tok.bos_id], ids, [tok.eos_id])).astype(self._dtype))
        self._text_bytes.append(text_bytes)
        self._digests.append(digest or hashlib.sha256(tok.decode_bytes(ids)).digest())
        self._ids.append(document_id.encode("utf-8", errors="replace"))
        self._source_index.append(self._sources.setdefault(source, len(self._sources)))
        self._tokens += len(ids) + 2

    def _flush(self) -> None:
        if not self._documents:
            return
        sections: dict[str, NDArray[Any]] = {
            "tokens": np.concatenate(self._documents),
            "offsets": np.cumsum([0, *map(len, self._documents)], dtype="<i8"),
            "text_bytes": np.array(self._text_bytes, dtype="<i8"),
            "digests": np.frombuffer(b"".join(self._digests), dtype=np.uint8),
            "source_index": np.array(self._source_index, dtype="<i4"),
            "id_offsets": np.cumsum([0, *map(len, self._ids)], dtype="<i8"),
            "id_bytes": np.frombuffer(b"".join(self._ids), dtype=np.uint8),
        }
        tok = self.tokenizer
        header = {
            "split": self.split,
            "dtype": "uint16" if self._dtype.itemsize == 2 else "uint32",
            "tokens": self._tokens,
            "documents": len(self._documents),
            "text_bytes": sum(self._text_bytes),
            "specials": {"eos": tok.eos_id, "bos": tok.bos_id, "pad": tok.pad_id},
            "vocab_size": tok.vocab_size,
            "tokenizer": tok.fingerprint(),
            "sources": list(self._sources),
            "sections": {
                name: {"dtype": data.dtype.str, "count": len(data), "sha256": _section_digest(data)}
                for name, data in sections.items()
            },
        }
        text = json.dumps(header, sort_keys=True).encode()
        text = text.ljust(_padded(_PRELUDE.size + len(text) + DIGEST_BYTES) - _PRELUDE.size - DIGEST_BYTES)
        head = _PRELUDE.pack(MAGIC, VERSION, len(text)) + text
        digest = hashlib.sha256(head)

        path = self.directory / f"{self.split}-{self._first + len(self.shards):05d}{SUFFIX}"
        temporary = path.with_name(f".{path.name}.tmp")
        try:
            with temporary.open("wb") as file:
                file.write(head + digest.digest())
                for data in sections.values():
                    file.write(data.tobytes())
                    file.write(bytes(_padded(data.nbytes) - data.nbytes))
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
            _fsync_directory(self.directory)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise DataError(f"{path}: cannot write the shard ({error}): check space and permissions") from error
        self.shards.append(
            ShardInfo(path.name, self._tokens, len(self._documents), sum(self._text_bytes), digest.hexdigest())
        )
        self._clear()

    def close(self) -> list[ShardInfo]:
        """Write what is buffered and return all shards in order."""
        self._flush()
        return self.shards

    def __enter__(self) -> ShardWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        if kind is None:
            self.close()


def _fsync_directory(directory: Path) -> None:
    """Make a rename durable; a no-op where directories cannot be opened (Windows)."""
    try:
        descriptor = os.open(directory, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class ShardReader:
    """A memory-mapped shard. Opening checks magic, version, header, size, tokenizer and the document index.

    Attributes:
        tokens: (tokens,) uint16 or uint32, bos and eos included.
        offsets: (documents + 1,) int64.
        text_bytes: (documents,) int64.
        digests: (documents, 32) uint8, SHA-256 of each original text.
        sources: names that `source` looks up.
        digest: SHA-256 of the header, hence of the content.

    Raises:
        DataError: with file and reason. With `verify` every byte is read and compared with its checksum; without, the
            token section is trusted until `verify` is called.
    """

    def __init__(self, path: str | Path, tokenizer: Tokenizer | None = None, verify: bool = False) -> None:
        self.path = Path(path)
        try:
            size = self.path.stat().st_size
            with self.path.open("rb") as file:
                prelude = file.read(_PRELUDE.size)
                self._header_end, header_text, self.digest = self._read_header(file.read, prelude, size)
        except OSError as error:
            raise DataError(f"{self.path}: cannot read the shard ({error})") from error
        self.header: dict[str, Any] = json.loads(header_text)
        self.split: str = self.header["split"]
        self.sources: list[str] = self.header["sources"]
        self.n_tokens: int = self.header["tokens"]
        self.n_documents: int = self.header["documents"]
        self.n_text_bytes: int = self.header["text_bytes"]

        sections = self.header["sections"]
        starts, position = {}, self._header_end
        for name in _SECTIONS:
            starts[name] = position
            position += _padded(sections[name]["count"] * np.dtype(sections[name]["dtype"]).itemsize)
        if size != position:
            kind = "truncated" if size < position else "longer than its header says"
            raise self._refuse(f"{kind}: {size:,} bytes, expected {position:,}")
        if tokenizer is not None and tokenizer.fingerprint() != self.header["tokenizer"]:
            raise DataError(
                f"{self.path}: foreign tokenizer: written with {self.header['tokenizer'][:12]}…, this run uses "
                f"'{tokenizer.name}' {tokenizer.fingerprint()[:12]}…. Name the set's own, in a run with --set "
                "run.tokenizer=PATH, or prepare the text again with the run's."
            )
        # One mapping for all sections, since each holds a file descriptor; a plain view, since slicing np.memmap itself
        # costs a Python call each time.
        self._raw: NDArray[np.uint8] = np.asarray(np.memmap(self.path, np.uint8, "r"))
        self._sections: dict[str, NDArray[Any]] = {}
        for name in _SECTIONS:
            dtype = np.dtype(sections[name]["dtype"])
            stop = starts[name] + sections[name]["count"] * dtype.itemsize
            self._sections[name] = self._raw[starts[name] : stop].view(dtype)
        self.tokens = self._sections["tokens"]
        self.offsets = self._sections["offsets"]
        self.text_bytes = self._sections["text_bytes"]
        self.digests = self._sections["digests"].reshape(-1, DIGEST_BYTES)
        self._check(_SECTIONS if verify else ("offsets", "text_bytes"))

    def _refuse(self, reason: str) -> DataError:
        return DataError(f"{self.path}: {reason}. Prepare the data set again or restore the file from a copy")

    def _read_header(self, read: Any, prelude: bytes, size: int) -> tuple[int, bytes, str]:
        if prelude[:8] != MAGIC[: len(prelude[:8])] or not prelude:
            raise self._refuse("not a HyMo shard (wrong magic)" if prelude else "truncated: the file is empty")
        if len(prelude) < _PRELUDE.size:
            raise self._refuse("truncated inside the header")
        _, version, length = _PRELUDE.unpack(prelude)
        if version != VERSION:
            raise self._refuse(f"shard format version {version}, this HyMo reads version {VERSION}")
        if _PRELUDE.size + length + DIGEST_BYTES > size:
            raise self._refuse("truncated or damaged inside the header")
        text, stored = read(length), read(DIGEST_BYTES)
        digest = hashlib.sha256(prelude + text)
        if digest.digest() != stored:
            raise self._refuse("damaged: the header does not match its checksum")
        return _PRELUDE.size + length + DIGEST_BYTES, text, digest.hexdigest()

    def _check(self, names: tuple[str, ...]) -> None:
        start = self._header_end
        for name in _SECTIONS:
            size = _padded(self._sections[name].nbytes)
            if name in names and size:
                found = hashlib.sha256(self._raw[start : start + size].data).hexdigest()
                if found != self.header["sections"][name]["sha256"]:
                    raise self._refuse(f"damaged: section '{name}' does not match its checksum")
            start += size

    def verify(self, *sections: str) -> None:
        """Read every byte, or those of some sections, and compare it with its checksum.

        Raises:
            DataError: naming the damaged section.
        """
        self._check(sections or _SECTIONS)

    def document(self, index: int) -> NDArray[Any]:
        """Return document `index` as stored: bos, text tokens, eos."""
        return self.tokens[self.offsets[index] : self.offsets[index + 1]]

    @property
    def source_index(self) -> NDArray[np.int32]:
        """Which of `sources` each document came from, (documents,)."""
        return self._sections["source_index"]

    def source(self, index: int) -> str:
        """Return the source name of document `index`."""
        return self.sources[int(self._sections["source_index"][index])]

    def document_id(self, index: int) -> str:
        """Return the id of document `index`."""
        start, stop = self._sections["id_offsets"][index : index + 2]
        return self._sections["id_bytes"][start:stop].tobytes().decode("utf-8")


def verify(path: str | Path, tokenizer: Tokenizer | None = None) -> ShardInfo:
    """Check every byte of one shard and return its facts.

    Raises:
        DataError: the shard is damaged or belongs to another tokenizer.
    """
    reader = ShardReader(path, tokenizer, verify=True)
    return ShardInfo(reader.path.name, reader.n_tokens, reader.n_documents, reader.n_text_bytes, reader.digest)
