"""The processes that train one run together: who they are, how they agree, and what ends them when one fails.

`torchrun` starts them and says in the environment who is who. Tensors travel over NCCL between CUDA devices and over
gloo between CPUs. What the host must know (token counts, signals, results of saves) has gloo groups of its own, so that
no device is waited for and a save in flight never mixes with a step.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from hymo.core.config import HyMoConfig
from hymo.core.errors import ConfigError, RankError, UsageError
from hymo.training.device import resolve_device
from hymo.training.failures import FailureWatch

T = TypeVar("T")
_MESH = ("replicate", "shard")


@dataclass(frozen=True)
class Ranks:
    """One process's view of all of them. The default is a process on its own, for which every call is free."""

    rank: int = 0
    """Number of this process, from 0."""
    size: int = 1
    """Number of processes."""
    mesh: DeviceMesh | None = None
    """(replicate, shard) devices; None for a process on its own."""
    host_mesh: DeviceMesh | None = None
    """The same ranks as CPUs, in whose memory checkpoints are written."""
    control: Any = None
    """Group for what the host must know during a step."""
    saves: Any = None
    """Group of the threads that write checkpoints."""
    watch: FailureWatch | None = None
    """What ends this rank when another fails, and the others when this one does."""

    @property
    def first(self) -> bool:
        """Whether this process speaks for the run: writes its records, its manifest, its terminal."""
        return self.rank == 0

    @property
    def shards(self) -> int:
        """Ranks that share one copy of the weights."""
        return 1 if self.mesh is None else self.mesh.size(1)

    @property
    def shard(self) -> int:
        """Which part of the weights this rank holds."""
        return 0 if self.mesh is None else self.mesh.get_local_rank(_MESH[1])

    @property
    def shard_group(self) -> Any:
        """Ranks that hold the parts of one copy."""
        return None if self.mesh is None else self.mesh.get_group(_MESH[1])

    def total(self, tensor: Tensor, group: Any = None) -> Tensor:
        """Sum a tensor over all ranks (or a group of them), in place."""
        if self.size > 1:
            dist.all_reduce(tensor, group=group)
        return tensor

    def largest(self, tensor: Tensor, group: Any = None) -> Tensor:
        """The largest of each element over all ranks (or a group of them), in place."""
        if self.size > 1:
            dist.all_reduce(tensor, op=dist.ReduceOp.MAX, group=group)
        return tensor

    def exchange(self, values: Sequence[int]) -> list[list[int]]:
        """Integers of every rank, by rank; each gives equally many."""
        if self.size == 1:
            return [list(values)]
        mine = torch.tensor(list(values), dtype=torch.int64)
        everyone = [torch.empty_like(mine) for _ in range(self.size)]
        dist.all_gather(everyone, mine, group=self.control)
        return [row.tolist() for row in everyone]

    def gather_table(self, table: Tensor) -> Tensor:
        """Sum a table on the CPU over all ranks, in place."""
        if self.size > 1:
            dist.all_reduce(table, group=self.control)
        return table

    def on_first(self, work: Callable[[], T], group: Any = None) -> T:
        """Do something on the first rank and give its result to all.

        Raises:
            HymoError: what it raised there; `RankError` on the others.
        """
        if self.size == 1:
            return work()
        box: list[Any] = [None]
        error: BaseException | None = None
        if self.first:
            try:
                box[0] = ("done", work())
            except Exception as problem:
                error, box[0] = problem, ("failed", _portable(problem, 0))
        dist.broadcast_object_list(box, src=0, group=group or self.control)
        kind, value = box[0]
        if kind == "failed":
            raise error if error is not None else value
        result: T = value
        return result

    def everywhere(self, work: Callable[[], T]) -> T:
        """Do something on every rank; nobody goes on unless all have done it.

        Raises:
            HymoError: what it raised here; `RankError` where only others failed.
        """
        if self.size == 1:
            return work()
        error: Exception | None = None
        result: Any = None
        try:
            result = work()
        except Exception as problem:
            error = problem
        told: list[Any] = [None] * self.size
        dist.all_gather_object(told, None if error is None else _portable(error, self.rank), group=self.control)
        if error is not None:
            if any(other is not None for other in told[: self.rank]) and isinstance(error, UsageError):
                raise next(other for other in told if other is not None)  # told once, by the first that met it
            raise error
        for other in told:
            if other is not None:
                raise other
        done: T = result
        return done

    def telling(self) -> AbstractContextManager[None]:
        """Around work whose failure the other ranks must learn of at once."""
        return nullcontext() if self.watch is None else self.watch.telling()

    def limit_waits(self, minutes: float) -> None:
        """From here on no collective may take longer than this."""
        if self.mesh is None:
            return
        limit = timedelta(minutes=minutes)
        for group in {dist.group.WORLD, self.control, self.saves, *(self.mesh.get_group(name) for name in _MESH)}:
            dist.distributed_c10d._set_pg_timeout(limit, group)


ALONE = Ranks()
"""A process on its own."""


def _portable(problem: Exception, rank: int) -> RankError:
    """What other ranks raise for a failure here."""
    return RankError(f"rank {rank}: {type(problem).__name__}: {problem}", usage=isinstance(problem, UsageError))


def launched() -> int:
    """How many processes the launcher started for this run; 1 without a launcher."""
    return int(os.environ.get("WORLD_SIZE", "1")) if "RANK" in os.environ else 1


def is_first() -> bool:
    """Whether this process may write to the terminal, told from the environment alone."""
    return launched() == 1 or os.environ["RANK"] == "0"


def check_ranks(config: HyMoConfig, size: int) -> None:
    """Refuse a number of ranks that the configuration does not divide over.

    Raises:
        ConfigError: naming the field and what would do.
    """
    cfg = config.training
    forward = cfg.grad_accum_steps * cfg.dp_size
    if forward % size:
        fitting = [n for n in range(1, forward + 1) if forward % n == 0]
        raise ConfigError(
            f"training.grad_accum_steps: {cfg.grad_accum_steps} x dp_size {cfg.dp_size} = {forward} forward passes per "
            f"step do not divide over {size} ranks. Start {', '.join(map(str, fitting))} ranks, or change either field."
        )
    if size % cfg.dp_replicate and size > 1:
        raise ConfigError(
            f"training.dp_replicate: {cfg.dp_replicate} replicas do not divide {size} ranks. Set a divisor of {size}; "
            "1 shards the weights over all ranks."
        )


@contextmanager
def open_ranks(config: HyMoConfig) -> Iterator[Ranks]:
    """Join the processes that the launcher started, and leave them at the end; a process on its own joins nobody.

    Raises:
        ConfigError: as in `check_ranks`.
        UsageError: a device that is not there.
        RankError: another rank failed first.
    """
    size = launched()
    if size == 1:
        yield ALONE
        return
    check_ranks(config, size)
    device = resolve_device(config.run.device)
    cuda = device.type == "cuda"
    if device.type not in ("cpu", "cuda"):
        raise UsageError(f"run.device: {device.type} trains in one process only. Use cuda or cpu.")
    if cuda:
        torch.cuda.set_device(device)
    start = timedelta(minutes=config.training.start_timeout_minutes)
    dist.init_process_group("cpu:gloo,cuda:nccl" if cuda else "gloo", timeout=start)
    watch = FailureWatch(dist.get_rank(), dist.distributed_c10d._get_default_store())
    try:
        with watch:
            replicas = config.training.dp_replicate
            shape = (replicas, size // replicas)
            yield Ranks(
                dist.get_rank(),
                size,
                init_device_mesh(device.type, shape, mesh_dim_names=_MESH),
                init_device_mesh("cpu", shape, mesh_dim_names=_MESH),
                dist.new_group(backend="gloo", timeout=start),
                dist.new_group(backend="gloo", timeout=start),
                watch,
            )
    finally:
        with contextlib.suppress(Exception):
            dist.destroy_process_group()

