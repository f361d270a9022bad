"""How sequences are cut into chunks, so that chunks run in parallel and only states travel between them.

Chunks are stored step by step: first the first chunk of every sequence, then the second of every sequence that has one,
and so on, longest sequence first. The sequences alive at a step are then a prefix of those alive before, and the scan
over chunks is a loop over contiguous slices with nothing to reset. No state ever meets another sequence's tokens, so
documents are isolated exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Step = Callable[[Tensor, slice], Tensor]


def decay_(exponent: Tensor) -> Tensor:
    """exp of exponents that are at most 0, in place; 0 where that is no normal number any more.

    An exp that underflows takes a CPU seventy times as long as one that does not.
    """
    least = math.ceil(math.log(torch.finfo(exponent.dtype).tiny))
    return torch.threshold_(exponent.clamp_(min=least).exp_(), 1.01 * math.exp(least), 0.0)


@dataclass(frozen=True)
class ChunkLayout:
    """Places of tokens and sequences in chunked storage."""

    slots: Tensor
    """(tokens,) int64: the slot of each token among chunks x size."""
    order: Tensor
    """(sequences,) int64: sequences by falling length, the row order of states."""
    alive: tuple[int, ...]
    """Sequences that have a chunk at each step; non-increasing."""
    size: int
    """Tokens per chunk."""

    @property
    def chunks(self) -> int:
        """Number of chunks in all."""
        return sum(self.alive)

    def pack(self, x: Tensor) -> Tensor:
        """(tokens, H, ...) -> (chunks, H, size, ...), zeros in the slots that no token fills."""
        placed = _place(x, self.slots, self.chunks * self.size)
        chunked: Tensor = placed.unflatten(0, (self.chunks, self.size))
        return chunked.transpose(1, 2)

    def unpack(self, x: Tensor) -> Tensor:
        """(chunks, H, size, ...) -> (tokens, H, ...): the inverse of `pack`."""
        return _take(x.transpose(1, 2).flatten(0, 1), self.slots)

    def steps(self) -> Iterator[tuple[slice, int]]:
        """Yield, step by step, the slice of chunks and the number of sequences alive."""
        start = 0
        for count in self.alive:
            yield slice(start, start + count), count
            start += count

    def scan(self, first: Tensor, step: Step) -> tuple[Tensor, Tensor]:
        """Run `state = step(state, slice)` over the chunks of every sequence.

        Args:
            first: (sequences, ...) initial states in the caller's order.
            step: maps the states of the sequences alive and their slice of chunks to the states after them.

        Returns:
            The state that enters each chunk (chunks, ...), and the final states (sequences, ...) in the caller's order.
        """
        state = first.index_select(0, self.order)
        entering, finals = [state[:0]], []
        for chunk, count in self.steps():
            finals.append(state[count:])
            state = state[:count]
            entering.append(state)
            state = step(state, chunk)
        finals.append(state)
        final = torch.cat(finals[::-1])
        return torch.cat(entering), final.index_select(0, torch.argsort(self.order))

    def reverse_scan(self, last: Tensor, step: Step) -> tuple[Tensor, Tensor]:
        """The transpose of `scan`, for its gradients: from the last chunk of every sequence to the first.

        Args:
            last: (sequences, ...) gradients of the final states in the caller's order.
            step: maps the gradients of the states that leave a slice of chunks to those of the states that enter it.

        Returns:
            The gradient of the state that leaves each chunk (chunks, ...), and of the initial states, caller's order.
        """
        ordered = last.index_select(0, self.order)
        state, leaving = ordered[:0], []
        for chunk, count in reversed(list(self.steps())):
            state = torch.cat((state, ordered[len(state) : count]))
            leaving.append(state)
            state = step(state, chunk)
        state = torch.cat((state, ordered[len(state) :]))
        return torch.cat([ordered[:0], *leaving[::-1]]), state.index_select(0, torch.argsort(self.order))


def chunk_layout(batch: int, length: int, cu_seqlens: Tensor | None, size: int, device: torch.device) -> ChunkLayout:
    """Lay out `batch` sequences of `length` tokens, or the documents that `cu_seqlens` bounds, in chunks of `size`."""
    lengths = torch.full((batch,), length) if cu_seqlens is None else cu_seqlens.to("cpu", torch.int64).diff()
    order = torch.argsort(lengths, descending=True, stable=True)
    chunks = (lengths + size - 1) // size
    deepest = int(chunks.max()) if len(chunks) else 0
    alive = (chunks[None, :] > torch.arange(deepest)[:, None]).sum(1)
    starts = torch.cumsum(alive, 0) - alive
    rank = torch.argsort(order)
    sequence = torch.repeat_interleave(torch.arange(len(lengths)), lengths)
    within = torch.arange(len(sequence)) - torch.repeat_interleave(torch.cumsum(lengths, 0) - lengths, lengths)
    slots = (starts[within // size] + rank[sequence]) * size + within % size
    return ChunkLayout(slots.to(device), order.to(device), tuple(alive.tolist()), size)


class _Place(torch.autograd.Function):
    """Write rows to distinct places of a zero tensor; the gradient reads them back (no accumulation needed)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, places: Tensor, size: int) -> Tensor:
        ctx.save_for_backward(places)
        return x.new_zeros((size, *x.shape[1:])).index_copy_(0, places, x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (places,) = ctx.saved_tensors
        return grad.index_select(0, places), None, None


class _Take(torch.autograd.Function):
    """Read rows from distinct places; the gradient writes them back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, places: Tensor) -> Tensor:
        ctx.save_for_backward(places)
        ctx.size = x.shape[0]
        return x.index_select(0, places)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (places,) = ctx.saved_tensors
        return grad.new_zeros((ctx.size, *grad.shape[1:])).index_copy_(0, places, grad), None


_place: Callable[[Tensor, Tensor, int], Tensor] = _Place.apply
_take: Callable[[Tensor, Tensor], Tensor] = _Take.apply
