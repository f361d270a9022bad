"""The process of the candidate: loads its code and answers calls. Stand-alone, inside a sandbox.

Whatever the code does to this process, all that leaves it are answers, and another process judges them.
"""

from __future__ import annotations

import sys
from typing import Any

CALLS, ANSWERS = 3, 4
"""Descriptors."""


def main() -> None:
    """Serve calls of the entry point until the checker is gone."""
    sys.path.insert(0, "/code")
    from hymo.evaluation.execution_values import decode, encode, receive, send

    with open("/code/candidate.py", encoding="utf-8", errors="surrogatepass") as stream:
        source = stream.read()
    with open("/code/entry_point", encoding="utf-8") as stream:
        entry_point = stream.read()
    namespace: dict[str, Any] = {"__name__": "candidate"}
    exec(compile(source, "candidate.py", "exec"), namespace)
    function = namespace[entry_point]
    while True:
        try:
            call = receive(CALLS)
        except EOFError:
            return
        try:
            answer = {"value": encode(function(*decode(call["args"]), **decode(call["kwargs"])))}
        except Exception as error:
            answer = {"raised": type(error).__name__, "text": str(error)[:200]}
        send(ANSWERS, answer)


if __name__ == "__main__":
    main()
