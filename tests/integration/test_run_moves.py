"""A run is used from other folders than the one it was started in, and after it moved, alone or with its data."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import pytest

from hymo.cli import main
from hymo.core.config import HyMoConfig
from hymo.core.load import derive_config, dump_config, load_config
from hymo.data import ByteTokenizer
from hymo.data.of_run import run_of
from hymo.models.checkpoint import list_checkpoints, read_manifest
from hymo.training.metrics import read_metrics


@pytest.fixture
def started(small: HyMoConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HyMoConfig:
    """A run of relative paths, in a folder of its own, that has ended."""
    home = tmp_path / "home"
    home.mkdir()
    assert small.run.data is not None
    shutil.copytree(small.run.data, home / "books")
    config = derive_config(small, run={"output_dir": "runs", "data": "books", "name": "small"})
    (home / "small.yaml").write_text(dump_config(config))
    monkeypatch.chdir(home)
    assert main(["train", "small.yaml"]) == 0
    return config


def use(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Everything that reads the run's data."""
    hashes = {r["step"]: r.get("data/hash") for r in read_metrics(run)}
    assert main(["replay", str(run), "--step", "3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["hash"] == hashes[3]
    assert main(["eval", str(run), "--max-bytes", "2000", "--json"]) == 0
    shutil.rmtree(run / "checkpoints" / "step-00000012")
    assert main(["train", "--resume", str(run)]) == 0
    assert list_checkpoints(run / "checkpoints")[0].name == "step-00000012"
    capsys.readouterr()


def test_a_run_is_used_from_elsewhere(
    started: HyMoConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "home" / "runs" / "small"
    assert load_config(run / "config.yaml").run.data == str(tmp_path / "home" / "books")
    use(Path("home/runs/small"), capsys)
    moved = run.rename(tmp_path / "moved")
    use(moved, capsys)
    monkeypatch.chdir(moved)
    use(Path(), capsys)


def test_data_in_the_runs_folder_move_with_it(
    started: HyMoConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home, run = tmp_path / "home", tmp_path / "home" / "runs" / "small"
    (home / "books").rename(run / "data")
    monkeypatch.chdir(tmp_path)
    use(run, capsys)
    moved = run.rename(tmp_path / "moved")
    (home / "runs").rmdir()
    use(moved, capsys)
    assert load_config(moved / "config.yaml").run.data == str(moved / "data")


def test_what_is_no_run_lends_nothing(tmp_path: Path) -> None:
    """A configuration and a data set in a folder above are somebody else's."""
    (tmp_path / "config.yaml").write_text("")
    place = tmp_path / "runs" / "x"
    place.mkdir(parents=True)
    assert run_of(place) is None
    (place / "config.yaml").write_text("")
    (place / "checkpoints" / "step-00000001").mkdir(parents=True)
    assert run_of(place) == run_of(place / "checkpoints" / "step-00000001") == run_of(place / "checkpoints") == place


def test_data_given_go_before_the_runs_own(started: HyMoConfig) -> None:
    run = Path("runs/small").absolute()
    shutil.copytree("books", run / "data")
    shutil.copytree("books", "other")
    shutil.rmtree(run / "checkpoints" / "step-00000012")
    assert main(["train", "--resume", str(run), "--data", "other"]) == 0
    assert load_config(run / "config.yaml").run.data == str(Path("other").absolute())


def test_what_eval_measures_is_kept_in_the_run(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Path(shutil.copytree(finished, tmp_path / "run"))
    kept = run / "eval"
    assert main(["eval", str(run), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert [path.name for path in kept.iterdir()] == ["step-00000012-validation.json"]
    assert json.loads((kept / "step-00000012-validation.json").read_text()) == facts
    data = load_config(run / "config.yaml").run.data
    assert data is not None
    older = run / "checkpoints" / "step-00000006"
    assert main(["eval", str(older), "--stride", "32", "--max-bytes", "3000", "--data", data]) == 0
    (part,) = kept.glob("step-00000006-*.json")
    found = json.loads(part.read_text())
    assert part.name == f"step-00000006-validation-stride-32-max_bytes-3000-data-{found['data_fingerprint'][:8]}.json"
    assert (found["step"], found["stride"], found["max_bytes"]) == (6, 32, 3000)
    assert 0 < found["bytes"] <= 3000 < facts["bytes"]

    shutil.rmtree(kept)
    kept.write_text("in the way")
    capsys.readouterr()
    assert main(["eval", str(run), "--json"]) == 0  # the figures are there all the same
    shown = capsys.readouterr()
    assert json.loads(shown.out)["loss"] == facts["loss"]
    assert shown.err.startswith("warning: ")
    assert str(kept) in shown.err
    alone = Path(shutil.copytree(older, tmp_path / "step-00000006"))
    assert main(["eval", str(alone), "--max-bytes", "2000"]) == 0
    assert {path.name for path in tmp_path.iterdir()} >= {"run", "step-00000006"}
    assert not (tmp_path / "eval").exists()


def test_eval_refuses_another_tokenizer(finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Path(shutil.copytree(finished, tmp_path / "run"))
    for checkpoint in list_checkpoints(run / "checkpoints"):
        manifest = read_manifest(checkpoint)
        assert manifest.tokenizer == ByteTokenizer().fingerprint()
        other = dataclasses.replace(manifest, tokenizer="0" * 64)
        (checkpoint / "manifest.json").write_text(other.to_json())
    for words in (["eval", str(run)], ["generate", str(run), "x"]):
        assert main(words) == 2
        assert "byte: is not the tokenizer that" in capsys.readouterr().err
