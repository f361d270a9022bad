"""`hymo plan`: what a run will need."""

from __future__ import annotations

from hymo.cli.options import Json, Overrides
from hymo.cli.output import count, log, print_json, print_table, size


def plan(
    config: str,
    /,
    *,
    overrides: Overrides = (),
    gpu: str | None = None,
    gpus: int = 1,
    context: int | None = None,
    price: float | None = None,
    tokens: str | None = None,
    json: Json = False,
) -> None:
    """Tell memory, time and cost of a run before it starts.

    Parameters are exact, memory is an estimate, and throughput is a roofline over efficiencies measured on one device.
    A run that cannot fit is refused, with the devices on which it would.

    Args:
        config: Preset or YAML file.
        overrides: Fields to override.
        gpu: Device: a100-40 (or a100-40g), a100-80, h100, h100-pcie, h100-nvl, h200, b200, l40s, rtx4090 or cpu.
        gpus: Number of devices.
        context: Tokens of the sequence whose cache is counted; the model's context unless given.
        price: Price of one device-hour, for the cost.
        tokens: Training tokens, for example 30e9 or 30B; those of the configuration unless given.
        json: Write JSON.
    """
    from hymo.core.load import derive_config, load_config
    from hymo.core.planner import plan as make_plan
    from hymo.core.quantity import read_count

    resolved = load_config(config, overrides)
    if tokens is not None:
        resolved = derive_config(resolved, scheduler={"total_tokens": read_count(tokens, "--tokens")})
    result = make_plan(resolved, gpu, gpus, context, price)
    if json:
        print_json(result.to_dict())
        return
    device = "no device named (--gpu)" if result.gpu is None else f"{result.gpus} x {result.gpu}"
    facts = [
        ("parameters stored", f"{result.parameters.stored:,}"),
        ("parameters active per token", f"{result.parameters.active:,}"),
        ("FLOPs per trained token", f"{result.flops_per_token / 1e6:,.1f} M"),
        ("tokens per step", f"{result.tokens_per_step:,}"),
        ("steps", f"{result.steps:,}"),
        ("tokens", count(result.tokens)),
        ("forward passes per step", f"{result.grad_accum_steps} of {result.micro_batch_size} sequences"),
        (f"attention cache at {result.context:,} tokens", size(result.cache_bytes)),
        ("recurrent state per sequence", size(result.state_bytes)),
        ("one checkpoint", size(result.checkpoint_bytes)),
        ("checkpoints on disk", size(result.checkpoint_disk_bytes)),
        ("data on disk", size(result.data_bytes)),
    ]
    if result.gpus > 1:
        facts.append(("received per device and step", size(result.communication_bytes)))
    if result.throughput is not None:
        speed = result.throughput
        facts.append(("expected tokens per second", f"{count(speed.tokens_per_second)} ({speed.basis})"))
        facts.append(("share of the bf16 peak", f"{speed.utilisation:.1%}".replace("%", " %")))
        facts.append(("expected days", f"{speed.days:.2f}"))
        if speed.cost is not None:
            facts.append(("expected cost", f"{speed.cost:,.0f}"))
        again = "" if speed.lost_cost is None else f", for {speed.lost_cost:,.0f}"
        facts.append(("work lost with a machine, at most", f"{speed.lost_hours:.2f} h{again}"))
    print_table(f"{result.name}: {device}", ("item", "value"), facts)

    names = list(result.levels)
    rows = [
        (item, *(size(result.levels[name].memory[item]) for name in names)) for item in result.levels[names[0]].memory
    ]
    largest = [result.levels[name].largest_micro_batch for name in names]
    if result.usable_memory_bytes is not None:
        rows.append(("usable", *(size(result.usable_memory_bytes) for _ in names)))
        rows.append(("largest micro-batch", *(str(n) for n in largest)))
    title = f"memory per device, estimated, micro-batch {result.micro_batch_size}, by activation checkpointing"
    print_table(title, ("item", *names), rows)
    for warning in result.warnings:
        log(f"warning: {warning}")
    for advice in result.advice:
        log(f"faster: {advice}")
