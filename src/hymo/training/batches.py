"""From batches of any iterator to windows of the model, checked: they come from outside."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from hymo.core.errors import DataError, UsageError
from hymo.data.loader import PackedLoader
from hymo.models import Window, split_window

Batch = Mapping[str, Any]


class StepBatches(NamedTuple):
    """The micro-batches of one optimizer step on one rank."""

    place: int
    """Place of the global batch in the order of the loader's batches, which decides on its contents."""
    loaded: list[Any]
    """As the loader gave them."""
    windows: list[Window]
    counts: list[dict[str, int]] | None
    """Targets of each window by head, or None if they are not counted yet."""


class LoaderSteps:
    """The steps' batches of a loader. Those of the next step can be built before they are asked for.

    Args:
        loader: where they come from.
        rank, world, n_micro: whose micro-batches, of how many ranks, and how many a step.
        vocab_size: ids lie below it.
        count: targets of windows by head.
    """

    def __init__(
        self,
        loader: PackedLoader,
        rank: int,
        world: int,
        n_micro: int,
        vocab_size: int,
        count: Callable[[list[Window]], list[dict[str, int]]],
    ) -> None:
        self._loader, self._count, self._vocab_size = loader, count, vocab_size
        self._share = {"rank": rank, "world": world, "n_micro": n_micro}
        self._ahead: StepBatches | None = None

    def take(self, place: int, step: int) -> StepBatches:
        """The batches at a place in the order; `step` (from 0) names them in errors.

        Raises:
            DataError: a batch that the model cannot take.
        """
        ahead, self._ahead = self._ahead, None
        return ahead if ahead is not None and ahead.place == place else self._build(place, step)

    def build_ahead(self, place: int, step: int) -> None:
        """Build what the next `take` will most likely ask for. It tells what is wrong with it, if it does."""
        with suppress(Exception):
            batches = self._build(place, step)
            self._ahead = batches._replace(counts=self._count(batches.windows))

    def _build(self, place: int, step: int) -> StepBatches:
        loaded = [self._loader.batch_at(place, micro=i, **self._share) for i in range(self._share["n_micro"])]
        return StepBatches(place, loaded, to_windows(loaded, self._vocab_size, step), None)


def to_windows(batches: Sequence[Any], vocab_size: int, step: int) -> list[Window]:
    """`to_window` of every micro-batch of a step (from 0)."""
    return [to_window(batch, vocab_size, f"step {step + 1}, micro-batch {i}") for i, batch in enumerate(batches)]


def to_window(batch: Any, vocab_size: int, where: str) -> Window:
    """Check a batch and cut it into inputs and targets, on the CPU if it is there.

    Args:
        batch: a mapping with `tokens` (B, T + 1) and optional `cu_seqlens`, integer arrays or tensors.
        vocab_size: ids lie below it.
        where: names the batch in errors.

    Raises:
        DataError: something else. An id out of range would read past the embedding, which a GPU does not survive.
    """
    if not isinstance(batch, Mapping) or "tokens" not in batch:
        raise DataError(f"{where}: is {type(batch).__name__} without 'tokens'. Give a mapping with tokens (B, T + 1).")
    tokens = _integers(batch["tokens"], f"{where}: tokens")
    if tokens.ndim != 2 or tokens.shape[0] < 1 or tokens.shape[1] < 2:
        raise DataError(f"{where}: tokens have the shape {tuple(tokens.shape)}. Give (B, T + 1), B and T 1 or more.")
    low, high = (int(value) for value in tokens.aminmax())
    if low < 0 or high >= vocab_size:
        raise DataError(
            f"{where}: token {low if low < 0 else high} is not in 0..{vocab_size - 1}. Use the tokenizer that "
            "model.vocab_size was set for."
        )
    bounds = batch.get("cu_seqlens")
    try:
        return split_window(tokens, None if bounds is None else _integers(bounds, f"{where}: cu_seqlens"))
    except UsageError as error:
        raise DataError(f"{where}: {error}") from None


def _integers(value: Any, what: str) -> Tensor:
    """An int64 tensor of an integer array, tensor or nested list."""
    try:
        if isinstance(value, np.ndarray):
            value = np.ascontiguousarray(value)
        tensor = torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise DataError(f"{what}: no array of integers ({error}). Give a NumPy array or a tensor.") from None
    if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype is torch.bool:
        raise DataError(f"{what}: {tensor.dtype} instead of integers. Give token ids.")
    return tensor.long()
