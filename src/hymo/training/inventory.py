"""What checkpoints a run has: which are whole, and which of them retention keeps."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hymo.core.errors import CheckpointError, UsageError
from hymo.core.load import CHECKPOINTS, CONFIG, run_config
from hymo.models.checkpoint import Manifest, checkpoints_at, step_of, verify
from hymo.training.lock import claimed
from hymo.training.metrics import METRICS, read_metrics
from hymo.training.retention import delete_checkpoints, pinned_steps, surplus


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
    return _inspect(checkpoints_at(path))[0]


def _inspect(folders: list[Path]) -> tuple[list[CheckpointInfo], Manifest | None]:
    """What is to be said of each checkpoint, and the manifest of the newest whole one."""
    manifests: dict[Path, Manifest] = {}
    damage: dict[Path, str] = {}
    for folder in folders:
        try:
            manifests[folder] = verify(folder)
        except CheckpointError as error:
            damage[folder] = str(error)
    # A run's retention may have deleted one while it was read.
    folders = [folder for folder in folders if folder in manifests or folder.exists()]
    newest = next(iter(manifests.values()), None)
    best = None if newest is None else newest.trainer.get("best_step")
    losses = _validation_losses(folders[0]) if folders else {}
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
    return infos, newest


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
    with claimed(run, "It prunes after every save by itself: wait, or only look with --dry-run."):
        return _prune(run, delete=True)


def _prune(run: Path, delete: bool) -> Pruning:
    cfg = run_config(run).training
    infos, newest = _inspect(checkpoints_at(run))
    whole = [info for info in infos if not info.damage]
    pinned = set() if newest is None else pinned_steps(newest.trainer, cfg)
    surplus_paths = set(surplus([(i.path, i.step) for i in whole], cfg.keep_last, cfg.keep_every, pinned))
    removed = [info for info in whole if info.path in surplus_paths]
    if delete:
        delete_checkpoints(info.path for info in removed)
    return Pruning(removed, [i for i in whole if i.path not in surplus_paths], [i for i in infos if i.damage])


def _validation_losses(checkpoint: Path) -> dict[int, float]:
    """Held-out loss by step from the metrics of the run that a checkpoint lies in, if it lies in one."""
    run = checkpoint.resolve().parent.parent
    if not (run / METRICS).is_file():
        return {}
    return {r["step"]: r["val/loss"] for r in read_metrics(run, lambda record: "val/loss" in record)}
