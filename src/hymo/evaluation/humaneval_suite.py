"""HumanEval as a task of `hymo eval --suite`."""

from __future__ import annotations

import numpy as np

from hymo.core.errors import DataError, UsageError
from hymo.evaluation.humaneval import PROBLEM_FIELDS, Problem, run_humaneval
from hymo.evaluation.sandbox import SandboxError, require_sandbox
from hymo.evaluation.subject import Subject
from hymo.evaluation.suite_runners import Place, Scores, SuiteItem
from hymo.evaluation.task_data import Missing
from hymo.inference import Engine

TEMPERATURE, TOP_P = 0.2, 0.95
"""Samples are drawn as the paper draws them for pass@1."""
DATA = "openai/openai_humaneval"


class HumanEvalRunner:
    """Draws one sample per problem and seed, and judges it.

    Args:
        name: of the task in the suite.
        item: its entry there.
        place: has the data sets and the most problems to take.
    """

    def __init__(self, name: str, item: SuiteItem, place: Place) -> None:
        self._name, self._place = name, place
        self._problems: list[Problem] = []

    def missing(self) -> list[Missing]:
        """The problems or the sandbox, if they are not there; asked before any work."""
        missing = []
        try:
            require_sandbox()
        except SandboxError as error:
            missing.append(Missing(self._name, "a sandbox", str(error)))
        try:
            rows = self._place.data.load(DATA)["test"]
        except DataError:
            raise
        except Exception as error:  # whatever the library of data sets raises for one that is not there
            why = str(error).splitlines()[:1]
            remedy = f"Put HumanEval into the mirror's folder {DATA} as test.jsonl, or allow the download ({why})."
            return [*missing, Missing(self._name, DATA, remedy)]
        self._problems = [Problem(**{name: row[name] for name in PROBLEM_FIELDS}) for row in rows][: self._place.limit]
        return missing

    def check(self, subject: Subject) -> None:
        """Refuse a model that no `Engine` runs.

        Raises:
            UsageError: it is one.
        """
        self._engine(subject)

    def run(self, subject: Subject, seed: int) -> Scores:
        """1 for each problem whose sample passed, else 0, in the file's order."""
        engine = self._engine(subject)
        result = run_humaneval(engine, self._problems, seed=seed, temperature=TEMPERATURE, top_p=TOP_P)
        items = np.array([float(result.passed[problem.task_id]) for problem in self._problems])
        return Scores(items, result.to_dict())

    def _engine(self, subject: Subject) -> Engine:
        engine = getattr(subject.lm, "engine", None)
        if not isinstance(engine, Engine):
            raise UsageError(
                f"suite task {self._name}: samples HyMo checkpoints only. Leave it out: --skip {self._name}"
            )
        return engine
