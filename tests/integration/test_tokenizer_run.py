"""From `hymo tokenizer train` to text out of a run whose original tokenizer and data set have moved."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from hymo.cli import main
from hymo.core.config import HyMoConfig
from hymo.core.load import config_hash, derive_config, dump_config
from hymo.data import load_manifest, load_tokenizer, sample_paths
from hymo.inference.engine import Engine

TEXT = sample_paths()["train"]
PAGE = Path(__file__).parents[2] / "docs" / "tokenizer.md"


def words(*items: object) -> list[str]:
    return [str(item) for item in items]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("trained") / "bpe"
    assert main(words("tokenizer", "train", TEXT, "--out", out, "--vocab-size", 700)) == 0
    return out


def test_training_twice_gives_the_same_files(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = words("tokenizer", "train", TEXT, "--out", tmp_path / "again", "--vocab-size", 700, "--json")
    assert main(arguments) == 0
    report = json.loads(capsys.readouterr().out)
    for name in ("tokenizer.json", "report.json"):
        assert (tmp_path / "again" / name).read_bytes() == (trained / name).read_bytes()
    assert report == json.loads((trained / "report.json").read_text())
    assert report["fingerprint"] == load_tokenizer(trained).fingerprint()
    assert main(arguments) == 2  # is there already
    assert main([*arguments, "--overwrite"]) == 0


def test_stats_are_those_of_the_data_set(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "data"
    assert main(words("data", "prepare", TEXT, "--out", data, "--tokenizer", trained)) == 0
    capsys.readouterr()
    assert main(words("tokenizer", "stats", trained, TEXT, "--json")) == 0
    stats = json.loads(capsys.readouterr().out)
    manifest = load_manifest(data)
    assert manifest.tokenizer_fingerprint == stats["fingerprint"]
    # The data set counts bos and eos, two a document, and holds each document once.
    splits = manifest.splits.values()
    assert manifest.duplicates == 0
    assert stats["total"]["documents"] == sum(split.documents for split in splits)
    assert stats["total"]["bytes"] == sum(split.bytes for split in splits)
    assert stats["total"]["tokens"] == sum(split.tokens - 2 * split.documents for split in splits)
    assert main(words("tokenizer", "stats", "byte", TEXT)) == 0
    assert capsys.readouterr().out.splitlines()[-1].split()[-1] == "1.000"


def test_a_run_works_where_the_original_is_not(
    trained: Path, small: HyMoConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    original = Path(shutil.copytree(trained, tmp_path / "original"))
    data = tmp_path / "data"
    held_out = sample_paths()["validation"]
    prepare = words("data", "prepare", TEXT, "--out", data, "--tokenizer", original, "--validation", held_out)
    assert main(prepare) == 0
    config = derive_config(
        small, model={"vocab_size": 700}, run={"data": str(data), "tokenizer": str(original), "name": "bpe"}
    )
    assert config_hash(config) == config_hash(derive_config(config, run={"tokenizer": "elsewhere"}))
    (tmp_path / "config.yaml").write_text(dump_config(config))
    assert main(words("train", tmp_path / "config.yaml")) == 0
    run = Path(config.run.output_dir) / "bpe"
    assert (run / "tokenizer.json").read_bytes() == (original / "tokenizer.json").read_bytes()
    fingerprint = load_tokenizer(original).fingerprint()
    shutil.rmtree(original)
    moved = run.rename(tmp_path / "moved")

    checkpoint = moved / "checkpoints" / "step-00000012"
    for place in (moved, checkpoint):
        assert Engine.from_checkpoint(place).tokenizer.fingerprint() == fingerprint
        assert main(words("generate", place, "The database", "--max-new-tokens", 3)) == 0
        assert main(words("eval", place, "--max-bytes", 2000)) == 0
    assert main(words("replay", moved, "--step", 3)) == 0
    shutil.rmtree(checkpoint)
    assert main(words("train", "--resume", moved)) == 0  # from step 6
    assert checkpoint.is_dir()

    # Alone, a checkpoint lacks it; a copy beside its configuration is enough.
    alone = Path(shutil.copytree(checkpoint, tmp_path / "step-00000012"))
    capsys.readouterr()
    assert main(words("generate", alone, "x")) == 2
    assert "no such file or folder" in capsys.readouterr().err
    shutil.copy(moved / "tokenizer.json", alone)
    assert main(words("generate", alone, "x", "--max-new-tokens", 2)) == 0

    # Another tokenizer is not taken for the run's.
    (moved / "tokenizer.json").unlink()
    assert main(words("generate", moved, "x")) == 2


def test_the_commands_of_the_page_run(small: HyMoConfig, tmp_path: Path) -> None:
    config = derive_config(small, model={"vocab_size": 600}, scheduler={"total_steps": 2})
    (tmp_path / "small.yaml").write_text(dump_config(config))
    (tmp_path / "corpus").mkdir()
    for path in sample_paths().values():
        shutil.copy(path, tmp_path / "corpus")
    names = {
        "CORPUS": tmp_path / "corpus",
        "TOKENIZER": tmp_path / "tokenizer",
        "HELD_OUT": sample_paths()["validation"],
        "DATA": tmp_path / "data",
        "hymo_small": tmp_path / "small.yaml",
        "16384": 600,  # the packaged text is too short for more than a few thousand
    }
    block = re.search(r"```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert block is not None
    install, *commands = block[1].splitlines()
    assert install == "pip install 'hymo[data]'"
    assert len(commands) == 4
    for command in commands:
        hymo, *rest = re.sub("|".join(names), lambda found: str(names[found[0]]), command).split()
        assert hymo == "hymo"
        assert main(rest) == 0, command
