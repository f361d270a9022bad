"""The two optimizers of a model as one: NorMuon for matrices, AdamW for the rest."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from hymo.core.errors import TrainingError
from hymo.core.roles import Role
from hymo.training.gradients import global_norm
from hymo.training.normuon import NorMuon
from hymo.training.partition import ParameterPartition, partition_parameters
from hymo.training.ranks import ALONE, Ranks
from hymo.training.sharded_normuon import ShardedNorMuon
from hymo.training.sharding import ShardedModel

if TYPE_CHECKING:
    from hymo.core.config import OptimizerConfig

_DECAYED = (Role.EXPERT, Role.MATRIX)
_FUSED_DEVICES = ("cuda", "cpu", "mps")
_COPIED = 1 << 28
"""Elements over all ranks of AdamW's parameters that a measured step copies at once, 1 GiB; one parameter at least."""


class Optimizers:
    """NorMuon (or None, where no parameter is its) and AdamW, stepped and iterated together.

    Groups carry `name` (`matrix`, `expert`, ...), `initial_lr` (the peak) and `param_names`.
    """

    def __init__(
        self, normuon: NorMuon | None, adamw: AdamW, shards: ShardedModel | None = None, ranks: Ranks = ALONE
    ) -> None:
        self.normuon = normuon
        self.adamw = adamw
        self._shards, self._ranks = shards, ranks

    def __iter__(self) -> Iterator[Optimizer]:
        return iter([self.adamw] if self.normuon is None else [self.normuon, self.adamw])

    @property
    def groups(self) -> list[dict[str, Any]]:
        """Parameter groups of both, live."""
        return [group for optimizer in self for group in optimizer.param_groups]

    @torch.no_grad()
    def step(self) -> None:
        """Update every parameter once. A missing gradient counts as zero, so that all states advance together."""
        self._fill_gradients()
        for optimizer in self:
            optimizer.step()

    def _fill_gradients(self) -> None:
        for group in self.adamw.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    p.grad = torch.zeros_like(p)

    @torch.no_grad()
    def step_measured(self) -> dict[str, float]:
        """Step, and return RMS(update) / RMS(weight before) by `optimizer.group`; 0 where the weights are all zero.

        NorMuon notes what it moves; AdamW's parameters move a part at a time, so that a copy of one part is held.
        """
        self._fill_gradients()
        squares: list[tuple[str, Tensor]] = []
        if self.normuon is not None:
            noted = torch.stack(self.normuon.step_noted())
            total = noted if self._shards is None else self._ranks.total(noted, self._ranks.shard_group)
            squares = [(f"normuon.{g['name']}", pair) for g, pair in zip(self.normuon.param_groups, total, strict=True)]
        groups = self.adamw.param_groups
        try:
            for part in self._parts():
                self.adamw.param_groups = part
                squares += self._move(part)
        finally:
            self.adamw.param_groups = groups
        weights = dict.fromkeys((label for label, _ in squares), 0.0)
        updates = dict(weights)
        read = torch.stack([pair for _, pair in squares]).tolist()
        for (label, _), (weight, update) in zip(squares, read, strict=True):
            weights[label] += weight
            updates[label] += update
        return {label: math.sqrt(updates[label] / w) if w > 0 else 0.0 for label, w in weights.items()}

    def _move(self, part: list[dict[str, Any]]) -> Iterator[tuple[str, Tensor]]:
        """Step AdamW, which holds `part` alone: by group, sums of squares (2,) of weights before and of changes."""
        before = [[p.clone() for p in group["params"]] for group in part]
        self.adamw.step()
        for group, old in zip(part, before, strict=True):
            weight = global_norm(group["param_names"], old, self._shards, self._ranks)
            torch._foreach_sub_(old, group["params"])
            update = global_norm(group["param_names"], old, self._shards, self._ranks)
            yield f"adamw.{group['name']}", torch.stack((weight, update)).square()

    def _parts(self) -> list[list[dict[str, Any]]]:
        """AdamW's groups, or pieces of them, in parts of up to _COPIED elements: the same on every rank."""
        parts: list[list[dict[str, Any]]] = [[]]
        filled = 0
        for group in self.adamw.param_groups:
            own: dict[str, Any] | None = None
            for name, p in zip(group["param_names"], group["params"], strict=True):
                size = (p.shape if self._shards is None else self._shards.shape(name)).numel()
                if filled and filled + size > _COPIED:
                    parts.append([])
                    filled, own = 0, None
                if own is None:
                    own = {**group, "params": [], "param_names": []}
                    parts[-1].append(own)
                own["params"].append(p)
                own["param_names"].append(name)
                filled += size
        return parts

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear all gradients."""
        for optimizer in self:
            optimizer.zero_grad(set_to_none=set_to_none)


def build_optimizers(
    model: nn.Module, config: OptimizerConfig, shards: ShardedModel | None = None, ranks: Ranks = ALONE
) -> Optimizers:
    """Partition the parameters of `model` by their roles and build both optimizers, states included.

    AdamW decays experts (and matrices, where it has them) by `adamw_weight_decay`, the rest never; the decay group has
    its own eps. Frozen parameters (requires_grad off) are left out. Where ranks share the weights, `shards` has this
    rank's slices, which are what is updated.

    Raises:
        TrainingError: as in `partition_parameters`, or nothing for AdamW to train.
    """
    partition = partition_parameters(model, config.optimizer_partition)
    held: Mapping[str, nn.Parameter] = {**partition.normuon, **partition.adamw} if shards is None else shards.local
    normuon = _build_normuon(partition, config, held, shards, ranks)
    groups: list[dict[str, Any]] = []
    for role, parameters in partition.adamw_groups().items():
        trained = [(name, held[name]) for name, p in parameters.items() if p.requires_grad]
        if trained:
            decay = config.adamw_weight_decay if role in _DECAYED else 0.0
            eps = config.decay_group_eps if role is Role.DECAY else config.adamw_eps
            groups.append({"params": trained, "name": role.value, "weight_decay": decay, "eps": eps})
    if not groups:
        raise TrainingError("optimizers: no parameter is AdamW's. A model has an embedding or a norm to train.")
    fused = all(p.device.type in _FUSED_DEVICES for group in groups for _, p in group["params"])
    adamw = AdamW(groups, lr=config.adamw_lr, betas=config.adamw_betas, fused=fused or None)
    for group in adamw.param_groups:
        group["initial_lr"] = config.adamw_lr
        for p in group["params"]:  # AdamW makes it at the first gradient; a checkpoint of step 0 needs it too
            step = torch.zeros((), dtype=torch.float32, device=p.device if fused else None)
            adamw.state[p] = {"step": step, "exp_avg": torch.zeros_like(p), "exp_avg_sq": torch.zeros_like(p)}
    return Optimizers(normuon, adamw, shards, ranks)


def _build_normuon(
    partition: ParameterPartition,
    config: OptimizerConfig,
    held: Mapping[str, nn.Parameter],
    shards: ShardedModel | None,
    ranks: Ranks,
) -> NorMuon | None:
    groups: dict[Role, list[tuple[str, nn.Parameter]]] = {}
    for name, p in partition.normuon.items():
        if p.requires_grad:
            groups.setdefault(partition.roles[name], []).append((name, held[name]))
    if not groups:
        return None
    build: Callable[..., NorMuon] = NorMuon
    if shards is not None:
        shapes: dict[Tensor, torch.Size] = {held[name]: shards.shape(name) for name in partition.normuon}
        build = partial(ShardedNorMuon, shapes=shapes, ranks=ranks)
    return build(
        [{"params": named, "name": role.value, "initial_lr": config.muon_lr} for role, named in groups.items()],
        lr=config.muon_lr,
        momentum=config.muon_momentum,
        beta2=config.muon_beta2,
        weight_decay=config.muon_weight_decay,
        cautious=config.cautious_weight_decay,
        normalize=config.muon_normalize,
        scale=config.muon_scale,
        ns_steps=config.ns_steps,
        ns_dtype=config.ns_dtype,
        ns_coefficients=config.ns_coefficients,
        blocks={held[name]: partition.blocks[name] for name in partition.normuon if name in partition.blocks},
        columns={held[name]: partition.columns[name] for name in partition.normuon if name in partition.columns},
    )
