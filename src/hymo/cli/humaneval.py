"""`hymo humaneval`: functions that a checkpoint writes, tested in a sandbox."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

from hymo.cli.options import Json
from hymo.cli.output import log, print_json, print_table

app = App(
    name="humaneval",
    help="Let a checkpoint write functions, and test them in a sandbox.",
    result_action="return_value",
)

_PROBLEMS = Annotated[Path | None, Parameter(name="--problems", show_default=False)]


@app.command
def run(
    checkpoint: Path,
    /,
    *,
    problems: _PROBLEMS = None,
    samples: int = 1,
    k: tuple[int, ...] = (1,),
    temperature: float = 0.0,
    top_p: float = 1.0,
    seed: int = 0,
    max_new_tokens: int = 512,
    cpu_seconds: int = 5,
    memory_mib: int = 512,
    workers: int = 2,
    limit: int | None = None,
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto",
    json: Json = False,
) -> None:
    """Sample functions for every problem, run their tests, and report pass@k.

    Samples and verdicts are kept in eval/humaneval-*.jsonl of the run, or beside a checkpoint outside one; the same
    command goes on where it was interrupted, also with more samples.

    Args:
        checkpoint: Checkpoint folder, or a run folder (its newest whole checkpoint).
        problems: File with HumanEval's fields, .jsonl or .jsonl.gz; the package's few own problems unless given.
        samples: Functions per problem; more than one needs a temperature above 0.
        k: Which pass@k to report; may be repeated. Each at most samples.
        temperature: 0 takes the most likely token each time.
        top_p: Keep the smallest set of tokens whose probability reaches p.
        seed: Seed of all samples.
        max_new_tokens: Most tokens of one function.
        cpu_seconds: CPU time of one function's tests, in whole seconds; the wall time is twice that.
        memory_mib: Memory of one function's tests, in MiB.
        workers: Functions tested at once.
        limit: Only the first so many problems.
        device: Where to sample.
        json: Write JSON.
    """
    import hashlib

    from hymo.core.errors import UsageError
    from hymo.data.of_run import run_of
    from hymo.evaluation.humaneval import PROBLEMS, load_problems, run_humaneval
    from hymo.evaluation.sandbox import Limits, require_sandbox
    from hymo.inference import Engine
    from hymo.models.checkpoint import find_checkpoint
    from hymo.training.device import resolve_device

    for option, value in (("--cpu-seconds", cpu_seconds), ("--memory-mib", memory_mib), ("--limit", limit)):
        if value is not None and value < 1:
            raise UsageError(f"{option}: must be at least 1, not {value}.")
    chosen = load_problems(PROBLEMS if problems is None else problems)[:limit]
    require_sandbox()
    folder, manifest = find_checkpoint(checkpoint)
    weights = hashlib.sha256(manifest.to_json().encode()).hexdigest()[:16]
    engine = Engine.from_checkpoint(folder, str(resolve_device(device)))
    result = run_humaneval(
        engine,
        chosen,
        samples=samples,
        k=k,
        temperature=temperature,
        top_p=top_p,
        seed=seed,
        max_new_tokens=max_new_tokens,
        workers=workers,
        limits=Limits(cpu_seconds=cpu_seconds, wall_seconds=2 * cpu_seconds, memory_bytes=memory_mib << 20),
        folder=(run_of(folder) or folder.parent) / "eval",
        model_name=weights,
        progress=lambda done, total: log(f"{done} of {total}") if done % 20 == 0 or done == total else None,
    )
    if json:
        print_json({"checkpoint": str(folder), "step": manifest.step, **result.to_dict()})
        return
    rows = [
        (f"pass@{each}", f"{rate:.1%} ± {result.standard_error[each]:.1%}") for each, rate in result.pass_at.items()
    ]
    rows += [
        ("problems x samples", f"{result.problems} x {result.samples}"),
        ("solved at least once", f"{sum(count > 0 for count in result.passed.values())}"),
        ("prompt did not fit the context", f"{result.out_of_context}"),
        ("reached the limit of new tokens", f"{result.cut}"),
        ("samples", str(result.results)),
    ]
    print_table(f"{folder}, step {manifest.step}", ("measure", "value"), rows)


@app.command
def verify(*, problems: _PROBLEMS = None, workers: int = 2, json: Json = False) -> int:
    """Run the problems' own solutions: all pass where the file is right and the sandbox works. Exit code 1 if not.

    Args:
        problems: File with HumanEval's fields, .jsonl or .jsonl.gz; the package's few own problems unless given.
        workers: Functions tested at once.
        json: Write JSON.
    """
    from hymo.evaluation.humaneval import PROBLEMS, load_problems, verify_problems

    verdicts = verify_problems(load_problems(PROBLEMS if problems is None else problems), workers=workers)
    failed = {task: verdict.result for task, verdict in verdicts.items() if not verdict.passed}
    slowest = max(verdict.seconds for verdict in verdicts.values())
    if json:
        print_json({"problems": len(verdicts), "failed": failed, "slowest_seconds": slowest})
    else:
        rows = [("pass", f"{len(verdicts) - len(failed)} of {len(verdicts)}"), ("slowest", f"{slowest:.2f} s")]
        print_table("the problems' own solutions", ("measure", "value"), [*rows, *failed.items()])
    return 1 if failed else 0
