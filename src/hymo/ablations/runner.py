"""Runs comparisons: every variant with every seed, one after the other or several at once, on as long as it is let.

A run is an ordinary run folder. Its row in the results file is written when it has ended, so a call that is killed
loses no finished run, and the next one takes unfinished runs up at their newest checkpoint.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import shutil
import signal
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext, SpawnContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from hymo.ablations.results import Results
from hymo.ablations.rows import Row, describe, group_key, measured, row_key
from hymo.ablations.variants import BASE, Comparison, Variant
from hymo.core.config import HyMoConfig
from hymo.core.errors import ConfigError, UsageError
from hymo.core.files import writing
from hymo.core.load import CHECKPOINTS, config_hash, derive_config
from hymo.core.version import commit

RUNS = "runs"
_POLL_SECONDS = 0.2
_SERVER_GONE = 255
"""Exit code of a run whose fork server has ended, which a signal to the whole process group does first."""
_MARGIN = 1.15
"""A run is expected to take so much longer than the finished ones by their FLOPs."""


@dataclass(frozen=True)
class Run:
    """One variant with one seed."""

    family: str
    """Key of the family that it is part of; that of the base for what all families share."""
    variant: Variant
    config: HyMoConfig
    key: str
    folder: Path
    epochs: int
    """Passes over the training text that it makes or begins."""

    @property
    def label(self) -> str:
        """How messages name it."""
        return f"{self.variant.name}, seed {self.config.training.seed}"


@dataclass
class Outcome:
    """How a call ended."""

    rows: list[Row] = field(default_factory=list)
    """Rows of all runs given that have ended, earlier ones included."""
    done: int = 0
    """Runs that this call finished."""
    left: list[str] = field(default_factory=list)
    """Runs that are not finished: not begun, or stopped."""
    failed: dict[str, str] = field(default_factory=dict)
    """What went wrong, by run."""
    exit_code: int = 0
    """0, 1 after a failure, 130 or 143 after a signal."""


def lay_out(comparison: Comparison, seeds: Sequence[int], data: str, out: Path) -> tuple[list[Run], str]:
    """All runs, seed by seed so that an early end leaves whole seeds, each checked against its data before any begins.

    Args:
        comparison: what to run. Passes over the data are raised to what the tokens need.
        seeds: of initialisation and data order; a seed's order is the same for every variant.
        data: folder of the data set.
        out: folder whose `runs/` holds the run folders.

    Returns:
        The runs, and the fingerprint of the training data.

    Raises:
        UsageError, ConfigError, DataError: a run that could not begin.
    """
    from hymo.data import open_split
    from hymo.data.tokenizer import tokenizer_for_run
    from hymo.training.device import resolve_device
    from hymo.training.run import training_loader

    base = comparison.base.config
    resolve_device(base.run.device)
    tokenizer = tokenizer_for_run(base.run.tokenizer, out)
    split = open_split(data, "train", tokenizer)
    open_split(data, "validation", tokenizer)
    runs = []
    for seed in seeds:
        for variant in comparison.variants:
            config = derive_config(variant.config, training={"seed": seed}, run={"data": data})
            try:
                if tokenizer.vocab_size > config.model.vocab_size:
                    raise ConfigError(
                        f"model.vocab_size {config.model.vocab_size} is below the tokenizer's {tokenizer.vocab_size}"
                    )
                epochs = training_loader(config, split).epochs_needed(config.total_steps)
            except UsageError as error:
                raise UsageError(f"variant '{variant.name}': {error}") from None
            if epochs > config.training.max_epochs:
                config = derive_config(config, training={"max_epochs": epochs})
            slug = re.sub(r"[^a-z0-9]+", "-", variant.name.lower()).strip("-")
            name = f"{slug}-s{seed}-{config_hash(config)[:8]}"
            config = derive_config(config, run={"name": name, "output_dir": str(out / RUNS)})
            family = BASE if variant is comparison.base else comparison.family.key
            runs.append(Run(family, variant, config, row_key(config, split.fingerprint), out / RUNS / name, epochs))
    return runs, split.fingerprint


class Runner:
    """Runs what is not finished yet.

    Args:
        base: what the runs are compared with; it says on what device they train.
        runs: of `lay_out`, of one family or of several with the same base; begun in this order.
        fingerprint: of the data.
        results: file that takes the rows.
        parallel: runs at once, spread over the GPUs in sight; on a CPU they share its cores.
        minutes: least time that the call may take; no run is begun that would probably not end in it, and whatever
            still runs then is stopped after saving. None is no limit.
        begin_all: begin in that time what would not end in it too, for a later call to take up.
        discard_checkpoints: delete a run's checkpoints once its row is written.
        progress: told of every run that begins or ends.
        preset: how rows name the base.
        start: variant of the preset that is the base, in place of the preset itself.
        command: stands in the results' environment.
    """

    def __init__(
        self,
        base: HyMoConfig,
        runs: Sequence[Run],
        fingerprint: str,
        results: Results,
        *,
        parallel: int = 1,
        minutes: float | None = None,
        begin_all: bool = False,
        discard_checkpoints: bool = False,
        progress: Callable[[str], None] = lambda _: None,
        preset: str = "",
        start: str | None = None,
        command: str = "",
    ) -> None:
        if parallel < 1:
            raise UsageError(f"--parallel {parallel}: must be at least 1.")
        if minutes is not None and not minutes > 0:
            raise UsageError(f"--minutes {minutes}: must be above 0.")
        self.runs, self.results, self.parallel = runs, results, parallel
        self.discard, self.progress = discard_checkpoints, progress
        self._begin_all = begin_all
        self._base = {"preset": preset or base.run.name, **({"start": start} if start else {})}
        self._deadline = None if minutes is None else time.monotonic() + 60 * minutes
        self._group = group_key(base, fingerprint)
        self._environment = _environment(command)
        self._device = _device_name(base.run.device)
        self._gpus = visible_gpus(base.run.device)
        self._at_once = -(-parallel // max(1, len(self._gpus)))

    def run(self) -> Outcome:
        """Run until all is done, the time is over or a signal asks for the end."""
        from hymo.training.stopping import StopRequest

        outcome = Outcome()
        waiting = [run for run in self.runs if self.results.finished(run.key) is None]
        running: dict[BaseProcess, tuple[Run, str | None, Connection]] = {}
        if skipped := len(self.runs) - len(waiting):
            self.progress(f"{skipped} of {len(self.runs)} runs are in {self.results.path} already")
        ending = False
        with StopRequest() as stop:
            while waiting or running:
                over = self._deadline is not None and time.monotonic() > self._deadline
                if (over or stop()) and not ending:
                    ending = True
                    for process in running:
                        process.terminate()
                while not ending and waiting and len(running) < self.parallel:
                    run = next((each for each in waiting if self._fits(each)), None)
                    if run is None:
                        self._leave(outcome, waiting, "no time for another run")
                        break
                    waiting.remove(run)
                    busy = [gpu for _, gpu, _ in running.values()]
                    gpu = min(self._gpus, key=busy.count, default=None)
                    process, complaint = self._start(run, gpu)
                    running[process] = (run, gpu, complaint)
                    self.progress(f"begins: {run.label}")
                if ending and waiting:
                    self._leave(outcome, waiting, "no time for another run" if over else "stopped")
                wait([process.sentinel for process in running], timeout=_POLL_SECONDS)
                for process in [each for each in running if not each.is_alive()]:
                    process.join()
                    run, _, complaint = running.pop(process)
                    self._ended(outcome, process, run, complaint, asked=ending or bool(stop()))
        outcome.rows = [named for run in self.runs if (named := self.finished(run)) is not None]
        outcome.exit_code = stop.exit_code or int(bool(outcome.failed))
        return outcome

    def finished(self, run: Run) -> Row | None:
        """The row of a run that has ended well, as this comparison calls it: another may know it by another name."""
        row = self.results.finished(run.key)
        return row and {**row, "family": run.family, "variant": run.variant.name}

    def _leave(self, outcome: Outcome, waiting: list[Run], why: str) -> None:
        """Begin nothing more, and say how much that is."""
        self.progress(f"{why}: {len(waiting)} are left")
        outcome.left += [run.label for run in waiting]
        waiting.clear()

    def _start(self, run: Run, gpu: str | None) -> tuple[BaseProcess, Connection]:
        import torch

        from hymo.ablations.job import work

        self.results.claim()
        with writing(run.folder.parent, "Choose another folder with --out, or change its permissions."):
            run.folder.parent.mkdir(parents=True, exist_ok=True)
        cuda = gpu is not None
        # A server that has imported torch forks runs at once; a CUDA context must not be forked.
        context: SpawnContext | ForkServerContext
        if cuda:
            context = multiprocessing.get_context("spawn")
        else:
            context = multiprocessing.get_context("forkserver")
            context.set_forkserver_preload(["hymo.ablations.job"])
        threads = None if cuda else max(1, torch.get_num_threads() // self.parallel)
        compilers = max(1, (os.cpu_count() or 1) // self.parallel)
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(
            target=work, args=(run.config, gpu, threads, compilers, sender), name=run.config.run.name
        )
        process.start()
        sender.close()
        return process, receiver

    def _ended(self, outcome: Outcome, process: BaseProcess, run: Run, complaint: Connection, asked: bool) -> None:
        """Take in how a run ended: its row, or why there is none. Asked to end, it may do so before it listens."""
        message = ""
        with suppress(EOFError):
            message = complaint.recv() if complaint.poll() else ""
        complaint.close()
        if process.exitcode == 0:
            row = self._row(run)
            self.results.add(row, self._environment)
            outcome.done += 1
            if self.discard:
                shutil.rmtree(run.folder / CHECKPOINTS, ignore_errors=True)
            self.progress(
                f"done: {run.label}: {row['bits_per_byte']:.4f} bits per byte, {row['seconds']:.0f} s of training"
            )
        elif process.exitcode in (130, 143) or (asked and process.exitcode in (-signal.SIGTERM, _SERVER_GONE)):
            outcome.left.append(run.label)
            self.progress(f"stopped: {run.label}; the same command goes on from its checkpoint")
        else:
            message = message or f"its process ended with exit code {process.exitcode}"
            outcome.failed[run.label] = message
            self.results.add({**self._head(run), **describe(run.config), "failed": message}, self._environment)
            self.progress(f"failed: {run.label}: {message}")

    def _head(self, run: Run) -> Row:
        return {
            "key": run.key,
            "group": self._group,
            **self._base,
            "family": run.family,
            "variant": run.variant.name,
            "overrides": dict(run.variant.overrides),
            "epochs": run.epochs,
            "parallel": self._at_once,
            "commit": commit() or None,
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
        }

    def _row(self, run: Run) -> Row:
        return {**self._head(run), **describe(run.config), **measured(run.folder)}

    def _fits(self, run: Run) -> bool:
        """Whether a run would probably end in the time that is left; the first ones are let try."""
        expected = self.expected_seconds(run.config)
        if self._deadline is None or self._begin_all or expected is None:
            return True
        return time.monotonic() + expected < self._deadline

    def expected_seconds(self, config: HyMoConfig) -> float | None:
        """Time of a run from start to end, by the median of finished runs per FLOP; None without any like it."""
        facts = describe(config)
        rates = [
            row["wall_seconds"] / (row["flops_per_token"] * row["tokens"])
            for row in self.results.rows.values()
            if row.get("wall_seconds") and row["parallel"] == self._at_once and row["device"] == self._device
        ]
        work = facts["flops_per_token"] * facts["tokens"]
        return _MARGIN * statistics.median(rates) * work if rates else None


def visible_gpus(asked: str) -> list[str]:
    """The GPUs in sight as CUDA_VISIBLE_DEVICES names them; none where runs train elsewhere."""
    import torch

    from hymo.training.device import resolve_device

    if resolve_device(asked).type != "cuda":
        return []
    named = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    count = torch.cuda.device_count()
    return named[:count] if named else [str(i) for i in range(count)]


def _device_name(asked: str) -> str:
    """How rows name the device that runs train on."""
    import torch

    from hymo.training.device import resolve_device

    device = resolve_device(asked)
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def _environment(command: str) -> dict[str, Any]:
    """What the results depend on beside the configurations."""
    from hymo.training.run import environment

    found = environment()
    try:
        import triton

        version: str | None = triton.__version__
    except ImportError:
        version = None
    date = datetime.now(UTC).date().isoformat()
    return {**found, "triton": version, "date": date, "command": command}
