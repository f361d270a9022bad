"""Convolution, output gate, sums of gradients and a few tokens on a GPU, against fp64 and the block as written."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from hymo.core.load import derive_config, load_config
from hymo.kernels import gated_delta, gated_linear, output_gate, short_conv
from hymo.kernels.accumulate import accumulate
from hymo.kernels.triton_recurrence_step_op import recurrence_step
from hymo.models import build_hymo, gdn
from hymo.models.projections import project
from hymo.models.state import GDNCache

pytestmark = pytest.mark.gpu


def relative(got: Tensor, want: Tensor) -> float:
    return float((got.double() - want.double()).norm() / (want.double().norm() + 1e-30))


@pytest.mark.parametrize(
    ("dtype", "taps"), [(torch.bfloat16, 4), (torch.float16, 3), (torch.float32, 2), (torch.float32, 4)]
)
@pytest.mark.parametrize("time", [1, 2, 60, 61, 62, 700])
def test_convolution(time: int, taps: int, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    u, weight = torch.randn(2, time, 200, device="cuda").to(dtype), torch.randn(200, taps, device="cuda").to(dtype)
    window = torch.randn(2, taps - 1, 200, device="cuda").to(dtype)
    flat, cotangent = u.flatten(0, 1)[None], torch.randn_like(u)
    bounds = torch.tensor([0, 0, 1, time, 2 * time], dtype=torch.int32, device="cuda")
    for x, options in ((u, {"window": window}), (u, {}), (flat, {"cu_seqlens": bounds})):
        results = []
        for kind, implementation in ((torch.float64, "plain"), (dtype, "triton")):
            leaves = [value.to(kind).detach().requires_grad_() for value in (x, weight)]
            extra: Any = {n: y.to(kind) if n == "window" else y for n, y in options.items()}
            y = short_conv(*leaves, implementation=implementation, **extra)
            results.append([y.detach(), *torch.autograd.grad(y, leaves, cotangent.view_as(x).to(kind))])
        errors = [relative(got, want) for want, got in zip(*results, strict=True)]
        assert max(errors) < (1e-5 if dtype is torch.float32 else 6e-3), errors


def test_convolution_repeats_bitwise_and_compiles() -> None:
    torch.manual_seed(0)
    u, weight = (x.bfloat16().requires_grad_() for x in (torch.randn(2, 999, 256).cuda(), torch.randn(256, 4).cuda()))

    def run(function: Any) -> list[Tensor]:
        y = function(u, weight)
        return [y.detach(), *torch.autograd.grad(y, (u, weight), u.detach())]

    first = run(short_conv)
    for _ in range(20):
        assert all(map(torch.equal, first, run(short_conv)))
    assert all(map(torch.equal, first, run(torch.compile(short_conv, fullgraph=True))))


def gated(leaves: list[Tensor], cotangent: Tensor, implementation: str) -> list[Tensor]:
    leaves = [x.detach().requires_grad_() for x in leaves]
    y = output_gate(*leaves[:3], leaves[3] if len(leaves) > 3 else None, implementation)
    return [y.detach(), *torch.autograd.grad(y, leaves, cotangent.to(y.dtype))]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("gate", ["none", "head", "channel"])
@pytest.mark.parametrize(("heads", "width"), [(40, 32), (39, 16), (5, 48), (20, 64), (3, 128)])
def test_output_gate(heads: int, width: int, gate: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    for batch, time in ((1, 1), (2, 333), (1, 4096)):
        o, v, cotangent = (torch.randn(batch, time, heads, width, device="cuda").to(dtype) for _ in range(3))
        leaves = [o, v, torch.randn(heads, device="cuda")]
        if gate != "none":
            shape, kind = (o.shape[:3], torch.float32) if gate == "head" else (o.shape, dtype)
            leaves.append(torch.rand(shape, device="cuda").to(kind))
        got = gated(leaves, cotangent, "triton")
        wide = [x.double() for x in leaves]
        want = gated(wide, cotangent.double(), "plain")
        scales = [x.norm() for x in want]  # of sums that can cancel, the sizes of their terms
        scales[3] = (want[1] * wide[1]).abs().sum((0, 1, 3)).norm()
        if gate == "head":
            scales[4] = (cotangent.double() * (wide[0] + wide[2][:, None] * wide[1])).abs().sum(-1).norm()
        errors = [float((x.double() - y).norm() / s) for x, y, s in zip(got, want, scales, strict=True)]
        assert max(errors) < (5e-7 if dtype is torch.float32 else torch.finfo(dtype).eps), errors
        assert all(map(torch.equal, got, gated(leaves, cotangent, "triton")))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("pairing", ["half_split", "interleaved", "none"])
@pytest.mark.parametrize(
    ("heads", "states", "width"), [(40, 32, 32), (39, 16, 32), (5, 6, 48), (20, 64, 64), (3, 128, 16)]
)
def test_projections(
    heads: int, states: int, width: int, pairing: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    rows, time, inner, keys = 2, 333, heads * width, heads * states
    v = torch.randn(rows, time, inner, device="cuda")
    weights = [torch.randn(n, inner, device="cuda") / inner**0.5 for n in (keys, keys, inner, heads)]
    shapes = ((states,), (states,), (), ())
    pulls = [torch.randn(rows, time, heads, *more, device="cuda") for more in shapes]
    angle = torch.randn(time, 1, states // 2, device="cuda")
    rotation = None if pairing == "none" else (angle.cos(), angle.sin())

    def run(kind: torch.dtype) -> list[Tensor]:
        leaves = [x.to(dtype).to(kind).requires_grad_() for x in (v, *weights)]
        b, c, g, dt = leaves[1:]
        made = [x for x in project(leaves[0], (b, c, g, dt), heads, rotation, pairing) if x is not None]
        pull = [p.to(x.dtype if p is pulls[2] else dtype).to(x.dtype) for p, x in zip(pulls, made, strict=True)]
        return [*(x.detach() for x in made), *torch.autograd.grad(made, leaves, pull)]

    got, again = run(dtype), run(dtype)
    assert all(map(torch.equal, got, again))
    monkeypatch.setenv("HYMO_KERNELS", "chunked")
    errors = [relative(x, y) for x, y in zip(got, run(torch.float64), strict=True)]
    assert max(errors) < (5e-6 if dtype is torch.float32 else 8e-3), errors


@pytest.mark.parametrize("rule", [gated_linear, gated_delta])
@pytest.mark.parametrize(
    ("width", "time", "dtype"),
    [
        *((width, 1, torch.bfloat16) for width in (16, 32, 48, 64, 128)),
        (32, 7, torch.float32),
        (128, 16, torch.float32),
    ],
)
def test_step(rule: Any, width: int, time: int, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    v, b, c = (torch.randn(3, time, 4, width, device="cuda") for _ in range(3))
    gate, state = torch.rand(3, time, 4, device="cuda"), torch.randn(3, 4, width, width, device="cuda")
    rates = torch.logspace(-6, 1.602, 4 * width, device="cuda").view(4, width).log()
    b, c = b / b.norm(dim=-1, keepdim=True), c * width**-0.5
    x, y, z = (value.to(dtype) for value in (v, b, c))
    inputs = (x, y, z, gate, rates) if rule is gated_linear else (z, y, x, gate, -gate)
    wide = [value.double() for value in inputs]
    want = rule(*wide, initial_state=state.double(), output_final_state=True, implementation="recurrent")
    with torch.no_grad():
        got = rule(*inputs, initial_state=state, output_final_state=True)
    errors = [relative(*pair) for pair in zip(got, want, strict=True)]
    assert max(errors) < (1e-5 if dtype is torch.float32 else 6e-3), errors


def test_a_step_is_captured_in_a_graph() -> None:
    torch.manual_seed(0)
    v, b, c = (torch.randn(2, 1, 4, 32, device="cuda").bfloat16() for _ in range(3))
    gate, state, rates = torch.rand(2, 1, 4).cuda(), torch.randn(2, 4, 32, 32).cuda(), torch.randn(4, 32).cuda()
    recurrence_step(v, b, c, gate, None, rates, state)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        o, after = recurrence_step(v, b, c, gate, None, rates, state)
    for _ in range(3):
        v.normal_()
        state.normal_()
        graph.replay()
        assert all(map(torch.equal, (o, after), recurrence_step(v, b, c, gate, None, rates, state)))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"gdn_recurrence": "gated_delta"},
        {"gdn_recurrence": "gated_delta", "gdn_rope_target": "v", "gdn_gate": "none"},
        {"gdn_output_norm": True, "gdn_gate": "full", "rope_pairing": "interleaved"},
        {"gdn_decay_sharing": "head", "gdn_rope_target": "none"},
    ],
    ids=str,
)
def test_decoding_by_the_kernel_equals_decoding_as_written(changes: dict[str, Any]) -> None:
    torch.manual_seed(0)
    model = build_hymo(derive_config(load_config("hymo_tiny"), model=changes)).eval().cuda()
    assert isinstance(model.layers[1], gdn.GatedDeltaNetBlock)
    tokens = torch.randint(200, (2, 28), device="cuda")

    def decoded(kernel: str) -> list[Tensor]:
        model.kernel = kernel
        state = model.init_state(2)
        hidden = [model.decode_hidden(tokens[:, :14], state)]
        hidden.append(model.decode_hidden(tokens[:, 14:19], state, keep_history=True))
        state.rollback(torch.tensor([3, 2], device="cuda"))
        hidden += [model.decode_hidden(tokens[:, t : t + 1], state) for t in range(19, 28)]
        return hidden + [x for c in state.layers if isinstance(c, GDNCache) for x in (c.state, c.window)]

    torch.backends.cuda.matmul.allow_tf32 = False
    errors = [relative(*pair) for pair in zip(decoded("auto"), decoded("recurrent"), strict=True)]
    assert max(errors) < 1e-4, errors


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_sums_of_gradients(dtype: torch.dtype) -> None:
    """As a loop adds, bit for bit; terms are given up at once, and their memory is written to by what follows."""
    torch.manual_seed(0)
    shapes = [(1280, 896), (40, 1280), (16,), (1 << 14,), (16401,), (64, 257), (16, 1024)] * 4
    sums = [torch.randn(shape, device="cuda") for shape in shapes]
    sums.append(torch.randn(1024, 64, device="cuda").T)
    whole = torch.randn(6000, 1280, device="cuda").to(dtype)  # gradients of several weights are parts of one product
    for _ in range(3):
        terms = [torch.randn_like(x).to(dtype) for x in sums] + [whole[17:2577]]
        places = [*sums, torch.randn(2560, 1280, device="cuda")]
        want = [x + y.float() for x, y in zip(places, terms, strict=True)]
        where = [x.data_ptr() for x in places]
        accumulate(places, terms)
        del terms
        for shape in shapes:
            torch.full(shape, torch.nan, device="cuda", dtype=dtype)
        assert all(map(torch.equal, places, want))
        assert [x.data_ptr() for x in places] == where
