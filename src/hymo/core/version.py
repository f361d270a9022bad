"""Which code this is: the package's version, and the commit where it runs from a checkout."""

from __future__ import annotations

import functools
from pathlib import Path

VERSION = "0.1.0"
"""The package's version."""
_SECONDS = 10


@functools.cache
def commit() -> str:
    """The commit of the checkout that this package is part of, `-dirty` behind it if the package's files differ.

    Empty for an installed package, also for one that lies inside somebody's repository without being part of it, and
    where git is missing.
    """
    package = Path(__file__).resolve().parents[1]
    if _git(package, "ls-files", "--error-unmatch", "__init__.py") is None:
        return ""
    head = _git(package, "rev-parse", "HEAD")
    if not head:
        return ""
    return head + ("-dirty" if _git(package, "status", "--porcelain", "--", ".") else "")


def _git(folder: Path, *words: str) -> str | None:
    """What git says, or None if it fails or is not there."""
    import subprocess  # not at the start of every command

    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
