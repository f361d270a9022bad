"""How the Triton recurrences cut sequences into segments, one per program and head.

With few sequences and heads a program for each would leave most of the device idle, so sequences are cut into segments:
a summary pass finds what each segment adds to a state of zero, a scan over the segments of a sequence turns that into
the state that enters each, and the main pass runs all segments at once. Dense batches and packed documents share the
table below, so no kernel knows which of the two it runs.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from functools import lru_cache, partial

import torch
from torch import Tensor

PROGRAMS = 2112
"""Programs of weight 1 that run at once: 132 multiprocessors of an H200, 16 warps of up to 128 registers on each."""
COLUMNS = 7
"""Per segment: batch row, first token, end, sequence, is first, is last, first tile."""


@dataclass(frozen=True)
class Segments:
    """Where each segment lies, in int64 tensors on the device."""

    table: Tensor
    """(segments, 7): see `COLUMNS`; sequences in order, empty rows at the end."""
    spans: Tensor
    """(sequences, 2): first segment of the sequence, number of its segments."""
    tiles: int
    """Upper bound on the tiles of all segments."""
    scanned: bool
    """Whether some sequence may have more than one segment."""


def segment_parts(sequences: int, heads: int, packed: bool, weight: int, programs: int = PROGRAMS) -> int:
    """Upper bound on the number of segments; a function of everything but the length, which compiled code may vary.

    weight: of one program, in warps of up to 128 registers. Fewer heavy ones fill the device.
    """
    wave = max(1, programs // weight)
    if packed:  # whole waves up to the third, with as many cuts as documents at least: lengths are unknown here
        each = max(1, wave // heads)  # without a branch on the documents, at which compiled code would be made anew
        parts: int = torch.sym_min(-(-2 * sequences // each) * each, torch.sym_max(3 * each, sequences + each))
        return parts
    rows = heads * sequences
    for waves in (1, 2, 3):  # the fewest whose last one is not left half empty
        each = waves * wave // rows
        if each * rows >= 0.85 * waves * wave:
            return sequences * each
    return sequences * max(1, wave // rows)


def tile_bound(batch: int, length: int, heads: int, cu_seqlens: Tensor | None, tile: int, weight: int) -> int:
    """Upper bound on the tiles of all segments, `Segments.tiles`, without making the table."""
    if cu_seqlens is None:
        return batch * (-(-length // tile))
    return -(-length // tile) + segment_parts(cu_seqlens.shape[0] - 1, heads, True, weight)


def segments(
    batch: int, length: int, heads: int, cu_seqlens: Tensor | None, tile: int, weight: int, device: torch.device
) -> Segments:
    """Cut `batch` sequences of `length` tokens, or the documents that `cu_seqlens` bounds, into segments."""
    if cu_seqlens is None:
        return _dense(batch, length, heads, tile, weight, device)
    # A graph being captured must hold the table's own construction: its boundaries may change between replays.
    capturing = device.type == "cuda" and torch.cuda.is_current_stream_capturing()
    if capturing or cu_seqlens.is_inference():
        return _packed(length, heads, cu_seqlens, tile, weight, device)
    key = (length, heads, tile, weight, device, int(cu_seqlens._version))
    known = _tables.setdefault(id(cu_seqlens), (weakref.ref(cu_seqlens, partial(_forget, id(cu_seqlens))), {}))[1]
    if key not in known:
        known[key] = _packed(length, heads, cu_seqlens, tile, weight, device)
    return known[key]


_tables: dict[int, tuple[weakref.ref[Tensor], dict[tuple[object, ...], Segments]]] = {}
"""Tables of the boundaries alive, by identity and version: every layer and both passes share one."""


def _forget(key: int, _reference: weakref.ref[Tensor]) -> None:
    _tables.pop(key, None)


def _packed(length: int, heads: int, cu_seqlens: Tensor, tile: int, weight: int, device: torch.device) -> Segments:
    bounds = cu_seqlens.to(device, torch.int64)
    parts = segment_parts(len(bounds) - 1, heads, True, weight)
    span = _round_up(-(-length // (parts - len(bounds) + 1)), tile)
    return _build(bounds, span, parts, tile, -(-length // tile) + parts, dense_length=None)


@lru_cache(maxsize=64)
def _dense(batch: int, length: int, heads: int, tile: int, weight: int, device: torch.device) -> Segments:
    bounds = torch.arange(batch + 1) * length
    parts = segment_parts(batch, heads, False, weight)
    span = _round_up(-(-length * batch // parts), tile)
    each = max(1, -(-length // span))
    built = _build(bounds, span, batch * each, tile, batch * (-(-length // tile)), dense_length=length)
    return Segments(built.table.to(device), built.spans.to(device), built.tiles, each > 1)


def _round_up(length: int, tile: int) -> int:
    """A segment of at least four tiles: shorter ones spend more on the scan than they save."""
    return max(4, -(-length // tile)) * tile


def _build(bounds: Tensor, span: int, parts: int, tile: int, tiles: int, dense_length: int | None) -> Segments:
    lengths = bounds.diff()
    counts = ((lengths + span - 1) // span).clamp(min=1)  # an empty sequence still hands its state on
    ends = counts.cumsum(0)
    index = torch.arange(parts, device=bounds.device)
    sequence = torch.searchsorted(ends, index, right=True).clamp(max=len(counts) - 1)
    live = index < ends[-1]
    within = index - (ends - counts)[sequence]
    start = torch.minimum(bounds[sequence] + within * span, bounds[sequence + 1])
    end = torch.minimum(start + span, bounds[sequence + 1])
    size = (end - start) * live
    filled = (size + tile - 1) // tile
    row = torch.zeros_like(sequence)
    if dense_length is not None:
        row, start = sequence, start - sequence * dense_length
    first, last = live & (within == 0), live & (index + 1 == ends[sequence])
    table = torch.stack((row, start, start + size, sequence, first, last, filled.cumsum(0) - filled), 1)
    return Segments(table, torch.stack((ends - counts, counts), 1), tiles, True)
