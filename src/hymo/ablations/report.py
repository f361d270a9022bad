"""A comparison as a page: Markdown with tables, and a picture of curves and differences."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hymo.ablations.families import GENERAL_LIMITS, Family
from hymo.ablations.results import environments
from hymo.ablations.rows import Row
from hymo.ablations.summary import CONFIDENCE, Summary, alone, summarise, target_of, time_to, tokens_to
from hymo.ablations.variants import BASE
from hymo.core.errors import UsageError
from hymo.core.files import write_bytes, write_text, writing

_PERCENT = f"{CONFIDENCE:.0%}".replace("%", " %")


def write_report(
    family: Family,
    rows: Sequence[Row],
    environment: Mapping[str, Any],
    folder: Path,
    tests: Mapping[str, str] | None = None,
    same: Mapping[str, str] | None = None,
    price: float | None = None,
) -> tuple[Path, Path]:
    """Write `FAMILY.md` and `FAMILY.png` into a folder; with the first seed in the name where that is not 0.

    Args:
        family: what was compared.
        rows: of the base and its variants, finished and failed.
        environment: of the results file.
        folder: where to write; made if need be.
        tests: what each variant tests.
        same: variants that were left out, by the one that they equal.
        price: of one device-hour.

    Raises:
        UsageError: no finished row.
    """
    summaries = summarise(rows)
    if not summaries:
        raise UsageError(f"{folder}: no finished run to report on. Repeat the command without a limit on its time.")
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    first = min(row["seed"] for row in rows)
    stem = f"{family.key}-from-seed-{first}" if first else family.key
    page, picture = folder / f"{stem}.md", folder / f"{stem}.png"
    write_bytes(picture, draw(summaries))
    write_text(page, markdown(family, rows, environment, picture.name, tests, same, price))
    return page, picture


def markdown(
    family: Family,
    rows: Sequence[Row],
    environment: Mapping[str, Any],
    picture: str | None = None,
    tests: Mapping[str, str] | None = None,
    same: Mapping[str, str] | None = None,
    price: float | None = None,
) -> str:
    """The page as text; arguments as those of `write_report`."""
    summaries = summarise(rows)
    lines = [f"# Ablation {family.key}: {family.title}", "", family.question, ""]
    lines += [setting(summaries), ""]
    lines += ["## Quality", "", *quality_table(summaries, tests), "", *_reading(summaries), ""]
    lines += rival_table(family, rows)
    if picture:
        lines += [f"![learning curves and differences]({picture})", ""]
    lines += ["## Cost", "", *cost_table(summaries), "", *_costs(summaries, price), ""]
    lines += ["## What changed", "", "| variant | fields |", "|---|---|"]
    for summary in summaries[1:]:
        fields = ", ".join(f"`{k}={json.dumps(v)}`" for k, v in summary.rows[0]["overrides"].items())
        lines.append(f"| {summary.name} | {fields} |")
    for name, other in (same or {}).items():
        lines.append(f"| {name} | the same configuration as {other} |")
    failed = [row for row in rows if row.get("failed")]
    if failed:
        lines += ["", "## Runs that failed", ""]
        lines += [f"- {row['variant']}, seed {row['seed']}: {row['failed']}" for row in failed]
    limits = f"{family.limits} {GENERAL_LIMITS}".strip()
    lines += ["", "## What this cannot show", "", limits, "", *_origin(rows, environment)]
    return "\n".join(lines) + "\n"


def quality_table(summaries: Sequence[Summary], tests: Mapping[str, str] | None = None) -> list[str]:
    """Held-out figures and differences to the base; differences whose interval excludes 0 in bold."""
    columns = ["variant", "tests", "seeds", f"bits per byte ({_PERCENT})", "minus base"]
    columns += [f"paired t ({_PERCENT})", f"pooled ({_PERCENT})"]
    lines = [f"| {' | '.join(columns)} |"]
    lines.append("|---|---|---|---|---|---|---|")
    for s in summaries:
        cells = [
            s.name,
            (tests or {}).get(s.name, ""),
            str(len(s.seeds)),
            f"{s.mean:.4f}{_interval(s.interval, s.mean)}",
        ]
        cells.append("" if s.difference is None else f"{s.difference:+.4f}")
        cells += [_signed(s.paired), _signed(s.pooled)]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def against_rival(family: Family, rows: Sequence[Row]) -> list[Summary]:
    """The variants with their differences to the family's rival; none where it has no rival that has run."""
    summaries = [s for s in summarise(rows, family.rival) if s.name != BASE] if family.rival else []
    return summaries[1:] if summaries and summaries[0].name == family.rival else []


def rival_table(family: Family, rows: Sequence[Row]) -> list[str]:
    """Differences to the family's rival, where it has one that has run; else nothing."""
    summaries = against_rival(family, rows)
    if not summaries:
        return []
    lines = [f"| variant | minus '{family.rival}' | paired t ({_PERCENT}) | pooled ({_PERCENT}) |", "|---|---|---|---|"]
    for s in summaries:
        difference = "" if s.difference is None else f"{s.difference:+.4f}"
        lines.append(f"| {s.name} | {difference} | {_signed(s.paired)} | {_signed(s.pooled)} |")
    return [*lines, ""]


def cost_table(summaries: Sequence[Summary]) -> list[str]:
    """Parameters, work, memory, cache, balance, tokens to the target; speed and time if runs had a device alone."""
    target = target_of(summaries)
    clock = alone(summaries)
    columns = ["variant", "active parameters", "stored", "MFLOP per token"]
    columns += ["tokens/s", "training, s", f"s to {target:.3f}"] if clock else []
    columns += [
        f"M tokens to {target:.3f}",
        "peak GiB",
        "cache, KiB",
        "state, KiB",
        "load variation",
        "heads' gradient",
    ]
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for s in summaries:
        row = s.rows[0]
        balance = [each["load_balance"]["load_cv"] for each in s.rows if each.get("load_balance")]
        cells = [s.name, f"{row['active_parameters']:,}", f"{row['stored_parameters']:,}"]
        cells += [f"{row['flops_per_token'] / 1e6:.1f}"]
        if clock:
            cells += [_number(s.mean_of("tok_per_s"), 0), _number(s.mean_of("seconds"), 1)]
            cells += [_mean_reached([time_to(each, target) for each in s.rows], 1)]
        cells += [_mean_reached([tokens_to(each, target) for each in s.rows], 1, 1e6)]
        cells += [
            _number(s.mean_of("peak_gib"), 2),
            f"{row['cache_bytes'] / 1024:.0f}",
            f"{row['state_bytes'] / 1024:.0f}",
        ]
        cells.append(f"{sum(balance) / len(balance):.2f}" if balance else "")
        cells.append(_number(s.mean_of("heads_gradient"), 2))
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def cost_note(summaries: Sequence[Summary]) -> str:
    """What the table's FLOPs and times count, or why it has no times."""
    return f"FLOP per token leave out the recurrence and the optimizer. {_clock_note(summaries)}"


def _clock_note(summaries: Sequence[Summary]) -> str:
    if alone(summaries):
        return "Time counts training steps, not start, validation or checkpoints."
    at_once = max(row.get("parallel", 1) for each in summaries for row in each.rows)
    if at_once == 1:
        return "Runs were resumed, and what ran beside their first part is not recorded: no clock is shown."
    return f"Up to {at_once} runs shared a device, at times fewer: no clock tells the speed of one, so none is shown."


def _mean_reached(values: Sequence[float | None], digits: int, unit: float = 1.0) -> str:
    """Mean where all came to the target; a mean of those that did would favour a variant that often fails."""
    reached = [value / unit for value in values if value is not None]
    if len(reached) < len(values):
        return f"{len(reached)} of {len(values)} reach it" if reached else "not reached"
    return f"{sum(reached) / len(reached):.{digits}f}"


def base_name(row: Row) -> str:
    """What a row's base is called: a preset, or a variant of one."""
    return f"'{row['start']}' of `{row['preset']}`" if row.get("start") else f"`{row['preset']}`"


def setting(summaries: Sequence[Summary]) -> str:
    """Base, length, seeds and held-out text of a comparison, in a sentence each."""
    row = summaries[0].rows[0]
    seeds = sorted({seed for s in summaries for seed in s.seeds})
    tokens = {each["tokens"] for s in summaries for each in s.rows}
    length = f"{row['tokens']:,} tokens" if len(tokens) == 1 else f"{min(tokens):,} to {max(tokens):,} tokens"
    epochs = max(each["epochs"] for s in summaries for each in s.rows)
    passes = "within one pass over the data" if epochs == 1 else f"in up to {epochs} passes over the data"
    body = row["active_parameters"] - row["embedding_parameters"]
    return (
        f"Base: {base_name(row)}, {row['active_parameters']:,} active parameters ({body:,} without the embedding). "
        f"{length} a run {passes}, seeds {', '.join(map(str, seeds))}; a seed gives every variant the same text in the "
        f"same order. Held out: {row['heldout_bytes'] or 0:,} bytes, the same for all."
    )


def _reading(summaries: Sequence[Summary]) -> list[str]:
    if max(len(s.seeds) for s in summaries) < 2:
        return ["One seed: no interval. A difference without one is no result."]
    return [
        "Less is better; a negative difference favours the variant. Intervals are Student's t over seeds: that of the "
        "mean, that of the differences by seed (paired), and one from the error that all variants share (pooled: "
        "residual of variants x seeds, which assumes that all pairs spread alike). Bold excludes 0. They hold for one "
        "comparison each: of twenty variants without effect one is expected outside. They cover seeds, not other texts."
    ]


def _costs(summaries: Sequence[Summary], price: float | None) -> list[str]:
    rows = [row for s in summaries for row in s.rows]
    hours = sum(row["seconds"] for row in rows) / 3600
    work = sum(row["flops_per_token"] * row["tokens"] for row in rows)
    at_once = {row["parallel"] for row in rows}
    about = "" if alone(summaries) else "about "
    device = f"{about}{hours / max(at_once):.2f} device-hours of training steps"
    lines = [f"The family: {len(rows)} runs, {device}, {work:.2e} FLOP."]
    if price is not None:
        lines[0] += f" At {price:g} per device-hour: {about}{hours * price / max(at_once):.2f}."
    lines.append(cost_note(summaries))
    kinds = {row.get("memory") for row in rows}
    if "process" in kinds:
        lines.append("Memory is what the process held at most, libraries included.")
    lines.append(f"Cache is that of one sequence of the whole context ({rows[0]['context']:,} tokens) in bf16; the")
    lines.append("state has that size at any length.")
    lines.append(
        "Load variation is the experts' coefficient of variation at the end. Heads' gradient is the norm of the"
    )
    lines.append("prediction losses' gradient over that of the main loss, in the backbone after training.")
    return lines


def _origin(rows: Sequence[Row], environment: Mapping[str, Any]) -> list[str]:
    commits = sorted({str(row.get("commit"))[:9] for row in rows if row.get("commit")})
    dates = sorted({str(row.get("date"))[:10] for row in rows if row.get("date")})
    days = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    used = environments(environment, rows)
    machines = " and ".join(dict.fromkeys(f"{each.get('device')}, torch {each.get('torch')}" for each in used))
    line = f"{machines}, {days}, commit {', '.join(commits) or 'unknown'}."
    commands = dict.fromkeys(str(each.get("command")) for each in used)
    lines = [line, "", "```text", *commands, "```"]
    if len(used) > 1:
        lines.insert(1, "Rows come from several machines or versions: compare them with care.")
    if len(commits) > 1:
        lines.insert(1, "Rows come from several commits: compare them only if nothing between touched a result.")
    return lines


def _interval(interval: tuple[float, float] | None, mean: float) -> str:
    return "" if interval is None else f" ± {interval[1] - mean:.4f}"


def _signed(interval: tuple[float, float] | None) -> str:
    if interval is None:
        return ""
    text = f"{interval[0]:+.4f} to {interval[1]:+.4f}"
    return f"**{text}**" if interval[0] > 0 or interval[1] < 0 else text


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:,.{digits}f}"


def draw(summaries: Sequence[Summary]) -> bytes:
    """PNG: held-out bits per byte over tokens, and each variant's difference to the base with its intervals."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    others = [s for s in summaries if s.name != BASE and s.difference is not None]
    figure = pyplot.figure(figsize=(12, max(4.0, 1.6 + 0.32 * len(others))), layout="constrained")
    curves, differences = figure.subplots(1, 2)
    colours = pyplot.get_cmap("tab20")
    try:
        for i, s in enumerate(summaries):
            for j, row in enumerate(s.rows):
                points = [(tokens, score) for tokens, _, score in row["curve"] if score is not None]
                if points:
                    style = {
                        "color": "black" if s.name == BASE else colours(i % 20),
                        "linewidth": 1,
                        "marker": "o",
                        "ms": 3,
                    }
                    curves.plot(*zip(*points, strict=True), label=s.name if j == 0 else None, **style)
        curves.set(xlabel="tokens", ylabel="held-out bits per byte")
        curves.grid(alpha=0.3)
        curves.legend(fontsize=7)
        for place, s in enumerate(reversed(others)):
            assert s.difference is not None
            for interval, width, alpha in ((s.paired, 1.0, 0.9), (s.pooled, 4.0, 0.4)):
                if interval is not None:
                    differences.plot(interval, (place, place), color="tab:blue", linewidth=width, alpha=alpha)
            differences.plot(s.difference, place, "o", color="tab:blue", ms=4)
        differences.axvline(0, color="black", linewidth=0.8)
        differences.set_yticks(range(len(others)), [s.name for s in reversed(others)], fontsize=8)
        differences.set(xlabel=f"bits per byte minus base (thin: paired {_PERCENT}, thick: pooled)")
        differences.grid(alpha=0.3, axis="x")
        if others:  # a paired interval of two seeds may be far wider than all differences
            reach = max(abs(x) for s in others for x in (s.difference or 0.0, *(s.pooled or ())))
            differences.set_xlim(-1.5 * reach - 1e-4, 1.5 * reach + 1e-4)
        picture = io.BytesIO()
        figure.savefig(picture, dpi=130, format="png")
        return picture.getvalue()
    finally:
        pyplot.close(figure)
