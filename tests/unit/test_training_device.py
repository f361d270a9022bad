"""What a training process sets up for its device."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from hymo.training.device import spare_the_host


@pytest.mark.parametrize(
    ("device", "wish", "left"), [("cuda", None, 1), ("cuda", "3", 3), ("cpu", None, 3), ("mps", None, 3)]
)
def test_one_thread_beside_a_cuda_device(
    device: str, wish: str | None, left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = torch.get_num_threads()
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if wish is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", wish)
    try:
        torch.set_num_threads(3)
        spare_the_host(torch.device(device))
        assert torch.get_num_threads() == left
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("device", ["cpu", None])
def test_a_cpu_flushes_denormals_in_all_threads(device: str | None) -> None:
    """In a process of its own, because this one does so already; without a device asked for they are kept."""
    code = f"""
import torch
from hymo.training.device import resolve_device
{device!r} and resolve_device({device!r})
many = torch.full((1 << 20,), 1e-30)
print(torch.get_num_threads(), int((many * 1e-7).count_nonzero()), int((many * 1e-10).count_nonzero()))
"""
    environment = {**os.environ, "OMP_NUM_THREADS": "2"}
    said = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert said.stdout.split() == ["2", str(1 << 20), "0" if device else str(1 << 20)]
