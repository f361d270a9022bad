"""Fixed evaluation windows: every text token of the held-out documents is scored exactly once.

A document is stored as ``bos t1 … tn eos``. Evaluation scores t1 … tn, each predicted from bos and the tokens before it
in the same document, as in training; eos is left out, because no byte of the text stands behind it. Bits per byte is
then Σ nats / ln 2 / Σ bytes with the byte counts of the original texts.

A document of more than T text tokens is cut into windows. Without overlap (stride = T) window k reads tokens
[kT, kT + T) of ``bos t1 … tn`` and scores [kT + 1, kT + T]: the last scored token is the first input of the next
window. With stride < T, windows start every `stride` tokens and score only their last `stride` targets, so every token
but the document's first T has at least T - stride tokens of context.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hymo.core.errors import UsageError
from hymo.data.dataset import Split
from hymo.data.tokenizer import Tokenizer


@dataclass(frozen=True)
class Cut:
    """Tokens [start, stop) of a document as stored, of which those from `score` on are targets; one window."""

    document: int
    start: int
    stop: int
    score: int
    bytes: int


def cut_document(document: int, n_text: int, n_bytes: int, seq_len: int, stride: int) -> Iterator[Cut]:
    """Cut ``bos t1 … tn`` into windows of at most seq_len inputs; the bytes are put down to the last one."""
    scored, start = 0, 0
    while scored < n_text:
        stop = min(start + seq_len + 1, n_text + 1)
        last = stop == n_text + 1
        yield Cut(document, start, stop, scored + 1, n_bytes if last else 0)
        scored, start = stop - 1, start + stride


class EvaluationWindows:
    """Batches over the documents of a split in stored order.

    Args:
        split: the held-out documents.
        seq_len: T, input tokens per row.
        stride: tokens between window starts in a long document, 1..T; None is T (no overlap).
        packed: put several windows into one row, separated by cu_seqlens; else one window per row.
        pad_id: fills the rest of a row.
        max_tokens: take the leading text up to exactly this many text tokens.
        max_bytes: take the leading text up to this many bytes, to the last token that fits.
        tokenizer: needed where a limit cuts a document: its bytes are then counted by decoding.

    Attributes:
        n_documents, n_tokens, n_bytes: what one pass scores.
        n_rows: rows of T + 1 tokens in one pass.
    """

    def __init__(
        self,
        split: Split,
        seq_len: int,
        *,
        stride: int | None = None,
        packed: bool = True,
        pad_id: int = 2,
        max_tokens: int | None = None,
        max_bytes: int | None = None,
        tokenizer: Tokenizer | None = None,
    ) -> None:
        stride = seq_len if stride is None else stride
        if seq_len < 1 or not 1 <= stride <= seq_len:
            raise UsageError(f"evaluation needs seq_len >= 1 and 1 <= stride <= seq_len, not {seq_len} and {stride}")
        self.split = split
        self.seq_len = seq_len
        self.packed = packed
        self.pad_id = pad_id
        text_tokens = split.lengths - 2
        text_bytes = split.text_bytes
        for name, limit in (("max_tokens", max_tokens), ("max_bytes", max_bytes)):
            if limit is not None:
                text_tokens, text_bytes = self._leading(text_tokens, text_bytes, name, limit, tokenizer)
        self._text_tokens = text_tokens
        self.n_documents = len(text_tokens)
        self.n_tokens = int(text_tokens.sum())
        self.n_bytes = int(text_bytes.sum())
        self._rows = self._layout(
            piece
            for document, (n_text, n_bytes) in enumerate(zip(text_tokens.tolist(), text_bytes.tolist(), strict=True))
            for piece in cut_document(document, n_text, n_bytes, seq_len, stride)
        )
        self.n_rows = len(self._rows)

    def _leading(
        self,
        tokens: NDArray[np.int64],
        sizes: NDArray[np.int64],
        unit: str,
        limit: int,
        tokenizer: Tokenizer | None,
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Text tokens and bytes of each document up to a limit in tokens or bytes; the last one may be cut."""
        in_bytes = unit == "max_bytes"
        ends = np.cumsum(sizes if in_bytes else tokens)
        whole = int(np.searchsorted(ends, limit, side="right"))
        if whole == len(ends):
            return tokens, sizes
        left = limit - (int(ends[whole - 1]) if whole else 0)
        keep, size = 0, 0
        if left > 0:
            if tokenizer is None:
                raise UsageError(f"{unit} needs the tokenizer, to count the bytes of a document cut short")
            ids = self.split.document(whole)[1 : 1 + min(left, int(tokens[whole]))]  # a text token has a byte or more
            byte_ends = np.cumsum([len(tokenizer.decode_bytes([int(i)])) for i in ids])
            keep = int(np.searchsorted(byte_ends, left, side="right")) if in_bytes else left
            size = int(byte_ends[keep - 1]) if keep else 0
        if whole + keep == 0:
            raise UsageError(f"{unit} {limit} holds no token of the {self.split.name} split: raise it")
        if not keep:
            return tokens[:whole], sizes[:whole]
        return np.append(tokens[:whole], keep), np.append(sizes[:whole], size)

    def _layout(self, pieces: Iterator[Cut]) -> list[list[Cut]]:
        rows: list[list[Cut]] = []
        room = 0
        for piece in pieces:
            size = piece.stop - piece.start
            if not self.packed or size > room:
                rows.append([])
                room = self.seq_len + 1
            rows[-1].append(piece)
            room -= size
        return rows

    def documents(self, tokenizer: Tokenizer) -> list[bytes]:
        """Return the bytes that one pass scores, per document: what a baseline must be given."""
        return [
            tokenizer.decode_bytes(self.split.document(index)[1 : 1 + int(n)])
            for index, n in enumerate(self._text_tokens)
        ]

    def batches(self, batch_size: int, *, rank: int = 0, world: int = 1) -> Iterator[dict[str, NDArray[Any]]]:
        """Yield batches of at most `batch_size` rows; rank r of w takes every w-th batch.

        Each is a dict: ``tokens`` (B, T + 1) int64; ``mask`` (B, T) bool, True where the target tokens[:, 1:] is
        scored; ``bytes`` (B,) int64, original bytes of the documents whose last token the row scores, hence summing to
        `n_bytes` over all rows of all ranks; and, when packed, ``cu_seqlens`` int32 over the B·(T + 1) tokens laid end
        to end, one boundary at every row start, window start and start of padding.
        """
        if batch_size < 1 or not 0 <= rank < world:
            raise UsageError(f"batch_size {batch_size} must be at least 1 and rank {rank} in 0..{world - 1}")
        width = self.seq_len + 1
        for first in range(rank * batch_size, self.n_rows, world * batch_size):
            rows = self._rows[first : first + batch_size]
            tokens = np.full((len(rows), width), self.pad_id, dtype=np.int64)
            mask = np.zeros((len(rows), width), dtype=bool)
            n_bytes = np.zeros(len(rows), dtype=np.int64)
            boundaries = [len(rows) * width]
            for index, row in enumerate(rows):
                position = 0
                for piece in row:
                    size = piece.stop - piece.start
                    boundaries.append(index * width + position)
                    tokens[index, position : position + size] = self.split.document(piece.document)[
                        piece.start : piece.stop
                    ]
                    mask[index, position + piece.score - piece.start : position + size] = True
                    n_bytes[index] += piece.bytes
                    position += size
                boundaries.append(index * width + position)
            batch = {"tokens": tokens, "mask": mask[:, 1:].copy(), "bytes": n_bytes}
            if self.packed:
                batch["cu_seqlens"] = np.unique(boundaries).astype(np.int32)
            yield batch
