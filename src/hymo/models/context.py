"""What a forward pass knows beside the activations: positions, boundaries, and what is to be recorded."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from hymo.models.rope import Rotation


@dataclass(frozen=True)
class SequenceContext:
    """Shared by all blocks of one pass."""

    rope_mla: Rotation
    """Rotation of the attention's rope part."""
    rope_gdn: Rotation
    """Rotation of the recurrence's keys (or values)."""
    cu_seqlens: Tensor | None = None
    """int32 document boundaries over the flattened (B*T) tokens, on the device; every row start is one."""
    bounds: tuple[int, ...] | None = None
    """The same numbers on the host."""
    attention_seqlens: Tensor | None = None
    """The same, on a GPU with empty documents up to a power of two: few shapes, so few kernels and graphs."""
    kernel: str = "auto"
    """Implementation of the recurrence."""
    new_lengths: Tensor | None = None
    """(B,) valid new tokens per row while decoding ragged batches; None means all."""
    keep_history: bool = False
    """Whether decoding keeps the state after every new token."""
    alone: bool = False
    """Whether the mixtures treat each token alone, so that no other one moves its rounding."""
    used: int = 0
    """While decoding: the most tokens that a row may hold after this call, padding included."""
    aligned: bool = False
    """While decoding: whether every row held the same number of tokens before, `used` less the new ones."""
    capacity: bool = False
    """Whether the mixtures drop beyond their capacity (training only)."""
    telemetry: dict[str, Tensor] | None = field(default=None, compare=False)
    """Filled with scalars by name when the caller wants them."""

    def record(self, name: str, value: Tensor) -> None:
        """Keep a detached scalar for the metrics, if anybody asked."""
        if self.telemetry is not None:
            self.telemetry[name] = value.detach()
