"""The packaged model behind a server with one slot, one place to wait, and a pause before each pass.

A prompt with the word `fault` makes the model fail after some tokens. Prints the address; runs until it is told to end.
"""

from __future__ import annotations

import sys
import time
from typing import Any

from hymo.inference import Engine
from hymo.inference.scheduler import Scheduler
from hymo.inference.serving.app import Settings
from hymo.inference.serving.run import address, listen, serve


class Faulty(Engine):
    def scheduler(self, *arguments: Any, **named: Any) -> Scheduler:
        scheduler = super().scheduler(*arguments, **named)
        step = scheduler.step
        fault = tuple(self.tokenizer.encode("fault").tolist())

        def slowly() -> Any:
            time.sleep(0.02)
            touched = step()
            for choice in touched:
                prompt = choice.job.request.prompt
                if choice.drawn > 20 and any(prompt[i : i + len(fault)] == fault for i in range(len(prompt))):
                    raise RuntimeError("the model failed, as it was asked to")
            return touched

        scheduler.step = slowly  # type: ignore[method-assign]
        return scheduler


def main() -> None:
    engine = Faulty.from_checkpoint("demo")
    engine.settle()
    with listen("127.0.0.1", 0) as bound:
        print(f"serving demo at {address(bound)}", file=sys.stderr, flush=True)
        serve(engine, Settings("demo", slots=1, max_waiting=1), bound, 1, lambda line: None)


if __name__ == "__main__":
    main()
