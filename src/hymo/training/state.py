"""The tensors of a run by name: what checkpoints save and a resume fills."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import Optimizer

from hymo.core.version import VERSION, commit
from hymo.models.checkpoint import FORMAT_VERSION, Manifest


def training_state(
    model: nn.Module, parameters: Mapping[str, Tensor], optimizers: Iterable[Optimizer], rank: int = 0
) -> dict[str, Any]:
    """Weights and buffers, the optimizers' states by parameter name, and RNG states.

    Args:
        model: whose buffers are saved.
        parameters: by name, as the optimizers have them: slices where ranks share the weights.
        optimizers: both.
        rank: whose random numbers these are.
    """
    states: dict[str, dict[str, Any]] = {}
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            for name, parameter in zip(group["param_names"], group["params"], strict=True):
                states[name] = dict(optimizer.state[parameter])
    weights = {name: parameters.get(name, tensor) for name, tensor in model.state_dict().items()}
    rng = {_rng_name("cpu", rank): torch.get_rng_state()}
    if any(parameter.is_cuda for parameter in parameters.values()):
        rng[_rng_name("cuda", rank)] = torch.cuda.get_rng_state()
    return {"model": {name: tensor.detach() for name, tensor in weights.items()}, "optimizer": states, "rng": rng}


def new_manifest(**facts: Any) -> Manifest:
    """The manifest of a checkpoint that this version writes now, without its files.

    Args:
        facts: what the run says of itself, by the manifest's fields.
    """
    return Manifest(
        format_version=FORMAT_VERSION,
        hymo_version=VERSION,
        commit=commit(),
        torch_version=torch.__version__,
        **facts,
    )


def restore_rng(state: dict[str, Any], rank: int = 0) -> None:
    """Set the RNG states that `training_state` took."""
    if (cpu := _rng_name("cpu", rank)) in state["rng"]:
        torch.set_rng_state(state["rng"][cpu])
    if (cuda := _rng_name("cuda", rank)) in state["rng"]:
        torch.cuda.set_rng_state(state["rng"][cuda])


def rng_names(device: torch.device, ranks: int) -> list[str]:
    """Keys of the RNG states that `ranks` processes save."""
    kinds = ["cpu", "cuda"] if device.type == "cuda" else ["cpu"]
    return [_rng_name(kind, rank) for rank in range(ranks) for kind in kinds]


def _rng_name(kind: str, rank: int) -> str:
    return kind if rank == 0 else f"{kind}-{rank}"
