"""The processes that train one run together: who they are, how they agree, and what ends them when one fails.

`torchrun` starts them and says in the environment who is who. Tensors travel over NCCL between CUDA devices and over
gloo between CPUs. What the host must know (token counts, signals, results of saves) has gloo groups of its own, so that
no device is waited for and a save in flight never mixes with a step.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from hymo.core.config import HyMoConfig
from hymo.core.errors import RankError, TrainingError, UsageError
from hymo.core.launch import check_ranks, launched_ranks, start_number
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

        Args:
            work: what to do; its result travels, so it must be small.
            group: who waits; those in a step if None.

        Raises:
            HymoError: what it raised there; `RankError` on the others.
        """
        if self.size == 1:
            return work()
        box: list[Any] = [None]
        error: Exception | None = None
        if self.first:
            try:
                box[0] = (True, work())
            except Exception as problem:
                error, box[0] = problem, (False, _portable(problem, 0))
        dist.broadcast_object_list(box, src=0, group=group or self.control)
        done, value = box[0]
        if not done:
            raise error if error is not None else value
        result: T = value
        return result

    def everywhere(self, work: Callable[[], T], group: Any = None) -> list[T]:
        """Do something on every rank; all get all results, by rank, or nobody goes on.

        Raises:
            HymoError: what it raised here; `RankError` where only others failed.
        """
        if self.size == 1:
            return [work()]
        error: Exception | None = None
        mine: tuple[bool, Any]
        try:
            mine = (True, work())
        except Exception as problem:
            error, mine = problem, (False, _portable(problem, self.rank))
        told: list[Any] = [None] * self.size
        dist.all_gather_object(told, mine, group=group or self.control)
        first = next((value for done, value in told if not done), None)
        if first is None:
            return [value for _, value in told]
        if error is None or first is not told[self.rank][1]:
            raise first  # told once, by the first that met it
        raise error

    def telling(self) -> AbstractContextManager[None]:
        """Around work whose failure the other ranks must learn of at once."""
        return nullcontext() if self.watch is None else self.watch.telling()

    def limit_waits(self, minutes: float) -> None:
        """From here on no collective of a step may take longer than this.

        Those of a save keep the limit of the start: there ranks wait for the first one to read back what all wrote, and
        a group that has timed out once is of no more use.
        """
        if self.mesh is None:
            return
        limit = timedelta(minutes=minutes)
        for group in {dist.group.WORLD, self.control, *(self.mesh.get_group(name) for name in _MESH)}:
            dist.distributed_c10d._set_pg_timeout(limit, group)


ALONE = Ranks()
"""A process on its own."""


def _portable(problem: Exception, rank: int) -> RankError:
    """What other ranks raise for a failure here."""
    return RankError(f"rank {rank}: {type(problem).__name__}: {problem}", usage=isinstance(problem, UsageError))


@contextmanager
def open_ranks(config: HyMoConfig) -> Iterator[Ranks]:
    """Join the processes that the launcher started, and leave them at the end; a process on its own joins nobody.

    Raises:
        ConfigError: as in `check_ranks`.
        UsageError: a device that is not there.
        TrainingError: the others did not come.
        RankError: another rank failed first.
    """
    size = launched_ranks()
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
    name = [secrets.token_hex(8)]
    try:
        store, rank, _ = next(rendezvous("env://", timeout=start))
        # A launcher that restarts ranks may keep the store, and with it what earlier ones wrote about themselves.
        store = PrefixStore(f"start-{start_number()}-{size}", store)
        backend = "cpu:gloo,cuda:nccl" if cuda else "gloo"
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=start)
        dist.broadcast_object_list(name, src=0, device=torch.device("cpu"))
    except (RuntimeError, ValueError) as error:
        raise TrainingError(
            f"{size} ranks did not meet within training.start_timeout_minutes "
            f"({config.training.start_timeout_minutes:g}): {str(error).strip().splitlines()[0]}"
        ) from error
    watch = FailureWatch(dist.get_rank(), dist.distributed_c10d._get_default_store(), name[0])
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
