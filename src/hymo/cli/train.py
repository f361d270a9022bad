"""`hymo train`: train a model, or take a run up again."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from hymo.cli.options import Json, Overrides
from hymo.cli.output import log, print_json


def train(
    config: str | None = None,
    /,
    *,
    data: Path | None = None,
    resume: Path | None = None,
    overrides: Overrides = (),
    gate: Annotated[bool, Parameter(negative="")] = False,
    json: Json = False,
) -> int:
    """Train a model, or resume a run. A run whose folder exists with the same configuration goes on by itself.

    `--resume RUN --set scheduler.total_steps=N` lengthens a run: it goes on at the peak rate from its newest checkpoint
    of the stable phase and decays at the new end; later checkpoints move aside. `training.keep_stable` keeps one.

    `torchrun --nproc-per-node N -m hymo train CONFIG` trains the same on N ranks; docs/distributed.md says how.

    Ctrl-C (or SIGTERM) saves a checkpoint after the running step and exits with 130 (143); a second one exits at once.

    Args:
        config: Preset or YAML file; not needed with --resume.
        data: Folder written by `hymo data prepare`; sets run.data. With --resume, where the same data lie now.
        resume: Folder of a run to go on with, as its config.yaml says.
        overrides: Fields to override; with --resume only the length, how often it logs and saves, and the device.
        gate: Stop at the verdict of training.verdict_step if it is bad, with a checkpoint and exit code 1.
        json: Write a summary as JSON.
    """
    from hymo.core.errors import UsageError
    from hymo.core.launch import launched_ranks
    from hymo.core.load import CONFIG, RESUMABLE, derive_config, load_config, run_config

    if launched_ranks() > 1:  # else PyTorch prints stacks of its own when a rank ends, over the error that matters
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    if (config is None) == (resume is None):
        raise UsageError("train: give either a preset or YAML file, or --resume RUN.")
    if resume is not None:
        for override in overrides:
            if override.partition("=")[0].strip() not in RESUMABLE:
                raise UsageError(
                    f"--set {override}: would change the steps already taken, so it needs a new run. With --resume you "
                    f"can set {', '.join(RESUMABLE)}."
                )
        run_config(resume)
        resume = resume.resolve()
        resolved = load_config(resume / CONFIG, overrides)
        resolved = derive_config(resolved, run={"output_dir": str(resume.parent), "name": resume.name})
        if data is None and not any(override.startswith("run.data=") for override in overrides):
            from hymo.data.of_run import data_of_run

            data = Path(data_of_run(resolved.run.data, resume))
    else:
        assert config is not None
        resolved = load_config(config, overrides)
    if data is not None:
        resolved = derive_config(resolved, run={"data": str(data)})
    if gate:
        resolved = derive_config(resolved, training={"verdict_gate": True})

    from hymo.training.ranks import open_ranks
    from hymo.training.run import open_run, run_folder
    from hymo.training.view import RunView

    with open_ranks(resolved) as ranks, ExitStack() as shown:
        views = [shown.enter_context(RunView(resolved.total_steps, resolved.run.name))] if ranks.first else []
        with open_run(resolved, views, extend=resume is not None, ranks=ranks) as trainer:
            result = trainer.train()
    if not ranks.first:
        return result.exit_code
    folder = run_folder(resolved)
    summary = {
        "run": str(folder),
        "step": result.step,
        "tokens": result.tokens,
        "seconds": result.seconds,
        "validation": None if result.validation is None else result.validation.to_dict(),
    }
    if json:
        print_json(summary)
    else:
        bpb = "" if result.validation is None else f", {result.validation.bits_per_byte:.4f} bits per byte held out"
        log(f"{folder}: step {result.step}, {result.tokens:,} tokens in {result.seconds:.0f} s{bpb}")
    return result.exit_code
