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

    def reserve(self, length: int, exact: bool = False) -> None:
        """Make room for `length` tokens, growing by doubling unless it shall be `exact`."""
        have = self.latent.shape[1]
        if length <= have:
            return
        extra = length - have if exact else max(length, 2 * have, 64) - have
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
    last_call: Tensor | None = None
    """(B,) tokens that each row read in the last call, if it kept its history."""
    fixed: bool = False
    """Whether the tensors must stay where they are, since recorded work refers to them."""

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
        if self.last_call is None:
            raise UsageError("rollback: the last decode call kept no history. Pass keep_history=True.")
        if bool((keep < 0).any() | (keep > self.last_call).any()):
            read = sorted(set(self.last_call.tolist()))
            most = read[0] if len(read) == 1 else self.last_call.tolist()
            raise UsageError(f"rollback: keep must lie in 0..{most}, got {keep.tolist()}.")
        rows = torch.arange(self.batch_size, device=self.lengths.device)
        for cache in self.layers:
            if isinstance(cache, GDNCache):
                states, windows = (torch.stack(parts) for parts in zip(*cache.history, strict=True))
                cache.state, cache.window = states[keep, rows], windows[keep, rows]
                cache.history = []
        self.lengths = self.lengths - self.last_call + keep
        self.last_call = None

    def reserve(self, length: int, exact: bool = False) -> None:
        """Make room for `length` tokens in every row, and for no more if it shall be `exact`."""
        for cache in self.layers:
            if isinstance(cache, MLACache):
                cache.reserve(length, exact)

    def trim(self, length: int) -> None:
        """Give back the room for more than `length` tokens, which no row may have read."""
        for cache in self.layers:
            if isinstance(cache, MLACache) and cache.latent.shape[1] > length:
                for name in cache.tensors():
                    setattr(cache, name, getattr(cache, name)[:, :length].clone())

    def resize(self, rows: int) -> None:
        """Keep the first `rows` rows, or add empty ones behind those there are."""
        extra = rows - self.batch_size
        for cache in self.layers:
            for name in cache.tensors():
                old: Tensor = getattr(cache, name)
                new = old[:rows].clone() if extra < 0 else torch.cat((old, old.new_zeros((extra, *old.shape[1:]))))
                setattr(cache, name, new)
        self.lengths = torch.cat((self.lengths[:rows], self.lengths.new_zeros(max(extra, 0))))
        self.last_call = None

    def rows(self, start: int, stop: int, room: int) -> DecodeState:
        """The rows from `start` to `stop` as a state to decode with, and to `put` back afterwards.

        Its attention caches are parts of this state's, so nothing that grows with the text is copied. There is room for
        `room` tokens in every row, which a call must not exceed.
        """
        self.reserve(room)
        if (start, stop) == (0, self.batch_size) and not self.fixed:
            return self
        layers = [type(c)(**{name: getattr(c, name)[start:stop] for name in c.tensors()}) for c in self.layers]
        return DecodeState(self.lengths[start:stop], layers)

    def put(self, start: int, part: DecodeState) -> None:
        """Take over what decoding has made of rows that `rows` gave out, from `start` on."""
        if part is self:
            return
        stop = start + part.batch_size
        self.lengths[start:stop] = part.lengths
        for mine, theirs in zip(self.layers, part.layers, strict=True):
            if isinstance(mine, GDNCache) and isinstance(theirs, GDNCache):
                mine.state[start:stop] = theirs.state
                mine.window[start:stop] = theirs.window
        self.last_call = None

    def clear(self, row: int) -> None:
        """Make a row that of an empty text."""
        self.lengths[row] = 0
        for cache in self.layers:
            if isinstance(cache, GDNCache):
                cache.state[row] = 0
                cache.window[row] = 0

    def copy_row(self, source: int, target: int) -> None:
        """Overwrite a row by another: what that has read, and no more of the caches than it uses."""
        used = int(self.lengths[source])
        self.lengths[target] = used
        for cache in self.layers:
            for name in cache.tensors():
                tensor: Tensor = getattr(cache, name)
                span = slice(0, used) if isinstance(cache, MLACache) else slice(None)
                tensor[target, span] = tensor[source, span]

    def bytes_used(self) -> int:
        """Memory of all caches in bytes, reserved room included."""
        tensors = [getattr(cache, name) for cache in self.layers for name in cache.tensors()]
        return sum(t.numel() * t.element_size() for t in tensors)
