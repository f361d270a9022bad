"""What checkpoints a run has: which are whole, and which of them retention keeps."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hymo.core.errors import CheckpointError, UsageError
from hymo.core.load import load_config
from hymo.models.checkpoint import CHECKPOINTS, CONFIG, MANIFEST, Manifest, list_checkpoints, step_of, verify
from hymo.training.checkpointer import surplus
from hymo.training.metrics import METRICS, read_metrics
from hymo.training.run import claimed


@dataclass(frozen=True)
class CheckpointInfo:
    """One checkpoint folder, whole or not."""

    path: Path
    step: int
    """Optimizer steps done, from the folder's name."""
    bytes: int
    """Size of the files that are there."""
    damage: str
    """Why it cannot be used, naming the file; empty if every file verifies."""
    tokens: int | None = None
    """Training tokens seen; None if damaged."""
    val_loss: float | None = None
    """Nats per token measured at this step; None if none was."""
    best: bool = False
    """Whether the newest whole checkpoint names this one as the best."""

    def to_dict(self) -> dict[str, Any]:
        """All fields, and `whole`."""
        return {**asdict(self), "path": str(self.path), "whole": not self.damage}


@dataclass(frozen=True)
class Pruning:
    """What retention removes, or would."""

    removed: list[CheckpointInfo]
    kept: list[CheckpointInfo]
    damaged: list[CheckpointInfo]
    """Neither counted nor deleted."""


def inspect_checkpoints(path: Path) -> list[CheckpointInfo]:
    """Verify one checkpoint, or every one of a run, newest first. Reads every byte.

    Raises:
        UsageError: neither a checkpoint nor a folder that holds some.
    """
    folders = _folders(path)
    manifests: dict[Path, Manifest] = {}
    damage: dict[Path, str] = {}
    for folder in folders:
        try:
            manifests[folder] = verify(folder)
        except CheckpointError as error:
            damage[folder] = str(error)
    best = _best_step(list(manifests.values()))
    losses = _validation_losses(folders[0])
    infos = []
    for folder in folders:
        manifest, step = manifests.get(folder), step_of(folder.resolve())
        step = step if step is not None else manifest.step if manifest is not None else 0
        infos.append(
            CheckpointInfo(
                path=folder,
                step=step,
                bytes=_size(folder),
                damage=damage.get(folder, ""),
                tokens=None if manifest is None else manifest.tokens,
                val_loss=losses.get(step),
                best=step == best,
            )
        )
    return infos


def _size(folder: Path) -> int:
    """Bytes in a folder; 0 if a run's retention has just deleted it."""
    try:
        return sum(file.stat().st_size for file in folder.iterdir() if file.is_file())
    except FileNotFoundError:
        return 0


def prune_checkpoints(run: Path, dry_run: bool = False) -> Pruning:
    """Delete what the run's own retention (keep_last, keep_every, the best) does not keep.

    Raises:
        UsageError: not the folder of a run, or another process is training there.
    """
    if not (run / CONFIG).is_file() or not (run / CHECKPOINTS).is_dir():
        raise UsageError(f"{run}: not a run with checkpoints. prune takes the folder of a run.")
    if dry_run:
        return _prune(run, delete=False)
    with claimed(run):
        return _prune(run, delete=True)


def _prune(run: Path, delete: bool) -> Pruning:
    cfg = load_config(run / CONFIG).training
    infos = inspect_checkpoints(run)
    whole = [info for info in infos if not info.damage]
    best = next((info.step for info in whole if info.best), None)
    surplus_paths = set(surplus([(i.path, i.step) for i in whole], cfg.keep_last, cfg.keep_every, best))
    removed = [info for info in whole if info.path in surplus_paths]
    if delete:
        for info in removed:
            shutil.rmtree(info.path)
    return Pruning(removed, [i for i in whole if i.path not in surplus_paths], [i for i in infos if i.damage])


def _folders(path: Path) -> list[Path]:
    if not path.is_dir():
        raise UsageError(f"{path}: no such folder. Give a run folder or a folder step-N.")
    if (path / MANIFEST).exists() or step_of(path.resolve()) is not None:
        return [path]
    found = list_checkpoints(path / CHECKPOINTS if (path / CHECKPOINTS).is_dir() else path)
    if not found:
        raise UsageError(f"{path}: no checkpoint there. Give a run folder or a folder step-N.")
    return found


def _best_step(newest_first: Sequence[Manifest]) -> int | None:
    best: int | None = newest_first[0].trainer.get("best_step") if newest_first else None
    return best


def _validation_losses(checkpoint: Path) -> dict[int, float]:
    """Held-out loss by step from the metrics of the run that a checkpoint lies in, if it lies in one."""
    run = checkpoint.resolve().parent.parent
    if not (run / METRICS).is_file():
        return {}
    return {r["step"]: r["val/loss"] for r in read_metrics(run, lambda record: record.get("split") == "val")}
