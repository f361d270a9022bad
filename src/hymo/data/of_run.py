"""What belongs to a run, found again from its folder or one of its checkpoints wherever that lies now."""

from __future__ import annotations

from pathlib import Path

from hymo.core.errors import UsageError
from hymo.core.load import CHECKPOINTS, CONFIG
from hymo.data.dataset import MANIFEST
from hymo.data.tokenizer import Tokenizer, tokenizer_of_run

_DATA = "data"
"""Folder of a run that holds its data set, if it has one of its own."""


def data_of_run(named: str | None, place: Path) -> str:
    """Return the folder of a run's data set.

    Args:
        named: `run.data` of its configuration.
        place: the run's folder or one of its checkpoints.

    Returns:
        `data` in the run's folder if a data set lies there, since it moves with the run; else `named`.

    Raises:
        UsageError: the run names none.
    """
    folder = run_of(place)
    if folder is not None and (folder / _DATA / MANIFEST).is_file():
        return str(folder / _DATA)
    if named is None:
        raise UsageError(f"{place}: run.data is not set. Pass --data DIR, a folder written by `hymo data prepare`.")
    return named


def run_of(place: Path) -> Path | None:
    """The run that a path stands for: itself or, for one of its checkpoints, the folder around; None outside a run."""
    place = place.resolve()
    folders = (place, *place.parents[:2])
    return next((f for f in folders if (f / CONFIG).is_file() and (f / CHECKPOINTS).is_dir()), None)


def tokenizer_of_checkpoint(spec: str, fingerprint: str, place: Path) -> Tokenizer:
    """Return the tokenizer that a checkpoint was trained with.

    Args:
        spec: `run.tokenizer` of its configuration.
        fingerprint: what its manifest says of the tokenizer; empty if the run was fed token batches.
        place: the checkpoint, or its run's folder.

    Raises:
        UsageError: there is none, or another one.
        DataError: its file is damaged.
    """
    tokenizer = tokenizer_of_run(spec, place)
    if fingerprint and tokenizer.fingerprint() != fingerprint:
        raise UsageError(
            f"{tokenizer.name}: is not the tokenizer that {place} was trained with. Put that tokenizer.json into the "
            "run's folder."
        )
    return tokenizer
