"""What a result depends on, in the form that every file of `benchmarks/results` carries."""

from __future__ import annotations

import datetime
import platform
import shlex
import subprocess
import sys
from typing import Any

import torch


def environment() -> dict[str, Any]:
    """Device, driver and versions, commit, date and the command that runs."""
    try:
        import triton

        triton_version = triton.__version__
    except ImportError:
        triton_version = None
    cuda = torch.cuda.is_available()
    return {
        "device": torch.cuda.get_device_name()
        if cuda
        else f"{platform.machine()} CPU, {torch.get_num_threads()} threads",
        "driver": _driver() if cuda else None,
        "torch": torch.__version__,
        "triton": triton_version,
        "python": platform.python_version(),
        "commit": _output("git", "rev-parse", "--short", "HEAD"),
        "date": datetime.date.today().isoformat(),
        "command": shlex.join(["python", *sys.argv]),
    }


def _driver() -> str | None:
    """One line, however many GPUs there are."""
    found = _output("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    return found.splitlines()[0] if found else None


def _output(*command: str) -> str | None:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
