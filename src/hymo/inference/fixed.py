"""A decode state whose tensors stay where they are: what recorded work can refer to."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from hymo.models import HyMo
from hymo.models.state import DecodeState, GDNCache, MLACache


@dataclass
class FixedState(DecodeState):
    """A decode state for a fixed number of rows and tokens; those of all GDN layers are one tensor."""

    states: Tensor = field(kw_only=True)
    """(GDN layers, B, H, S, D) fp32."""
    windows: Tensor = field(kw_only=True)
    """(GDN layers, B, K-1, d_inner)."""
    attention: dict[int, MLACache] = field(kw_only=True)
    """The caches of the MLA layers by the layer's index."""

    @classmethod
    def of(cls, model: HyMo, rows: int, room: int) -> FixedState:
        """An empty state with room for `room` tokens in each row."""
        plain = model.init_state(rows, reserve=room)
        first = next((cache for cache in plain.layers if isinstance(cache, GDNCache)), None)
        count = sum(isinstance(cache, GDNCache) for cache in plain.layers)
        empty = plain.lengths.new_zeros(0)
        states = empty if first is None else first.state.new_zeros((count, *first.state.shape))
        windows = empty if first is None else first.window.new_zeros((count, *first.window.shape))
        place = 0
        for cache in plain.layers:
            if isinstance(cache, GDNCache):
                cache.state, cache.window = states[place], windows[place]
                place += 1
        caches = {i: cache for i, cache in enumerate(plain.layers) if isinstance(cache, MLACache)}
        return cls(plain.lengths, plain.layers, states=states, windows=windows, attention=caches, fixed=True)

    def take(self, other: DecodeState, rows: int) -> None:
        """Copy the first `rows` rows of another state, as far as they have read."""
        used = int(other.lengths[:rows].max()) if rows else 0
        self.lengths[:rows] = other.lengths[:rows]
        for mine, theirs in zip(self.layers, other.layers, strict=True):
            for name in mine.tensors():
                span = slice(0, used) if isinstance(mine, MLACache) else slice(None)
                getattr(mine, name)[:rows, span].copy_(getattr(theirs, name)[:rows, span])
