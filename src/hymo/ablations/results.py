"""The results of ablation runs: one JSON file that grows, rows merged by what decides a result."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from hymo.ablations.rows import Row
from hymo.core.errors import DataError
from hymo.core.files import write_text, writing

OTHERS = "others"
"""Key of a file's environment: those of later rows that were measured elsewhere."""
ORIGIN = "origin"
"""Key of a row that was measured in one of the others: its number there, from 1."""
_LOST: Row = {"failed": "its row is gone"}
_PLACE = ("device", "torch", "triton")
"""What makes two environments one."""


def environments(environment: Mapping[str, Any], rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Where rows were measured: those of a file's environments that they name, in the order of the file."""
    every = [dict(environment), *environment.get(OTHERS, [])]
    return [every[n] for n in sorted({row.get(ORIGIN, 0) for row in rows}) if n < len(every)]


class Results:
    """A results file, which several processes may fill at once.

    Args:
        path: where it lies, or will lie.

    Raises:
        DataError: what lies there is no such file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.environment: dict[str, Any] = {}
        self.rows: dict[str, Row] = {}
        self._read()

    def _read(self) -> None:
        """Take in what lies there; a run that ended well here stays."""
        if not self.path.exists():
            return
        try:
            there = json.loads(self.path.read_text(encoding="utf-8"))
            environment, rows = dict(there["environment"]), {row["key"]: row for row in there["rows"]}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"{self.path}: is no results file of ablations ({type(error).__name__}: {error}). Move it, or "
                "choose another file with --results."
            ) from None
        kept = {key: row for key, row in self.rows.items() if rows.get(key, _LOST).get("failed")}
        kept = {key: row for key, row in kept.items() if not row.get("failed")}
        self.environment, self.rows = environment, rows | kept

    def finished(self, key: str) -> Row | None:
        """The row of a run that ended well, or None."""
        row = self.rows.get(key)
        return None if row is None or row.get("failed") else row

    def claim(self) -> None:
        """Make sure, before a run begins, that its row can be written.

        Raises:
            UsageError, StorageError: they cannot.
        """
        with self._alone():
            self._read()
            self._write()

    def add(self, row: Row, environment: Mapping[str, Any]) -> None:
        """Put a row in the place of the one with its key, beside what others have written there meanwhile."""
        with self._alone():
            self._read()
            self.rows[row["key"]] = {**row, **self._origin(environment)}
            self._write()

    def _origin(self, environment: Mapping[str, Any]) -> Row:
        """What a row says of where it was measured: nothing for the file's first environment, else a number."""
        first = {k: v for k, v in self.environment.items() if k != OTHERS}
        others: list[dict[str, Any]] = list(self.environment.get(OTHERS, []))
        every = [first, *others]
        same = (n for n, each in enumerate(every) if not each or all(each.get(k) == environment.get(k) for k in _PLACE))
        number = next(same, len(every))
        if number == len(every):
            every.append({})
        every[number] = {**every[number], **environment}
        self.environment = every[0] | ({OTHERS: every[1:]} if every[1:] else {})
        return {ORIGIN: number} if number else {}

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the file's folder, which needs no lock file to be left there."""
        with writing(self.path, "Choose another place with --results, or change its permissions."):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            with suppress(OSError):  # some shared file systems have no locks
                fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            os.close(folder)

    def _write(self) -> None:
        rows = ",\n  ".join(json.dumps(each, allow_nan=False) for each in self.rows.values())
        head = json.dumps(self.environment, indent=1).replace("\n", "\n ")
        write_text(self.path, f'{{\n "environment": {head},\n "rows": [\n  {rows}\n ]\n}}\n')
