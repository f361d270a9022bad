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
from hymo.models.gdn import GatedDeltaNetBlock
from hymo.models.mla import MLABlock

Run = Callable[..., Tensor]
Block = MLABlock | GatedDeltaNetBlock


def compiled_block(block: nn.Module, capture: bool, options: dict[str, Any]) -> Run:
    """A block for weights that one process holds; `capture` records the attention of an MLA block as a CUDA graph."""
    assert isinstance(block, Block)
    if capture and isinstance(block, MLABlock):
        whole = _captured(block, options)
    else:
        whole = torch.compile(block, fullgraph=True, **options)
    second = block.feed_forward
    return _where_possible(block, whole, None if second is None else torch.compile(second, fullgraph=True, **options))


def compile_unit(unit: nn.Module, options: dict[str, Any]) -> None:
    """Let a unit that ranks gather run compiled inside its hooks. Passes with telemetry run as written too.

    A block is cut before its experts: they are a unit with hooks of its own, which stay out of compiled code.
    """
    trained, plain = _compiled_unit(unit, options), unit.forward

    def forward(x: Tensor, context: SequenceContext, *cache: Any) -> Tensor:
        trains = torch.is_grad_enabled() and context.telemetry is None
        out: Tensor = (trained if trains else plain)(x, context, *cache)
        return out

    unit.forward = forward


def _compiled_unit(unit: nn.Module, options: dict[str, Any]) -> Run:
    if not isinstance(unit, Block):
        inner: Run = torch.compile(unit.forward, fullgraph=True, **options)
        return inner
    second = unit.feed_forward
    if second is None or second.moe is None:
        return _where_possible(unit, torch.compile(unit.forward, fullgraph=True, **options), second)
    before = torch.compile(unit.before_experts, fullgraph=True, **options)

    def whole(x: Tensor, context: SequenceContext) -> Tensor:
        x, h = before(x, context)
        return x + second.transform(h, context)

    return _where_possible(unit, whole, second)


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
    """Warn of a half that is not compiled; cached, so once for each kind."""
    number = str(dtype).removeprefix("torch.")
    warnings.warn(
        f"torch_compile_gdn: half of {block} runs as written in {number}: it has no kernel there (`hymo doctor` "
        "says why), and loops on the host are not compiled.",
        stacklevel=2,
    )
