"""A longer schedule: the run goes on from its stable phase as if it had been planned so, the old decay set aside."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from hymo.cli import main
from hymo.core.config import HyMoConfig
from hymo.core.errors import DataError, UsageError
from hymo.core.load import derive_config, load_config
from hymo.data import ByteTokenizer, prepare, sample_paths
from hymo.models.checkpoint import find_checkpoint, list_checkpoints, load_model
from hymo.training.metrics import read_jsonl, read_metrics
from hymo.training.run import open_run, run_folder
from training_helpers import stop_after

PHASES = {"warmup_frac": 0.25, "stable_frac": 0.5, "decay_frac": 0.25, "total_steps": 8}
"""Of 8 steps: 2 to warm up, 4 stable, 2 to decay."""


def planned(small: HyMoConfig, **training: Any) -> HyMoConfig:
    cadence = {"eval_interval": 100, "checkpoint_interval": 100, "keep_stable": True, **training}
    return derive_config(small, scheduler=PHASES, training=cadence)


def train(config: HyMoConfig) -> Path:
    with open_run(config) as trainer:
        trainer.train()
    return run_folder(config)


def steps(folder: Path) -> list[int]:
    return [int(path.name[5:]) for path in list_checkpoints(folder)]


def trained(run: Path) -> list[dict[str, Any]]:
    return read_metrics(run, lambda record: record["split"] == "train")


def rates(run: Path) -> list[float]:
    records = {r["step"]: r["train/lr_factor"] for r in trained(run)}
    assert sorted(records) == list(range(1, len(records) + 1))
    return [round(records[step], 9) for step in sorted(records)]


def lengthen(run: Path, total: int, *words: str) -> int:
    return main(["train", "--resume", str(run), "--set", f"scheduler.total_steps={total}", *words])


def test_a_finished_run_goes_on_from_its_stable_phase(small: HyMoConfig) -> None:
    run = train(planned(small))
    assert steps(run / "checkpoints") == [8, 6]  # the last, and the end of the stable phase
    low = 0.05
    assert rates(run) == pytest.approx([0.5, 1, 1, 1, 1, 1, (1 + low) / 2, low])
    before = {r["step"]: r for r in trained(run)}
    old = load_model(run / "checkpoints" / "step-00000008")[0].embed.weight.clone()

    assert lengthen(run, 12) == 0
    # 12 steps: the warm-up of 2 stays, the decay is a quarter of 12
    assert rates(run) == pytest.approx([0.5, *[1] * 8, low + 0.95 * 2 / 3, low + 0.95 / 3, low], abs=1e-8)
    records = {r["step"]: r for r in trained(run)}
    assert [records[s]["train/loss"] for s in range(1, 7)] == [before[s]["train/loss"] for s in range(1, 7)]
    assert len({records[s]["data/hash"] for s in range(1, 13)}) == 12
    assert steps(run / "checkpoints") == [12, 9]
    assert load_config(run / "config.yaml").total_steps == 12
    # what was decayed before is still there, and usable
    aside = run / "checkpoints-of-8"
    assert steps(aside) == [8]
    assert load_model(aside)[0].embed.weight.equal(old)
    (event,) = [e for e in read_jsonl(run / "events.jsonl") if e["kind"] == "extend"]
    assert (event["step"], event["total_steps"]) == (6, 12)

    assert main(["train", "--resume", str(run)]) == 0  # nothing left to do
    assert lengthen(run, 16) == 0
    assert rates(run)[:9] == pytest.approx([0.5, *[1] * 8])
    assert steps(run / "checkpoints-of-12") == [12]


def test_a_lengthened_run_is_the_run_that_was_planned_so(small: HyMoConfig) -> None:
    """With the same warm-up, 8 + 4 steps are bit for bit 12 steps planned at once."""
    run = train(planned(small))
    assert lengthen(run, 12) == 0
    whole = derive_config(
        planned(small),
        scheduler={"total_steps": 12, "warmup_frac": 2 / 12, "stable_frac": 7 / 12, "decay_frac": 3 / 12},
        run={"name": "whole"},
    )
    other = train(whole)
    assert rates(run) == rates(other)
    ours, theirs = load_model(run)[0].state_dict(), load_model(other)[0].state_dict()
    assert all(ours[name].equal(theirs[name]) for name in theirs)


def test_an_interrupted_run_goes_on_in_place_and_so_does_an_interrupted_extension(small: HyMoConfig) -> None:
    config = planned(small)
    with open_run(config) as trainer:
        stop_after(trainer, 4)
        trainer.train()
    run = run_folder(config)
    longer = derive_config(config, scheduler={"total_steps": 12})
    for until in (None, 5):  # None: the process dies before its first step
        with open_run(longer, extend=True) as trainer:
            assert (trainer.scheduler.warmup_steps, trainer.scheduler.decay_start) == (2, 9)
            if until is not None:
                stop_after(trainer, until)
                trainer.train()
    assert find_checkpoint(run)[1].step == 5
    with open_run(longer) as trainer:  # from now on it is that run, without asking for it
        trainer.train()
    assert rates(run)[:9] == pytest.approx([0.5, *[1] * 8])
    assert not list(run.glob("checkpoints-of-*"))


def test_what_cannot_be_lengthened_is_refused_and_left_alone(
    small: HyMoConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    run = train(planned(small, keep_stable=False))
    files = {p: p.read_bytes() for p in run.rglob("*") if p.is_file() and p.name not in ("run.lock", "events.jsonl")}
    for words, says in (
        (["scheduler.total_steps=12"], "none of its checkpoints (step-00000008) is whole and of the stable phase"),
        (["scheduler.total_steps=5"], "a run can be lengthened, not shortened"),
        (["scheduler.total_steps=100000"], "raise training.max_epochs"),
        (["optimizer.muon_lr=1.0"], "would change the steps already taken"),
        (["scheduler.total_steps=12", "training.seed=3"], "would change the steps already taken"),
        (["scheduler.totl_steps=12"], "--resume"),
    ):
        assert main(["train", "--resume", str(run), *(f"--set={word}" for word in words)]) == 2, words
        assert says.lower() in capsys.readouterr().err.lower()
    with (
        pytest.raises(Exception, match="holds the same run with 8 steps instead of 12"),
        open_run(derive_config(planned(small, keep_stable=False), scheduler={"total_steps": 12})),
    ):
        pass
    assert {p: p.read_bytes() for p in files} == files


def test_what_differs_is_named_where_the_steps_do_not(small: HyMoConfig) -> None:
    config = planned(small)
    train(config)
    tokens = 8 * config.training.tokens_per_step
    for changes, says in (
        ({"training": {"max_epochs": 7}}, f"with training.max_epochs {config.training.max_epochs} instead of 7"),
        ({"scheduler": {"total_tokens": tokens + 1}}, "with scheduler.total_steps 8 instead of null"),
    ):
        with (
            pytest.raises(UsageError, match=f"holds the same run {says}"),
            open_run(derive_config(config, **changes)),
        ):
            pass


def test_cadence_and_place_of_the_data_may_change_on_resume(small: HyMoConfig, tmp_path: Path) -> None:
    config = planned(small)
    with open_run(config) as trainer:
        stop_after(trainer, 3)
        trainer.train()
    run = run_folder(config)
    assert config.run.data is not None
    moved = shutil.copytree(config.run.data, tmp_path / "moved")
    assert main(["train", "--resume", str(run), "--data", str(moved), "--set", "training.checkpoint_interval=2"]) == 0
    kept = load_config(run / "config.yaml")
    assert (kept.training.checkpoint_interval, kept.run.data) == (2, str(moved))
    assert [e["step"] for e in read_jsonl(run / "events.jsonl") if e["kind"] == "checkpoint"] == [3, 4, 6, 8]


def test_what_an_automatic_resume_changes_holds_for_prune_too(
    small: HyMoConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = derive_config(planned(small, keep_last=1, keep_stable=False), training={"checkpoint_interval": 2})
    with open_run(config) as trainer:
        stop_after(trainer, 4)
        trainer.train()
    run = run_folder(config)
    before = (run / "config.yaml").read_bytes()
    other = shutil.copytree(config.run.data or "", tmp_path / "other")
    sample = sample_paths()
    prepare([sample["validation"]], other, ByteTokenizer(), validation_inputs=[sample["train"]], overwrite=True)
    with pytest.raises(DataError), open_run(derive_config(config, run={"data": str(other)})):
        pass
    assert (run / "config.yaml").read_bytes() == before  # a resume that is refused changes nothing

    more = derive_config(config, training={"keep_last": 3})
    with open_run(more) as trainer:
        trainer.train()
    assert load_config(run / "config.yaml") == more
    assert steps(run / "checkpoints") == [8, 6, 4]
    assert main(["checkpoint", "prune", str(run), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["removed"] == []
    assert steps(run / "checkpoints") == [8, 6, 4]
