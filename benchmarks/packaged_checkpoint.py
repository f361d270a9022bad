"""The checkpoint that ships with the package, made from a run of `hymo demo`.

    hymo demo --out RUNS
    python benchmarks/packaged_checkpoint.py RUNS/demo

Matrices are rounded to fp16, all else and the router stay in fp32. `recipe.json` says where
it comes from and how it does on the held-out text, measured on the rounded weights; a test measures that again.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import shutil
import tempfile
from pathlib import Path

from torch import Tensor

from hymo.cli.demo import HELDOUT_BYTES
from hymo.core.load import CONFIG, config_hash, derive_config, dump_config
from hymo.data import EvaluationWindows, load_tokenizer, open_split, prepare, sample_paths
from hymo.evaluation.perplexity import evaluate
from hymo.inference.packaged import packaged_folder
from hymo.models import build_hymo
from hymo.models.checkpoint import MANIFEST, file_digest, load_model
from hymo.training.checkpointer import Checkpointer


def rounded(name: str, tensor: Tensor) -> Tensor:
    """What is stored of a tensor."""
    small = tensor.ndim < 2 or name.endswith(("router", "A_log"))
    return tensor if small or not tensor.is_floating_point() else tensor.half()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--out", type=Path, default=packaged_folder())
    arguments = parser.parse_args()
    model, config, manifest = load_model(arguments.run)
    environment = json.loads((arguments.run / "env.json").read_text())
    config = derive_config(config, run={"data": None, "output_dir": "runs"})
    stored = {name: rounded(name, tensor) for name, tensor in model.state_dict().items()}
    shipped = build_hymo(config)
    shipped.load_state_dict({name: tensor.float() for name, tensor in stored.items()})

    length, tokenizer = config.training.seq_len, load_tokenizer("byte")
    with tempfile.TemporaryDirectory() as folder:
        paths = sample_paths()
        prepare([paths["train"]], Path(folder) / "data", tokenizer, validation_inputs=[paths["validation"]])
        text = open_split(Path(folder) / "data", "validation", tokenizer)
        windows = EvaluationWindows(text, length, stride=length // 2, max_bytes=HELDOUT_BYTES, tokenizer=tokenizer)
        result = evaluate(shipped.eval(), windows, 8, acceptance=True)
        manifest = dataclasses.replace(manifest, trainer={}, files={}, config_hash=config_hash(config))
        saver = Checkpointer(Path(folder) / "saved", dump_config(config), keep_last=1)
        saver.start({"model": stored}, manifest)
        (saved,) = saver.finished(wait=True)
        assert saved.path is not None, saved.error
        shutil.rmtree(arguments.out, ignore_errors=True)
        shutil.copytree(saved.path, arguments.out)

    recipe = {
        "recipe": "hymo demo, then benchmarks/packaged_checkpoint.py",
        "text": "the packaged sample (SQLite documentation, public domain), split train",
        "licence": "Apache-2.0, like the package",
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "stored_as": "fp16; norms, decays, biases and the router fp32",
        "commit": manifest.commit,
        "torch": environment[-1]["torch"],
        "date": environment[-1]["date"][:10],
        "device": f"{environment[-1]['device']}, threads: {environment[-1]['threads']}",
        "heldout_bytes": result.bytes,
        "bits_per_byte": round(result.bits_per_byte, 4),
        "acceptance": [round(share, 3) for share in result.acceptance],
    }
    (arguments.out / "recipe.json").write_text(json.dumps(recipe, indent=1) + "\n", encoding="utf-8")
    files = sorted(path for path in arguments.out.iterdir() if path.name != MANIFEST)
    whole = dataclasses.replace(manifest, files={path.name: file_digest(path) for path in files})
    (arguments.out / MANIFEST).write_text(whole.to_json(), encoding="utf-8")
    assert (arguments.out / CONFIG).is_file()
    print(f"{arguments.out}: {sum(path.stat().st_size for path in arguments.out.iterdir()):,} bytes, {recipe}")


if __name__ == "__main__":
    main()
