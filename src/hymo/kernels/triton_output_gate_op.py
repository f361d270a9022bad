"""The Triton form of `output_gate` as a custom operator: launches, shapes for tracing, and the gradient."""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor

from hymo.kernels import triton_output_gate as kernels

COLUMNS = 256
"""Channels of a program: whole heads, 512 bytes side by side in 16 bits."""
FORWARD_ELEMENTS, BACKWARD_ELEMENTS = 2048, 1024
"""Elements that a program holds of each tensor at a time: 16 and 8 for each thread of its four warps."""
SPAN = 64
"""Tokens of a program of the backward pass."""

_LIBRARY = "hymo::output_gate"
torch.library.define(_LIBRARY, "(Tensor o, Tensor v, Tensor skip, Tensor? gate) -> Tensor")
torch.library.define(
    _LIBRARY + "_backward",
    "(Tensor dy, Tensor o, Tensor v, Tensor skip, Tensor? gate) -> (Tensor, Tensor, Tensor)",
)


def output_gate_triton(o: Tensor, v: Tensor, skip: Tensor, gate: Tensor | None) -> Tensor:
    """Arguments as `hymo.kernels.output_gate`, already checked."""
    y: Tensor = torch.ops.hymo.output_gate(o, v, skip, gate)
    return y


def _shape(o: Tensor, gate: Tensor | None, elements: int) -> dict[str, Any]:
    heads, width = o.shape[2:]
    block = int(triton.next_power_of_2(width))
    group = min(max(1, COLUMNS // block), int(triton.next_power_of_2(heads)))
    kind = kernels.NO_GATE if gate is None else kernels.PER_CHANNEL if gate.ndim == 4 else kernels.PER_HEAD
    tokens = max(1, elements // (group * block))
    return {"WIDTH": width, "TOKENS": tokens, "GROUP": group, "BLOCK": block, "GATE": kind.value, "num_warps": 4}


def _forward(o: Tensor, v: Tensor, skip: Tensor, gate: Tensor | None) -> Tensor:
    y = o.new_empty(o.shape)
    tokens, heads = o.shape[0] * o.shape[1], o.shape[2]
    constants = _shape(o, gate, FORWARD_ELEMENTS)
    kernels.gate_forward[(triton.cdiv(tokens, constants["TOKENS"]), triton.cdiv(heads, constants["GROUP"]))](
        o.contiguous(), v.contiguous(), skip.contiguous(), o if gate is None else gate.contiguous(), y, tokens, heads,
        **constants,
    )  # fmt: skip
    return y


def _backward(dy: Tensor, o: Tensor, v: Tensor, skip: Tensor, gate: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    tokens, heads = o.shape[0] * o.shape[1], o.shape[2]
    spans = triton.cdiv(tokens, SPAN)
    do = o.new_empty(o.shape)
    dgate = o.new_empty(0) if gate is None else gate.new_empty(gate.shape)
    parts = o.new_empty((spans, heads), dtype=torch.float32)
    constants = _shape(o, gate, BACKWARD_ELEMENTS)
    kernels.gate_backward[(spans, triton.cdiv(heads, constants["GROUP"]))](
        dy.contiguous(), o.contiguous(), v.contiguous(), skip.contiguous(), o if gate is None else gate.contiguous(),
        do, dgate, parts, tokens, heads, SPAN=SPAN, **constants,
    )  # fmt: skip
    return do, dgate, parts.sum(0).to(skip.dtype)


def _forward_fake(o: Tensor, v: Tensor, skip: Tensor, gate: Tensor | None) -> Tensor:
    return o.new_empty(o.shape)


def _backward_fake(
    dy: Tensor, o: Tensor, v: Tensor, skip: Tensor, gate: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    dgate = o.new_empty(0) if gate is None else gate.new_empty(gate.shape)
    return o.new_empty(o.shape), dgate, skip.new_empty(skip.shape)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _gradient(ctx: Any, dy: Tensor) -> tuple[Any, ...]:
    o, v, skip, gate = ctx.saved_tensors
    do, dgate, dskip = torch.ops.hymo.output_gate_backward(dy, o, v, skip, gate)
    dv = (skip[:, None] * do).to(v.dtype)  # compiled, this is formed where the gradients of v are added up
    return do, dv, dskip, None if gate is None else dgate


torch.library.impl(_LIBRARY, ("CPU", "CUDA"), _forward)
torch.library.impl(_LIBRARY + "_backward", ("CPU", "CUDA"), _backward)
torch.library.register_fake(_LIBRARY, _forward_fake)
torch.library.register_fake(_LIBRARY + "_backward", _backward_fake)
torch.library.register_autograd(_LIBRARY, _gradient, setup_context=_setup)
