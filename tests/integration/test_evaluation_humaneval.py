"""pass@k is the share of subsets with a passing sample; no verdict is forged; samples go on where they ended."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import asdict, replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hymo.cli.app import main
from hymo.core.errors import DataError, UsageError
from hymo.evaluation.code_execution import Verdict, judge
from hymo.evaluation.execution_values import NotPlainError, decode, encode
from hymo.evaluation.humaneval import (
    PROBLEMS,
    STOP_STRINGS,
    Problem,
    load_problems,
    pass_at_k,
    run_humaneval,
    verify_problems,
)
from hymo.evaluation.humaneval_suite import HumanEvalRunner
from hymo.evaluation.sandbox import Limits, SandboxError
from hymo.inference import Engine, Generation, Sampling

LIMITS = Limits(cpu_seconds=1, wall_seconds=10, memory_bytes=96 << 20)
PROMPT = 'def add(a, b):\n    """Sum of two numbers."""\n'
TEST = "def check(candidate):\n    assert candidate(1, 2) == 3\n    assert candidate([1], [2]) == [1, 2]\n"


@pytest.mark.parametrize(("n", "k"), [(n, k) for n in range(1, 8) for k in range(1, n + 1)])
def test_pass_at_k_is_the_share_of_subsets(n: int, k: int) -> None:
    for c in range(n + 1):
        subsets = list(itertools.combinations([i < c for i in range(n)], k))
        assert math.isclose(pass_at_k(n, c, k), sum(map(any, subsets)) / len(subsets), abs_tol=1e-12)


def test_pass_at_k_of_impossible_numbers() -> None:
    for n, c, k in ((3, 4, 1), (3, -1, 1), (3, 1, 4), (3, 1, 0)):
        with pytest.raises(UsageError, match=f"pass@{k}"):
            pass_at_k(n, c, k)


def test_own_solutions_pass_and_others_do_not() -> None:
    problems = load_problems(PROBLEMS)
    verdicts = verify_problems(problems, LIMITS)
    assert all(verdict == Verdict(True, "passed", verdict.seconds) for verdict in verdicts.values())
    wrong = [replace(p, canonical_solution="    return None\n") for p in problems[:2]]
    wrong.append(replace(problems[2], canonical_solution="    return low\n"))
    assert not any(verdict.passed for verdict in verify_problems(wrong, LIMITS).values())


FORGERIES = {
    "exit": "import os\n    os._exit(0)",
    "exit at once": "return 0\nimport sys\nsys.exit(0)",
    "words": "print('passed', flush=True)\n    return 0\nprint('passed')",
    "equal to all": "return type('Any', (), {'__eq__': lambda a, b: True})()",
    "equal to all, a number": "return type('Any', (int,), {'__eq__': lambda a, b: True})(7)",
    "builtins": "return 0\nimport builtins, json, sys\nbuiltins.AssertionError = None\njson.dumps = lambda x: '{}'\n"
    "sys.modules['hymo.evaluation.execution_values'].encode = lambda x: {'int': '0x3'}",
    "answers of its own": "return 0\nimport os, struct\n"
    'for _ in range(9):\n    text = b\'{"passed": true, "token": ""}\'\n'
    "    os.write(4, struct.pack('!Q', len(text)) + text)",
    "no answer": "return 0\nimport os, struct\nos.write(4, struct.pack('!Q', 1 << 60))",
    "verdict": "return 0\nimport os\n"
    'for number in range(3, 64):\n    try: os.write(number, b\'{"passed": true, "token": ""}\')\n'
    "    except OSError: pass",
    "closed": "import os\n    os.closerange(0, 64)\n    return 3",
    "ends loops": "raise StopIteration",
    "exits the tests": "raise SystemExit(0)",
    "kills": "import os\n    os.kill(os.getppid(), 9)\n    os.kill(-1, 9)\n    return 0",
    "at exit": "return 0\nimport atexit, os\natexit.register(os._exit, 0)",
    "child": "import os\n    if os.fork():\n        os._exit(0)\n    return 3",
    "thread": "import os, threading\n    threading.Timer(0.01, os._exit, (0,)).start()\n    while True: pass",
    "tests of its own": "return 0\ndef check(candidate): pass",
    "frames": "import sys\n    for frame in sys._current_frames().values():\n"
    "        frame.f_globals['check'] = print\n    return 0",
    "recursion": "import sys\n    sys.setrecursionlimit(1 << 30)\n    x = []\n    for _ in range(10**6): x = [x]\n"
    "    return repr(x)",
}


def test_no_verdict_is_forged() -> None:
    problems = [Problem(name, PROMPT, "add", f"    {body}\n", TEST) for name, body in FORGERIES.items()]
    verdicts = verify_problems(problems, LIMITS, workers=4)
    assert {name: verdict.result for name, verdict in verdicts.items() if verdict.passed} == {}
    assert all(verdict.result not in ("", "passed") for verdict in verdicts.values())


def test_a_right_answer_passes_whatever_else_its_process_does() -> None:
    loud = "    print('x' * 1000)\n    return a + b\nimport builtins\nbuiltins.print = None\n"
    for body in ("    return a + b\n", loud):
        assert judge(PROMPT, body, TEST, "add", LIMITS).passed == (body != loud)
    assert judge(PROMPT, "    print('x')\n    return a + b\nprint('passed')\n", TEST, "add", LIMITS).passed


def test_exceptions_and_iterators_cross() -> None:
    prompt = 'def f(x):\n    """Something."""\n'
    test = (
        "def check(candidate):\n    try:\n        candidate(-1)\n    except ValueError as error:\n"
        "        assert str(error) == 'negative'\n    else:\n        raise AssertionError\n"
        "    assert list(candidate(3)) == [0, 1, 2]\n    assert f(0) is None\n"
    )
    body = "    if x < 0: raise ValueError('negative')\n    return (i for i in range(x)) if x else None\n"
    assert judge(prompt, body, test, "f", LIMITS) == Verdict(True, "passed", pytest.approx(2, abs=2))


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_subnormal=False)
    | st.text(st.characters())
    | st.binary()
    | st.complex_numbers(allow_nan=False, allow_subnormal=False)
    | st.fractions()
    | st.decimals(allow_nan=False),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=20,
)


@given(plain)
@settings(max_examples=40, deadline=None)
def test_plain_values_cross_unchanged(value: Any) -> None:
    crossed = decode(json.loads(json.dumps(encode(value))))
    assert (crossed, type(crossed)) == (value, type(value))


def test_other_values() -> None:
    for value in ({1, 2}, frozenset({(1,)}), range(3, 9, 2), bytearray(b"x"), 1 << 70, Fraction(1, 3), Decimal("0.1")):
        crossed = decode(json.loads(json.dumps(encode(value))))
        assert (crossed, type(crossed)) == (value, type(value))
    assert type(decode(encode(type("Own", (int,), {})(3)))) is int
    for strange in (object(), print, type, [lambda: 0]):
        with pytest.raises(NotPlainError):
            encode(strange)
    for forged in ([1], {}, {"list": [], "set": []}, {"object": 1}):
        with pytest.raises(ValueError):  # noqa: PT011
            decode(forged)


def test_bad_files(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="openai/human-eval"):
        load_problems(tmp_path / "none.jsonl")
    path = tmp_path / "x.jsonl"
    first = PROBLEMS.read_text().splitlines()[0]
    for text, said in (
        ("", "holds no problem"),
        ("[]\n", "line 1: is no JSON object"),
        (first + "\n{}\n", "line 2: lacks 'task_id'"),
        (first + "\n" + first, "line 2: HyMo/0 is there twice"),
        (json.dumps({**json.loads(first), "prompt": 3}), "line 1: has a field that is no text"),
    ):
        path.write_text(text)
        with pytest.raises(DataError, match=said):
            load_problems(path)


def test_a_separator_of_unicode_inside_a_text_ends_no_line(tmp_path: Path) -> None:
    first = {**json.loads(PROBLEMS.read_text().splitlines()[0]), "prompt": "# a\u2028b\u0085c\n"}
    path = tmp_path / "x.jsonl"
    path.write_text(json.dumps(first, ensure_ascii=False) + "\r\n", encoding="utf-8", newline="")
    assert [problem.prompt for problem in load_problems(path)] == [first["prompt"]]


class Scripted(Engine):
    """An engine that writes what a table says, by prompt and by seed: half of the samples are right."""

    def __init__(self, engine: Engine, problems: list[Problem]) -> None:
        self.model, self.tokenizer = engine.model, engine.tokenizer
        self.solutions = {p.prompt: p.canonical_solution for p in problems}
        self.calls = 0

    def room(self, prompt: str | bytes) -> int:
        return 0 if "count_words" in str(prompt) else 1000

    def generate(
        self, prompt: Any, max_new_tokens: int = 256, sampling: Sampling | None = None, *rest: Any, **options: Any
    ) -> Generation:
        assert sampling is not None
        assert sampling.seed is not None
        assert options == {"stop": STOP_STRINGS}
        assert not rest
        self.calls += 1
        right = sampling.temperature == 0 or sampling.seed % 2
        text = self.solutions[prompt] if right else "    return None"
        ids = self.tokenizer.encode(text).tolist()[:max_new_tokens]
        return Generation(self.tokenizer.decode(ids), ids, [0.0] * len(ids), "stop")


@pytest.fixture(scope="module")
def engine(finished: Path) -> Engine:
    return Engine.from_checkpoint(finished)


def test_samples_are_counted_and_go_on(engine: Engine, tmp_path: Path) -> None:
    problems = [p for p in load_problems(PROBLEMS) if p.entry_point in ("count_words", "running_total", "is_balanced")]
    options: dict[str, Any] = {"k": (1, 2), "temperature": 0.5, "limits": LIMITS, "folder": tmp_path}
    scripted = Scripted(engine, problems)
    first = run_humaneval(scripted, problems, samples=2, **options)
    result = run_humaneval(scripted, problems, samples=3, **options)
    assert scripted.calls == 6  # the two problems that fit, three samples each, none drawn twice
    (file,) = tmp_path.iterdir()
    assert result.results == str(file)
    lines = [json.loads(line) for line in file.read_text().splitlines()][1:]
    counts = [sum(line["passed"] for line in lines if line["task_id"] == p.task_id) for p in problems]
    assert list(result.passed.values()) == counts
    assert 0 < sum(counts) < 6
    assert counts[1] == 0
    assert result.out_of_context == 3
    for k in (1, 2):
        rates = [pass_at_k(3, c, k) for c in counts]
        assert math.isclose(result.pass_at[k], sum(rates) / 3)
    assert all(first.passed[task] <= result.passed[task] for task in first.passed)

    file.write_bytes(file.read_bytes()[:-20])  # torn by a crash
    assert run_humaneval(scripted, problems, samples=3, **options) == result
    assert scripted.calls <= 7
    run_humaneval(scripted, problems, samples=2, seed=1, **options)
    assert len(list(tmp_path.iterdir())) == 2
    fresh = run_humaneval(scripted, list(reversed(problems)), samples=3, **{**options, "folder": None, "workers": 1})
    assert {task: fresh.passed[task] for task in result.passed} == result.passed


def test_as_a_task_of_a_suite(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    problems = load_problems(PROBLEMS)[:3]
    scripted = Scripted(engine, problems)
    rows = [asdict(p) | {"more": 1} for p in problems]
    data = SimpleNamespace(load=lambda name: {"openai/openai_humaneval": {"test": rows}}[name])
    runner = HumanEvalRunner("humaneval", cast("Any", None), cast("Any", SimpleNamespace(data=data, limit=2)))
    assert runner.missing() == []
    found = [runner.run(cast("Any", SimpleNamespace(lm=SimpleNamespace(engine=scripted))), seed) for seed in (1, 2)]
    for scores in found:
        assert scores.items.tolist() == [float(scores.facts["passed"][p.task_id]) for p in problems[:2]]
        assert scores.facts["settings"]["temperature"] == 0.2
    assert found[0].facts["settings"]["seed"] == 1
    with pytest.raises(UsageError, match="samples HyMo checkpoints only"):
        runner.run(cast("Any", SimpleNamespace(lm=object())), 1)

    rows.clear()
    empty = SimpleNamespace(data=SimpleNamespace(load=lambda name: {}), limit=None)
    nothing = HumanEvalRunner("humaneval", cast("Any", None), cast("Any", empty))
    assert [(m.task, m.what) for m in nothing.missing()] == [("humaneval", "openai/openai_humaneval")]

    def refuse() -> None:
        raise SandboxError("no walls")

    monkeypatch.setattr("hymo.evaluation.humaneval_suite.require_sandbox", refuse)
    assert [m.remedy for m in runner.missing()] == ["no walls"]


def test_wrong_requests(engine: Engine) -> None:
    problems = load_problems(PROBLEMS)
    for options, said in (
        ({"samples": 2}, "temperature: 0 gives 2 equal samples"),
        ({"k": (2,)}, "k: .2. must be 1 to samples"),
        ({"samples": 0}, "samples: must be at least 1"),
        ({"workers": 0}, "workers: must be at least 1"),
    ):
        with pytest.raises(UsageError, match=said):
            run_humaneval(engine, problems, **options)


def test_command(finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import shutil

    run = shutil.copytree(finished, tmp_path / "run")
    words = ["humaneval", "run", str(run), "--limit", "2", "--max-new-tokens", "20"]
    assert main([*words, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["pass_at"] == {"1": 0.0}
    assert facts["out_of_context"] + facts["cut"] <= 2
    assert Path(facts["results"]).parent == run / "eval"
    assert main(words) == 0
    assert "pass@1" in capsys.readouterr().out
    assert main([*words, "--samples", "2"]) == 2
    assert "equal samples" in capsys.readouterr().err
    assert main(["humaneval", "verify"]) == 0
    assert "6 of 6" in capsys.readouterr().out
    bad = tmp_path / "bad.jsonl"
    bad.write_text(json.dumps({**json.loads(PROBLEMS.read_text().splitlines()[0]), "canonical_solution": "    pass\n"}))
    assert main(["humaneval", "verify", "--problems", str(bad)]) == 1
    assert "AssertionError" in capsys.readouterr().out
