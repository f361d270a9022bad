"""From a configuration to a trainer with everything around it: the run folder, its data, its sinks, its checkpoints.

A run folder holds config.yaml (resolved), env.json, metrics.jsonl, events.jsonl, checkpoints/, eval/ and plots/.
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from hymo.core.config import HyMoConfig
from hymo.core.errors import ConfigError, UsageError
from hymo.core.load import config_hash, dump_config, load_config
from hymo.data import EvaluationWindows, PackedLoader, Split, load_tokenizer, open_split
from hymo.models.checkpoint import CHECKPOINTS, list_checkpoints
from hymo.training.checkpointer import Checkpointer
from hymo.training.metrics import METRICS, Callback, JsonlSink, read_jsonl
from hymo.training.trainer import Trainer, refuse_unavailable

CONFIG = "config.yaml"


def run_folder(config: HyMoConfig) -> Path:
    """The folder of a run: output_dir/name."""
    return Path(config.run.output_dir) / config.run.name


@contextmanager
def open_run(
    config: HyMoConfig, callbacks: Sequence[Callback] = (), validation: EvaluationWindows | None = None
) -> Iterator[Trainer]:
    """Check everything, then open the run folder and yield its trainer, resumed if the folder holds checkpoints.

    `validation` replaces the windows that the configuration asks for.

    Raises:
        UsageError: no data, a vocabulary that does not fit the tokenizer, a folder in use or of another configuration.
        DataError, CheckpointError: as the parts raise them, before any work.
    """
    refuse_unavailable(config)
    if config.run.data is None:
        raise UsageError("run.data: not set. Prepare text with `hymo data prepare`, then pass --data DIR.")
    tokenizer = load_tokenizer(config.run.tokenizer)
    if tokenizer.vocab_size > config.model.vocab_size:
        raise ConfigError(
            f"model.vocab_size: {config.model.vocab_size} is below the tokenizer's {tokenizer.vocab_size}. Raise it."
        )
    train = open_split(config.run.data, "train", tokenizer)
    cfg = config.training
    loader = training_loader(config, train)
    loader.require_steps(config.total_steps)
    if validation is None:
        heldout = open_split(config.run.data, "validation", tokenizer)
        validation = EvaluationWindows(heldout, cfg.seq_len, max_tokens=cfg.eval_sequences * cfg.seq_len)
    folder = run_folder(config)
    with claimed(folder):
        resuming = _check_folder(folder, config)
        sink = JsonlSink(folder)
        every: list[Callback] = [sink, *callbacks]

        saver = Checkpointer(folder / CHECKPOINTS, dump_config(config), cfg.keep_last, cfg.keep_every)
        try:
            trainer = Trainer(
                config,
                loader,
                validation=validation,
                checkpointer=saver,
                callbacks=every,
                config_hash=config_hash(config),
                tokenizer=tokenizer.fingerprint(),
            )
            if resuming:
                trainer.resume(folder)
            yield trainer
        except (Exception, KeyboardInterrupt) as error:
            sink.on_event("failed", {"error": f"{type(error).__name__}: {error}"})
            raise
        finally:
            sink.close()


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
    )


def _check_folder(folder: Path, config: HyMoConfig) -> bool:
    """Write what describes a new run, or compare with what is there; returns whether there is something to resume."""
    path = folder / CONFIG
    begun = bool(list_checkpoints(folder / CHECKPOINTS))
    if path.exists() and (begun or read_jsonl(folder / METRICS)):
        if config_hash(load_config(path)) != config_hash(config):
            raise UsageError(
                f"{folder}: holds a run with another configuration. Choose another name with --set run.name=NAME, "
                f"resume it with --resume {folder}, or delete it."
            )
        return begun
    path.write_text(dump_config(config), encoding="utf-8")
    (folder / "env.json").write_text(json.dumps(environment(), indent=1), encoding="utf-8")
    return False


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Hold the run's lock: two processes must never write one folder.

    Raises:
        UsageError: another process holds it, or the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / "run.lock").open("w")
    except OSError as error:
        raise UsageError(f"{folder}: cannot be written: {error.strerror}. Set run.output_dir elsewhere.") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UsageError(f"{folder}: another process is training there. Choose another run.name.") from None
        yield


def environment() -> dict[str, Any]:
    """What a result depends on beside the configuration."""
    from hymo import __version__

    return {
        "hymo": __version__,
        "python": sys.version.split()[0],
        "torch": torch.__version__,
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "cuda": torch.version.cuda,
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
    }
