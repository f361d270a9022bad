"""The guide's commands run, in order and offline; the official tasks on a mirror with the original fields."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import datasets
import lm_eval.tasks
import pytest
import torch
import transformers.dynamic_module_utils
from lm_eval.api.instance import Instance

from evaluation_fixtures import block_sockets, write_mirror, write_tasks
from hymo.cli import main
from hymo.core.load import load_config
from hymo.evaluation.hf_model import hf_subject
from hymo.evaluation.subject import checkpoint_subject
from hymo.evaluation.tasks import definitions, task_manager

PAGE = (Path(__file__).parents[2] / "docs" / "evaluate.md").read_text(encoding="utf-8")
DEFINITIONS = Path(lm_eval.tasks.__file__).parent


def subjects() -> list[str]:
    """The configurations of MMLU that the official definitions name."""
    folder = DEFINITIONS / "mmlu" / "default"
    return [entry["dataset_name"] for entry in definitions(task_manager(["mmlu"], folder), "mmlu")]


def read(path: str) -> Any:
    return json.loads(Path(path).read_text(encoding="utf-8"))


def test_the_guide_runs(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    block_sockets(monkeypatch)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(transformers.dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.syspath_prepend(str(tmp_path / "modules"))
    shutil.copytree(finished, "runs/tiny")
    data = load_config("runs/tiny/config.yaml").run.data
    assert data is not None
    shutil.copytree(data, "runs/tiny/data")
    write_mirror(Path("mirror"), subjects())
    Path("my_tasks").mkdir()
    write_tasks(Path("my_tasks"), count=12, problems=2)
    (definition,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    Path("my_tasks/endings.yaml").write_text(definition)

    commands = [line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]
    assert len(commands) == 10
    shown = {}
    for command in commands:
        hymo, *words = shlex.split(command)
        assert hymo == "hymo"
        assert main(words) == 0, (command, capsys.readouterr().err)
        shown[command] = capsys.readouterr().out

    kept = "runs/tiny/eval/step-00000012-"
    held_out = read(f"{kept}validation.json")
    tasks = read(f"{kept}tasks-endings+sums.json")
    hashes = ("checkpoint_hash", "config_hash")
    assert {name: tasks["subject"][name] for name in hashes} == {name: held_out[name] for name in hashes}
    assert tasks["subject"]["tokenizer_hash"] == held_out["tokenizer"]
    assert (tasks["seed"], tasks["harness_version"]) == (1234, "0.4.13")
    assert tasks["tasks"]["sums"]["members"] == ["sums_lengths", "sums_letters"]
    (drawn,) = (json.loads(shown[command]) for command in commands if "--json" in command)
    assert drawn == read(f"{kept}tasks-problems-shots-3-seed-7.json")
    assert (drawn["seed"], drawn["tasks"]["problems"]["shots"]) == (7, 3)

    whole = read(f"{kept}suite-design-skip-humaneval-limit-2.json")
    assert whole["not_run"] == ["humaneval"]
    assert (whole["tasks"]["mmlu"]["items"], len(whole["tasks"]["mmlu"]["scores"])) == (57, 5)
    assert len(whole["tasks"]["mmlu"]["facts"][0]["members"]) == 57
    assert "sit at chance" in shown[next(command for command in commands if "--suite" in command)]
    suite = read(f"{kept}suite-design-skip-mmlu+gsm8k+humaneval-limit-2.json")
    shots = {
        name: [run["shots"] for run in task["facts"]] for name, task in whole["tasks"].items() if "byte" not in name
    }
    assert shots == {
        "hellaswag": [0],
        "arc_challenge": [25] * 5,
        "mmlu": [5] * 5,
        "gsm8k": [5] * 5,
        **{name: [0] for name in ("arc_easy", "piqa", "winogrande", "sciq", "lambada")},
    }
    assert suite["tasks"]["byte_perplexity"]["facts"][0]["data_fingerprint"] == held_out["data_fingerprint"]
    markdown = Path(f"{kept}suite-design-skip-mmlu+gsm8k+humaneval-limit-2.md").read_text(encoding="utf-8")
    assert "my_model, measured" in markdown
    assert "| Pythia-1B, published |" in markdown

    other = read("results/suite-design-skip-mmlu+humaneval+byte_perplexity-limit-2.json")
    assert other["subject"]["bos"] == suite["subject"]["bos"]
    assert other["subject"]["tokenizer_hash"] != ""
    for name, task in other["tasks"].items():  # the export is the same model: same items, same answers
        same = whole["tasks"][name]
        for run, own in zip(task["facts"], same["facts"], strict=True):
            names = ("task_hash", "truncated", "shortened", "shots", "items", "version")
            assert {key: run[key] for key in names} == {key: own[key] for key in names}, name
        if not same["facts"][0]["truncated"]:  # a cut prompt keeps its bos here, not there
            assert task["scores"] == same["scores"], name

    pairs = [("The old man", " went home"), ("", "A"), ("Question: Who?\nAnswer:", " nobody at all"), ("x" * 40, "y")]
    requests = [Instance("loglikelihood", {}, pair, 0, ("", 0, 1)) for pair in pairs]
    cpu = torch.device("cpu")
    both = (
        checkpoint_subject(Path("runs/tiny"), cpu, batch_size=2),
        hf_subject("my_model", cpu, batch_size=3, trust_remote_code=True),
    )
    own, exported = (subject.lm.loglikelihood(requests) for subject in both)  # type: ignore[attr-defined]
    assert [greedy for _, greedy in own] == [greedy for _, greedy in exported]
    assert [nats for nats, _ in own] == pytest.approx([nats for nats, _ in exported], rel=1e-5)
    text = ["A text within the context, 'é' and all.".encode()]
    assert both[1].lm.score_documents(text) == pytest.approx(both[0].lm.score_documents(text), rel=1e-5)


def test_official_prompts_are_kept_on_a_mirror(tmp_path: Path) -> None:
    from hymo.evaluation.task_data import TaskData
    from hymo.evaluation.tasks import OpenTasks

    write_mirror(tmp_path, ["anatomy"])
    opened = {
        name: OpenTasks([name], TaskData(tmp_path), DEFINITIONS / folder, shots).tasks[name]
        for name, folder, shots in (("hellaswag", "hellaswag", 0), ("mmlu_anatomy", "mmlu/default", 2))
    }
    swag = opened["hellaswag"]
    swag.build_all_requests(limit=1)
    row = json.loads((tmp_path / "Rowan/hellaswag/validation.jsonl").read_text().split("\n")[0])
    context = f"Reading: {row['ctx_a']} Then"
    assert [instance.args[0] for instance in swag.instances] == [context] * 4
    assert [instance.args[1] for instance in swag.instances] == [
        " " + " ".join(end.replace("[step] ", "").split()) for end in row["endings"]
    ]
    examples = [json.loads(line) for line in (tmp_path / "cais/mmlu/anatomy/dev.jsonl").read_text().split("\n")[:5]]
    drawn = OpenTasks(["mmlu_anatomy"], TaskData(tmp_path), DEFINITIONS / "mmlu/default", 5, draw_examples=True)
    prompts = []
    for seed in (0, 1, 0):
        drawn.tasks["mmlu_anatomy"].set_fewshot_seed(seed)
        drawn.tasks["mmlu_anatomy"].build_all_requests(limit=1)
        prompts.append(drawn.tasks["mmlu_anatomy"].instances[0].args[0])
    assert prompts[0] == prompts[2] != prompts[1]
    assert all(example["question"] in prompt for example in examples for prompt in prompts)
    anatomy = opened["mmlu_anatomy"]
    anatomy.build_all_requests(limit=1)
    first, *_ = anatomy.instances
    assert first.args[0].startswith("The following are multiple choice questions (with answers) about anatomy.\n\n")
    for example in examples[:2]:
        assert f"{example['question']}\nA. {example['choices'][0]}\n" in first.args[0]
        assert f"\nAnswer: {'ABCD'[example['answer']]}\n\n" in first.args[0]
    assert (first.args[0].endswith("\nAnswer:"), first.args[1]) == (True, " A")
