"""The process of the checks: a problem's tests against answers of the candidate. Stand-alone, in a sandbox of its own.

No code of the candidate is ever here: its entry point is stood for by a function that asks the other process. What
comes back is plain data, so that an answer cannot decide what it is equal to.
"""

from __future__ import annotations

import builtins
import contextlib
import json
import os
import sys
from collections.abc import Callable
from typing import Any

CALLS, ANSWERS, VERDICT = 3, 4, 5
"""Descriptors."""
_ENDS_LOOPS = (StopIteration, StopAsyncIteration)
"""Raised again as they are, they would end a test's loop before its last check."""


class CandidateError(Exception):
    """The candidate raised an exception that is not raised again as it is."""


class NoAnswerError(BaseException):
    """The candidate's process ended, or what it sent is no answer; no test can catch this by accident."""


def main() -> None:
    """Run the tests and tell the verdict, with the token that only this process was given."""
    sys.path.insert(0, "/code")
    with open("/code/problem.json", encoding="utf-8") as stream:
        problem = json.load(stream)
    try:
        check(problem)
        verdict = {"passed": True, "token": problem["token"], "why": ""}
    except BaseException as error:
        verdict = {"passed": False, "token": problem["token"], "why": f"{type(error).__name__}: {error}"[:300]}
    os.write(VERDICT, json.dumps(verdict).encode())


def check(problem: dict[str, str]) -> None:
    """Run the tests as HumanEval does: after the prompt, whose helpers they may use."""
    candidate = proxy()
    namespace: dict[str, Any] = {"__name__": "check"}
    for text in (
        problem["prompt"],
        problem["prompt"] + "\n    pass\n",
    ):  # an unfinished function with or without a body
        with contextlib.suppress(SyntaxError):
            exec(compile(text, "prompt.py", "exec"), namespace)
            break
    namespace[problem["entry_point"]] = candidate
    exec(compile(problem["test"], "test.py", "exec"), namespace)
    namespace["check"](candidate)


def proxy() -> Callable[..., Any]:
    """A function that stands for the candidate's."""
    from hymo.evaluation.execution_values import decode, encode, receive, send

    def candidate(*args: Any, **kwargs: Any) -> Any:
        try:
            send(CALLS, {"args": encode(args), "kwargs": encode(kwargs)})
            answer = receive(ANSWERS)
            if "raised" not in answer:
                return decode(answer["value"])
            kind, text = getattr(builtins, str(answer["raised"]), None), str(answer["text"])
        except (EOFError, OSError):
            raise NoAnswerError("the candidate's process ended") from None
        except Exception as error:
            raise NoAnswerError(f"what the candidate sent is no answer ({type(error).__name__})") from None
        if not (isinstance(kind, type) and issubclass(kind, Exception)) or kind in _ENDS_LOOPS:
            raise CandidateError(f"{answer['raised']}: {text}")
        try:
            raised = kind(text)
        except TypeError:  # takes more than a text
            raised = CandidateError(f"{answer['raised']}: {text}")
        raise raised

    return candidate


if __name__ == "__main__":
    main()
