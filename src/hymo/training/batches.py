"""From a batch of any iterator to a window of the model, checked: it comes from outside."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hymo.core.errors import DataError, UsageError
from hymo.models import Window, split_window

Batch = Mapping[str, Any]


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
