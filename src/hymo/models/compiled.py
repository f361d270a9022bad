"""Blocks as `torch.compile` makes them, in passes with gradients.

A block is one graph for any text, so compiled code may not read on the host where documents begin and end. Some
implementations must: the loops over documents and chunks that run where no kernel of a GPU takes an input. There the
first half of a block runs as written.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from hymo.models.context import SequenceContext
from hymo.models.feed_forward import Block
from hymo.models.mla import MLABlock

Run = Callable[..., Tensor]


def compiled_block(block: nn.Module, capture: bool, options: dict[str, Any]) -> Run:
    """A block for weights that one process holds; `capture` records the attention of an MLA block as a CUDA graph."""
    assert isinstance(block, Block)
    if capture and isinstance(block, MLABlock):
        whole = _captured(block, options)
    else:
        whole = torch.compile(block, fullgraph=True, **options)
    return _where_possible(block, whole, _compiled_second(block, options))


def compile_unit(unit: nn.Module, options: dict[str, Any]) -> None:
    """Let a unit that ranks gather run compiled inside its hooks. Passes with telemetry run as written too.

    A block is cut before its experts: they are a unit with hooks of its own, which stay out of compiled code.
    """
    trained, plain = _compiled_unit(unit, options), unit.forward

    def forward(x: Tensor, context: SequenceContext, *cache: Any) -> Tensor:
        trains = torch.is_grad_enabled() and context.telemetry is None and not cache
        out: Tensor = trained(x, context) if trains else plain(x, context, *cache)
        return out

    unit.forward = forward


def _compiled_unit(unit: nn.Module, options: dict[str, Any]) -> Run:
    if not isinstance(unit, Block):
        inner: Run = torch.compile(unit.forward, fullgraph=True, **options)
        return inner
    second = unit.feed_forward
    if second is None or second.moe is None:
        whole: Run = torch.compile(unit.forward, fullgraph=True, **options)
        return _where_possible(unit, whole, _compiled_second(unit, options))
    before = torch.compile(unit.before_experts, fullgraph=True, **options)

    def run(x: Tensor, context: SequenceContext) -> Tensor:
        x, h = before(x, context)
        return x + second.transform(h, context)

    return _where_possible(unit, run, second)


def _compiled_second(block: Block, options: dict[str, Any]) -> Run | None:
    """The feed-forward part of a block, if it has one."""
    second = block.feed_forward
    return None if second is None else torch.compile(second, fullgraph=True, **options)


def _captured(block: MLABlock, options: dict[str, Any]) -> Run:
    """A compiled block whose attention part is recorded as a CUDA graph: the routing decides shapes, so it is not."""
    graphs = options if "backend" in options else {**options, "options": {"triton.cudagraphs": True}}
    attend = torch.compile(block.attend, fullgraph=True, **graphs)
    rest = torch.compile(block.feed_forward, fullgraph=True, **options)

    def run(x: Tensor, context: SequenceContext) -> Tensor:
        out: Tensor = rest(attend(x, context), context)
        return out

    return run


def _where_possible(block: Block, whole: Run, second: Run | None) -> Run:
    """`whole`, or the first half as written and then `second` where that half can't be compiled."""

    def run(x: Tensor, context: SequenceContext) -> Tensor:
        if block.can_compile(x, context):
            return whole(x, context)
        if x.is_cuda:
            _tell(type(block).__name__, x.dtype)
        x = block.attend(x, context)
        return x if second is None else second(x, context)

    return run


@lru_cache(maxsize=16)
def _tell(block: str, dtype: torch.dtype) -> None:
    """Warn of what is not compiled; cached, so once for each kind."""
    what = "attention over packed documents" if block == MLABlock.__name__ else "recurrence"
    warnings.warn(
        f"torch_compile_gdn: the {what} of {block} is not compiled: with this kernel it loops on the host in "
        f"{str(dtype).removeprefix('torch.')}.",
        stacklevel=2,
    )
