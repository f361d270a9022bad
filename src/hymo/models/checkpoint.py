"""Reading checkpoints: what one is, whether it is whole, which is the newest that is, and the model inside.

A checkpoint is a folder `step-N` written by `hymo.training.checkpointer`: tensors in PyTorch's distributed format,
`config.yaml`, and `manifest.json`, which is written last and lists every other file with its size and SHA-256. A folder
is a checkpoint if and only if its manifest verifies.
"""

from __future__ import annotations

import hashlib
import json
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException  # not an Exception
from torch.distributed.checkpoint.state_dict_loader import load as dcp_load

from hymo.core.config import HyMoConfig
from hymo.core.errors import CheckpointError
from hymo.core.load import load_config
from hymo.models.model import HyMo, build_hymo

FORMAT_VERSION = 1
MANIFEST = "manifest.json"
CONFIG = "config.yaml"
CHECKPOINTS = "checkpoints"
_NAME = re.compile(r"^step-(\d+)$")
_BLOCK = 1 << 22
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


def verify(path: Path) -> Manifest:
    """Check every file of a checkpoint against its manifest.

    Raises:
        CheckpointError: naming the file that is missing, short or changed.
    """
    manifest = read_manifest(path)
    for name, expected in manifest.files.items():
        file = path / name
        try:
            found = file_digest(file)
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


def verified(folder: Path, report: Callable[[str], None]) -> Iterator[tuple[Path, Manifest]]:
    """Yield whole checkpoints, newest first; say of each damaged one why it is passed over."""
    for path in list_checkpoints(folder):
        try:
            manifest = verify(path)
        except CheckpointError as error:
            report(f"passed over a damaged checkpoint: {error}")
            continue
        yield path, manifest


def find_checkpoint(path: str | Path, report: Callable[[str], None] = warnings.warn) -> tuple[Path, Manifest]:
    """Resolve a checkpoint folder, or a run folder to its newest whole checkpoint.

    Raises:
        CheckpointError: nothing there, or nothing whole.
    """
    path = Path(path)
    if (path / MANIFEST).exists() or step_of(path.resolve()) is not None:
        if not path.is_dir():
            raise CheckpointError(f"{path}: no such checkpoint.")
        return path, verify(path)
    folder = path / CHECKPOINTS if (path / CHECKPOINTS).is_dir() else path
    for found in verified(folder, report):
        return found
    raise CheckpointError(f"{path}: no whole checkpoint there. Give a run folder or a folder step-N.")


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
        CheckpointError: as in `find_checkpoint`.
    """
    folder, manifest = find_checkpoint(path)
    config = load_config(folder / CONFIG)
    model = build_hymo(config, device=device)
    weights: dict[str, Tensor] = model.state_dict()
    load_tensors(folder, {"model": weights})
    model.kernel = "auto"  # what trained it may not run here
    return model.eval(), config, manifest
