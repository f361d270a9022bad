"""Training: optimizers, schedule, loop, checkpoints and the records of a run.

The names below are imported when first used, so that reading the records of a run loads no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hymo.training.normuon import NorMuon
    from hymo.training.partition import ParameterPartition, goes_to_adamw, partition_parameters
    from hymo.training.scheduler import JointWSDScheduler
    from hymo.training.trainer import Trainer, TrainResult

__all__ = [
    "JointWSDScheduler",
    "NorMuon",
    "ParameterPartition",
    "TrainResult",
    "Trainer",
    "goes_to_adamw",
    "partition_parameters",
]

_HOMES = {
    "JointWSDScheduler": "scheduler",
    "NorMuon": "normuon",
    "ParameterPartition": "partition",
    "TrainResult": "trainer",
    "Trainer": "trainer",
    "goes_to_adamw": "partition",
    "partition_parameters": "partition",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'hymo.training' has no attribute '{name}'")
    return getattr(import_module(f"hymo.training.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
