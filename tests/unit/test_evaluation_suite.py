"""Intervals against formulas and exact distributions; targets, verdicts and suite files."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lm_eval.api.metrics import mean_stderr, perplexity
from scipy import stats

from hymo.core.errors import ConfigError, UsageError
from hymo.evaluation.humaneval_suite import HumanEvalRunner
from hymo.evaluation.report import markdown, summary_rows
from hymo.evaluation.statistics import bootstrap_interval, seed_interval, standard_error
from hymo.evaluation.subject import Subject
from hymo.evaluation.suite import STATISTICS, Suite, judge, load_suite, run_suite
from hymo.evaluation.suite_runners import Place, Scores, SuiteItem
from hymo.evaluation.task_data import Missing, TaskData

DESIGN = load_suite("design")


def test_interval_over_seeds_by_hand() -> None:
    # mean 30, standard deviation sqrt(2.5), t of four degrees of freedom 2.7764
    low, high = seed_interval([28, 29, 30, 31, 32])
    assert (low, high) == pytest.approx((30 - 2.7764451 * math.sqrt(2.5 / 5), 30 + 2.7764451 * math.sqrt(2.5 / 5)))
    with pytest.raises(ValueError, match="two or more"):
        seed_interval([1.0])


def test_bootstrap_of_hits_is_binomial() -> None:
    items = np.array([1.0] * 30 + [0.0] * 70)
    low, high = bootstrap_interval(items, STATISTICS["percent"])
    assert (low, high) == pytest.approx(tuple(stats.binom.ppf((0.025, 0.975), 100, 0.3)), abs=1.01)
    assert bootstrap_interval(items, STATISTICS["percent"]) == (low, high)
    assert bootstrap_interval(np.zeros(9), STATISTICS["percent"]) == (0, 0)


def test_byte_perplexity_weighs_documents_by_their_bytes() -> None:
    documents = np.array([(10.0, 20), (300.0, 100)])
    (value,) = STATISTICS["byte_perplexity"](documents[None])
    assert value == pytest.approx(math.exp(310 / 120))
    low, high = bootstrap_interval(documents, STATISTICS["byte_perplexity"])
    assert (low, high) == pytest.approx((math.exp(0.5), math.exp(3.0)))  # either one twice


def test_standard_errors_are_the_harnesss() -> None:
    items = [1.0, 0.0, 0.0, 1.0, 1.0, 0.0, 1.0]
    assert standard_error(items, 4 / 7) == pytest.approx(mean_stderr(items))
    assert standard_error([1.0], 1.0) is None
    assert standard_error([("a", 1), ("b", 2)], 0.5) is None
    nats = list(np.random.default_rng(0).normal(-3, 0.5, 400))
    error = standard_error(nats, perplexity(nats), perplexity)
    assert error == pytest.approx(perplexity(nats) * 0.5 / 20, rel=0.2)  # delta method


def item(**fields: Any) -> SuiteItem:
    return SuiteItem(**{"title": "t", "chance": 25.0, "target": 26.0, **fields})


def hits(share: float, n: int) -> Any:
    return np.arange(n) < share * n


def test_a_target_is_met_only_beyond_target_and_chance() -> None:
    def met(score: float, n: int, seeds: int = 1, **fields: Any) -> Any:
        judged = judge(item(**fields), list(range(seeds)), [hits(score, n).astype(float)] * seeds, 0.95)
        assert judged["low"] <= judged["value"] <= judged["high"]
        return judged["met"]

    assert met(0.30, 1_500)
    assert not met(0.30, 100)
    assert not met(0.30, 100, seeds=5)  # five seeds that agree are no evidence on few items
    assert not met(0.26, 1_500)
    assert not met(0.30, 1_500, target=20.0, chance=31.0)
    assert met(0.30, 1_500, target=20.0, chance=25.0)
    assert met(0.30, 1_500, target=None) is None
    spread = [hits(share, 1_500).astype(float) for share in (0.2, 0.3, 0.4)]
    judged = judge(item(), [0, 1, 2], spread, 0.95)
    assert judged["value"] == pytest.approx(30)
    assert (
        (judged["low"], judged["high"])
        == judged["interval_over_seeds"]
        == pytest.approx((30 - 24.84, 30 + 24.84), 1e-3)
    )
    documents = np.array([(50.0, 100.0)] * 50)
    perplexity_item = {"score": "byte_perplexity", "lower_is_better": True, "chance": 256.0}
    for target, expected in ((1.7, True), (1.6, False)):  # exp(0.5) = 1.649
        assert judge(item(**perplexity_item, target=target), [0], [documents], 0.95)["met"] is expected


class _Fixed:
    """A runner that knows its scores."""

    def __init__(self, score: float) -> None:
        self.score, self.asked = score, []

    def missing(self) -> list[Missing]:
        return []

    def check(self, subject: Any) -> None:
        pass

    def run(self, subject: Any, seed: int) -> Scores:
        self.asked.append(seed)
        return Scores(hits(self.score, 400).astype(float), {"truncated": 2})


class _Documents(_Fixed):
    def run(self, subject: Any, seed: int) -> Scores:
        return Scores(np.array([(self.score, 1.0)] * 8), {"data": "text"})


class _Subject:
    facts = dict.fromkeys(("model", "checkpoint_hash", "config_hash", "tokenizer_hash", "dtype", "device", "bos"), "x")
    facts |= {"context": "64", "step": "7"}


@pytest.mark.parametrize(
    ("good", "verdict"), [(6, "are met"), (5, "in part"), (4, "in part"), (3, "are not met"), (0, "are not met")]
)
def test_the_decision_rule(good: int, verdict: str) -> None:
    runners: dict[str, Any] = {}
    for index, name in enumerate(DESIGN.gates):
        fixed = _Documents if name == "byte_perplexity" else _Fixed
        scores = (0.5, 0.6) if fixed is _Documents else (0.5, 0.01)
        runners[name] = fixed(scores[index >= good])
    result = run_suite(DESIGN, runners, _Subject())  # type: ignore[arg-type]
    assert (len(result["targets_met"]), result["targets"]) == (good, 6)
    assert result["verdict"].endswith(verdict)
    assert runners["arc_challenge"].asked == [0, 1, 2, 3, 4]
    assert runners["hellaswag"].asked == [0]
    assert result["not_run"] == ["arc_easy", "piqa", "winogrande", "sciq", "lambada"]


def test_a_task_that_cannot_run_the_model_is_refused_before_the_others_run() -> None:
    first = _Fixed(0.5)
    place = Place(TaskData(), lambda: ([], {}))
    runners = {"hellaswag": first, "humaneval": HumanEvalRunner("humaneval", DESIGN.tasks["humaneval"], place)}
    with pytest.raises(UsageError, match="--skip humaneval"):
        run_suite(DESIGN, runners, Subject(None, "hf:x", _Subject.facts))  # type: ignore[arg-type]
    assert first.asked == []


def test_the_table_has_targets_references_and_other_models() -> None:
    result = run_suite(DESIGN, {"hellaswag": _Fixed(0.5)}, _Subject())  # type: ignore[arg-type]
    result |= {"harness_version": "0", "limit": None}
    columns, rows = summary_rows(DESIGN, result, {"other": result})
    by_task = {row[0]: dict(zip(columns, row, strict=True)) for row in rows}
    swag = by_task["HellaSwag"]
    assert (swag["target"], swag["met"], swag["chance"], swag["Pythia-1B, published"]) == (">= 40", "yes", "25", "47.2")
    assert swag["other, measured"] == swag["this model"] == "50 (45 to 54.75)"
    assert by_task["MMLU"]["met"] == "not run"
    assert by_task["byte perplexity, held-out text"]["target"] == "<= 1.72"
    text = markdown(DESIGN, result, {"other": result})
    assert text.startswith(
        "# Suite design: x, step 7\n\n1 of 6 targets met: the targets of the design are not met. Not run"
    )
    assert all(reference.source in text for reference in DESIGN.references.values())
    assert "sit at chance" in text
    assert "hellaswag 2" in text  # cut on the left
    assert "trial" not in text
    assert "first 3 items" in markdown(DESIGN, {**result, "limit": 3}, {})


def test_the_design_suite_is_what_the_design_says() -> None:
    targets = {name: DESIGN.tasks[name].target for name in DESIGN.gates}
    assert targets == {
        "hellaswag": 40,
        "arc_challenge": 25,
        "mmlu": 26,
        "gsm8k": 5,
        "humaneval": 8,
        "byte_perplexity": 1.72,
    }
    assert [name for name, item in DESIGN.tasks.items() if item.seed_changes] == [
        "arc_challenge",
        "mmlu",
        "gsm8k",
        "humaneval",
    ]
    assert len(DESIGN.seeds) == 5
    assert set(DESIGN.tasks) - set(DESIGN.gates) == {"arc_easy", "piqa", "winogrande", "sciq", "lambada"}
    assert all(set(reference.figures) <= set(DESIGN.tasks) for reference in DESIGN.references.values())


def test_suite_files(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    text = (
        "name: mine\nseeds: [1, 2]\nconfidence: 0.9\ntasks:\n  a: {title: A, task: a, metric: 'acc,none', chance: 50}\n"
        "decision: [{at_least: 0, verdict: done}]\n"
    )
    file.write_text(text)
    suite = load_suite(str(file))
    assert isinstance(suite, Suite)
    assert (suite.gates, suite.verdict(0), suite.tasks["a"].runner) == ([], "done", "harness")
    file.write_text(text.replace("chance: 50", "chanse: 50"))
    with pytest.raises(ConfigError, match=r"tasks\.a\.chan"):
        load_suite(str(file))
    file.write_text(text.replace("at_least: 0", "at_least: 1"))
    with pytest.raises(ConfigError, match=r"decision: .*at_least: 0"):  # not after hours of evaluation
        load_suite(str(file))
    with pytest.raises(UsageError, match="did you mean 'design'"):
        load_suite("desing")
