"""The recovery drill of docs/operate.md: the shipped recipe under a killer that takes ranks, the whole machine, saves.

`python -m pytest tests/integration/test_drill.py --run-heavy -s` prints what each kill cost.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rank_faults
from hymo.core.config import HyMoConfig
from hymo.core.load import CHECKPOINTS, derive_config, dump_config
from hymo.core.recipes import Recipe as LaunchRecipe
from hymo.core.recipes import torchrun
from hymo.models.checkpoint import load_model
from hymo.training.metrics import read_jsonl, read_metrics
from hymo.training.run import run_folder
from rank_helpers import Job
from rank_tasks import odd_config

RECIPE = Path(__file__).parents[2] / "launch" / "torchrun.sh"
INTERVAL = 3
"""Steps between two checkpoints."""
VICTIMS = ("a rank in a save", "the machine", "a rank", "all ranks", "the machine in a save")


class Recipe:
    """`launch/torchrun.sh 2 CONFIG`, started again when its machine is lost, as a scheduler would."""

    def __init__(self, config: HyMoConfig) -> None:
        self.folder, self.config = run_folder(config), config
        self.path = self.folder.parent / "c.yaml"
        self.path.write_text(dump_config(config))
        self.log = (self.folder.parent / "recipe.log").open("ab")
        self.start()

    def start(self) -> None:
        environment = {**os.environ, "PYTHON": sys.executable, "PYTHONPATH": os.pathsep.join(sys.path)}
        environment |= {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "RESTARTS": "100"}
        words = ["bash", str(RECIPE), "2", str(self.path)]
        self.process = subprocess.Popen(words, env=environment, stdout=self.log, stderr=self.log)

    def ranks(self) -> list[int]:
        """Processes of the ranks that run now, by rank."""
        found = []
        for name in ("heartbeat.json", "heartbeat-1.json"):
            with contextlib.suppress(OSError, ValueError):
                pid = int(json.loads((self.folder / name).read_text())["pid"])
                if alive(pid):
                    found.append(pid)
        return found

    def kill(self, victim: str, rng: random.Random) -> None:
        """Kill -9 what `victim` says; a machine takes recipe, launcher and ranks with it."""
        if victim.startswith("the machine"):
            for pid in descendants(self.process.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.process.wait()
            self.start()
            return
        ranks = self.ranks()
        for pid in ranks if victim == "all ranks" else [rng.choice(ranks)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def wait_for(self, condition: Callable[[], Any], seconds: float = 90) -> None:
        until = time.monotonic() + seconds
        while not condition():
            assert self.process.poll() is None, f"ended by itself:\n{self.said()}"
            assert time.monotonic() < until, self.said()
            time.sleep(0.003)

    def said(self) -> str:
        return (self.folder.parent / "recipe.log").read_text()[-4000:]

    def end(self) -> None:
        for pid in descendants(self.process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        self.log.close()


def alive(pid: int) -> bool:
    """Whether a process runs; one that was killed and not yet waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def descendants(pid: int) -> list[int]:
    """A process and all that came from it, the last first."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        children = []
    return [*(each for child in children for each in descendants(int(child))), pid]


def begins(folder: Path) -> list[int]:
    """The step from which each start of the run went on."""
    return [e["step"] for e in read_jsonl(folder / "events.jsonl") if e["kind"] in ("start", "resume")]


def newest(folder: Path) -> int:
    return max((r["step"] for r in read_jsonl(folder / "metrics.jsonl") if "step" in r), default=0)


def saving(folder: Path, since: float) -> bool:
    for path in (folder / CHECKPOINTS).glob(".tmp-*"):
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_mtime > since:
                return True
    return False


def drill(config: HyMoConfig, kills: int, seed: int) -> list[tuple[str, int, int]]:
    """Kill a run so often and let it end; what was killed, at which step, and from which it went on."""
    rng, folder, told = random.Random(seed), run_folder(config), []
    recipe = Recipe(config)
    try:
        for number in range(kills):
            victim = VICTIMS[number % len(VICTIMS)]
            recipe.wait_for(lambda number=number: len(begins(folder)) == number + 1 and len(recipe.ranks()) == 2)
            target, since = newest(folder) + rng.randint(1, 2 * INTERVAL), time.time()
            if victim.endswith("save"):
                recipe.wait_for(lambda since=since: saving(folder, since))
                time.sleep(rng.random() * 0.05)
            else:
                recipe.wait_for(lambda target=target: newest(folder) >= target)
            recipe.kill(victim, rng)
            time.sleep(0.02)  # what was written before the kill is there
            told.append((victim, newest(folder)))
        assert recipe.process.wait(120) == 0, recipe.said()
    finally:
        recipe.end()
    assert len(begins(folder)) == kills + 1
    return [(victim, at, begun) for (victim, at), begun in zip(told, begins(folder)[1:], strict=True)]


def check(tmp_path: Path, dataset: Path, kills: int, seed: int) -> None:
    config = derive_config(
        odd_config(tmp_path, dataset),
        scheduler={"total_steps": 10 * kills + 10},
        training={
            "grad_accum_steps": 2,
            "seq_len": 16,
            "checkpoint_interval": INTERVAL,
            "eval_interval": 5,
            "keep_last": 3,
            "async_checkpoint": False,
        },
        run={"name": "run"},
    )
    straight = derive_config(config, run={"name": "straight"})
    for each in (config, straight):
        run_folder(each).mkdir()
    path = tmp_path / "straight.yaml"
    path.write_text(dump_config(straight))
    job = Job(2, rank_faults.command, ["train", str(path)], run_folder(straight) / "said")
    assert job.exits(120) == [0, 0]
    for number, (victim, at, begun) in enumerate(drill(config, kills, seed), 1):
        print(f"kill {number}: {victim} at step {at}, went on from {begun}: {at - begun} of at most {INTERVAL} lost")
        assert 0 <= at - begun <= INTERVAL
    curves = []
    for each in (config, straight):
        records = read_metrics(run_folder(each))
        curves.append([(r["step"], r.get("train/loss"), r.get("train/grad_norm"), r.get("val/loss")) for r in records])
    assert curves[0] == curves[1]  # final loss included
    assert curves[0][-1][0] == config.total_steps
    ours, theirs = (load_model(run_folder(each))[0].state_dict() for each in (config, straight))
    assert all(ours[name].equal(theirs[name]) for name in theirs)


def test_two_kills(tmp_path: Path, dataset: Path) -> None:
    check(tmp_path, dataset, kills=2, seed=1)


@pytest.mark.heavy  # `make drill`, which .ci/run calls
@pytest.mark.timeout(900)
def test_ten_kills(tmp_path: Path, dataset: Path) -> None:
    check(tmp_path, dataset, kills=10, seed=3)


@pytest.mark.heavy
@pytest.mark.timeout(1200)
def test_twenty_kills(tmp_path: Path, dataset: Path) -> None:
    check(tmp_path, dataset, kills=20, seed=2)


@pytest.mark.heavy
def test_two_machines_start_stop_and_go_on_by_the_rendered_script(tmp_path: Path, dataset: Path) -> None:
    """`hymo launch torchrun --nodes 2`, both machines on this one: preflight, SIGTERM to both, the same again."""
    config = derive_config(
        odd_config(tmp_path, dataset),
        scheduler={"total_steps": 400},
        training={"grad_accum_steps": 2, "seq_len": 16, "max_epochs": 10, "eval_interval": 1000},
        run={"name": "run"},
    )
    path, script = tmp_path / "c.yaml", tmp_path / "start.sh"
    path.write_text(dump_config(config))
    script.write_text(torchrun(LaunchRecipe(str(path), data=str(dataset), nodes=2, gpus=1)))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    environment |= {"GLOO_SOCKET_IFNAME": "lo", "HEAD": "localhost"}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

    def machines(until: int | None) -> list[int]:
        logs = [(tmp_path / f"log-{i}").open("ab") for i in (0, 1)]
        both = [subprocess.Popen(["bash", str(script)], env=environment, stdout=log, stderr=log) for log in logs]
        try:
            limit = time.monotonic() + 120
            while until is not None and newest(run_folder(config)) < until:
                assert time.monotonic() < limit, (tmp_path / "log-0").read_text()
                time.sleep(0.01)
            for each in both if until is not None else []:
                each.terminate()
            return [each.wait(120) for each in both]
        finally:
            for each in both:
                for pid in descendants(each.pid):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)

    assert machines(until=5) == [143, 143]
    said = (tmp_path / "log-0").read_text() + (tmp_path / "log-1").read_text()
    assert said.count("ok    checkpoint") == 1  # one preflight, told by the first rank
    stopped = [e["step"] for e in read_jsonl(run_folder(config) / "events.jsonl") if e["kind"] == "interrupted"]
    assert machines(until=None) == [0, 0]
    assert begins(run_folder(config)) == [0, *stopped]  # nothing lost
    said = (tmp_path / "log-0").read_text() + (tmp_path / "log-1").read_text()
    assert said.count("ok    checkpoint") == 1  # no second one
    records = [r["step"] for r in read_metrics(run_folder(config)) if r["split"] == "train"]
    assert records == list(range(1, 401))
