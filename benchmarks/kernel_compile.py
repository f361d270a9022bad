"""Compile what `benchmarks/kernels.py time` will run, in several processes: peers try hundreds of configurations.

    for i in $(seq 0 15); do python benchmarks/kernel_compile.py $i 16 & done; wait

Compiled kernels stay in Triton's cache on disk. Process i of n compiles every n-th configuration of each kernel of the
peers, and every n-th of the other rows. What these processes measure while they share the GPU is not kept.
"""

from __future__ import annotations

import argparse
import os
import traceback
from collections.abc import Callable, Iterator
from typing import Any

os.environ["FLA_CACHE_RESULTS"] = "0"  # of tuning: it is done again on a quiet GPU

import torch
from triton.runtime.autotuner import Autotuner

import kernels


def only_a_share(index: int, count: int) -> None:
    """Let tuned kernels see every count-th of their configurations."""
    prune = Autotuner.prune_configs

    def share(self: Autotuner, options: dict[str, Any]) -> list[Any]:
        configs = list(prune(self, options))
        return configs[index::count] or configs[:1]

    Autotuner.prune_configs = share


def both_ways(op: str, shape: tuple[int, ...], run: Callable[..., torch.Tensor]) -> None:
    """Run a recurrence without and with gradients."""
    leaves = [x.detach().requires_grad_() for x in kernels.OPS[op][1](shape, torch.bfloat16).values()]
    with torch.no_grad():
        run(*leaves)
    o = run(*leaves)
    torch.autograd.grad(o, leaves, torch.randn_like(o))


def own(ops: list[str]) -> Iterator[Callable[[], Any]]:
    """Jobs of which one process does each."""
    for op in ops:
        if op in kernels.OPS:
            run = lambda *xs, op=op: kernels.OPS[op][0](*xs, implementation="triton")[0]  # noqa: E731
            for shape in kernels.SHAPES[:4]:
                yield lambda op=op, shape=shape, run=run: both_ways(op, shape, run)
        else:
            yield lambda op=op: list(kernels.OTHERS[op][1]())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("index", type=int)
    parser.add_argument("count", type=int)
    parser.add_argument("--only", nargs="*", default=[*kernels.OPS, *kernels.OTHERS])
    parser.add_argument("--shapes", type=int, default=2, help="peers: only the first so many shapes")
    options = parser.parse_args()
    jobs = list(own(options.only))[options.index :: options.count]
    only_a_share(options.index, options.count)
    for shape in kernels.SHAPES[: options.shapes]:
        for op in (op for op in options.only if op in kernels.OPS):
            for run in kernels.peers(op).values():
                jobs.append(lambda op=op, shape=shape, run=run: both_ways(op, shape, run))
    for job in jobs:
        try:
            job()
        except Exception:  # a peer that refuses is a row of the table
            traceback.print_exc(limit=1)


if __name__ == "__main__":
    main()
