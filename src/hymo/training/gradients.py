"""The gradient of a step as a whole: its norm over all parameters and ranks, clipping, and what in it is not finite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from hymo.training.ranks import Ranks
from hymo.training.sharding import ShardedModel


class Gradients:
    """The gradients of the parameters that this process updates, slices or whole.

    Args:
        parameters: by name, in the model's order.
        shards: which of them are slices; None if none is.
        ranks: who holds the other slices.
    """

    def __init__(self, parameters: Mapping[str, nn.Parameter], shards: ShardedModel | None, ranks: Ranks) -> None:
        self._parameters, self._shards, self._ranks = parameters, shards, ranks

    def _found(self) -> dict[str, Tensor]:
        return {name: p.grad for name, p in self._parameters.items() if p.grad is not None}

    def norm(self) -> Tensor:
        """Euclidean norm over everything, fp32."""
        found = self._found()
        return global_norm(list(found), list(found.values()), self._shards, self._ranks)

    def clip(self, limit: float) -> Tensor:
        """Scale to the limit (0: none) if the norm is finite; returns the norm before."""
        norm = self.norm()
        if limit:  # without a branch on the norm, for which the host would wait
            scale = torch.where(norm.isfinite(), torch.clamp(limit / (norm + 1e-6), max=1.0), 1.0)
            torch._foreach_mul_(list(self._found().values()), scale)
        return norm

    def share(self, prefix: str) -> Tensor:
        """Part of the squared norm that parameters whose names begin so have (fp32)."""
        found = {name: grad for name, grad in self._found().items() if name.startswith(prefix)}
        total = self.norm()
        if not found:
            return torch.zeros_like(total)
        part = global_norm(list(found), list(found.values()), self._shards, self._ranks)
        return (part / total.clamp(min=torch.finfo(total.dtype).tiny)).square()

    def first_not_finite(self) -> str | None:
        """Name of the first that has a value which is not finite, on any rank."""
        names = list(self._parameters)
        mine = next((i for i, g in enumerate(self._in_order()) if g is not None and not g.isfinite().all()), len(names))
        first = min(row[0] for row in self._ranks.exchange([mine]))
        return names[first] if first < len(names) else None

    def largest(self) -> str:
        """Name of the one with the largest element, on any rank."""
        names = list(self._parameters)
        sizes = [0.0 if g is None or not g.numel() else float(g.abs().max()) for g in self._in_order()]
        table = torch.tensor(sizes, dtype=torch.float64)
        if self._ranks.size > 1:
            self._ranks.largest(table, self._ranks.control)
        return names[int(table.argmax())]

    def _in_order(self) -> list[Tensor | None]:
        return [p.grad for p in self._parameters.values()]


def global_norm(names: Sequence[str], tensors: Sequence[Tensor], shards: ShardedModel | None, ranks: Ranks) -> Tensor:
    """Euclidean norm (fp32) over tensors that are slices of those of all ranks, or whole where the parameter is."""
    if shards is None:
        norm: Tensor = torch.linalg.vector_norm(torch.stack(list(torch._foreach_norm(list(tensors)))))
        return norm
    slices = [t for name, t in zip(names, tensors, strict=True) if name in shards.rows]
    whole = [t for name, t in zip(names, tensors, strict=True) if name not in shards.rows]
    total = ranks.total(_squares(slices, tensors[0]), ranks.shard_group) + _squares(whole, tensors[0])
    return total.sqrt().to(torch.float32)


def _squares(tensors: list[Tensor], like: Tensor) -> Tensor:
    """Sum of squares in fp64: those of fp32 norms may overflow fp32."""
    if not tensors:
        return like.new_zeros((), dtype=torch.float64)
    return torch.stack(list(torch._foreach_norm(tensors))).double().square().sum()
