"""Small parts that several blocks share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hymo.core.roles import Role


class RMSNorm(nn.Module):
    """x / rms(x) * weight over the last dimension, weight 1 at initialisation."""

    def __init__(self, dim: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """(..., dim) -> (..., dim)."""
        return F.rms_norm(x, (x.shape[-1],), self.weight.to(x.dtype), self.eps)

    def parameter_roles(self) -> dict[str, Role]:
        """Norm weights are scalars."""
        return {"weight": Role.SCALAR}


def linear(in_features: int, out_features: int) -> nn.Linear:
    """A projection without bias: nothing in HyMo's blocks has one."""
    return nn.Linear(in_features, out_features, bias=False)


class SwiGLUExpert(nn.Module):
    """w2(silu(w1 x) * w3 x): the shared expert, the dense feed-forward and the prediction heads."""

    def __init__(self, dim: int, hidden: int, role: Role) -> None:
        super().__init__()
        self.w1 = linear(dim, hidden)
        self.w3 = linear(dim, hidden)
        self.w2 = linear(hidden, dim)
        self._role = role

    def forward(self, x: Tensor) -> Tensor:
        """(..., dim) -> (..., dim)."""
        out: Tensor = self.w2(F.silu(self.w1(x)) * self.w3(x))
        return out

    def parameter_roles(self) -> dict[str, Role]:
        """All three matrices play the part that the owner gave them."""
        return {"w1.weight": self._role, "w2.weight": self._role, "w3.weight": self._role}


class Float32Islands(nn.Module):
    """A module some of whose own tensors never leave fp32, whatever `.to(bfloat16)` says.

    Router biases move by 0.001 and decays by less than bf16 resolves; cast once, they are lost for good.
    """

    fp32_names: frozenset[str] = frozenset()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        guarded = {id(t) for n, t in self._own_tensors() if n in self.fp32_names}

        def keep(tensor: Tensor) -> Tensor:
            out = fn(tensor)
            if id(tensor) in guarded and out.dtype in (torch.bfloat16, torch.float16):
                return tensor.detach().to(out.device)
            return out

        for child in self.children() if recurse else ():
            child._apply(fn)
        return super()._apply(keep, recurse=False)  # type: ignore[no-untyped-call]

    def _own_tensors(self) -> list[tuple[str, Tensor]]:
        tensors = [(n, p) for n, p in self._parameters.items() if p is not None]
        return tensors + [(n, b) for n, b in self._buffers.items() if b is not None]
