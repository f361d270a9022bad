"""Ranks that are killed, stopped, hang or fail: nothing is lost but the work since the last checkpoint."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shlex
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
from hymo.models.checkpoint import find_checkpoint, load_model
from hymo.training.metrics import read_jsonl, read_metrics
from hymo.training.run import run_folder
from rank_helpers import Job
from rank_tasks import odd_config

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def config(tmp_path: Path, dataset: Path) -> HyMoConfig:
    """Ten short steps of two micro-batches, a checkpoint every three and a validation every four."""
    return derive_config(
        odd_config(tmp_path, dataset),
        scheduler={"total_steps": 10},
        training={"grad_accum_steps": 2, "checkpoint_interval": 3, "keep_last": 3, "seq_len": 16},
        run={"name": "run"},
    )


def start(config: HyMoConfig, fault: str = "", size: int = 2) -> Job:
    folder = Path(config.run.output_dir)
    path = folder / f"{config.run.name}.yaml"
    path.write_text(dump_config(config))
    return Job(size, rank_faults.command, ["train", str(path)], folder / config.run.name / "said", fault)


def wait_for(condition: Callable[[], Any], job: Job) -> None:
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until, "nothing happens"
        assert all(process.is_alive() for process in job.processes), "ended by itself"
        time.sleep(0.005)


def said(config: HyMoConfig, rank: int) -> str:
    return Path(f"{run_folder(config)}/said-{rank}").read_text()


def steps(config: HyMoConfig) -> int:
    return max((r.get("step", 0) for r in read_jsonl(run_folder(config) / "metrics.jsonl")), default=0)


def saving(config: HyMoConfig, since: float = 0.0) -> bool:
    """Whether a save goes on; what a killed one left is older than `since`."""
    for folder in (run_folder(config) / CHECKPOINTS).glob(".tmp-*"):
        with contextlib.suppress(FileNotFoundError):
            if folder.stat().st_mtime > since:
                return True
    return False


@pytest.fixture(autouse=True)
def place(config: HyMoConfig) -> None:
    run_folder(config).mkdir(parents=True)


FAULTS = {
    "raise@5": "ValueError: boom",
    "memory@5": "out of memory on cpu. By plan the run needs",
    "hang@5": "rank 0: lost the other ranks (",
}
"""What goes wrong in step 5 of the second rank, and what every rank says about it."""


@pytest.mark.parametrize("fault", FAULTS)
def test_one_rank_that_fails_ends_all(config: HyMoConfig, fault: str) -> None:
    if fault.startswith("hang"):
        config = derive_config(config, training={"rank_timeout_minutes": 0.06})
    began = time.monotonic()
    job = start(config, fault)
    assert job.exits(40) == [1, 1]
    spent = time.monotonic() - began
    for rank in (0, 1):
        assert FAULTS[fault] in said(config, rank), said(config, rank)
    failed = read_jsonl(run_folder(config) / "events.jsonl")[-1]
    assert failed["kind"] == "failed"
    assert FAULTS[fault] in failed["error"]
    assert find_checkpoint(run_folder(config))[1].step in (3, 4)
    print(f"{fault}: all ended {spent:.1f} s after the start")


@pytest.mark.heavy
def test_a_first_rank_that_is_frozen_keeps_nobody(config: HyMoConfig) -> None:
    """The ranks meet in its store, which then answers nothing, as where its machine has lost power."""
    more = {"rank_timeout_minutes": 0.06, "max_epochs": 10}
    config = derive_config(config, scheduler={"total_steps": 2000}, training=more)
    job = start(config)
    wait_for(lambda: steps(config) >= 2, job)
    os.kill(job.processes[0].pid or 0, signal.SIGSTOP)
    job.processes[1].join(30)
    code = job.processes[1].exitcode
    job.kill(0)
    job.end()
    assert code == 1
    assert "error: rank 1: rank 1: lost the other ranks (" in said(config, 1)


WHEN = {"slow_first": 1, "": 2, "slow_eval": 4, "slow_save": 3}


@pytest.mark.parametrize("fault", WHEN)
def test_a_signal_to_one_rank_stops_all_with_a_checkpoint(config: HyMoConfig, fault: str) -> None:
    """In the first step (where compilation would be), in a later one, in a validation, in a save."""
    config = derive_config(config, scheduler={"total_steps": 2000}, training={"max_epochs": 10})
    job = start(config, fault)
    if fault == "slow_first":
        wait_for(lambda: any(e["kind"] == "start" for e in read_jsonl(run_folder(config) / "events.jsonl")), job)
        time.sleep(0.3)
    elif fault == "slow_save":
        wait_for(lambda: saving(config), job)
    else:
        wait_for(lambda: steps(config) >= WHEN[fault], job)
    began = time.monotonic()
    os.kill(job.processes[1].pid or 0, signal.SIGTERM)
    assert job.exits(20) == [143, 143], said(config, 0)
    assert time.monotonic() - began < 20
    (event,) = [e for e in read_jsonl(run_folder(config) / "events.jsonl") if e["kind"] == "interrupted"]
    assert event["signal"] == signal.SIGTERM
    assert find_checkpoint(run_folder(config))[1].step == event["step"] >= WHEN[fault]
    if fault == "slow_eval":  # it was cut short, and nothing of it counts
        assert not [r for r in read_metrics(run_folder(config)) if r["split"] == "val"]
    assert "Traceback" not in said(config, 0) + said(config, 1)


def kill(config: HyMoConfig, kills: int, seed: int) -> list[str]:
    """Start until the run has ended, killing one or all of two ranks at seeded instants, every other in a save."""
    rng, instants = random.Random(seed), list[str]()
    while True:
        began = time.time()
        job = start(config)
        if len(instants) == kills:
            assert job.exits(120) == [0, 0], said(config, 0)
            return instants
        inside, who = len(instants) % 2 == 1, rng.choice([(0,), (1,), (0, 1)])
        target = min(steps(config) + rng.randint(1, 6), config.total_steps - 1)
        if inside:
            wait_for(lambda began=began: saving(config, began), job)
            time.sleep(rng.random() * 0.1)
        else:
            wait_for(lambda target=target: steps(config) >= target, job)
            time.sleep(rng.random() * 0.03)
        job.kill(*who)
        codes = job.exits(30)
        assert all(code == (-signal.SIGKILL if rank in who else 1) for rank, code in enumerate(codes)), codes
        instants.append(f"{steps(config)}{' in a save' if inside else ''}, rank {' and '.join(map(str, who))}")


def check_kills(config: HyMoConfig, kills: int, seed: int) -> None:
    config = derive_config(config, scheduler={"total_steps": 5 * kills}, training={"eval_interval": 5})
    straight = derive_config(config, run={"name": "straight"})
    run_folder(straight).mkdir()
    assert start(straight).exits(120 + 5 * kills) == [0, 0], said(straight, 0)
    print("killed at steps:", "; ".join(kill(config, kills, seed)))
    curves = []
    for each in (config, straight):
        records = read_metrics(run_folder(each))
        curves.append([(r["step"], r.get("train/loss"), r.get("train/grad_norm"), r.get("val/loss")) for r in records])
    assert curves[0] == curves[1]
    assert curves[0][-1][0] == config.total_steps
    ours, theirs = (load_model(run_folder(each))[0].state_dict() for each in (config, straight))
    assert all(ours[name].equal(theirs[name]) for name in theirs)


def test_five_kills_change_nothing(config: HyMoConfig) -> None:
    check_kills(config, kills=5, seed=1)


@pytest.mark.heavy
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("seed", [2, 3])
def test_fifty_kills_change_nothing(config: HyMoConfig, seed: int) -> None:
    check_kills(config, kills=25, seed=seed)


def torchrun(config: HyMoConfig, command: list[str], fault: str = "", **environment: str) -> str:
    """Run a launcher to its end; returns what it wrote to stderr."""
    path = Path(config.run.output_dir) / "c.yaml"
    path.write_text(dump_config(config))
    variables = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "PYTHONPATH": os.pathsep.join([str(REPOSITORY / "tests"), *sys.path]),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        **({"FAULT": fault} if fault else {}),
        **environment,
    }
    words = [str(path) if word == "CONFIG" else word for word in command]
    done = subprocess.run(words, env=variables, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stderr


@pytest.mark.heavy
def test_torchrun_restarts_and_the_run_completes(config: HyMoConfig) -> None:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--max-restarts", "1"]
    launcher += ["--standalone", rank_faults.__file__, "train", "CONFIG"]
    torchrun(config, launcher, "die@5")
    events = read_jsonl(run_folder(config) / "events.jsonl")
    assert [e["step"] for e in events if e["kind"] == "resume"] == [3]
    assert events[-1] == {**events[-1], "kind": "stop", "step": 10}
    assert find_checkpoint(run_folder(config))[1].world_size == 2


GONE = """
import os, threading, time
if os.environ.get("LOCAL_RANK") == "1":
    def die():
        while not os.path.exists(os.environ["UNTIL"]):
            time.sleep(0.01)
        os.kill(os.getpid(), 9)
    threading.Thread(target=die, daemon=True).start()
"""


@pytest.mark.heavy
def test_the_recipe_goes_on_with_a_rank_less(config: HyMoConfig) -> None:
    """Once there is a checkpoint the second rank's process is killed at every start, as where its device is gone."""
    folder = Path(config.run.output_dir)
    (folder / "sitecustomize.py").write_text(GONE)
    recipe = ["bash", str(REPOSITORY / "launch" / "torchrun.sh"), "2", "CONFIG"]
    until = str(run_folder(config) / CHECKPOINTS / "step-00000003" / "manifest.json")
    config = derive_config(config, scheduler={"total_steps": 60})
    place = {"PYTHONPATH": os.pathsep.join([str(folder), *sys.path]), "UNTIL": until, "RESTARTS": "1"}
    told = torchrun(config, recipe, PYTHON=sys.executable, **place)
    assert "going on with 1" in told
    events = read_jsonl(run_folder(config) / "events.jsonl")
    assert events[-1] == {**events[-1], "kind": "stop", "step": 60}
    starts = json.loads((run_folder(config) / "env.json").read_text())
    assert starts[-1]["step"] >= 3
    assert find_checkpoint(run_folder(config))[1].world_size == 1
    train = [r for r in read_metrics(run_folder(config)) if r["split"] == "train"]
    assert [r["step"] for r in train] == list(range(1, 61))


@pytest.mark.heavy
def test_the_recipe_stops_on_request_and_refuses_what_does_not_divide(config: HyMoConfig) -> None:
    path = Path(config.run.output_dir) / "c.yaml"
    path.write_text(dump_config(derive_config(config, scheduler={"total_steps": 2000}, training={"max_epochs": 10})))
    recipe = ["bash", str(REPOSITORY / "launch" / "torchrun.sh")]
    variables = {**os.environ, "PYTHON": sys.executable, "PYTHONPATH": os.pathsep.join(sys.path)}
    variables |= {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    refused = subprocess.run([*recipe, "3", str(path)], env=variables, capture_output=True, text=True, check=False)
    assert (refused.returncode, "3 ranks do not divide" in refused.stderr) == (2, True)
    with subprocess.Popen([*recipe, "2", str(path)], env=variables) as process:
        wait_until(lambda: steps(config) >= 3)
        began = time.monotonic()
        process.terminate()
        assert process.wait(40) == 143
    assert time.monotonic() - began < 20
    check_interrupted(config, signal.SIGTERM)


def wait_until(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not condition() and time.monotonic() < until:
        time.sleep(0.01)


def check_interrupted(config: HyMoConfig, number: int) -> None:
    (event,) = [e for e in read_jsonl(run_folder(config) / "events.jsonl") if e["kind"] == "interrupted"]
    assert event["signal"] == number
    assert find_checkpoint(run_folder(config))[1].step == event["step"] >= 3


@pytest.mark.heavy
def test_the_recipe_stops_at_ctrl_c_and_before_it_has_started_anything(config: HyMoConfig) -> None:
    """A terminal sends Ctrl-C to all processes in its foreground: the ranks must hear of it once."""
    path = Path(config.run.output_dir) / "c.yaml"
    path.write_text(dump_config(derive_config(config, scheduler={"total_steps": 2000}, training={"max_epochs": 10})))
    recipe = ["bash", str(REPOSITORY / "launch" / "torchrun.sh"), "2", str(path)]
    variables = {**os.environ, "PYTHON": sys.executable, "PYTHONPATH": os.pathsep.join(sys.path)}
    variables |= {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    begun, python = path.with_name("begun"), path.with_name("python")
    python.write_text(f'#!/bin/sh\ntouch {begun}\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    with subprocess.Popen(recipe, env={**variables, "PYTHON": str(python)}) as process:
        wait_until(begun.exists)
        process.terminate()
        assert process.wait(40) == 143
    assert not (run_folder(config) / "events.jsonl").exists()
    with subprocess.Popen(recipe, env=variables, start_new_session=True) as process:
        wait_until(lambda: steps(config) >= 3)
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(40) == 130
    check_interrupted(config, signal.SIGINT)


@pytest.mark.heavy
def test_the_commands_of_the_guide_run(tmp_path: Path, dataset: Path) -> None:
    text = (REPOSITORY / "docs" / "distributed.md").read_text()
    commands = text.split("```sh\n")[1].split("```")[0].splitlines()
    assert len(commands) == 3
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "books").symlink_to(dataset)
    (tmp_path / "launch").symlink_to(REPOSITORY / "launch")
    variables = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "PYTHON": sys.executable}
    variables |= {
        "PYTHONPATH": os.pathsep.join(sys.path),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    for name, command in zip(("torchrun", "recipe", "bench"), commands, strict=True):
        words = [*shlex.split(command), "--set", "scheduler.total_steps=12", "--set", f"run.name={name}"]
        words += ["--set", "run.device=cpu"]
        done = subprocess.run(words, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{command}\n{done.stderr[-2000:]}"
        if name == "bench":
            assert "2 x cpu" in done.stdout
        else:
            assert find_checkpoint(tmp_path / "runs" / name)[1].world_size == 2
