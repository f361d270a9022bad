"""The router's product in parts of bf16 against fp64, and rows sorted by expert against plain indexing."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from hymo.core.errors import UsageError
from hymo.kernels.permutation import return_rows, spread_rows
from hymo.kernels.router import parts, router_logits
from hymo.models.moe import searched
from model_helpers import close


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def relative(found: Tensor, wanted: Tensor) -> float:
    return float((found.detach().double() - wanted).norm() / wanted.norm())


def test_three_parts_are_the_whole_number() -> None:
    x = draw(4000) * torch.logspace(-25, 25, 4000)
    first, second, third = parts(x, 3)
    assert first.dtype is torch.bfloat16
    assert torch.equal((third.float() + second.float()) + first.float(), x)
    two = parts(x, 2)
    assert relative(two[0].double() + two[1].double(), x.double()) < 2**-15


@pytest.mark.parametrize("spread", [0, 3])
@pytest.mark.parametrize(("tokens", "dim", "experts"), [(1, 8, 2), (300, 96, 16), (77, 40, 5)])
def test_logits_and_gradients_in_parts_are_those_of_fp64(tokens: int, dim: int, experts: int, spread: int) -> None:
    x = draw(tokens, dim).bfloat16()
    weight = draw(experts, dim, seed=1) * torch.logspace(-spread, 0, dim)
    grad = draw(tokens, experts, seed=2) * torch.logspace(-spread, 0, experts)
    wanted = [x.double() @ weight.double().T, grad.double() @ weight.double(), grad.double().T @ x.double()]
    leaves = x.clone().requires_grad_(), weight.clone().requires_grad_()
    logits = router_logits(*leaves, implementation="split")
    found = [logits, *torch.autograd.grad(logits, leaves, grad)]
    assert [f.dtype for f in found] == [torch.float32, torch.bfloat16, torch.float32]
    assert relative(found[0], wanted[0]) < 1e-6
    least = relative(wanted[1].bfloat16(), wanted[1])  # what rounding once to bf16 costs
    assert relative(found[1], wanted[1]) < 1.01 * least
    assert relative(found[2], wanted[2]) < 1e-6


def test_one_part_alone_would_be_seen() -> None:
    """What a compiler leaves that does away with the rounding between the parts: a weight in bf16."""
    x, weight = draw(300, 96).bfloat16(), draw(16, 96, seed=1)
    assert relative(x.float() @ parts(weight, 1)[0].float().T, x.double() @ weight.double().T) > 1e-4


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_the_plain_form_is_a_product_in_fp32_or_more(dtype: torch.dtype) -> None:
    x, weight = draw(9, 12).to(dtype), draw(4, 12, seed=1)
    weight = weight.double() if dtype is torch.float64 else weight
    logits = router_logits(x, weight)
    assert logits.dtype is weight.dtype
    close(logits, x.double() @ weight.double().T, 1e-10 if dtype is torch.float64 else 1e-5)


def test_what_the_split_form_does_not_take_is_refused() -> None:
    x, weight = draw(2, 4), draw(3, 4, seed=1)
    with pytest.raises(UsageError, match=r"takes bf16 tokens and an fp32 weight, not torch\.float32 and"):
        router_logits(x, weight, "split")
    with pytest.raises(UsageError, match=r"implementation='spilt': unknown\. Known: auto"):
        router_logits(x.bfloat16(), weight, "spilt")


def test_the_operation_keeps_what_it_promises_to_tracers() -> None:
    x, weight = draw(6, 8).bfloat16().requires_grad_(), draw(4, 8, seed=1).requires_grad_()
    torch.library.opcheck(torch.ops.hymo.router_logits, (x, weight))
    turned = draw(8, 6).bfloat16().T
    torch.library.opcheck(torch.ops.hymo.router_logits_backward, (draw(6, 4), turned, weight.detach()))
    compiled = torch.compile(
        lambda a, b: router_logits(a, b, "split").sigmoid().sum(), fullgraph=True, backend="aot_eager"
    )
    wanted = torch.autograd.grad(router_logits(x, weight, "split").sigmoid().sum(), (x, weight))
    for found, want in zip(torch.autograd.grad(compiled(x, weight), (x, weight)), wanted, strict=True):
        assert torch.equal(found, want)


@pytest.mark.parametrize("copies", [1, 2, 3])
def test_rows_are_spread_and_returned_as_by_an_index(copies: int) -> None:
    order = torch.randperm(7 * copies, generator=torch.Generator().manual_seed(3))
    back = order.argsort()
    rows = draw(7, 5).double().requires_grad_()
    sorted_rows = draw(7 * copies, 5, seed=1).double().requires_grad_()
    weight = draw(7 * copies, 5, seed=2).double()
    spread, returned = spread_rows(rows, order, back, copies), return_rows(sorted_rows, order, back)
    for found, wanted, leaf in (
        (spread, rows[order // copies], rows),
        (returned, sorted_rows[back], sorted_rows),
    ):
        assert torch.equal(found, wanted)
        close(*(torch.autograd.grad((y * weight).sum(), leaf)[0] for y in (found, wanted)))
    assert torch.equal(return_rows(spread, order, back), rows.repeat_interleave(copies, 0))


def test_a_gradient_in_bf16_is_rounded_once() -> None:
    order = torch.arange(12)
    rows = torch.zeros(3, 1, dtype=torch.bfloat16, requires_grad=True)
    grads = torch.tensor([1.0, 2**-8, 2**-8, 2**-8] * 3, dtype=torch.bfloat16)[:, None]
    spread_rows(rows, order, order, 4).backward(grads)
    assert rows.grad is not None
    assert torch.equal(rows.grad, torch.full((3, 1), 1 + 2**-6).bfloat16())


@pytest.mark.parametrize("count", [1, 2, 4])
def test_searching_finds_what_topk_finds(count: int) -> None:
    scores = draw(500, 16)
    assert torch.equal(searched(scores, count), scores.topk(count).indices)
    ties = torch.tensor([[0.5, 0.7, 0.7, 0.7, 0.1], [1.0, 1.0, 1.0, 1.0, 1.0]])
    assert searched(ties, count).tolist() == [[1, 2, 3, 0][:count], [0, 1, 2, 3][:count]]
