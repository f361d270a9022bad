"""Checks and conversions that both recurrences share."""

from __future__ import annotations

import weakref

import torch
from torch import Tensor

from hymo.core.errors import UsageError


def working_dtype(x: Tensor) -> torch.dtype:
    """fp64 for fp64 inputs, fp32 for all others: states and sums are never kept in less."""
    return torch.promote_types(x.dtype, torch.float32)


def needs_gradient(*inputs: Tensor | None) -> bool:
    """Whether autograd would record an operation on these inputs."""
    return torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in inputs)


def check_shapes(values: Tensor, keys: dict[str, Tensor], gates: dict[str, Tensor]) -> None:
    """Values (B,T,H,D), keys (B,T,H,S), gates (B,T,H) must agree in B, T and H."""
    if values.ndim != 4:
        raise UsageError(f"v: expected (batch, time, heads, headdim), got {tuple(values.shape)}")
    for name, x in keys.items():
        if x.ndim != 4 or x.shape[:3] != values.shape[:3]:
            raise UsageError(
                f"{name}: expected (batch, time, heads, d_state) like v {tuple(values.shape)}, got {tuple(x.shape)}"
            )
    widths = {name: x.shape[-1] for name, x in keys.items()}
    if len(set(widths.values())) > 1:
        raise UsageError(f"keys must share one d_state, got {widths}")
    for name, x in gates.items():
        if x.shape != values.shape[:3]:
            raise UsageError(
                f"{name}: expected (batch, time, heads) like v {tuple(values.shape)}, got {tuple(x.shape)}"
            )


def check_chunk_size(size: int) -> None:
    """Chunks are halved again and again, so their size is a power of two."""
    if size < 1 or size & (size - 1):
        raise UsageError(f"chunk_size: must be a power of two, got {size}")


def check_cu_seqlens(cu_seqlens: Tensor | None, batch: int, total: int) -> None:
    """Packed boundaries need one row, an int32/int64 vector from 0 to the number of tokens, never falling."""
    if cu_seqlens is None:
        return
    if batch != 1:
        raise UsageError(
            f"cu_seqlens: packed documents lie in one row, but the batch is {batch}. Flatten the batch first."
        )
    if cu_seqlens.ndim != 1 or cu_seqlens.dtype not in (torch.int32, torch.int64) or len(cu_seqlens) < 2:
        raise UsageError("cu_seqlens: expected an int32 vector of document boundaries, from 0 to the number of tokens")
    if torch.compiler.is_compiling() or (cu_seqlens.is_cuda and not _new(cu_seqlens)):
        return  # the values of a tensor on the GPU are read once, not in every layer: reading waits for the device
    bounds = cu_seqlens.to("cpu", torch.int64)
    if bounds[0] != 0 or bounds[-1] != total or bool((bounds.diff() < 0).any()):
        raise UsageError(
            f"cu_seqlens: must rise from 0 to {total} (the number of tokens), got {bounds.tolist()[:8]}..."
        )


def on_device(x: Tensor, device: torch.device) -> Tensor:
    """A tensor of the host on a device, without waiting for what the device still does: from pinned memory."""
    if device.type != "cuda" or x.is_cuda:
        return x.to(device)
    return x.pin_memory().to(device, non_blocking=True)


def boundaries_on(cu_seqlens: Tensor, device: torch.device) -> Tensor:
    """Boundaries that `check_cu_seqlens` has passed on the host, as int32 on a device: kernels there trust them.

    They are copied once, whoever asks; inference tensors each time, because they do not count their changes.
    """
    if device.type != "cuda" or cu_seqlens.is_cuda:
        return cu_seqlens
    key, version = id(cu_seqlens), _version(cu_seqlens)
    known = _boundaries.get(key)
    if known is not None and known[0]() is cu_seqlens and known[1] == version and known[2].device == device:
        return known[2]
    moved = on_device(cu_seqlens.to(torch.int32), device)
    _trust(moved)
    if version is not None:
        _boundaries[key] = weakref.ref(cu_seqlens, lambda _: _boundaries.pop(key, None)), version, moved
    return moved


_boundaries: dict[int, tuple[weakref.ref[Tensor], int, Tensor]] = {}


def with_empty_documents(cu_seqlens: Tensor, fewest: int = 64) -> Tensor:
    """Boundaries with empty documents at the end, up to a power of two of at least `fewest`."""
    documents = cu_seqlens.shape[0] - 1
    missing = max(fewest, 1 << (documents - 1).bit_length()) - documents
    return torch.cat((cu_seqlens, cu_seqlens[-1:].expand(missing)))


_checked: dict[int, tuple[weakref.ref[Tensor], int | None]] = {}


def _version(x: Tensor) -> int | None:
    """How often the contents changed, None for an inference tensor, which does not count."""
    return None if x.is_inference() else int(x._version)


def _trust(x: Tensor) -> None:
    """Take the present contents as checked. An inference tensor must be one that nobody else changes."""
    key = id(x)
    _checked[key] = weakref.ref(x, lambda _: _checked.pop(key, None)), _version(x)


def _new(x: Tensor) -> bool:
    """Whether this tensor has not been seen with its present contents. Keyed by identity: == of tensors is no bool."""
    seen = _checked.get(id(x))
    if seen is not None and seen[0]() is x and seen[1] == _version(x):
        return False
    if not x.is_inference():  # else nobody would notice its next change
        _trust(x)
    return True


def initial(state: Tensor | None, sequences: int, like: Tensor, d_state: int) -> Tensor:
    """The given state (sequences, H, S, D), or zeros, in the working dtype of `like` (B, T, H, D)."""
    check_state(state, sequences, like, d_state)
    if state is None:
        shape = (sequences, like.shape[2], d_state, like.shape[3])
        return torch.zeros(shape, dtype=working_dtype(like), device=like.device)
    return state.to(working_dtype(like))


def check_state(state: Tensor | None, sequences: int, like: Tensor, d_state: int) -> None:
    """A given state must be (sequences, H, S, D) for values `like` (B, T, H, D)."""
    shape = (sequences, like.shape[2], d_state, like.shape[3])
    if state is not None and state.shape != shape:
        raise UsageError(
            f"initial_state: expected {shape} (sequences, heads, d_state, headdim), got {tuple(state.shape)}"
        )
