"""Options, markers and surroundings of all tests."""

from __future__ import annotations

import os

import pytest

# Set before any test imports the library that reads it. Nothing may reach the network or a display.
os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", TRANSFORMERS_OFFLINE="1", MPLBACKEND="Agg")
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ["OMP_NUM_THREADS"] = "1"  # threads of several processes on the same cores wait for each other
else:
    os.environ.setdefault("OMP_NUM_THREADS", str(min(2, os.cpu_count() or 1)))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--run-heavy", action="store_true", help="run tests marked heavy too: long, or large in memory")


def pytest_sessionstart() -> None:
    """As any run on a CPU does; here before PyTorch's threads start, which keep the mode that they start with.

    Hypothesis refuses to draw denormal floats from then on: give `allow_subnormal=False`.
    """
    import torch

    torch.set_flush_denormal(True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--run-heavy"):
        heavy = [item for item in items if item.get_closest_marker("heavy")]
        config.hook.pytest_deselected(items=heavy)
        items[:] = [item for item in items if item not in heavy]
    on_gpu = [item for item in items if item.get_closest_marker("gpu")]
    if on_gpu and (reason := _why_no_gpu()):
        for item in on_gpu:
            item.add_marker(pytest.mark.skip(reason=reason))


def _why_no_gpu() -> str:
    import torch

    return "" if torch.cuda.is_available() else "no CUDA device"
