"""Checks and timed rows of `benchmarks/kernels.py` for the head with the cross-entropy, beside its peers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

import kernel_tools as tools
from hymo.kernels import linear_cross_entropy
from kernel_pool import Check, Row
from kernel_tools import FLOPS_PER_SECOND, Job, errors

TOKENS, DIM, VOCABULARY, CAP = 16384, 896, 64256, 15.0
NAMES = ("loss", "dhidden", "dweight")
Loss = Callable[[Tensor, Tensor, Tensor], Tensor]


def parity() -> list[Check]:
    """Loss and gradients with a softcap and ignored labels against fp64, in fp32 and bf16."""
    kinds = (torch.float32, torch.bfloat16)
    return [Check("linear_cross_entropy", str(dtype), partial(_row, dtype), f"loss {dtype}") for dtype in kinds]


def _row(dtype: torch.dtype) -> Row:
    tokens, dim, vocabulary = 700, 64, 5003
    torch.manual_seed(0)
    hidden, weight = torch.randn(tokens, dim, device="cuda"), torch.randn(vocabulary, dim, device="cuda")
    targets = torch.randint(vocabulary, (tokens,), device="cuda")
    targets[::5] = -100
    outcomes = []
    for kind, implementation in ((dtype, "triton"), (torch.float64, "plain")):
        leaves = [x.to(dtype).to(kind).requires_grad_() for x in (hidden, weight)]
        loss = linear_cross_entropy(*leaves, targets, CAP, implementation=implementation)
        outcomes.append(dict(zip(NAMES, (loss.detach(), *torch.autograd.grad(loss, leaves)), strict=True)))
    return {"rel_err": errors(*outcomes), "bound": 1e-3 if dtype is torch.float32 else 1e-2}


def _plain(h: Tensor, w: Tensor, y: Tensor) -> Tensor:
    logits = h @ w.T
    wide = CAP * torch.tanh(logits.to(torch.promote_types(logits.dtype, torch.float32)) / CAP)
    return torch.nn.functional.cross_entropy(wide, y, ignore_index=-100)


def _hymo() -> Loss:
    return lambda h, w, y: linear_cross_entropy(h, w, y, CAP, implementation="triton") / (y != -100).sum()


def _compiled() -> Loss:
    compiled: Loss = torch.compile(_plain, dynamic=False)  # first called on a part: else sizes become variables
    return compiled


def _liger() -> Loss:
    from liger_kernel.transformers.fused_linear_cross_entropy import LigerFusedLinearCrossEntropyLoss

    liger = LigerFusedLinearCrossEntropyLoss(softcap=CAP, ignore_index=-100)
    return lambda h, w, y: liger(w, h, y)


LOSSES: dict[str, Callable[[], Loss]] = {"hymo": _hymo, "torch.compile": _compiled, "liger": _liger}


def jobs() -> list[Job]:
    """Forward and backward over the tokens of a training pass."""
    shape = (1, TOKENS, 1, DIM, VOCABULARY)
    return [Job("linear_cross_entropy", impl, shape, ("fwdbwd",), _rows, int(impl != "hymo")) for impl in LOSSES]


def _rows(job: Job) -> Iterator[Row]:
    torch.manual_seed(0)
    hidden = torch.randn(TOKENS, DIM, device="cuda").bfloat16()
    weight = (0.1 * torch.randn(VOCABULARY, DIM, device="cuda")).bfloat16()
    targets = torch.randint(VOCABULARY, (TOKENS,), device="cuda")
    targets[::17] = -100
    leaves = [x.detach().requires_grad_() for x in (hidden, weight)]

    def fill(row: Row) -> None:
        run = LOSSES[job.impl]()
        few = [x.detach().requires_grad_() for x in (hidden[:512], weight)]
        wide = [x.double().detach().requires_grad_() for x in few]
        outcomes = []
        for xs, function in ((few, run), (wide, _plain)):
            loss = function(*xs, targets[:512])
            outcomes.append(dict(zip(NAMES, (loss.detach(), *torch.autograd.grad(loss, xs)), strict=True)))
        row["rel_err"] = errors(*outcomes)
        tools.refuse_wrong(row)
        del few, wide, outcomes, loss
        tools.free()

        def call() -> Any:
            return torch.autograd.grad(run(*leaves, targets), leaves)

        call()
        row["extra_gib"] = tools.extra_gib(call)
        row |= tools.measure_events(call, 100, 500)

    yield tools.attempt(job.start("fwdbwd", 6 * TOKENS * DIM * VOCABULARY / FLOPS_PER_SECOND * 1e3), fill)
