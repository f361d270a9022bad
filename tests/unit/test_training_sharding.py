"""Slices of a run's tensors as parts of a whole."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from hymo.training import sharding
from hymo.training.ranks import Ranks


def test_a_slice_is_wrapped_on_a_mesh_of_its_own_kind_of_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """DTensor copies a tensor to its mesh's kind of device: a resume would fill the copy and leave the weights."""
    device: Any = SimpleNamespace(device_type="meta")
    host: Any = SimpleNamespace(device_type="cpu")
    ranks = Ranks(0, 2, mesh=device, host_mesh=host)
    wrapped: list[Any] = []

    def from_local(tensor: torch.Tensor, mesh: Any, *_: Any, **__: Any) -> torch.Tensor:
        wrapped.append((tensor.device.type, mesh.device_type))
        return tensor

    monkeypatch.setattr(sharding.DTensor, "from_local", from_local)
    for place in ("cpu", "meta"):
        state = {"model": {"w": torch.zeros(2, 3, device=place)}, "optimizer": {}}
        sharding.as_shards(state, {"w": 4}, ranks)
    assert wrapped == [("cpu", "cpu"), ("meta", "meta")]
