"""Devices that plans and utilisation figures know. A device that is not listed has no peak, and so no utilisation.

Peaks are dense bf16 products with fp32 accumulation, without sparsity, at the boost clock of the data sheet.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from hymo.core.errors import UsageError, nearest

GIB = 1 << 30


@dataclass(frozen=True)
class Device:
    """One kind of device."""

    key: str
    """Short name, as in `hymo plan --gpu h200`."""
    name: str
    """Full name."""
    memory: int | None
    """Device memory in bytes as the driver reports it, rounded down to GiB; None where it depends on the machine."""
    bandwidth: float | None
    """Memory bandwidth in bytes per second; None where it depends on the machine."""
    peak: float | None
    """Dense bf16 FLOP/s; None where it depends on the machine."""
    link: float | None
    """Bytes per second that it receives from its like in one machine: NVLink, else PCI Express; None for a CPU."""
    source: str
    """Where the figures come from."""
    pattern: str
    """What `torch.cuda.get_device_name` returns for it, as a regular expression over the whole name."""


def _gpu(
    key: str, name: str, gib: int, tb_per_s: float, tflops: float, gb_link: int, source: str, pattern: str
) -> Device:
    return Device(key, name, gib * GIB, tb_per_s * 1e12, tflops * 1e12, gb_link * 1e9, source, pattern)


_SHEET = "NVIDIA data sheet "

DEVICES: tuple[Device, ...] = (
    _gpu("a100-40", "NVIDIA A100 40 GB", 39, 1.555, 312, 300, _SHEET + "A100", r"(NVIDIA )?A100-(SXM4|PCIE)-40GB"),
    _gpu(
        "a100-80", "NVIDIA A100 80 GB", 79, 2.039, 312, 300, _SHEET + "A100", r"(NVIDIA )?A100(-SXM4-80GB| 80GB PCIe)"
    ),
    _gpu("h100", "NVIDIA H100 SXM", 79, 3.35, 989, 450, _SHEET + "H100", r"NVIDIA H100( 80GB HBM3| SXM5)?"),
    _gpu("h100-pcie", "NVIDIA H100 PCIe", 79, 2.0, 756, 64, _SHEET + "H100", r"NVIDIA H100 PCIe"),
    _gpu("h100-nvl", "NVIDIA H100 NVL", 93, 3.9, 835, 300, _SHEET + "H100 NVL", r"NVIDIA H100 NVL"),
    _gpu("h200", "NVIDIA H200 SXM", 139, 4.8, 989, 450, _SHEET + "H200", r"NVIDIA H200( SXM)?"),
    _gpu("b200", "NVIDIA B200", 178, 8.0, 2250, 900, _SHEET + "HGX B200", r"NVIDIA B200"),
    _gpu("l40s", "NVIDIA L40S", 44, 0.864, 362, 32, _SHEET + "L40S", r"NVIDIA L40S"),
    _gpu(
        "rtx4090", "NVIDIA GeForce RTX 4090", 23, 1.008, 165.2, 32, "NVIDIA Ada whitepaper", r"NVIDIA GeForce RTX 4090"
    ),
    Device("cpu", "CPU", None, None, None, None, "depends on the machine", r"cpu"),
)
"""Every known device."""


def device(key: str) -> Device:
    """Return the device with this short name; a memory size may end in g or gb (`a100-80g`).

    Raises:
        UsageError: an unknown name, with the nearest one.
    """
    plain = re.sub(r"(?<=\d)gb?$", "", key.lower())
    for candidate in DEVICES:
        if candidate.key == plain:
            return candidate
    keys = [candidate.key for candidate in DEVICES]
    raise UsageError(f"--gpu {key}: unknown device{nearest(key.lower(), keys)}. Known: {', '.join(keys)}.")


def match_device(name: str) -> Device | None:
    """Return the device that a driver's name stands for, or None for an unknown one (a part of a GPU included)."""
    return next((d for d in DEVICES if re.fullmatch(d.pattern, name.strip(), re.IGNORECASE)), None)
