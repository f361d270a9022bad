"""The screen of `hymo watch`."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from itertools import pairwise

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from hymo.training.follow import RunFollower, number, plain_line

BARS = "▁▂▃▄▅▆▇█"
_STYLES = {"finished": "green", "running": "cyan", "failed": "red", "lost": "red", "stopped": "yellow"}


def sparkline(values: Sequence[float], width: int) -> str:
    """Block characters for the means of at most `width` equal pieces of `values`, lowest to highest."""
    width = min(width, len(values))
    edges = [i * len(values) // width for i in range(width + 1)] if width > 0 else []
    means = [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]
    low, high = min(means, default=0.0), max(means, default=0.0)
    scale = (len(BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(BARS[round((mean - low) * scale)] for mean in means)


def facts(run: RunFollower, price: float | None = None) -> list[tuple[str, str]]:
    """Names and values of everything the screen tells in numbers, leaving out what the run does not record.

    Args:
        run: the run.
        price: of one device-hour, for the cost so far.
    """
    train, val = run.train, run.val
    rows: list[tuple[str, str]] = []

    def add(label: str, name: str, form: Callable[[float], str] = number) -> None:
        source = val if name.startswith("val/") else train
        if name in source:
            rows.append((label, form(source[name]) if source[name] is not None else "not finite"))

    add("loss", "train/loss")
    for depth in range(1, run.config.model.mtp_depth + 1):
        add(f"MTP loss {depth}", f"train/mtp_{depth}")
    add("val bits/byte", "val/bits_per_byte", lambda v: f"{v:.4f} (step {val['step']})")
    rates = [val[name] for name in sorted(val) if name.startswith("val/acceptance_")]
    if rates:
        rows.append(("drafts agreeing", " / ".join("-" if rate is None else f"{rate:.0%}" for rate in rates)))
    add("grad norm", "train/grad_norm")
    add("lr factor", "train/lr_factor")
    add("tok/s", "perf/tok_per_s", lambda v: f"{v:,.0f}")
    add("MFU", "perf/mfu", lambda v: f"{v:.1%}")
    add("memory", "perf/mem_gb", lambda v: f"{v:.1f} GB")
    add("waiting for data", "perf/data_wait", lambda v: f"{v:.1%}")
    if run.seconds_left is not None:
        rows.append(("ETA", duration(run.seconds_left)))
    if price is not None:
        rows.append(("cost so far", f"{price * run.device_hours:,.2f} ({run.device_hours:,.2f} device-hours)"))
    if len(run.beats) > 1 or run.late:
        rows.append(("ranks", _ranks(run)))
    if run.verdict:
        bad = [name for name, text in run.verdict.items() if isinstance(text, str) and text.startswith("FAIL")]
        told = f"bad: {', '.join(bad)}" if bad else "passed"
        rows.append(("verdict", f"{told} (step {run.verdict.get('step', '?')})"))
    for label, prefix in (("expert load CV", "moe/load_cv"), ("router bias max", "moe/bias_absmax")):
        if values := run.layers(prefix):
            rows.append((label, f"mean {number(sum(values.values()) / len(values))}, {_worst(values)}"))
    taus = [run.layers(f"gdn/tau_{q}") for q in (10, 50, 90)]
    if all(taus):
        middle = " / ".join(number(_median(list(by_layer.values()))) for by_layer in taus)
        rows.append(("time constants", f"{middle} tokens (10/50/90 %, median layer)"))
    for label, prefix in (("|o| max", "gdn/o_absmax"), ("|state| max", "gdn/state_absmax")):
        if values := run.layers(prefix):
            rows.append((label, _worst(values)))
    if values := run.layers("mla/logit_absmax"):
        rows.append(("attention logit max", _worst(values)))
    return rows


def _ranks(run: RunFollower) -> str:
    """How many ranks on how many machines, and which of them is late."""
    hosts = len({beat.host for beat in run.beats})
    count = f"{run.ranks or len(run.beats)} on {hosts} machine{'s' if hosts > 1 else ''}"
    late = [f"rank {beat.rank} ({beat.host}) {what}" for beat, what in run.late]
    missing = sorted(set(range(run.ranks or 0)) - {beat.rank for beat in run.beats})
    late += [f"rank {rank} without heartbeat" for rank in missing] if run.status == "running" else []
    return ", ".join([count, *late[:3], *(["..."] if len(late) > 3 else [])])


def dashboard(run: RunFollower, width: int = 100, price: float | None = None) -> RenderableType:
    """The whole screen for one moment of a run."""
    total = run.config.total_steps
    head = Table.grid(padding=(0, 1), expand=True)
    head.add_column(ratio=1)
    head.add_column(justify="right")
    age = time.time() - run.train["ts"] if "ts" in run.train and not run.ended else None
    state = Text(run.told, style=_STYLES.get(run.status, "yellow"))
    if age is not None and age >= 1:
        state.append(f", last record {duration(age)} ago", style="dim")
    head.add_row(Text(f"step {run.step:,} of {total:,}, {run.train.get('tokens', 0):,} tokens"), state)

    bar = Table.grid(expand=True)  # a bar on its own ends no line
    bar.add_row(ProgressBar(total=total, completed=run.step))
    pairs = facts(run, price)
    half = (len(pairs) + 1) // 2
    table = Table.grid(padding=(0, 2), expand=True)
    for _ in range(2):
        table.add_column(style="dim", no_wrap=True)
        table.add_column(ratio=1)
    for i in range(half):
        right = pairs[half + i] if half + i < len(pairs) else ("", "")
        table.add_row(*(Text(cell) for cell in (*pairs[i], *right)))

    parts: list[RenderableType] = [head, bar, table]
    losses = [loss for _, loss in run.losses]
    if len(losses) > 1:
        label = f"loss {number(losses[0])} → {number(losses[-1])} "
        parts.append(Text(label + sparkline(losses, max(8, width - len(label) - 4)), no_wrap=True))
    parts += [Text(plain_line(event, total), style="dim", no_wrap=True, overflow="ellipsis") for event in run.events]
    return Panel(Group(*parts), title=Text(run.config.run.name), title_align="left")


def plain_summary(run: RunFollower, price: float | None = None) -> str:
    """The same moment as lines of text without control characters."""
    total = run.config.total_steps
    lines = [
        f"{run.config.run.name}: {run.told}, step {run.step:,} of {total:,}, {run.train.get('tokens', 0):,} tokens"
    ]
    lines += [f"  {label}: {value}" for label, value in facts(run, price)]
    lines += [f"  {plain_line(event, total)}" for event in run.events]
    return "\n".join(lines)


def duration(seconds: float) -> str:
    """Seconds as 42 s, 3 min 05 s, 2 h 07 min or 3 d 04 h."""
    whole = math.ceil(seconds)
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if days:
        return f"{days} d {hours % 24:02d} h"
    if hours:
        return f"{hours} h {minutes % 60:02d} min"
    return f"{minutes} min {whole % 60:02d} s" if minutes else f"{whole} s"


def _worst(values: dict[int, float]) -> str:
    layer = max(values, key=lambda key: values[key])
    return f"{number(values[layer])} in layer {layer}"


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]
