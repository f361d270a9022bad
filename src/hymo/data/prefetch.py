"""Work ahead of its use in threads, without any say in its order or its result."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Ahead(Generic[K, V]):
    """Computes `function(key)` for keys that will be asked for.

    Threads, not processes: they see no signals (Python hands those to the main thread), cannot outlive the process, and
    share the mapped shards. What a key gives depends on the key alone, so a wrong guess costs time and nothing else.

    Args:
        function: safe to call from several threads.
        threads: how many.
    """

    def __init__(self, function: Callable[[K], V], threads: int) -> None:
        self._function = function
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="hymo-data")
        self._futures: dict[K, Future[V]] = {}

    def get(self, key: K, following: Sequence[K]) -> V:
        """Return the value of `key` and start on those of `following`; what is neither is forgotten."""
        future = self._futures.pop(key, None)
        for old in self._futures.keys() - set(following):
            self._futures.pop(old).cancel()
        for new in following:
            if new not in self._futures:
                self._futures[new] = self._pool.submit(self._function, new)
        return self._function(key) if future is None else future.result()

    def clear(self) -> None:
        """Forget what was started."""
        for future in self._futures.values():
            future.cancel()
        self._futures.clear()
