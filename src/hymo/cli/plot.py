"""`hymo plot`: curves of runs as a picture."""

from __future__ import annotations

from pathlib import Path

from hymo.cli.options import Json
from hymo.cli.output import print_json


def plot(*runs: Path, out: Path | None = None, metric: str | None = None, smooth: int = 1, json: Json = False) -> None:
    """Draw curves of one run, or of several over each other, by tokens.

    Args:
        runs: Run folders.
        out: Picture to write, .png or .svg; RUN/plots/loss.png, or plot.png here for several runs, unless given.
        metric: Any name in metrics.jsonl; training loss and validation bits per byte unless given.
        smooth: Mean over so many records; the picture states it. 1 draws the records as they are.
        json: Write the path as JSON.
    """
    from hymo.core.errors import UsageError
    from hymo.training.plot import plot_runs

    if not runs:
        raise UsageError("plot: give the folder of a run, or several.")
    name = "loss" if metric is None else metric.replace("/", "_")
    default = runs[0] / "plots" / f"{name}.png" if len(runs) == 1 else Path("plot.png")
    written = plot_runs(runs, default if out is None else out, metric, smooth)
    if json:
        print_json({"plot": str(written), "runs": [str(run) for run in runs]})
    else:
        print(written)
