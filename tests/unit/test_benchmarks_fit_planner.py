"""The planner against the measured training steps: each row predicted by a fit on all the others."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

from fit_planner import FIT, _step, as_text, fit, left_out, measured_steps, predicted  # noqa: E402
from hymo.core.measured import MEASURED  # noqa: E402
from hymo.core.planner import plan  # noqa: E402

STEPS = measured_steps()


@pytest.mark.parametrize(("step", "time", "memory"), left_out(STEPS), ids=[step.name for step in STEPS])
def test_left_out_rows_are_met(step: object, time: float, memory: float) -> None:
    assert abs(time) <= 0.20
    assert abs(memory) <= 0.10


def test_the_package_ships_the_fit() -> None:
    assert len(STEPS) >= 2
    assert FIT.read_text(encoding="utf-8") == as_text(fit(STEPS)), "run python benchmarks/fit_planner.py"
    assert fit(STEPS) == MEASURED


def test_the_plan_says_what_the_fit_predicts() -> None:
    for step in STEPS:
        made = plan(step.config, step.device.key, step.gpus)
        milliseconds, memory = predicted(step, MEASURED)
        assert made.throughput is not None
        assert made.throughput.tokens_per_second == pytest.approx(1e3 * made.tokens_per_step / milliseconds)
        assert made.levels["none"].memory["total"] == memory


def test_rows_by_old_and_new_names_are_one() -> None:
    parts = {"matrix products": 900.0, "attention": 200.0, "fused by the compiler": 300.0}
    shared = {"config": "hymo_small", "device": "NVIDIA H200", "tokens_per_step": 32_768}
    old = {"micro_batch_size": 8, "tokens_per_second": 1e5, "peak_memory_gb": 2**30 / 1e9, "parts_ms": parts}
    new = {"micro_batch": 8, "tok_per_s": 1e5, "peak_gib": 1.0, "breakdown_ms": parts, "impl": "hymo", "gpus": 1}
    one, other = _step(shared | old, {}), _step(shared | new, {})
    assert one == other
    assert one is not None
    assert (one.passes, one.milliseconds, one.peak_bytes) == (4, pytest.approx(327.68), 2**30)
    for unusable in ({"impl": "hf-llama"}, {"breakdown_ms": {}}, {"device": "a toaster"}, {"config": "mine"}):
        assert _step(shared | new | unusable, {}) is None
    assert _step(shared | new | {"param_dtype": "float32"}, {}) is None


def test_a_fit_finds_the_efficiencies_that_made_the_rows() -> None:
    made = [
        _step(
            {
                "config": "hymo_small",
                "device": "NVIDIA H200",
                "tokens_per_step": 32_768,
                "micro_batch": micro,
                "tok_per_s": 1e5,
                "peak_gib": 10.0,
                "breakdown_ms": {
                    "matrix products": 100.0,
                    "attention": 7.0,
                    "fused by the compiler": 50.0,
                    "copies": 3.0,
                },
            },
            {},
        )
        for micro in (4, 8)
    ]
    steps = [step for step in made if step is not None]
    found = fit(steps)
    # 6 x 43,394,130 multiplied parameters a token, 32,768 tokens in 0.1 s of 989 TFLOP/s.
    assert found.matmul == pytest.approx(6 * 43_394_130 * 32_768 / 0.1 / 989e12, rel=1e-3)
    assert found.gap_seconds == pytest.approx((0.32768 - 0.16) / ((8 + 4) / 2 * 12), rel=1e-3)
    for step in steps:
        assert predicted(step, found)[0] == pytest.approx(327.68, rel=0.2)
