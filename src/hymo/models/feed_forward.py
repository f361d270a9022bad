"""A block, and its second half: a mixture of experts, or a dense SwiGLU where the placement or a variant says so."""

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


class Block(nn.Module):
    """Tokens take up what came before them (`attend`), then a feed-forward part transforms each, if there is one."""

    feed_forward: FeedForward | None

    def attend(self, x: Tensor, context: SequenceContext) -> Tensor:
        """The block without its feed-forward part, (B, T, dim) -> (B, T, dim)."""
        raise NotImplementedError

    def can_compile(self, x: Tensor, context: SequenceContext) -> bool:
        """Whether `attend` runs kernels alone: compiled code must not read values on the host."""
        raise NotImplementedError

    def before_experts(self, x: Tensor, context: SequenceContext) -> tuple[Tensor, Tensor]:
        """The residual stream after `attend`, and what the feed-forward part is given of it."""
        assert self.feed_forward is not None
        x = self.attend(x, context)
        return x, self.feed_forward.norm(x)
