"""Fits the planner's efficiencies on the measured training steps: `python benchmarks/fit_planner.py [--check]`.

Reads benchmarks/results/train-*.json and ranks-*.json, and writes src/hymo/core/measured.json. A row counts if it is of
this package, of a preset, in bf16, with compiled blocks (its breakdown has kernels that the compiler fused) and on a
device whose peak is known; of rows that measured the same run, the last. Rows of several GPUs take part in the
leave-one-out test, but efficiencies come from single ones. speeds-*.json has models so small that the host which starts
their kernels sets the time: they tell that time, and test memory.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hymo.core.config import HyMoConfig
from hymo.core.hardware import Device, match_device
from hymo.core.load import derive_config, load_config, preset_names
from hymo.core.measured import Measured
from hymo.core.memory import training_memory
from hymo.core.planner import communication
from hymo.core.throughput import step_seconds, step_work

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
FIT = ROOT / "src" / "hymo" / "core" / "measured.json"
_FUSED = "fused by the compiler"
_OLD = {
    "micro_batch_size": "micro_batch",
    "tokens_per_second": "tok_per_s",
    "parts_ms": "breakdown_ms",
}
"""Names that earlier files used."""


@dataclass(frozen=True)
class Step:
    """One measured training step with the configuration that it ran."""

    name: str
    config: HyMoConfig
    device: Device
    gpus: int
    milliseconds: float
    peak_bytes: float
    parts: dict[str, float]
    optimizer_ms: float | None

    @property
    def passes(self) -> int:
        """Forward passes on one device."""
        return self.config.training.sequences_per_step // (self.config.training.micro_batch_size * self.gpus)


def measured_steps(kind: str, *kinds: str, folder: Path = RESULTS) -> list[Step]:
    """Every usable row of the result files of these kinds."""
    steps: dict[tuple[HyMoConfig, str, int], Step] = {}
    for path in sorted(path for each in (kind, *kinds) for path in folder.glob(f"{each}-*.json")):
        found = json.loads(path.read_text(encoding="utf-8"))
        for row in found["rows"]:
            if (step := _step(row, found["environment"])) is not None:
                steps[step.config, step.device.key, step.gpus] = step
    return list(steps.values())


def _step(row: dict[str, Any], environment: dict[str, Any]) -> Step | None:
    row = {_OLD.get(key, key): value for key, value in row.items()}
    parts = row.get("breakdown_ms") or {}
    device = match_device(str(row.get("device") or environment.get("device")))
    ours = row.get("impl", "hymo") == "hymo" and row.get("config") in preset_names()
    bf16 = row.get("param_dtype", "bfloat16") == "bfloat16"
    if not (ours and bf16 and _FUSED in parts and device is not None and device.peak):
        return None
    kept = ("model.", "training.", "optimizer.")
    config = load_config(row["config"], [o for o in row.get("overrides", ()) if o.startswith(kept)])
    gpus = int(row.get("gpus") or 1)
    sequences = int(row["tokens_per_step"]) // config.training.seq_len
    micro = int(row["micro_batch"])
    config = derive_config(
        config,
        model={"mtp_depth": int(row.get("mtp_depth", config.model.mtp_depth))},
        training={"micro_batch_size": micro, "grad_accum_steps": sequences // (micro * gpus), "dp_size": gpus},
    )
    peak = row["peak_gib"] * 2**30 if "peak_gib" in row else row["peak_memory_gb"] * 1e9
    milliseconds = 1e3 * row["tokens_per_step"] / row["tok_per_s"]
    name = f"{row.get('name') or row['config']}, micro-batch {micro}, {gpus} GPUs"
    return Step(name, config, device, gpus, milliseconds, peak, parts, row.get("optimizer_ms"))


def fit(steps: Sequence[Step], small: Sequence[Step]) -> Measured:
    """Efficiencies over single-GPU rows: the sum of ideal times over the sum of measured ones, part by part.

    `small` are steps that the host bounds.
    """
    alone = [s for s in small if s.optimizer_ms is not None and s.gpus == 1 and s.device.key == steps[0].device.key]
    hosts = [(s.milliseconds - (s.optimizer_ms or 0)) / s.config.model.n_layers / s.passes for s in alone]
    single = [step for step in steps if step.gpus == 1]
    ideal, spent = (
        dict.fromkeys(("matmul", "attention", "memory"), 0.0),
        dict.fromkeys(("matmul", "attention", "memory"), 0.0),
    )
    gap, gaps, kept, counted = 0.0, 0, 0.0, 0.0
    for step in single:
        cfg = step.config.training
        work = step_work(step.config, step.gpus, cfg.micro_batch_size, cfg.activation_checkpointing)
        assert step.device.peak is not None
        assert step.device.bandwidth is not None
        ideal["matmul"] += work.matmul_flops / step.device.peak
        ideal["attention"] += work.attention_flops / step.device.peak
        ideal["memory"] += work.kept_bytes / step.device.bandwidth
        busy = sum(step.parts.values())
        matmul, attention = (step.parts.get(kind, 0.0) for kind in ("matrix products", "attention"))
        spent["matmul"] += matmul / 1e3
        spent["attention"] += attention / 1e3
        spent["memory"] += (busy - matmul - attention) / 1e3
        gap += max(0.0, step.milliseconds - busy) / 1e3
        gaps += work.gaps
        least, most = (training_memory(step.config, 1, level="none", on_gpu=True, kept=share) for share in (0.0, 1.0))
        kept += step.peak_bytes - least.total
        counted += most.total - least.total
    figures = {name: ideal[name] / spent[name] for name in ideal}
    rounded = {name: float(f"{value:.4g}") for name, value in figures.items()}
    return Measured(
        **rounded,
        gap_seconds=float(f"{gap / gaps:.4g}"),
        kept=float(f"{kept / counted:.4g}"),
        host_ms=(round(min(hosts), 1), round(max(hosts), 1)),
        device=single[0].device.key,
        presets=tuple(sorted({step.config.run.name for step in single})),
        rows=len(single),
    )


def predicted(step: Step, measured: Measured) -> tuple[float, float]:
    """Milliseconds of a step and peak bytes, by a fit."""
    cfg = step.config.training
    received = communication(step.config, step.gpus, step.passes)
    work = step_work(step.config, step.gpus, cfg.micro_batch_size, cfg.activation_checkpointing, received)
    memory = training_memory(step.config, step.gpus, on_gpu=True, kept=measured.kept)
    return 1e3 * step_seconds(work, step.device, measured), memory.total


def left_out(steps: Sequence[Step], small: Sequence[Step]) -> list[tuple[Step, float, float]]:
    """Each row with the relative errors of time and memory that a fit on all others makes on it."""
    errors = []
    for i, step in enumerate(steps):
        others = [*steps[:i], *steps[i + 1 :]]
        milliseconds, memory = predicted(step, fit(others, small))
        errors.append((step, milliseconds / step.milliseconds - 1, memory / step.peak_bytes - 1))
    return errors


def as_text(measured: Measured) -> str:
    """The file's text."""
    return json.dumps(dataclasses.asdict(measured), indent=1) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the file would change")
    check = parser.parse_args().check
    steps, small = measured_steps("ranks", "train"), measured_steps("speeds")
    found = fit(steps, small)
    text = as_text(found)
    for step, time, memory in left_out(steps, small):
        within = math.fabs(time) <= 0.2 and math.fabs(memory) <= 0.1
        print(f"{step.name}: left out, time {time:+.1%}, memory {memory:+.1%}{'' if within else '   OUT OF BOUNDS'}")
    for step in small:
        milliseconds, memory = predicted(step, found)
        told = f"time {milliseconds / step.milliseconds - 1:+.1%}, memory {memory / step.peak_bytes - 1:+.1%}"
        print(f"{step.name}: not fitted, bound by the host, {told}")
    if check:
        return int(FIT.read_text(encoding="utf-8") != text)
    FIT.write_text(text, encoding="utf-8")
    print(text, end="")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
