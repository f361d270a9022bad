"""Writing small files: whole or not at all, and one clear error where a place cannot be written."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hymo.core.errors import StorageError, UsageError

ADVICE = "Choose another place, or change its permissions."
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def flush(path: Path) -> None:
    """Force a file or a folder's entries to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def writing(path: str | Path, advice: str = ADVICE) -> Iterator[None]:
    """Turn an OSError of the block into an error that users see.

    Args:
        path: what is written, for the message.
        advice: what to do where the place itself is wrong; a full disk has an advice of its own.

    Raises:
        StorageError: the disk is full, over its quota or failing.
        UsageError: the place cannot be written at all.
    """
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        if error.errno in _NO_ROOM:
            raise StorageError(f"{path}: cannot be written ({reason}). Free space there, then try again.") from None
        raise UsageError(f"{path}: cannot be written ({reason}). {advice}") from None


def write_text(path: Path, text: str, advice: str = ADVICE) -> None:
    """Replace the file at `path` as a whole by text in UTF-8; as `write_bytes`."""
    write_bytes(path, text.encode("utf-8"), advice)


def write_bytes(path: Path, data: bytes, advice: str = ADVICE) -> None:
    """Replace the file at `path` as a whole: whatever fails, the old content stays.

    Raises:
        StorageError, UsageError: as in `writing`.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    with writing(path, advice):
        try:
            with temporary.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except OSError:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
