"""Which device a run uses, and which of its fields have an effect there in this version."""

from __future__ import annotations

import torch

from hymo.core.config import HyMoConfig
from hymo.core.errors import UsageError
from hymo.core.launch import launched_ranks, local_rank

_CUDA_FLAGS = ("cuda_graphs_mla", "moe_mixed_precision")
NO_EFFECT = "blocks run eager in this version"


def flags_without_effect(config: HyMoConfig, device: torch.device) -> list[str]:
    """Flags of the training group that are on and would act on this device, but do nothing in this version."""
    if device.type != "cuda":
        return []
    return [f"training.{name}" for name in _CUDA_FLAGS if getattr(config.training, name)]


def resolve_device(name: str) -> torch.device:
    """Turn `auto` into the fastest device present; refuse one that is not there. Ranks of a machine take one each.

    Raises:
        UsageError: the named device is missing.
    """
    present = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name == "auto":
        name = next(kind for kind in ("cuda", "mps", "cpu") if present[kind])
    if not present[name]:
        raise UsageError(f"run.device: no {name} device here. Use auto or cpu.")
    if name != "cuda" or launched_ranks() == 1:
        return torch.device(name)
    if local_rank() >= torch.cuda.device_count():
        raise UsageError(
            f"run.device: rank {local_rank()} of this machine has no CUDA device of its own, there are "
            f"{torch.cuda.device_count()}. Start as many ranks."
        )
    return torch.device("cuda", local_rank())
