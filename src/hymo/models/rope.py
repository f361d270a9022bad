"""Rotary position embedding.

Pair p of d/2 pairs turns by angle position * theta^(-2p/d). Half-split pairs (i, i + d/2), the convention of Llama and
Qwen, are the default; the other is interleaved pairs (2i, 2i + 1). Source: Su et al., arXiv 2104.09864. Context
extension: YaRN, Peng et al., arXiv 2309.00071, with the ramp between 1 and 32 turns over the trained context.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from hymo.core.errors import UsageError
from hymo.kernels.dispatch import machine_obstacle
from hymo.models.layers import Float32Islands

Rotation = tuple[Tensor, Tensor]
"""cos and sin, (..., T, 1, d/2): broadcast over heads."""


def apply_rope(x: Tensor, rotation: Rotation, pairing: str = "half_split") -> Tensor:
    """Rotate the last dimension of x (..., T, heads, d) by the angles of each position; any dtype, rotated in fp32."""
    cos, sin = rotation
    if _fused(x):
        from hymo.kernels.triton_rope import rotate  # only here: Triton is optional

        return rotate(x, cos, sin, pairing != "interleaved")
    dtype = torch.promote_types(x.dtype, torch.float32)
    if pairing == "interleaved":
        first, second = x.to(dtype).unflatten(-1, (-1, 2)).unbind(-1)
        turned = torch.stack((first * cos - second * sin, second * cos + first * sin), -1).flatten(-2)
    else:
        first, second = x.to(dtype).chunk(2, -1)
        turned = torch.cat((first * cos - second * sin, second * cos + first * sin), -1)
    return turned.to(x.dtype)


def _fused(x: Tensor) -> bool:
    """Whether one kernel can rotate x: without gradients, on a GPU."""
    if torch.is_grad_enabled() or torch.compiler.is_compiling() or not x.is_cuda or x.ndim != 4 or not x.numel():
        return False
    return x.dtype is not torch.float64 and not machine_obstacle(x.device)


class RotaryEmbedding(Float32Islands):
    """Tables of cos and sin for positions 0 .. max_seq_len * yarn_factor - 1 over `dim` rotated dimensions."""

    fp32_names = frozenset({"cos", "sin"})
    cos: Tensor
    sin: Tensor

    def __init__(self, dim: int, max_seq_len: int, theta: float, yarn_factor: float = 1.0) -> None:
        super().__init__()
        self.dim, self.theta, self.yarn_factor = dim, theta, yarn_factor
        self.trained_len = max_seq_len
        self.positions = int(max_seq_len * yarn_factor)
        shape = (self.positions, dim // 2)
        self.register_buffer("cos", torch.empty(shape), persistent=False)
        self.register_buffer("sin", torch.empty(shape), persistent=False)
        if not self.cos.is_meta:
            self.reset_buffers()

    @torch.no_grad()
    def reset_buffers(self) -> None:
        """Fill the tables; angles are formed in fp64, so that position 10^6 is as exact as position 1."""
        angles = torch.arange(self.positions, dtype=torch.float64)[:, None] * self.frequencies()
        self.cos.copy_(angles.cos())
        self.sin.copy_(angles.sin())

    def frequencies(self) -> Tensor:
        """(dim/2,) radians per position, fp64."""
        plain = self.theta ** (-torch.arange(0, self.dim, 2, dtype=torch.float64) / max(self.dim, 1))
        if self.yarn_factor == 1:
            return plain

        def pair_with(turns: float) -> float:
            return self.dim * math.log(self.trained_len / (turns * 2 * math.pi)) / (2 * math.log(self.theta))

        low = max(math.floor(pair_with(32)), 0)
        high = min(math.ceil(pair_with(1)), self.dim - 1)
        ramp = ((torch.arange(self.dim // 2, dtype=torch.float64) - low) / max(high - low, 1e-3)).clamp(0, 1)
        return plain * (1 - ramp) + plain / self.yarn_factor * ramp

    @property
    def score_scale(self) -> float:
        """YaRN's factor on the attention scores, (0.1 ln s + 1)^2."""
        return (0.1 * math.log(self.yarn_factor) + 1) ** 2

    def forward(self, positions: Tensor, largest: int) -> Rotation:
        """Look up positions (..., T), the greatest of which is `largest` (known to the caller without a device sync).

        Raises:
            UsageError: a position beyond the table.
        """
        if largest >= self.positions:
            raise UsageError(
                f"position {largest} is beyond the context of {self.positions} tokens. Shorten the input, or raise "
                "model.max_seq_len (or model.yarn_factor) before training."
            )
        return self.cos[positions].unsqueeze(-2), self.sin[positions].unsqueeze(-2)
