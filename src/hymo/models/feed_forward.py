"""The second half of a block: a mixture of experts, or a dense SwiGLU where the placement or a variant says so."""

from __future__ import annotations

from torch import Tensor, nn

from hymo.core.config import ModelConfig
from hymo.core.roles import Role
from hymo.models.context import SequenceContext
from hymo.models.layers import RMSNorm, SwiGLUExpert
from hymo.models.moe import DeepSeekMoE


class FeedForward(nn.Module):
    """x <- x + ffn(norm(x)); `hidden` is the width of the dense form."""

    def __init__(self, config: ModelConfig, layer: int, hidden: int) -> None:
        super().__init__()
        self.norm = RMSNorm(config.dim)
        self.moe = DeepSeekMoE(config, layer) if config.has_moe(layer) else None
        self.dense = None if self.moe is not None else SwiGLUExpert(config.dim, hidden, Role.MATRIX)

    def forward(self, x: Tensor, context: SequenceContext) -> Tensor:
        """(B, T, dim) -> (B, T, dim)."""
        return x + self.transform(self.norm(x), context)

    def transform(self, h: Tensor, context: SequenceContext) -> Tensor:
        """What is added to the residual stream for its normed values h, both (B, T, dim)."""
        if self.moe is not None:
            mixed: Tensor = self.moe(h, context)
            return mixed
        assert self.dense is not None
        transformed: Tensor = self.dense(h)
        return transformed
