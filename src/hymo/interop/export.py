"""From a checkpoint to a folder that transformers loads without HyMo."""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
from pathlib import Path
from typing import Any

import torch
import transformers
from huggingface_hub import split_torch_state_dict_into_shards
from safetensors.torch import save_file
from torch import Tensor

from hymo.core.config import HyMoConfig
from hymo.core.errors import ExportError, UsageError
from hymo.core.files import flush, write_text, writing
from hymo.core.load import derive_config, dump_config
from hymo.core.version import VERSION, commit
from hymo.data.of_run import tokenizer_of_checkpoint
from hymo.data.tokenizer import TOKENIZER, ByteTokenizer, Tokenizer
from hymo.interop.card import Facts, write_card
from hymo.interop.comparison import Difference, compare
from hymo.interop.configuration_hymo import HymoConfig
from hymo.interop.names import MTP_PREFIX, check_exportable, hf_fields, to_hf
from hymo.interop.tokenizer_files import write_tokenizer
from hymo.models import HyMo
from hymo.models.checkpoint import Manifest, file_digest, load_model

FORMAT_VERSION = 1
RECORD = "hymo_export.json"
CONFIG_FILE = "hymo_config.yaml"
MTP_FILE = "hymo_mtp.safetensors"
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
TOLERANCE = 1e-5
"""Largest difference of a logit that an export may have, in fp32."""
_CODE = ("configuration_hymo.py", "modeling_hymo.py")


def export_checkpoint(
    checkpoint: str | Path,
    out: str | Path,
    *,
    facts: Facts | None = None,
    tolerance: float = TOLERANCE,
    double: bool = False,
    max_shard_size: str = "5GB",
) -> Difference:
    """Write a checkpoint in the Hugging Face format, load what was written, compare, and only then put it in place.

    Args:
        checkpoint: folder of a checkpoint, or of a run (its newest whole one).
        out: the new folder.
        facts: what the model card should say beside what the checkpoint knows.
        tolerance: largest difference of a logit.
        double: compare in fp64, which tells a wrong tensor from rounding; what is written stays fp32.
        max_shard_size: largest file of weights, such as 5GB.

    Raises:
        UsageError: `out` exists, a wrong tolerance or size, or a variant of the model that the format does not have.
        CheckpointError: as in `load_model`.
        ExportError: the logits differ by more than the tolerance; nothing is left at `out`.
    """
    out = Path(out)
    if not (math.isfinite(tolerance) and tolerance > 0):
        raise UsageError(f"tolerance: must be above 0, not {tolerance}.")
    if out.exists() or out.is_symlink():
        raise UsageError(f"{out}: exists already. Choose a new folder.")
    model, config, manifest = load_model(checkpoint)
    check_exportable(config.model)
    tokenizer = tokenizer_of_checkpoint(config.run.tokenizer, manifest.tokenizer, Path(checkpoint))
    temporary = out.with_name(f".{out.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        with writing(out):
            temporary.mkdir(parents=True)
            write_files(model, config, tokenizer, temporary, max_shard_size)
        difference = compare(model, tokenizer, temporary, double)
        if not difference.largest <= tolerance:
            raise ExportError(
                f"{out}: not written: its logits would differ from the checkpoint's by {difference.largest:.2g}, more "
                f"than {tolerance:.2g} ({_listed(difference)})."
                + ("" if double else " Compare with --double: what is left there is no rounding.")
            )
        with writing(out):
            write_text(temporary / "README.md", write_card(config, manifest, difference.largest, facts or Facts()))
            _write_record(temporary, manifest, difference, tolerance, double)
            mode = (temporary / RECORD).stat().st_mode
            for path in temporary.iterdir():
                path.chmod(mode)  # safetensors lets nobody else read its files
                flush(path)
            flush(temporary)
            temporary.rename(out)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return difference


def write_files(
    model: HyMo, config: HyMoConfig, tokenizer: Tokenizer, folder: Path, max_shard_size: str = "5GB"
) -> None:
    """Write everything that is loaded: weights, configurations, tokenizer and code."""
    tensors = to_hf(model.state_dict(), config.model)
    heads = {name: tensor for name, tensor in tensors.items() if name.startswith(MTP_PREFIX)}
    _save_shards({name: tensor for name, tensor in tensors.items() if name not in heads}, folder, max_shard_size)
    if heads:
        save_file(heads, folder / MTP_FILE, metadata={"format": "pt"})
    HymoConfig(
        **hf_fields(config.model, tokenizer),
        architectures=["HymoForCausalLM"],
        auto_map={
            "AutoConfig": "configuration_hymo.HymoConfig",
            "AutoModel": "modeling_hymo.HymoModel",
            "AutoModelForCausalLM": "modeling_hymo.HymoForCausalLM",
        },
        dtype="float32",
    ).save_pretrained(folder)
    # Ids that no text goes on with: HyMo's own generator never draws them either.
    closed = [tokenizer.bos_id, tokenizer.pad_id, *range(tokenizer.vocab_size, config.model.vocab_size)]
    transformers.GenerationConfig(
        bos_token_id=tokenizer.bos_id,
        eos_token_id=tokenizer.eos_id,
        pad_token_id=tokenizer.pad_id,
        suppress_tokens=closed,
    ).save_pretrained(folder)
    write_tokenizer(tokenizer, folder, config.model.max_seq_len)
    write_text(folder / CONFIG_FILE, dump_config(portable(config, tokenizer)))
    for name in _CODE:
        write_text(folder / name, Path(__file__).with_name(name).read_text(encoding="utf-8"))


def portable(config: HyMoConfig, tokenizer: Tokenizer) -> HyMoConfig:
    """The configuration without the places of the machine that it was used on."""
    named = ByteTokenizer.name if isinstance(tokenizer, ByteTokenizer) else TOKENIZER
    return derive_config(config, run={"output_dir": "runs", "data": None, "tokenizer": named, "device": "auto"})


def _save_shards(tensors: dict[str, Tensor], folder: Path, max_shard_size: str) -> None:
    """One file, or several and an index of which tensor is where."""
    try:
        plan = split_torch_state_dict_into_shards(
            tensors, filename_pattern="model{suffix}.safetensors", max_shard_size=max_shard_size
        )
    except ValueError as error:
        raise UsageError(f"max-shard-size: '{max_shard_size}' is no size such as 5GB or 500MB.") from error
    for file, names in plan.filename_to_tensors.items():
        save_file({name: tensors[name] for name in names}, folder / file, metadata={"format": "pt"})
    if plan.is_sharded:
        write_text(folder / INDEX, json.dumps({"metadata": plan.metadata, "weight_map": plan.tensor_to_filename}))


def _write_record(folder: Path, manifest: Manifest, difference: Difference, tolerance: float, double: bool) -> None:
    source = dataclasses.asdict(manifest)
    del source["files"]
    record: dict[str, Any] = {
        "format_version": FORMAT_VERSION,
        "versions": {"hymo": VERSION, "torch": torch.__version__, "transformers": transformers.__version__},
        "commit": commit(),
        "checkpoint": source,
        "max_logit_difference": difference.largest,
        "logit_differences": difference.to_dict(),
        "tolerance": tolerance,
        "compared_in": "float64" if double else "float32",
        "files": {path.name: file_digest(path) for path in sorted(folder.iterdir())},
    }
    write_text(folder / RECORD, json.dumps(record, indent=1, allow_nan=False))


def _listed(difference: Difference) -> str:
    return ", ".join(f"{name} {value:.2g}" for name, value in difference.to_dict().items())
