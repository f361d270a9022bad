"""Curves of runs as pictures."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hymo.core.errors import UsageError, nearest
from hymo.core.files import write_bytes, writing
from hymo.training.metrics import read_metrics

FORMATS = (".png", ".svg")
_ELSEWHERE = "Choose another place with --out."
_NOT_METRICS = ("ts", "step", "tokens", "split")
_TITLES = {
    "train/loss": "training loss (nats per token)",
    "val/bits_per_byte": "validation bits per byte",
}

Points = list[tuple[int, float]]


def plot_runs(folders: Sequence[Path], out: Path, metric: str | None = None, smooth: int = 1) -> Path:
    """Overlay curves of runs by tokens and write a picture, PNG or SVG by the suffix of `out`.

    Args:
        folders: run folders.
        out: file to write; its folder is made if need be.
        metric: name as in metrics.jsonl; without one, training loss and validation bits per byte side by side.
        smooth: mean over so many records around each (fewer at the ends), stated in the picture; the records
            themselves stay behind it, faint. Validation records are never smoothed.

    Raises:
        UsageError: another suffix, a folder without metrics, a name that no run or not every run records, or a place
            that cannot be written.
    """
    if out.suffix.lower() not in FORMATS:
        raise UsageError(f"{out}: cannot tell the format. End the name in {' or '.join(FORMATS)}.")
    if smooth < 1:
        raise UsageError(f"smooth: must be 1 or more, got {smooth}.")
    folders = list({folder.resolve(): folder for folder in folders}.values())
    runs = {label: read_metrics(folder) for label, folder in zip(_labels(folders), folders, strict=True)}
    for folder, records in zip(folders, runs.values(), strict=True):
        if not any(record.get("split") == "train" for record in records):
            raise UsageError(f"{folder}: no metrics to plot. Give the folder of a run that has trained.")
    names = ["train/loss", "val/bits_per_byte"] if metric is None else [metric]
    curves = {name: {label: curve(records, name) for label, records in runs.items()} for name in names}
    if metric is not None:
        _require_everywhere(metric, curves[metric], runs)
    return _draw(curves, out, smooth)


def curve(records: Sequence[dict[str, Any]], name: str) -> Points:
    """(tokens, value) of the records that carry a number under this name."""
    return [(r["tokens"], r[name]) for r in records if "tokens" in r and isinstance(r.get(name), (int, float))]


def metric_names(records: Sequence[dict[str, Any]]) -> set[str]:
    """Names that carry a number in any record."""
    return {name for r in records for name, value in r.items() if isinstance(value, (int, float))} - {*_NOT_METRICS}


def smoothed(points: Points, width: int) -> Points:
    """Centred running mean over `width` points, over those there are at the ends."""
    before, after = (width - 1) // 2, width // 2 + 1
    values = [value for _, value in points]
    means = []
    for i, (tokens, _) in enumerate(points):
        near = values[max(0, i - before) : i + after]
        means.append((tokens, sum(near) / len(near)))
    return means


def _labels(folders: Sequence[Path]) -> list[str]:
    """Names of the folders, made longer where two would be equal."""
    names = [folder.resolve().name for folder in folders]
    return [str(f) if names.count(name) > 1 else name for f, name in zip(folders, names, strict=True)]


def _require_everywhere(metric: str, curves: dict[str, Points], runs: dict[str, list[dict[str, Any]]]) -> None:
    without = [label for label, points in curves.items() if not points]
    if without:
        known = sorted(set().union(*(metric_names(records) for records in runs.values())))
        where = "" if len(without) == len(curves) else f" in {', '.join(without)}"
        others = sorted(name for name in known if name.count("/") == 1)
        hint = nearest(metric, [name for name in known if name != metric])
        raise UsageError(f"metric '{metric}': no such number{where}{hint}. Recorded: {', '.join(others)}.")


def _draw(curves: dict[str, dict[str, Points]], out: Path, smooth: int) -> Path:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure = pyplot.figure(figsize=(5.5 * max(len(curves), 1.4), 4), layout="constrained")
    figure.subplots(1, len(curves))
    for axis, (name, by_run) in zip(figure.axes, curves.items(), strict=True):
        few = name.startswith("val/")
        stated = "" if few or smooth == 1 else f", mean over {smooth} records"
        axis.set(xlabel="tokens", ylabel=_TITLES.get(name, name) + stated)
        axis.grid(alpha=0.3)
        for label, points in by_run.items():
            if not points:
                continue
            shown = smoothed(points, smooth) if stated else points
            (line,) = axis.plot(*zip(*shown, strict=True), label=label, linewidth=1, marker="o" if few else "", ms=3)
            if stated:
                axis.plot(*zip(*points, strict=True), color=line.get_color(), linewidth=1, alpha=0.25)
            if few:
                axis.annotate(
                    f"{points[-1][1]:.3f}", points[-1], textcoords="offset points", xytext=(-4, 8), ha="right"
                )
        if len(by_run) > 1:
            axis.legend()
    try:
        with writing(out, _ELSEWHERE):
            out.parent.mkdir(parents=True, exist_ok=True)
        picture = io.BytesIO()
        with matplotlib.rc_context({"svg.fonttype": "none"}):  # text stays text: small, and found by a search
            figure.savefig(picture, dpi=130, format=out.suffix[1:].lower())
        write_bytes(out, picture.getvalue(), _ELSEWHERE)
    finally:
        pyplot.close(figure)
    return out
