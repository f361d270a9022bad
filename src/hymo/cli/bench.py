"""`hymo bench`: how fast the parts are on this machine."""

from __future__ import annotations

from pathlib import Path

from cyclopts import App

from hymo.cli.options import Json, Overrides
from hymo.cli.output import count, print_json, print_table

app = App(name="bench", help="Measure speed on this machine.", result_action="return_value")


@app.command
def train(
    config: str,
    /,
    *,
    data: Path | None = None,
    overrides: Overrides = (),
    seconds: float = 30.0,
    warmup: int = 5,
    breakdown: bool = True,
    json: Json = False,
) -> None:
    """Measure the training step on real batches: throughput, utilisation, memory, and where a step's time goes.

    Under torchrun it measures all ranks together. Nothing is saved. The first steps (compilation) are left out of the
    figures and reported on their own.

    Args:
        config: Preset or YAML file.
        data: Folder of a prepared data set; that of the configuration unless given.
        overrides: Fields to override.
        seconds: Least time to measure.
        warmup: Optimizer steps before that.
        breakdown: Profile one more step on a CUDA device.
        json: Write JSON.
    """
    from hymo.core.load import derive_config, load_config
    from hymo.training.bench import bench_training
    from hymo.training.ranks import open_ranks

    resolved = load_config(config, overrides)
    if data is not None:
        resolved = derive_config(resolved, run={"data": str(data)})
    with open_ranks(resolved) as ranks:
        result = bench_training(resolved, seconds=seconds, warmup=warmup, breakdown=breakdown, ranks=ranks)
    if not ranks.first:
        return
    if json:
        print_json(result.to_dict())
        return
    rows = [
        ("tokens per second", count(round(result.tokens_per_second))),
        ("milliseconds per step", f"{result.ms_per_step:,.1f}"),
        ("tokens per step", f"{result.tokens_per_step:,}"),
        ("micro-batches", f"{result.micro_batches} of {result.micro_batch_size} x {result.seq_len:,}"),
        ("steps measured", f"{result.steps} in {result.seconds:.1f} s after {result.warmup_seconds:.1f} s of warm-up"),
        ("loss", f"{result.loss_first:.3f} to {result.loss_last:.3f}"),
    ]
    if result.mfu is not None:
        rows.append(("utilisation of the bf16 peak", f"{100 * result.mfu:.1f} %"))
    if result.peak_memory_gb is not None:
        rows.append(("peak memory", f"{result.peak_memory_gb:.1f} GB"))
    where = result.device if result.ranks == 1 else f"{result.ranks} x {result.device}"
    print_table(f"{result.config} on {where}", ("item", "value"), rows)
    if result.parts_ms:
        parts = [(name, f"{ms:,.2f}", f"{100 * ms / result.ms_per_step:.1f}") for name, ms in result.parts_ms.items()]
        parts.append(("waiting for launches", f"{result.idle_ms or 0:,.2f}", ""))
        print_table("one step by kind of kernel", ("kind", "ms", "%"), parts)
