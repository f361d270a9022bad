"""The packed training loader: every batch is a pure function of (data, seed, step).

Order. In each epoch the documents of the whole split are put in an order given by (seed, epoch), concatenated
(``bos text eos bos text eos …``) and cut into windows of T + 1 tokens that start every T tokens. The one shared token
is the last target of a window and the first input of the next, so each token but the very first is a target exactly
once. Window i is sample i. Step s of an epoch takes samples [s·Bg, (s+1)·Bg) for a global batch of Bg samples; rank r
of w takes the r-th of w contiguous pieces of them and micro-batch m the m-th piece of that. World size and micro-batch
therefore never change what a step sees. The tail of an epoch that fills no whole global batch is dropped; the next
epoch shuffles anew.

Nothing is drawn sequentially: any step can be built at once, and the state is three integers with the seed and the
fingerprint of the data, to refuse a changed data set.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hymo.core.errors import DataError, UsageError
from hymo.data.dataset import Split
from hymo.data.prefetch import Ahead
from hymo.data.tokenizer import Tokenizer

Batch = dict[str, NDArray[Any]]
_Key = tuple[int, int, int, int, int]  # step, rank, world, micro-batch, micro-batches


def batch_digest(batches: Iterable[Batch]) -> str:
    """Return 16 hex digits that identify micro-batches: SHA-256 over each one's tokens and boundaries, in order."""
    digest = hashlib.sha256()
    for batch in batches:
        digest.update(np.ascontiguousarray(batch["tokens"], dtype=np.int64).tobytes())
        if "cu_seqlens" in batch:
            digest.update(np.ascontiguousarray(batch["cu_seqlens"], dtype=np.int32).tobytes())
    return digest.hexdigest()[:16]


def document_order(n_documents: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """Return the permutation (documents,) of one epoch.

    The keys are the raw 64-bit words of a Philox counter keyed by (seed, epoch): unlike `Generator.permutation`, they
    are the same in every NumPy version.
    """
    keys = np.random.Philox(key=np.array([seed, epoch], dtype=np.uint64)).random_raw(n_documents)
    return np.argsort(keys, kind="stable")


def window_boundaries(starts: NDArray[np.int64], n_rows: int, seq_len: int) -> NDArray[np.int32]:
    """Return cu_seqlens of `n_rows` overlapping windows laid end to end, shape (segments + 1,) int32.

    `starts` are the document starts within the rows·T + 1 tokens that the windows cover. A start at a multiple of T is
    both the first token of a row and the last of the row before.
    """
    width = seq_len + 1
    rows = np.arange(n_rows + 1, dtype=np.int64) * width
    inner = starts[(starts > 0) & (starts < n_rows * seq_len)]
    as_last = starts[(starts > 0) & (starts % seq_len == 0)]
    return np.unique(
        np.concatenate([rows, inner // seq_len * width + inner % seq_len, (as_last // seq_len - 1) * width + seq_len])
    ).astype(np.int32)


@dataclass(frozen=True)
class Span:
    """A piece of a window: `length` tokens from `document_offset` (0 is bos) of a document, at `window_offset`."""

    source: str
    document_id: str
    document: int
    document_offset: int
    window_offset: int
    length: int


@dataclass(frozen=True)
class Position:
    """A place in the order: sample `sample` of epoch `epoch`, both from 0."""

    epoch: int
    sample: int


@dataclass(frozen=True)
class _Epoch:
    """One epoch's documents in order and their starts in the concatenation, (documents + 1,)."""

    epoch: int
    order: NDArray[np.int64]
    starts: NDArray[np.int64]


class PackedLoader:
    """Training batches of a split, see the module for the order.

    A batch is a dict with ``tokens`` (B, T + 1) int64 and, when `packed`, ``cu_seqlens`` (segments + 1,) int32 over the
    B·(T + 1) tokens laid end to end: from 0 to B·(T + 1), strictly increasing, one boundary at every row start and
    every document start. Targets never cross a boundary. Unpacked batches let a row's documents see each other.

    Args:
        split: the documents.
        seq_len: T, input tokens per sample.
        global_batch: Bg, samples per step over all ranks and micro-batches.
        seed: of the order, 0..2^64 - 1.
        packed: give ``cu_seqlens``.
        max_epochs: refuse steps past this many passes; None never does.
        num_workers: threads that build the micro-batches which will follow the one asked for; 0 builds each when it is
            asked for. Batches are the same either way.

    Raises:
        UsageError: a size is not positive, or the split is too small for one global batch.
    """

    def __init__(
        self,
        split: Split,
        seq_len: int,
        global_batch: int,
        *,
        seed: int = 0,
        packed: bool = True,
        max_epochs: int | None = None,
        num_workers: int = 0,
    ) -> None:
        if seq_len < 1 or global_batch < 1 or min(seed, num_workers) < 0 or (max_epochs is not None and max_epochs < 1):
            raise UsageError(
                f"seq_len {seq_len}, global_batch {global_batch} and max_epochs {max_epochs} must be at least 1, "
                f"seed {seed} and num_workers {num_workers} at least 0"
            )
        self.split = split
        self.seq_len = seq_len
        self.global_batch = global_batch
        self.seed = seed
        self.packed = packed
        self.max_epochs = max_epochs
        self.samples_per_epoch = (split.n_tokens - 1) // seq_len
        self.steps_per_epoch = self.samples_per_epoch // global_batch
        if self.steps_per_epoch == 0:
            raise UsageError(
                f"the {split.name} split holds {split.n_tokens:,} tokens, one step of {global_batch} samples needs "
                f"{global_batch * seq_len + 1:,}: prepare more text, or lower the batch size or the sequence length"
            )
        # Steps are counted from here: another global batch size after a resume starts a new count mid-epoch.
        self._origin_step = 0
        self._origin = Position(0, 0)
        self._cache: _Epoch | None = None
        self._ahead = Ahead(self._piece, num_workers) if num_workers else None
        self._depth = num_workers

    # -- order ---------------------------------------------------------------------------------------------------

    def _epoch(self, epoch: int) -> _Epoch:
        cached = self._cache  # threads replace it, so it is read once
        if cached is None or cached.epoch != epoch:
            order = document_order(self.split.n_documents, self.seed, epoch)
            starts = np.zeros(len(order) + 1, dtype=np.int64)
            np.cumsum(self.split.lengths[order], out=starts[1:])
            cached = self._cache = _Epoch(epoch, order, starts)
        return cached

    def position(self, step: int) -> Position:
        """Return the epoch and first sample of the global batch of `step`.

        Raises:
            UsageError: `step` lies before a resume that changed the global batch size.
        """
        ahead = step - self._origin_step
        if ahead < 0:
            raise UsageError(
                f"step {step} lies before step {self._origin_step}, where the global batch size changed to "
                f"{self.global_batch}: rebuild it with the earlier size"
            )
        left = max(0, self.samples_per_epoch - self._origin.sample) // self.global_batch
        if ahead < left:
            return Position(self._origin.epoch, self._origin.sample + ahead * self.global_batch)
        epochs, steps = divmod(ahead - left, self.steps_per_epoch)
        return Position(self._origin.epoch + 1 + epochs, steps * self.global_batch)

    def epochs_needed(self, total_steps: int) -> int:
        """Return how many epochs steps 0..total_steps - 1 touch."""
        return 0 if total_steps <= 0 else self.position(total_steps - 1).epoch + 1

    def require_steps(self, total_steps: int) -> None:
        """Raise `UsageError` before a run starts if `max_epochs` does not allow its steps."""
        needed = self.epochs_needed(total_steps)
        if self.max_epochs is not None and needed > self.max_epochs:
            raise UsageError(
                f"{total_steps:,} steps need {needed} epochs of the {self.split.name} split ({self.steps_per_epoch:,} "
                f"steps each), max_epochs is {self.max_epochs}: prepare more text, lower scheduler.total_steps or "
                "raise training.max_epochs"
            )

    # -- tokens --------------------------------------------------------------------------------------------------

    def read(self, epoch: int, start: int, stop: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return tokens [start, stop) of an epoch's concatenation and the document starts among them, both int64."""
        shuffled = self._epoch(epoch)
        order, starts = shuffled.order, shuffled.starts
        first = int(np.searchsorted(starts, start, side="right")) - 1
        last = int(np.searchsorted(starts, stop, side="left"))
        documents = order[first:last]
        begin = self.split.start_of[documents] + np.maximum(start - starts[first:last], 0)
        target = np.maximum(starts[first:last], start) - start
        lengths = np.minimum(starts[first + 1 : last + 1], stop) - start - target
        out = np.empty(stop - start, dtype=np.int64)
        tokens = [reader.tokens for reader in self.split.readers]
        for shard, source, position, length in zip(
            self.split.shard_of[documents].tolist(), begin.tolist(), target.tolist(), lengths.tolist(), strict=True
        ):
            out[position : position + length] = tokens[shard][source : source + length]
        return out, starts[first:last][starts[first:last] >= start] - start

    def documents(self, tokenizer: Tokenizer, steps: int) -> list[bytes]:
        """Return the text that steps 0..steps - 1 of the first epoch read, per document: what a baseline may learn.

        Later epochs show the same documents again, so more steps than an epoch has add nothing.
        """
        stop = min(steps, self.steps_per_epoch) * self.global_batch * self.seq_len + 1
        tokens, starts = self.read(0, 0, stop)
        texts = (tokenizer.decode_bytes(ids) for ids in np.split(tokens, starts[1:]))
        return [text for text in texts if text]

    def samples(self, epoch: int, first: int, count: int) -> Batch:
        """Return samples [first, first + count) of an epoch as one batch."""
        if first < 0 or count < 1 or first + count > self.samples_per_epoch:
            raise UsageError(f"samples {first}..{first + count - 1} are not in 0..{self.samples_per_epoch - 1}")
        T = self.seq_len
        stream, starts = self.read(epoch, first * T, (first + count) * T + 1)
        batch: Batch = {"tokens": np.lib.stride_tricks.sliding_window_view(stream, T + 1)[::T].copy()}
        if self.packed:
            batch["cu_seqlens"] = window_boundaries(starts, count, T)
        return batch

    def batch_at(self, step: int, *, rank: int = 0, world: int = 1, micro: int = 0, n_micro: int = 1) -> Batch:
        """Return micro-batch `micro` of `n_micro` on `rank` of `world` at `step`, without building any other.

        Raises:
            UsageError: the global batch does not divide into world · n_micro equal pieces, or `step` lies past
                `max_epochs`.
        """
        pieces = world * n_micro
        if pieces < 1 or self.global_batch % pieces or not (0 <= rank < world and 0 <= micro < n_micro):
            raise UsageError(
                f"global batch of {self.global_batch} samples cannot be cut into {world} ranks x {n_micro} "
                f"micro-batches (rank {rank}, micro-batch {micro}): choose sizes that divide it"
            )
        self.require_steps(step + 1)
        key = (step, rank, world, micro, n_micro)
        if self._ahead is None:
            return self._piece(key)
        return self._ahead.get(key, self._following(key))

    def pieces_of(self, step: int, count: int) -> list[Batch]:
        """Return the whole global batch of `step` in `count` pieces, as its micro-batches follow each other."""
        return [self._piece((step, 0, 1, micro, count)) for micro in range(count)]

    def _piece(self, key: _Key) -> Batch:
        step, rank, world, micro, n_micro = key
        position = self.position(step)
        size = self.global_batch // (world * n_micro)
        return self.samples(position.epoch, position.sample + (rank * n_micro + micro) * size, size)

    def _following(self, key: _Key) -> list[_Key]:
        """Return the micro-batches that a rank asks for after `key`."""
        step, rank, world, micro, n_micro = key
        last = math.inf if self.max_epochs is None else self.max_epochs - 1
        following = []
        for ahead in range(micro + 1, micro + 1 + self._depth):
            more, next_micro = divmod(ahead, n_micro)
            if self.position(step + more).epoch <= last:
                following.append((step + more, rank, world, next_micro, n_micro))
        return following

    def describe(self, epoch: int, sample: int) -> list[Span]:
        """Return the pieces of documents that make a window, in order (for replay)."""
        begin, end = sample * self.seq_len, (sample + 1) * self.seq_len + 1
        shuffled = self._epoch(epoch)
        order, starts = shuffled.order, shuffled.starts
        spans = []
        for place in range(int(np.searchsorted(starts, begin, side="right")) - 1, int(np.searchsorted(starts, end))):
            low, high = max(begin, int(starts[place])), min(end, int(starts[place + 1]))
            document = int(order[place])
            source, document_id = self.split.identity(document)
            spans.append(Span(source, document_id, document, low - int(starts[place]), low - begin, high - low))
        return spans

    # -- state ---------------------------------------------------------------------------------------------------

    def state_dict(self, step: int) -> dict[str, int | str]:
        """Return the position before `step` as plain values."""
        position = self.position(step)
        return {
            "step": step,
            "epoch": position.epoch,
            "sample": position.sample,
            "seed": self.seed,
            "seq_len": self.seq_len,
            "fingerprint": self.split.fingerprint,
        }

    def load_state_dict(self, state: dict[str, Any]) -> int:
        """Continue at a saved position, with any world size, micro-batch or global batch; return the next step.

        Raises:
            DataError: the data set is not the one of the state.
            UsageError: seed or sequence length differ, so that the position means another place.
        """
        for key, own in (("seed", self.seed), ("seq_len", self.seq_len)):
            if state[key] != own:
                raise UsageError(f"loader state has {key} {state[key]}, this run {own}: continue with {state[key]}")
        if state["fingerprint"] != self.split.fingerprint:
            raise DataError(
                f"the {self.split.name} data changed since the checkpoint (fingerprint {state['fingerprint'][:12]}… "
                f"then, {self.split.fingerprint[:12]}… now): restore it, or start a new run"
            )
        if self._ahead is not None:
            self._ahead.clear()
        step, saved = int(state["step"]), Position(int(state["epoch"]), int(state["sample"]))
        self._origin_step, self._origin = 0, Position(0, 0)
        if self.position(step) != saved:
            self._origin_step, self._origin = step, saved
        return step
