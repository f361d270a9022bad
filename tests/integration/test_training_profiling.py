"""A trace of the steps asked for, and of no others."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from hymo.cli import main
from hymo.core.config import HyMoConfig
from hymo.core.errors import ConfigError
from hymo.core.load import config_hash, derive_config, load_config
from hymo.training.metrics import read_jsonl, read_metrics
from hymo.training.run import open_run, run_folder
from training_helpers import stop_after

LENGTH = {"total_steps": 5}


def updates(path: Path) -> int:
    """Optimizer steps that a trace holds."""
    with gzip.open(path, "rt") as stream:
        events = json.load(stream)["traceEvents"]
    return sum(1 for event in events if str(event.get("name", "")).startswith("Optimizer.step#AdamW"))


def run(config: HyMoConfig, until: int | None = None) -> Path:
    with open_run(config) as trainer:
        if until is not None:
            stop_after(trainer, until)
        trainer.train()
    return run_folder(config)


def reported(folder: Path, kind: str) -> list[dict[str, Any]]:
    return [event for event in read_jsonl(folder / "events.jsonl") if event["kind"] == kind]


def test_the_steps_asked_for_are_recorded(small: HyMoConfig) -> None:
    plain = run(derive_config(small, scheduler=LENGTH, run={"name": "plain"}))
    assert not (plain / "profiles").exists()
    config = derive_config(small, scheduler=LENGTH, training={"profile_steps": [2, 3]})
    folder = run(config)
    (trace,) = (folder / "profiles").iterdir()
    assert trace.name == "trace-2-3.json.gz"
    assert updates(trace) == 2
    assert [Path(event["path"]) for event in reported(folder, "profile")] == [trace]
    losses = [[r["train/loss"] for r in read_metrics(f) if r["split"] == "train"] for f in (plain, folder)]
    assert losses[0] == losses[1]
    assert config_hash(config) == config_hash(derive_config(small, scheduler=LENGTH))


def test_what_was_recorded_is_kept_when_the_run_stops_and_another_range_is_for_the_resumed(small: HyMoConfig) -> None:
    config = derive_config(small, scheduler=LENGTH, training={"profile_steps": [2, 4]})
    folder = run(config, until=3)
    assert [(p.name, updates(p)) for p in (folder / "profiles").iterdir()] == [("trace-2-3.json.gz", 2)]
    assert main(["train", "--resume", str(folder), "--set", "training.profile_steps=[5, 5]"]) == 0
    assert updates(folder / "profiles" / "trace-5-5.json.gz") == 1


def test_a_place_in_the_way_costs_only_the_profile(small: HyMoConfig) -> None:
    config = derive_config(small, scheduler=LENGTH, training={"profile_steps": [1, 1]})
    run_folder(config).mkdir(parents=True)
    (run_folder(config) / "profiles").write_text("")
    folder = run(config)
    assert len(reported(folder, "profile_failed")) == 1
    assert reported(folder, "stop")[0]["step"] == 5


def test_a_range_the_wrong_way_round_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"training\.profile_steps.*the first step comes after the last"):
        derive_config(load_config("hymo_tiny"), training={"profile_steps": [3, 2]})
