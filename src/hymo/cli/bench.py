"""`hymo bench`: how fast the parts are on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

from hymo.cli.options import Json, Overrides
from hymo.cli.output import count, print_json, print_table, size

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
        ("tokens per second", count(round(result.tok_per_s))),
        ("milliseconds per step", f"{result.ms_per_step:,.1f}"),
        ("tokens per step", f"{result.tokens_per_step:,}"),
        ("micro-batches", f"{result.micro_batches} of {result.micro_batch} x {result.seq_len:,}"),
        ("steps measured", f"{result.steps} in {result.seconds:.1f} s after {result.warmup_seconds:.1f} s of warm-up"),
        ("first step", f"{result.first_step_seconds:.1f} s"),
        ("loss", f"{result.loss_first:.3f} to {result.loss_last:.3f}"),
    ]
    if result.mfu is not None:
        rows.append(("utilisation of the bf16 peak", f"{100 * result.mfu:.1f} %"))
    if result.optimizer_ms is not None:
        share = 100 * result.optimizer_ms / result.ms_per_step
        rows.append(("update by the optimizers", f"{result.optimizer_ms:,.1f} ms, {share:.1f} % of a step"))
    if result.peak_gib is not None:
        rows.append(("peak memory", f"{result.peak_gib:.1f} GiB, planned {result.planned_gib:.1f}"))
    where = result.device if result.gpus == 1 else f"{result.gpus} x {result.device}"
    print_table(f"{result.config} on {where}", ("item", "value"), rows)
    if result.breakdown_ms:
        floors = {kind: f"{ms:,.2f}" for kind, ms in result.floors_ms.items()}
        parts = [
            (kind, f"{ms:,.2f}", f"{100 * ms / result.ms_per_step:.1f}", floors.get(kind, ""))
            for kind, ms in result.breakdown_ms.items()
        ]
        if result.gpus > 1:
            parts.append(("of it nothing but communication", f"{result.exposed_communication_ms or 0:,.2f}", "", ""))
        parts.append(("waiting for launches", f"{result.idle_ms or 0:,.2f}", "", ""))
        print_table("one step by kind of kernel", ("kind", "ms", "%", "floor, ms"), parts)


@app.command
def decode(
    target: str,
    /,
    *,
    batch: Annotated[tuple[int, ...], Parameter(negative="")] = (1, 4, 16),
    context: int = 128,
    new_tokens: int = 64,
    speculative: Annotated[bool, Parameter(negative="")] = False,
    dtype: Literal["float32", "float64", "bfloat16"] = "float32",
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto",
    json: Json = False,
) -> None:
    """Measure generation: prompts read and tokens generated per second, by number of texts at once.

    Args:
        target: Checkpoint or run folder, `demo`, or a configuration, which gets random weights.
        batch: Texts at once; may be repeated.
        context: Tokens of each prompt.
        new_tokens: Tokens to generate for each.
        speculative: Measure every draft depth too.
        dtype: What to compute in.
        device: Where to run.
        json: Write JSON.
    """
    from hymo.inference.bench import bench_decode, open_target
    from hymo.inference.request import Drafts
    from hymo.training.device import resolve_device

    place = str(resolve_device(device))
    depths: list[Drafts] = [False]
    if speculative:
        heads = open_target(target, place, dtype)[0].new_speculation()
        depths += [*range(1, len(heads.proposed) + 1), "auto"]
    rows = bench_decode(target, place, dtype, batch, context, new_tokens, depths)
    if json:
        print_json({"device": place, "dtype": dtype, "rows": [row.to_dict() for row in rows]})
        return
    shown = [
        (
            row.phase,
            str(row.batch),
            row.drafts,
            f"{row.tok_per_s:,.0f}",
            "" if row.tokens_per_pass is None else f"{row.tokens_per_pass:.2f}",
            "" if row.acceptance is None else " / ".join(f"{share:.0%}" for share in row.acceptance),
            size(row.state_bytes),
        )
        for row in rows
    ]
    columns = ("phase", "texts", "drafts", "tokens/s", "tokens a pass", "accepted", "state")
    print_table(f"{target} on {place} in {dtype}, prompts of {context} tokens", columns, shown)
