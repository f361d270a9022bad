"""How long training stands still for an asynchronous checkpoint, on one process or several ranks.

    python benchmarks/checkpoint.py --config hymo_small --json checkpoint-cpu.json
    torchrun --standalone --nproc-per-node 2 benchmarks/checkpoint.py --config hymo_small

Random tokens, short sequences: the step does not matter here, only what a save adds to it. `stall` is the call that
starts a save, which copies this rank's tensors to memory that is kept for the next save; `written` is from there until
it has been read back. `step` and `step_beside` are steps without and with a save being written.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from environment import environment
from hymo.core.config import HyMoConfig
from hymo.core.load import derive_config, dump_config, load_config
from hymo.models.checkpoint import FORMAT_VERSION, Manifest
from hymo.training import Trainer
from hymo.training.checkpointer import Checkpointer
from hymo.training.ranks import Ranks, open_ranks


def batches(config: HyMoConfig) -> Iterator[dict[str, Any]]:
    """Random tokens without end."""
    generator = torch.Generator().manual_seed(0)
    shape = (config.training.micro_batch_size, config.training.seq_len + 1)
    while True:
        yield {"tokens": torch.randint(0, config.model.vocab_size, shape, generator=generator)}


def measure(config: HyMoConfig, ranks: Ranks, folder: Path, saves: int) -> dict[str, Any]:
    """Seconds of stalls, writes and steps."""
    trainer = Trainer(config, batches(config), ranks=ranks)
    saver = Checkpointer(folder, dump_config(config), 1, ranks=ranks, rows=trainer.rows)

    def step() -> float:
        began = time.perf_counter()
        trainer.take_step(trainer.next_windows())
        return time.perf_counter() - began

    step()
    found: dict[str, list[float]] = {"stall": [], "written": [], "step": [], "step_beside": []}
    for number in range(1, saves + 1):
        found["step"].append(step())
        manifest = Manifest(FORMAT_VERSION, "", torch.__version__, "", "", "", number, 0, None, ranks.size)
        began = time.perf_counter()
        saver.start(trainer.state(), manifest)
        found["stall"].append(time.perf_counter() - began)
        found["step_beside"].append(step())
        (result,) = saver.finished(wait=True)
        if result.error:
            raise SystemExit(f"save {number} failed: {result.error}")
        found["written"].append(result.seconds)
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) if ranks.first else 0
    figures = {f"{name}_s": statistics.median(values[1:]) for name, values in found.items()}
    return {"first_stall_s": found["stall"][0], **figures, "checkpoint_bytes": size}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default="hymo_small")
    parser.add_argument("--set", action="append", default=[], dest="overrides")
    parser.add_argument("--seq-len", type=int, default=32)
    parser.add_argument("--saves", type=int, default=5)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    config = load_config(arguments.config, arguments.overrides)
    shape = {"micro_batch_size": 1, "grad_accum_steps": 4, "dp_size": 1, "seq_len": arguments.seq_len}
    config = derive_config(config, training=shape, scheduler={"total_steps": 1000})
    folder = Path(tempfile.gettempdir()) / "hymo-checkpoint-benchmark"
    with open_ranks(config) as ranks:
        row = {"config": arguments.config, "ranks": ranks.size, **measure(config, ranks, folder, arguments.saves)}
    if not ranks.first:
        return
    shutil.rmtree(folder, ignore_errors=True)
    print(
        f"{row['config']} on {row['ranks']} ranks, {row['checkpoint_bytes'] / 2**20:,.0f} MiB a checkpoint: training "
        f"stands still for {1e3 * row['stall_s']:.0f} ms a save (the first {1e3 * row['first_stall_s']:.0f} ms); "
        f"written and read back in {row['written_s']:.2f} s, meanwhile {row['step_beside_s']:.2f} s a step instead of "
        f"{row['step_s']:.2f} s"
    )
    if arguments.json:
        arguments.json.write_text(json.dumps({"environment": environment(), "rows": [row]}, indent=1) + "\n")


if __name__ == "__main__":
    main()
