"""What our own benchmark runs say of the training step, as the planner uses it: shares of a device's rates.

`benchmarks/fit_planner.py` writes `measured.json` from `benchmarks/results`; a test compares.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import resources
from typing import Any


@dataclass(frozen=True)
class Measured:
    """The compiled training step in bf16, fitted."""

    matmul: float
    """Share of the dense bf16 peak that matrix products reach."""
    attention: float
    """The same for attention."""
    memory: float
    """Bytes that autograd keeps of a pass, per second, as a share of the memory bandwidth: everything else a step does
    is limited by memory and moves each of them several times."""
    gap_seconds: float
    """Time of a forward and backward pass that no kernel covers, per block."""
    kept: float
    """Share of the counted activation bytes that compiled code keeps, GDN mixers apart."""
    host_ms: tuple[float, float]
    """Least and most milliseconds of a step without the optimizers, for each block and pass, of models so small that
    the device waited for the host: what it takes to start the kernels of one."""
    device: str
    """Short name of the device that was measured."""
    presets: tuple[str, ...]
    """Presets that were measured."""
    rows: int
    """Benchmark rows behind the figures."""


def read_measured(values: dict[str, Any]) -> Measured:
    """The fit from plain values."""
    return Measured(**{**values, "presets": tuple(values["presets"]), "host_ms": tuple(values["host_ms"])})


MEASURED = read_measured(json.loads((resources.files("hymo.core") / "measured.json").read_text(encoding="utf-8")))
"""The fit that ships with the package."""
