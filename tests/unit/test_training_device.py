"""What a training process sets up for its device."""

from __future__ import annotations

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
