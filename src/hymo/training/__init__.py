"""Training: optimizers, schedule, loop, checkpoints and the records of a run."""

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
