"""Checks and timed rows of `benchmarks/kernels.py` for the convolution and for the few tokens of a decoding pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

import kernel_tools as tools
from hymo.core.load import derive_config, load_config
from hymo.kernels import gated_delta, gated_linear, short_conv
from hymo.kernels.triton_recurrence_step_op import recurrence_step
from hymo.models import GatedDeltaNetBlock
from hymo.models.context import SequenceContext
from hymo.models.rope import RotaryEmbedding
from hymo.models.state import GDNCache
from kernel_pool import Check, Row
from kernel_tools import BYTES_PER_SECOND, Job

TAPS = 4
CHANNELS = 1280


def _relative(got: list[Tensor], want: list[Tensor], names: tuple[str, ...]) -> dict[str, float]:
    return tools.errors(dict(zip(names, got, strict=True)), dict(zip(names, want, strict=True)))


# Short convolution


def _conv(u: Tensor, weight: Tensor, cotangent: Tensor, implementation: str, **options: Any) -> list[Tensor]:
    leaves = [u.detach().requires_grad_(), weight.detach().requires_grad_()]
    y = short_conv(*leaves, implementation=implementation, **options)
    return [y.detach(), *torch.autograd.grad(y, leaves, cotangent.to(y.dtype))]


def conv_parity() -> list[Check]:
    """Lengths, taps, types, windows and packed documents against the plain form in fp64; repeats; far offsets."""
    cases = [(2, length, CHANNELS, 4, torch.bfloat16) for length in (1, 3, 60, 61, 62, 4096)]
    cases += [(2, 200, 130, taps, torch.float32) for taps in (2, 3, 4)] + [(1, 200, 7, 4, torch.float16)]
    found = []
    for batch, length, channels, taps, dtype in cases:
        extra = ["window"] if length == 60 else ["cu_seqlens"] if batch == 1 else []
        case = f"B {batch} T {length} C {channels} K {taps} {dtype} {extra}"
        run = partial(_conv_row, batch, length, channels, taps, dtype, extra)
        found.append(Check("short_conv", case, run, f"conv {channels} {taps} {dtype} {extra}"))
    found.append(Check("short_conv", "100 repeats bitwise equal", _conv_repeats, "conv repeats"))
    found.append(Check("short_conv", f"batch {FAR}: offsets past 2^31", _conv_far, "conv far", large=True))
    return found


FAR = 2**31 // (4096 * CHANNELS) + 2
"""Sequences of 4,096 tokens whose elements a signed word cannot count."""


def _conv_row(batch: int, length: int, channels: int, taps: int, dtype: torch.dtype, extra: list[str]) -> Row:
    torch.manual_seed(0)
    u, weight = torch.randn(batch, length, channels, device="cuda"), torch.randn(channels, taps, device="cuda")
    u, weight, cotangent = u.to(dtype), weight.to(dtype), torch.randn_like(u).to(dtype)
    options: dict[str, Any] = {}
    if "window" in extra:
        options["window"] = torch.randn(batch, taps - 1, channels, device="cuda").to(dtype)
    if "cu_seqlens" in extra:
        options["cu_seqlens"] = torch.tensor([0, 0, 1, 2, 3, 60, 61, 62, length]).to("cuda", torch.int32)
    wide = {n: x.double() if n == "window" else x for n, x in options.items()}
    want = _conv(u.double(), weight.double(), cotangent, "plain", **wide)
    got = _conv(u, weight, cotangent, "triton", **options)
    bound = 1e-5 if dtype is torch.float32 else 6e-3
    return {"rel_err": _relative(got, want, ("y", "du", "dweight")), "bound": bound}


def _conv_inputs() -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    u = torch.randn(4, 4096, CHANNELS, device="cuda").bfloat16()
    return u, torch.randn(CHANNELS, TAPS, device="cuda").bfloat16()


def _conv_repeats() -> Row:
    u, weight = _conv_inputs()
    first = _conv(u, weight, u, "triton")
    same = all(all(map(torch.equal, first, _conv(u, weight, u, "triton"))) for _ in range(100))
    return {"rel_err": {"different": float(not same)}, "bound": 0.5}


def _conv_far() -> Row:
    u, weight = _conv_inputs()
    many = u[:1].expand(FAR, -1, -1).contiguous()
    with torch.no_grad():
        last = short_conv(many, weight, implementation="triton")[-1]
    return {"rel_err": _relative([last], [short_conv(u[:1], weight)[0]], ("y",)), "bound": 1e-6}


Conv = Callable[[Tensor, Tensor], Tensor]


def _packed() -> Conv:
    """Over the same tokens as documents of 1,170."""
    bounds = torch.arange(0, 16385, 1170, dtype=torch.int32, device="cuda")
    bounds[-1] = 16384

    def run(u: Tensor, weight: Tensor) -> Tensor:
        return short_conv(u.flatten(0, 1)[None], weight, cu_seqlens=bounds, implementation="triton").view_as(u)

    return run


def _plain(u: Tensor, weight: Tensor) -> Tensor:
    return short_conv(u, weight, implementation="plain")


CONVS: dict[str, tuple[Callable[[], Conv], int]] = {
    "hymo": (lambda: partial(short_conv, implementation="triton"), 0),
    "hymo, 14 packed documents": (_packed, 0),
    "torch": (lambda: _plain, 1),
    "torch.compile": (lambda: torch.compile(_plain, dynamic=False), 1),
}
"""What makes each implementation, and the stage of its job."""


def conv_jobs() -> list[Job]:
    """Forward, and both ways, of 16,384 x 1,280 inputs: our kernels, PyTorch as it is, and compiled."""
    shape, directions = (4, 4096, 1, TAPS, CHANNELS), ("fwd", "fwdbwd")
    return [Job("short_conv", impl, shape, directions, _conv_rows, stage) for impl, (_, stage) in CONVS.items()]


def _conv_rows(job: Job) -> Iterator[Row]:
    u, weight = (x.requires_grad_() for x in _conv_inputs())
    cotangent = torch.randn_like(u)
    run = CONVS[job.impl][0]()

    def check() -> dict[str, float]:
        if "packed" in job.impl:
            return {}
        outcomes = []
        for function, dtype in ((run, u.dtype), (_plain, torch.float64)):
            leaves = [x.detach().to(dtype).requires_grad_() for x in (u[:1, :512].contiguous(), weight)]
            y = function(*leaves)
            outcomes.append([y.detach(), *torch.autograd.grad(y, leaves, cotangent[:1, :512].to(dtype))])
        return _relative(*outcomes, ("y", "du", "dweight"))

    def fill(row: Row) -> None:
        def call() -> Any:
            if row["direction"] == "fwdbwd":
                return torch.autograd.grad(run(u, weight), (u, weight), cotangent)
            with torch.no_grad():
                return run(u, weight)

        row["rel_err"] = check()
        if row["rel_err"]:
            tools.refuse_wrong(row)
        row |= tools.measure(call)

    for direction, passes in (("fwd", 2), ("fwdbwd", 5)):
        yield tools.attempt(job.start(direction, passes * u.numel() * 2 / BYTES_PER_SECOND * 1e3), fill)


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


def step_parity() -> list[Check]:
    """The kernel of a few tokens against the fp64 time loop."""
    return [
        Check(
            f"{rule} step",
            f"T {time} width {width} {dtype}",
            partial(_step_row, rule, width, dtype, time),
            f"{rule} step {width} {dtype}",
        )
        for rule in RULES
        for width in (16, 32, 48, 64, 128)
        for dtype in (torch.bfloat16, torch.float32)
        for time in (1, 5, 16)
    ]


RULES = ("gated_linear", "gated_delta")


def _step_row(rule: str, width: int, dtype: torch.dtype, time: int) -> Row:
    inputs = _step_inputs(rule, 3, time, 4, width, dtype)
    found = _relative(list(recurrence_step(*inputs)), _loop(rule, inputs), ("o", "final"))
    return {"rel_err": found, "bound": 1e-5 if dtype is torch.float32 else 6e-3}


BLOCKS = {"block, as written": "recurrent", "block, one kernel": "auto"}
"""Kernels of a whole block."""


def step_jobs() -> list[Job]:
    """One token: the recurrence alone, and a whole block of the flagship, as written and with everything fused."""
    found = []
    for rule in RULES:
        for batch in (1, 64):
            for impl in ("hymo", *BLOCKS):
                measure = partial(_block_rows if impl in BLOCKS else _step_rows, rule)
                stage = int(impl == "block, as written")
                found.append(Job(f"{rule} step", impl, (batch, 1, 40, 32, 32), ("fwd",), measure, stage))
    return found


def _step_rows(rule: str, job: Job) -> Iterator[Row]:
    inputs = _step_inputs(rule, job.shape[0], 1, 40, 32, torch.bfloat16)

    def fill(row: Row) -> None:
        row["rel_err"] = _relative(list(recurrence_step(*inputs)), _loop(rule, inputs), ("o", "final"))
        row |= tools.measure(lambda: recurrence_step(*inputs))

    yield tools.attempt(job.start("fwd", 2 * inputs[-1].numel() * 4 / BYTES_PER_SECOND * 1e3), fill)


@torch.no_grad()
def _block_rows(rule: str, job: Job) -> Iterator[Row]:
    batch, kernel = job.shape[0], BLOCKS[job.impl]
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

    def fill(row: Row) -> None:
        row["rel_err"] = _relative([run(kernel, torch.bfloat16)], [want], ("x",))
        row |= tools.measure(lambda: run(kernel, torch.bfloat16))

    weights = 2 * sum(p.numel() for p in block.parameters())
    floor = (weights + 8 * state.numel()) / BYTES_PER_SECOND * 1e3
    yield tools.attempt(job.start("fwd", floor), fill)
