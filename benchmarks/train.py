"""The training step of presets on one device or several, on real batches.

    python benchmarks/train.py --data DATA --config hymo_750m --set run.tokenizer=TOKENIZER --json train.json
    torchrun --standalone --nproc-per-node 2 benchmarks/train.py --data DATA --config hymo_750m --json train-x2.json
    python benchmarks/train.py --ranks 2 --data DATA --variant fsdp: --variant hsdp:training.dp_replicate=2

Several `--variant "NAME:field=value;field=value"` are measured one after the other, each in processes of its own:
`--ranks` of them, started by torchrun. Under torchrun itself the first rank prints and writes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import torch

from environment import environment
from hymo.core.launch import launched_rank


def measure(arguments: argparse.Namespace, overrides: list[str]) -> dict[str, object]:
    from hymo.core.load import load_config
    from hymo.training.bench import bench_training
    from hymo.training.ranks import open_ranks

    config = load_config(arguments.config, [f"run.data={arguments.data}", *overrides])
    if arguments.cap_gib is not None:
        whole = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(arguments.cap_gib * 2**30 / whole)
    with open_ranks(config) as ranks:
        return bench_training(config, seconds=arguments.seconds, warmup=arguments.warmup, ranks=ranks).to_dict()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default="hymo_750m")
    parser.add_argument("--data", required=True)
    parser.add_argument("--set", action="append", default=[], dest="overrides")
    parser.add_argument("--variant", action="append", default=[], help="NAME:field=value;field=value")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--ranks", type=int, default=1, help="processes of each variant")
    parser.add_argument("--cap-gib", type=float, help="memory of a smaller card: what the allocator may take, in GiB")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if not arguments.variant:
        row = measure(arguments, arguments.overrides)
        if launched_rank() == 0:
            print(json.dumps(row))
            if arguments.json:
                report = {"environment": environment(), "rows": [row]}
                arguments.json.write_text(json.dumps(report, indent=1) + "\n")
        return
    rows = []
    for variant in arguments.variant:
        name, _, fields = variant.partition(":")
        overrides = [*arguments.overrides, *filter(None, map(str.strip, fields.split(";")))]
        launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(arguments.ranks)]
        command = [
            sys.executable,
            *(launcher if arguments.ranks > 1 else []),
            __file__,
            "--config",
            arguments.config,
            "--data",
            arguments.data,
        ]
        command += ["--seconds", str(arguments.seconds), "--warmup", str(arguments.warmup)]
        command += [] if arguments.cap_gib is None else ["--cap-gib", str(arguments.cap_gib)]
        command += [word for override in overrides for word in ("--set", override)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"{name}: failed\n{done.stderr[-1500:]}", flush=True)
            rows.append({"name": name, "overrides": overrides, "failed": done.stderr.strip().splitlines()[-1:]})
            continue
        row = {"name": name, "overrides": overrides, **json.loads(done.stdout.splitlines()[-1])}
        rows.append(row)
        print(
            f"{name}: {row['tok_per_s']:,.0f} tok/s, {row['ms_per_step']:,.0f} ms a step, "
            f"{row['gpus']} ranks, MFU {row['mfu'] or 0:.3f}, {row['peak_gib'] or 0:.1f} GiB, "
            f"loss {row['loss_first']:.3f} to {row['loss_last']:.3f}, first step {row['first_step_seconds']:.0f} s",
            flush=True,
        )
        for kind, spent in row["breakdown_ms"].items():
            print(f"    {kind:24s} {spent:10.1f} ms")
        print(f"    {'not covered':24s} {row['idle_ms'] or 0:10.1f} ms", flush=True)
        if arguments.json:
            arguments.json.write_text(json.dumps({"environment": environment(), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
