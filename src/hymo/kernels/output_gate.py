"""Skip path and output gate of a recurrence's heads."""

from __future__ import annotations

from torch import Tensor

from hymo.core.errors import UsageError
from hymo.kernels.arguments import working_dtype
from hymo.kernels.dispatch import choose_output_gate


def output_gate(o: Tensor, v: Tensor, skip: Tensor, gate: Tensor | None, implementation: str = "auto") -> Tensor:
    """(o + skip v) gate, formed in fp32 (fp64 for fp64 inputs) and rounded once.

    Args:
        o: outputs of the recurrence (B, T, H, D), any floating dtype.
        v: its values (B, T, H, D).
        skip: factors on the values (H,).
        gate: factors on the sums, one per head (B, T, H) or per channel (B, T, H, D); None for 1.
        implementation: auto, plain (PyTorch, the oracle) or triton (one kernel each way, sums in fp32).

    Returns:
        (B, T, H, D) in the dtype of o.

    Raises:
        UsageError: shapes that do not fit, an unknown implementation.
    """
    if o.ndim != 4 or v.shape != o.shape or skip.shape != o.shape[2:3]:
        raise UsageError(
            "output_gate: expected o and v (batch, time, heads, headdim) and skip (heads,), got "
            f"{tuple(o.shape)}, {tuple(v.shape)} and {tuple(skip.shape)}"
        )
    if gate is not None and gate.shape not in (o.shape, o.shape[:3]):
        raise UsageError(f"gate: expected {tuple(o.shape[:3])} or {tuple(o.shape)} like o, got {tuple(gate.shape)}")
    if choose_output_gate(implementation, o) == "triton":
        from hymo.kernels.triton_output_gate_op import output_gate_triton  # only here: Triton is optional

        return output_gate_triton(o, v, skip, gate)
    return _plain(o, v, skip, gate)


def _plain(o: Tensor, v: Tensor, skip: Tensor, gate: Tensor | None) -> Tensor:
    dtype = working_dtype(o)
    mixed: Tensor = o.to(dtype) + skip.to(dtype)[:, None] * v.to(dtype)
    if gate is not None:
        mixed = mixed * (gate if gate.ndim == 4 else gate[..., None]).to(dtype)
    return mixed.to(o.dtype)
