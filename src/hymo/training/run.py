"""From a configuration to a trainer with everything around it: the run folder, its data, its sinks, its checkpoints.

A run folder holds config.yaml (resolved), tokenizer.json (a copy, unless the tokenizer is `byte`), env.json (a list:
one entry per start of a process), metrics.jsonl, events.jsonl, heartbeat.json, stacks.txt (where it hung),
checkpoints/, eval/, plots/ and profiles/. Ranks beyond the first have a heartbeat and stacks of their own there.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime
from itertools import chain, count
from pathlib import Path
from typing import Any

import torch

from hymo.core.config import HyMoConfig
from hymo.core.errors import ConfigError, UsageError
from hymo.core.files import flush, write_text, writing
from hymo.core.hardware import match_device
from hymo.core.launch import check_ranks, local_rank
from hymo.core.load import (
    CHECKPOINTS,
    CONFIG,
    config_hash,
    derive_config,
    dump_config,
    load_config,
    same_but_for_length,
)
from hymo.core.version import VERSION, commit
from hymo.data import EvaluationWindows, PackedLoader, Split, load_manifest, open_split
from hymo.data.tokenizer import keep_copy, tokenizer_for_run
from hymo.kernels.dispatch import SWITCH, choose
from hymo.models.checkpoint import Manifest, list_checkpoints, verified
from hymo.training.alerts import Alerts
from hymo.training.checkpointer import Checkpointer
from hymo.training.device import compute_dtype, resolve_device
from hymo.training.health import Recorder, endpoint, require_port
from hymo.training.heartbeat import heartbeat
from hymo.training.lock import claimed
from hymo.training.metrics import METRICS, Callback, JsonlSink, read_jsonl
from hymo.training.profiling import PROFILES
from hymo.training.ranks import ALONE, Ranks
from hymo.training.track import trackers
from hymo.training.trainer import Trainer
from hymo.training.verdict import verdict

ENVIRONMENT = "env.json"


def run_folder(config: HyMoConfig) -> Path:
    """The folder of a run: output_dir/name."""
    return Path(config.run.output_dir) / config.run.name


@contextmanager
def open_run(
    config: HyMoConfig,
    callbacks: Sequence[Callback] = (),
    validation: EvaluationWindows | None = None,
    *,
    extend: bool = False,
    ranks: Ranks = ALONE,
) -> Iterator[Trainer]:
    """Check everything, then open the run folder and yield its trainer, resumed if the folder holds checkpoints.

    Args:
        config: of the run.
        callbacks: sinks beside the run's own files.
        validation: replaces the windows that the configuration asks for.
        extend: the configuration may differ from the folder's in what `core.load.RESUMABLE` lists. With more steps, the
            run goes on from its newest checkpoint of the stable phase; later ones move to `checkpoints-of-STEPS`.
        ranks: the processes that open the run together. The first one alone writes its records.

    Raises:
        UsageError: no data, a vocabulary that does not fit the tokenizer, a folder in use or of another configuration,
            more steps than the data or the checkpoints allow.
        DataError, CheckpointError: as the parts raise them, before any work.
    """
    resolve_device(config.run.device)
    check_ranks(config, ranks.size)
    if config.run.data is None:
        raise UsageError("run.data: not set. Prepare text with `hymo data prepare`, then pass --data DIR.")
    # The run is used from other folders than the one it was started in.
    config = derive_config(config, run={"data": os.path.abspath(config.run.data)})
    folder, cfg = run_folder(config), config.training
    parts: dict[str, Any] = {}
    ranks.everywhere(lambda: parts.update(run_inputs(config, folder)))
    port = None if config.run.health_port is None else config.run.health_port + local_rank()
    if port is not None:
        ranks.everywhere(lambda: require_port(config.run.health_host, port))
    tokenizer, loader = parts["tokenizer"], parts["loader"]
    every: list[Callback] = []
    with ExitStack() as held:

        def begin() -> bool:
            """What one process does for all: take the folder and say what the run is."""
            held.enter_context(claimed(folder))
            resuming = _check_folder(folder, config, extend)
            if not resuming:
                keep_copy(tokenizer, folder)
            # Each is closed at the end, also where the next one cannot be opened.
            sinks: list[Callback] = [held.enter_context(closing(JsonlSink(folder)))]
            sinks += [held.enter_context(closing(sink)) for sink in trackers(config, folder)]
            if config.run.alert is not None:
                sinks.append(held.enter_context(closing(Alerts(config.run.alert, config.run.name))))
            every[:] = [*sinks, *callbacks]
            return resuming

        resuming = ranks.on_first(begin)
        try:
            trainer = Trainer(
                config,
                loader,
                validation=parts["validation"] if validation is None else validation,
                callbacks=every,
                config_hash=config_hash(config),
                tokenizer=tokenizer.fingerprint(),
                profiles=folder / PROFILES if ranks.first else None,
                ranks=ranks,
            )
            trainer.checkpointer = Checkpointer(
                folder / CHECKPOINTS,
                dump_config(config),
                cfg.keep_last,
                cfg.keep_every,
                ranks=ranks,
                rows=trainer.rows,
            )
            trainer.judge = lambda: verdict(config, folder, _known_device(trainer.device), ranks.size)
            if resuming:
                trainer.resume(folder)
            ranks.on_first(lambda: _record(config, folder, trainer))
            with _signs_of_life(config, folder, trainer, ranks, port):
                yield trainer
        except (Exception, KeyboardInterrupt) as error:
            for callback in every:
                callback.on_event("failed", {"error": f"{type(error).__name__}: {error}"})
            raise


@contextmanager
def _signs_of_life(
    config: HyMoConfig, folder: Path, trainer: Trainer, ranks: Ranks, port: int | None
) -> Iterator[None]:
    """Heartbeat, watchdog and endpoint of this rank."""
    cfg = config.training

    def last_words(first: str) -> None:
        pulse.write_stacks()
        for callback in trainer.callbacks:
            callback.on_event("failed", {"error": first})
        for callback in trainer.callbacks:
            if isinstance(callback, Alerts):
                callback.close()

    def abort(reason: str) -> None:
        if ranks.watch is not None:
            ranks.watch.abort(reason)
            return
        print(f"error: {reason}", file=sys.stderr)
        last_words(reason)
        os._exit(1)

    with (
        heartbeat(
            folder, lambda: trainer.step, cfg.hang_minutes, rank=ranks.rank, abort=abort if cfg.hang_abort else None
        ) as pulse,
        ExitStack() as held,
    ):
        if ranks.watch is not None:
            ranks.watch.last_words = last_words
            held.callback(setattr, ranks.watch, "last_words", lambda first: None)
        if port is not None:
            recorder = Recorder()
            trainer.callbacks.append(recorder)
            labels = {"run": config.run.name, "rank": str(ranks.rank)}
            held.enter_context(endpoint(config.run.health_host, port, pulse.facts, recorder, labels))
        yield


def _known_device(device: torch.device) -> str | None:
    """Short name of a device whose speed can be planned."""
    found = match_device(torch.cuda.get_device_name(device)) if device.type == "cuda" else None
    return None if found is None else found.key


def run_inputs(config: HyMoConfig, folder: Path) -> dict[str, Any]:
    """Tokenizer, loader and held-out windows of a run, all checked."""
    cfg = config.training
    assert config.run.data is not None
    try:
        tokenizer = tokenizer_for_run(config.run.tokenizer, folder)
    except UsageError as error:
        made = load_manifest(config.run.data).tokenizer
        raise UsageError(f"run.tokenizer: {error} {config.run.data} was made with '{made}'.") from None
    if tokenizer.vocab_size > config.model.vocab_size:
        raise ConfigError(
            f"model.vocab_size: {config.model.vocab_size} is below the tokenizer's {tokenizer.vocab_size}. Raise it."
        )
    loader = training_loader(config, open_split(config.run.data, "train", tokenizer))
    loader.require_steps(config.total_steps)
    heldout = open_split(config.run.data, "validation", tokenizer)
    windows = EvaluationWindows(heldout, cfg.seq_len, max_tokens=cfg.eval_sequences * cfg.seq_len, tokenizer=tokenizer)
    return {"tokenizer": tokenizer, "loader": loader, "validation": windows}


def _record(config: HyMoConfig, folder: Path, trainer: Trainer) -> None:
    _keep(config, folder)
    _record_start(folder, trainer)


def training_loader(config: HyMoConfig, split: Split) -> PackedLoader:
    """The loader of a run: everything its batches follow from beside the step."""
    cfg = config.training
    return PackedLoader(
        split,
        cfg.seq_len,
        cfg.sequences_per_step,
        seed=cfg.seed,
        packed=cfg.document_masking,
        max_epochs=cfg.max_epochs,
        num_workers=cfg.num_workers,
    )


def _check_folder(folder: Path, config: HyMoConfig, extend: bool) -> bool:
    """Write what describes a new run, or compare with what is there; returns whether there is something to resume."""
    path = folder / CONFIG
    begun = bool(list_checkpoints(folder / CHECKPOINTS))
    if begun and not path.exists():
        raise UsageError(
            f"{path}: missing, but the folder holds checkpoints. Copy it from one of them, or choose another name with "
            "--set run.name=NAME."
        )
    if not (path.exists() and (begun or read_jsonl(folder / METRICS))):
        write_text(path, dump_config(config))
        return False
    there = load_config(path)
    if config_hash(there) != config_hash(config):
        _check_extension(folder, there, config, extend)
        if begun and config.total_steps > there.total_steps:
            _set_back(folder, there.total_steps)
    return begun


def _keep(config: HyMoConfig, folder: Path) -> None:
    """Let the run's folder say what the run does from here on: cadence, length and places may have changed."""
    if load_config(folder / CONFIG) != config:
        write_text(folder / CONFIG, dump_config(config))


def _check_extension(folder: Path, there: HyMoConfig, config: HyMoConfig, extend: bool) -> None:
    """Refuse whatever is not the same run with more steps, asked for as such."""
    if not same_but_for_length(there, config):
        raise UsageError(
            f"{folder}: holds a run with another configuration. Choose another name with --set run.name=NAME, "
            f"resume it with --resume {folder}, or delete it."
        )
    if not extend:
        if there.total_steps != config.total_steps:
            difference = f"{there.total_steps} steps instead of {config.total_steps}"
            field = "scheduler.total_steps"
        else:  # as many steps, differently asked for
            field, old, new = next(each for each in _lengths(there, config) if each[1] != each[2])
            difference = f"{field} {'null' if old is None else old} instead of {'null' if new is None else new}"
        raise UsageError(
            f"{folder}: holds the same run with {difference}. Change that with --resume {folder} --set {field}=N, if "
            "it has a checkpoint of the stable phase, or choose another name with --set run.name=NAME."
        )
    if config.total_steps < there.total_steps:
        raise UsageError(
            f"scheduler.total_steps: {config.total_steps} is below the run's {there.total_steps}. A run can be "
            "lengthened, not shortened."
        )


def _lengths(there: HyMoConfig, config: HyMoConfig) -> Iterator[tuple[str, int | None, int | None]]:
    """Each field that says how long a run is, with both values; the one that asks for something first."""
    yield "training.max_epochs", there.training.max_epochs, config.training.max_epochs
    for name in ("total_steps", "total_tokens"):
        yield f"scheduler.{name}", getattr(there.scheduler, name), getattr(config.scheduler, name)


def _set_back(folder: Path, total_steps: int) -> None:
    """Leave the newest checkpoint that a longer schedule can go on from as the run's newest, later ones moved aside.

    Raises:
        UsageError: there is none. Nothing was changed.
    """
    there = list_checkpoints(folder / CHECKPOINTS)
    stable = (path for path, manifest in verified(there, warnings.warn) if _in_stable_phase(manifest))
    if (newest := next(stable, None)) is None:
        raise UsageError(
            f"{folder}: cannot be lengthened: none of its checkpoints ({', '.join(p.name for p in there)}) is whole "
            "and of the stable phase. Set training.keep_stable=true in the next run, which keeps one."
        )
    later = there[: there.index(newest)]
    if not later:
        return
    suffixes = chain([""], (f"-{i}" for i in count(2)))
    places = (folder / f"{CHECKPOINTS}-of-{total_steps}{suffix}" for suffix in suffixes)
    aside = next(place for place in places if not place.exists())
    with writing(aside):
        aside.mkdir()
        for path in later:
            path.rename(aside / path.name)
        for changed in (aside, folder / CHECKPOINTS, folder):
            flush(changed)


def _in_stable_phase(manifest: Manifest) -> bool:
    schedule = manifest.trainer["scheduler"]
    first = int(schedule["warmup_steps"])
    return first <= manifest.step <= first + int(schedule["stable_steps"])


def _record_start(folder: Path, trainer: Trainer) -> None:
    """Add this process to the run's list of starts: what it runs on may differ from one to the next."""
    path = folder / ENVIRONMENT
    try:
        starts = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        starts = []
    date = datetime.now(UTC).isoformat(timespec="seconds")
    entry = {
        "date": date,
        "step": trainer.step,
        **environment(),
        "kernel": resolved_kernel(trainer.config, trainer.device),
    }
    write_text(path, json.dumps([*(starts if isinstance(starts, list) else [starts]), entry], indent=1))


def resolved_kernel(config: HyMoConfig, device: torch.device) -> dict[str, str | None]:
    """What runs the recurrence, and the environment variable that may have decided it.

    Raises:
        UsageError: training.gdn_kernel names one that cannot run here.
    """
    model, training = config.model, config.training
    values = torch.empty(1, device=device, dtype=compute_dtype(config, device))
    values = values.expand(1, training.seq_len, 1, model.gdn_headdim)
    implementation = choose(training.gdn_kernel, values, model.gdn_d_state)
    return {"operation": model.gdn_recurrence, "implementation": implementation, SWITCH: os.environ.get(SWITCH)}


def environment() -> dict[str, Any]:
    """What a result depends on beside the configuration."""
    return {
        "hymo": VERSION,
        "commit": commit(),
        "python": sys.version.split()[0],
        "torch": torch.__version__,
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "cuda": torch.version.cuda,
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
    }
