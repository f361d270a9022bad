"""Preparation on datatrove's executors: processes of one machine, Slurm, Ray.

The four steps of a job become four pipelines that run one after the other; see `hymo.data.engine_steps`. datatrove
skips every rank that its logging folder calls done, whatever has changed since. That folder is therefore named after
the job, as the folder of its parts is, and goes when a job starts from nothing.
"""

from __future__ import annotations

import dataclasses
import importlib
import os
import re
import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from hymo.core.errors import DataError, HymoError, UsageError
from hymo.core.files import write_text
from hymo.data.dataset import Manifest, load_manifest
from hymo.data.job import WORK_PREFIX, Job
from hymo.data.prepare import clear_output, cores

Executor = Literal["local", "slurm", "ray"]
LOG_PREFIX = "logs-"
SUBMIT = "submit.sh"
_STEPS = ("encode", "plan", "write", "finish")
_SINGLE = ("plan", "finish")


@dataclass(frozen=True)
class Cluster:
    """What a scheduler is asked for.

    Attributes:
        executor: "local", "slurm" or "ray".
        tasks: tasks of the steps that many can share.
        workers: how many run at a time; None: all, or as many as there are cores.
        partition: Slurm's partition.
        time: Slurm's time limit of a task.
        memory_gb: memory of a task; each has one core.
    """

    executor: Executor = "local"
    tasks: int = 1
    workers: int | None = None
    partition: str | None = None
    time: str = "24:00:00"
    memory_gb: int = 4


def logs_of(job: Job) -> Path:
    """Return the folder of datatrove's logs, scripts and marks of finished ranks."""
    return job.out / f"{LOG_PREFIX}{job.work.name.removeprefix(WORK_PREFIX)}"


def run_on_engine(job: Job, cluster: Cluster, *, overwrite: bool = False, dry_run: bool = False) -> Manifest | None:
    """Prepare a job with datatrove and return the manifest, or None if tasks were handed to Slurm.

    With `dry_run`, Slurm's files are written and nothing is submitted: ``submit.sh`` in `logs_of(job)` does that.

    Raises:
        UsageError: datatrove, Ray or sbatch is missing, or settings do not fit; nothing has been written.
        DataError: a task failed; the message names the logs.
    """
    _check(cluster, dry_run)
    job = _absolute(job)
    logs = logs_of(job)
    fresh = not job.work.exists()
    clear_output(job, overwrite)
    if fresh:
        shutil.rmtree(logs, ignore_errors=True)
    if cluster.executor == "slurm":
        _submit(job, cluster, logs, dry_run)
        return None
    if cluster.executor == "ray":
        ray: Any = importlib.import_module("ray")
        ray.init(address=os.environ.get("RAY_ADDRESS"), ignore_reinit_error=True, include_dashboard=False)
    for name in _STEPS:
        _run(_executor(job, cluster, name, logs), logs / name)
    return load_manifest(job.out)


def _check(cluster: Cluster, dry_run: bool) -> None:
    if cluster.tasks < 1 or (cluster.workers is not None and cluster.workers < 1) or cluster.memory_gb < 1:
        raise UsageError("tasks, workers and memory must be at least 1")
    try:
        importlib.import_module("datatrove.executor")
    except ImportError as error:
        raise UsageError("the engine needs the package datatrove: pip install 'hymo[prepare]'") from error
    if cluster.executor == "slurm":
        if cluster.partition is None:
            raise UsageError("Slurm needs a partition: --partition NAME")
        if not dry_run and shutil.which("sbatch") is None:
            raise UsageError("sbatch was not found: start this on a login node of the cluster, or use --dry-run")
    elif dry_run:
        raise UsageError("a dry run writes Slurm's job files: --executor slurm; other executors have no files")
    if cluster.executor == "ray":
        try:
            importlib.import_module("ray")
        except ImportError as error:
            raise UsageError("the Ray executor needs the package ray: pip install 'ray[default]'") from error


def _absolute(job: Job) -> Job:
    """Name files so that a process with another current folder finds them."""
    feeds = tuple(dataclasses.replace(f, files=tuple(Path(os.path.abspath(p)) for p in f.files)) for f in job.feeds)
    return dataclasses.replace(job, out=Path(os.path.abspath(job.out)), feeds=feeds)


def _executor(job: Job, cluster: Cluster, name: str, logs: Path, depends: Any = None) -> Any:
    steps: Any = importlib.import_module("hymo.data.engine_steps")
    step = {"encode": steps.EncodeStep, "plan": steps.PlanStep, "write": steps.WriteStep, "finish": steps.FinishStep}
    tasks = 1 if name in _SINGLE else cluster.tasks
    common = {"pipeline": [step[name](job)], "tasks": tasks, "logging_dir": str(logs / name)}
    executors: Any = importlib.import_module("datatrove.executor")
    if cluster.executor == "local":
        return executors.LocalPipelineExecutor(**common, workers=min(tasks, cluster.workers or cores()))
    workers = -1 if cluster.workers is None else cluster.workers
    if cluster.executor == "ray":
        return executors.RayPipelineExecutor(**common, workers=workers, mem_per_cpu_gb=cluster.memory_gb)
    return executors.SlurmPipelineExecutor(
        **common,
        workers=workers,
        time=cluster.time,
        partition=cluster.partition,
        mem_per_cpu_gb=cluster.memory_gb,
        job_name=f"hymo-{name}",
        qos="",
        # The interpreter that submits is the one that works.
        env_command=f"export PATH={shlex.quote(os.path.dirname(sys.executable))}:$PATH",
        depends=depends,
    )


def _run(executor: Any, logs: Path) -> None:
    """Run a pipeline to its end; Ray's executor reports failures nowhere but in the marks that are missing."""
    try:
        executor.run()
    except HymoError:
        raise
    except Exception as error:  # whatever a task raised, as the process pool hands it on
        raise DataError(
            f"a task of the engine failed ({error!r}): see {logs}/logs; the same command goes on"
        ) from error
    if missing := executor.get_incomplete_ranks(skip_completed=True):
        raise DataError(f"{len(missing)} tasks failed: see {logs}/logs; the same command goes on")


def _submit(job: Job, cluster: Cluster, logs: Path, dry_run: bool) -> None:
    """Hand four job arrays to Slurm, each waiting for the one before, or only write their files and a script."""
    slurm: Any = importlib.import_module("datatrove.executor.slurm")
    original = slurm.launch_slurm_job
    lines = ["#!/bin/bash", "# Submits the steps of a preparation, each waiting for the one before.", "set -e"]
    step = ""

    def record(contents: str, _: Any, *options: str) -> str:
        if "merge_stats" in contents:  # datatrove's summary of a finished array; `submit.sh` does without
            return ""
        name = f"job{len(lines)}"
        words = [re.sub(r"(?<=:)(job\d+)", r"$\1", option) for option in options]
        script = shlex.quote(str(logs / step / "launch_script.slurm"))
        lines.append(f"{name}=$(sbatch --parsable {' '.join(words)} {script})")
        return name

    previous = None
    if dry_run:
        slurm.launch_slurm_job = record
    try:
        for step in _STEPS:
            previous = _executor(job, cluster, step, logs, depends=previous)
            previous.run()
    finally:
        slurm.launch_slurm_job = original
    if dry_run:
        write_text(logs / SUBMIT, "\n".join(lines) + "\n")
