"""The gated delta rule under the argument order of flash-linear-attention, for code written against that library.

Only torch is needed besides this package's `core` and `kernels`; Triton if the kernels are to run on a GPU.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from hymo.core.errors import UsageError
from hymo.kernels.gated_delta import gated_delta


def chunk_gated_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    cu_seqlens: Tensor | None = None,
    head_first: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """The gated delta rule with fla's names, order and defaults.

    Args:
        q: queries (B, T, H, K).
        k: keys (B, T, H, K).
        v: values (B, T, HV, V); HV a multiple of H, each query and key head serving HV / H value heads.
        g: log decays (B, T, HV), <= 0.
        beta: write strengths (B, T, HV).
        scale: factor on the queries; K^-1/2 if None.
        initial_state: (N, HV, K, V), zeros if None.
        output_final_state: whether to return the final states.
        use_qk_l2norm_in_kernel: normalise queries and keys first.
        cu_seqlens: document boundaries (N + 1,) with B = 1.
        head_first: not supported, as in fla since 0.3.

    Returns:
        o (B, T, HV, V) and the final states (N, HV, K, V) or None.

    Raises:
        UsageError: `head_first`, value heads that are no multiple of the key heads, shapes that do not fit.
    """
    if head_first:
        raise UsageError("head_first: heads come after time, (batch, time, heads, width). Transpose the inputs.")
    if v.shape[2] % k.shape[2]:
        raise UsageError(f"v has {v.shape[2]} heads, no multiple of the {k.shape[2]} heads of k")
    if use_qk_l2norm_in_kernel:
        q, k = (F.normalize(x.float(), dim=-1, eps=1e-6).to(x.dtype) for x in (q, k))
    groups = v.shape[2] // k.shape[2]
    if groups > 1:
        q, k = (x.repeat_interleave(groups, 2) for x in (q, k))
    q = q * (k.shape[-1] ** -0.5 if scale is None else scale)
    return gated_delta(q, k, v, beta, g, initial_state, cu_seqlens, output_final_state)
