"""How peers that choose among configurations get their best one within bounded time.

They have hundreds of configurations, and remember by keys that leave out lengths, mostly widths too. So before a peer
is measured at a shape it forgets what it chose before; then, at its first call at that shape, every configuration is
timed twice, and the best ten are measured in full. A limit bounds the whole: what it leaves untried is in the rows.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any

os.environ.setdefault("FLA_CACHE_RESULTS", "0")  # of tuning, on disk: it is done again, on a quiet GPU

import torch
import triton
from triton.runtime.autotuner import Autotuner

IN_FULL = 10
"""Configurations of a kernel that are measured in full."""
Bench = Callable[..., list[float]]


def in_full(call: Callable[[], Any], quantiles: Any = None) -> list[float]:
    """Quantiles of the milliseconds of a configuration."""
    found = triton.testing.do_bench(call, warmup=10, rep=40, quantiles=list(quantiles or (0.5, 0.2, 0.8)))
    return [float(x) for x in found]


def twice(call: Callable[[], Any], quantiles: Any = None) -> list[float]:
    """The better of two timings, after one call that compiles or loads the kernel; three times, as quantiles are."""
    call()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(3)]
    events[0].record()
    for event in events[1:]:
        call()
        event.record()
    torch.cuda.synchronize()
    return [min(events[0].elapsed_time(events[1]), events[1].elapsed_time(events[2]))] * 3


def once(call: Callable[[], Any], quantiles: Any = None) -> list[float]:
    """One call, which compiles the kernel, and no time."""
    call()
    return [0.0] * 3


class Tuning:
    """Tuning of all kernels in this process, from `install` on.

    Args:
        limit: seconds of first timings after which no further configuration of the peer at hand is tried.
        share: (i, n): only compile, and only every n-th configuration from the i-th on.
    """

    def __init__(self, limit: float = 60.0, share: tuple[int, int] | None = None) -> None:
        self._limit, self._share = limit, share
        self._bench: Bench = once if share else in_full
        self._tuners: dict[int, Any] = {}
        self._configurations: Callable[[Any, Any], list[Any]] = Autotuner.prune_configs
        self.start()

    def install(self) -> None:
        """Take over the choice in every kernel that is imported from now on."""

        def candidates(tuner: Any, options: dict[str, Any]) -> list[Any]:
            return self._candidates(tuner, options)

        Autotuner.do_bench = property(lambda _: self._bench)
        Autotuner.prune_configs = candidates

    def start(self) -> None:
        """Forget what was chosen: another peer, or another shape."""
        for tuner in self._tuners.values():
            tuner.cache.clear()
        self._kernels = self._tried = self._untried = 0
        self._seconds = 0.0

    def label(self) -> dict[str, Any]:
        """What rows say: kernels that chose, configurations tried and left untried, seconds of the first timings."""
        found: dict[str, Any] = {"kernels": self._kernels, "tried": self._tried, "untried": self._untried}
        return found | {"in_full": IN_FULL, "seconds": round(self._seconds, 1)}

    def _candidates(self, tuner: Any, options: dict[str, Any]) -> list[Any]:
        """The configurations of a kernel that its own measurement shall compare."""
        self._tuners[id(tuner)] = tuner
        configs = list(self._configurations(tuner, options))
        if self._share is not None:
            index, count = self._share
            return configs[index::count] or configs[:1]
        return self._best(tuner, configs, partial(tuner._bench, *tuner.nargs.values(), **options))

    def _best(self, tuner: Any, configs: list[Any], bench: Callable[..., list[float]]) -> list[Any]:
        begun = time.perf_counter()
        times: dict[Any, list[float]] = {}
        self._bench = twice
        try:
            for config in configs:
                if times and self._seconds + time.perf_counter() - begun > self._limit:
                    break
                times[config] = bench(config=config)
        finally:
            self._bench = in_full
        self._kernels += 1
        self._tried, self._untried = self._tried + len(times), self._untried + len(configs) - len(times)
        self._seconds += time.perf_counter() - begun
        return sorted(times, key=times.__getitem__)[:IN_FULL]
