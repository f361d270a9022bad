"""`hymo eval --tasks`, `--suite` and `hf:`: what is refused before any work, and what identifies a result."""

from __future__ import annotations

import json
import re
import shutil
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
from hymo.cli.eval_tasks import _by_model
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
    (folder / "bad" / "bad.yaml").write_text((folder / "tasks" / "endings.yaml").read_text().replace("label", "nope"))
    broken = (folder / "bad" / "bad.yaml").read_text().replace("task: endings", "task: broken")
    (folder / "bad" / "broken.yaml").write_text(broken.replace("test_split: test", "test_split: nowhere"))
    write_rows(folder / "bad" / "endings.jsonl", [{"ctx": "a", "endings": ["b", "c"], "label": 0}] * 2)
    (folder / "result.json").write_text('{"suite": "other", "subject": {}, "tasks": {}}')
    (folder / "empty").mkdir()
    return {
        "RUN": str(shutil.copytree(finished, folder / "run")),
        "TASKS": str(folder / "tasks"),
        "UNSAFE": str(folder / "unsafe"),
        "CRUX": str(Path(lm_eval.tasks.__file__).parent / "cruxeval"),
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
    "RUN --tasks words --include-path TASKS --num-fewshot 99": "task 'words': 99 examples asked for, there are 12",
    "RUN --tasks endings --include-path TASKS --num-fewshot 9": "there are 8 to draw from",
    "RUN --tasks endings --include-path TASKS --mirror NONE": "--mirror",
    "RUN --tasks code --include-path UNSAFE": "without a sandbox",
    "RUN --tasks cruxeval_output --include-path CRUX": "without a sandbox",
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


def test_every_definition_of_the_harness_that_executes_texts_is_known() -> None:
    """A new version of the harness with another such call fails here, and is then to be looked at."""
    root = Path(lm_eval.tasks.__file__).parent
    call = re.compile(r"(?<![\w.])(?<!def )(exec|eval|parse_expr|sympify)\(")
    found = {file.parent for file in root.rglob("*.py") if call.search(file.read_text(encoding="utf-8"))}
    assert {str(folder.relative_to(root)) for folder in found} == {"cruxeval", "longproc", "score/math"}
    named = re.compile(r"^task: (\S+)$", re.MULTILINE)
    files = [*(root / "cruxeval").iterdir(), *(root / "longproc").glob("countdown*"), *(root / "score/math").iterdir()]
    names = [name for file in files if file.suffix == ".yaml" for name in named.findall(file.read_text("utf-8"))]
    assert len(names) > 15
    assert all(name.startswith(tasks._UNMARKED) for name in names)


def test_the_suites_folders_hold_the_whole_definitions() -> None:
    whole: Any = SimpleNamespace(task_index=tasks._harness_index())
    for name, item in load_suite("design").tasks.items():
        if item.runner == "harness":
            folder = Path(lm_eval.tasks.__file__).parent / item.definitions
            own = list(tasks.definitions(tasks.task_manager([item.task], folder), item.task))
            assert own == list(tasks.definitions(whole, item.task))
            assert len(own) == (57 if name == "mmlu" else 1)


def test_items_without_an_answer_are_told_of_once(places: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    words = ["eval", places["RUN"], "--include-path", places["BAD"], "--limit", "2"]
    assert main([*words, "--tasks", "endings"]) == 0
    assert capsys.readouterr().err.count("warning: lm-evaluation-harness: Label index") == 1
    assert main([*words, "--tasks", "broken"]) == 1
    err = capsys.readouterr().err
    assert err.startswith("error: tasks broken: definition and data do not fit: ")
    assert "Traceback" not in err


def test_a_suite_of_ones_own_with_a_runner_of_ones_own(
    places: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "runner_of_my_own.py").write_text(
        "import numpy as np\nfrom hymo.evaluation.suite_runners import Scores\n\n"
        "class Fixed:\n"
        "    def __init__(self, limit):\n        self.limit = limit\n"
        "    def missing(self):\n        return []\n"
        "    def check(self, subject):\n        pass\n"
        "    def run(self, subject, seed):\n"
        "        return Scores(np.ones(self.limit), {'seed': seed, 'step': subject.facts['step']})\n\n"
        "def make(name, item, place):\n    return Fixed(place.limit)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "mine.yaml").write_text(
        "name: mine\nseeds: [4, 5]\nconfidence: 0.9\ntasks:\n"
        "  words: {title: Words, task: words, metric: 'acc,none', shots: 3, seed_changes: examples, chance: 25}\n"
        "  own: {title: Own, runner: 'runner_of_my_own:make', seed_changes: all, chance: 50, target: 60}\n"
        "decision: [{at_least: 1, verdict: good}, {at_least: 0, verdict: bad}]\n"
    )
    words = ["eval", places["RUN"], "--suite", str(tmp_path / "mine.yaml"), "--include-path", places["TASKS"]]
    assert main([*words, "--limit", "6", "--out", str(tmp_path / "out"), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result == json.loads((tmp_path / "out" / "step-00000012-suite-mine-limit-6.json").read_text())
    assert (result["targets_met"], result["verdict"], result["not_run"]) == (["own"], "good", [])
    assert result["tasks"]["own"]["facts"] == [{"seed": 4, "step": 12}, {"seed": 5, "step": 12}]
    drawn = result["tasks"]["words"]
    assert (drawn["seeds"], len(drawn["scores"]), drawn["items"], drawn["chance"]) == ([4, 5], 2, 6, 25)
    assert [run["shots"] for run in drawn["facts"]] == [3, 3]
    assert main([*words, "--metric"]) == 2
    text = (tmp_path / "mine.yaml").read_text()
    (tmp_path / "mine.yaml").write_text(text.replace("acc,none", "accuracy"))
    assert main([*words, "--limit", "6", "--out", str(tmp_path / "out")]) == 2
    assert "no metric 'accuracy'. It has acc,none, acc_norm,none" in capsys.readouterr().err


def test_checkpoints_of_one_name_are_compared_side_by_side() -> None:
    models = ["runs/a/step-00000400", "runs/b/step-00000400", "hf:org/small"]
    named = _by_model([{"subject": {"model": model}} for model in models])
    assert list(named) == ["step-00000400", "runs/b/step-00000400", "small"]
    assert [result["subject"]["model"] for result in named.values()] == models


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
    assert re.search(r"configuration abstract_algebra \(.*\) and 55 more: missing\. Fetch it", err)
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
