"""What a preparation reads: feeds of streams of blocks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hymo.data.sources import Block, Fields, read_blocks


@dataclass(frozen=True)
class Feed:
    """Files of one kind, in order; each is a stream.

    Attributes:
        split: the split that all documents go to where splits are not chosen by hash.
        files: the inputs.
        train_tokens: training tokens to take, bos and eos included, in reading order; None: all.
        name: source name of every document; None: what the document says.
    """

    split: str
    files: tuple[Path, ...]
    train_tokens: int | None = None
    name: str | None = None

    @property
    def streams(self) -> int:
        """How many streams there are."""
        return len(self.files)

    def blocks(self, stream: int, fields: Fields, block_bytes: int) -> Iterator[Block]:
        """Read one stream in blocks that depend on the input alone."""
        return read_blocks(self.files[stream], fields, block_bytes)

    def size(self, stream: int) -> int:
        """Bytes of a stream as stored, for progress."""
        return self.files[stream].stat().st_size

    def identity(self) -> dict[str, Any]:
        """What the result depends on: split, name, budget, and each file's place, size and time of change."""
        stats = [(str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns) for path in self.files]
        return {"split": self.split, "files": stats, "train_tokens": self.train_tokens, "name": self.name}

    def describe(self) -> list[str]:
        """Name the inputs, for the manifest."""
        return [str(path) for path in self.files]
