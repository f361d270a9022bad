"""`hymo doctor`: what is here, and a reason for everything that is not."""

from __future__ import annotations

import json
import platform
from importlib import metadata

import numpy as np
import pytest
import torch

import hymo
from hymo.cli import main
from hymo.training import doctor


def test_versions_and_reasons(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["versions"]["hymo"] == hymo.__version__
    assert found["versions"]["python"] == platform.python_version()
    assert found["versions"]["torch"] == torch.__version__
    assert found["versions"]["numpy"] == np.__version__
    assert found["threads"]["torch"] == torch.get_num_threads()
    assert found["devices"][0].startswith("cpu: ")
    assert len(found["devices"]) == 1 + torch.cuda.device_count()
    names = {path["name"] for path in found["fast_paths"]}
    recurrences, others = ("gated_linear", "gated_delta"), ("short_conv", "output_gate", "projections", "accumulate")
    kernels = {f"Triton {name}" for name in (*recurrences, *others, "linear_cross_entropy")}
    assert names == {
        *kernels,
        "torch.compile",
        "CUDA graphs",
        "cuDNN packed attention",
        "bf16",
        "grouped_mm",
        "several ranks",
    }
    assert all(path["reason"] for path in found["fast_paths"])
    if not torch.cuda.is_available():
        off = {path["name"]: path["reason"] for path in found["fast_paths"] if not path["on"]}
        assert {*kernels, "CUDA graphs", "cuDNN packed attention", "grouped_mm"} <= set(off)
        assert off["Triton gated_linear"] == "chunked PyTorch: no CUDA device"
        assert "CUDA" in off["grouped_mm"]

    assert main(["doctor"]) == 0
    shown = capsys.readouterr().out
    assert all(c == "\n" or c.isprintable() for c in shown)
    for path in found["fast_paths"]:
        assert f"{'on' if path['on'] else 'off'}: {path['reason']}" in shown


def test_optional_packages(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    extras = (("pytest", "pytest", "tests"), ("no_such_module", "no-such-distribution", "nothing"))
    monkeypatch.setattr(doctor, "EXTRAS", extras)
    assert main(["doctor", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["extras"] == [
        {"name": "pytest", "version": metadata.version("pytest"), "enables": "tests"},
        {"name": "no-such-distribution", "version": None, "enables": "nothing"},
    ]
    assert main(["doctor"]) == 0
    assert "not installed: nothing" in capsys.readouterr().out


def test_a_missing_compiler_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.shutil, "which", lambda name: None)
    monkeypatch.setattr(doctor, "_no_cuda", lambda: "")
    path = doctor.compilation()
    assert not path.on
    assert "C++ compiler" in path.reason
