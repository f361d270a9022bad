"""Synthetic tasks that ask one thing of a sequence model each: recall, copying, or tracking a state.

A task is a pure function of a seed and sizes. It gives tokens (B, T) and targets (B, T): the token that the model shall
name after reading position t, or -100 where nothing is asked. Targets follow from the tokens alone.

    recall       pairs of key and value, then keys: name each key's value (Arora et al., arXiv 2312.04927)
    rewritten    the same with keys that are written again: the last value counts
    copy         symbols, a mark, then the same symbols again (Jelassi et al., arXiv 2402.01032)
    passkey      digits behind a mark somewhere in noise: name them at the end (Mohtashami, Jaggi, arXiv 2305.16300)
    parity       bits: name the parity of all bits so far (Grazzi et al., arXiv 2411.12537)
    permutation  elements of S_n: name the product of all so far (Merrill et al., arXiv 2404.08819)
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hymo.core.errors import UsageError
from hymo.kernels.cross_entropy import IGNORE_INDEX

Ints = NDArray[np.int64]


class TaskBatch(NamedTuple):
    """Sequences of one task."""

    tokens: Tensor
    """(B, T) int64."""
    targets: Tensor
    """(B, T) int64, -100 where nothing is asked."""


def recall(seed: int, rows: int, pairs: int, keys: int, values: int) -> TaskBatch:
    """Multi-query associative recall: T = 3 `pairs`.

    Args:
        seed: of all that is drawn.
        rows: B.
        pairs: different keys per row, each queried once, in random order.
        keys: how many keys there are; their tokens are 0 .. keys - 1.
        values: how many values; their tokens follow.
    """
    return rewritten(seed, rows, pairs, pairs, keys, values)


def rewritten(seed: int, rows: int, pairs: int, writes: int, keys: int, values: int) -> TaskBatch:
    """Associative recall where `writes` pairs share `pairs` keys: T = 2 `writes` + `pairs`.

    Every key is written at least once; which are written again, and in which order, is random. The last value counts.
    """
    _need(1 <= pairs <= keys, f"pairs: {pairs} different keys of {keys}")
    _need(writes >= pairs, f"writes: {writes} for {pairs} keys")
    _need(values >= 1, f"values: {values}")
    rng = np.random.default_rng(seed)
    chosen = _draw_without(rng, rows, keys, pairs)
    again = rng.integers(0, pairs, (rows, writes - pairs))
    slots = np.concatenate((np.broadcast_to(np.arange(pairs), (rows, pairs)), again), 1)
    slots = rng.permuted(slots, axis=1)
    written = rng.integers(0, values, (rows, writes)) + keys
    last: Ints = np.zeros((rows, pairs), dtype=np.int64)
    for place in range(writes):
        last[np.arange(rows), slots[:, place]] = written[:, place]
    order = rng.permuted(np.broadcast_to(np.arange(pairs), (rows, pairs)), axis=1)
    pairs_read = np.stack((np.take_along_axis(chosen, slots, 1), written), -1).reshape(rows, 2 * writes)
    asked = np.take_along_axis(chosen, order, 1)
    answers = np.take_along_axis(last, order, 1)
    tokens = np.concatenate((pairs_read, asked), 1)
    return _batch(tokens, np.concatenate((np.full_like(pairs_read, IGNORE_INDEX), answers), 1))


def copy(seed: int, rows: int, length: int, symbols: int) -> TaskBatch:
    """`length` symbols, a mark, and the symbols again: T = 2 `length`; the mark is the token `symbols`."""
    _need(length >= 1, f"length: {length}")
    _need(symbols >= 1, f"symbols: {symbols}")
    rng = np.random.default_rng(seed)
    text = rng.integers(0, symbols, (rows, length))
    mark = np.full((rows, 1), symbols)
    tokens = np.concatenate((text, mark, text[:, :-1]), 1)
    return _batch(tokens, np.concatenate((np.full_like(text, IGNORE_INDEX), text), 1))


def passkey(seed: int, rows: int, length: int, digits: int, symbols: int) -> TaskBatch:
    """A mark and `digits` digits somewhere in noise, and at the end a question for them: T = `length`.

    Tokens: digits 0..9, then the mark (10), the question (11) and `symbols` kinds of noise.
    """
    _need(digits >= 1, f"digits: {digits}")
    _need(symbols >= 1, f"symbols: {symbols}")
    body = length - digits
    _need(body >= digits + 1, f"length: {length} for {digits} digits read and named; at least {2 * digits + 1}")
    rng = np.random.default_rng(seed)
    tokens = rng.integers(12, 12 + symbols, (rows, length))
    key = rng.integers(0, 10, (rows, digits))
    starts = rng.integers(0, body - digits, rows)
    row = np.arange(rows)[:, None]
    tokens[np.arange(rows), starts] = 10
    tokens[row, starts[:, None] + 1 + np.arange(digits)] = key
    tokens[:, body] = 11
    tokens[:, body + 1 :] = key[:, :-1]
    targets = np.full_like(tokens, IGNORE_INDEX)
    targets[:, body:] = key
    return _batch(tokens, targets)


def parity(seed: int, rows: int, length: int) -> TaskBatch:
    """Bits, and at every position the parity of those read so far."""
    _need(length >= 1, f"length: {length}")
    bits = np.random.default_rng(seed).integers(0, 2, (rows, length))
    return _batch(bits, bits.cumsum(1) % 2)


def permutation(seed: int, rows: int, length: int, n: int) -> TaskBatch:
    """Elements of S_n, and at every position the product of those read so far, the newest applied last.

    Tokens and targets number the n! permutations in lexicographic order; 0 is the identity.
    """
    _need(length >= 1, f"length: {length}")
    _need(2 <= n <= 6, f"n: {n} is not in 2..6")
    elements = list(itertools.permutations(range(n)))
    number = {element: i for i, element in enumerate(elements)}
    products = np.array([[number[tuple(b[i] for i in a)] for b in elements] for a in elements])  # first a, then b
    tokens = np.random.default_rng(seed).integers(0, len(elements), (rows, length))
    targets = np.empty_like(tokens)
    targets[:, 0] = tokens[:, 0]
    for t in range(1, length):
        targets[:, t] = products[targets[:, t - 1], tokens[:, t]]
    return _batch(tokens, targets)


Draw = Callable[[int, int], TaskBatch]
"""(seed, rows) -> a batch of a task of one size."""


@dataclass(frozen=True)
class Task:
    """A task, the sizes that a model is trained on, and those that it is asked for afterwards."""

    name: str
    """Name in tables."""
    vocab_size: int
    """Tokens that it uses."""
    chance: float
    """Accuracy of the best answer that ignores the sequence."""
    sizes: tuple[Draw, ...]
    """Trained on in turn: easy ones among them teach the harder ones sooner."""
    tests: Mapping[str, Draw]
    """What accuracy is told for, by name."""

    def draw(self, seed: int, rows: int) -> TaskBatch:
        """A training batch: the size follows from the seed."""
        return self.sizes[seed % len(self.sizes)](seed, rows)


def _beyond(batch: TaskBatch, length: int) -> TaskBatch:
    """The same batch with nothing asked at its first `length` positions."""
    targets = batch.targets.clone()
    targets[:, :length] = IGNORE_INDEX
    return TaskBatch(batch.tokens, targets)


def _recall(pairs: int) -> Draw:
    return lambda seed, rows: recall(seed, rows, pairs, 32, 32)


def _rewritten(writes: int) -> Draw:
    return lambda seed, rows: rewritten(seed, rows, 4, writes, 32, 32)


def _copy(length: int) -> Draw:
    return lambda seed, rows: copy(seed, rows, length, 16)


def _passkey(length: int) -> Draw:
    return lambda seed, rows: passkey(seed, rows, length, 4, 20)


SUITE: tuple[Task, ...] = (
    Task(
        "recall",
        64,
        1 / 32,
        tuple(map(_recall, (4, 8, 16, 24))),
        {"8 pairs": _recall(8), "24 pairs": _recall(24), "32 pairs, beyond training": _recall(32)},
    ),
    Task(
        "rewritten",
        64,
        1 / 32,
        tuple(map(_rewritten, (4, 6, 9, 12))),
        {"4 keys, 12 writes": _rewritten(12), "4 keys, 24 writes, beyond training": _rewritten(24)},
    ),
    Task(
        "copy",
        17,
        1 / 16,
        tuple(map(_copy, (8, 16, 32))),
        {"32 symbols": _copy(32), "64 symbols, beyond training": _copy(64)},
    ),
    Task(
        "passkey",
        32,
        1 / 10,
        (_passkey(64),),
        {"64 tokens": _passkey(64), "256 tokens, beyond training": _passkey(256)},
    ),
    Task(
        "parity",
        2,
        1 / 2,
        (lambda seed, rows: parity(seed, rows, 32),),
        {
            "bits 1 to 32": lambda seed, rows: parity(seed, rows, 32),
            "bits 33 to 128, beyond training": lambda seed, rows: _beyond(parity(seed, rows, 128), 32),
        },
    ),
    Task(
        "permutations of 3",
        6,
        1 / 6,
        (lambda seed, rows: permutation(seed, rows, 16, 3),),
        {
            "factors 1 to 16": lambda seed, rows: permutation(seed, rows, 16, 3),
            "factors 17 to 64, beyond training": lambda seed, rows: _beyond(permutation(seed, rows, 64, 3), 16),
        },
    ),
)
"""What `hymo recall compare` trains: sizes that small models on one CPU core learn, or not, within seconds."""


@torch.inference_mode()
def accuracy(model: torch.nn.Module, batch: TaskBatch, rows: int = 64) -> float:
    """Share of the asked positions whose most likely token is the target."""
    right = asked = 0
    for tokens, targets in zip(batch.tokens.split(rows), batch.targets.split(rows), strict=True):
        places = targets != IGNORE_INDEX
        right += int((model(tokens).argmax(-1) == targets)[places].sum())
        asked += int(places.sum())
    return right / asked


def _draw_without(rng: np.random.Generator, rows: int, high: int, count: int) -> Ints:
    """(rows, count) different numbers below `high` in each row."""
    drawn: Ints = rng.permuted(np.broadcast_to(np.arange(high), (rows, high)), axis=1)[:, :count]
    return drawn


def _batch(tokens: Ints, targets: Ints) -> TaskBatch:
    return TaskBatch(torch.from_numpy(np.ascontiguousarray(tokens)), torch.from_numpy(np.ascontiguousarray(targets)))


def _need(fits: bool, what: str) -> None:
    if not fits:
        raise UsageError(f"{what} do not fit together. See the sizes of the task.")
