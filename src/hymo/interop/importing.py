"""From a folder in the Hugging Face format back to what a HyMo checkpoint is made of."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from hymo.core.config import HyMoConfig
from hymo.core.errors import CheckpointError, UsageError
from hymo.core.load import load_config
from hymo.data.tokenizer import TOKENIZER, Tokenizer, load_tokenizer
from hymo.interop.export import CONFIG_FILE, FORMAT_VERSION, INDEX, MTP_FILE, RECORD, WEIGHTS
from hymo.interop.names import from_hf, hf_fields
from hymo.models import HyMo, build_hymo
from hymo.models.checkpoint import Manifest, file_digest

_CONFIG_JSON = "config.json"


@dataclass(frozen=True)
class Imported:
    """What a folder held."""

    model: HyMo
    config: HyMoConfig
    manifest: Manifest
    """Of the checkpoint that was exported, without its files."""
    tokenizer: Tokenizer
    changed: tuple[str, ...]
    """Files of weights that are not those that were exported: after fine-tuning, all of them."""


def read_export(folder: str | Path) -> Imported:
    """Read an export, or a fine-tuned copy of one that has the export's hymo_* files beside it.

    Raises:
        UsageError: not such a folder.
        CheckpointError: a file is damaged, or does not belong to the others.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such folder. Give a folder that `hymo export` wrote.")
    for name in (RECORD, CONFIG_FILE, _CONFIG_JSON):
        if not (folder / name).is_file():
            raise UsageError(
                f"{folder}: has no {name}. Give a folder that `hymo export` wrote, or copy the file there."
            )
    record = _read_json(folder / RECORD)
    if record.get("format_version") != FORMAT_VERSION:
        raise CheckpointError(
            f"{folder / RECORD}: format version {record.get('format_version')}, this version of hymo reads "
            f"{FORMAT_VERSION}."
        )
    config = load_config(folder / CONFIG_FILE)
    _compare_fields(folder / _CONFIG_JSON, config)
    try:
        manifest = Manifest(**record["checkpoint"])
        known: dict[str, Any] = dict(record["files"])
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{folder / RECORD}: is damaged ({error}). Export again.") from None
    tokenizer = load_tokenizer("byte" if config.run.tokenizer == "byte" else folder / TOKENIZER)
    if manifest.tokenizer and tokenizer.fingerprint() != manifest.tokenizer:
        raise CheckpointError(f"{folder / TOKENIZER}: is not the tokenizer that the model was trained with.")
    files = _weight_files(folder)
    tensors: dict[str, Tensor] = {}
    for path in files:
        try:
            tensors.update(load_file(path))
        except (OSError, SafetensorError) as error:
            raise CheckpointError(f"{path}: cannot be read ({error}). Export again.") from None
    model = build_hymo(config)
    from_hf(tensors, model.state_dict(), config.model, str(folder))
    changed = tuple(path.name for path in files if known.get(path.name) != file_digest(path))
    return Imported(model.eval(), config, dataclasses.replace(manifest, files={}), tokenizer, changed)


def _weight_files(folder: Path) -> list[Path]:
    """The files of weights: one, or those of an index, and that of the prediction heads."""
    if (folder / INDEX).is_file():
        index = _read_json(folder / INDEX)
        names = sorted(set(index.get("weight_map", {}).values()))
    else:
        names = [WEIGHTS]
    heads = [MTP_FILE] if (folder / MTP_FILE).is_file() else []
    return [folder / name for name in (*names, *heads)]


def _compare_fields(path: Path, config: HyMoConfig) -> None:
    """Refuse a config.json that speaks of another model than the HyMo configuration beside it."""
    there = _read_json(path)
    for name, ours in hf_fields(config.model).items():
        found = there.get(name, ours)
        if isinstance(ours, dict):  # of which transformers may store more
            found = {key: found[key] for key in ours if key in found}
        if found != ours:
            raise CheckpointError(f"{path}: {name} is {found}, but {ours} in {CONFIG_FILE}. They belong together.")


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: cannot be read ({error}). Export again.") from None
    if not isinstance(content, dict):
        raise CheckpointError(f"{path}: is no JSON object. Export again.")
    return content
