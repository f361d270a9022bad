"""Writing checkpoints: atomically, verified, and never at the cost of the last good one.

Order of events: tensors and configuration go to a temporary sibling folder, the manifest last; every file is flushed to
disk; the folder is renamed. A crash at any point leaves either the old state or the new one. The new checkpoint is then
read back, and only if it verifies does retention delete old ones, counting those alone that verify. What has been
verified is not read again while its files stay untouched, so a save reads twice its own size and no more. The format
and how to read it are in `hymo.models.checkpoint`.
"""

from __future__ import annotations

import dataclasses
import queue
import shutil
import threading
import time
import warnings
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.api import CheckpointException  # not an Exception
from torch.distributed.checkpoint.state_dict_saver import save as dcp_save

from hymo.core.files import flush, writing
from hymo.core.load import CONFIG
from hymo.models.checkpoint import MANIFEST, Digests, Manifest, list_checkpoints, verified, verify
from hymo.training.retention import delete_checkpoints, surplus

_TEMPORARY = ".tmp-"


@dataclass(frozen=True)
class SaveResult:
    """How one save ended."""

    step: int
    path: Path | None
    """The checkpoint, read back and whole, or None if the save failed."""
    error: str
    """Why it failed, else empty."""
    seconds: float
    """From the copy of the tensors to the rename."""
    warnings: tuple[str, ...] = ()
    """What else a person should know: damaged checkpoints met for the first time, old ones that cannot be deleted."""


class Checkpointer:
    """Saves into and prunes one folder of `step-N` checkpoints, off the critical path.

    `start` copies the tensors to staging memory, which is allocated once, and returns; a thread writes them. One save
    is in flight at a time: the next `start` waits for it, so memory stays bounded.
    """

    def __init__(self, folder: Path, config_text: str, keep_last: int, keep_every: int | None = None) -> None:
        self.folder = folder
        self._config_text = config_text
        self._keep_last, self._keep_every = keep_last, keep_every
        self._staging: dict[str, Any] = {}
        self._thread: threading.Thread | None = None
        self._done: queue.SimpleQueue[SaveResult] = queue.SimpleQueue()
        self._told: set[str] = set()
        self.digests = Digests()
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
        for leftover in folder.glob(f"{_TEMPORARY}*"):
            shutil.rmtree(leftover, ignore_errors=True)

    def start(self, state: dict[str, Any], manifest: Manifest, pinned: Collection[int] = ()) -> None:
        """Begin a save of `state`, a nested dictionary of tensors, as it is now.

        Args:
            state: what to save; may change as soon as this returns.
            manifest: everything but the list of files.
            pinned: steps that retention keeps whatever their age.
        """
        self._join()
        _stage(state, self._staging)
        self._thread = threading.Thread(target=self._run, args=(manifest, pinned), name="checkpoint", daemon=True)
        self._thread.start()

    def finished(self, wait: bool = False) -> list[SaveResult]:
        """Take the results of saves that ended since the last call; with `wait`, let the one in flight end first."""
        if wait:
            self._join()
        done = []
        while not self._done.empty():
            done.append(self._done.get())
        return done

    def _join(self) -> None:
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _run(self, manifest: Manifest, pinned: Collection[int]) -> None:
        began = time.perf_counter()
        path, error, told = None, "", list[str]()
        try:
            written = self._write(manifest)
            verify(written, self.digests)
            path = written
        except (Exception, CheckpointException) as problem:  # whatever it was, training goes on and says so
            error = _reason(problem)
        else:
            try:
                self._prune(pinned, path, told.append)
            except OSError as problem:
                told.append(f"old checkpoints could not be deleted: {_reason(problem)}")
        news = tuple(text for text in told if text not in self._told)
        self._told.update(news)
        self._done.put(SaveResult(manifest.step, path, error, time.perf_counter() - began, news))

    def _write(self, manifest: Manifest) -> Path:
        final = self.folder / f"step-{manifest.step:08d}"
        temporary = self.folder / f"{_TEMPORARY}{final.name}"
        try:
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir(parents=True)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                dcp_save(self._staging, checkpoint_id=str(temporary), no_dist=True)
            (temporary / CONFIG).write_text(self._config_text, encoding="utf-8")
            files = {path.name: self.digests(path) for path in sorted(temporary.iterdir())}
            complete = dataclasses.replace(manifest, files=files)
            (temporary / MANIFEST).write_text(complete.to_json(), encoding="utf-8")
            for path in temporary.iterdir():
                flush(path)
            flush(temporary)
            if final.exists():  # left by a run that was resumed from before it
                shutil.rmtree(final)
            temporary.rename(final)
            flush(self.folder)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        return final

    def _prune(self, pinned: Collection[int], newest: Path, report: Callable[[str], None]) -> None:
        """Delete the whole checkpoints that retention does not keep, never the one just saved."""
        there = list_checkpoints(self.folder)
        whole = [(path, manifest.step) for path, manifest in verified(there, report, self.digests)]
        delete_checkpoints(path for path in surplus(whole, self._keep_last, self._keep_every, pinned) if path != newest)
        self.digests.forget_missing()


def _reason(problem: BaseException) -> str:
    text = str(problem).strip()
    return f"{type(problem).__name__}: {text.splitlines()[-1] if text else ''}"


def _stage(source: dict[str, Any], staging: dict[str, Any]) -> None:
    """Copy the tensors of a nested dictionary into CPU memory of the same structure, reusing what is there."""
    for key, value in source.items():
        if isinstance(value, dict):
            _stage(value, staging.setdefault(key, {}))
        elif key in staging and staging[key].shape == value.shape:
            staging[key].copy_(value)
        else:
            staging[key] = value.detach().to("cpu", copy=True)
