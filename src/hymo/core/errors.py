"""Exceptions that users see.

Every message says what is wrong, where (file, key, layer, tensor) and what to do about it. The command line maps
`UsageError` to exit code 2 and every other `HymoError` to exit code 1.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class HymoError(Exception):
    """Base class of all errors that HyMo raises on purpose."""


class UsageError(HymoError):
    """The request itself is wrong: nothing was started. Exit code 2."""


class ConfigError(UsageError):
    """A configuration file, override or combination of fields is invalid."""


class DataError(HymoError):
    """Input text, a shard or a data set cannot be used."""


class CheckpointError(HymoError):
    """A checkpoint is missing, damaged or belongs to another run."""


class ExportError(HymoError):
    """A written export does not give what the checkpoint gives."""


class StorageError(HymoError):
    """A disk is full or fails."""


class TrainingError(HymoError):
    """Training cannot go on (for example: too many non-finite steps)."""


class RankError(TrainingError):
    """Another rank of the same run failed first and tells of it; this one only ends.

    Args:
        message: what that rank said.
        usage: whether it refused a wrong request.
    """

    def __init__(self, message: str, usage: bool = False) -> None:
        super().__init__(message)
        self.usage = usage


def nearest(name: str, known: Iterable[str]) -> str:
    """Return `` (did you mean 'x'?)`` for the closest of `known`, or an empty string."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f" (did you mean '{close[0]}'?)" if close else ""
