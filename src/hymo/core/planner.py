"""What a run will need, told before it starts: memory, time, cost and disk, from the configuration alone.

Counts are exact (`hymo.core.accounting`), memory is an estimate (`hymo.core.memory`), and throughput is a roofline over
efficiencies that were measured on one device (`hymo.core.throughput`). The plan says which is which.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from hymo.core.accounting import cache_bytes, count_parameters, flops_per_token, state_bytes, used_per_token
from hymo.core.config import HyMoConfig
from hymo.core.errors import UsageError
from hymo.core.hardware import DEVICES, GIB, Device, device
from hymo.core.load import derive_config, load_config
from hymo.core.measured import MEASURED
from hymo.core.memory import (
    LEVELS,
    Level,
    TrainingMemory,
    keeps_whole_gradients,
    optimizer_sizes,
    training_memory,
)
from hymo.core.throughput import step_seconds, step_work

USABLE_MEMORY = 0.92
"""Share of device memory that a plan fills; the rest is left to the context, libraries and fragmentation."""
_LARGEST_MICRO_BATCH = 4096
_MOST_DEVICES = 512
"""Most devices that a refusal looks for."""
_WORTH_SAYING = 1.03
"""Speed-up from which on a plan advises another micro-batch."""


@dataclass(frozen=True)
class Parameters:
    """Parameters of the model."""

    stored: int
    """All of them."""
    active: int
    """Those that one token uses."""
    used_per_token: int
    """N_used of a trained token: each as often as the token passes it."""
    parts: dict[str, int]
    """`stored` by part."""


@dataclass(frozen=True)
class LevelPlan:
    """Memory of one rank at one level of activation checkpointing."""

    memory: dict[str, int]
    """Bytes by item at the planned micro-batch, with their total."""
    fits: bool | None
    """Whether that is within the usable memory; None where the device's is unknown."""
    largest_micro_batch: int | None
    """Most sequences per forward pass that fit: 0 if not even one does, None where the device's memory is unknown."""


@dataclass(frozen=True)
class Throughput:
    """Expected speed of training over all devices."""

    tokens_per_second: float
    utilisation: float
    """Model FLOPs at that speed as a share of the dense bf16 peak (MFU)."""
    basis: str
    """Where the figure comes from."""
    days: float
    """Time for all steps."""
    cost: float | None
    """Price of that time in the unit of the given price; None without one."""
    lost_hours: float
    """Longest work lost with a machine: what lies between two checkpoints (steps or minutes, whichever is less)."""
    lost_cost: float | None
    """Price of doing that again on all devices; None without a price."""


@dataclass(frozen=True)
class Plan:
    """A run, planned."""

    name: str
    parameters: Parameters
    flops_per_token: int
    """FLOPs per trained token, forward and backward."""
    tokens_per_step: int
    steps: int
    tokens: int
    """Tokens of all steps."""
    gpu: str | None
    gpus: int
    micro_batch_size: int
    """Sequences per rank and forward pass that the memory items are for."""
    grad_accum_steps: int
    """Forward passes per step on this number of devices."""
    usable_memory_bytes: int | None
    """Memory per device that the plan may fill; None where it is unknown."""
    activation_checkpointing: Level
    """The configured level."""
    levels: dict[str, LevelPlan]
    communication_bytes: int
    """Bytes that each rank receives per step: gathered weights, summed gradients, NorMuon's matrices."""
    context: int
    """Tokens of the sequence that cache_bytes is for."""
    cache_bytes: int
    """Attention cache of one sequence of `context` tokens in bf16."""
    state_bytes: int
    """Recurrent state of one sequence, whatever its length."""
    checkpoint_bytes: int
    """One checkpoint: masters and optimizer states in fp32."""
    checkpoint_disk_bytes: int
    """All checkpoints that retention keeps at once, with the one being written."""
    data_bytes: int
    """Token files of a data set of which the run needs training.max_epochs passes."""
    throughput: Throughput | None
    """None where the device's bf16 peak is unknown or does not apply."""
    warnings: tuple[str, ...]
    advice: tuple[str, ...]
    """Changes that would make the run faster, with the speed that they promise."""

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain values for JSON."""
        return dataclasses.asdict(self)


def plan(
    config: HyMoConfig, gpu: str | None = None, gpus: int = 1, context: int | None = None, price: float | None = None
) -> Plan:
    """Plan a run.

    Args:
        config: the run.
        gpu: short name of a device (`hymo.core.hardware`); None leaves out what depends on one.
        gpus: number of devices, the data-parallel ranks.
        context: tokens for cache_bytes; the model's context if None.
        price: price of one device-hour, in any currency.

    Raises:
        UsageError: an unknown device, a number out of range, or a run that fits at no checkpointing level.
    """
    _check_range("--gpus", gpus, 1)
    _check_range("--context", context, 1)
    _check_range("--price", price, 0)
    target = None if gpu is None else device(gpu)
    usable = None if target is None or target.memory is None else int(target.memory * USABLE_MEMORY)
    training = config.training
    levels = {level: _plan_level(config, gpus, level, usable, target) for level in LEVELS}
    if usable is not None and target is not None and all(level.largest_micro_batch == 0 for level in levels.values()):
        raise UsageError(_refusal(config, target, gpus, usable))
    count = count_parameters(config.model)
    one_checkpoint = 4 * count.stored + optimizer_sizes(config).bytes
    passes = -(-training.sequences_per_step // (training.micro_batch_size * gpus))
    throughput = _throughput(config, target, gpus, price)
    return Plan(
        name=config.run.name,
        parameters=Parameters(count.stored, count.active, used_per_token(config.model, training=True), count.parts),
        flops_per_token=flops_per_token(config.model, training.seq_len),
        tokens_per_step=training.tokens_per_step,
        steps=config.total_steps,
        tokens=config.total_steps * training.tokens_per_step,
        gpu=None if target is None else target.key,
        gpus=gpus,
        micro_batch_size=training.micro_batch_size,
        grad_accum_steps=passes,
        usable_memory_bytes=usable,
        activation_checkpointing=training.activation_checkpointing,
        levels={str(name): level for name, level in levels.items()},
        communication_bytes=communication(config, gpus, passes),
        context=context or config.model.max_seq_len,
        cache_bytes=cache_bytes(config.model, context or config.model.max_seq_len),
        state_bytes=state_bytes(config.model),
        checkpoint_bytes=one_checkpoint,
        # The newest keep_last and the one being written; keep_best, keep_every and keep_stable add what they ask for.
        checkpoint_disk_bytes=one_checkpoint * (training.keep_last + 1 + training.keep_best + _kept_for_good(config)),
        data_bytes=_token_bytes(config) * -(-config.total_steps * training.tokens_per_step // training.max_epochs),
        throughput=throughput,
        warnings=tuple(_warnings(config, target, gpus, context, levels, throughput)),
        advice=tuple(_advice(config, target, gpus, levels, throughput)),
    )


def _token_bytes(config: HyMoConfig) -> int:
    """Bytes of a stored token: two while ids fit."""
    return 2 if config.model.vocab_size < 1 << 16 else 4


def _check_range(option: str, value: float | None, least: float) -> None:
    if value is not None and not least <= value < math.inf:
        raise UsageError(f"{option} {value}: must be a number of at least {least}.")


def _plan_level(config: HyMoConfig, gpus: int, level: Level, usable: int | None, target: Device | None) -> LevelPlan:
    on_gpu = target is not None and target.peak is not None
    at_configured = training_memory(config, gpus, None, level, on_gpu=on_gpu)
    fits = None if usable is None else at_configured.total <= usable
    largest = None if usable is None else _largest_micro_batch(config, gpus, level, usable)
    return LevelPlan(_items(at_configured), fits, largest)


def _refusal(config: HyMoConfig, target: Device, gpus: int, usable: int) -> str:
    """Why a run fits nowhere on these devices, and on which it would."""

    def least(world: int) -> int:
        return training_memory(config, world, 1, "full", on_gpu=True).total

    ways = []
    more = next((n for n in _doubled(gpus) if least(n) <= usable), None)
    if more is not None:
        ways.append(f"{more} x {target.key}")
    needed = least(gpus)
    dropped = derive_config(config, training={"reshard_after_forward": True})
    saves = gpus > 1 and training_memory(dropped, gpus, 1, "full", on_gpu=True).total <= usable
    larger = [d.key for d in DEVICES if d.memory is not None and needed <= int(d.memory * USABLE_MEMORY)]
    if larger:
        ways.append(f"{gpus} x {' or '.join(larger)}")
    return (
        f"{config.run.name} does not fit on {gpus} x {target.name}: one sequence of {config.training.seq_len} tokens "
        f"with full activation checkpointing needs {needed / GIB:.1f} GiB per device, {usable / GIB:.1f} GiB are "
        "usable. "
        + (f"It fits on {', or on '.join(ways)}. " if ways else "")
        + ("Set training.reshard_after_forward=true, with which it fits. " if saves else "")
        + "Else take a shorter training.seq_len or a smaller preset."
    )


def _doubled(gpus: int) -> Iterator[int]:
    """Twice as many devices, four times as many and so on."""
    while (gpus := 2 * gpus) <= _MOST_DEVICES:
        yield gpus


def _items(memory: TrainingMemory) -> dict[str, int]:
    return {**dataclasses.asdict(memory), "total": memory.total}


def _largest_micro_batch(config: HyMoConfig, gpus: int, level: Level, usable: int) -> int:
    """Bisect: memory falls where one pass is the whole step, so that gradients need no sum; else it never does."""

    def fits(size: int) -> bool:
        return training_memory(config, gpus, size, level, on_gpu=True).total <= usable

    step = -(-config.training.sequences_per_step // gpus)
    low, high = (step, max(step, _LARGEST_MICRO_BATCH)) if fits(step) else (0, step - 1)
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low


def communication(config: HyMoConfig, gpus: int, passes: int) -> int:
    """Bytes that a rank receives in a step: weights gathered, gradients summed, matrices brought to their owners.

    Replicas gather and sum among their own ranks, once a step or in every pass (`keeps_whole_gradients`), and sum their
    slices with each other once a step.
    """
    stored = count_parameters(config.model).stored
    replicas = min(config.training.dp_replicate, gpus)
    shards = gpus // replicas
    width = {"bfloat16": 2, "float32": 4}
    gathers = 2 * passes if config.training.reshard_after_forward else 1
    gathered = gathers * width[config.training.param_dtype] * stored
    sums = 1 if keeps_whole_gradients(config.training) else passes
    reduced = sums * width[config.training.reduce_dtype] * stored
    between = 2 * width[config.training.reduce_dtype] * (stored // shards) * (replicas - 1) // replicas
    matrices = width["float32"] * optimizer_sizes(config).normuon
    owned = matrices // gpus * (shards - 1) // shards + matrices // shards * (gpus - 1) // gpus
    return (gathered + reduced) * (shards - 1) // shards + between + owned


def _kept_for_good(config: HyMoConfig) -> int:
    every = config.training.keep_every
    return int(config.training.keep_stable) + (0 if every is None else config.total_steps // every)


def _throughput(config: HyMoConfig, target: Device | None, gpus: int, price: float | None) -> Throughput | None:
    if target is None or target.peak is None or config.training.param_dtype != "bfloat16":
        return None
    training = config.training
    speed = _speed(config, target, gpus, training.micro_batch_size, training.activation_checkpointing)
    seconds = config.total_steps * training.tokens_per_step / speed
    cost = None if price is None else seconds / 3600 * gpus * price
    lost = min(training.checkpoint_interval, config.total_steps) * training.tokens_per_step / speed
    if training.checkpoint_minutes is not None:
        lost = min(lost, 60 * training.checkpoint_minutes)
    lost_cost = None if price is None else lost / 3600 * gpus * price
    utilisation = speed * flops_per_token(config.model, training.seq_len) / (gpus * target.peak)
    basis = _basis(config, target, gpus)
    return Throughput(speed, utilisation, basis, seconds / 86400, cost, lost / 3600, lost_cost)


def _speed(config: HyMoConfig, target: Device, gpus: int, micro_batch: int, level: Level) -> float:
    """Tokens per second over all devices."""
    passes = -(-config.training.sequences_per_step // (micro_batch * gpus))
    work = step_work(config, gpus, micro_batch, level, communication(config, gpus, passes))
    return config.training.tokens_per_step / step_seconds(work, target)


def _choices(config: HyMoConfig) -> tuple[str, str]:
    """What a roofline of products does not see: the recurrence's kernel, and which matrices are orthogonalised."""
    return config.model.gdn_recurrence, config.optimizer.optimizer_partition


@cache
def _measured_choices() -> frozenset[str]:
    return frozenset(choice for name in MEASURED.presets for choice in _choices(load_config(name)))


def _basis(config: HyMoConfig, target: Device, gpus: int) -> str:
    """How far the figure is from what was measured."""
    there = f"roofline, efficiencies of {' and '.join(MEASURED.presets)} on one {MEASURED.device}"
    elsewhere = [target.key] if target.key != MEASURED.device else []
    elsewhere += [f"{gpus} ranks"] if gpus > 1 else []
    elsewhere += [config.run.name] if config.run.name not in MEASURED.presets else []
    elsewhere += [choice for choice in _choices(config) if choice not in _measured_choices()]
    return f"{there}; carried over to: {', '.join(elsewhere)}" if elsewhere else there


def _advice(
    config: HyMoConfig, target: Device | None, gpus: int, levels: dict[Level, LevelPlan], throughput: Throughput | None
) -> Iterator[str]:
    """The fastest micro-batch that divides the step and fits, where that is worth a change."""
    training = config.training
    if target is None or throughput is None or training.sequences_per_step % gpus:
        return
    share = training.sequences_per_step // gpus
    options = [
        (_speed(config, target, gpus, size, name), size, name)
        for name, level in levels.items()
        for size in range(1, min(share, level.largest_micro_batch or 0) + 1)
        if share % size == 0
    ]
    if not options:
        return
    speed, size, name = max(options, key=lambda option: (option[0], -option[1]))
    fits = levels[training.activation_checkpointing].fits
    present = throughput.tokens_per_second if fits else 0.0
    if speed > _WORTH_SAYING * present:
        passes = share // size
        instead = f"instead of {present:,.0f}" if fits else "and fits"
        changes: dict[str, object] = {"micro_batch_size": size, "grad_accum_steps": passes, "dp_size": gpus}
        changes |= {"activation_checkpointing": name} if name != training.activation_checkpointing else {}
        options_text = " ".join(f"--set training.{field}={value}" for field, value in changes.items())
        yield f"{options_text}: {speed:,.0f} tokens/s expected, {instead}; the same steps."


def _warnings(
    config: HyMoConfig,
    target: Device | None,
    gpus: int,
    context: int | None,
    levels: dict[Level, LevelPlan],
    throughput: Throughput | None,
) -> list[str]:
    training = config.training
    found = []
    chosen = levels[training.activation_checkpointing]
    if chosen.fits is False:
        options = [f"{name} {level.largest_micro_batch}" for name, level in levels.items() if level.largest_micro_batch]
        found.append(
            f"training.micro_batch_size {training.micro_batch_size} does not fit with activation_checkpointing "
            f"{training.activation_checkpointing}. Largest that fit: {', '.join(options)}."
        )
    if training.sequences_per_step % (training.micro_batch_size * gpus):
        found.append(
            f"{training.sequences_per_step} sequences per step do not divide into micro-batches of "
            f"{training.micro_batch_size} on {gpus} devices: training refuses that. Take devices that divide the "
            f"{training.sequences_per_step // training.micro_batch_size} forward passes of a step, or lower "
            "training.micro_batch_size and raise grad_accum_steps by the same factor."
        )
    if target is not None and throughput is None:
        reason = "its bf16 peak is unknown" if target.peak is None else "the peak is for bf16, the run computes in fp32"
        found.append(f"no throughput for {target.name}: {reason}.")
    passes = -(-training.sequences_per_step // (training.micro_batch_size * gpus))
    if throughput is not None:
        each = 1e3 * training.tokens_per_step / throughput.tokens_per_second / passes / config.model.n_layers
        least, most = MEASURED.host_ms
        if each < least:
            larger = "a larger training.micro_batch_size" if passes > 1 else "more tokens a step"
            found.append(
                f"the device is expected to need {each:.1f} ms for a block in a pass; beside an {MEASURED.device} a "
                f"host took {least:g} to {most:g} ms to start the kernels of one. The speed above may not be reached; "
                f"{larger} gives the device more to do."
            )
    if context is not None and context > config.model.max_seq_len * config.model.yarn_factor:
        found.append(
            f"a context of {context} tokens lies beyond model.max_seq_len ({config.model.max_seq_len}): "
            "the cache is counted, but positions there are untrained."
        )
    return found
