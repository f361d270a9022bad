"""The records of a run: `metrics.jsonl` (numbers by step) and `events.jsonl` (what happened).

Files are only appended to. A resumed run writes a `resume` event; readers drop the metrics past the step it resumed at.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol, TextIO

from hymo.core.errors import UsageError
from hymo.core.files import writing

Record = dict[str, Any]
"""One line of a file of records."""
SCHEMA = 1
METRICS = "metrics.jsonl"
EVENTS = "events.jsonl"
_TYPES: dict[str, tuple[type, ...]] = {
    "ts": (int, float),
    "step": (int,),
    "tokens": (int,),
    "split": (str,),
    "kind": (str,),
}
_TICK = 1e-5
"""Least time between two records, in seconds."""
_TAIL_BYTES = 1 << 16


class Callback(Protocol):
    """What the trainer tells while it runs. Calls come in step order, on the training thread."""

    def on_metrics(self, record: Mapping[str, Any]) -> None:
        """Numbers of one step: `step`, `tokens`, `split` and flat names such as `train/loss`."""

    def on_event(self, kind: str, fields: Mapping[str, Any]) -> None:
        """Something happened: `start`, `resume`, `skip`, `checkpoint`, `stop`, ..."""


class JsonlSink:
    """Writes both files, one JSON object a line, flushed at once; a file that was moved away is begun anew."""

    def __init__(self, folder: Path) -> None:
        self._failed, self._folder = False, folder
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            self._files = {name: (folder / name).open("a", encoding="utf-8") for name in (METRICS, EVENTS)}
        self._last = max((_newest(folder / name) for name in self._files), default=0.0)
        for name, file in self._files.items():
            if file.tell() == 0:
                self._write(name, {"schema": SCHEMA})
            elif _cut_short(folder / name):
                file.write("\n")

    def on_metrics(self, record: Mapping[str, Any]) -> None:
        """Append numbers; what is not finite becomes null."""
        self._write(METRICS, {"ts": self._now(), **record})

    def on_event(self, kind: str, fields: Mapping[str, Any]) -> None:
        """Append an event."""
        self._write(EVENTS, {"ts": self._now(), "kind": kind, **fields})

    def _now(self) -> float:
        """The time, but after every record before: a resume tells by it what is obsolete, and clocks go back."""
        self._last = max(time.time(), self._last + _TICK)
        return self._last

    def close(self) -> None:
        """Close both files."""
        for file in self._files.values():
            with contextlib.suppress(OSError):
                file.close()

    def _write(self, name: str, record: Mapping[str, Any]) -> None:
        line = json.dumps({key: _plain(value) for key, value in record.items()}, allow_nan=False) + "\n"
        try:
            if not _is_at(self._files[name], self._folder / name):
                moved = self._files[name]
                self._files[name] = (self._folder / name).open("a", encoding="utf-8")
                moved.close()
                if self._files[name].tell() == 0:
                    line = json.dumps({"schema": SCHEMA}) + "\n" + line
            self._files[name].write(line)
            self._files[name].flush()
        except OSError as error:  # a full disk must not end the run; what is lost here is told once
            if not self._failed:
                print(f"{name}: cannot be written ({error.strerror}); training goes on without it", file=sys.stderr)
            self._failed = True


def _is_at(file: TextIO, path: Path) -> bool:
    """Whether an open file still has its name: rotation of logs moves it away."""
    try:
        return os.fstat(file.fileno()).st_ino == path.stat().st_ino
    except FileNotFoundError:
        return False


def _newest(path: Path) -> float:
    """The largest time among the last records of a file; 0 without one."""
    with path.open("rb") as stream:
        stream.seek(max(0, stream.seek(0, 2) - _TAIL_BYTES))
        records = parse_lines(stream.read().split(b"\n"))
    return max((float(record.get("ts", 0)) for record in records), default=0.0)


def _cut_short(path: Path) -> bool:
    """Whether a crash left half a line at the end of a file: what comes next must not join it."""
    with path.open("rb") as stream:
        stream.seek(-1, 2)
        return stream.read() != b"\n"


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def parse_lines(lines: Iterable[bytes]) -> list[Record]:
    """The records among lines: JSON objects, without the one that states the schema.

    A line cut short by a crash, or of zeros after a power loss, is no record, nor is one whose fields have other types
    than a sink writes.
    """
    records = []
    for line in lines:
        try:
            record = json.loads(line)
        except ValueError:  # of JSON, or of UTF-8
            continue
        if isinstance(record, dict) and "schema" not in record and all(map(_fits, record, record.values())):
            records.append(record)
    return records


def _fits(name: str, value: Any) -> bool:
    """Whether a field has the type that every reader may rely on; fields of events are free."""
    if name in _TYPES:
        return type(value) in _TYPES[name]
    return "/" not in name or value is None or type(value) in (int, float) or name.startswith("data/")


def read_jsonl(path: Path) -> list[Record]:
    """All whole records of a file; none if it is not there.

    Raises:
        UsageError: it is there and cannot be read.
    """
    try:
        return parse_lines(path.read_bytes().split(b"\n"))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror}). Give a run folder that you may read.") from None


def read_metrics(folder: Path, keep: Callable[[Record], bool] = lambda _: True) -> list[Record]:
    """The metrics of a run as if it had never been interrupted: records that a resume made obsolete are dropped."""
    resumes = [
        (event["ts"], event["step"])
        for event in read_jsonl(folder / EVENTS)
        if event.get("kind") in ("resume", "start") and {"ts", "step"} <= event.keys()
    ]
    valid = []
    for record in read_jsonl(folder / METRICS):
        if not {"ts", "step"} <= record.keys():
            continue
        redone = any(record["ts"] <= at and record["step"] > step for at, step in resumes)
        if not redone and keep(record):
            valid.append(record)
    return valid
