"""HumanEval: how often a sampled function passes its tests (Chen et al., arXiv 2107.03374).

pass@k is the chance that at least one of k samples passes. From n samples of a problem of which c passed, its unbiased
estimate is 1 - C(n-c, k) / C(n, k), averaged over problems. A model continues the prompt up to the first stop string,
a new top-level statement; candidates are judged by `hymo.evaluation.code_execution`.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import json
import math
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from hymo.core.errors import DataError, UsageError
from hymo.core.files import write_bytes, writing
from hymo.evaluation.code_execution import Verdict, judge
from hymo.evaluation.sandbox import Limits, require_sandbox
from hymo.inference import Engine, Sampling

PROBLEMS = Path(__file__).with_name("problems.jsonl")
"""A few problems of the package's own, to try the machinery with; no measure of anything."""
STOP_STRINGS = ("\nclass", "\ndef", "\n#", "\nif", "\nprint")
"""Where a continuation of HumanEval ends."""
MOST_NEW_TOKENS = 512
"""Tokens of one continuation unless asked for another number."""
PROBLEM_FIELDS = ("task_id", "prompt", "entry_point", "canonical_solution", "test")


@dataclass(frozen=True)
class Problem:
    """One line of HumanEval's file, in its own fields."""

    task_id: str
    """Name of the problem."""
    prompt: str
    """Source up to the body of the function."""
    entry_point: str
    """Name of the function."""
    canonical_solution: str
    """A body that passes."""
    test: str
    """Source of `check(candidate)`."""


@dataclass(frozen=True)
class Sample:
    """One candidate and its verdict."""

    task_id: str
    """Problem."""
    sample: int
    """Number of the sample, from 0."""
    completion: str
    """What the model wrote, up to the stop string."""
    passed: bool
    """Whether it passed."""
    result: str
    """`passed`, or why not."""
    tokens: int = 0
    """Tokens generated."""
    finish_reason: str = ""
    """`stop`, `length`, or `context` where the prompt leaves no room for an answer."""


@dataclass(frozen=True)
class HumanEvalResult:
    """Figures of one evaluation."""

    pass_at: dict[int, float]
    """pass@k by k, 0 to 1."""
    standard_error: dict[int, float]
    """Of pass@k over problems; it does not count what another seed would change."""
    problems: int
    """Problems judged."""
    samples: int
    """Samples per problem."""
    passed: dict[str, int]
    """Samples that passed, by problem."""
    out_of_context: int
    """Samples whose prompt leaves no room in the model's context; they count as failed."""
    cut: int
    """Samples that reached the limit of new tokens."""
    settings: dict[str, Any] = field(default_factory=dict)
    """What the samples depend on."""
    results: str | None = None
    """File of the samples."""

    def to_dict(self) -> dict[str, Any]:
        """All figures by name."""
        facts = asdict(self)
        for name in ("pass_at", "standard_error"):
            facts[name] = {str(k): value for k, value in facts[name].items()}
        return facts


def pass_at_k(samples: int, passed: int, k: int) -> float:
    """Unbiased estimate of the chance that one of k samples passes.

    Args:
        samples: n drawn.
        passed: c of them that passed.
        k: 1 to n.

    Raises:
        UsageError: numbers out of range.
    """
    if not (0 <= passed <= samples and 1 <= k <= samples):
        raise UsageError(f"pass@{k}: needs at least {k} samples per problem, not {samples} of which {passed} passed.")
    return 1 - math.comb(samples - passed, k) / math.comb(samples, k)


def load_problems(path: str | Path) -> list[Problem]:
    """Read a problem file (.jsonl or .jsonl.gz) with HumanEval's fields.

    Raises:
        UsageError: no such file.
        DataError: a line without a field or with one that is no text, a name given twice, or no line.
    """
    path = Path(path)
    try:
        raw = path.read_bytes()
        text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode("utf-8")
    except FileNotFoundError:
        raise UsageError(
            f"{path}: no such file. HumanEval.jsonl.gz is in the repository openai/human-eval, folder data."
        ) from None
    except (OSError, EOFError, ValueError) as error:
        raise DataError(
            f"{path}: cannot be read ({error}). Give JSONL with HumanEval's fields, or that in gzip."
        ) from None
    problems: dict[str, Problem] = {}
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        try:
            record = json.loads(line)
            problem = Problem(**{name: record[name] for name in PROBLEM_FIELDS})
        except (ValueError, TypeError):
            raise DataError(f"{where}: is no JSON object. Give one problem per line.") from None
        except KeyError as error:
            raise DataError(f"{where}: lacks {error}. A problem has the fields {', '.join(PROBLEM_FIELDS)}.") from None
        if not all(isinstance(value, str) for value in asdict(problem).values()):
            raise DataError(f"{where}: has a field that is no text. All of {', '.join(PROBLEM_FIELDS)} are.")
        if problem.task_id in problems:
            raise DataError(f"{where}: {problem.task_id} is there twice. Give each problem a name of its own.")
        problems[problem.task_id] = problem
    if not problems:
        raise DataError(f"{path}: holds no problem. Give one per line.")
    return list(problems.values())


def run_humaneval(
    engine: Engine,
    problems: Sequence[Problem],
    *,
    samples: int = 1,
    k: Sequence[int] = (1,),
    temperature: float = 0.0,
    top_p: float = 1.0,
    seed: int = 0,
    max_new_tokens: int = MOST_NEW_TOKENS,
    workers: int = 2,
    limits: Limits | None = None,
    folder: Path | None = None,
    model_name: str = "",
    progress: Callable[[int, int], None] | None = None,
) -> HumanEvalResult:
    """Sample, judge and count.

    Sample i of a problem depends on the model, `seed`, the problem's name and i alone, so any order, number of workers
    and interruption gives the same.

    Args:
        engine: model and tokenizer.
        problems: what to solve.
        samples: n per problem.
        k: which pass@k to report; each at most n.
        temperature: 0 takes the most likely token, which allows one sample.
        top_p: as in `Sampling`.
        seed: of all samples.
        max_new_tokens: most tokens of a continuation; fewer where the context ends before.
        workers: candidates judged at once, beside the sampling.
        limits: of each candidate.
        folder: where samples are kept, in a file named after all that they depend on; those already there are not
            drawn again. None keeps nothing.
        model_name: what identifies the model's weights, for `folder`.
        progress: told after each sample how many of all are judged.

    Raises:
        UsageError: numbers that do not fit.
        SandboxError: no sandbox here; nothing was sampled.
    """
    limits = Limits() if limits is None else limits
    _check(problems, samples, k, temperature, max_new_tokens, workers)
    settings = {
        "model": model_name,
        "problems": _digest(problems),
        "temperature": temperature,
        "top_p": top_p,
        "seed": seed,
        "max_new_tokens": max_new_tokens,
        "stop": list(STOP_STRINGS),
        "limits": asdict(limits),
    }
    sampling = Sampling(temperature=temperature, top_p=top_p)
    require_sandbox()
    _require_room(limits)
    record = _Record(folder, settings)
    missing = [(p, i) for p in problems for i in range(samples) if (p.task_id, i) not in record.found]
    total = len(problems) * samples

    def sampled(problem: Problem, number: int) -> tuple[Problem, Sample]:
        own = replace(sampling, seed=_seed(seed, problem.task_id, number))
        return problem, _complete(engine, problem, number, own, max_new_tokens)

    def keep(sample: Sample) -> None:
        record.add(sample)
        if progress is not None:
            progress(len(record.found), total)

    _judge_all((sampled(*pair) for pair in missing), limits, workers, keep)
    wanted = {(p.task_id, i) for p in problems for i in range(samples)}
    kept = None if record.path is None else str(record.path)
    return _count(problems, [s for key, s in record.found.items() if key in wanted], samples, k, settings, kept)


def verify_problems(problems: Sequence[Problem], limits: Limits | None = None, workers: int = 2) -> dict[str, Verdict]:
    """Judge each problem's own solution; all pass where file, sandbox and limits are right."""
    limits = Limits() if limits is None else limits
    _check_workers(workers)
    require_sandbox()
    _require_room(limits)
    with ThreadPoolExecutor(workers) as pool:
        verdicts = list(
            pool.map(lambda p: judge(p.prompt, p.canonical_solution, p.test, p.entry_point, limits), problems)
        )
    return {p.task_id: verdict for p, verdict in zip(problems, verdicts, strict=True)}


def _check(
    problems: Sequence[Problem],
    samples: int,
    k: Sequence[int],
    temperature: float,
    max_new_tokens: int,
    workers: int,
) -> None:
    if not problems:
        raise UsageError("humaneval: no problem. Give at least one.")
    _check_workers(workers)
    if max_new_tokens < 1:
        raise UsageError(f"max_new_tokens: must be at least 1, not {max_new_tokens}.")
    if samples < 1:
        raise UsageError(f"samples: must be at least 1, not {samples}.")
    if not k or not all(1 <= each <= samples for each in k):
        raise UsageError(f"k: {list(k)} must be 1 to samples ({samples}); pass@k needs at least k samples per problem.")
    if temperature == 0 and samples > 1:
        raise UsageError(f"temperature: 0 gives {samples} equal samples. Ask for one, or set it above 0.")


def _check_workers(workers: int) -> None:
    if workers < 1:
        raise UsageError(f"workers: must be at least 1, not {workers}.")


@functools.cache
def _require_room(limits: Limits) -> None:
    """Refuse limits within which nothing passes: they would look like a model that solves nothing."""
    verdict = judge("def one():\n", "    return 1\n", "def check(one):\n    assert one() == 1\n", "one", limits)
    if not verdict.passed:
        raise UsageError(
            f"limits: too low even for a function that returns 1 ({verdict.result}). Allow more memory or time."
        )


def _complete(engine: Engine, problem: Problem, number: int, sampling: Sampling, max_new_tokens: int) -> Sample:
    """Continue a prompt up to a stop string, the end of the text, or the limit. The verdict is still to come."""
    room = min(max_new_tokens, engine.room(problem.prompt))
    if room < 1:
        return Sample(problem.task_id, number, "", False, "the prompt fills the context", 0, "context")
    found = engine.generate(problem.prompt, room, sampling, stop=STOP_STRINGS)
    return Sample(problem.task_id, number, found.text, False, "", len(found.tokens), found.finish_reason)


def _judge_all(
    candidates: Iterable[tuple[Problem, Sample]], limits: Limits, workers: int, keep: Callable[[Sample], None]
) -> None:
    """Judge candidates in threads while the next are drawn; `keep` is called in this thread."""
    waiting: set[Future[Sample]] = set()
    pool = ThreadPoolExecutor(workers)

    def judged(problem: Problem, sample: Sample) -> Sample:
        verdict = judge(problem.prompt, sample.completion, problem.test, problem.entry_point, limits)
        return replace(sample, passed=verdict.passed, result=verdict.result)

    def collect(most: int) -> None:
        nonlocal waiting
        done = {future for future in waiting if future.done()}
        if len(waiting) > most:
            done |= wait(waiting, return_when=FIRST_COMPLETED).done
        waiting -= done
        for future in done:
            keep(future.result())

    try:
        for problem, sample in candidates:
            if sample.finish_reason == "context":
                keep(sample)
                continue
            waiting.add(pool.submit(judged, problem, sample))
            collect(most=2 * workers)
        while waiting:
            collect(most=0)
    finally:
        pool.shutdown(cancel_futures=True)


def _count(
    problems: Sequence[Problem],
    found: Sequence[Sample],
    samples: int,
    k: Sequence[int],
    settings: dict[str, Any],
    results: str | None,
) -> HumanEvalResult:
    passed = {problem.task_id: 0 for problem in problems}
    for sample in found:
        passed[sample.task_id] += sample.passed
    pass_at, error = {}, {}
    for each in k:
        rates = [pass_at_k(samples, count, each) for count in passed.values()]
        pass_at[each] = mean = math.fsum(rates) / len(rates)
        spread = math.fsum((rate - mean) ** 2 for rate in rates)
        error[each] = math.sqrt(spread / (len(rates) - 1) / len(rates)) if len(rates) > 1 else math.nan
    outside = sum(sample.finish_reason == "context" for sample in found)
    cut = sum(sample.finish_reason == "length" for sample in found)
    return HumanEvalResult(pass_at, error, len(problems), samples, passed, outside, cut, settings, results)


class _Record:
    """Samples by problem and number, kept in a JSONL file if there is one: settings first, then a line per sample."""

    def __init__(self, folder: Path | None, settings: dict[str, Any]) -> None:
        self.path: Path | None = None
        self.found: dict[tuple[str, int], Sample] = {}
        if folder is None:
            return
        head = json.dumps({"settings": settings})
        self.path = path = folder / f"humaneval-{hashlib.sha256(head.encode()).hexdigest()[:12]}.jsonl"
        with writing(path):
            folder.mkdir(parents=True, exist_ok=True)
            lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []  # behind the last newline it was torn
        try:
            samples = [Sample(**json.loads(line)) for line in lines[1:]]
        except (ValueError, TypeError):
            raise UsageError(f"{path}: holds something else than samples. Delete it.") from None
        self.found = {(sample.task_id, sample.sample): sample for sample in samples}
        write_bytes(path, b"".join(line + b"\n" for line in [head.encode(), *lines[1:]]))

    def add(self, sample: Sample) -> None:
        """Remember a sample and write it."""
        self.found[sample.task_id, sample.sample] = sample
        if self.path is not None:
            with writing(self.path), self.path.open("ab") as stream:
                stream.write(json.dumps(asdict(sample)).encode() + b"\n")


def _digest(problems: Sequence[Problem]) -> str:
    return hashlib.sha256(json.dumps([asdict(problem) for problem in problems]).encode()).hexdigest()[:16]


def _seed(seed: int, task_id: str, number: int) -> int:
    """A seed of its own for each sample."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{task_id}/{number}".encode()).digest()[:7])


# ---- as a task of a suite --------------------------------------------------------------------------------------------
