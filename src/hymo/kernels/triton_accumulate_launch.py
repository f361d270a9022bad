"""Which tensors the kernel of `hymo.kernels.accumulate` adds, and its launch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch
import triton.language as tl
from torch import Tensor

from hymo.kernels import triton_accumulate as kernels
from hymo.kernels.arguments import on_device

FEWEST = 1 << 14
"""Elements of a tensor below which it is not worth a place in the table."""
BLOCK = 4096
"""Elements of a program: 16 for each thread of its eight warps."""
_TYPES = {torch.float32: tl.float32, torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}


def add_together(sums: Sequence[Tensor], terms: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """Add what the kernel takes; the sums and terms that are left to be added one by one."""
    pairs = list(zip(sums, terms, strict=True))
    kinds = next(((x.dtype, y.dtype) for x, y in pairs if x.numel() >= FEWEST), None)
    taken = [pair for pair in pairs if (pair[0].dtype, pair[1].dtype) == kinds and _fits(*pair)]
    if kinds is None or not taken:
        return list(sums), list(terms)
    device = taken[0][0].device
    sizes, tensor_of, chunk_of = _table(tuple(total.numel() for total, _ in taken), device)
    places = torch.tensor([[x.data_ptr() for x in side] for side in zip(*taken, strict=True)], dtype=torch.int64)
    places = on_device(places, device)
    kernels.add_all[(len(tensor_of),)](
        places[0], places[1], sizes, tensor_of, chunk_of, SUM=_TYPES[kinds[0]], TERM=_TYPES[kinds[1]], BLOCK=BLOCK,
        num_warps=8,
    )  # fmt: skip
    done = {id(total) for total, _ in taken}
    left = [(total, term) for total, term in pairs if id(total) not in done]
    return [total for total, _ in left], [term for _, term in left]


def _fits(total: Tensor, term: Tensor) -> bool:
    """Whether the kernel can add these: large, both in order in memory, at whole 16 bytes, sums not narrower."""
    same = total.shape == term.shape and total.device == term.device
    wide = total.dtype is torch.float32 or total.dtype is term.dtype
    known = (
        wide and total.dtype in _TYPES and term.dtype in _TYPES and total.numel() >= FEWEST and total.numel() % 16 == 0
    )
    ordered = total.is_contiguous() and term.is_contiguous()
    return same and known and ordered and total.data_ptr() % 16 == 0 and term.data_ptr() % 16 == 0


@lru_cache(maxsize=4)
def _table(numbers: tuple[int, ...], device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Sizes of the tensors, and of each program its tensor and its chunk of it."""
    sizes = torch.tensor(numbers, dtype=torch.int64)
    chunks = (sizes + BLOCK - 1) // BLOCK
    tensor_of = torch.repeat_interleave(torch.arange(len(numbers), dtype=torch.int32), chunks)
    before = torch.repeat_interleave(chunks.cumsum(0) - chunks, chunks)
    chunk_of = (torch.arange(len(tensor_of)) - before).to(torch.int32)
    return on_device(sizes, device), on_device(tensor_of, device), on_device(chunk_of, device)
