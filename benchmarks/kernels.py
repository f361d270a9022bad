"""Parity and speed of the kernels on one GPU, beside their peers.

    python benchmarks/kernels.py parity --only gated_linear --json parity.json
    python benchmarks/kernels.py time --parity parity.json --json benchmarks/results/kernels-h200.json

`parity` compares outputs and every gradient with fp64; `time` measures medians with CUDA events over replays of a
captured graph (over plain calls where a peer can't be captured, which the row says) and checks each row against fp64
first. Peers are used if they are installed; one that fails is listed as failed, without a time.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
import triton
from torch import Tensor

from hymo.kernels import gated_delta, gated_linear, linear_cross_entropy
from hymo.kernels import triton_gated_delta_op as delta_op
from hymo.kernels import triton_gated_linear_op as linear_op
from kernel_parts import conv_parity, conv_rows, step_parity, step_rows

BYTES_PER_SECOND = 4.3e12
"""Copy bandwidth of an H200, read plus written."""
FLOPS_PER_SECOND = 7.9e14
"""bf16 matrix product of an H200 on random data."""
WRONG = 5e-2
"""Relative error from which a row is listed as failed and not timed."""
Inputs = dict[str, Tensor]
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


def linear_inputs(shape: tuple[int, ...], dtype: torch.dtype, case: str = "spread") -> Inputs:
    batch, time, heads, states, width = shape
    torch.manual_seed(0)
    v, b, c = (torch.randn(batch, time, heads, w, device="cuda").to(dtype) for w in (width, states, states))
    g = torch.rand(batch, time, heads, device="cuda")
    rates = torch.logspace(-6, 1.602, heads * states, device="cuda").view(heads, states)
    if case in ("slow", "fast"):
        g, rates = torch.ones_like(g), torch.full_like(rates, 1e-6 if case == "slow" else 40.0)
    return {"v": v, "b": b, "c": c, "g": g, "A_log": rates.log()}


def delta_inputs(shape: tuple[int, ...], dtype: torch.dtype, case: str = "spread") -> Inputs:
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


OPS: dict[str, tuple[Any, Callable[..., Inputs], Any]] = {
    "gated_linear": (gated_linear, linear_inputs, linear_op),
    "gated_delta": (gated_delta, delta_inputs, delta_op),
}


def results(op: str, inputs: Inputs, implementation: str, wide: bool, **options: Any) -> Inputs:
    """Outputs, final states and the gradients of a random functional of both."""
    leaves = {name: (x.double() if wide else x).detach().requires_grad_() for name, x in inputs.items()}
    o, final = OPS[op][0](**leaves, output_final_state=True, implementation=implementation, **options)
    rng = torch.Generator("cuda").manual_seed(1)
    weight = torch.randn(o.shape, generator=rng, device="cuda").to(inputs["v"].dtype).double()
    weight_final = torch.randn(final.shape, generator=rng, device="cuda").double()
    grads = torch.autograd.grad((o.double() * weight).sum() + (final.double() * weight_final).sum(), [*leaves.values()])
    named = {"o": o, "final": final, **{f"d{name}": x for name, x in zip(leaves, grads, strict=True)}}
    return {name: x.detach() for name, x in named.items()}


def errors(got: Inputs, want: Inputs) -> dict[str, float]:
    """Relative L2 errors; the rates' gradient is taken relative to the gates' where every state forgets at once."""
    found = {}
    for name, x in want.items():
        norm = x.double().norm()
        if name == "dA_log":
            norm = max(norm, 1e-6 * want["dg"].double().norm())
        found[name] = float((got[name].double() - x.double()).norm() / (norm + 1e-30))  # 0 of 0 is right
    return found


def parity(op: str, short: bool) -> Iterator[dict[str, Any]]:
    """Every admitted configuration, length, decay and layout against the fp64 chunked form.

    short: without the longest cases, the repeats and the far offsets.
    """
    make, module = OPS[op][1:]
    for case in ("spread", "fast"):
        few = make((2, 200, 2, 32, 32), torch.float64, case)
        oracle = errors(results(op, few, "chunked", True), results(op, few, "recurrent", True))
        yield {"op": op, "case": f"fp64 chunked against the time loop, {case}", "rel_err": oracle, "bound": 1e-12}
    cases = [("spread", n, 32, torch.bfloat16) for n in (1, 17, 63, 64, 65, 4096, 16384)]
    cases += [(case, 1000, 32, torch.bfloat16) for case in ("slow", "fast", "correlated")]
    cases += [("spread", n, 32, torch.float32) for n in (63, 4096)] + [("slow", 1000, 32, torch.float32)]
    cases += [("spread", 1000, 32, torch.float16), ("spread", 300, 128, torch.bfloat16)]
    cases += [("spread", 300, 16, torch.bfloat16), ("spread", 300, 48, torch.bfloat16)]
    for case, length, width, dtype in cases:
        if short and length > 1000:
            continue
        inputs = make((1 if length > 5000 else 2, length, 4, width, width), dtype, case)
        yield _row(op, inputs, f"{case} {dtype}", None)
    for states, width in ((32, 64), (64, 32)):
        yield _row(op, make((2, 300, 4, states, width), torch.bfloat16), f"K {states} V {width}", None)
    lengths = [0, 1, 1, 64, 0, 17, 500, 417]
    bounds = torch.tensor(lengths, device="cuda").cumsum(0).to(torch.int32)
    packed = make((1, sum(lengths), 4, 32, 32), torch.bfloat16)
    yield _row(op, packed, "packed documents", None, cu_seqlens=bounds)
    for config in CONFIGS[op]:
        module.OVERRIDE = config
        yield _row(op, make((2, 1000, 4, 32, 32), torch.bfloat16), "configuration", str(config))
    module.OVERRIDE = None
    if short:
        return
    inputs = make((4, 4096, 40, 32, 32), torch.bfloat16)
    first = results(op, inputs, "triton", False)
    same = all(
        torch.equal(x, first[name]) for _ in range(100) for name, x in results(op, inputs, "triton", False).items()
    )
    yield {"op": op, "case": "100 repeats bitwise equal", "rel_err": {"different": float(not same)}, "bound": 0.5}
    del first, inputs
    yield _far_offsets(op)


def _row(op: str, inputs: Inputs, case: str, config: str | None, **options: Any) -> dict[str, Any]:
    found = errors(results(op, inputs, "triton", False, **options), results(op, inputs, "chunked", True, **options))
    row = {"op": op, "case": case, "length": inputs["v"].shape[1], "width": inputs["v"].shape[-1], "config": config}
    bound = 1e-3 if inputs["v"].dtype is torch.float32 else 1e-2
    row |= {"rel_err": found, "bound": bound}
    print("ok " if max(found.values()) < bound else "BAD", json.dumps(row), flush=True)
    return row


def _far_offsets(op: str) -> dict[str, Any]:
    """The last of many sequences, whose offset is past 2^31 elements, alone and in its batch."""
    batch = 2**31 // (4096 * 40 * 32) + 2
    inputs = OPS[op][1]((1, 4096, 40, 32, 32), torch.bfloat16)
    many = {n: x if n == "A_log" else x.expand(batch, *x.shape[1:]).contiguous() for n, x in inputs.items()}
    with torch.no_grad():
        alone = OPS[op][0](**inputs, implementation="triton")[0]
        last = OPS[op][0](**many, implementation="triton")[0][-1:]
    found = {"o": float((alone.double() - last.double()).norm() / alone.double().norm())}
    return {"op": op, "case": f"batch {batch}: offsets past 2^31", "rel_err": found, "bound": 1e-2}


def milliseconds(call: Callable[[], Any]) -> tuple[float, str]:
    """Median time of a call, and how it was taken."""
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    try:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            call()
        return float(triton.testing.do_bench(graph.replay, warmup=20, rep=150, return_mode="median")), "graph"
    except RuntimeError:
        torch.cuda.synchronize()
        return float(triton.testing.do_bench(call, warmup=50, rep=300, return_mode="median")), "events"


def floor(op: str, shape: tuple[int, ...], direction: str) -> float:
    """Milliseconds to move every input and output once."""
    batch, time, heads, states, width = shape
    gates = 4 if op == "gated_linear" else 8
    size = 4 * states + 4 * width + gates
    if direction == "fwdbwd":
        size += 8 * states + 6 * width + 2 * gates
    return batch * time * heads * size / BYTES_PER_SECOND * 1e3


_checked: dict[tuple[Any, ...], dict[str, float]] = {}
"""Errors by operation, implementation, widths and direction: the first 512 tokens are checked, whatever the shape."""


def timed(op: str, impl: str, shape: tuple[int, ...], inputs: Inputs, run: Callable[..., Tensor]) -> Iterator[Any]:
    """Rows of one implementation, forward and both ways."""
    leaves = [x.detach().requires_grad_() for x in inputs.values()]
    do = torch.randn(*shape[:3], shape[4], device="cuda").to(torch.bfloat16)

    def both() -> Any:
        return torch.autograd.grad(run(*leaves), leaves, do)

    def forward() -> Any:
        with torch.no_grad():
            return run(*leaves)

    for direction, call in (("fwd", forward), ("fwdbwd", both)):
        row: dict[str, Any] = {"op": op, "impl": impl, "shape": dict(zip("BTHKV", shape, strict=True))}
        row |= {"direction": direction, "ms": None, "floor_ms": floor(op, shape, direction), "rel_err": {}}
        try:
            key = (op, impl, *shape[2:], direction)
            if key not in _checked:
                _checked[key] = _check(run, inputs, op, impl, direction == "fwdbwd")
            row["rel_err"] = _checked[key]
            if not max(row["rel_err"].values()) < WRONG:
                raise ArithmeticError(f"relative error {max(row['rel_err'].values()):.1e} against fp64")
            row["ms"], row["timing"] = milliseconds(call)
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            call()
            row["extra_gib"] = (torch.cuda.max_memory_allocated() - before) / 2**30
            row["inputs_gib"] = sum(x.numel() * x.element_size() for x in leaves) / 2**30
        except Exception as error:  # a peer that refuses or fails is a result too
            row["failed"] = f"{type(error).__name__}: {error}"[:300]
        print(json.dumps(row), flush=True)
        yield row


def _check(run: Callable[..., Tensor], inputs: Inputs, op: str, impl: str, gradients: bool) -> dict[str, float]:
    """Errors on the first 512 tokens of the first sequence, against fp64 of the same function."""
    part = {n: x if n == "A_log" else x[:1, :512].contiguous() for n, x in inputs.items()}
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


def tune_briefly() -> None:
    """Let kernels that choose among configurations give each 20 ms instead of 125: peers have hundreds."""
    from triton.runtime.autotuner import Autotuner

    Autotuner.do_bench = property(lambda _: partial(triton.testing.do_bench, warmup=5, rep=15))


def peers(op: str) -> dict[str, Callable[..., Tensor]]:
    """Functions of other libraries with this package's argument order."""
    tune_briefly()
    try:
        if op == "gated_delta":
            from fla.ops.gated_delta_rule import chunk_gated_delta_rule

            def rule(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, log_alpha: Tensor) -> Tensor:
                o: Tensor = chunk_gated_delta_rule(q, k, v, log_alpha, beta.to(q.dtype), scale=1.0)[0]
                return o

            return {"fla-chunk_gated_delta_rule": rule}
        from fla.ops.gla import chunk_gla
        from fla.ops.simple_gla import chunk_simple_gla
    except Exception as error:
        print(f"no peer for {op}: {error}", file=sys.stderr)
        return {}

    def gla(v: Tensor, b: Tensor, c: Tensor, g: Tensor, A_log: Tensor) -> Tensor:
        decay = -A_log.exp() * g[..., None]  # chunk_gla wants one decay per token and state
        o: Tensor = chunk_gla(c, b, v, decay, scale=1.0)[0]
        return o

    def simple(v: Tensor, b: Tensor, c: Tensor, g: Tensor, A_log: Tensor) -> Tensor:
        o: Tensor = chunk_simple_gla(c, b, v, g=-A_log.mean(-1).exp() * g, scale=1.0)[0]
        return o

    return {"fla-chunk_gla": gla, "fla-chunk_simple_gla": simple}


def recurrence_rows(op: str, shapes: list[tuple[int, ...]], with_peers: bool) -> Iterator[dict[str, Any]]:
    """Rows of the package at every shape, then of its peers at the first two."""
    for own in (True, False):
        for shape in shapes if own else shapes[:2] if with_peers else []:
            inputs = OPS[op][1](shape, torch.bfloat16)
            functions: dict[str, Callable[..., Tensor]] = {
                "hymo": lambda *xs: OPS[op][0](*xs, implementation="triton")[0]
            }
            for impl, run in (functions if own else peers(op)).items():
                yield from timed(op, impl, shape, inputs, run)
            if own and shape == shapes[0]:
                yield packed_row(op, shape, inputs)
            del inputs
            gc.collect()
            torch.cuda.empty_cache()


def packed_row(op: str, shape: tuple[int, ...], inputs: Inputs) -> dict[str, Any]:
    """Forward and backward over the same tokens as documents of 100 to 2,000, checked by the parity table."""
    batch, time = shape[:2]
    lengths = torch.randint(100, 2001, (batch * time // 100,), generator=torch.Generator().manual_seed(0))
    bounds = lengths.cumsum(0)
    bounds = torch.cat((torch.tensor([0]), bounds[bounds < batch * time], torch.tensor([batch * time])))
    bounds = bounds.to("cuda", torch.int32)
    flat = [x if n == "A_log" else x.flatten(0, 1)[None] for n, x in inputs.items()]
    leaves = [x.detach().requires_grad_() for x in flat]
    do = torch.randn(1, batch * time, shape[2], shape[4], device="cuda").to(torch.bfloat16)

    def both() -> Any:
        o = OPS[op][0](*leaves, cu_seqlens=bounds, implementation="triton")[0]
        return torch.autograd.grad(o, leaves, do)

    row: dict[str, Any] = {"op": op, "impl": f"hymo, {len(bounds) - 1} packed documents", "direction": "fwdbwd"}
    row["shape"] = dict(zip("BTHKV", (1, batch * time, *shape[2:]), strict=True))
    row |= {"floor_ms": floor(op, shape, "fwdbwd"), "rel_err": {}}
    row["ms"], row["timing"] = milliseconds(both)
    print(json.dumps(row), flush=True)
    return row


def cross_entropy_rows() -> Iterator[dict[str, Any]]:
    tokens, dim, vocabulary, cap = 16384, 896, 64256, 15.0
    torch.manual_seed(0)
    hidden = torch.randn(tokens, dim, device="cuda").bfloat16()
    weight = (0.1 * torch.randn(vocabulary, dim, device="cuda")).bfloat16()
    targets = torch.randint(vocabulary, (tokens,), device="cuda")
    targets[::17] = -100

    def plain(h: Tensor, w: Tensor, y: Tensor) -> Tensor:
        logits = cap * torch.tanh((h @ w.T).float() / cap)
        return torch.nn.functional.cross_entropy(logits, y, ignore_index=-100)

    functions: dict[str, Callable[..., Tensor]] = {
        "hymo": lambda h, w, y: linear_cross_entropy(h, w, y, cap, implementation="triton") / (y != -100).sum(),
        "torch.compile": torch.compile(plain),
    }
    try:
        from liger_kernel.transformers.fused_linear_cross_entropy import LigerFusedLinearCrossEntropyLoss

        liger = LigerFusedLinearCrossEntropyLoss(softcap=cap, ignore_index=-100)
        functions["liger"] = lambda h, w, y: liger(w, h, y)
    except Exception as error:
        print(f"no liger: {error}", file=sys.stderr)
    for impl, run in functions.items():
        row: dict[str, Any] = {"op": "linear_cross_entropy", "impl": impl, "direction": "fwdbwd", "ms": None}
        row["shape"] = {"B": 1, "T": tokens, "H": 1, "K": dim, "V": vocabulary}
        row["floor_ms"] = 6 * tokens * dim * vocabulary / FLOPS_PER_SECOND * 1e3
        leaves = [x.detach().requires_grad_() for x in (hidden, weight)]
        call = lambda run=run, leaves=leaves: torch.autograd.grad(run(*leaves, targets), leaves)  # noqa: E731
        try:
            few = [x.detach().requires_grad_() for x in (hidden[:512], weight)]
            wide = [x.double().detach().requires_grad_() for x in few]
            pair = []
            for xs, function in ((few, run), (wide, plain_fp64)):
                loss = function(*xs, targets[:512])
                pair.append(
                    {"loss": loss, **dict(zip(("dhidden", "dweight"), torch.autograd.grad(loss, xs), strict=True))}
                )
            row["rel_err"] = {n: float((pair[0][n].double() - x).norm() / x.norm()) for n, x in pair[1].items()}
            if not max(row["rel_err"].values()) < WRONG:
                raise ArithmeticError(f"relative error {max(row['rel_err'].values()):.1e} against fp64")
            del pair, few, wide
            gc.collect()
            torch.cuda.empty_cache()
            call()
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            call()
            row["extra_gib"] = (torch.cuda.max_memory_allocated() - before) / 2**30
            row["ms"] = float(triton.testing.do_bench(call, warmup=100, rep=500, return_mode="median"))
            row["timing"] = "events"
        except Exception as error:
            row["failed"] = f"{type(error).__name__}: {error}"[:300]
        print(json.dumps(row), flush=True)
        yield row


def plain_fp64(h: Tensor, w: Tensor, y: Tensor) -> Tensor:
    logits = 15.0 * torch.tanh((h @ w.T) / 15.0)
    return torch.nn.functional.cross_entropy(logits, y, ignore_index=-100)


def cross_entropy_parity() -> Iterator[dict[str, Any]]:
    """Loss and gradients with a softcap and ignored labels against fp64, in fp32 and bf16."""
    for tokens, dim, vocabulary, dtype in ((700, 64, 5003, torch.float32), (700, 64, 5003, torch.bfloat16)):
        torch.manual_seed(0)
        hidden, weight = torch.randn(tokens, dim, device="cuda"), torch.randn(vocabulary, dim, device="cuda")
        targets = torch.randint(vocabulary, (tokens,), device="cuda")
        targets[::5] = -100
        outcomes = []
        for kind, implementation in ((dtype, "triton"), (torch.float64, "plain")):
            leaves = [x.to(dtype).to(kind).requires_grad_() for x in (hidden, weight)]
            loss = linear_cross_entropy(*leaves, targets, 15.0, implementation=implementation)
            grads = torch.autograd.grad(loss, leaves)
            outcomes.append(dict(zip(("loss", "dhidden", "dweight"), (loss.detach(), *grads), strict=True)))
        row: dict[str, Any] = {"op": "linear_cross_entropy", "case": str(dtype), "rel_err": errors(*outcomes)}
        row["bound"] = 1e-3 if dtype is torch.float32 else 1e-2
        print("ok " if max(row["rel_err"].values()) < row["bound"] else "BAD", json.dumps(row), flush=True)
        yield row


OTHERS: dict[str, tuple[Callable[[], Iterator[Any]], Callable[[], Iterator[Any]]]] = {
    "linear_cross_entropy": (cross_entropy_parity, cross_entropy_rows),
    "short_conv": (conv_parity, conv_rows),
    "step": (step_parity, step_rows),
}
"""Parity checks and timed rows of the other operations."""


def environment() -> dict[str, str]:
    """Where and with what the numbers were taken."""
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    found = {
        "device": torch.cuda.get_device_name(),
        "driver": subprocess.run(query, capture_output=True, text=True, check=False).stdout.split("\n")[0],
        "torch": torch.__version__,
        "triton": triton.__version__,
        "python": platform.python_version(),
        "commit": commit,
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "command": "python benchmarks/kernels.py " + " ".join(sys.argv[1:]),
    }
    for package in ("fla-core", "liger-kernel"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("parity", "time"))
    parser.add_argument("--only", choices=(*OPS, *OTHERS), nargs="*")
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--short", action="store_true", help="parity: fewer cases")
    parser.add_argument("--shapes", type=int, help="time: only the first so many shapes of the recurrences")
    parser.add_argument("--parity", type=Path, nargs="*", default=[], help="files of `parity` to include")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    found: dict[str, Any] = {"environment": environment(), "rows": []}
    wanted = options.only or [*OPS, *OTHERS]
    if options.what == "parity":
        found["parity"] = []
        for op in wanted:
            for row in parity(op, options.short) if op in OPS else OTHERS[op][0]():
                found["parity"].append(row)
                if options.json:
                    options.json.write_text(json.dumps(found, indent=1) + "\n")
        bad = [row for row in found["parity"] if not max(row["rel_err"].values()) < row["bound"]]
        print(f"{len(found['parity'])} checks, {len(bad)} outside their bounds", *map(json.dumps, bad), sep="\n")
    else:
        found["parity"] = [row for path in options.parity for row in json.loads(path.read_text())["parity"]]
        for op in wanted:
            shapes = SHAPES[: options.shapes]
            for row in recurrence_rows(op, shapes, not options.no_peers) if op in OPS else OTHERS[op][1]():
                found["rows"].append(row)
                if options.json:
                    options.json.write_text(json.dumps(found, indent=1) + "\n")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
