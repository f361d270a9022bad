"""Where the data of benchmark tasks comes from: a mirror, the cache of `datasets`, or, only if asked, the network.

A mirror has a folder OWNER/NAME for each data set OWNER/NAME. In it lies a copy of the repository as `hf download`
makes it, or files SPLIT.jsonl, SPLIT.json, SPLIT.parquet or SPLIT.csv, below a folder of the configuration's name where
a data set has several. The task's own definition stays as it is: fields, prompts and metrics.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datasets
import huggingface_hub.constants

from hymo.core.errors import DataError

_FILE = re.compile(
    r"^(train|validation|test|dev|auxiliary_train)(?:-\d{5}-of-\d{5})?\.(jsonl|json|parquet|csv)$", re.ASCII
)
_PACKAGED = ("json", "parquet", "csv", "text", "arrow")
"""Readers of `datasets` that a local task names instead of a data set."""


@dataclass(frozen=True)
class Missing:
    """Something that an evaluation needs and that is not there."""

    task: str
    what: str
    """Data set, file or option."""
    remedy: str
    """What to do about it."""


def listed(missing: Sequence[Missing]) -> list[str]:
    """One line for each task and remedy."""
    lines: dict[tuple[str, str], list[str]] = {}
    for item in dict.fromkeys(missing):
        lines.setdefault((item.task, item.remedy), []).append(item.what)
    return [
        f"{task}: {whats[0]}{f' and {len(whats) - 1} more' if len(whats) > 1 else ''}: missing. {remedy}"
        for (task, remedy), whats in lines.items()
    ]


class TaskData:
    """Loads the data sets that task definitions name.

    Args:
        mirror: folder of local copies.
        folders: where relative names of files in local tasks may start, besides the current folder.
        download: let `datasets` fetch what is not there.
    """

    def __init__(self, mirror: Path | None = None, folders: Sequence[Path] = (), download: bool = False) -> None:
        self.mirror, self.folders, self.download = mirror, list(folders), download
        self._loaded: dict[str, Any] = {}
        self._load_dataset = datasets.load_dataset

    def load(self, path: str, name: str | None = None, **options: Any) -> Any:
        """As `datasets.load_dataset`, from here.

        Raises:
            DataError: a mirror's file cannot be read.
            Exception: whatever `datasets` raises for a data set that is not there.
        """
        key = json.dumps([path, name, options], default=str)
        if key not in self._loaded:
            self._loaded[key] = self._load(path, name, options)
        return self._loaded[key]

    def _load(self, path: str, name: str | None, options: dict[str, Any]) -> Any:
        if path in _PACKAGED:
            return self._load_dataset(path, name, **self._found(options))
        folder = None if self.mirror is None else self.mirror / path
        if folder is None or not folder.is_dir():
            with offline(not self.download):
                return self._load_dataset(path, name, **options)
        files = _splits(folder, name)
        if not files:
            with offline(True):
                return self._load_dataset(str(folder), name)
        try:
            return datasets.DatasetDict({split: self._split(split, found) for split, found in files.items()})
        except Exception as error:  # readers of four formats raise dozens of types
            raise DataError(f"{folder}: cannot be read as data set {path} ({_first_line(error)}).") from error

    def _split(self, split: str, files: list[Path]) -> Any:
        if files[0].suffix == ".jsonl":
            lines = (line for file in files for line in file.read_text(encoding="utf-8").split("\n"))
            return datasets.Dataset.from_list([json.loads(line) for line in lines if line.strip()])
        return self._load_dataset(files[0].suffix[1:], data_files={split: [str(file) for file in files]}, split=split)

    def _found(self, options: dict[str, Any]) -> dict[str, Any]:
        """Options whose relative files are looked for in the folders too."""
        files = options.get("data_files")
        if isinstance(files, dict):
            return {**options, "data_files": {split: self._place(value) for split, value in files.items()}}
        return options if files is None else {**options, "data_files": self._place(files)}

    def _place(self, file: Any) -> Any:
        if isinstance(file, list):
            return [self._place(item) for item in file]
        if Path(file).exists():
            return file
        return next((str(folder / file) for folder in self.folders if (folder / file).exists()), file)

    def missing(self, task: str, path: str, name: str | None, options: dict[str, Any]) -> Missing | None:
        """What the task lacks, or None if its data can be loaded.

        Raises:
            DataError: the data is there and cannot be read.
        """
        try:
            self.load(path, name, **options)
        except DataError:
            raise
        except Exception as error:  # as many types as ways not to reach a data set
            if path in _PACKAGED:
                return Missing(task, f"{options.get('data_files')} ({_first_line(error)})", "Put the file there.")
            what = f"data set {path}"
            if self.mirror is not None and (self.mirror / path).is_dir():
                what += (f", configuration {name}" if name else "") + f" ({_first_line(error)})"
            return Missing(task, what, remedy(path, self.mirror))
        return None

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Inside, whoever calls `datasets.load_dataset` gets its data from here: the harness has no other way in."""
        datasets.load_dataset = self.load
        try:
            yield
        finally:
            datasets.load_dataset = self._load_dataset


def remedy(path: str, mirror: Path | None) -> str:
    """How to get a data set of the Hub."""
    place = f"{'MIRROR' if mirror is None else mirror}/{path}"
    return f"Fetch it: hf download {path} --repo-type dataset --local-dir {place}"


def _splits(folder: Path, name: str | None) -> dict[str, list[Path]]:
    """Files by split of a data set in a mirror; none if it is laid out in another way."""
    places = [folder / name] if name else []
    if name is None or not places[0].is_dir():
        places = [folder, folder / "data"] if name in (None, "default", "main") else []
    for place in places:
        found: dict[str, list[Path]] = {}
        for file in sorted(place.iterdir()) if place.is_dir() else []:
            if match := _FILE.match(file.name):
                found.setdefault(match[1], []).append(file)
        if found:
            return found
    return {}


@contextmanager
def offline(on: bool) -> Iterator[None]:
    """Keep `datasets` from asking the network, where it would wait for an answer first."""
    before = datasets.config.HF_HUB_OFFLINE, huggingface_hub.constants.HF_HUB_OFFLINE
    if on:
        datasets.config.HF_HUB_OFFLINE = huggingface_hub.constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        datasets.config.HF_HUB_OFFLINE, huggingface_hub.constants.HF_HUB_OFFLINE = before


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
