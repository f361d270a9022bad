"""The Triton form of `short_conv` as a custom operator: launches, shapes for tracing, and the gradient."""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor

from hymo.kernels import triton_short_conv as kernels

CHANNELS = 128
"""Channels of a program: four for each thread of its one warp."""
SPAN = 61
"""Tokens of a program: with the three beyond them that the gradient reads, whole groups of rows."""
UNROLL = 8
"""Rows loaded at a time."""

_LIBRARY = "hymo::short_conv"
torch.library.define(_LIBRARY, "(Tensor u, Tensor weight, Tensor? window, Tensor? cu_seqlens) -> Tensor")
torch.library.define(
    _LIBRARY + "_backward",
    "(Tensor dy, Tensor u, Tensor weight, Tensor? window, Tensor? cu_seqlens) -> (Tensor, Tensor)",
)


def short_conv_triton(u: Tensor, weight: Tensor, window: Tensor | None, cu_seqlens: Tensor | None) -> Tensor:
    """Arguments as `hymo.kernels.short_conv`, already checked."""
    y: Tensor = torch.ops.hymo.short_conv(u, weight, window, cu_seqlens)
    return y


def _ages(u: Tensor, cu_seqlens: Tensor | None) -> Tensor:
    """(T,) int32 tokens before each in its document, or any tensor if there are no documents."""
    if cu_seqlens is None:
        return u
    length = u.shape[1]
    out = torch.empty(length, dtype=torch.int32, device=u.device)
    bounds = cu_seqlens.to(u.device)
    kernels.ages[(triton.cdiv(length, 256),)](bounds, out, len(bounds), length, BLOCK=256, num_warps=4)
    return out


def _launch(
    kernel: Any,
    u: Tensor,
    weight: Tensor,
    window: Tensor | None,
    cu_seqlens: Tensor | None,
    tensors: tuple[Tensor, ...],
    strides: tuple[int, ...] = (),
) -> None:
    batch, length, channels = u.shape
    spans = triton.cdiv(length, SPAN)
    kernel[(batch * spans, triton.cdiv(channels, CHANNELS))](
        u, weight.contiguous(), u if window is None else window.to(u.dtype).contiguous(), _ages(u, cu_seqlens),
        *tensors, length, channels, spans, *u.stride(), *strides,
        TAPS=weight.shape[1], SPAN=SPAN, UNROLL=UNROLL, CHANNELS=CHANNELS, HAS_WINDOW=window is not None,
        PACKED=cu_seqlens is not None, num_warps=1,
    )  # fmt: skip


def _forward(u: Tensor, weight: Tensor, window: Tensor | None, cu_seqlens: Tensor | None) -> Tensor:
    y = u.new_empty(u.shape)
    _launch(kernels.conv_forward, u, weight, window, cu_seqlens, (y,))
    return y


def _backward(
    dy: Tensor, u: Tensor, weight: Tensor, window: Tensor | None, cu_seqlens: Tensor | None
) -> tuple[Tensor, Tensor]:
    batch, length, channels = u.shape
    du = u.new_empty(u.shape)
    parts = u.new_empty((batch * triton.cdiv(length, SPAN), 4, channels), dtype=torch.float32)
    _launch(kernels.conv_backward, u, weight, window, cu_seqlens, (dy, du, parts), dy.stride())
    return du, parts.sum(0).flip(0)[-weight.shape[1] :].T.to(weight.dtype).contiguous()


def _forward_fake(u: Tensor, weight: Tensor, window: Tensor | None, cu_seqlens: Tensor | None) -> Tensor:
    return u.new_empty(u.shape)


def _backward_fake(
    dy: Tensor, u: Tensor, weight: Tensor, window: Tensor | None, cu_seqlens: Tensor | None
) -> tuple[Tensor, Tensor]:
    return u.new_empty(u.shape), weight.new_empty(weight.shape)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _gradient(ctx: Any, dy: Tensor) -> tuple[Any, ...]:
    du, dweight = torch.ops.hymo.short_conv_backward(dy, *ctx.saved_tensors)
    return du, dweight, None, None


torch.library.impl(_LIBRARY, ("CPU", "CUDA"), _forward)
torch.library.impl(_LIBRARY + "_backward", ("CPU", "CUDA"), _backward)
torch.library.register_fake(_LIBRARY, _forward_fake)
torch.library.register_fake(_LIBRARY + "_backward", _backward_fake)
torch.library.register_autograd(_LIBRARY, _gradient, setup_context=_setup)
