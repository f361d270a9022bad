"""Real processes that train together, forked from one that has imported what they need: a group starts in a second."""

from __future__ import annotations

import multiprocessing
import os
import socket
import sys
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # as `hymo train` does
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["torch", "torch.distributed.tensor", "hymo.training.run", "hymo.cli.app"])


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Job:
    """`size` processes that call `work(rank, *args)` with the environment that torchrun would give them."""

    def __init__(self, size: int, work: Callable[..., Any], *args: Any) -> None:
        port = free_port()
        self.pipes: list[Connection] = []
        self.processes: list[BaseProcess] = []
        for rank in range(size):
            ours, theirs = _CONTEXT.Pipe(duplex=False)
            environment = {
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(size),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "GLOO_SOCKET_IFNAME": "lo",
                "OMP_NUM_THREADS": "1",
            }
            if size == 1:
                environment = {"OMP_NUM_THREADS": "1"}
            process = _CONTEXT.Process(target=_enter, args=(theirs, environment, work, rank, args))
            process.start()
            theirs.close()
            self.pipes.append(ours)
            self.processes.append(process)

    def results(self, timeout: float = 120) -> list[Any]:
        """What each rank returned; an AssertionError with its traceback if one failed."""
        until = time.monotonic() + timeout
        found: list[Any] = []
        try:
            for rank, pipe in enumerate(self.pipes):
                assert pipe.poll(max(0.0, until - time.monotonic())), f"rank {rank}: silent after {timeout} s"
                kind, value = pipe.recv()
                found.append(value)
                assert kind == "result", f"rank {rank}:\n{value}"
        finally:
            self.end()
        return found

    def exits(self, timeout: float = 60) -> list[int | None]:
        """Exit code of each rank; None if it had to be ended."""
        until = time.monotonic() + timeout
        codes = []
        for process in self.processes:
            process.join(max(0.0, until - time.monotonic()))
            codes.append(process.exitcode)
        self.end()
        return codes

    def kill(self, *ranks: int) -> None:
        for rank in ranks:
            self.processes[rank].kill()

    def end(self) -> None:
        for process in self.processes:
            process.join(5)
            if process.is_alive():
                process.kill()
                process.join()


def run_ranks(size: int, work: Callable[..., Any], *args: Any, timeout: float = 120) -> list[Any]:
    """Results of `work(rank, *args)` on `size` ranks, by rank."""
    return Job(size, work, *args).results(timeout)


def _enter(pipe: Connection, environment: dict[str, str], work: Callable[..., Any], rank: int, args: Any) -> None:
    import torch

    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        os.environ.pop(name, None)
    os.environ.update(environment)
    torch.set_num_threads(1)
    try:
        pipe.send(("result", work(rank, *args)))
    except SystemExit:
        raise
    except BaseException:
        pipe.send(("failed", traceback.format_exc()))
        sys.exit(1)
