"""Short causal depthwise convolution followed by SiLU."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from hymo.kernels.arguments import check_cu_seqlens
from hymo.kernels.dispatch import choose_short_conv


def short_conv(
    u: Tensor,
    weight: Tensor,
    window: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    implementation: str = "auto",
) -> Tensor:
    """silu(sum_k weight[:, k] * u[t - (K-1) + k]), per channel.

    Args:
        u: inputs (B, T, C).
        weight: taps (C, K), the last one on the current token.
        window: the K-1 inputs before the first (B, K-1, C), oldest first; zeros if None.
        cu_seqlens: int32 document boundaries from 0 to T, B = 1; the window restarts at each.
        implementation: auto, plain (PyTorch, the oracle) or triton (one kernel each way, sums in fp32).

    Returns:
        (B, T, C) in the dtype of u.

    Raises:
        UsageError: bad boundaries, an unknown implementation.
    """
    check_cu_seqlens(cu_seqlens, u.shape[0], u.shape[1])
    if choose_short_conv(implementation, u, weight, window) == "triton":
        from hymo.kernels.triton_short_conv_op import short_conv_triton  # only here: Triton is optional

        return short_conv_triton(u, weight, window, cu_seqlens)
    return _plain(u, weight, window, cu_seqlens)


def _plain(u: Tensor, weight: Tensor, window: Tensor | None, cu_seqlens: Tensor | None) -> Tensor:
    taps = weight.shape[1]
    length = u.shape[1]
    padded = F.pad(u, (0, 0, taps - 1, 0)) if window is None else torch.cat((window.to(u.dtype), u), 1)
    total = u * weight[:, -1]
    if cu_seqlens is not None:
        bounds = cu_seqlens.to(u.device, torch.int64)
        within = torch.arange(length, device=u.device) - torch.repeat_interleave(
            bounds[:-1], bounds.diff(), output_size=length
        )
    for back in range(1, taps):
        shifted = padded[:, taps - 1 - back : taps - 1 - back + length]
        if cu_seqlens is not None:
            shifted = shifted.masked_fill((within < back)[:, None], 0)
        total = total + shifted * weight[:, taps - 1 - back]
    return F.silu(total)
