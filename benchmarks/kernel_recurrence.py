"""Checks and timed rows of `benchmarks/kernels.py` for the two recurrences, and their peers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

import kernel_tools as tools
from hymo.kernels import gated_delta, gated_linear
from hymo.kernels import triton_gated_delta_op as delta_op
from hymo.kernels import triton_gated_linear_op as linear_op
from kernel_pool import Check, Row
from kernel_tools import Job, Named, errors
from kernel_tuning import Tuning

CONFIGS: dict[str, list[Any]] = {
    "gated_linear": [linear_op.LinearConfig(16, 1, 1), linear_op.LinearConfig(16, 1, 2), linear_op.LinearConfig(32, 2)],
    "gated_delta": [delta_op.DeltaConfig(16, 1), delta_op.DeltaConfig(16, 1, 3, 3), delta_op.DeltaConfig(32, 2)],
}
SHAPES = [
    (4, 4096, 40, 32, 32),
    (4, 4096, 10, 128, 128),
    (8, 4096, 40, 32, 32),
    (16, 4096, 40, 32, 32),
    (1, 32768, 40, 32, 32),
    (1, 131072, 40, 32, 32),
]
"""B, T, H, K, V."""


def linear_inputs(shape: tuple[int, ...], dtype: torch.dtype, case: str = "spread") -> Named:
    batch, time, heads, states, width = shape
    torch.manual_seed(0)
    v, b, c = (torch.randn(batch, time, heads, w, device="cuda").to(dtype) for w in (width, states, states))
    g = torch.rand(batch, time, heads, device="cuda")
    rates = torch.logspace(-6, 1.602, heads * states, device="cuda").view(heads, states)
    if case in ("slow", "fast"):
        g, rates = torch.ones_like(g), torch.full_like(rates, 1e-6 if case == "slow" else 40.0)
    return {"v": v, "b": b, "c": c, "g": g, "A_log": rates.log()}


def delta_inputs(shape: tuple[int, ...], dtype: torch.dtype, case: str = "spread") -> Named:
    batch, time, heads, states, width = shape
    torch.manual_seed(0)
    v, q, k = (torch.randn(batch, time, heads, w, device="cuda") for w in (width, states, states))
    beta, log_alpha = torch.rand(batch, time, heads, device="cuda"), -torch.rand(batch, time, heads, device="cuda")
    if case == "slow":
        log_alpha = torch.full_like(log_alpha, -1e-6)
    elif case == "fast":
        log_alpha = torch.full_like(log_alpha, -40.0)
    elif case == "correlated":
        k, beta, log_alpha = k[:, :1] + 0.5 * k, 1.9 * beta, 0.01 * log_alpha
    k = k / k.norm(dim=-1, keepdim=True)
    q = q / q.norm(dim=-1, keepdim=True) * states**-0.5
    return {"q": q.to(dtype), "k": k.to(dtype), "v": v.to(dtype), "beta": beta, "log_alpha": log_alpha}


OPS: dict[str, tuple[Any, Callable[..., Named], Any]] = {
    "gated_linear": (gated_linear, linear_inputs, linear_op),
    "gated_delta": (gated_delta, delta_inputs, delta_op),
}


def results(op: str, inputs: Named, implementation: str, wide: bool, **options: Any) -> Named:
    """Outputs, final states and the gradients of a random functional of both."""
    leaves = {name: (x.double() if wide else x).detach().requires_grad_() for name, x in inputs.items()}
    o, final = OPS[op][0](**leaves, output_final_state=True, implementation=implementation, **options)
    rng = torch.Generator("cuda").manual_seed(1)
    weight = torch.randn(o.shape, generator=rng, device="cuda").to(inputs["v"].dtype).double()
    weight_final = torch.randn(final.shape, generator=rng, device="cuda").double()
    grads = torch.autograd.grad((o.double() * weight).sum() + (final.double() * weight_final).sum(), [*leaves.values()])
    named = {"o": o, "final": final, **{f"d{name}": x for name, x in zip(leaves, grads, strict=True)}}
    return {name: x.detach() for name, x in named.items()}


def parity(op: str, short: bool) -> list[Check]:
    """Every admitted configuration, length, decay and layout against the fp64 chunked form.

    short: without the longest cases, the repeats and the far offsets.
    """
    found = [
        Check(op, f"fp64 chunked against the time loop, {case}", partial(_oracle, op, case), "oracle")
        for case in ("spread", "fast")
    ]

    def add(case: str, shape: tuple[int, ...], dtype: torch.dtype, kind: str = "spread", **more: Any) -> None:
        run = partial(_row, op, shape, dtype, kind, **more)
        found.append(Check(op, case, run, f"{op} {shape[3:]} {dtype} {sorted(more)} {more.get('config')}"))

    cases = [("spread", n, 32, torch.bfloat16) for n in (1, 17, 63, 64, 65, 4096, 16384)]
    cases += [(case, 1000, 32, torch.bfloat16) for case in ("slow", "fast", "correlated")]
    cases += [("spread", n, 32, torch.float32) for n in (63, 4096)] + [("slow", 1000, 32, torch.float32)]
    cases += [("spread", 1000, 32, torch.float16), ("spread", 300, 128, torch.bfloat16)]
    cases += [("spread", 300, 16, torch.bfloat16), ("spread", 300, 48, torch.bfloat16)]
    for case, length, width, dtype in cases:
        if not short or length <= 1000:
            add(f"{case} {dtype}", (1 if length > 5000 else 2, length, 4, width, width), dtype, case)
    for states, width in ((32, 64), (64, 32)):
        add(f"K {states} V {width}", (2, 300, 4, states, width), torch.bfloat16)
    lengths = [0, 1, 1, 64, 0, 17, 500, 417]
    add("packed documents", (1, sum(lengths), 4, 32, 32), torch.bfloat16, lengths=lengths)
    for config in CONFIGS[op]:
        add("configuration", (2, 1000, 4, 32, 32), torch.bfloat16, config=config)
    if not short:
        found.append(Check(op, "100 repeats bitwise equal", partial(_repeats, op), "repeats"))
        found.append(Check(op, f"batch {FAR}: offsets past 2^31", partial(_far_offsets, op), "far", large=True))
    return found


FAR = 2**31 // (4096 * 40 * 32) + 2
"""Sequences of 4,096 tokens, 40 heads and 32 states whose elements a signed word cannot count."""


def _oracle(op: str, case: str) -> Row:
    few = OPS[op][1]((2, 200, 2, 32, 32), torch.float64, case)
    return {
        "rel_err": errors(results(op, few, "chunked", True), results(op, few, "recurrent", True)),
        "bound": 1e-12,
    }


def _row(
    op: str,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    kind: str,
    config: Any = None,
    lengths: list[int] | None = None,
) -> Row:
    inputs = OPS[op][1](shape, dtype, kind)
    options: dict[str, Any] = {}
    if lengths is not None:
        options["cu_seqlens"] = torch.tensor(lengths, device="cuda").cumsum(0).to(torch.int32)
    module = OPS[op][2]
    module.OVERRIDE = config
    try:
        got = results(op, inputs, "triton", False, **options)
    finally:
        module.OVERRIDE = None
    found = errors(got, results(op, inputs, "chunked", True, **options))
    row: Row = {"length": shape[1], "width": shape[4], "config": None if config is None else str(config)}
    return row | {"rel_err": found, "bound": 1e-3 if dtype is torch.float32 else 1e-2}


def _repeats(op: str) -> Row:
    inputs = OPS[op][1]((4, 4096, 40, 32, 32), torch.bfloat16)
    first = results(op, inputs, "triton", False)
    same = all(
        torch.equal(x, first[name]) for _ in range(100) for name, x in results(op, inputs, "triton", False).items()
    )
    return {"rel_err": {"different": float(not same)}, "bound": 0.5}


def _far_offsets(op: str) -> Row:
    """The last of many sequences, whose offset is past 2^31 elements, alone and in its batch."""
    inputs = OPS[op][1]((1, 4096, 40, 32, 32), torch.bfloat16)
    many = {n: x if n == "A_log" else x.expand(FAR, *x.shape[1:]).contiguous() for n, x in inputs.items()}
    with torch.no_grad():
        alone = OPS[op][0](**inputs, implementation="triton")[0]
        last = OPS[op][0](**many, implementation="triton")[0][-1:]
    return {"rel_err": {"o": float((alone.double() - last.double()).norm() / alone.double().norm())}, "bound": 1e-2}


def floor(op: str, shape: tuple[int, ...], direction: str) -> float:
    """Milliseconds to move every input and output once."""
    batch, time, heads, states, width = shape
    gates = 4 if op == "gated_linear" else 8
    size = 4 * states + 4 * width + gates
    if direction == "fwdbwd":
        size += 8 * states + 6 * width + 2 * gates
    return batch * time * heads * size / tools.BYTES_PER_SECOND * 1e3


_checked: dict[tuple[Any, ...], dict[str, float]] = {}
"""Errors by operation, implementation, widths and direction: the first 512 tokens are checked, whatever the shape."""


def timed(job: Job, make: Callable[[], Callable[..., Tensor]], tuning: Tuning | None) -> Iterator[Row]:
    """Rows of one implementation, forward and both ways.

    Args:
        job: which.
        make: imports and gives it.
        tuning: that of a peer, which chooses its configurations at this very shape.
    """
    if tuning is not None:
        tuning.start()
    inputs = OPS[job.op][1](job.shape, torch.bfloat16)
    leaves = [x.detach().requires_grad_() for x in inputs.values()]
    do = torch.randn(*job.shape[:3], job.shape[4], device="cuda").to(torch.bfloat16)

    def fill(row: Row) -> None:
        run, both = make(), row["direction"] == "fwdbwd"

        def call() -> Any:
            if both:
                return torch.autograd.grad(run(*leaves), leaves, do)
            with torch.no_grad():
                return run(*leaves)

        call()  # before the check: configurations are chosen at the first call, and not for 512 tokens
        if tuning is not None:
            row["tuning"] = tuning.label()
        key = (job.op, job.impl, *job.shape[2:], both)
        if key not in _checked:
            _checked[key] = _check(run, inputs, job.op, job.impl, both)
        row["rel_err"] = _checked[key]
        tools.refuse_wrong(row)
        row |= tools.measure(call)
        row["extra_gib"] = tools.extra_gib(call)
        row["inputs_gib"] = sum(x.numel() * x.element_size() for x in leaves) / 2**30

    for direction in job.directions:
        yield tools.attempt(job.start(direction, floor(job.op, job.shape, direction)), fill)


def _check(run: Callable[..., Tensor], inputs: Named, op: str, impl: str, gradients: bool) -> dict[str, float]:
    """Errors on the first 512 tokens, against fp64 of the same function.

    All sequences take part: some peers compile and choose anew for another number of them.
    """
    part = {n: x if n == "A_log" else x[:, :512].contiguous() for n, x in inputs.items()}
    exact = impl.startswith("hymo") or op == "gated_delta"
    oracle: Callable[..., Tensor] = lambda *xs: OPS[op][0](*xs, implementation="chunked")[0]  # noqa: E731
    if not exact:
        oracle = REWRITTEN[impl]
    outcomes = []
    for function, dtype in ((run, None), (oracle, torch.float64)):
        leaves = [(x if dtype is None else x.to(dtype)).detach().requires_grad_() for x in part.values()]
        o = function(*leaves)
        named = {"o": o.detach()}
        if gradients:
            weight = torch.randn(o.shape, generator=torch.Generator("cuda").manual_seed(2), device="cuda")
            grads = torch.autograd.grad(o, leaves, weight.to(torch.bfloat16).to(o.dtype))
            named |= {f"d{n}": x for n, x in zip(part, grads, strict=True)}
        outcomes.append(named)
    return errors(*outcomes)


def _simple_oracle(v: Tensor, b: Tensor, c: Tensor, g: Tensor, A_log: Tensor) -> Tensor:
    rates = A_log.mean(-1, keepdim=True).expand_as(A_log)
    o: Tensor = gated_linear(v, b, c, g, rates, implementation="chunked")[0]
    return o


def _linear_oracle(v: Tensor, b: Tensor, c: Tensor, g: Tensor, A_log: Tensor) -> Tensor:
    o: Tensor = gated_linear(v, b, c, g, A_log, implementation="chunked")[0]
    return o


REWRITTEN = {"fla-chunk_gla": _linear_oracle, "fla-chunk_simple_gla": _simple_oracle}


def _delta_rule() -> Callable[..., Tensor]:
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule

    def rule(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, log_alpha: Tensor) -> Tensor:
        o: Tensor = chunk_gated_delta_rule(q, k, v, log_alpha, beta.to(q.dtype), scale=1.0)[0]
        return o

    return rule


def _gla() -> Callable[..., Tensor]:
    from fla.ops.gla import chunk_gla

    def gla(v: Tensor, b: Tensor, c: Tensor, g: Tensor, A_log: Tensor) -> Tensor:
        decay = -A_log.exp() * g[..., None]  # chunk_gla wants one decay per token and state
        o: Tensor = chunk_gla(c, b, v, decay, scale=1.0)[0]
        return o

    return gla


def _simple_gla() -> Callable[..., Tensor]:
    from fla.ops.simple_gla import chunk_simple_gla

    def simple(v: Tensor, b: Tensor, c: Tensor, g: Tensor, A_log: Tensor) -> Tensor:
        o: Tensor = chunk_simple_gla(c, b, v, g=-A_log.mean(-1).exp() * g, scale=1.0)[0]
        return o

    return simple


PEERS: dict[str, dict[str, Callable[[], Callable[..., Tensor]]]] = {
    "gated_linear": {"fla-chunk_gla": _gla, "fla-chunk_simple_gla": _simple_gla},
    "gated_delta": {"fla-chunk_gated_delta_rule": _delta_rule},
}
"""Functions of other libraries with this package's argument order, each by what imports it."""


def jobs(op: str, shapes: Sequence[tuple[int, ...]], tuning: Tuning) -> list[Job]:
    """The package's rows at every shape, and its peers' at the first two."""
    found = []

    def add(impl: str, shape: tuple[int, ...], make: Any, stage: int) -> None:
        measure = partial(timed, make=make, tuning=tuning if stage else None)
        found.append(Job(op, impl, shape, ("fwd", "fwdbwd"), measure, stage))

    for shape in shapes:
        add("hymo", shape, lambda: lambda *xs: OPS[op][0](*xs, implementation="triton")[0], 0)
        if shape == shapes[0]:
            found.append(packed_job(op, shape))
    for stage, shape in enumerate(shapes[:2], 1):
        for impl, make in PEERS[op].items():
            add(impl, shape, make, stage)
    return found


def packed_job(op: str, shape: tuple[int, ...]) -> Job:
    """Forward and backward over the same tokens as documents of 100 to 2,000, checked by the parity table."""
    total = shape[0] * shape[1]
    lengths = torch.randint(100, 2001, (total // 100,), generator=torch.Generator().manual_seed(0))
    bounds = lengths.cumsum(0)
    bounds = torch.cat((torch.tensor([0]), bounds[bounds < total], torch.tensor([total]))).to(torch.int32)

    def measure(job: Job) -> Iterator[Row]:
        inputs = OPS[op][1](shape, torch.bfloat16)
        flat = [x if n == "A_log" else x.flatten(0, 1)[None] for n, x in inputs.items()]
        leaves = [x.detach().requires_grad_() for x in flat]
        do = torch.randn(1, total, shape[2], shape[4], device="cuda").to(torch.bfloat16)
        there = bounds.cuda()

        def both() -> Any:
            o = OPS[op][0](*leaves, cu_seqlens=there, implementation="triton")[0]
            return torch.autograd.grad(o, leaves, do)

        yield tools.attempt(
            job.start("fwdbwd", floor(op, shape, "fwdbwd")), lambda row: row.update(tools.measure(both))
        )

    return Job(op, f"hymo, {len(bounds) - 1} packed documents", (1, total, *shape[2:]), ("fwdbwd",), measure)
