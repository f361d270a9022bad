"""Rows sorted by expert and put back. Gradients are gathered too: an index alone would add them up one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def spread_rows(rows: Tensor, order: Tensor, back: Tensor, copies: int) -> Tensor:
    """Every row `copies` times, in the order given.

    Args:
        rows: (N, d).
        order: int64 (N * copies,), a permutation: place i gets the copy order[i], of row order[i] // copies.
        back: int64 (N * copies,), its inverse.
        copies: of each row.

    Returns:
        (N * copies, d). The gradient of a row is the sum of those of its copies, rounded once.
    """
    return _spread(rows, order, back, copies)


def return_rows(rows: Tensor, order: Tensor, back: Tensor) -> Tensor:
    """Undo a permutation.

    Args:
        rows: (N, d), at place i what belongs to order[i].
        order: int64 (N,), a permutation.
        back: int64 (N,), its inverse.

    Returns:
        (N, d), at place order[i] what was at i.
    """
    return _return(rows, order, back)


class _Spread(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, order: Tensor, back: Tensor, copies: int) -> Tensor:
        ctx.save_for_backward(back)
        ctx.copies = copies
        return rows[order // copies]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        (back,) = ctx.saved_tensors
        return grad[back].unflatten(0, (-1, ctx.copies)).sum(1), None, None, None


class _Return(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, order: Tensor, back: Tensor) -> Tensor:
        ctx.save_for_backward(order)
        return rows[back]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (order,) = ctx.saved_tensors
        return grad[order], None, None


_spread: Callable[[Tensor, Tensor, Tensor, int], Tensor] = _Spread.apply
_return: Callable[[Tensor, Tensor, Tensor], Tensor] = _Return.apply
