"""The state of a sequence between two decoding calls.

Per MLA block the latents and rotated rope keys of all tokens (grows); per GDN block the state matrix in fp32 and the
last inputs of the convolution (constant). Rows may have different lengths.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from hymo.core.config import ModelConfig
from hymo.core.errors import UsageError


def cache_shapes(config: ModelConfig, layer: int, rows: int, room: int) -> dict[str, tuple[int, ...]]:
    """Shapes of a layer's cached tensors by name, for `rows` sequences with room for `room` tokens each."""
    if layer in config.mla_layers:
        groups = config.n_kv_groups
        latent = config.kv_lora_rank if config.mla_latent else groups * (config.qk_nope_head_dim + config.v_head_dim)
        return {"latent": (rows, room, latent), "rope_keys": (rows, room, groups, config.qk_rope_head_dim)}
    return {
        "state": (rows, config.gdn_n_heads, config.gdn_d_state, config.gdn_headdim),
        "window": (rows, config.gdn_d_conv - 1, config.gdn_d_inner),
    }


@dataclass
class GDNCache:
    """State of one GDN block."""

    state: Tensor
    """(B, H, S, D), fp32 (fp64 in an fp64 model)."""
    window: Tensor
    """(B, K-1, d_inner): the last inputs of the convolution, oldest first."""
    history: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    """(state, window) before the last call and after each of its tokens, if it kept them."""

    def tensors(self) -> list[str]:
        """Names of the tensors whose first dimension is the row."""
        return ["state", "window"]


@dataclass
class MLACache:
    """Cache of one MLA block: what attention needs of every past token."""

    latent: Tensor
    """(B, capacity, kv_lora_rank), or the grouped keys' content part without a latent."""
    rope_keys: Tensor
    """(B, capacity, groups, qk_rope_head_dim), rotated."""

    def tensors(self) -> list[str]:
        """Names of the tensors whose first dimension is the row."""
        return ["latent", "rope_keys"]

    def reserve(self, length: int) -> None:
        """Make room for `length` tokens, growing by doubling."""
        have = self.latent.shape[1]
        if length <= have:
            return
        extra = max(length, 2 * have, 64) - have
        for name in self.tensors():
            old: Tensor = getattr(self, name)
            setattr(self, name, torch.cat((old, old.new_zeros((old.shape[0], extra, *old.shape[2:]))), 1))


@dataclass
class DecodeState:
    """Everything that decoding carries from call to call."""

    lengths: Tensor
    """(B,) int64 tokens seen by each row."""
    layers: list[GDNCache | MLACache]
    """One cache per block."""
    last_call: int = 0
    """Tokens of the last call, if it kept its history; else 0."""

    @property
    def batch_size(self) -> int:
        """Number of rows."""
        return len(self.lengths)

    def select(self, rows: Tensor) -> DecodeState:
        """A new, independent state made of the given rows (int64), in that order; repeats fork a row."""
        layers = []
        for cache in self.layers:
            picked = {name: getattr(cache, name).index_select(0, rows) for name in cache.tensors()}
            layers.append(type(cache)(**picked))
        return DecodeState(self.lengths.index_select(0, rows), layers)

    def snapshot(self) -> DecodeState:
        """An independent copy."""
        return self.select(torch.arange(self.batch_size, device=self.lengths.device))

    def fork(self, copies: int) -> DecodeState:
        """Every row `copies` times, copies of a row side by side."""
        return self.select(torch.arange(self.batch_size, device=self.lengths.device).repeat_interleave(copies))

    def rollback(self, keep: Tensor) -> None:
        """Go back to having read only the first `keep` (B,) tokens of the last call, row by row.

        Raises:
            UsageError: the last call kept no history, or `keep` is out of range.
        """
        if not self.last_call:
            raise UsageError("rollback: the last decode call kept no history. Pass keep_history=True.")
        if bool((keep < 0).any() | (keep > self.last_call).any()):
            raise UsageError(f"rollback: keep must lie in 0..{self.last_call}, got {keep.tolist()}.")
        rows = torch.arange(self.batch_size, device=self.lengths.device)
        for cache in self.layers:
            if isinstance(cache, GDNCache):
                states, windows = (torch.stack(parts) for parts in zip(*cache.history, strict=True))
                cache.state, cache.window = states[keep, rows], windows[keep, rows]
                cache.history = []
        self.lengths = self.lengths - self.last_call + keep
        self.last_call = 0

    def bytes_used(self) -> int:
        """Memory of all caches in bytes, reserved room included."""
        tensors = [getattr(cache, name) for cache in self.layers for name in cache.tensors()]
        return sum(t.numel() * t.element_size() for t in tensors)
