"""What must be right before a run of days starts: each thing that it will need is tried once, on its own ranks.

Every check gives one line: what was found, or what is wrong and its cure. A check that needs another which failed is
left out and says so. Nothing stays on the disk, and a run folder that exists is not touched.
"""

from __future__ import annotations

import math
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from hymo.core.config import HyMoConfig
from hymo.core.errors import CheckpointError, HymoError, StorageError, TrainingError, UsageError
from hymo.core.files import writing
from hymo.core.launch import check_ranks, launched_ranks
from hymo.core.load import CHECKPOINTS, derive_config, dump_config
from hymo.core.memory import training_memory
from hymo.core.planner import USABLE_MEMORY, plan
from hymo.data import verify_dataset
from hymo.training.checkpointer import Checkpointer
from hymo.training.device import resolve_device, without_effect
from hymo.training.doctor import compilation
from hymo.training.out_of_memory import advice
from hymo.training.ranks import ALONE, Ranks, open_ranks
from hymo.training.run import resolved_kernel, run_folder, run_inputs
from hymo.training.track import require_trackers
from hymo.training.trainer import Trainer

_SPEED_BYTES = 64 << 20
"""What the disk's speed is measured with."""
_REDUCED_BYTES = {"cuda": 256 << 20, "cpu": 4 << 20}
"""What the ranks sum to measure how fast they talk."""


@dataclass(frozen=True)
class Check:
    """One line of a preflight."""

    name: str
    ok: bool | None
    """None if it was not tried."""
    text: str
    """What was found; else what is wrong and what to do."""


@dataclass
class _Checks:
    """Runs checks on all ranks and keeps their results."""

    report: Callable[[Check], None]
    ranks: Ranks = ALONE
    done: dict[str, Check] = field(default_factory=dict)

    def add(self, name: str, work: Callable[[], str], needs: tuple[str, ...] = (), together: bool = False) -> None:
        """Try something on every rank; the first that fails is told.

        Args:
            name: of the check.
            work: says what was found, or raises.
            needs: checks without which this one cannot be tried.
            together: ranks wait for each other within `work`: one that fails ends them all, as in a run.
        """
        missing = [each for each in needs if not self.done[each].ok]
        if missing:
            self._keep(Check(name, None, f"not tried: {missing[0]} failed."))
        elif together and self.ranks.size > 1:
            try:
                with self.ranks.telling():
                    found = work()
            except Exception as error:  # told here as well, then as in a run: nobody can go on together
                self._keep(Check(name, False, str(error).strip() or type(error).__name__))
                raise
            self._keep(Check(name, True, found))
        else:
            told = self.ranks.everywhere(lambda: _tried(work))
            bad = [f"rank {i}: {text}" for i, (ok, text) in enumerate(told) if not ok]
            if self.ranks.size == 1 and bad:
                bad = [told[0][1]]
            self._keep(Check(name, not bad, bad[0] if bad else told[0][1]))

    def _keep(self, check: Check) -> None:
        self.done[check.name] = check
        if self.ranks.first:
            self.report(check)


def preflight(
    config: HyMoConfig,
    wanted: int | None = None,
    report: Callable[[Check], None] = lambda _: None,
    quick: bool = False,
) -> list[Check]:
    """Try everything that a run of this configuration needs; under torchrun, on all its ranks together.

    Args:
        config: the run.
        wanted: ranks that it shall be trained on; those that are here unless given.
        report: told of each check as it ends, on the first rank.
        quick: leave out the step and the checkpoint, which take as long as the model is large.

    Returns:
        All checks, in their order.
    """
    config = derive_config(config, training={"async_checkpoint": True})  # waited for all the same
    size = launched_ranks()
    checks = _Checks(report if size == 1 or os.environ.get("RANK") == "0" else lambda _: None)
    checks.add("ranks", lambda: _ranks(config, size, wanted))
    wanted = wanted or size
    with ExitStack() as held:
        if size > 1 and checks.done["ranks"].ok:
            try:
                checks.ranks = held.enter_context(open_ranks(config))
            except HymoError as error:
                checks.add("all-reduce", partial(_fail, error))
                return list(checks.done.values())
        _check(config, wanted, checks, without_model=quick or (size > 1 and not checks.done["ranks"].ok))
    return list(checks.done.values())


def _check(config: HyMoConfig, wanted: int, checks: _Checks, without_model: bool) -> None:
    ranks, folder = checks.ranks, run_folder(config)
    checks.add("devices", lambda: _device(config))
    checks.add("all-reduce", lambda: _all_reduce(config, ranks), ("ranks", "devices"), together=True)
    checks.add("packages", lambda: _packages(config), ("devices",))
    checks.add("memory", lambda: _memory(config, wanted), ("devices",))
    place: list[Path] = []

    def disk() -> str:
        place.append(ranks.on_first(lambda: _scratch(folder)))
        return _disk(config, wanted, place[0], ranks)

    try:
        checks.add("disk", disk)
        checks.add("data", lambda: _data(config, ranks))
        if without_model:  # or ranks that do not divide the step, which cannot take one
            return
        trainers: list[Trainer] = []
        checks.add("step", lambda: _step(config, ranks, trainers), ("packages", "memory", "data"), together=True)
        checks.add(
            "checkpoint", lambda: _checkpoint(config, ranks, trainers[0], place[0]), ("disk", "step"), together=True
        )
    finally:
        if place and ranks.first:
            shutil.rmtree(place[0], ignore_errors=True)


def _tried(work: Callable[[], str]) -> tuple[bool, str]:
    try:
        return True, work()
    except HymoError as error:
        return False, str(error)
    except Exception as error:  # whatever a driver, a compiler or a file system says: it is the finding
        text = str(error).strip()
        return False, f"{type(error).__name__}: {text.splitlines()[0] if text else ''}"


def _fail(error: Exception) -> str:
    raise error


def _ranks(config: HyMoConfig, size: int, wanted: int | None) -> str:
    if wanted is not None and size not in (1, wanted):
        raise UsageError(f"{size} ranks were started, {wanted} are asked for. Start torchrun with --nnodes x "
                         f"--nproc-per-node = {wanted}, or ask for {size}.")  # fmt: skip
    check_ranks(config, wanted or size)
    passes = config.training.grad_accum_steps * config.training.dp_size // (wanted or size)
    here = "" if wanted in (None, size) else f", {size} of them here"
    return f"{wanted or size}{here}, each with {passes} passes of {config.training.micro_batch_size} sequences a step"


def _device(config: HyMoConfig) -> str:
    device = resolve_device(config.run.device)
    if device.type != "cuda":
        return f"{device}, {torch.get_num_threads()} threads"
    facts = torch.cuda.get_device_properties(device)
    free, total = torch.cuda.mem_get_info(device)
    needed = training_memory(config, launched_ranks(), on_gpu=True).total
    if free < min(needed, USABLE_MEMORY * total):
        raise UsageError(
            f"{device}: {free / 2**30:.1f} of {total / 2**30:.1f} GiB are free, the run needs {needed / 2**30:.1f}. "
            "End the other processes on it (nvidia-smi lists them)."
        )
    return f"{device}: {facts.name}, {free / 2**30:.1f} of {total / 2**30:.1f} GiB free"


def _all_reduce(config: HyMoConfig, ranks: Ranks) -> str:
    if ranks.size == 1:
        return "one process, nothing to reduce"
    device = resolve_device(config.run.device)
    values = torch.full((_REDUCED_BYTES[device.type] // 4,), float(ranks.rank + 1), device=device)
    expected = ranks.size * (ranks.size + 1) / 2
    for _ in range(2):  # the first one also connects
        dist.barrier(group=ranks.control)
        began = time.perf_counter()
        total = ranks.total(values.clone())
        if not bool((total == expected).all()):
            raise TrainingError(f"the sum over {ranks.size} ranks is wrong. Test the machine's links (nccl-tests).")
        seconds = time.perf_counter() - began
    rate = 2 * (ranks.size - 1) / ranks.size * values.nbytes / seconds
    return (
        f"{values.nbytes >> 20} MiB over {dist.get_backend()} in {1e3 * seconds:.1f} ms, {rate / 1e9:.1f} GB/s a rank"
    )


def _packages(config: HyMoConfig) -> str:
    require_trackers(config.run.track)
    device = resolve_device(config.run.device)
    kernel = resolved_kernel(config, device)["implementation"]
    if device.type == "cuda":
        compiles = compilation()
        if config.training.torch_compile_gdn and not compiles.on:
            raise UsageError(f"training.torch_compile_gdn: {compiles.reason}, or set it to false.")
    parts = [f"torch {torch.__version__}", f"recurrence {kernel}", *config.run.track]
    parts += [f"{name}: {why}" for name, why in without_effect(config, device, launched_ranks()).items()]
    return ", ".join(parts)


def _memory(config: HyMoConfig, size: int) -> str:
    """The plan against what the device has; on a CPU, what is free against all ranks of this machine."""
    device = resolve_device(config.run.device)
    needed = training_memory(config, size, on_gpu=device.type == "cuda").total
    if device.type == "cuda":
        usable = int(USABLE_MEMORY * torch.cuda.mem_get_info(device)[1])
    else:
        usable = _free_memory() // int(os.environ.get("LOCAL_WORLD_SIZE", launched_ranks()))
    told = f"{needed / 2**30:.2f} GiB planned, {usable / 2**30:.2f} usable on {device}"
    if needed > usable:
        raise UsageError(f"{told}. {advice(config, device.type == 'cuda')}")
    return told


def _free_memory() -> int:
    """Bytes that processes of this machine can still take, as the kernel estimates."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration, ValueError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _scratch(folder: Path) -> Path:
    """A new folder on the file system that the checkpoints will lie on."""
    there = [path for path in (folder / CHECKPOINTS, folder) if path.is_dir()]
    place = there[0] if there else folder.parent
    with writing(place, "Set run.output_dir elsewhere, or change its permissions."):
        place.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=".preflight-", dir=place))


def _disk(config: HyMoConfig, size: int, place: Path, ranks: Ranks) -> str:
    if not place.is_dir():
        raise UsageError(f"{place.parent}: rank {ranks.rank} does not see what the first rank writes there. Set "
                         "run.output_dir to a file system that all machines share.")  # fmt: skip
    if not ranks.first:
        return ""
    needed = plan(config, gpus=size).checkpoint_disk_bytes
    there = run_folder(config) / CHECKPOINTS
    held = sum(path.stat().st_size for path in there.glob("step-*/*")) if there.is_dir() else 0
    free = shutil.disk_usage(place).free
    left = f"{free / 1e9:.1f} GB free, {max(0, needed - held) / 1e9:.1f} needed for checkpoints"
    if free < needed - held:
        raise StorageError(
            f"{place.parent}: {left}. Free space there, set run.output_dir elsewhere, or keep fewer "
            "(training.keep_last, training.keep_every)."
        )
    written, read = _speed(place / "speed", min(_SPEED_BYTES, free // 4))
    return f"{place.parent}: {left}, writes {written / 1e6:,.0f} MB/s, reads {read / 1e6:,.0f} MB/s"


def _speed(path: Path, size: int) -> tuple[float, float]:
    """Bytes per second of writing to the disk and reading back from it."""
    block = os.urandom(1 << 20)
    with writing(path), path.open("wb", buffering=0) as file:
        began = time.perf_counter()
        for _ in range(max(1, size >> 20)):
            file.write(block)
        os.fsync(file.fileno())
        written = time.perf_counter() - began
        if hasattr(os, "posix_fadvise"):  # else memory would answer for the disk
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    began = time.perf_counter()
    with path.open("rb", buffering=0) as file:
        while file.read(1 << 20):
            pass
    read = time.perf_counter() - began
    total = path.stat().st_size
    path.unlink()
    return total / max(written, 1e-9), total / max(read, 1e-9)


def _data(config: HyMoConfig, ranks: Ranks) -> str:
    if config.run.data is None:
        raise UsageError("run.data: not set. Prepare text with `hymo data prepare`, then pass --data DIR.")
    data = config.run.data
    began = time.perf_counter()
    ranks.on_first(lambda: verify_dataset(data) and None)
    inputs = run_inputs(config, run_folder(config))
    seconds, loader = time.perf_counter() - began, inputs["loader"]
    epochs = config.total_steps / loader.steps_per_epoch
    return f"{data}: {loader.split.n_tokens:,} training tokens verified in {seconds:.1f} s, {epochs:.2f} epochs needed"


def _step(config: HyMoConfig, ranks: Ranks, made: list[Trainer]) -> str:
    inputs = run_inputs(config, run_folder(config))
    trainer = Trainer(config, inputs["loader"], ranks=ranks)
    made.append(trainer)
    began = time.perf_counter()
    record, tokens = trainer.take_step(trainer.next_windows())
    seconds = time.perf_counter() - began
    loss = record["train/loss"]
    if not tokens or not math.isfinite(loss):
        raise TrainingError("the first step's loss or gradient is not finite. Lower the learning rates.")
    peak = ""
    if trainer.device.type == "cuda":
        peak = f", {torch.cuda.max_memory_allocated(trainer.device) / 2**30:.1f} GiB at most"
    return f"loss {loss:.4f}, {tokens:,} tokens in {seconds:.1f} s with whatever is compiled on the way{peak}"


def _checkpoint(config: HyMoConfig, ranks: Ranks, trainer: Trainer, place: Path) -> str:
    """Save the state after the dry step as a run does, read it back, and compare every tensor that this rank holds."""
    trainer.checkpointer = Checkpointer(place, dump_config(config), 1, ranks=ranks, rows=trainer.rows)
    result = trainer.save_now()
    if result is None or result.path is None:
        raise CheckpointError(f"{place.parent}: a checkpoint cannot be saved ({'' if result is None else result.error})"
                              ". Set run.output_dir elsewhere, or repair the file system.")  # fmt: skip
    saved = _flat(trainer.state(), copy=True)
    with torch.no_grad():  # so that a reader which does nothing is seen
        for value in _flat(trainer.state()).values():
            if value.is_floating_point():
                value.fill_(torch.nan)
    began = time.perf_counter()
    trainer.resume(place)
    read = time.perf_counter() - began
    different = [name for name, value in _flat(trainer.state()).items() if not torch.equal(value.cpu(), saved[name])]
    if different:
        raise CheckpointError(f"{place.parent}: '{different[0]}' read back differs from what was saved. Repair the "
                              "file system, or set run.output_dir elsewhere.")  # fmt: skip
    size = sum(path.stat().st_size for path in result.path.iterdir())
    ranks.everywhere(lambda: None)  # the first one deletes the folder: not while another still reads there
    return f"{size / 1e9:.3f} GB saved in {result.seconds:.1f} s, read back equal in {read:.1f} s"


def _flat(state: dict[str, Any], copy: bool = False, prefix: str = "") -> dict[str, Tensor]:
    """Tensors of a nested dictionary by path; with `copy`, as they are now, on the CPU."""
    found: dict[str, Tensor] = {}
    for key, value in state.items():
        if isinstance(value, dict):
            found |= _flat(value, copy, f"{prefix}{key}/")
        else:
            found[f"{prefix}{key}"] = value.detach().to("cpu", copy=True) if copy else value
    return found


def with_data(config: HyMoConfig, data: Path | None) -> HyMoConfig:
    """The configuration with another data set, if one is named."""
    return config if data is None else derive_config(config, run={"data": str(data)})
