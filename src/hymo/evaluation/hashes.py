"""SHA-256 digests that say what a result was measured with."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import nn


def weights_hash(module: nn.Module) -> str:
    """Return the digest of every parameter and buffer that a checkpoint of the module holds.

    It covers names, types, shapes and bits, so any change of any weight changes it; the device and the files that the
    weights were read from do not.
    """
    digest = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        bits = tensor.detach().cpu().contiguous().flatten().view(torch.uint8)
        digest.update(memoryview(bits.numpy()))
    return digest.hexdigest()


def json_hash(value: Any) -> str:
    """Return the digest of a value's JSON; keys are sorted, and a function counts as the source file it stands in."""
    return hashlib.sha256(_canonical(value)).hexdigest()


def rows_hash(rows: Iterable[Any]) -> str:
    """Return the digest of rows in their order."""
    digest = hashlib.sha256()
    for row in rows:
        digest.update(_canonical(row) + b"\n")
    return digest.hexdigest()


def _canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, ensure_ascii=True, default=_plain).encode()


def _plain(value: Any) -> Any:
    if not callable(value):
        return str(value)
    try:
        file = inspect.getsourcefile(value)
    except TypeError:
        file = None
    source = Path(file).read_text(encoding="utf-8") if file and Path(file).is_file() else ""
    return [getattr(value, "__qualname__", type(value).__name__), source]
