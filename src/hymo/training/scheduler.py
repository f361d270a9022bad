"""Warm-up, stable, decay: one multiplier for the learning rates of both optimizers, a pure function of the step."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal

from torch.optim import Optimizer

from hymo.core.errors import CheckpointError, ConfigError, TrainingError

if TYPE_CHECKING:
    from hymo.core.config import SchedulerConfig

DecayShape = Literal["linear", "sqrt"]


class JointWSDScheduler:
    """The multiplier rises linearly to 1, rests, and falls to min_lr_ratio, which the last step has exactly.

    With T total steps, warm-up takes ceil(warmup_frac T), decay round(decay_frac T) and stable the rest. At step s of
    the warm-up (W steps) the factor is (s + 1) / W; at decay step i = 1..D it is r + (1 - r)(1 - i/D), or with the
    `sqrt` shape r + (1 - r)(1 - sqrt(i/D)) (arXiv 2405.18392). A run too short for its phases keeps one decay step if
    decay is asked for, and shortens the warm-up for it.

    Args:
        optimizers: whose groups `set` moves; the peak rate of a group is its `initial_lr`, or its `lr` now.
        total_steps: optimizer steps of the run.
        warmup_frac: share of the warm-up.
        stable_frac: share at the peak; the three shares sum to 1.
        decay_frac: share of the decay.
        min_lr_ratio: factor of the last step, in [0, 1].
        decay_shape: `linear` or `sqrt`.

    Raises:
        ConfigError: a value out of range, or shares that do not sum to 1.
    """

    def __init__(
        self,
        optimizers: Iterable[Optimizer] = (),
        *,
        total_steps: int,
        warmup_frac: float,
        stable_frac: float,
        decay_frac: float,
        min_lr_ratio: float,
        decay_shape: DecayShape = "linear",
    ) -> None:
        shares = {"warmup_frac": warmup_frac, "stable_frac": stable_frac, "decay_frac": decay_frac}
        for key, value in {**shares, "min_lr_ratio": min_lr_ratio}.items():
            if not 0 <= value <= 1:
                raise ConfigError(f"scheduler.{key}: {value} is outside 0..1.")
        if not math.isclose(sum(shares.values()), 1, abs_tol=1e-6):
            raise ConfigError(
                f"scheduler: warmup_frac, stable_frac and decay_frac sum to {sum(shares.values()):g}. Make it 1."
            )
        if total_steps < 1:
            raise ConfigError(f"scheduler.total_steps: {total_steps} is below 1.")
        if decay_shape not in ("linear", "sqrt"):
            raise ConfigError(f"scheduler.decay_shape: {decay_shape!r} is neither 'linear' nor 'sqrt'.")
        self.decay_frac = decay_frac
        self.min_lr_ratio = min_lr_ratio
        self.decay_shape = decay_shape
        least = 1 if decay_frac > 0 else 0
        self.warmup_steps = min(math.ceil(_exact(warmup_frac) * total_steps), total_steps - least)
        self._set_total(total_steps)
        self._groups = [group for optimizer in optimizers for group in optimizer.param_groups]
        self._peaks: list[float] = [group.setdefault("initial_lr", group["lr"]) for group in self._groups]

    @classmethod
    def from_config(
        cls, optimizers: Iterable[Optimizer], config: SchedulerConfig, total_steps: int
    ) -> JointWSDScheduler:
        """Build the schedule of a config; `total_steps` is `HyMoConfig.total_steps`, which knows tokens per step."""
        return cls(
            optimizers,
            total_steps=total_steps,
            warmup_frac=config.warmup_frac,
            stable_frac=config.stable_frac,
            decay_frac=config.decay_frac,
            min_lr_ratio=config.min_lr_ratio,
            decay_shape=config.decay_shape,
        )

    @property
    def total_steps(self) -> int:
        """Optimizer steps of the run."""
        return self.warmup_steps + self.stable_steps + self.decay_steps

    @property
    def decay_start(self) -> int:
        """First step of the decay."""
        return self.warmup_steps + self.stable_steps

    def factor(self, step: int) -> float:
        """Return the multiplier at `step`, counted from 0.

        Raises:
            TrainingError: a step outside the schedule.
        """
        if not 0 <= step < self.total_steps:
            raise TrainingError(f"step {step} is outside the schedule of {self.total_steps} steps. Extend the run.")
        if step < self.warmup_steps:
            return (step + 1) / self.warmup_steps
        if step < self.decay_start:
            return 1.0
        done = (step - self.decay_start + 1) / self.decay_steps
        left = 1 - (math.sqrt(done) if self.decay_shape == "sqrt" else done)
        return self.min_lr_ratio + (1 - self.min_lr_ratio) * left

    def set(self, step: int) -> float:
        """Set the rates of all groups for `step` and return the multiplier."""
        factor = self.factor(step)
        for group, peak in zip(self._groups, self._peaks, strict=True):
            group["lr"] = peak * factor
        return factor

    def extend(self, total_steps: int, from_step: int) -> None:
        """Lengthen the run: the warm-up stays as it was, the stable phase grows, a new decay ends at `total_steps`.

        Args:
            total_steps: the new total, above the present one.
            from_step: the next step of the checkpoint that the run goes on from. It lies in the stable phase or at its
                end, so that no step already taken would have another rate.

        Raises:
            ConfigError: a total that is no longer than the present one, or a step outside the stable phase.
        """
        if total_steps <= self.total_steps:
            raise ConfigError(f"extend: {total_steps} steps are not more than the present {self.total_steps}.")
        if not self.warmup_steps <= from_step <= self.decay_start:
            raise ConfigError(
                f"extend: step {from_step} is not in the stable phase. Start from a checkpoint of steps "
                f"{self.warmup_steps} to {self.decay_start}."
            )
        self._set_total(total_steps)
        if self.decay_start < from_step:  # only with a long decay: it would have begun already
            self.stable_steps = from_step - self.warmup_steps
            self.decay_steps = total_steps - from_step

    def state_dict(self) -> dict[str, Any]:
        """Return the phases as plain numbers: the schedule, including any extension."""
        keys = ("warmup_steps", "stable_steps", "decay_steps", "decay_frac", "min_lr_ratio", "decay_shape")
        return {key: getattr(self, key) for key in keys}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over the phases of `state_dict`; peak rates stay those of the optimizers.

        Raises:
            CheckpointError: other keys than `state_dict` writes.
        """
        if state.keys() != self.state_dict().keys():
            raise CheckpointError(f"scheduler state has the keys {sorted(state)}. It belongs to another version.")
        for key, value in state.items():
            setattr(self, key, value)

    def _set_total(self, total_steps: int) -> None:
        """Divide what the warm-up leaves of `total_steps` into stable and decay."""
        wanted = round(_exact(self.decay_frac) * total_steps)
        least = 1 if self.decay_frac > 0 else 0
        self.decay_steps = min(max(wanted, least), total_steps - self.warmup_steps)
        self.stable_steps = total_steps - self.warmup_steps - self.decay_steps


def _exact(share: float) -> Fraction:
    """Return the decimal that was written: 0.07 x 100 steps are 7, where floats give 7.000000000000001 and ceil 8."""
    return Fraction(repr(float(share)))
