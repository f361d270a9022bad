"""The Triton form of `gated_delta` as a custom operator: launches, shapes for tracing, and the gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hymo.kernels import triton_gated_delta as kernels
from hymo.kernels.arguments import needs_gradient
from hymo.kernels.segments import Segments, segment_parts, segments, tile_bound
from hymo.kernels.triton_common import keeps, kept_dtype, operand_dtype, padded


@dataclass(frozen=True)
class DeltaConfig:
    """How the kernels are compiled."""

    tile: int
    """Rows per step of a program."""
    warps: int
    stages: int = 1
    """Tiles in flight in the backward kernels."""
    forward_stages: int = 1
    """Tiles in flight in the kernels that run forward in time."""


def default_config(d_state: int, headdim: int) -> DeltaConfig:
    """The tuned configuration; it never depends on the length or the batch."""
    if OVERRIDE is not None:
        return OVERRIDE
    size = padded(d_state) * padded(headdim)
    warps = 1 if size <= 32 * 32 else 2 if size <= 32 * 64 else 4 if size <= 64 * 64 else 8
    return DeltaConfig(16, warps, 2 if warps == 1 else 3, 3 if warps == 1 else 1)


SHARES = 8
"""Programs that share the inverses of a segment: they depend on nothing, so many hide each other's waits."""
OVERRIDE: DeltaConfig | None = None
"""Set by benchmarks and tests to try a configuration."""

_LIBRARY = "hymo::gated_delta"
_INPUTS = "Tensor q, Tensor k, Tensor v, Tensor beta, Tensor log_alpha, Tensor? state, Tensor? cu_seqlens"
torch.library.define(_LIBRARY, f"({_INPUTS}, bool keep) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)")
torch.library.define(
    _LIBRARY + "_backward",
    f"(Tensor do, Tensor? dfinal, {_INPUTS}, Tensor entering, Tensor maps, Tensor inverses, Tensor pairs, Tensor tiles)"
    " -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
)


def gated_delta_triton(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor,
    log_alpha: Tensor,
    state: Tensor | None,
    cu_seqlens: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Outputs and final states; arguments as `hymo.kernels.gated_delta`, already checked."""
    keep = keeps(v, k.shape[-1]) and needs_gradient(q, k, v, beta, log_alpha, state)
    o, final = torch.ops.hymo.gated_delta(q, k, v, beta, log_alpha, state, cu_seqlens, keep)[:2]
    return o, final


def _sequences(v: Tensor, cu_seqlens: Tensor | None) -> int:
    return v.shape[0] if cu_seqlens is None else cu_seqlens.shape[0] - 1


def _kept(v: Tensor, d_state: int, cu_seqlens: Tensor | None) -> int:
    """Rows for maps and entering states of segments: none if no sequence is ever cut. Independent of the length."""
    sequences = _sequences(v, cu_seqlens)
    weight = 2 * default_config(d_state, v.shape[3]).warps
    parts = segment_parts(sequences, v.shape[2], cu_seqlens is not None, weight)
    return parts if parts > sequences else 0


def _tiles(v: Tensor, d_state: int, cu_seqlens: Tensor | None) -> int:
    config = default_config(d_state, v.shape[3])
    return tile_bound(v.shape[0], v.shape[1], v.shape[2], cu_seqlens, config.tile, 2 * config.warps)


def _stored(v: Tensor) -> torch.dtype:
    """Type of inverses in memory: fp16 has the digits of the tf32 that they are multiplied in."""
    return torch.float32 if v.dtype is torch.float32 else torch.float16


def _constants(d_state: int, width: int, config: DeltaConfig, x: Tensor) -> dict[str, Any]:
    return {
        "S": d_state,
        "D": width,
        "BS": padded(d_state),
        "BD": padded(width),
        "TILE": config.tile,
        "OPERAND": operand_dtype(x),
        "EXACT": x.dtype is torch.float32,
        "num_warps": config.warps,
        "num_stages": config.stages,
    }


def _scan(states: Tensor, maps: Tensor, outer: Tensor | None, cut: Segments, reverse: bool) -> None:
    heads, d_state, width = states.shape[1:]
    block = 16  # columns of a state: they are independent, and few leave room for the matrix in shared memory
    kernels.scan[(cut.spans.shape[0] * heads * (-(-width // block)),)](
        states,
        maps,
        states if outer is None else outer,
        cut.spans,
        heads,
        S=d_state,
        D=width,
        BS=padded(d_state),
        BD=block,
        REVERSE=reverse,
        HAS_OUTER=outer is not None,
        num_warps=1 if d_state <= 32 else 4,
    )


def _forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor,
    log_alpha: Tensor,
    state: Tensor | None,
    cu_seqlens: Tensor | None,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    batch, length, heads, width = v.shape
    d_state = k.shape[-1]
    config = default_config(d_state, width)
    state = None if state is None else state.contiguous()
    cut = segments(batch, length, heads, cu_seqlens, config.tile, 2 * config.warps, v.device)
    count = cut.table.shape[0]
    o = v.new_empty(v.shape)
    final = v.new_empty((_sequences(v, cu_seqlens), heads, d_state, width), dtype=torch.float32)
    kept = _kept(v, d_state, cu_seqlens)
    entering = v.new_empty((kept, heads, d_state, width), dtype=torch.float32)
    maps = v.new_empty((kept, heads, d_state, d_state), dtype=torch.float32)
    constants = _constants(d_state, width, config, v)
    forward_constants = dict(constants, num_stages=config.forward_stages)
    inverses = v.new_empty((cut.tiles, heads, config.tile, config.tile), dtype=_stored(v))
    tiles = v.new_empty((cut.tiles if keep else 0, heads, d_state, width), dtype=kept_dtype(v))
    grid = (count * heads,)
    pairs = v.new_empty(inverses.shape, dtype=kept_dtype(v))
    kernels.prepare[(count * heads * SHARES,)](
        q, k, beta, log_alpha, inverses, pairs, cut.table, heads,
        *q.stride(), *k.stride(), *beta.stride(), *log_alpha.stride(),
        **{n: constants[n] for n in ("S", "BS", "TILE", "OPERAND", "EXACT")}, SHARES=SHARES,
        num_warps=1 if d_state <= 64 else 2, num_stages=2,
    )  # fmt: skip
    first = state
    if cut.scanned:
        kernels.summarise[grid](
            k, v, beta, log_alpha, inverses, entering, maps, cut.table, heads,
            *k.stride(), *v.stride(), *beta.stride(), *log_alpha.stride(), **forward_constants,
        )  # fmt: skip
        _scan(entering, maps, state, cut, reverse=False)
        first = entering
    kernels.forward[grid](
        q, k, v, beta, log_alpha, inverses, pairs, final if first is None else first, final, o, tiles, cut.table, heads,
        *q.stride(), *k.stride(), *v.stride(), *beta.stride(), *log_alpha.stride(), length,
        HAS_STATE=first is not None, OUTPUT=True, KEEP=keep, **forward_constants,
    )  # fmt: skip
    return o, final, entering, maps, inverses, pairs, tiles


def _forward_fake(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor,
    log_alpha: Tensor,
    state: Tensor | None,
    cu_seqlens: Tensor | None,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    heads, width, d_state, kept = v.shape[2], v.shape[3], k.shape[-1], _kept(v, k.shape[-1], cu_seqlens)
    sizes = ((_sequences(v, cu_seqlens), width), (kept, width), (kept, d_state))
    final, entering, maps = (v.new_empty((n, heads, d_state, w), dtype=torch.float32) for n, w in sizes)
    tile, count = default_config(d_state, width).tile, _tiles(v, d_state, cu_seqlens)
    inverses = v.new_empty((count, heads, tile, tile), dtype=_stored(v))
    tiles = v.new_empty((count if keep else 0, heads, d_state, width), dtype=kept_dtype(v))
    pairs = v.new_empty(inverses.shape, dtype=kept_dtype(v))
    return v.new_empty(v.shape), final, entering, maps, inverses, pairs, tiles


def _backward(
    do: Tensor,
    dfinal: Tensor | None,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor,
    log_alpha: Tensor,
    state: Tensor | None,
    cu_seqlens: Tensor | None,
    entering: Tensor,
    maps: Tensor,
    inverses: Tensor,
    pairs: Tensor,
    tiles: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    batch, length, heads, width = v.shape
    d_state = k.shape[-1]
    config = default_config(d_state, width)
    first = None if state is None else state.contiguous()
    outer = None if dfinal is None else dfinal.contiguous()
    cut = segments(batch, length, heads, cu_seqlens, config.tile, 2 * config.warps, v.device)
    count = cut.table.shape[0]
    if cut.scanned:
        first = entering
    constants = _constants(d_state, width, config, v)
    grid = (count * heads,)
    inputs = (*q.stride(), *k.stride(), *v.stride(), *beta.stride(), *log_alpha.stride())
    if not len(tiles):  # not kept: the forward pass again, for the states alone
        tiles = v.new_empty((cut.tiles, heads, d_state, width), dtype=kept_dtype(v))
        kernels.forward[grid](
            q, k, v, beta, log_alpha, inverses, pairs, tiles if first is None else first, tiles, tiles, tiles,
            cut.table, heads, *inputs, length, HAS_STATE=first is not None, OUTPUT=False, KEEP=True,
            **dict(constants, num_stages=config.forward_stages),
        )  # fmt: skip
    grads = [x.new_empty(x.shape) for x in (q, k, v, beta, log_alpha)]
    rows = 0 if state is None else _sequences(v, cu_seqlens)
    dinitial = v.new_empty((rows, heads, d_state, width), dtype=torch.float32)
    leaving = v.new_empty((count if cut.scanned else 0, heads, d_state, width), dtype=torch.float32)

    def sweep(received: Tensor, full: bool, has_leaving: bool) -> None:
        kernels.backward[grid](
            q, k, v, beta, log_alpha, inverses, pairs, do, tiles, received, *grads, dinitial, cut.table, heads,
            *inputs, *do.stride(), length,
            HAS_LEAVING=has_leaving, HAS_INITIAL=state is not None, FULL=full, **constants,
        )  # fmt: skip

    if cut.scanned:
        sweep(leaving, False, False)
        _scan(leaving, maps, outer, cut, reverse=True)
        outer = leaving
    sweep(tiles if outer is None else outer, True, outer is not None)
    dq, dk, dv, dbeta, dg = grads
    return dq, dk, dv, dbeta, dg, dinitial


def _backward_fake(
    do: Tensor,
    dfinal: Tensor | None,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor,
    log_alpha: Tensor,
    state: Tensor | None,
    cu_seqlens: Tensor | None,
    entering: Tensor,
    maps: Tensor,
    inverses: Tensor,
    pairs: Tensor,
    tiles: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    rows = 0 if state is None else _sequences(v, cu_seqlens)
    dinitial = v.new_empty((rows, v.shape[2], k.shape[-1], v.shape[3]), dtype=torch.float32)
    dq, dk, dv, dbeta, dg = (x.new_empty(x.shape) for x in (q, k, v, beta, log_alpha))
    return dq, dk, dv, dbeta, dg, dinitial


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*inputs[:7], *output[2:])


def _gradient(ctx: Any, do: Tensor | None, dfinal: Tensor | None, *_unused: Tensor | None) -> tuple[Any, ...]:
    q, k, v, beta, log_alpha, state, cu_seqlens, *kept = ctx.saved_tensors
    if do is None:
        do = torch.zeros_like(v)
    grads = torch.ops.hymo.gated_delta_backward(do, dfinal, q, k, v, beta, log_alpha, state, cu_seqlens, *kept)
    return *grads[:5], None if state is None else grads[5].to(state.dtype), None, None


torch.library.impl(_LIBRARY, ("CPU", "CUDA"), _forward)
torch.library.impl(_LIBRARY + "_backward", ("CPU", "CUDA"), _backward)
torch.library.register_fake(_LIBRARY, _forward_fake)
torch.library.register_fake(_LIBRARY + "_backward", _backward_fake)
torch.library.register_autograd(_LIBRARY, _gradient, setup_context=_setup)
