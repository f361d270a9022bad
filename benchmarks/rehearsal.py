"""A run of days in minutes: preflight, start by the shipped recipe, SIGTERM in the middle, the same command again.

    python benchmarks/rehearsal.py hymo_tiny --ranks 2 --data DATA --out rehearsal --steps 40
    python benchmarks/rehearsal.py hymo_750m --ranks 2 --data DATA --tokenizer TOKENIZER --out rehearsal --steps 16
    python benchmarks/rehearsal.py hymo_tiny --ranks 2 --data DATA --steps 40 --until 15 --again 30 --last-ranks 1
    python benchmarks/rehearsal.py hymo_small --ranks 1 --data DATA --steps 2200 --limit 600 --evaluate

Writes rehearsal.json (exit codes, seconds, what each part said, metrics by step, whether the resumed run took up the
state that the interrupted one saved), loss.png and rehearsal.log into OUT, as it goes: what was cut short is readable.
With --evaluate the last checkpoint scores the held-out text. With --last-ranks the resumed run is stopped again, and
fewer ranks with as many devices end it. The run itself lies in --runs, which must have room for two checkpoints.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, Any

from environment import environment
from hymo.core.load import derive_config, dump_config, load_config
from hymo.models.checkpoint import list_checkpoints, verify
from hymo.training.metrics import read_jsonl, read_metrics

ROOT = Path(__file__).resolve().parents[1]
KEPT = ("step", "tokens", "train/loss", "train/grad_norm", "perf/tok_per_s", "perf/mfu", "perf/mem_gb", "data/hash")


def descendants(pid: int) -> list[int]:
    """A process and all that came from it, the last first."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    except OSError:
        children = []
    return [*(each for child in children for each in descendants(int(child))), pid]


class Rehearsal:
    """Its parts, and the file that they are recorded in."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args, self.out = args, Path(args.out)
        self.out.mkdir(parents=True, exist_ok=True)
        overrides = [f"scheduler.total_steps={args.steps}", "training.log_interval=1", *args.set]
        config = load_config(args.config, overrides)
        changes: dict[str, Any] = {"data": str(Path(args.data).resolve()), "output_dir": str(Path(args.runs).resolve())}
        if args.tokenizer:
            changes["tokenizer"] = str(Path(args.tokenizer).resolve())
        self.config = derive_config(config, run={**changes, "name": "rehearsal"})
        self.run = Path(args.runs).resolve() / "rehearsal"
        self.file = Path(args.runs).resolve() / "rehearsal.yaml"
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_text(dump_config(self.config), encoding="utf-8")
        self.found: dict[str, Any] = {"environment": environment(), "gpus": args.ranks, "config": args.config}
        self.environment = {**os.environ, "PYTHON": sys.executable}

    def keep(self, name: str, value: Any) -> None:
        """Record something, on the disk at once."""
        self.found[name] = value
        (self.out / "rehearsal.json").write_text(json.dumps(self.found, indent=1), encoding="utf-8")

    def call(self, name: str, words: list[str], seconds: float) -> str:
        """Run a command to its end; returns what it wrote to stdout."""
        began, output = time.monotonic(), ""
        with (self.out / "rehearsal.log").open("ab") as log:
            log.write(f"\n=== {name}: {' '.join(words)}\n".encode())
            log.flush()
            try:
                done = subprocess.run(
                    words,
                    cwd=ROOT,
                    env=self.environment,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    timeout=seconds,
                    check=False,
                )
                output, code = done.stdout.decode(errors="replace"), done.returncode
            except subprocess.TimeoutExpired as late:
                output, code = (late.stdout or b"").decode(errors="replace"), -1
            log.write(output.encode())
        self.keep(
            name, {"exit": code, "seconds": round(time.monotonic() - began, 1), "said": output.splitlines()[-40:]}
        )
        return output

    def recipe(self, log: IO[bytes]) -> subprocess.Popen[bytes]:
        """Start the run as a person would."""
        words = ["bash", "launch/torchrun.sh", str(self.args.ranks), str(self.file)]
        return subprocess.Popen(words, cwd=ROOT, env={**self.environment, "RESTARTS": "0"}, stdout=log, stderr=log)

    def started(self, name: str, until: int | None, seconds: float) -> None:
        """Start the recipe; with `until`, SIGTERM once that step is recorded. Record how it ended."""
        began = time.monotonic()
        told: dict[str, Any] = {}
        before = len(self.metrics())
        with (self.out / "rehearsal.log").open("ab") as log:
            log.write(f"\n=== {name}\n".encode())
            log.flush()
            process = self.recipe(log)
            while process.poll() is None and time.monotonic() - began < seconds:
                steps = self.metrics()
                if len(steps) > before and "first_record_s" not in told:
                    told["first_record_s"] = round(time.monotonic() - began, 1)
                if until is not None and "signal_at" not in told and steps and steps[-1]["step"] >= until:
                    told["signal_at"], at = steps[-1]["step"], time.monotonic()
                    process.send_signal(signal.SIGTERM)
                time.sleep(0.1)
            if process.poll() is None:
                told["late"] = True
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(30)
                except subprocess.TimeoutExpired:
                    for pid in descendants(process.pid):
                        os.kill(pid, signal.SIGKILL)
            told["exit"] = process.wait()
        if "signal_at" in told:
            told["signal_to_exit_s"] = round(time.monotonic() - at, 1)
        told["seconds"] = round(time.monotonic() - began, 1)
        self.keep(name, told)

    def shrink(self, ranks: int) -> None:
        """Go on with fewer ranks, as if devices had gone."""
        self.args.ranks = ranks
        self.environment["CUDA_VISIBLE_DEVICES"] = ",".join(str(device) for device in range(ranks))

    def metrics(self) -> list[dict[str, Any]]:
        """Training records of the run so far."""
        return [r for r in read_metrics(self.run) if r.get("split") == "train"]

    def check(self) -> None:
        """What the interruption cost, and what the run amounts to."""
        events = read_jsonl(self.run / "events.jsonl")
        stopped = [e for e in events if e["kind"] == "interrupted"]
        resumed = [e for e in events if e["kind"] == "resume"]
        records = self.metrics()
        lost = stopped[0]["step"] - resumed[0]["step"] if stopped and resumed else None
        self.keep("steps_lost", lost)
        self.keep("events", [{k: v for k, v in e.items() if k != "ts"} for e in events][-40:])
        self.keep("metrics", [{k: r[k] for k in KEPT if k in r} for r in records])
        self.keep("steps_in_order", [r["step"] for r in records] == list(range(1, len(records) + 1)))
        rates = [r["perf/tok_per_s"] for r in records]
        # A start's first steps compile, and its own rate covers them.
        self.keep("tok_per_s", round(statistics.median(rates)) if rates else None)
        folders = list_checkpoints(self.run / "checkpoints")
        if folders:
            manifest = verify(folders[0])
            size = sum(path.stat().st_size for path in folders[0].iterdir())
            self.keep("last_checkpoint", {"step": manifest.step, "ranks": manifest.world_size, "bytes": size})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--data", required=True)
    parser.add_argument("--tokenizer")
    parser.add_argument("--out", default="rehearsal")
    parser.add_argument("--runs", default="runs")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--until", type=int, help="step of the SIGTERM; the middle unless given")
    parser.add_argument("--last-ranks", type=int, help="ranks of a last part")
    parser.add_argument("--again", type=int, help="step of the SIGTERM before it")
    parser.add_argument("--limit", type=float, default=150, help="seconds that a start may take")
    parser.add_argument("--evaluate", action="store_true", help="score the held-out text at the end")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--price", type=float, default=2.0, help="of a device-hour, for the cost so far")
    parser.add_argument("--preflight", choices=["whole", "quick", "none"], default="whole")
    args = parser.parse_args()
    shutil.rmtree(Path(args.runs) / "rehearsal", ignore_errors=True)
    rehearsal = Rehearsal(args)
    hymo, python = [sys.executable, "-m", "hymo"], sys.executable
    torchrun = [
        python,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        str(args.ranks),
        "-m",
        "hymo",
    ]
    file, run = str(rehearsal.file), str(rehearsal.run)
    if args.preflight != "none":
        words = [*torchrun, "doctor", "--preflight", file, "--ranks", str(args.ranks)]
        rehearsal.call("preflight", [*words, *(["--quick"] if args.preflight == "quick" else [])], 120)
    rehearsal.started("interrupted", args.until or args.steps // 2, args.limit)
    folders = list_checkpoints(rehearsal.run / "checkpoints")
    rehearsal.keep("saved_at_the_signal", [path.name for path in folders])
    rehearsal.started("resumed", args.again if args.last_ranks else None, args.limit)
    if args.last_ranks:
        rehearsal.shrink(args.last_ranks)
        rehearsal.started("fewer_ranks", None, args.limit)
    rehearsal.check()
    if args.evaluate:
        rehearsal.call("eval", [*hymo, "eval", run, "--json"], args.limit)
    rehearsal.call("watch", [*hymo, "watch", run, "--once", "--price", str(args.price)], 60)
    rehearsal.call("plot", [*hymo, "plot", run, "--out", str((rehearsal.out / "loss.png").resolve())], 60)
    print(json.dumps({k: v for k, v in rehearsal.found.items() if k not in ("metrics", "events")}, indent=1))


if __name__ == "__main__":
    main()
