"""Attention of packed documents on a GPU against fp64 softmax attention of each document."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import Tensor

from hymo.kernels import attention, document_attention
from hymo.kernels.cudnn_attention import cudnn_obstacle

pytestmark = pytest.mark.gpu
BOUNDS = [
    [0, 300],
    [0, 1, 2, 200, 456, 457, 600],
    [0, 100, 100, 100, 171],
    list(range(0, 71 * 4, 4)),
]


def softmax_attention(q: Tensor, k: Tensor, v: Tensor, scale: float, bounds: list[int]) -> Tensor:
    repeats = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(repeats, 1) for x in (k, v))
    parts = []
    for start, end in pairwise(bounds):
        scores = torch.einsum("thd,shd->hts", q[start:end], k[start:end]) * scale
        later = torch.ones(end - start, end - start, dtype=torch.bool, device=q.device).triu(1)
        parts.append(torch.einsum("hts,shd->thd", scores.masked_fill(later, -torch.inf).softmax(-1), v[start:end]))
    return torch.cat(parts)


@pytest.mark.parametrize("form", ["cudnn", "flash"])
@pytest.mark.parametrize("heads", [(16, 4, 128), (4, 4, 64), (6, 2, 32)])
@pytest.mark.parametrize("bounds", BOUNDS)
def test_packed_documents(
    bounds: list[int], heads: tuple[int, int, int], form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if form == "cudnn":
        why = cudnn_obstacle(torch.device("cuda", torch.cuda.current_device()))
        if why:
            pytest.skip(why)
    else:
        monkeypatch.setattr(attention, "_cudnn_obstacle", lambda *_: "switched off by the test")
    many, few, width = heads
    rng = torch.Generator("cuda").manual_seed(0)
    sizes = [(bounds[-1], n, width) for n in (many, few, few)]
    leaves = [torch.randn(size, generator=rng, device="cuda").bfloat16().requires_grad_() for size in sizes]
    do = torch.randn(sizes[0], generator=rng, device="cuda").bfloat16()
    cu = torch.tensor(bounds, dtype=torch.int32, device="cuda")
    o = document_attention(*(x[None] for x in leaves), 0.1, cu)[0]
    got = [o, *torch.autograd.grad(o, leaves, do)]
    exact = [x.detach().double().requires_grad_() for x in leaves]
    want = softmax_attention(*exact, 0.1, bounds)
    for x, y in zip(got, [want, *torch.autograd.grad(want, exact, do.double())], strict=True):
        assert float((x.double() - y).norm() / (y.norm() + 1e-30)) < 5e-3
