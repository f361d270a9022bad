"""One set of weights shared by several ranks: FSDP2 (`fully_shard`) around every block, experts as groups of their own.

Each rank holds a row slice of every parameter in fp32, with its gradient and optimizer states: the masters. A pass
gathers them in `param_dtype`, group after group, the next while one computes. Gradients of a step's passes are added up
whole in fp32 and summed over ranks in the last one; where memory is short (`reshard_after_forward`) or the sum over
ranks is rounded (`reduce_dtype`), they are summed after every pass and added up in fp32 slices. With replicas (HSDP)
each replica slices the weights among its own ranks, and replicas sum their slices once a step; sums after every pass
are added up in `reduce_dtype` then. The few parameters that must stay in fp32 are held whole by every rank.

Optimizers see the slices as plain tensors (`local`): what is elementwise is exact for any slicing, and what is not
(NorMuon, norms) says how it is put together.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor, Replicate, Shard

from hymo.core.config import TrainingConfig
from hymo.core.memory import keeps_whole_gradients
from hymo.models import HyMo
from hymo.training.ranks import Ranks


class ShardedModel:
    """Pairs the slices that this rank's optimizers update with the model that runs; as `WorkingCopy` for one process.

    Args:
        master: a model with equal values on every rank, on the rank's device; sharded in place.
        config: layout and precision of the reduction.
        ranks: who shares it.
        dtype: what the passes run in.
    """

    def __init__(self, master: HyMo, config: TrainingConfig, ranks: Ranks, dtype: torch.dtype) -> None:
        assert ranks.mesh is not None
        self.model, self._ranks, self._reshards = master, ranks, config.reshard_after_forward
        self._sums_every_pass = not keeps_whole_gradients(config)
        whole = master.fp32_parameters()
        self._whole = [name for name, p in master.named_parameters() if p in whole]
        replicas = ranks.mesh.size(0)
        named: dict[str, Any] = {
            "mesh": ranks.mesh if replicas > 1 else ranks.mesh["shard"],
            "mp_policy": MixedPrecisionPolicy(
                param_dtype=dtype,
                reduce_dtype=getattr(torch, config.reduce_dtype),
                cast_forward_inputs=False,
            ),
            "ignored_params": whole,
        }
        for unit in master.shard_units():
            fully_shard(unit, reshard_after_forward=config.reshard_after_forward, **named)
        fully_shard(master, reshard_after_forward=False, **named)
        for module, method in master.entry_points():
            register_fsdp_forward_method(module, method)
        self._units = [module for module in master.modules() if isinstance(module, FSDPModule)]
        for unit in self._units:
            unit.set_gradient_divide_factor(1.0)  # the loss is divided by the targets of all ranks already
            unit.set_force_sum_reduction_for_comms(True)
        self._shared = {name: p for name, p in master.named_parameters() if isinstance(p, DTensor)}
        self.local = {
            name: nn.Parameter(_local(p), requires_grad=p.requires_grad) if isinstance(p, DTensor) else p
            for name, p in master.named_parameters()
        }
        """Every parameter's slice on this rank, by name; a parameter held whole is itself."""
        self.rows: Mapping[str, int] = {name: p.shape[0] for name, p in self._shared.items()}
        """Rows of the sliced parameters, over all ranks."""

    def shape(self, name: str) -> torch.Size:
        """Shape of a parameter over all ranks."""
        return self._shared[name].shape if name in self._shared else self.local[name].shape

    def begin(self, last: bool) -> None:
        """Before each forward pass: weights stay gathered until the last pass of a step has gone backward."""
        root: FSDPModule = self._units[0]
        root.set_reshard_after_backward(last or self._reshards)
        root.set_requires_gradient_sync(last or self._sums_every_pass)
        root.set_requires_all_reduce(last)

    def collect_gradients(self, last: bool) -> None:
        """After each backward pass; after the last, `grad` of the local slices is that of all ranks."""
        if not last:
            return
        for name, parameter in self._shared.items():
            gradient = parameter.grad
            self.local[name].grad = None if gradient is None else _local(gradient)
        whole = [g for name in self._whole if (g := self.local[name].grad) is not None]
        if whole:
            flat = self._ranks.total(torch.cat([g.flatten() for g in whole]))
            sums = flat.split([g.numel() for g in whole])
            torch._foreach_copy_(whole, [s.view_as(g) for s, g in zip(sums, whole, strict=True)])

    def drop_gradients(self) -> None:
        """Forget the gradients of the step."""
        for parameter in self._shared.values():
            parameter.grad = None

    def refresh(self) -> None:
        """The slices are what is gathered: nothing is copied."""

    def release(self) -> None:
        """Drop the gathered weights after passes without a backward pass."""
        for unit in self._units:
            unit.reshard()


def _local(tensor: Tensor) -> Tensor:
    assert isinstance(tensor, DTensor)
    return tensor._local_tensor.detach()


def as_shards(state: dict[str, Any], rows: Mapping[str, int], ranks: Ranks) -> dict[str, Any]:
    """Wrap the slices among a run's tensors so that DCP knows which part of the whole they are.

    Args:
        state: tensors on the CPU or on this rank's device by `model` and `optimizer`, then by parameter name; others
            are left as they are. The result shares their memory.
        rows: `ShardedModel.rows`.
        ranks: who holds the other slices.
    """

    def wrap(tensor: Tensor, name: str) -> Tensor:
        if tensor.ndim == 0:
            return tensor
        shape = torch.Size((rows[name], *tensor.shape[1:]))
        meta = torch.empty(shape, device="meta")
        assert ranks.mesh is not None
        # On a mesh of another kind of device DTensor would hold a copy, which a resume would fill in vain.
        own = tensor.device.type == ranks.mesh.device_type
        return DTensor.from_local(
            tensor,
            ranks.mesh if own else ranks.host_mesh,
            (Replicate(), Shard(0)),
            run_check=False,
            shape=shape,
            stride=meta.stride(),
        )

    wrapped = dict(state)
    wrapped["model"] = {n: wrap(t, n) if n in rows else t for n, t in state["model"].items()}
    wrapped["optimizer"] = {
        name: {key: wrap(t, name) for key, t in states.items()} if name in rows else states
        for name, states in state["optimizer"].items()
    }
    return wrapped
