"""How fast a run is going."""

from __future__ import annotations

import torch

from hymo.core.accounting import flops_per_token
from hymo.core.config import HyMoConfig
from hymo.core.hardware import match_device


class Meter:
    """Throughput between two readings, validation and checkpoints excluded.

    Args:
        config: of the run.
        device: of this process.
        ranks: how many such devices share the tokens.
    """

    def __init__(self, config: HyMoConfig, device: torch.device, ranks: int = 1) -> None:
        self._flops = flops_per_token(config.model, config.training.seq_len, mtp=config.model.mtp_depth > 0)
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else ""
        self._hardware = match_device(name) if name else None
        self._device, self._ranks = device, ranks
        self.total_seconds = 0.0
        self._tokens, self._seconds, self._waited = 0, 0.0, 0.0

    def add(self, tokens: int, seconds: float, waited: float) -> None:
        """Count a step: its tokens over all ranks, its wall clock, and how much of that was waiting for data."""
        self.total_seconds += seconds
        self._tokens += tokens
        self._seconds += seconds
        self._waited += waited

    def read(self) -> dict[str, float]:
        """Rates since the last reading."""
        rate = self._tokens / max(self._seconds, 1e-9)
        values = {"perf/tok_per_s": rate, "perf/data_wait": self._waited / max(self._seconds, 1e-9)}
        if self._hardware is not None and self._hardware.peak:
            values["perf/mfu"] = rate * self._flops / self._hardware.peak / self._ranks
        if self._device.type == "cuda":
            values["perf/mem_gb"] = torch.cuda.max_memory_allocated(self._device) / 1e9
        self._tokens, self._seconds, self._waited = 0, 0.0, 0.0
        return values
