"""Logits of a router in fp32 from tokens in bf16, on the units that multiply bf16.

A number of fp32 is the sum of three of bf16 (eight bits each), and a product of two numbers of bf16 is exact in fp32.
So one product with the three parts of the weight side by side gives what a product in fp32 gives, without tokens
written out in fp32 and without the slow units. Gradients likewise; for those of the tokens, bf16, two parts are enough.
Cutting is done inside the operations: a compiler that fuses it may leave the rounding out.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from hymo.core.errors import UsageError

torch.library.define("hymo::router_logits", "(Tensor tokens, Tensor weight) -> Tensor")
torch.library.define("hymo::router_logits_backward", "(Tensor grad, Tensor tokens, Tensor weight) -> (Tensor, Tensor)")


def router_logits(tokens: Tensor, weight: Tensor, implementation: str = "auto") -> Tensor:
    """tokens weight^T in fp32 (fp64 for fp64 tokens), whatever the dtype of the weight.

    Args:
        tokens: (N, dim), any floating dtype.
        weight: (E, dim), fp32 or fp64.
        implementation: plain (a product of tokens cast to fp32), split (parts in bf16; takes bf16 tokens and an fp32
            weight), or auto: split on a CUDA device where it takes the types.

    Returns:
        (N, E).

    Raises:
        UsageError: an unknown implementation, or split for other types.
    """
    fits = tokens.dtype is torch.bfloat16 and weight.dtype is torch.float32
    if implementation == "auto":
        implementation = "split" if tokens.is_cuda and fits else "plain"
    if implementation not in ("plain", "split"):
        raise UsageError(f"implementation='{implementation}': unknown. Known: auto, plain, split.")
    if implementation == "split":
        if not fits:
            raise UsageError(
                f"implementation='split': takes bf16 tokens and an fp32 weight, not {tokens.dtype} and {weight.dtype}."
            )
        logits: Tensor = torch.ops.hymo.router_logits(tokens, weight)
        return logits
    wide = torch.promote_types(tokens.dtype, torch.float32)
    return F.linear(tokens.to(wide), weight.to(wide))


def parts(x: Tensor, count: int) -> list[Tensor]:
    """`count` tensors of bf16 whose sum is `x` (fp32) up to 8 bits each; three are all of it."""
    found: list[Tensor] = []
    for _ in range(count):
        found.append(x.to(torch.bfloat16))
        x = x - found[-1].to(x.dtype)
    return found


def _product(left: Tensor, right: Tensor) -> Tensor:
    """left right in fp32 of two matrices in bf16."""
    if left.is_cuda:
        return torch.mm(left, right, out_dtype=torch.float32)
    product: Tensor = left.float() @ right.float()
    return product


def _forward(tokens: Tensor, weight: Tensor) -> Tensor:
    by_part: Tensor = _product(tokens, torch.cat(parts(weight, 3)).T).unflatten(1, (3, -1))
    return by_part[:, 0] + (by_part[:, 1] + by_part[:, 2])


def _backward(grad: Tensor, tokens: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    high, middle = parts(weight, 2)
    first, second, third = parts(grad.contiguous(), 3)
    for_tokens = torch.cat((first, second, first), 1) @ torch.cat((high, high, middle))
    by_part = _product(torch.cat((first, second, third), 1).T, tokens).unflatten(0, (3, -1))
    return for_tokens, by_part[0] + (by_part[1] + by_part[2])


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _differentiate(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
    for_tokens, for_weight = torch.ops.hymo.router_logits_backward(grad, *ctx.saved_tensors)
    return for_tokens, for_weight


torch.library.impl("hymo::router_logits", ("CPU", "CUDA"), _forward)
torch.library.impl("hymo::router_logits_backward", ("CPU", "CUDA"), _backward)
torch.library.register_fake(
    "hymo::router_logits", lambda tokens, weight: weight.new_empty((tokens.shape[0], weight.shape[0]))
)
torch.library.register_fake(
    "hymo::router_logits_backward",
    lambda grad, tokens, weight: (tokens.new_empty(tokens.shape), weight.new_empty(weight.shape)),
)
torch.library.register_autograd("hymo::router_logits", _differentiate, setup_context=_keep)
