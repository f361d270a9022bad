"""Whether a candidate's function passes a problem's tests, so that the candidate has no say in it.

The tests run in one sandbox, the candidate's code in another. They share two pipes: calls with plain data one way,
plain data back. The verdict leaves the first sandbox, with a token made for this run, on a pipe that the second never
sees. So nothing that the candidate does to its interpreter counts: it can exit, print, patch builtins, close
descriptors or take over its whole process, and all it can reach is which answers come back.

What follows from it: arguments and results cross by value. A test that looks at an argument which the candidate was to
change in place, or at a result that is no plain data, fails here; HumanEval's own tests compare results. Not
defended: a candidate that finds the right answers by means other than the function asked for, for example by knowing
the tests. It is given the inputs, never the expected results.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import secrets
from dataclasses import dataclass, replace
from pathlib import Path

from hymo.evaluation.sandbox import Limits, Outcome, start

_HERE = Path(__file__).parent
_CANDIDATE, _CHECKER = "execution_candidate.py", "execution_checker.py"
_MOST = 4096
"""Bytes of a verdict."""


@dataclass(frozen=True)
class Verdict:
    """What a candidate came to."""

    passed: bool
    """Whether every test passed."""
    result: str
    """`passed`, or why not: the test's or the candidate's error, or the limit that ended it."""
    seconds: float = 0.0
    """Time that it took."""


def judge(prompt: str, completion: str, test: str, entry_point: str, limits: Limits | None = None) -> Verdict:
    """Run one candidate against the tests.

    Args:
        prompt: source up to the body of the function, helpers included.
        completion: source that continues the prompt.
        test: source that defines `check(candidate)`, which raises unless all is right.
        entry_point: name of the function.
        limits: of the candidate; the tests have the same and a second more.

    Raises:
        SandboxError: the sandbox cannot be built here; nothing was run.
    """
    limits = Limits() if limits is None else limits
    token = secrets.token_hex(16)
    problem = json.dumps({"prompt": prompt, "test": test, "entry_point": entry_point, "token": token})
    source = prompt + completion
    with contextlib.ExitStack() as open_pipes:
        calls, answers, verdicts = (_pipe(open_pipes) for _ in range(3))
        candidate = start(
            {**_code(_CANDIDATE), "candidate.py": source, "entry_point": entry_point},
            _CANDIDATE,
            limits,
            {3: calls.read, 4: answers.write},
        )
        try:
            checker = start(
                {**_code(_CHECKER), "problem.json": problem},
                _CHECKER,
                replace(limits, wall_seconds=limits.wall_seconds + 1),
                {3: calls.write, 4: answers.read, 5: verdicts.write},
            )
            for pipe in (calls, answers, verdicts):
                pipe.close_write()
            calls.close_read()
            answers.close_read()
            checked = checker.wait()
        finally:
            candidate.stop()
            ended = candidate.wait()
        told = os.read(verdicts.read, _MOST)
    return _verdict(told, token, checked, ended)


def _verdict(told: bytes, token: str, checked: Outcome, ended: Outcome) -> Verdict:
    """Put together what the checker said and how both processes ended."""
    try:
        verdict = json.loads(told)
    except ValueError:
        verdict = {}
    seconds = checked.seconds
    if verdict.get("token") == token and verdict["passed"] is True and checked.ok:
        return Verdict(True, "passed", seconds)
    if ended.reason in ("cpu time", "wall time", "output"):
        return Verdict(False, f"over the limit of {ended.reason}", seconds)
    if checked.reason in ("cpu time", "wall time", "output"):
        return Verdict(False, f"the tests went over the limit of {checked.reason}", seconds)
    why = verdict.get("why") or "the tests came to no end"
    if why.startswith("NoAnswerError") and ended.reason != "stopped":
        last = ended.stderr.strip().splitlines()[-1:] or [f"{ended.reason} {ended.code}"]
        why = f"the candidate's process ended: {last[0][:300]}"
    return Verdict(False, why, seconds)


class _Pipe:
    """Two descriptors, each closed once."""

    def __init__(self) -> None:
        self.read, self.write = os.pipe()
        self._open = {self.read, self.write}

    def close_read(self) -> None:
        self._close(self.read)

    def close_write(self) -> None:
        self._close(self.write)

    def close(self) -> None:
        self._close(self.read)
        self._close(self.write)

    def _close(self, descriptor: int) -> None:
        if descriptor in self._open:
            self._open.remove(descriptor)
            os.close(descriptor)


def _pipe(stack: contextlib.ExitStack) -> _Pipe:
    pipe = _Pipe()
    stack.callback(pipe.close)
    return pipe


@functools.cache
def _read(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


def _code(name: str) -> dict[str, str]:
    values = "execution_values.py"
    return {name: _read(name), f"hymo/evaluation/{values}": _read(values)}
