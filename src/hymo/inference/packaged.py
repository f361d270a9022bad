"""The checkpoint that ships with the package."""

from __future__ import annotations

from pathlib import Path

from hymo.core.errors import UsageError

DEMO = "demo"
"""What it is called where a checkpoint is asked for."""


def checkpoint_path(name: str | Path) -> Path:
    """The folder that a name stands for: the packaged model for `demo`, unless a folder has that name.

    Raises:
        UsageError: no such folder, or no packaged model in this copy of the package.
    """
    path = Path(name)
    if path.exists():
        return path
    if str(name) != DEMO:
        raise UsageError(
            f"{path}: no such folder. Give a run folder, a folder step-N, or `{DEMO}` for the packaged model."
        )
    packaged = packaged_folder()
    if not packaged.is_dir():
        raise UsageError(f"{DEMO}: this copy of hymo ships no checkpoint. Name a checkpoint or a run folder.")
    return packaged


def packaged_folder() -> Path:
    """Where the packaged checkpoint lies."""
    return Path(__file__).parent / "demo"
