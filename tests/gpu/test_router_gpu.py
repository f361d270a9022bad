"""The mixture's own operations on a GPU: the router's product in parts of bf16, the search for experts, compiled."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from hymo.kernels.router import router_logits
from hymo.models.moe import searched

pytestmark = pytest.mark.gpu
TOKENS, DIM, EXPERTS = 65_536, 896, 16


def relative(found: Tensor, wanted: Tensor) -> float:
    return float((found.double() - wanted).norm() / wanted.norm())


@pytest.mark.parametrize("compiled", [False, True])
def test_parts_give_the_product_of_fp32(compiled: bool) -> None:
    torch.manual_seed(0)
    tokens = torch.randn(TOKENS, DIM, device="cuda").bfloat16().requires_grad_()
    weight = (0.03 * torch.randn(EXPERTS, DIM, device="cuda")).requires_grad_()
    grad = torch.randn(TOKENS, EXPERTS, device="cuda")
    run = torch.compile(router_logits, fullgraph=True) if compiled else router_logits
    logits = run(tokens, weight)
    found = [logits.detach(), *torch.autograd.grad(logits, (tokens, weight), grad)]
    x, w, g = tokens.detach().double(), weight.detach().double(), grad.double()
    wanted = x @ w.T, g @ w, g.T @ x
    rounding = relative(wanted[1].bfloat16(), wanted[1])
    bounds = 1e-6, 1.05 * rounding, 1e-5  # the last is a sum over 65,536 tokens
    for name, have, want, bound in zip(["logits", "tokens", "weight"], found, wanted, bounds, strict=True):
        assert relative(have, want) < bound, name
    assert torch.ops.hymo.router_logits(tokens, weight).equal(logits)  # what auto takes here


def test_the_search_is_topk() -> None:
    scores = torch.randn(TOKENS, EXPERTS, device="cuda").sigmoid()
    compiled = torch.compile(lambda s: searched(s + 0.5, 2), fullgraph=True)
    wanted = (scores + 0.5).topk(2)
    for chosen in (searched(scores + 0.5, 2), compiled(scores)):
        assert torch.equal((scores + 0.5).gather(1, chosen), wanted.values)  # equal scores may stand for each other
