"""Access to the many parts of a preparation without as many open files.

A mapped shard holds a file descriptor, and 30 B tokens are encoded into tens of thousands of parts. What the plan needs
of a part is therefore copied out of it; for the documents themselves, as many parts stay open as the system allows.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hymo.data.shards import ShardReader

_SPARE = 128
"""Descriptors left to everything else."""
_MOST = 60_000
"""Linux allows a process 65,530 mappings."""


@dataclass(frozen=True)
class PartIndex:
    """What is known of the documents of a part without their tokens.

    Attributes:
        name: of its file.
        digests: (documents, 32) uint8.
        lengths: (documents,) int64, tokens with bos and eos.
        text_bytes: (documents,) int64.
        source_index: (documents,) int32, into `sources`.
        sources: names.
    """

    name: str
    digests: NDArray[np.uint8]
    lengths: NDArray[np.int64]
    text_bytes: NDArray[np.int64]
    source_index: NDArray[np.int32]
    sources: list[str]

    @property
    def documents(self) -> int:
        """How many there are."""
        return len(self.lengths)


class Parts:
    """The parts of one folder, remembered while they are used."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._indices: dict[str, PartIndex] = {}
        self._readers: OrderedDict[str, ShardReader] = OrderedDict()
        self._capacity = 0

    def index(self, name: str) -> PartIndex | None:
        """Return what a part holds, None if there is no such file.

        Raises:
            DataError: the part is damaged.
        """
        if name not in self._indices:
            if not (self._folder / name).is_file():
                return None
            reader = ShardReader(self._folder / name)
            reader.verify("digests", "source_index")
            self._indices[name] = PartIndex(
                name,
                np.array(reader.digests),
                np.diff(reader.offsets),
                np.array(reader.text_bytes),
                np.array(reader.source_index),
                reader.sources,
            )
        return self._indices[name]

    def reader(self, name: str) -> ShardReader:
        """Return an open part; the one that was not used for the longest time is closed if there are too many."""
        if name in self._readers:
            self._readers.move_to_end(name)
            return self._readers[name]
        self._capacity = self._capacity or open_files_allowed()
        while len(self._readers) >= self._capacity:
            self._readers.popitem(last=False)
        return self._readers.setdefault(name, ShardReader(self._folder / name))

    def clear(self) -> None:
        """Forget and close everything."""
        self._indices.clear()
        self._readers.clear()

    def __reduce__(self) -> tuple[Any, ...]:
        """Other processes open files of their own."""
        return type(self), (self._folder,)


def open_files_allowed() -> int:
    """Raise this process's limit of open files as far as it may and return how many parts fit into it."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return _MOST
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or hard > _MOST + _SPARE:
        hard = _MOST + _SPARE
    if soft == resource.RLIM_INFINITY:
        return _MOST
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        soft = hard
    return max(1, soft - _SPARE)
