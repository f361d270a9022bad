"""`hymo replay`: a step's batch from the seed and the step alone, against what the run recorded."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hymo.cli import main
from hymo.core.config import HyMoConfig
from hymo.core.load import derive_config, dump_config, load_config
from hymo.data import ByteTokenizer, open_split
from hymo.training import Trainer
from hymo.training.metrics import read_metrics
from hymo.training.run import open_run, run_folder


def replayed(run: Path, step: int, capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> Any:
    assert main(["replay", str(run), "--step", str(step), "--json", *words]) == code
    return json.loads(capsys.readouterr().out)


def test_every_logged_step_is_rebuilt(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorded = {r["step"]: r["data/hash"] for r in read_metrics(finished) if r["split"] == "train"}
    assert sorted(recorded) == list(range(1, 13))
    assert len(set(recorded.values())) == 12
    for step in (1, 7, 12):
        found = replayed(finished, step, capsys)
        assert (found["hash"], found["recorded"], found["equal"]) == (recorded[step], recorded[step], True)


def test_the_hash_is_that_of_the_bytes_trained_on(small: HyMoConfig) -> None:
    seen: list[str] = []

    def watching(trainer: Trainer) -> None:
        original = trainer.loader.batch_at  # type: ignore[union-attr]
        parts: list[bytes] = []

        def batch_at(*arguments: Any, **named: Any) -> Any:
            batch = original(*arguments, **named)
            assert (batch["tokens"].dtype, batch["cu_seqlens"].dtype) == (np.int64, np.int32)
            parts.extend((batch["tokens"].tobytes(), batch["cu_seqlens"].tobytes()))
            if named["micro"] == named["n_micro"] - 1:
                seen.append(hashlib.sha256(b"".join(parts)).hexdigest()[:16])
                parts.clear()
            return batch

        trainer.loader.batch_at = batch_at  # type: ignore[union-attr, method-assign]

    config = derive_config(small, scheduler={"total_steps": 5}, training={"log_interval": 2})
    with open_run(config) as trainer:
        watching(trainer)
        trainer.train()
    records = [r for r in read_metrics(run_folder(config)) if r["split"] == "train"]
    assert [(r["step"], r["data/hash"]) for r in records] == [(step, seen[step - 1]) for step in (1, 2, 4, 5)]


def test_spans_tell_where_each_token_comes_from(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = load_config(finished / "config.yaml")
    found = replayed(finished, 5, capsys)
    assert config.run.data is not None
    split = open_split(config.run.data, "train", ByteTokenizer())
    assert [(s["micro"], s["row"]) for s in found["samples"]] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert [s["sample"] for s in found["samples"]] == [16, 17, 18, 19]
    for sample in found["samples"]:
        rebuilt: list[int] = []
        for span in sample["spans"]:
            assert (span["source"], span["document_id"]) == split.identity(span["document"])
            ids = split.document(span["document"])[span["document_offset"] :][: span["length"]]
            assert span["window_offset"] == len(rebuilt)
            assert span["text"] == ByteTokenizer().decode(ids)
            rebuilt += ids.tolist()
        assert rebuilt == sample["tokens"]
    only = replayed(finished, 5, capsys, "--micro", "1")
    assert only["samples"] == found["samples"][2:]
    assert only["hash"] == found["hash"]


@pytest.mark.parametrize("step", [4, 7])
def test_losses_of_the_checkpoint_before_are_the_training_loss(
    finished: Path, capsys: pytest.CaptureFixture[str], step: int
) -> None:
    found = replayed(finished, step, capsys, "--per-token")
    assert Path(found["checkpoint"]).name == f"step-{step - 1:08d}"
    (record,) = [r for r in read_metrics(finished) if r["split"] == "train" and r["step"] == step]
    assert found["loss"] == pytest.approx(record["train/loss"], rel=1e-5)
    losses = [value for sample in found["samples"] for value in sample["losses"] if value is not None]
    assert found["loss"] == pytest.approx(sum(losses) / len(losses), rel=1e-6)
    for sample in found["samples"]:
        starts = {span["window_offset"] for span in sample["spans"]}
        assert {i + 1 for i, value in enumerate(sample["losses"]) if value is None} == starts - {0}


def test_text_shows_the_same(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = replayed(finished, 7, capsys, "--per-token", "--micro", "1")
    older = finished / "checkpoints" / "step-00000003"
    words = ["replay", str(finished), "--step", "7", "--micro", "1"]
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert all(c == "\n" or c.isprintable() for c in shown)
    assert f"hash {found['hash']}, equal to the recorded one" in shown
    for sample in found["samples"]:
        assert f"row {sample['row']}: sample {sample['sample']} of epoch 0" in shown
        for span in sample["spans"]:
            assert f"{span['source']}: {span['document_id']}" in shown
            for line in span["text"].splitlines():
                assert f"    {line}\n" in shown
    assert main([*words, "--checkpoint", str(older)]) == 0
    shown = capsys.readouterr().out
    assert "under step-00000003" in shown
    assert "loss" in shown
    assert len([line for line in shown.splitlines() if line.startswith("      ")]) == 2 * 65


def test_another_batch_than_the_recorded_one_is_told(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Path(shutil.copytree(finished, tmp_path / "run"))
    path = run / "config.yaml"
    path.write_text(dump_config(derive_config(load_config(path), training={"seed": 99})))
    assert replayed(run, 3, capsys, code=1)["equal"] is False
    assert main(["replay", str(run), "--step", "3"]) == 1
    shown = capsys.readouterr()
    assert "DIFFERENT" in shown.out
    assert "trained on another batch" in shown.err
    (run / "metrics.jsonl").unlink()
    assert replayed(run, 3, capsys)["equal"] is None


def test_what_is_wrong_is_said(finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, code, says in (
        ([str(tmp_path), "--step", "1"], 2, "config.yaml: not found"),
        ([str(finished), "--step", "0"], 2, "steps 1 to 12"),
        ([str(finished), "--step", "13"], 2, "steps 1 to 12"),
        ([str(finished), "--step", "1", "--micro", "2"], 2, "micro-batches 0 to 1"),
        ([str(finished), "--step", "3", "--per-token"], 1, "no whole checkpoint from before step 3"),
    ):
        assert main(["replay", *words]) == code
        assert says in capsys.readouterr().err
