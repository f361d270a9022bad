"""The Triton form of `gated_linear` as a custom operator: launches, shapes for tracing, and the gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hymo.kernels import triton_gated_linear as kernels
from hymo.kernels import triton_gated_linear_backward as gradients
from hymo.kernels.arguments import needs_gradient
from hymo.kernels.segments import Segments, segment_parts, segments, tile_bound
from hymo.kernels.triton_common import keeps, kept_dtype, operand_dtype, padded


@dataclass(frozen=True)
class LinearConfig:
    """How the kernels are compiled."""

    tile: int
    """Rows per step of a program: 16 or 32."""
    warps: int
    stages: int = 2
    """Tiles in flight in the forward and backward kernels."""
    registers: int | None = None
    """Cap on registers per thread in the forward kernel: more programs at once are worth a few spilled values there."""


def default_config(d_state: int, headdim: int, dtype: torch.dtype) -> LinearConfig:
    """The tuned configuration; it never depends on the length or the batch."""
    if OVERRIDE is not None:
        return OVERRIDE
    size = padded(d_state) * padded(headdim)
    warps = 1 if size <= 32 * 32 else 2 if size <= 32 * 64 else 4 if size <= 64 * 64 else 8
    return LinearConfig(16, warps, registers=128 if warps == 1 else None)


OVERRIDE: LinearConfig | None = None
"""Set by benchmarks and tests to try a configuration."""

_LIBRARY = "hymo::gated_linear"
torch.library.define(
    _LIBRARY,
    "(Tensor v, Tensor b, Tensor c, Tensor g, Tensor A_log, Tensor? state, Tensor? cu_seqlens, bool keep)"
    " -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
)
torch.library.define(
    _LIBRARY + "_backward",
    "(Tensor do, Tensor? dfinal, Tensor v, Tensor b, Tensor c, Tensor g, Tensor A_log, Tensor? state,"
    " Tensor? cu_seqlens, Tensor entering, Tensor tiles, Tensor pairs)"
    " -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
)


def gated_linear_triton(
    v: Tensor, b: Tensor, c: Tensor, g: Tensor, A_log: Tensor, state: Tensor | None, cu_seqlens: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Outputs and final states; arguments as `hymo.kernels.gated_linear`, already checked."""
    keep = keeps(v, b.shape[-1]) and needs_gradient(v, b, c, g, A_log, state)
    o, final = torch.ops.hymo.gated_linear(v, b, c, g, A_log, state, cu_seqlens, keep)[:2]
    return o, final


def _sizes(v: Tensor, b: Tensor, cu_seqlens: Tensor | None) -> tuple[int, int, int, int, int, int]:
    batch, length, heads, width = v.shape
    return batch, length, heads, b.shape[-1], width, batch if cu_seqlens is None else cu_seqlens.shape[0] - 1


def _tiles(v: Tensor, d_state: int, cu_seqlens: Tensor | None) -> int:
    config = default_config(d_state, v.shape[3], v.dtype)
    return tile_bound(v.shape[0], v.shape[1], v.shape[2], cu_seqlens, config.tile, config.warps)


def _kept(v: Tensor, d_state: int, cu_seqlens: Tensor | None) -> int:
    """Rows for states that enter segments: none if no sequence is ever cut. Independent of the length."""
    sequences = v.shape[0] if cu_seqlens is None else cu_seqlens.shape[0] - 1
    weight = default_config(d_state, v.shape[3], v.dtype).warps
    parts = segment_parts(sequences, v.shape[2], cu_seqlens is not None, weight)
    return parts if parts > sequences else 0


def _constants(d_state: int, width: int, config: LinearConfig, x: Tensor) -> dict[str, Any]:
    return {
        "S": d_state,
        "D": width,
        "BS": padded(d_state),
        "BD": padded(width),
        "TILE": config.tile,
        "OPERAND": operand_dtype(x),
        "num_warps": config.warps,
        "num_stages": 1,
    }


def _scan(states: Tensor, gates: Tensor, A_log: Tensor, outer: Tensor | None, cut: Segments, reverse: bool) -> None:
    heads, d_state = A_log.shape
    sequences = cut.spans.shape[0]
    size = states.shape[-1] * states.shape[-2]
    block = 256
    grid = (sequences * heads * (-(-size // block)),)
    kernels.scan[grid](
        states,
        gates,
        A_log,
        states if outer is None else outer,
        cut.spans,
        heads,
        S=d_state,
        D=size // d_state,
        BLOCK=256,
        REVERSE=reverse,
        HAS_OUTER=outer is not None,
        num_warps=2,
    )


def _forward(
    v: Tensor,
    b: Tensor,
    c: Tensor,
    g: Tensor,
    A_log: Tensor,
    state: Tensor | None,
    cu_seqlens: Tensor | None,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    batch, length, heads, d_state, width, sequences = _sizes(v, b, cu_seqlens)
    config = default_config(d_state, width, v.dtype)
    A_log = A_log.float().contiguous()
    state = None if state is None else state.contiguous()
    cut = segments(batch, length, heads, cu_seqlens, config.tile, config.warps, v.device)
    count = cut.table.shape[0]
    o = v.new_empty((batch, length, heads, width))
    final = v.new_empty((sequences, heads, d_state, width), dtype=torch.float32)
    entering = v.new_empty((_kept(v, d_state, cu_seqlens), heads, d_state, width), dtype=torch.float32)
    constants = _constants(d_state, width, config, v)
    grid = (count * heads,)
    tiles = v.new_empty((cut.tiles if keep else 0, heads, width, d_state), dtype=kept_dtype(v))
    pairs = v.new_empty((len(tiles), heads, config.tile, config.tile), dtype=kept_dtype(v))
    first: Tensor | None = state
    if cut.scanned:
        gates = v.new_empty((count, heads), dtype=torch.float32)
        summary = dict(constants, TILE=max(config.tile, 32))
        kernels.summarise[grid](
            v, b, g, A_log, entering, gates, cut.table, heads, *v.stride(), *b.stride(), *g.stride(), **summary
        )
        _scan(entering, gates, A_log, state, cut, reverse=False)
        first = entering
    kernels.forward[grid](
        v, b, c, g, A_log, final if first is None else first, final, o, tiles, pairs, cut.table, heads,
        *v.stride(), *b.stride(), *c.stride(), *g.stride(), *o.stride()[:2],
        HAS_STATE=first is not None, KEEP=keep, **dict(constants, num_stages=config.stages, maxnreg=config.registers),
    )  # fmt: skip
    return o, final, entering, tiles, pairs


def _forward_fake(
    v: Tensor,
    b: Tensor,
    c: Tensor,
    g: Tensor,
    A_log: Tensor,
    state: Tensor | None,
    cu_seqlens: Tensor | None,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    batch, length, heads, d_state, width, sequences = _sizes(v, b, cu_seqlens)
    tile = default_config(d_state, width, v.dtype).tile
    count = _tiles(v, d_state, cu_seqlens) if keep else 0
    return (
        v.new_empty((batch, length, heads, width)),
        v.new_empty((sequences, heads, d_state, width), dtype=torch.float32),
        v.new_empty((_kept(v, d_state, cu_seqlens), heads, d_state, width), dtype=torch.float32),
        v.new_empty((count, heads, width, d_state), dtype=kept_dtype(v)),
        v.new_empty((count, heads, tile, tile), dtype=kept_dtype(v)),
    )


def _backward(
    do: Tensor,
    dfinal: Tensor | None,
    v: Tensor,
    b: Tensor,
    c: Tensor,
    g: Tensor,
    A_log: Tensor,
    state: Tensor | None,
    cu_seqlens: Tensor | None,
    entering: Tensor,
    tiles: Tensor,
    pairs: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    batch, length, heads, d_state, width, sequences = _sizes(v, b, cu_seqlens)
    config = default_config(d_state, width, v.dtype)
    rates = A_log.float().contiguous()
    first = None if state is None else state.contiguous()
    dfinal = None if dfinal is None else dfinal.contiguous()
    cut = segments(batch, length, heads, cu_seqlens, config.tile, config.warps, v.device)
    count = cut.table.shape[0]
    if cut.scanned:
        first = entering
    constants = _constants(d_state, width, config, v)
    grid = (count * heads,)
    kept = len(tiles) > 0
    dv, db, dc, dg = v.new_empty(v.shape), b.new_empty(b.shape), c.new_empty(c.shape), g.new_empty(g.shape)
    parts = v.new_empty((heads, d_state, count), dtype=torch.float32)
    outer = dfinal
    if cut.scanned:
        leaving = v.new_empty((count, heads, d_state, width), dtype=torch.float32)
        gates = v.new_empty((count, heads), dtype=torch.float32)
        summary = dict(constants, TILE=max(config.tile, 32))
        gradients.summarise_gradient[grid](
            c, g, rates, do, leaving, gates, cut.table, heads, *c.stride(), *g.stride(), *do.stride(), **summary
        )
        _scan(leaving, gates, rates, dfinal, cut, reverse=True)
        outer = leaving
    staged = dict(constants, num_stages=config.stages)
    if not kept:
        tiles = v.new_empty((cut.tiles, heads, d_state, width), dtype=kept_dtype(v))
        gradients.states[grid](
            v, b, g, rates, tiles if first is None else first, tiles, cut.table, heads,
            *v.stride(), *b.stride(), *g.stride(), HAS_STATE=first is not None, **dict(constants, num_stages=2),
        )  # fmt: skip
    has_initial = state is not None
    dinitial = v.new_empty((sequences if has_initial else 0, heads, d_state, width), dtype=torch.float32)
    gradients.backward[grid](
        v, b, c, g, rates, do, tiles, pairs, tiles if outer is None else outer, dv, db, dc, dg, parts, dinitial,
        cut.table, heads, *v.stride(), *b.stride(), *c.stride(), *g.stride(), *do.stride(), length, count,
        HAS_LEAVING=outer is not None, HAS_INITIAL=has_initial, KEPT=kept, **staged,
    )  # fmt: skip
    return dv, db, dc, dg, parts.sum(-1).to(A_log.dtype), dinitial


def _backward_fake(
    do: Tensor,
    dfinal: Tensor | None,
    v: Tensor,
    b: Tensor,
    c: Tensor,
    g: Tensor,
    A_log: Tensor,
    state: Tensor | None,
    cu_seqlens: Tensor | None,
    entering: Tensor,
    tiles: Tensor,
    pairs: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    _, _, heads, d_state, width, sequences = _sizes(v, b, cu_seqlens)
    rows = 0 if state is None else sequences
    return (
        v.new_empty(v.shape),
        b.new_empty(b.shape),
        c.new_empty(c.shape),
        g.new_empty(g.shape),
        A_log.new_empty(A_log.shape),
        v.new_empty((rows, heads, d_state, width), dtype=torch.float32),
    )


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*inputs[:7], *output[2:])


def _gradient(ctx: Any, do: Tensor | None, dfinal: Tensor | None, *_unused: Tensor | None) -> tuple[Any, ...]:
    v, b, c, g, A_log, state, cu_seqlens, *kept = ctx.saved_tensors
    if do is None:
        do = torch.zeros_like(v)
    grads = torch.ops.hymo.gated_linear_backward(do, dfinal, v, b, c, g, A_log, state, cu_seqlens, *kept)
    return *grads[:5], None if state is None else grads[5].to(state.dtype), None, None


torch.library.impl(_LIBRARY, ("CPU", "CUDA"), _forward)
torch.library.impl(_LIBRARY + "_backward", ("CPU", "CUDA"), _backward)
torch.library.register_fake(_LIBRARY, _forward_fake)
torch.library.register_fake(_LIBRARY + "_backward", _backward_fake)
torch.library.register_autograd(_LIBRARY, _gradient, setup_context=_setup)
