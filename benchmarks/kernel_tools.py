"""What the rows and checks of `benchmarks/kernels.py` share: errors, times, jobs."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import triton
from torch import Tensor

from kernel_pool import Row, inside

BYTES_PER_SECOND = 4.3e12
"""Copy bandwidth of an H200, read plus written."""
FLOPS_PER_SECOND = 7.9e14
"""bf16 matrix product of an H200 on random data."""
WRONG = 5e-2
"""Relative error from which a row is listed as failed and not timed."""
Named = dict[str, Tensor]
Key = tuple[Any, ...]

COMPILE_ONLY = False
"""Whether calls are made to be compiled, and nothing is measured: set by `kernel_compile.py`."""


@dataclass(frozen=True)
class Job:
    """Rows that are measured together: one implementation of an operation at one shape."""

    op: str
    impl: str
    shape: tuple[int, ...]
    """B, T, H, K, V."""
    directions: tuple[str, ...]
    """Of its rows, "fwd" and "fwdbwd"."""
    measure: Callable[[Job], Iterator[Row]]
    """Gives the rows."""
    stage: int = 0
    """When: 0 the package's own rows, 1 what they are compared with, 2 that at further shapes."""

    def rows(self) -> Iterator[Row]:
        """Measure, and free what that took."""
        yield from self.measure(self)
        free()

    def row_keys(self) -> list[Key]:
        """Keys of its rows, as `key_of` gives them."""
        return [(self.op, self.impl, self.shape, direction) for direction in self.directions]

    def start(self, direction: str, floor_ms: float) -> Row:
        """A row without its results."""
        row: Row = {"op": self.op, "impl": self.impl, "shape": dict(zip("BTHKV", self.shape, strict=True))}
        return row | {"direction": direction, "ms": None, "floor_ms": floor_ms, "rel_err": {}}


def free() -> None:
    """Give the device what nothing refers to: other processes work on it too."""
    gc.collect()
    torch.cuda.empty_cache()


def freed(run: Callable[[], Row]) -> Row:
    """What a check finds, its memory given back."""
    row = run()
    free()
    return row


def key_of(row: Row) -> Key:
    """What tells a row from the others."""
    return row["op"], row["impl"], tuple(row["shape"][name] for name in "BTHKV"), row["direction"]


def errors(got: Named, want: Named) -> dict[str, float]:
    """Relative L2 errors; the rates' gradient is taken relative to the gates' where every state forgets at once."""
    found = {}
    for name, x in want.items():
        norm = x.double().norm()
        if name == "dA_log":
            norm = max(norm, 1e-6 * want["dg"].double().norm())
        found[name] = float((got[name].double() - x.double()).norm() / (norm + 1e-30))  # 0 of 0 is right
    return found


def refuse_wrong(row: Row) -> None:
    """Raise ArithmeticError for a row whose errors are too large to be timed."""
    worst = max(row["rel_err"].values())
    if not inside({**row, "bound": WRONG}):
        raise ArithmeticError(f"relative error {worst:.1e} against fp64")


def measure(call: Callable[[], Any]) -> dict[str, Any]:
    """Median time of a call, over replays of a captured graph if it can be captured, and how it was taken."""
    if COMPILE_ONLY:
        call()
        return {"ms": None}
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    try:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            call()
    except RuntimeError:
        torch.cuda.synchronize()
        return measure_events(call, 50, 300)
    return measure_events(graph.replay, 20, 150) | {"timing": "graph"}


def measure_events(call: Callable[[], Any], warmup: int, rep: int) -> dict[str, Any]:
    """Median time of a call between events, over `rep` milliseconds after `warmup` ones."""
    if COMPILE_ONLY:
        call()
        return {"ms": None}
    return {
        "ms": float(triton.testing.do_bench(call, warmup=warmup, rep=rep, return_mode="median")),
        "timing": "events",
    }


def extra_gib(call: Callable[[], Any]) -> float:
    """Peak memory of a call beside what is there."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    return float(torch.cuda.max_memory_allocated() - before) / 2**30


def attempt(row: Row, work: Callable[[Row], None]) -> Row:
    """Fill a row, or say why that failed: a peer that refuses or fails is a result too. Prints it."""
    try:
        work(row)
    except Exception as error:
        row["failed"] = f"{type(error).__name__}: {error}"[:300]
    print(json.dumps(row), flush=True)
    return row
