"""`hymo eval --tasks`, `--suite` and `hf:`: what is refused before any work, and what identifies a result."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import datasets
import lm_eval.tasks
import pytest
import torch

import hymo.evaluation.subject
from evaluation_fixtures import block_sockets, write_mirror, write_rows, write_tasks
from hymo.cli import main
from hymo.data import ByteTokenizer
from hymo.evaluation import tasks
from hymo.evaluation.hashes import weights_hash
from hymo.evaluation.suite import load_suite
from hymo.models.checkpoint import load_model
from interop_helpers import save


@pytest.fixture(scope="module", autouse=True)
def _offline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        block_sockets(patch)
        patch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path_factory.mktemp("cache"))
        yield


@pytest.fixture(scope="module")
def places(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("places")
    (folder / "tasks").mkdir()
    write_tasks(folder / "tasks", count=8, problems=2)
    (folder / "unsafe").mkdir()
    (folder / "unsafe" / "code.yaml").write_text("task: code\ndataset_path: json\nunsafe_code: true\n")
    (folder / "bad").mkdir()
    (folder / "bad" / "bad.yaml").write_text((folder / "tasks" / "endings.yaml").read_text().replace("ctx", "nope"))
    write_rows(folder / "bad" / "endings.jsonl", [{"ctx": "a", "endings": ["b", "c"], "label": 7}])
    (folder / "result.json").write_text('{"suite": "other", "subject": {}, "tasks": {}}')
    (folder / "empty").mkdir()
    return {
        "RUN": str(finished),
        "TASKS": str(folder / "tasks"),
        "UNSAFE": str(folder / "unsafe"),
        "BAD": str(folder / "bad"),
        "RESULT": str(folder / "result.json"),
        "EMPTY": str(folder / "empty"),
        "NONE": str(folder / "none"),
    }


WRONG = {
    "RUN --tasks endings --suite design": "--tasks and --suite",
    "RUN --tasks endings --stride 3": "--stride",
    "RUN --tasks , --include-path TASKS": "names none",
    "RUN --limit 3": "--limit: belongs to --tasks or --suite",
    "RUN --mirror EMPTY": "--mirror",
    "RUN --num-fewshot 3": "--num-fewshot",
    "RUN --suite design --seed 3": "--seed: belongs to --tasks",
    "RUN --skip mmlu": "--skip",
    "RUN --download": "--download",
    "RUN --trust-remote-code": "--trust-remote-code",
    "hf:EMPTY --stride 3 --data NONE": "--stride",
    "hf:EMPTY": "--data DIR",
    "hf:EMPTY --data NONE": "NONE",
    "hf:EMPTY --tasks endings --include-path TASKS": "hf:EMPTY: cannot be loaded",
    "hf:nobody/nothing --tasks endings --include-path TASKS": "hf download nobody/nothing",
    "NONE --tasks endings --include-path TASKS": "NONE: no such folder",
    "RUN --tasks endigns --include-path TASKS": "did you mean 'endings'",
    "RUN --tasks endings --include-path NONE": "NONE: no such folder",
    "RUN --tasks endings --include-path TASKS --limit 0": "--limit",
    "RUN --tasks endings --include-path TASKS --num-fewshot -1": "--num-fewshot",
    "RUN --tasks endings --include-path TASKS --batch-size 0": "--batch-size",
    "RUN --tasks endings --include-path TASKS --mirror NONE": "--mirror",
    "RUN --tasks code --include-path UNSAFE": "without a sandbox",
    "RUN --suite nope": "suite 'nope'",
    "RUN --suite RESULT": "RESULT",
    "RUN --suite design --skip mlu": "did you mean 'mmlu'",
    "RUN --suite design --compare RESULT": "it is of suite other",
    "RUN --suite design --compare NONE": "no result of suite design",
}


@pytest.mark.parametrize("line", WRONG)
def test_wrong_requests_end_with_2_before_a_model_is_loaded(
    line: str, places: dict[str, str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a model was loaded")

    monkeypatch.setattr(hymo.evaluation.subject, "load_model", refuse)

    def filled(text: str) -> str:
        for name, place in places.items():
            text = text.replace(name, place)
        return text

    assert main(["eval", *filled(line).split()]) == 2
    shown = capsys.readouterr()
    assert filled(WRONG[line]) in shown.err
    assert shown.out == ""


def test_the_suites_folders_hold_the_whole_definitions() -> None:
    whole: Any = SimpleNamespace(task_index=tasks._harness_index())
    for name, item in load_suite("design").tasks.items():
        if item.runner == "harness":
            folder = Path(lm_eval.tasks.__file__).parent / item.definitions
            own = list(tasks.definitions(tasks.task_manager([item.task], folder), item.task))
            assert own == list(tasks.definitions(whole, item.task))
            assert len(own) == (57 if name == "mmlu" else 1)


def test_definitions_that_do_not_fit_their_data_end_with_1(
    places: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["eval", places["RUN"], "--tasks", "words", "--include-path", places["TASKS"], "--num-fewshot", "99"]
    assert main(words) == 1  # fewer examples than asked for
    assert "tasks words: definition and data do not fit" in capsys.readouterr().err


def test_a_suite_names_everything_that_is_missing_and_how_to_get_it(
    places: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hymo.evaluation.subject, "load_model", None)  # whoever calls it fails
    write_mirror(tmp_path, ["anatomy"])
    for folder in ("baber", "openai"):
        (tmp_path / folder).rename(tmp_path / f"not_{folder}")
    assert main(["eval", places["RUN"], "--suite", "design", "--mirror", str(tmp_path), "--data", places["NONE"]]) == 2
    err = capsys.readouterr().err
    lines = [line.split(":")[0].strip() for line in err.splitlines()[1:-1]]
    assert lines == ["mmlu", "gsm8k", "humaneval", "byte_perplexity", "piqa"]
    assert "configuration abstract_algebra and 55 more: missing" in err
    for path in ("cais/mmlu", "openai/gsm8k", "baber/piqa"):
        assert f"hf download {path} --repo-type dataset --local-dir {tmp_path}/{path}" in err
    assert places["NONE"] in err
    assert main(["eval", places["RUN"], "--suite", "design", "--skip", "mmlu,gsm8k,byte_perplexity,humaneval"]) == 2
    missing = capsys.readouterr().err
    names = ("Rowan/hellaswag", "allenai/ai2_arc", "baber/piqa", "allenai/winogrande", "allenai/sciq")
    assert all(f"--local-dir MIRROR/{name}" in missing for name in (*names, "EleutherAI/lambada_openai"))


def test_any_change_of_any_weight_changes_the_hash(finished: Path, tmp_path: Path) -> None:
    model, config, _ = load_model(finished)
    known = weights_hash(model)
    assert weights_hash(load_model(finished)[0]) == known
    hashes = {known}
    with torch.no_grad():
        for tensor in model.state_dict().values():
            flat = tensor.view(-1)
            before = flat[-1].clone()
            flat[-1] = (
                torch.nextafter(before.float(), torch.tensor(1e9)).to(flat.dtype) if before.is_floating_point() else 1
            )
            hashes.add(weights_hash(model))
            flat[-1] = before
        assert weights_hash(model) == known
        assert len(hashes) == 1 + len(model.state_dict())
        model.embed.weight[5, 3] += 1e-3
    changed = save(model, config, tmp_path, ByteTokenizer())
    assert weights_hash(load_model(changed)[0]) == weights_hash(model) != known


def test_results_hold_what_they_were_measured_with(
    places: dict[str, str], finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--tasks", "endings,words", "--include-path", places["TASKS"], "--limit", "3", "--out", str(tmp_path)]
    assert main(["eval", str(finished), *words, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts == json.loads((tmp_path / "step-00000012-tasks-endings+words-limit-3.json").read_text())
    model, config, manifest = load_model(finished)
    subject = facts["subject"]
    assert subject["checkpoint_hash"] == weights_hash(model)
    assert (subject["config_hash"], subject["step"]) == (manifest.config_hash, 12)
    assert subject["tokenizer_hash"] == ByteTokenizer().fingerprint() == manifest.tokenizer
    assert subject["context"] == config.model.max_seq_len
    assert set(facts) == {"subject", "harness_version", "seed", "limit", "tasks"}
    task = facts["tasks"]["words"]
    assert (task["items"], task["shots"], task["truncated"], task["shortened"]) == (3, 2, task["truncated"], 0)
    assert set(task["metrics"]["acc,none"]) == {"value", "stderr", "higher_is_better"}
    assert len(task["task_hash"]) == 64
    older = finished / "checkpoints" / "step-00000006"
    assert main(["eval", str(older), *words, "--json"]) == 0
    other = json.loads(capsys.readouterr().out)
    assert other["subject"]["checkpoint_hash"] != subject["checkpoint_hash"]
    assert other["tasks"]["words"]["task_hash"] == task["task_hash"]
