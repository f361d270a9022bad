"""Generation on this machine: prompts read and tokens generated per second, by batch size and draft depth.

python benchmarks/decode.py demo --drafts 0 1 2 auto --out benchmarks/results/decode-cpu.json
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from environment import environment
from hymo.inference.bench import bench_decode
from hymo.inference.request import Drafts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="+", help="checkpoints, runs, `demo`, or configurations")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--context", type=int, default=128)
    parser.add_argument("--new-tokens", type=int, default=128)
    parser.add_argument("--drafts", nargs="+", default=["0"], help="depths, or auto")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    drafts: list[Drafts] = ["auto" if depth == "auto" else int(depth) for depth in arguments.drafts]
    rows = []
    for target in arguments.targets:
        found = bench_decode(
            target,
            arguments.device,
            arguments.dtype,
            arguments.batch,
            arguments.context,
            arguments.new_tokens,
            drafts,
        )
        rows += [row.to_dict() for row in found]
        for row in found:
            print(
                f"{target} {row.phase:7s} batch {row.batch:3d} drafts {row.drafts:4s} {row.tok_per_s:10,.0f} tok/s "
                f"{row.tokens_per_pass or 1:.2f} tokens a pass",
                flush=True,
            )
    if arguments.out is not None:
        arguments.out.write_text(json.dumps({"environment": environment(), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
