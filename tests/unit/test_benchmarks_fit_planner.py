"""The planner against the measured training steps: each row predicted by a fit on all the others."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

from fit_planner import FIT, RESULTS, _step, as_text, fit, left_out, measured_steps, predicted  # noqa: E402
from hymo.ablations.families import FAMILIES  # noqa: E402
from hymo.ablations.variants import build  # noqa: E402
from hymo.core.config import HyMoConfig  # noqa: E402
from hymo.core.load import derive_config, load_config  # noqa: E402
from hymo.core.measured import MEASURED  # noqa: E402
from hymo.core.memory import training_memory  # noqa: E402
from hymo.core.planner import plan  # noqa: E402

STEPS = measured_steps("ranks", "train")
SMALL = measured_steps("speeds")


def rows(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))["rows"]
    return found


@pytest.mark.parametrize(("step", "time", "memory"), left_out(STEPS, SMALL), ids=[step.name for step in STEPS])
def test_left_out_rows_are_met(step: object, time: float, memory: float) -> None:
    assert abs(time) <= 0.20
    assert abs(memory) <= 0.10


def test_the_package_ships_the_fit() -> None:
    assert len(STEPS) >= 2
    assert FIT.read_text(encoding="utf-8") == as_text(fit(STEPS, SMALL)), "run python benchmarks/fit_planner.py"
    assert fit(STEPS, SMALL) == MEASURED


def test_the_plan_says_what_the_fit_predicts() -> None:
    for step in STEPS:
        made = plan(step.config, step.device.key, step.gpus)
        milliseconds, memory = predicted(step, MEASURED)
        assert made.throughput is not None
        assert made.throughput.tokens_per_second == pytest.approx(1e3 * made.tokens_per_step / milliseconds)
        assert made.levels["none"].memory["total"] == memory


@pytest.mark.parametrize("step", SMALL, ids=[step.name for step in SMALL])
def test_memory_of_other_models_is_met_by_the_same_fit(step: Any) -> None:
    """The delta rule with orthogonal experts, and a dense transformer: nothing of them was fitted."""
    assert abs(predicted(step, MEASURED)[1] / step.peak_bytes - 1) <= 0.05


@pytest.mark.parametrize("row", rows("capped-h200"), ids=lambda row: row["name"])
def test_memory_under_a_cap_is_met(row: dict[str, Any]) -> None:
    config = derive_config(
        load_config(row["config"], row.get("overrides", [])),
        training={"micro_batch_size": row["micro_batch"], "grad_accum_steps": 1, "dp_size": 1},
    )
    assert abs(training_memory(config, on_gpu=True).total / 2**30 / row["peak_gib"] - 1) <= 0.05


def variants() -> dict[tuple[str, str], HyMoConfig]:
    base = load_config("hymo_ablation")
    every = {(each.key, v.name): v.config for each in FAMILIES.values() for v in build(base, each).variants}
    return every | {("base", "base"): base}


OBSERVED_AS_WRITTEN = ("b8b4b1f", "db6178d", "a899f6b")
"""Commits whose logged steps ran as written, which holds more than the compiled steps around them."""


def bracket(config: HyMoConfig) -> tuple[float, float]:
    """GiB of the plan with compiled blocks, and with blocks as written."""
    written = derive_config(config, training={"torch_compile_gdn": False})
    least, most = (training_memory(each, on_gpu=True).total / 2**30 for each in (config, written))
    return least, most


def test_ablations_lie_between_compiled_blocks_and_blocks_as_written() -> None:
    known, met = variants(), 0
    for row in rows("ablations-h200"):
        config = known.get((row["family"], row["variant"]))
        if config is None or not row.get("peak_gib") or not row["commit"].startswith(OBSERVED_AS_WRITTEN):
            continue
        least, most = bracket(config)
        assert least < row["peak_gib"] < most < 1.2 * row["peak_gib"], row["variant"]
        met += 1
    assert met > 90


def test_the_flagships_train_at_the_planned_speed_and_in_the_planned_memory() -> None:
    last = {row["preset"]: row for row in rows("next-h200")}
    assert len(last) == 2
    for name, row in last.items():
        config = derive_config(
            load_config(name), training={"micro_batch_size": 16, "grad_accum_steps": 8, "dp_size": 1}
        )
        made = plan(config, "h200")
        assert made.throughput is not None
        assert made.throughput.tokens_per_second == pytest.approx(row["tok_per_s"], rel=0.05), name
        least, most = bracket(config)
        assert least < row["peak_gib"] < most, name


def test_where_the_host_sets_the_time_the_plan_says_so() -> None:
    bench = rows("speeds-h200")
    times = sorted((row["ms_per_step"] - row["optimizer_ms"]) / 12 for row in bench)  # one pass of twelve blocks
    assert (round(times[0], 1), round(times[-1], 1)) == MEASURED.host_ms
    said = f"beside an h200 a host took {MEASURED.host_ms[0]} to {MEASURED.host_ms[1]} ms"
    for step in SMALL:
        made = plan(step.config, "h200")
        assert made.throughput is not None
        assert 1e3 * made.tokens_per_step / made.throughput.tokens_per_second < step.milliseconds
        assert [said in warning and "; more tokens a step" in warning for warning in made.warnings] == [True]
    for step in STEPS:
        assert not plan(step.config, step.device.key, step.gpus).warnings
    many = derive_config(
        load_config("hymo_small"), training={"micro_batch_size": 8, "grad_accum_steps": 4, "dp_size": 1}
    )
    assert [said in w and "; a larger training.micro_batch_size" in w for w in plan(many, "h200").warnings] == [True]


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
                "optimizer_ms": 28.0,
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
    found = fit(steps, steps)
    # 6 x 43,394,130 multiplied parameters a token, 32,768 tokens in 0.1 s of 989 TFLOP/s.
    assert found.matmul == pytest.approx(6 * 43_394_130 * 32_768 / 0.1 / 989e12, rel=1e-3)
    assert found.host_ms == (3.1, 6.2)  # 299.68 ms in 8 and 4 passes of 12 blocks
    assert found.gap_seconds == pytest.approx((0.32768 - 0.16) / ((8 + 4) / 2 * 12), rel=1e-3)
    for step in steps:
        assert predicted(step, found)[0] == pytest.approx(327.68, rel=0.2)
