"""What several tests of the trainer do."""

from __future__ import annotations

import contextlib
import resource
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hymo.training import Trainer


def stop_after(trainer: Trainer, step: int) -> None:
    """Make the trainer believe that a SIGTERM came after `step`."""
    original = trainer._between_steps

    def between(stop: Any) -> None:
        original(stop)
        if trainer.step == step:
            stop.signal = 15

    trainer._between_steps = between  # type: ignore[method-assign]


@contextlib.contextmanager
def child(command: Sequence[object], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A process that does not outlive the block, so that a failing test ends at once."""
    with subprocess.Popen([str(word) for word in command], text=True, **options) as process:
        try:
            yield process
        finally:
            process.kill()


class SmallDisk:
    """A place that can run full or become read-only.

    A file system of 64 KiB; without the right to mount one, a limit on the size of files and the folder's mode, which
    cause the same errors by other names.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(path)]
        self.mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
        self.no_room = "No space left on device" if self.mounted else "File too large"
        self.not_writable = "Read-only file system" if self.mounted else "Permission denied"

    def fill(self) -> None:
        if not self.mounted:
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
            return
        with (self.path / "filler").open("wb", buffering=0) as stream, contextlib.suppress(OSError):
            while stream.write(b"x" * 1024):
                pass

    def free(self) -> None:
        if not self.mounted:
            hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        (self.path / "filler").unlink(missing_ok=True)

    def read_only(self) -> None:
        if self.mounted:
            subprocess.run(["mount", "-o", "remount,ro", str(self.path)], check=True)
        else:
            self.path.chmod(0o500)

    def close(self) -> None:
        if self.mounted:
            subprocess.run(["umount", str(self.path)], check=True)
        else:
            self.free()
            self.path.chmod(0o700)
