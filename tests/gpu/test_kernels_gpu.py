"""The Triton kernels on a GPU against fp64: the only proof that counts, since compilers have got such kernels wrong."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor

from hymo.core.load import derive_config, load_config
from hymo.kernels import dispatch, gated_delta, gated_linear, linear_cross_entropy
from hymo.models import build_hymo

pytestmark = pytest.mark.gpu
WIDE = ("g", "A_log", "beta", "log_alpha")


def inputs(
    rule: Any, time: int, width: int, decay: str, batch: int = 2, heads: int = 3, values: int | None = None
) -> dict[str, Tensor]:
    rng = torch.Generator("cuda").manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=rng, device="cuda", dtype=torch.float64)

    keys, gates = (batch, time, heads, width), (batch, time, heads)
    first, second, v = normal(*keys), normal(*keys), normal(*gates, values or width)
    g = torch.rand(gates, generator=rng, device="cuda", dtype=torch.float64)
    strongest = {"spread": 1.0, "slow": 1e-6, "fast": 40.0}[decay]
    if rule is gated_delta:
        k = second / second.norm(dim=-1, keepdim=True)
        beta = torch.rand(gates, generator=rng, device="cuda", dtype=torch.float64)
        return {"q": first * width**-0.5, "k": k, "v": v, "beta": beta, "log_alpha": -strongest * g}
    rates = torch.full((heads, width), strongest, device="cuda", dtype=torch.float64)
    if decay == "spread":
        rates = torch.logspace(-6, 1.602, heads * width, device="cuda", dtype=torch.float64).view(heads, width)
    else:
        g = torch.ones_like(g)
    return {"v": v, "b": first, "c": second, "g": g, "A_log": rates.log()}


def run(rule: Any, values: dict[str, Tensor], implementation: str, dtype: torch.dtype, **options: Any) -> list[Tensor]:
    leaves = {}
    for name, x in values.items():
        kind = dtype if dtype is torch.float64 or name not in WIDE else torch.float32
        leaves[name] = x.detach().to(kind).requires_grad_()
    o, final = rule(**leaves, output_final_state=True, implementation=implementation, **options)
    rng = torch.Generator("cuda").manual_seed(1)
    weight, weight_final = (torch.randn(x.shape, generator=rng, device="cuda") for x in (o, final))
    loss = (o.double() * weight).sum() + (final.double() * weight_final).sum()
    return [o.detach(), final.detach(), *torch.autograd.grad(loss, list(leaves.values()))]


def compare(rule: Any, values: dict[str, Tensor], dtype: torch.dtype, **options: Any) -> None:
    rounded = {n: x.to(torch.float32 if n in WIDE else dtype).double() for n, x in values.items()}
    want = run(rule, rounded, "chunked", torch.float64, **options)
    got = run(rule, rounded, "triton", dtype, **options)
    names = ["o", "final", *values]
    for name, x, y in zip(names, got, want, strict=True):
        error = float((x.double() - y).norm() / (y.norm() + 1e-30))
        assert error < (1e-3 if dtype is torch.float32 else 1e-2), (name, error)


@pytest.mark.parametrize("rule", [gated_linear, gated_delta])
@pytest.mark.parametrize("time", [1, 17, 63, 64, 65, 4096])
def test_lengths(rule: Any, time: int) -> None:
    compare(rule, inputs(rule, time, 32, "spread"), torch.bfloat16)


@pytest.mark.parametrize("rule", [gated_linear, gated_delta])
@pytest.mark.parametrize("decay", ["spread", "slow", "fast"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float16])
def test_decays(rule: Any, decay: str, dtype: torch.dtype) -> None:
    compare(rule, inputs(rule, 300, 32, decay), dtype)


@pytest.mark.parametrize("rule", [gated_linear, gated_delta])
@pytest.mark.parametrize("width", [16, 48, 64, 128])
def test_widths(rule: Any, width: int) -> None:
    compare(rule, inputs(rule, 130, width, "spread"), torch.bfloat16)


@pytest.mark.parametrize("rule", [gated_linear, gated_delta])
@pytest.mark.parametrize(("width", "values"), [(32, 64), (64, 32), (16, 128)])
def test_keys_and_values_of_different_widths(rule: Any, width: int, values: int) -> None:
    compare(rule, inputs(rule, 130, width, "spread", values=values), torch.bfloat16)


@pytest.mark.parametrize("rule", [gated_linear, gated_delta])
def test_packed_documents(rule: Any) -> None:
    bounds = torch.tensor([0, 0, 1, 65, 65, 400], dtype=torch.int32, device="cuda")
    compare(rule, inputs(rule, 400, 32, "spread", batch=1), torch.bfloat16, cu_seqlens=bounds)


@pytest.mark.parametrize("rule", [gated_linear, gated_delta])
def test_repeats_are_bitwise_equal(rule: Any) -> None:
    values = inputs(rule, 1000, 32, "spread")
    first = run(rule, values, "triton", torch.bfloat16)
    for _ in range(20):
        assert all(map(torch.equal, first, run(rule, values, "triton", torch.bfloat16)))


@pytest.mark.parametrize("rule", [gated_linear, gated_delta])
def test_compiles_without_a_break(rule: Any) -> None:
    values = {n: x.float().requires_grad_() for n, x in inputs(rule, 100, 32, "spread").items()}
    compiled = torch.compile(lambda **xs: rule(**xs, implementation="triton")[0].square().sum(), fullgraph=True)
    want = torch.autograd.grad(rule(**values, implementation="triton")[0].square().sum(), list(values.values()))
    got = torch.autograd.grad(compiled(**values), list(values.values()))
    for x, y in zip(got, want, strict=True):
        torch.testing.assert_close(x, y)


def test_auto_takes_triton_and_says_why_it_falls_back() -> None:
    values = inputs(gated_linear, 40, 32, "spread")
    half = {n: x.to(torch.float32 if n in WIDE else torch.bfloat16) for n, x in values.items()}
    assert torch.equal(gated_linear(**half)[0], gated_linear(**half, implementation="triton")[0])
    dispatch._fall_back.cache_clear()
    with pytest.warns(
        UserWarning, match="chunked form: the Triton kernels take fp32, bf16 and fp16, not torch.float64"
    ):
        gated_linear(**values)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gated_linear(**values)  # once for each reason


@pytest.mark.parametrize("rule", [gated_linear, gated_delta])
def test_lengths_add_no_more_than_one_compilation(rule: Any) -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    compiled = torch.compile(lambda **xs: rule(**xs, implementation="triton")[0].square().sum(), fullgraph=True)
    for time in (64, 100, 130, 257, 300):
        values = {n: x.float().requires_grad_() for n, x in inputs(rule, time, 32, "spread").items()}
        torch.autograd.grad(compiled(**values), list(values.values()))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 2


@pytest.mark.parametrize("rule", [gated_linear, gated_delta])
def test_neighbours_are_neither_read_nor_written(rule: Any) -> None:
    values = {n: x.float() for n, x in inputs(rule, 33, 20, "spread").items()}
    fenced = {}
    for name, x in values.items():
        room = torch.full((x.numel() + 512,), float("nan"), device="cuda")
        inside = room[256:-256].view(x.shape)
        inside.copy_(x)
        fenced[name] = inside
    got = rule(**fenced, implementation="triton", output_final_state=True)
    want = rule(**values, implementation="triton", output_final_state=True)
    assert all(map(torch.equal, got, want))


@pytest.mark.parametrize("chunks", [1, 6])
def test_cross_entropy(chunks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = 128 if chunks > 1 else 700
    monkeypatch.setattr("hymo.kernels.cross_entropy.logit_chunk_elements", lambda *_: rows * 5003)
    rng = torch.Generator("cuda").manual_seed(0)
    hidden = torch.randn(700, 64, generator=rng, device="cuda")
    weight = torch.randn(5003, 64, generator=rng, device="cuda")
    targets = torch.randint(5003, (700,), generator=rng, device="cuda")
    targets[::5] = -100
    results = []
    for implementation, dtype in (("plain", torch.float64), ("triton", torch.float32), ("triton", torch.bfloat16)):
        leaves = [x.bfloat16().to(dtype).requires_grad_() for x in (hidden, weight)]
        loss = linear_cross_entropy(*leaves, targets, 15.0, implementation=implementation)
        results.append([loss.detach(), *torch.autograd.grad(loss, leaves)])
    for got, bound in ((results[1], 1e-4), (results[2], 1e-2)):
        for x, y in zip(got, results[0], strict=True):
            assert float((x.double() - y).norm() / y.norm()) < bound


@pytest.mark.parametrize("rule", ["gated_linear", "gated_delta"])
def test_a_full_width_twin_of_the_flagship_is_one_graph(rule: str) -> None:
    torch.manual_seed(0)
    model_fields = {"n_layers": 8, "mla_layers": [0, 4], "gdn_recurrence": rule}
    model = build_hymo(derive_config(load_config("hymo_750m"), model=model_fields), device="cuda").bfloat16()
    tokens = torch.randint(64256, (1, 512), device="cuda")
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    compiled = torch.compile(lambda x: model(x).square().mean(), fullgraph=True)
    compiled(tokens).backward()
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    assert grads
    assert all(grad.isfinite().all() for grad in grads)
