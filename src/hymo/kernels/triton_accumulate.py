"""A Triton kernel that adds many tensors to as many sums in one launch."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def add_all(sums, terms, sizes, tensor_of, chunk_of, SUM: tl.constexpr, TERM: tl.constexpr, BLOCK: tl.constexpr):
    """sums[i] += terms[i]; a program does one chunk of BLOCK elements of one tensor.

    sums and terms hold addresses, multiples of 16 bytes, and sizes the numbers of elements, multiples of 16.
    """
    tensor = tl.load(tensor_of + tl.program_id(0))
    first = tl.load(chunk_of + tl.program_id(0)).to(tl.int64) * BLOCK
    size = tl.multiple_of(tl.load(sizes + tensor), 16)
    into = tl.multiple_of(tl.load(sums + tensor).to(tl.pointer_type(SUM)), 16)
    term = tl.multiple_of(tl.load(terms + tensor).to(tl.pointer_type(TERM)), 16)
    place = first + tl.arange(0, BLOCK)
    live = place < size
    total = tl.load(into + place, mask=live, other=0.0)
    total += tl.load(term + place, mask=live, other=0.0).to(SUM)
    tl.store(into + place, total, mask=live)
