"""The command line from text to text, and what it says when something is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hymo.cli import main
from hymo.data import sample_paths

SMALL = [
    "--set=model.dim=32",
    "--set=model.gdn_d_inner=64",
    "--set=model.n_routed_experts=4",
    "--set=model.moe_inter_dim=32",
    "--set=training.micro_batch_size=2",
    "--set=training.seq_len=64",
    "--set=scheduler.total_steps=6",
    "--set=training.checkpoint_interval=3",
    "--set=training.eval_sequences=4",
    "--set=run.device=cpu",
]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("road") / "data"
    paths = sample_paths()
    assert (
        main(["data", "prepare", str(paths["train"]), "--validation", str(paths["validation"]), "--out", str(out)]) == 0
    )
    return out


@pytest.fixture(scope="module")
def run(prepared: Path) -> Path:
    out = prepared.parent / "runs"
    code = main(["train", "hymo_tiny", "--data", str(prepared), *SMALL, f"--set=run.output_dir={out}"])
    assert code == 0
    return out / "tiny"


def test_train_leaves_a_whole_run_folder(run: Path) -> None:
    names = {p.name for p in run.iterdir()}
    assert {"config.yaml", "env.json", "metrics.jsonl", "events.jsonl", "checkpoints"} <= names
    assert {p.name for p in (run / "checkpoints").iterdir()} == {"step-00000003", "step-00000006"}


def test_eval_and_generate_read_it(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", str(run), "--max-bytes", "2000", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["bytes"], facts["tokens"], facts["step"]) == (2000, 2000, 6)
    assert 5 < facts["bits_per_byte"] < 9
    assert main(["generate", str(run), "The ", "--seed", "3", "--json"]) == 0
    assert 1 <= len(json.loads(capsys.readouterr().out)["tokens"]) <= 256 - 5  # bos, 4 bytes, and what is left
    assert main(["generate", str(run), "The ", "--max-new-tokens", "8", "--seed", "1", "--json"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert (
        main(["generate", str(run / "checkpoints" / "step-00000006"), "The ", "--max-new-tokens", "8", "--seed", "1"])
        == 0
    )
    assert capsys.readouterr().out == "The " + first["text"] + "\n"


def test_a_finished_run_resumes_to_nothing(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (run / "metrics.jsonl").read_text()
    assert main(["train", "--resume", str(run), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["step"] == 6
    assert (run / "metrics.jsonl").read_text() == before


def failing(arguments: list[str], capsys: pytest.CaptureFixture[str], code: int, *parts: str) -> None:
    assert main(arguments) == code
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert "Traceback" not in error
    for part in parts:
        assert part in error


def test_a_misspelt_key_names_its_neighbour(prepared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    failing(["train", "hymo_tiny", "--set=model.n_layer=3"], capsys, 2, "model.n_layer", "did you mean 'n_layers'?")


def test_missing_things_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    failing(["train", "hymo_tiny"], capsys, 2, "run.data", "hymo data prepare")
    failing(["train", "hymo_tiny", "--data", str(tmp_path / "nowhere")], capsys, 2, "nowhere")
    failing(["train"], capsys, 2, "--resume")
    failing(["train", "--resume", str(tmp_path)], capsys, 2, "config.yaml: not found")
    failing(["eval", str(tmp_path / "none")], capsys, 2, "none: no such folder")
    failing(["data", "prepare", str(tmp_path / "no.jsonl"), "--out", str(tmp_path / "d")], capsys, 2, "no.jsonl")


def test_empty_text_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    failing(["data", "prepare", str(tmp_path / "empty.jsonl"), "--out", str(tmp_path / "d")], capsys, 1, "empty.jsonl")
    (tmp_path / "blank.jsonl").write_text('{"text": ""}\n')
    failing(
        ["data", "prepare", str(tmp_path / "blank.jsonl"), "--out", str(tmp_path / "e")],
        capsys,
        1,
        "no training document is left",
        "1 empty",
    )


def test_a_truncated_shard_is_refused(prepared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import shutil

    copy = tmp_path / "data"
    shutil.copytree(prepared, copy)
    (shard,) = (copy / "train").glob("*")
    with shard.open("r+b") as stream:
        stream.truncate(shard.stat().st_size - 100)
    failing(["train", "hymo_tiny", "--data", str(copy), *SMALL], capsys, 1, shard.name, "truncated")
