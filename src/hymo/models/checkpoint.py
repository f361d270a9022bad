"""Reading checkpoints: what one is, whether it is whole, which is the newest that is, and the model inside.

A checkpoint is a folder `step-N` written by `hymo.training.checkpointer`: tensors in PyTorch's distributed format,
`config.yaml`, and `manifest.json`, which is written last and lists every other file with its size and SHA-256. A folder
is a checkpoint if and only if its manifest verifies.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException  # not an Exception
from torch.distributed.checkpoint.state_dict_loader import load as dcp_load

from hymo.core.config import HyMoConfig
from hymo.core.errors import CheckpointError, UsageError
from hymo.core.load import CHECKPOINTS, CONFIG, load_config
from hymo.models.model import HyMo, build_hymo

FORMAT_VERSION = 1
MANIFEST = "manifest.json"
_NAME = re.compile(r"^step-(\d+)$")
_BLOCK = 1 << 22
_READERS = 8
"""Files of a checkpoint that are read side by side."""
_DIGEST = "manifest_sha256"


@dataclass(frozen=True)
class Manifest:
    """What a checkpoint says of itself."""

    format_version: int
    hymo_version: str
    torch_version: str
    config_hash: str
    tokenizer: str
    """Fingerprint of the tokenizer, empty if the run was fed token batches directly."""
    data: str
    """Fingerprint of the training data, empty likewise."""
    step: int
    """Optimizer steps done."""
    tokens: int
    """Training tokens seen."""
    best_loss: float | None
    """Lowest validation loss so far, nats per token."""
    world_size: int
    trainer: dict[str, Any] = field(default_factory=dict)
    """Loader position, schedule and counters, as plain values."""
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Size and SHA-256 of every other file."""
    commit: str = ""
    """Commit of the checkout that saved it, `-dirty` behind it if files differed; empty for an installed package."""

    def to_json(self) -> str:
        """Serialise with a checksum of its own; `read_manifest` reads it back."""
        fields = asdict(self)
        return json.dumps({**fields, _DIGEST: _digest(fields)}, indent=1, allow_nan=False)


def _digest(fields: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(fields, sort_keys=True, allow_nan=False).encode()).hexdigest()


def step_of(path: Path) -> int | None:
    """The step of a folder named `step-N`, or None."""
    match = _NAME.match(path.name)
    return int(match.group(1)) if match else None


def file_digest(path: Path) -> dict[str, Any]:
    """Size and SHA-256 of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(_BLOCK):
            digest.update(block)
    return {"bytes": path.stat().st_size, "sha256": digest.hexdigest()}


class Digests:
    """`file_digest`, remembered for the life of the object as long as a file's size, times and inode stay the same."""

    def __init__(self) -> None:
        self.bytes_read = 0
        self._lock = threading.Lock()
        self._known: dict[Path, tuple[tuple[int, ...], dict[str, Any]]] = {}

    def __call__(self, path: Path) -> dict[str, Any]:
        """Size and SHA-256 of a file."""
        facts = path.stat()
        stamp = (facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns)
        known = self._known.get(path)
        if known is None or known[0] != stamp:
            known = stamp, file_digest(path)
            with self._lock:  # files are read side by side
                self._known[path] = known
                self.bytes_read += facts.st_size
        return known[1]

    def forget_missing(self) -> None:
        """Drop what is known of files that are gone."""
        self._known = {path: known for path, known in self._known.items() if path.exists()}


def read_manifest(path: Path) -> Manifest:
    """Read the manifest of a checkpoint folder without checking its files.

    Raises:
        CheckpointError: no manifest, not JSON, or another format version.
    """
    try:
        raw = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        version = raw["format_version"]
        if version != FORMAT_VERSION:
            raise CheckpointError(f"{path}: format version {version}, this version of hymo reads {FORMAT_VERSION}.")
        digest = raw.pop(_DIGEST)
        if digest != _digest(raw):
            raise CheckpointError(
                f"{path / MANIFEST}: its own checksum differs. The checkpoint is damaged; use another."
            )
        manifest = Manifest(**raw)
    except FileNotFoundError:
        raise CheckpointError(f"{path}: no {MANIFEST}; the save did not finish. Use another checkpoint.") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path / MANIFEST}: cannot be read ({error}). Use another checkpoint.") from None
    if step_of(path.resolve()) not in (None, manifest.step):
        raise CheckpointError(f"{path}: holds step {manifest.step}. The folder was renamed; give it its own name back.")
    return manifest


def verify(path: Path, digest: Callable[[Path], dict[str, Any]] = file_digest) -> Manifest:
    """Check every file of a checkpoint against its manifest; `digest` reads a file, or remembers what it read.

    Raises:
        CheckpointError: naming the file that is missing, short or changed.
    """
    manifest = read_manifest(path)
    pool = ThreadPoolExecutor(max_workers=_READERS)  # each rank wrote a file of its own
    try:
        return _verified(path, manifest, {name: pool.submit(digest, path / name) for name in manifest.files})
    finally:
        pool.shutdown(cancel_futures=True)


def _verified(path: Path, manifest: Manifest, digests: Mapping[str, Future[dict[str, Any]]]) -> Manifest:
    for name, expected in manifest.files.items():
        file = path / name
        try:
            found = digests[name].result()
        except FileNotFoundError:
            raise CheckpointError(f"{file}: missing. The checkpoint is damaged; use another.") from None
        except OSError as error:
            raise CheckpointError(f"{file}: cannot be read ({error.strerror}). Use another checkpoint.") from None
        if found["bytes"] != expected["bytes"]:
            raise CheckpointError(
                f"{file}: {found['bytes']} bytes instead of {expected['bytes']}. The checkpoint is damaged."
            )
        if found != expected:
            raise CheckpointError(f"{file}: its checksum differs from the manifest. The checkpoint is damaged.")
    return manifest


def list_checkpoints(folder: Path) -> list[Path]:
    """All folders named `step-N` below a run's checkpoint folder, newest first, whole or not."""
    if not folder.is_dir():
        return []
    found = [(step, path) for path in folder.iterdir() if (step := step_of(path)) is not None and path.is_dir()]
    return [path for _, path in sorted(found, reverse=True)]


def checkpoints_at(path: Path) -> list[Path]:
    """The checkpoints that a path stands for, whole or not: itself, or those of a run, newest first.

    Raises:
        UsageError: neither a checkpoint nor a folder that holds some.
    """
    if not path.is_dir():
        raise UsageError(f"{path}: no such folder. Give a run folder or a folder step-N.")
    if (path / MANIFEST).exists() or step_of(path.resolve()) is not None:
        return [path]
    found = list_checkpoints(path / CHECKPOINTS if (path / CHECKPOINTS).is_dir() else path)
    if not found:
        raise UsageError(f"{path}: no checkpoint there. Give a run folder or a folder step-N.")
    return found


def verified(
    paths: Iterable[Path], report: Callable[[str], None], digest: Callable[[Path], dict[str, Any]] = file_digest
) -> Iterator[tuple[Path, Manifest]]:
    """Yield the whole ones among checkpoints, in order; say of each damaged one why it is passed over."""
    for path in paths:
        try:
            manifest = verify(path, digest)
        except CheckpointError as error:
            report(f"passed over a damaged checkpoint: {error}")
            continue
        yield path, manifest


def find_checkpoint(path: str | Path, report: Callable[[str], None] = warnings.warn) -> tuple[Path, Manifest]:
    """Resolve a checkpoint folder, or a run folder to its newest whole checkpoint.

    Raises:
        UsageError: nothing there.
        CheckpointError: nothing whole there.
    """
    path = Path(path)
    there = checkpoints_at(path)
    if there == [path]:
        return path, verify(path)
    for found in verified(there, report):
        return found
    raise CheckpointError(f"{path}: no whole checkpoint there, all {len(there)} are damaged. Give another run.")


def load_tensors(path: Path, into: dict[str, Any]) -> None:
    """Fill the tensors of a nested dictionary, in place, from a checkpoint that has all its keys.

    Raises:
        CheckpointError: a key or a shape that the checkpoint does not have.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            dcp_load(into, checkpoint_id=str(path), no_dist=True)
    except (Exception, CheckpointException) as error:  # DCP wraps what it finds in several types of its own
        reason = str(error).strip().splitlines()[-1] if str(error).strip() else type(error).__name__
        raise CheckpointError(f"{path}: does not fit the model: {reason}") from error


def load_model(path: str | Path, device: str | torch.device = "cpu") -> tuple[HyMo, HyMoConfig, Manifest]:
    """Load the model of a checkpoint or of a run's newest whole checkpoint, in fp32 and in evaluation mode.

    Raises:
        UsageError, CheckpointError: as in `find_checkpoint`.
    """
    folder, manifest = find_checkpoint(path)
    config = load_config(folder / CONFIG)
    model = build_hymo(config, device=device)
    weights: dict[str, Tensor] = model.state_dict()
    load_tensors(folder, {"model": weights})
    model.kernel = "auto"  # what trained it may not run here
    return model.eval(), config, manifest
