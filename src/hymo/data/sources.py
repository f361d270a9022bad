"""Documents out of local files: JSONL (plain, .gz, .xz, .zst), Parquet and plain text.

Readers never stop at a bad document: they yield a `Rejected` with file, line and reason instead.
"""

from __future__ import annotations

import dataclasses
import gzip
import importlib
import io
import json
import lzma
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeAlias, cast

from hymo.core.errors import UsageError
from hymo.data.filters import Filters

SUFFIXES = (".jsonl", ".jsonl.gz", ".jsonl.xz", ".jsonl.zst", ".parquet", ".txt")
_BOM = b"\xef\xbb\xbf"
# JSON may write one byte of text as six (\u0001); the rest is room for the other fields of the line.
_ESCAPE_FACTOR, _OTHER_FIELDS = 6, 1 << 16


@dataclass(frozen=True)
class Document:
    """One text, UTF-8, with the name of its source and an id."""

    text: bytes
    source: str
    id: str


@dataclass(frozen=True)
class Rejected:
    """A document left out: `line` counts from 1, `reason` is a short key, `detail` says more."""

    file: str
    line: int
    reason: str
    detail: str


@dataclass(frozen=True)
class Filtered:
    """A good document that its source's filters leave out; `reason` is a short key."""

    reason: str


@dataclass(frozen=True)
class Fields:
    """Where a JSON object keeps its text, source name and id, and how long a text may be in bytes.

    `text_chunk_bytes`: a .txt file becomes documents of about that size, cut at blank lines; 0 keeps it whole.
    """

    text: str = "text"
    source: str = "source"
    id: str = "id"
    max_document_bytes: int = 32 << 20
    text_chunk_bytes: int = 16 << 10


class _Frames(io.RawIOBase):
    """Decompresses frame after frame.

    Unlike the libraries' own readers it reports a truncated last frame (zstd) and whatever follows the frames that is
    none (xz, whose reader takes garbage for the end).
    """

    def __init__(self, raw: IO[bytes], new: Callable[[], Any], limit: tuple[int, ...] = ()) -> None:
        self._raw, self._new, self._limit = raw, new, limit
        self._frame: Any = None
        self._compressed = b""
        self._pending = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._pending:
            if not self._compressed and getattr(self._frame, "needs_input", True):
                self._compressed = self._raw.read(1 << 16)
                if not self._compressed:
                    if self._frame is not None:
                        raise EOFError("compressed file ended inside a frame")
                    return 0
            if self._frame is None:
                if self._limit:  # xz pads streams with zeros
                    self._compressed = self._compressed.lstrip(b"\0")
                    if not self._compressed:
                        continue
                self._frame = self._new()
            self._pending, self._compressed = self._frame.decompress(self._compressed, *self._limit), b""
            if self._frame.eof:
                self._compressed, self._frame = self._frame.unused_data, None
        size = min(len(buffer), len(self._pending))
        buffer[:size], self._pending = self._pending[:size], self._pending[size:]
        return size


def _zstd_decompressor(path: Path) -> tuple[Callable[[], Any], type[Exception]]:
    try:
        module: Any = importlib.import_module("zstandard")
    except ImportError as error:
        raise UsageError(f"{path}: reading .zst needs the package zstandard: pip install 'hymo[data]'") from error
    return lambda: module.ZstdDecompressor().decompressobj(), module.ZstdError


def _open(path: Path, raw: IO[bytes]) -> tuple[IO[bytes], tuple[type[Exception], ...]]:
    """Return the decompressed stream and the exceptions that a damaged file raises while it is read."""
    errors: tuple[type[Exception], ...] = (OSError, EOFError, zlib.error, lzma.LZMAError)
    if path.suffix == ".gz":
        return cast(IO[bytes], gzip.open(raw)), errors
    if path.suffix == ".xz":
        frames = _Frames(raw, lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ), (1 << 20,))
        return cast(IO[bytes], io.BufferedReader(frames, 1 << 20)), errors
    if path.suffix == ".zst":
        decompressor, error = _zstd_decompressor(path)
        return cast(IO[bytes], io.BufferedReader(_Frames(raw, decompressor))), (*errors, error)
    return raw, errors


def find_files(inputs: list[Path]) -> list[Path]:
    """Return the input files, directories replaced by the known files below them, sorted.

    Raises:
        UsageError: an input does not exist, is of an unknown kind, or is a directory without known files.
    """
    files = []
    for path in inputs:
        if path.is_dir():
            found = sorted(p for p in path.rglob("*") if p.is_file() and p.name.endswith(SUFFIXES))
            if not found:
                raise UsageError(f"{path}: no {', '.join(SUFFIXES)} files in this directory")
            files += found
        elif not path.exists():
            raise UsageError(f"{path}: no such file or directory")
        elif not path.name.endswith(SUFFIXES):
            raise UsageError(f"{path}: unknown kind of file; HyMo reads {', '.join(SUFFIXES)}")
        else:
            files.append(path)
    for path in files:
        try:
            path.open("rb").close()
        except OSError as error:
            raise UsageError(f"{path}: cannot be read ({error.strerror})") from error
        if path.suffix == ".zst":
            _zstd_decompressor(path)
        if path.suffix == ".parquet":
            require_pyarrow(path)
    return files


def require_pyarrow(path: Path) -> Any:
    """Return the package that reads Parquet.

    Raises:
        UsageError: it is not installed.
    """
    try:
        return importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise UsageError(f"{path}: reading .parquet needs the package pyarrow: pip install 'hymo[data]'") from error


def check_text(text: bytes, limit: int) -> tuple[str, str] | None:
    """Return (reason, detail) if a text is no use as a document, else None."""
    if len(text) > limit:
        return "oversized", f"{len(text):,} bytes, at most {limit:,} are taken"
    if not text.strip():
        return "empty", "no text but white space"
    if b"\0" in text:
        return "nul", "contains NUL characters: binary data?"
    return None


@dataclass(frozen=True)
class Line:
    """A line of JSONL, not parsed yet."""

    number: int
    data: bytes


@dataclass(frozen=True)
class Row:
    """A row of a table: the columns that are needed, text as str or UTF-8 bytes."""

    number: int
    record: dict[str, Any]


Item: TypeAlias = Line | Row | Document | Rejected


@dataclass
class Block:
    """Consecutive items of one file, of about `read_blocks`'s size, and how far the (compressed) file was read."""

    file: str
    items: list[Item]
    position: int


def size_of(item: Item, text_field: str) -> int:
    """Return about how many bytes an item holds."""
    if isinstance(item, Line):
        return len(item.data)
    if isinstance(item, Row):
        text = item.record.get(text_field)
        return 256 + (len(text) if isinstance(text, str | bytes) else 0)
    return 256 if isinstance(item, Rejected) else len(item.text)


def read_blocks(path: Path, fields: Fields, size: int, filters: Filters | None = None) -> Iterator[Block]:
    """Yield one file in blocks of about `size` bytes of text; where blocks end depends on nothing but file and size.

    A block of Parquet never crosses a row group. `filters` tells which further columns are read.
    """
    if path.suffix == ".parquet":
        from hymo.data.parquet import read_parquet

        yield from read_parquet(path, fields, size, filters.columns() if filters else ())
        return
    read = _text_items if path.suffix == ".txt" else _jsonl_items
    items: list[Item] = []
    held = line = 0
    with path.open("rb") as raw:
        stream, damage = _open(path, raw)
        try:
            for number, item in read(stream, path, fields):
                line = number
                items.append(item)
                held += size_of(item, fields.text)
                if held >= size:
                    yield Block(str(path), items, raw.tell())
                    items, held = [], 0
        except damage as error:
            items.append(Rejected(str(path), line + 1, "unreadable", f"the rest of the file is lost: {error}"))
        if items:
            yield Block(str(path), items, raw.tell())


def parse_block(
    block: Block, fields: Fields, filters: Filters | None = None
) -> Iterator[Document | Rejected | Filtered]:
    """Yield what a block holds: good documents, why others are none, and which the filters leave out."""
    for item in block.items:
        parsed = _parse_line(item, block.file) if isinstance(item, Line) else item
        record = parsed.record if isinstance(parsed, Row) else {}
        document = document_of(record, block.file, parsed.number, fields) if isinstance(parsed, Row) else parsed
        if filters is None or isinstance(document, Rejected):
            yield document
            continue
        text, reason = filters.apply(record, document.text.decode("utf-8"))
        yield Filtered(reason) if reason else dataclasses.replace(document, text=text.encode("utf-8"))


def read_documents(path: Path, fields: Fields) -> Iterator[Document | Rejected]:
    """Yield the documents of one file in order, and why others are none."""
    for block in read_blocks(path, fields, 1 << 20):
        yield from (item for item in parse_block(block, fields) if not isinstance(item, Filtered))


def _lines(stream: IO[bytes], limit: int) -> Iterator[tuple[int, bytes | None]]:
    """Yield (line number, line with its end), None for lines beyond `limit`, which are never held in memory."""
    number = 0
    while line := stream.readline(limit + 1):
        number += 1
        if number == 1:
            line = line.removeprefix(_BOM)
        if len(line) > limit and not line.endswith(b"\n"):
            while (rest := stream.readline(1 << 20)) and not rest.endswith(b"\n"):
                pass
            yield number, None
        else:
            yield number, line


def _jsonl_items(stream: IO[bytes], path: Path, fields: Fields) -> Iterator[tuple[int, Line | Rejected]]:
    limit = fields.max_document_bytes * _ESCAPE_FACTOR + _OTHER_FIELDS
    for number, line in _lines(stream, limit):
        if line is None:
            yield number, Rejected(str(path), number, "oversized", f"line longer than {limit:,} bytes")
        elif line.strip():
            yield number, Line(number, line)


def _parse_line(line: Line, file: str) -> Row | Rejected:
    def refuse(reason: str, detail: str) -> Rejected:
        return Rejected(file, line.number, reason, detail)

    try:
        record = json.loads(line.data.decode("utf-8"))
    except UnicodeDecodeError as error:
        return refuse("invalid_utf8", str(error))
    except (ValueError, RecursionError) as error:
        return refuse("bad_json", str(error))
    if not isinstance(record, dict):
        return refuse("not_an_object", f"a JSON {type(record).__name__}")
    return Row(line.number, record)


def document_of(record: dict[str, Any], file: str, number: int, fields: Fields) -> Document | Rejected:
    """Return the document of one record (a JSON object, a table's row), or why it is none."""

    def refuse(reason: str, detail: str) -> Rejected:
        return Rejected(file, number, reason, detail)

    text = record.get(fields.text)
    if not isinstance(text, str | bytes):
        reason = "not_a_string" if fields.text in record else "missing_field"
        return refuse(reason, f"field '{fields.text}' of {sorted(record)[:10]}")
    try:
        if isinstance(text, bytes):
            text.decode("utf-8")
            data = text
        else:
            data = text.encode("utf-8")
    except UnicodeDecodeError as error:
        return refuse("invalid_utf8", str(error))
    except UnicodeEncodeError as error:
        return refuse("invalid_unicode", f"lone surrogate at character {error.start}")
    if problem := check_text(data, fields.max_document_bytes):
        return refuse(*problem)
    name = Path(file).name
    source, identity = record.get(fields.source), record.get(fields.id)
    return Document(
        data,
        source if isinstance(source, str) and source else name.split(".")[0],
        str(identity) if isinstance(identity, str | int) and identity != "" else f"{name}:{number}",
    )


def _text_items(stream: IO[bytes], path: Path, fields: Fields) -> Iterator[tuple[int, Document | Rejected]]:
    """Cut at blank lines past the chunk size, at any line end past twice that; only a blank tail is dropped."""
    chunk: list[bytes] = []
    size, first, number = 0, 1, 0

    def finish() -> Document | Rejected:
        text = b"".join(chunk)
        try:
            text.decode("utf-8")
        except UnicodeDecodeError as error:
            line = first + text.count(b"\n", 0, error.start)
            return Rejected(str(path), line, "invalid_utf8", str(error))
        problem = check_text(text, fields.max_document_bytes)
        if problem:
            return Rejected(str(path), first, *problem)
        return Document(text, path.stem, f"{path.name}:{first}")

    whole, limit = not fields.text_chunk_bytes, fields.max_document_bytes
    oversized = f"longer than {limit:,} bytes without a place to cut"
    for number, line in _lines(stream, limit):
        if whole and (line is None or size + len(line) > limit):
            yield number, Rejected(str(path), 1, "oversized", oversized)
            return
        if line is None:
            if chunk:
                yield number, finish()
            yield number, Rejected(str(path), number, "oversized", oversized)
            chunk, size, first = [], 0, number + 1
            continue
        chunk.append(line)
        size += len(line)
        if not whole and (
            (size >= fields.text_chunk_bytes and not line.strip()) or size >= 2 * fields.text_chunk_bytes
        ):
            yield number, finish()
            chunk, size, first = [], 0, number + 1
    if chunk and (first == 1 or b"".join(chunk).strip()):
        yield number, finish()
