"""Writing checkpoints: atomically, verified, and never at the cost of the last good one.

Order of events: tensors and configuration go to a temporary sibling folder, the manifest last; every file is flushed to
disk; the folder is renamed. A crash at any point leaves either the old state or the new one. The new checkpoint is then
read back, and only if it verifies does retention delete old ones, counting those alone that verify. What has been
verified is not read again while its files stay untouched, so a save reads twice its own size and no more. The format
and how to read it are in `hymo.models.checkpoint`.

Several ranks write one checkpoint into one folder that all of them see, each the slices it holds, and each tells the
first rank the checksums of what it wrote. The first waits until it sees these files, whatever its file system's caches
say, and does the rest; all learn how it ended.
"""

from __future__ import annotations

import dataclasses
import queue
import shutil
import threading
import time
import warnings
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch.distributed.checkpoint.api import CheckpointException  # not an Exception
from torch.distributed.checkpoint.state_dict_saver import save as dcp_save

from hymo.core.files import flush, writing
from hymo.core.load import CONFIG
from hymo.models.checkpoint import MANIFEST, Digests, Manifest, file_digest, list_checkpoints, verified, verify
from hymo.training.ranks import ALONE, Ranks
from hymo.training.retention import delete_checkpoints, surplus
from hymo.training.sharding import as_shards

_TEMPORARY = ".tmp-"
_METADATA = ".metadata"
_VISIBLE_SECONDS = 120.0
"""How long files of other ranks may take to show up in a shared file system."""


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

    Args:
        folder: of the checkpoints.
        config_text: the resolved configuration.
        keep_last, keep_every: retention.
        ranks: who saves together; all call `start` at the same steps.
        rows: `ShardedModel.rows`, where ranks share the weights.
    """

    def __init__(
        self,
        folder: Path,
        config_text: str,
        keep_last: int,
        keep_every: int | None = None,
        *,
        ranks: Ranks = ALONE,
        rows: Mapping[str, int] | None = None,
    ) -> None:
        self.folder = folder
        self.ranks, self.rows = ranks, rows or {}
        self._config_text = config_text
        self._keep_last, self._keep_every = keep_last, keep_every
        self._staging: dict[str, Any] = {}
        self._thread: threading.Thread | None = None
        self._done: queue.SimpleQueue[SaveResult] = queue.SimpleQueue()
        self._told: set[str] = set()
        self.digests = Digests()
        if not ranks.first:
            return
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
            if self.ranks.size == 1:
                path = self._finish(self._write(manifest), pinned, told.append)
            else:
                path = self._write_together(manifest, pinned, told.append)
        except (Exception, CheckpointException) as problem:  # whatever it was, training goes on and says so
            error = _reason(problem)
        news = tuple(text for text in told if text not in self._told)
        self._told.update(news)
        self._done.put(SaveResult(manifest.step, path, error, time.perf_counter() - began, news))

    def _write(self, manifest: Manifest) -> Path:
        temporary = self._temporary(manifest.step)
        try:
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir(parents=True)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                dcp_save(self._staging, checkpoint_id=str(temporary), no_dist=True)
            (temporary / CONFIG).write_text(self._config_text, encoding="utf-8")
            return self._seal(manifest, {path.name: self.digests(path) for path in sorted(temporary.iterdir())})
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise

    def _write_together(self, manifest: Manifest, pinned: Collection[int], report: Callable[[str], None]) -> Path:
        temporary, ranks = self._temporary(manifest.step), self.ranks

        def clear() -> None:
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir(parents=True)

        def finish(found: list[dict[str, dict[str, Any]]]) -> tuple[Path, list[str]]:
            files = {name: digest for each in found for name, digest in each.items()}
            wait_until_visible({temporary / name: digest["bytes"] for name, digest in files.items()}, _VISIBLE_SECONDS)
            (temporary / CONFIG).write_text(self._config_text, encoding="utf-8")
            files |= {name: self.digests(temporary / name) for name in (CONFIG, _METADATA)}
            told = list[str]()
            return self._finish(self._seal(manifest, files), pinned, told.append), told

        try:
            ranks.on_first(clear, ranks.saves)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                dcp_save(
                    as_shards(self._staging, self.rows, ranks),
                    checkpoint_id=str(temporary),
                    process_group=ranks.saves,
                )
            found = ranks.everywhere(lambda: self._flushed(temporary, ranks.rank), ranks.saves)
            path, told = ranks.on_first(lambda: finish(found), ranks.saves)
        except BaseException:
            if ranks.first:
                shutil.rmtree(temporary, ignore_errors=True)
            raise
        for text in told:
            report(text)
        return path

    def _flushed(self, temporary: Path, rank: int) -> dict[str, dict[str, Any]]:
        """Size and checksum of each file that this rank wrote, on disk by now."""
        mine = sorted(temporary.glob(f"__{rank}_*"))
        for path in mine:
            flush(path)
        return {path.name: file_digest(path) for path in mine}

    def _temporary(self, step: int) -> Path:
        return self.folder / f"{_TEMPORARY}{_name(step)}"

    def _seal(self, manifest: Manifest, files: dict[str, dict[str, Any]]) -> Path:
        """Write the manifest of a complete temporary folder and give it its name; returns its place."""
        temporary, final = self._temporary(manifest.step), self.folder / _name(manifest.step)
        complete = dataclasses.replace(manifest, files=files)
        (temporary / MANIFEST).write_text(complete.to_json(), encoding="utf-8")
        for path in temporary.iterdir():
            flush(path)
        flush(temporary)
        if final.exists():  # left by a run that was resumed from before it
            shutil.rmtree(final)
        temporary.rename(final)
        flush(self.folder)
        return final

    def _finish(self, written: Path, pinned: Collection[int], report: Callable[[str], None]) -> Path:
        """Read a new checkpoint back, then delete what retention does not keep."""
        verify(written, self.digests)
        try:
            self._prune(pinned, written, report)
        except OSError as problem:
            report(f"old checkpoints could not be deleted: {_reason(problem)}")
        return written

    def _prune(self, pinned: Collection[int], newest: Path, report: Callable[[str], None]) -> None:
        """Delete the whole checkpoints that retention does not keep, never the one just saved."""
        there = list_checkpoints(self.folder)
        whole = [(path, manifest.step) for path, manifest in verified(there, report, self.digests)]
        delete_checkpoints(path for path in surplus(whole, self._keep_last, self._keep_every, pinned) if path != newest)
        self.digests.forget_missing()


def wait_until_visible(files: Mapping[Path, int], seconds: float) -> None:
    """Wait for files of known sizes that other machines wrote: a shared file system may show them late.

    Raises:
        OSError: one of them is still missing or short.
    """
    until, pause = time.monotonic() + seconds, 0.01
    waiting = dict(files)
    while True:
        waiting = {path: size for path, size in waiting.items() if _size(path) != size}
        if not waiting:
            return
        if time.monotonic() >= until:
            names = ", ".join(path.name for path in waiting)
            raise OSError(f"{names}: written by another rank, but not seen here after {seconds:g} s")
        time.sleep(pause)
        pause = min(1.0, 2 * pause)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return -1


def _name(step: int) -> str:
    return f"step-{step:08d}"


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
