"""Rows of `benchmarks/kernels.py` for the short convolution and for the kernel of a few tokens that decoding uses."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import torch
import triton
from torch import Tensor

from hymo.core.load import derive_config, load_config
from hymo.kernels import gated_delta, gated_linear, short_conv
from hymo.kernels.triton_recurrence_step_op import recurrence_step
from hymo.models import GatedDeltaNetBlock
from hymo.models.context import SequenceContext
from hymo.models.rope import RotaryEmbedding
from hymo.models.state import GDNCache

Rows = Iterator[dict[str, Any]]
BYTES_PER_SECOND = 4.3e12
TAPS = 4


def _relative(got: list[Tensor], want: list[Tensor], names: tuple[str, ...]) -> dict[str, float]:
    return {
        name: float((x.double() - y.double()).norm() / (y.double().norm() + 1e-30))
        for name, x, y in zip(names, got, want, strict=True)
    }


def _replayed(call: Callable[[], Any]) -> float:
    """Median milliseconds of replays of a captured graph."""
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return float(triton.testing.do_bench(graph.replay, warmup=20, rep=150, return_mode="median"))


def _printed(row: dict[str, Any], bound: float | None = None) -> dict[str, Any]:
    mark = "" if bound is None else "ok  " if max(row["rel_err"].values()) < bound else "BAD "
    print(mark + json.dumps(row), flush=True)
    return row


# Short convolution


def _conv(u: Tensor, weight: Tensor, cotangent: Tensor, implementation: str, **options: Any) -> list[Tensor]:
    leaves = [u.detach().requires_grad_(), weight.detach().requires_grad_()]
    y = short_conv(*leaves, implementation=implementation, **options)
    return [y.detach(), *torch.autograd.grad(y, leaves, cotangent.to(y.dtype))]


def conv_parity() -> Rows:
    """Lengths, taps, types, windows and packed documents against the plain form in fp64; repeats; far offsets."""
    torch.manual_seed(0)
    cases = [(2, length, 1280, 4, torch.bfloat16) for length in (1, 3, 60, 61, 62, 4096)]
    cases += [(2, 200, 130, taps, torch.float32) for taps in (2, 3, 4)] + [(1, 200, 7, 4, torch.float16)]
    for batch, length, channels, taps, dtype in cases:
        u, weight = torch.randn(batch, length, channels, device="cuda"), torch.randn(channels, taps, device="cuda")
        u, weight, cotangent = u.to(dtype), weight.to(dtype), torch.randn_like(u).to(dtype)
        options: dict[str, Any] = {}
        if length == 60:
            options["window"] = torch.randn(batch, taps - 1, channels, device="cuda").to(dtype)
        if batch == 1:
            lengths = torch.tensor([0, 0, 1, 2, 3, 60, 61, 62, length])
            options["cu_seqlens"] = lengths.to("cuda", torch.int32)
        wide = {n: x.double() if n == "window" else x for n, x in options.items()}
        want = _conv(u.double(), weight.double(), cotangent, "plain", **wide)
        got = _conv(u, weight, cotangent, "triton", **options)
        row = {"op": "short_conv", "case": f"B {batch} T {length} C {channels} K {taps} {dtype} {sorted(options)}"}
        bound = 1e-5 if dtype is torch.float32 else 6e-3
        yield _printed(row | {"rel_err": _relative(got, want, ("y", "du", "dweight")), "bound": bound}, bound)
    u, weight = torch.randn(4, 4096, 1280, device="cuda").bfloat16(), torch.randn(1280, 4, device="cuda").bfloat16()
    first = _conv(u, weight, u, "triton")
    same = all(all(map(torch.equal, first, _conv(u, weight, u, "triton"))) for _ in range(100))
    row = {"op": "short_conv", "case": "100 repeats bitwise equal", "rel_err": {"different": float(not same)}}
    yield _printed(row | {"bound": 0.5}, 0.5)
    batch = 2**31 // u[0].numel() + 2
    many = u[:1].expand(batch, -1, -1).contiguous()
    with torch.no_grad():
        last = short_conv(many, weight, implementation="triton")[-1]
    row = {"op": "short_conv", "case": f"batch {batch}: offsets past 2^31", "bound": 1e-6}
    yield _printed(row | {"rel_err": _relative([last], [short_conv(u[:1], weight)[0]], ("y",))}, 1e-6)


def conv_rows() -> Rows:
    """Forward, and both ways, of 16,384 x 1,280 inputs: our kernels, PyTorch as it is, and compiled."""
    torch.manual_seed(0)
    shape, channels = (4, 4096), 1280
    u = torch.randn(*shape, channels, device="cuda").bfloat16().requires_grad_()
    weight = torch.randn(channels, TAPS, device="cuda").bfloat16().requires_grad_()
    cotangent = torch.randn_like(u)
    bounds = torch.arange(0, 16385, 1170, dtype=torch.int32, device="cuda")
    bounds[-1] = 16384

    def plain(u: Tensor, weight: Tensor) -> Tensor:
        return short_conv(u, weight, implementation="plain")

    functions: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
        "hymo": lambda u, w: short_conv(u, w, implementation="triton"),
        f"hymo, {len(bounds) - 1} packed documents": lambda u, w: short_conv(
            u.flatten(0, 1)[None], w, cu_seqlens=bounds, implementation="triton"
        ).view_as(u),
        "torch": plain,
        "torch.compile": torch.compile(plain),
    }
    part = [x.detach().double().requires_grad_() for x in (u[:1, :512], weight)]
    exact = plain(*part)
    want = [exact.detach(), *torch.autograd.grad(exact, part, cotangent[:1, :512].double())]
    for impl, run in functions.items():
        if "packed" in impl:
            found = {}
        else:
            leaves = [x.detach().requires_grad_() for x in (u[:1, :512].contiguous(), weight)]
            y = run(*leaves)
            grads = torch.autograd.grad(y, leaves, cotangent[:1, :512])
            found = _relative([y.detach(), *grads], want, ("y", "du", "dweight"))
        for direction, passes in (("fwd", 2), ("fwdbwd", 5)):
            row: dict[str, Any] = {"op": "short_conv", "impl": impl, "direction": direction, "ms": None}
            row |= {"shape": {"B": 4, "T": 4096, "H": 1, "K": TAPS, "V": channels}, "rel_err": found}
            row["floor_ms"] = passes * u.numel() * 2 / BYTES_PER_SECOND * 1e3

            def both(run: Callable[..., Tensor] = run) -> Any:
                return torch.autograd.grad(run(u, weight), (u, weight), cotangent)

            def forward(run: Callable[..., Tensor] = run) -> Any:
                with torch.no_grad():
                    return run(u, weight)

            try:
                row["ms"], row["timing"] = _replayed(forward if direction == "fwd" else both), "graph"
            except Exception as error:
                row["failed"] = f"{type(error).__name__}: {error}"[:300]
            yield _printed(row)


# Few tokens


def _step_inputs(rule: str, batch: int, time: int, heads: int, width: int, dtype: torch.dtype) -> list[Any]:
    """v, b, c, g, beta, A_log, state as `recurrence_step` takes them."""
    torch.manual_seed(0)
    v, b, c = (torch.randn(batch, time, heads, width, device="cuda") for _ in range(3))
    gate = torch.rand(batch, time, heads, device="cuda")
    state = torch.randn(batch, heads, width, width, device="cuda")
    rates = torch.logspace(-6, 1.602, heads * width, device="cuda").view(heads, width).log()
    if rule == "gated_linear":
        return [*(x.to(dtype) for x in (v, b, c)), gate, None, rates, state]
    b = b / b.norm(dim=-1, keepdim=True)
    return [*(x.to(dtype) for x in (v, b, c * width**-0.5)), -gate, torch.rand_like(gate), None, state]


def _loop(rule: str, inputs: list[Any]) -> list[Tensor]:
    v, b, c, g, beta, rates, state = (None if x is None else x.double() for x in inputs)
    options: dict[str, Any] = {"output_final_state": True, "implementation": "recurrent"}
    if rule == "gated_linear":
        return list(gated_linear(v, b, c, g, rates, state, **options))
    return list(gated_delta(c, b, v, beta, g, state, **options))


def step_parity() -> Rows:
    """The kernel of a few tokens against the fp64 time loop."""
    for rule in ("gated_linear", "gated_delta"):
        for width in (16, 32, 48, 64, 128):
            for dtype in (torch.bfloat16, torch.float32):
                for time in (1, 5, 16):
                    inputs = _step_inputs(rule, 3, time, 4, width, dtype)
                    found = _relative(list(recurrence_step(*inputs)), _loop(rule, inputs), ("o", "final"))
                    bound = 1e-5 if dtype is torch.float32 else 6e-3
                    row = {"op": f"{rule} step", "case": f"T {time} width {width} {dtype}", "rel_err": found}
                    yield _printed(row | {"bound": bound}, bound)


def step_rows() -> Rows:
    """One token: the recurrence alone, and a whole block of the flagship, as written and with everything fused."""
    for rule in ("gated_linear", "gated_delta"):
        for batch in (1, 64):
            inputs = _step_inputs(rule, batch, 1, 40, 32, torch.bfloat16)
            found = _relative(list(recurrence_step(*inputs)), _loop(rule, inputs), ("o", "final"))
            floor = 2 * inputs[-1].numel() * 4 / BYTES_PER_SECOND * 1e3
            row: dict[str, Any] = {"op": f"{rule} step", "impl": "hymo", "direction": "fwd", "floor_ms": floor}
            row |= {"shape": {"B": batch, "T": 1, "H": 40, "K": 32, "V": 32}, "rel_err": found}
            row["ms"] = _replayed(lambda inputs=inputs: recurrence_step(*inputs))
            yield _printed(row | {"timing": "graph"})
            yield from _block_rows(rule, batch)


@torch.no_grad()
def _block_rows(rule: str, batch: int) -> Rows:
    config = derive_config(load_config("hymo_750m"), model={"gdn_recurrence": rule}).model
    torch.manual_seed(0)
    block = GatedDeltaNetBlock(config, 1).cuda()
    for parameter in block.parameters():
        parameter.copy_(torch.randn_like(parameter) * parameter.shape[-1] ** -0.5)
    block.reset_decay()
    x = torch.randn(batch, 1, config.dim, device="cuda")
    state = torch.randn(batch, config.gdn_n_heads, config.gdn_d_state, config.gdn_headdim, device="cuda")
    window = torch.randn(batch, config.gdn_d_conv - 1, config.gdn_d_inner, device="cuda")
    cos, sin = RotaryEmbedding(config.gdn_d_state, 64, 1e4)(torch.full((batch, 1), 9), 9)
    rotation = cos.cuda(), sin.cuda()

    def run(kernel: str, dtype: torch.dtype) -> Tensor:
        context = SequenceContext(rotation, rotation, kernel=kernel)
        cache = GDNCache(state.to(torch.promote_types(dtype, torch.float32)), window.to(dtype))
        out: Tensor = block(x.to(dtype), context, cache)
        return out

    want = run("recurrent", torch.float32).double()
    block.bfloat16()
    for impl, kernel in (("block, as written", "recurrent"), ("block, one kernel", "auto")):
        found = _relative([run(kernel, torch.bfloat16)], [want], ("x",))
        row: dict[str, Any] = {"op": f"{rule} step", "impl": impl, "direction": "fwd", "rel_err": found}
        row["shape"] = {"B": batch, "T": 1, "H": config.gdn_n_heads, "K": config.gdn_d_state, "V": config.gdn_headdim}
        weights = 2 * sum(p.numel() for p in block.parameters())
        row["floor_ms"] = (weights + 8 * state.numel()) / BYTES_PER_SECOND * 1e3
        row["ms"] = _replayed(lambda kernel=kernel: run(kernel, torch.bfloat16))
        yield _printed(row | {"timing": "graph"})
