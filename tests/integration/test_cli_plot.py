"""`hymo plot`: the curves that are drawn, and where."""

from __future__ import annotations

import shutil
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest

from hymo.cli import main
from hymo.training.metrics import read_metrics
from hymo.training.plot import curve, smoothed


def test_one_run_goes_to_its_own_folder(finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Path(shutil.copytree(finished, tmp_path / "run"))
    assert main(["plot", str(run)]) == 0
    written = run / "plots" / "loss.png"
    assert capsys.readouterr().out.strip() == str(written)
    assert written.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_several_runs_are_overlaid(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    other = Path(shutil.copytree(finished, tmp_path / "other"))
    monkeypatch.chdir(tmp_path)
    assert main(["plot", str(finished), str(other)]) == 0
    assert capsys.readouterr().out.strip() == "plot.png"
    assert (tmp_path / "plot.png").is_file()

    out = tmp_path / "sub" / "picture.svg"
    assert (
        main(["plot", str(finished), str(other), "--out", str(out), "--metric", "train/grad_norm", "--smooth=3"]) == 0
    )
    text = " ".join("".join(node.itertext()) for node in ET.parse(out).iter() if node.tag.endswith("text"))
    for part in ("tokens", "train/grad_norm, mean over 3 records", "small", "other"):
        assert part in text


def test_curves_are_the_records(finished: Path) -> None:
    records = read_metrics(finished)
    points = curve(records, "train/loss")
    assert [tokens for tokens, _ in points] == [256 * step for step in range(1, 13)]
    assert [loss for _, loss in points] == [r["train/loss"] for r in records if r["split"] == "train"]
    assert curve([{"tokens": 1, "a": None}, {"tokens": 2, "a": 0.0}, {"tokens": 3}], "a") == [(2, 0.0)]


@pytest.mark.parametrize("width", [1, 2, 3, 4, 50])
def test_smoothing_is_a_running_mean(width: int) -> None:
    values = np.random.default_rng(width).normal(size=20)
    ours = [value for _, value in smoothed(list(enumerate(values.tolist())), width)]
    sums = np.convolve(values, np.ones(width), "full")
    counts = np.convolve(np.ones(20), np.ones(width), "full")
    first = width // 2
    np.testing.assert_allclose(ours, (sums / counts)[first : first + 20])


def test_what_is_wrong_is_said(finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    for words, parts in (
        ([str(finished), "--metric", "train/los"], ["'train/los'", "did you mean 'train/loss'?", "val/acceptance_1"]),
        ([str(finished), "--metric", "data/hash"], ["'data/hash'"]),
        ([str(finished), "--out", str(tmp_path / "a.pdf")], ["a.pdf", ".png or .svg"]),
        ([str(finished), "--smooth", "0"], ["smooth"]),
        ([str(finished), "--out", "/dev/null/a.png"], ["/dev/null/a.png", "cannot be written"]),
        ([str(tmp_path / "empty")], ["empty", "no metrics"]),
        ([], ["folder of a run"]),
    ):
        assert main(["plot", *words]) == 2
        shown = capsys.readouterr().err
        assert all(part in shown for part in parts)
