"""What a preparation reads: feeds of streams of blocks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hymo.data.filters import Filters
from hymo.data.sources import Block, Fields, read_blocks


@dataclass(frozen=True)
class Feed:
    """Files of one kind, in order; each is a stream.

    Attributes:
        split: the split that all documents go to where splits are not chosen by hash.
        files: the inputs.
        train_tokens: training tokens to take, bos and eos included, in reading order; None: all.
        name: source name of every document; None: what the document says.
        fields: field names of this feed; None: those of the job.
        filters: what to leave out; None: nothing.
        fractions: shares of train, validation and test by hash; None: those of the job.
    """

    split: str
    files: tuple[Path, ...]
    train_tokens: int | None = None
    name: str | None = None
    fields: Fields | None = None
    filters: Filters | None = None
    fractions: tuple[float, float, float] | None = None

    @property
    def streams(self) -> int:
        """How many streams there are."""
        return len(self.files)

    def blocks(self, stream: int, fields: Fields, block_bytes: int) -> Iterator[Block]:
        """Read one stream in blocks that depend on the input alone."""
        return read_blocks(self.files[stream], fields, block_bytes, self.filters)

    def size(self, stream: int) -> int:
        """Bytes of a stream as stored, for progress; 0 if nobody knows."""
        return self.files[stream].stat().st_size

    def inputs(self) -> list[Any]:
        """Describe each input so that a changed one is noticed: place, size and time of change."""
        return [(str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns) for path in self.files]

    def identity(self) -> dict[str, Any]:
        """Everything that the result depends on."""
        own = {name: getattr(self, name) for name in ("split", "train_tokens", "name", "fields", "fractions")}
        return own | {"inputs": self.inputs(), "filters": self.filters.model_dump() if self.filters else None}

    def describe(self) -> list[str]:
        """Name the inputs, for the manifest."""
        return [str(path) for path in self.files]
