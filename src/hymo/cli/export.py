"""`hymo export` and `hymo import`: the Hugging Face format."""

from __future__ import annotations

import importlib.util
import json as jsonlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from hymo.cli.options import Json
from hymo.cli.output import log, print_json
from hymo.core.errors import CheckpointError, HymoError, UsageError

if TYPE_CHECKING:
    from hymo.interop.card import Facts

_TOLERANCE = 1e-5
Out = Annotated[Path, Parameter(name=("--out", "--to"))]


def export(
    checkpoint: Path,
    /,
    *,
    out: Out,
    tolerance: float = _TOLERANCE,
    double: Annotated[bool, Parameter(negative="")] = False,
    max_shard_size: str = "5GB",
    json: Json = False,
) -> None:
    """Write a checkpoint for transformers, load what was written, and compare its logits with the checkpoint's.

    Args:
        checkpoint: Checkpoint folder, or a run folder (its newest whole checkpoint).
        out: New folder.
        tolerance: Largest difference of a logit; above it nothing is written.
        double: Compare in fp64, where a difference is no rounding. What is written stays fp32.
        max_shard_size: Largest file of weights.
        json: Write JSON.
    """
    _require_packages()
    from hymo.interop.export import export_checkpoint
    from hymo.models.checkpoint import find_checkpoint

    folder, manifest = find_checkpoint(checkpoint)
    difference = export_checkpoint(
        folder,
        out,
        facts=_facts(folder, manifest.step),
        tolerance=tolerance,
        double=double,
        max_shard_size=max_shard_size,
    )
    if json:
        print_json({"checkpoint": str(folder), "step": manifest.step, "out": str(out), **difference.to_dict()})
        return
    print(f"{out}: step {manifest.step}, logits differ by at most {difference.largest:.1e}")


def import_export(folder: Path, /, *, out: Path, json: Json = False) -> None:
    """Turn an export back into a run folder with one checkpoint, bit for bit.

    Args:
        folder: What `hymo export` wrote; or a fine-tuned copy, with the hymo_* files of the export beside it.
        out: New run folder.
        json: Write JSON.
    """
    _require_packages()
    from hymo.core.files import write_text, writing
    from hymo.core.load import CHECKPOINTS, CONFIG, dump_config
    from hymo.data.tokenizer import keep_copy
    from hymo.interop.importing import read_export
    from hymo.training.checkpointer import Checkpointer

    if out.exists() or out.is_symlink():
        raise UsageError(f"{out}: exists already. Choose a new folder.")
    imported = read_export(folder)
    with writing(out):
        out.mkdir(parents=True)
    text = dump_config(imported.config)
    write_text(out / CONFIG, text)
    keep_copy(imported.tokenizer, out)
    saver = Checkpointer(out / CHECKPOINTS, text, keep_last=1)
    saver.start({"model": imported.model.state_dict()}, imported.manifest)
    (result,) = saver.finished(wait=True)
    if result.path is None:
        raise CheckpointError(f"{out}: the checkpoint could not be written ({result.error}).")
    if imported.changed:
        log(f"warning: {', '.join(imported.changed)}: not as exported; imported as found")
    if json:
        print_json({"run": str(out), "checkpoint": str(result.path), "changed": imported.changed})
        return
    print(f"{result.path}: weights of step {result.step}")


def _require_packages() -> None:
    for name in ("transformers", "safetensors"):
        if importlib.util.find_spec(name) is None:
            raise UsageError(f"the Hugging Face format needs the package {name}: pip install 'hymo[hf]'")


def _facts(checkpoint: Path, step: int) -> Facts:
    """What the run's records and its data set, where they are still there, say for the model card."""
    from hymo.core.load import CONFIG, load_config
    from hymo.data import load_manifest
    from hymo.data.of_run import data_of_run, run_of
    from hymo.interop.card import Facts
    from hymo.training.metrics import read_metrics

    figures: dict[str, float] = {}
    run = run_of(checkpoint)
    if run is not None:
        for record in read_metrics(run, lambda record: record["step"] == step):
            counts = ("val/tokens", "val/bytes")
            measures = {name: value for name, value in record.items() if name.startswith("val/") and name not in counts}
            figures |= {name: value for name, value in measures.items() if value is not None}
        for path in sorted(run.glob(f"eval/step-{step:08d}-*.json")):
            figures |= _measures(path, path.stem.removeprefix(f"step-{step:08d}-"))
    try:
        manifest = load_manifest(data_of_run(load_config(checkpoint / CONFIG).run.data, checkpoint))
    except HymoError:  # none, or not there any more
        return Facts(figures)
    sources = {name: splits["train"]["tokens"] for name, splits in manifest.sources.items() if "train" in splits}
    return Facts(figures, manifest.settings.get("licences", {}), sources)


def _measures(path: Path, name: str) -> dict[str, float]:
    """The bits per byte and perplexities that `hymo eval` kept."""
    try:
        kept = jsonlib.loads(path.read_text(encoding="utf-8"))
        names = ("bits_per_byte", "byte_perplexity", "token_perplexity")
        return {f"{name}/{measure}": float(kept[measure]) for measure in names if measure in kept}
    except (OSError, ValueError, TypeError):
        return {}
