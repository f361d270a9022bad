"""What a compressor or a counting model makes of the same held-out bytes, in bits per byte.

A neural model is worth its price only below these: gzip and xz of the held-out bytes alone, an n-gram model trained on
the same text, and xz given the training text (which, unlike a small model, may copy any earlier passage).
"""

from __future__ import annotations

import gzip
import lzma
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hymo.core.errors import DataError, UsageError

SEPARATOR = b"\n\n"
_XZ_PRESET = 9 | lzma.PRESET_EXTREME
_MAX_ORDER = 8  # an n-gram of bytes has to fit into 64 bits


def join_documents(documents: Iterable[str | bytes]) -> bytes:
    """Return the documents in order with a blank line between them: the one form in which baselines get text."""
    return SEPARATOR.join(text.encode("utf-8") if isinstance(text, str) else text for text in documents)


def _require(data: bytes, name: str) -> None:
    if not data:
        raise DataError(f"the {name} text is empty: there is nothing to measure")


def gzip_bits_per_byte(heldout: bytes) -> float:
    """Bits per byte of ``gzip -9``."""
    _require(heldout, "held-out")
    return 8 * len(gzip.compress(heldout, compresslevel=9, mtime=0)) / len(heldout)


def xz_bits_per_byte(heldout: bytes) -> float:
    """Bits per byte of ``xz -9e``."""
    _require(heldout, "held-out")
    return 8 * _xz_size(heldout) / len(heldout)


def xz_given_training(training: bytes, heldout: bytes) -> float:
    """Bits per held-out byte that ``xz -9e`` adds when the held-out text follows the training text."""
    _require(heldout, "held-out")
    return 8 * (_xz_size(training + heldout) - _xz_size(training)) / len(heldout)


def _xz_size(data: bytes) -> int:
    return len(lzma.compress(data, preset=_XZ_PRESET))


def _grams(data: NDArray[np.uint64], n: int) -> NDArray[np.uint64]:
    """Return every n-gram as one integer, the last byte lowest, shape (max(0, len - n + 1),)."""
    grams = np.zeros(max(0, len(data) - n + 1), dtype=np.uint64)
    for offset in range(n):
        grams = (grams << np.uint64(8)) | data[offset : offset + len(grams)]
    return grams


def _look_up(keys: NDArray[np.uint64], values: NDArray[np.int64], queries: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return the value of each query among sorted unique `keys`, 0 where it is missing."""
    place = np.minimum(np.searchsorted(keys, queries), len(keys) - 1)
    return np.where(keys[place] == queries, values[place], 0)


class _Counts(NamedTuple):
    """Sorted n-grams h w with c(h w), and sorted contexts h with c(h) and N(h)."""

    grams: NDArray[np.uint64]
    counts: NDArray[np.int64]
    contexts: NDArray[np.uint64]
    totals: NDArray[np.int64]
    followers: NDArray[np.int64]


class WittenBell:
    """Interpolated Witten–Bell n-gram model of bytes with static counts (Witten and Bell 1991).

    ::

        P(w | h) = (c(h w) + N(h) P(w | h')) / (c(h) + N(h))        P(w | h') where h was never seen

    c counts in the training text, N(h) is the number of distinct bytes seen after h, h' drops the oldest byte of h, and
    below the empty context stands the uniform 1/256. `order` is the length of the n-grams: order 5 predicts a byte from
    up to four before it. The first bytes of a text are predicted from the fewer that there are.
    """

    def __init__(self, order: int = 5) -> None:
        if not 1 <= order <= _MAX_ORDER:
            raise UsageError(f"order {order} must be in 1..{_MAX_ORDER}")
        self.order = order
        self._tables: list[_Counts] = []

    def fit(self, training: bytes) -> WittenBell:
        """Count the n-grams of `training`, replacing earlier counts; return self."""
        _require(training, "training")
        data = np.frombuffer(training, dtype=np.uint8).astype(np.uint64)
        self._tables = []
        for n in range(1, min(self.order, len(data)) + 1):
            grams, counts = np.unique(_grams(data, n), return_counts=True)
            # Sorted n-grams of one context stand together.
            contexts, first, followers = np.unique(grams >> np.uint64(8), return_index=True, return_counts=True)
            self._tables.append(_Counts(grams, counts, contexts, np.add.reduceat(counts, first), followers))
        return self

    def probabilities(self, text: bytes) -> NDArray[np.float64]:
        """Return the probability of every byte of `text` given those before it, shape (len(text),)."""
        data = np.frombuffer(text, dtype=np.uint8).astype(np.uint64)
        probability = np.full(len(data), 1 / 256)
        for n, table in enumerate(self._tables, start=1):
            queries = _grams(data, n)
            histories = queries >> np.uint64(8)
            seen = _look_up(table.contexts, table.totals, histories)
            distinct = _look_up(table.contexts, table.followers, histories)
            lower = probability[n - 1 :]
            mixed = (_look_up(table.grams, table.counts, queries) + distinct * lower) / np.maximum(seen + distinct, 1)
            probability[n - 1 :] = np.where(seen > 0, mixed, lower)
        return probability

    def bits_per_byte(self, heldout: bytes) -> float:
        """Return the mean of -log2 P over the bytes of `heldout`.

        Raises:
            DataError: `heldout` is empty.
            UsageError: `fit` has not been called.
        """
        _require(heldout, "held-out")
        if not self._tables:
            raise UsageError("fit the Witten-Bell model to a training text first")
        return float(-np.log2(self.probabilities(heldout)).mean())
