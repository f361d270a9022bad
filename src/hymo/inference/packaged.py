"""The checkpoint that ships with the package."""

from __future__ import annotations

from pathlib import Path

from hymo.core.errors import UsageError

DEMO = "demo"
"""What it is called where a checkpoint is asked for."""


def checkpoint_path(name: str | Path) -> Path:
    """The folder that a name stands for: the packaged model for `demo`, unless a folder has that name.

    Raises:
        UsageError: this copy of the package has none.
    """
    path = Path(name)
    if str(name) != DEMO or path.exists():
        return path
    packaged = packaged_folder()
    if not packaged.is_dir():
        raise UsageError(f"{DEMO}: this copy of hymo ships no checkpoint. Name a checkpoint or a run folder.")
    return packaged


def packaged_folder() -> Path:
    """Where the packaged checkpoint lies."""
    return Path(__file__).parent / "demo"
