"""The checkpoint inside the package: small, whole, and as good as its recipe says."""

from __future__ import annotations

import fnmatch
import gc
import json
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import hymo
from hymo.core.load import load_config
from hymo.data import ByteTokenizer, EvaluationWindows, open_split, prepare, sample_paths
from hymo.evaluation.perplexity import evaluate
from hymo.inference import Engine, Sampling
from hymo.inference.packaged import packaged_folder
from hymo.models.checkpoint import verify

FOLDER = packaged_folder()
RECIPE = json.loads((FOLDER / "recipe.json").read_text())


def test_it_is_whole_small_and_goes_into_the_wheel() -> None:
    manifest = verify(FOLDER)
    files = [path for path in FOLDER.iterdir() if path.is_file()]
    assert {path.name for path in files} == {*manifest.files, "manifest.json"}
    assert sum(path.stat().st_size for path in files) <= 6_000_000
    assert manifest.tokenizer == ByteTokenizer().fingerprint()
    assert manifest.commit == RECIPE["commit"]
    package = Path(hymo.__file__).parent
    project = tomllib.loads((package.parents[1] / "pyproject.toml").read_text())
    patterns = project["tool"]["setuptools"]["package-data"]["hymo"]
    for path in [*files, package / "inference" / "serving" / "playground.html"]:
        name = path.relative_to(package).as_posix()
        hidden = path.name.startswith(".")  # which a star does not match
        assert any(fnmatch.fnmatch(name, p) and (not hidden or Path(p).name.startswith(".")) for p in patterns), name


def test_it_names_no_place_of_the_machine_that_trained_it() -> None:
    config = load_config(FOLDER / "config.yaml")
    assert (config.run.data, config.run.output_dir, config.run.tokenizer) == (None, "runs", "byte")
    for path in FOLDER.iterdir():
        assert b"/home" not in path.read_bytes()
        assert b"/tmp" not in path.read_bytes()


def test_it_writes_words_and_its_drafts_are_often_right() -> None:
    engine = Engine.from_checkpoint("demo")
    result = engine.generate("The SQLite ", 100, Sampling(temperature=0), speculative=True)
    assert result.speculation is not None
    assert result.speculation.tokens_per_pass > 1.5
    vocabulary = set(sample_paths()["train"].read_text(encoding="utf-8").replace("\\n", " ").split())
    words = result.text.split()[:-1]
    assert sum(word in vocabulary for word in words) >= 0.9 * len(words) > 10


def test_a_small_model_takes_one_thread_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []
    monkeypatch.setattr("torch.set_num_threads", taken.append)
    engine = Engine.from_checkpoint("demo")
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    engine.settle()
    assert taken == []
    monkeypatch.delenv("OMP_NUM_THREADS")
    engine.settle()
    assert taken == [1]


def test_collections_pass_over_what_is_loaded_beside_a_gpu() -> None:
    gc.unfreeze()
    engine = Engine.from_checkpoint("demo")
    engine.settle()
    assert gc.get_freeze_count() == 0  # on a CPU nothing is to be gained
    before = len(gc.get_objects())
    weight = SimpleNamespace(device=torch.device("cuda"))
    engine.model = SimpleNamespace(embed=SimpleNamespace(weight=weight), parameters=list)  # type: ignore[assignment]
    try:
        engine.settle()
        assert gc.get_freeze_count() > 0.9 * before
        assert len(gc.get_objects()) < 0.1 * before
    finally:
        gc.unfreeze()


@pytest.mark.heavy
def test_the_held_out_figure_of_the_recipe(tmp_path: Path) -> None:
    paths, tokenizer = sample_paths(), ByteTokenizer()
    prepare([paths["train"]], tmp_path / "data", tokenizer, validation_inputs=[paths["validation"]])
    text = open_split(tmp_path / "data", "validation", tokenizer)
    windows = EvaluationWindows(text, 512, stride=256, max_bytes=RECIPE["heldout_bytes"], tokenizer=tokenizer)
    result = evaluate(Engine.from_checkpoint("demo").model, windows, 8, acceptance=True)
    assert result.bits_per_byte == pytest.approx(RECIPE["bits_per_byte"], abs=1e-3)
    assert result.acceptance == pytest.approx(RECIPE["acceptance"], abs=2e-3)
