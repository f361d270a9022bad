"""The recall and length suite on small models: `python benchmarks/recall.py [--seeds 2] [--out FILE]`, on one thread.

Rows are written as they come. `benchmarks/recall_table.py` puts them into docs/recall.md.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch

from environment import environment
from hymo.ablations.recall import compare


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--task", action="append", default=[])
    parser.add_argument("--model", action="append", default=[])
    parser.add_argument("--set", action="append", default=[], dest="overrides")
    parser.add_argument("--out", type=Path, help="write the rows as JSON")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    facts, rows = environment(), []

    def keep(row: dict[str, Any]) -> None:
        rows.append({**row, "impl": "hymo"})
        print(row["task"], row["model"], row["accuracy"], f"{row['cpu_seconds']} s", flush=True)
        if arguments.out:
            arguments.out.write_text(json.dumps({"environment": facts, "rows": rows}, indent=1) + "\n")

    compare(arguments.task, arguments.model, arguments.seeds, arguments.overrides, keep)


if __name__ == "__main__":
    main()
