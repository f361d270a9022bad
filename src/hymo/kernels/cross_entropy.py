r"""Output head, softcap and cross-entropy in one operation.

logits = c tanh(h W^T / c) and the log-sum-exp are fp32 whatever the inputs. The chunked form never holds the
(tokens, vocabulary) matrix: it goes over chunks of tokens and forms the gradients of h and W in the same pass, so the
backward pass only scales them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from hymo.core.errors import UsageError
from hymo.core.memory import LOGIT_CHUNK_ELEMENTS, logit_chunk_elements
from hymo.kernels.arguments import working_dtype
from hymo.kernels.dispatch import machine_obstacle

IGNORE_INDEX = -100
"""Target of a token that has none."""


def softcapped_logits(hidden: Tensor, weight: Tensor, softcap: float) -> Tensor:
    """c tanh(h W^T / c) in fp32 (fp64 for fp64 inputs); plain logits for softcap 0."""
    logits = F.linear(hidden, weight.to(hidden.dtype)).to(working_dtype(hidden))
    return softcap * torch.tanh(logits / softcap) if softcap else logits


def linear_cross_entropy(
    hidden: Tensor, weight: Tensor, targets: Tensor, softcap: float = 0.0, implementation: str = "auto"
) -> Tensor:
    """Sum over tokens of the cross-entropy of softcapped logits.

    Args:
        hidden: (N, dim), any floating dtype.
        weight: output head (V, dim).
        targets: int64 (N,), -100 where there is no target.
        softcap: cap c of the logits; 0 is none.
        implementation: auto, plain (materialises the logits), chunked, or triton (chunked, with one kernel per chunk
            for softcap, log-sum-exp and gradient).

    Returns:
        A scalar sum in nats, fp32 (fp64 for fp64 inputs); 0 with a zero gradient if every target is ignored.
    """
    if implementation == "auto":
        small = hidden.shape[0] * weight.shape[0] <= LOGIT_CHUNK_ELEMENTS
        fused = hidden.is_cuda and not _obstacle(hidden)
        implementation = "plain" if small else "triton" if fused else "chunked"
    if implementation == "plain":
        logits = softcapped_logits(hidden, weight, softcap)
        return F.cross_entropy(logits, targets, ignore_index=IGNORE_INDEX, reduction="sum")
    if implementation not in ("chunked", "triton"):
        raise UsageError(f"implementation='{implementation}': unknown. Known: auto, plain, chunked, triton.")
    if implementation == "triton" and (why := _obstacle(hidden)):
        raise UsageError(f"implementation='triton': {why}. Use auto, plain or chunked.")
    return _chunked(hidden, weight, targets, softcap, implementation == "triton")


def _obstacle(hidden: Tensor) -> str:
    """Why the Triton kernel can't run, or an empty string."""
    if hidden.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        return f"the Triton kernel takes fp32, bf16 and fp16, not {hidden.dtype}"
    return machine_obstacle(hidden.device)


def _multiply(total: Tensor, left: Tensor, right: Tensor, add: bool) -> None:
    """total (+)= left^T right; on a GPU in one product that adds in fp32 and reads the total only to add to it."""
    if not left.is_cuda or left.dtype == total.dtype:
        product = (left.T @ right).to(total.dtype)
        total.add_(product) if add else total.copy_(product)
    elif add:
        torch.addmm(total, left.T, right, out_dtype=total.dtype, out=total)
    else:
        torch.mm(left.T, right, out_dtype=total.dtype, out=total)


def _scaled(x: Tensor, factor: Tensor, dtype: torch.dtype) -> Tensor:
    """x * factor, rounded once to `dtype`, in one pass."""
    return torch.mul(x, factor, out=torch.empty_like(x, dtype=dtype))


class _ChunkedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor, softcap: float, fused: bool) -> Tensor:
        dtype = working_dtype(hidden)
        total = torch.zeros((), dtype=dtype, device=hidden.device)
        needs_hidden, needs_weight = ctx.needs_input_grad[:2]
        # In fp32 until the gradient of the sum is known: scaled in bf16 they would be rounded twice.
        grad_hidden = torch.empty(hidden.shape, dtype=dtype, device=hidden.device) if needs_hidden else None
        grad_weight = torch.empty(weight.shape, dtype=dtype, device=weight.device) if needs_weight else None
        if grad_weight is not None and not len(hidden):
            grad_weight.zero_()
        elements = LOGIT_CHUNK_ELEMENTS
        if fused:  # a chunk's logits are held once, in their own type
            elements = logit_chunk_elements(hidden.shape[0] * weight.shape[0], hidden.element_size())
        rows = max(1, elements // weight.shape[0])
        rows = max(rows // 128 * 128, min(rows, 128))
        matrix = weight.to(hidden.dtype)
        for start in range(0, hidden.shape[0], rows):
            h, y = hidden[start : start + rows], targets[start : start + rows]
            if fused:
                from hymo.kernels.triton_cross_entropy import cross_entropy_in_place  # only here: Triton is optional

                rounded = F.linear(h, matrix)
                total += cross_entropy_in_place(rounded, y, softcap, IGNORE_INDEX, needs_hidden or needs_weight).sum()
                if grad_hidden is not None:
                    _multiply(grad_hidden[start : start + rows], rounded.T, matrix, add=False)
                if grad_weight is not None:
                    _multiply(grad_weight, rounded, h, add=start > 0)
                del rounded  # else it would stay while the next chunk's are formed
                continue
            valid = y != IGNORE_INDEX
            safe = y.masked_fill(~valid, 0)[:, None]  # any other value out of range fails in gather
            logits = softcapped_logits(h, matrix, softcap)
            lse = torch.logsumexp(logits, -1, keepdim=True)
            total += ((lse - logits.gather(-1, safe)).squeeze(-1) * valid).sum()
            if not (needs_hidden or needs_weight):
                continue
            slope = 1 - (logits / softcap).square() if softcap else None
            grad = torch.exp(logits - lse)
            grad.scatter_add_(-1, safe, torch.full_like(safe, -1, dtype=dtype))
            grad *= valid[:, None]
            if slope is not None:
                grad *= slope
            rounded = grad.to(hidden.dtype)
            if grad_hidden is not None:
                _multiply(grad_hidden[start : start + rows], rounded.T, matrix, add=False)
            if grad_weight is not None:
                _multiply(grad_weight, rounded, h, add=start > 0)
        ctx.save_for_backward(grad_hidden, grad_weight)
        ctx.dtypes = hidden.dtype, weight.dtype
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None, None, None]:
        grad_hidden, grad_weight = ctx.saved_tensors
        return (
            None if grad_hidden is None else _scaled(grad_hidden, grad, ctx.dtypes[0]),
            None if grad_weight is None else _scaled(grad_weight, grad, ctx.dtypes[1]),
            None,
            None,
            None,
        )


_chunked: Callable[[Tensor, Tensor, Tensor, float, bool], Tensor] = _ChunkedCrossEntropy.apply
