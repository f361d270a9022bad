"""Run the demo and keep its figures: `python benchmarks/demo.py [--out benchmarks/results/demo-cpu.json]`."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from environment import environment
from hymo.core.load import load_config


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/demo-cpu.json"))
    arguments = parser.parse_args()
    config = load_config("hymo_demo")
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "hymo", "demo", "--json", "--out", folder]
        figures = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
        losses = [json.loads(line) for line in (Path(figures["run"]) / "metrics.jsonl").read_text().splitlines()[1:]]
    train = [record["train/loss"] for record in losses if record["split"] == "train"]
    row = {
        "config": "hymo_demo",
        "impl": "hymo",
        "gpus": 0,
        "micro_batch": config.training.micro_batch_size,
        "tokens_per_step": config.training.tokens_per_step,
        "optimizer": config.optimizer.optimizer_partition,
        "mtp_depth": config.model.mtp_depth,
        "tok_per_s": figures["tok_per_s"],
        "mfu": None,
        "loss_first": train[0],
        "loss_last": train[-1],
        "tokens": figures["tokens"],
        "seconds": figures["seconds"],
        "bits_per_byte": figures["bits_per_byte"],
        "heldout_bytes": figures["heldout_bytes"],
        "acceptance": figures["acceptance"],
        "acceptance_heldout": figures["acceptance_heldout"],
    }
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps({"environment": environment(), "rows": [row]}, indent=1) + "\n")
    print(f"{arguments.out}: {row['bits_per_byte']['hymo']:.3f} bits per byte, {row['tok_per_s']:.0f} tokens/s")


if __name__ == "__main__":
    main()
