r"""Multi-token prediction: small heads that look further ahead.

Symbols: hidden[t] the backbone's output after the final norm; E the scaled embedding of the backbone::

    u_1[t] = hidden[t] + E(token[t+1]);   r_1 = u_1 + SwiGLU(norm(u_1))   predicts token t+2
    u_2[t] = r_1[t] + E(token[t+2]);      r_2 = u_2 + SwiGLU(norm(u_2))   predicts token t+3

through out_norm and the shared output head. Training and drafting run this same chain. A head has no attention, so it
keeps no cache. The chain differs from DeepSeek-V3's (arXiv 2412.19437, section 2.2): it adds where that projects a
concatenation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from hymo.core.config import ModelConfig
from hymo.core.roles import Role
from hymo.models.layers import RMSNorm, SwiGLUExpert


class MTPBlock(nn.Module):
    """One step of the chain."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.norm = RMSNorm(config.dim)
        self.ffn = SwiGLUExpert(config.dim, config.moe_inter_dim, Role.MATRIX)
        self.out_norm = RMSNorm(config.dim)

    def forward(self, previous: Tensor, embedded: Tensor) -> tuple[Tensor, Tensor]:
        """Chain states (..., dim) and the embedding of the next known token to (next chain state, head input)."""
        u = previous + embedded
        r = u + self.ffn(self.norm(u))
        return r, self.out_norm(r)


class MultiTokenPrediction(nn.Module):
    """The chain of `mtp_depth` heads. It owns neither embedding nor output head: the backbone lends both."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(MTPBlock(config) for _ in range(config.mtp_depth))
        self._compiled: list[Callable[..., tuple[Tensor, Tensor]]] = []

    def compile_blocks(self, **options: Any) -> None:
        """Let torch.compile make kernels of every block, for passes with gradients; options as there."""
        self._compiled = [torch.compile(block, fullgraph=True, **options) for block in self.blocks]

    def forward(self, hidden: Tensor, embedded: Tensor) -> list[Tensor]:
        """Head inputs of every depth over a whole window.

        Args:
            hidden: (B, T, dim) backbone outputs.
            embedded: (B, T, dim) scaled embeddings of the same tokens.

        Returns:
            Per depth d = 1, 2, ... the output head's input (B, T - d, dim); position t predicts token t + d + 1.
        """
        outputs, chain = [], hidden
        compiled = self._compiled and torch.is_grad_enabled()
        blocks: Iterable[Callable[..., tuple[Tensor, Tensor]]] = self._compiled if compiled else self.blocks
        for depth, block in enumerate(blocks, 1):
            chain, out = block(chain[:, :-1], embedded[:, depth:])
            outputs.append(out)
        return outputs
