"""Loss curves of runs as pictures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hymo.core.errors import UsageError
from hymo.training.metrics import read_metrics


def plot_runs(folders: Sequence[Path], out: Path) -> Path:
    """Overlay training loss and validation bits per byte of runs, by tokens, and write a picture (PNG or SVG).

    Raises:
        UsageError: a folder without metrics.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4), layout="constrained")
    for folder in folders:
        records = read_metrics(folder)
        train = [(r["tokens"], r["train/loss"]) for r in records if r["split"] == "train" and r["train/loss"]]
        val = [(r["tokens"], r["val/bits_per_byte"]) for r in records if r["split"] == "val"]
        if not train:
            raise UsageError(f"{folder}: no metrics to plot. Give the folder of a run that has trained.")
        left.plot(*zip(*train, strict=True), label=folder.name, linewidth=1)
        if val:
            right.plot(*zip(*val, strict=True), label=folder.name, marker="o", markersize=3)
            right.annotate(f"{val[-1][1]:.3f}", val[-1], textcoords="offset points", xytext=(-4, 8), ha="right")
    left.set(xlabel="tokens", ylabel="training loss (nats per token)")
    right.set(xlabel="tokens", ylabel="validation bits per byte")
    for axis in (left, right):
        axis.grid(alpha=0.3)
        if len(folders) > 1:
            axis.legend()
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=130)
    pyplot.close(figure)
    return out
