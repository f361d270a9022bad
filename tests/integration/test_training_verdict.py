"""The verdict of a run on itself: each finding against records made by hand, and what it does to a run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hymo.cli import main
from hymo.core.config import HyMoConfig
from hymo.core.load import config_hash, derive_config, dump_config, load_config
from hymo.core.planner import plan
from hymo.models.checkpoint import find_checkpoint
from hymo.training.metrics import read_jsonl, read_metrics
from hymo.training.run import open_run, run_folder
from hymo.training.verdict import FIRST_BLOCK, verdict

FLAGSHIP = load_config("hymo_750m")
PLANNED = plan(FLAGSHIP, "h200", 4).throughput
assert PLANNED is not None


def records() -> list[dict[str, Any]]:
    """A hundred records of a run that goes well."""
    return [
        {
            "ts": float(i),
            "step": 10 * i,
            "tokens": i,
            "split": "train",
            "train/loss": 11.0 - 0.05 * i + 0.01 * (i % 3),
            "train/first_block_share": 0.2,
            "moe/load_cv/0": 0.3,
            "moe/load_cv/4": 0.5,
            "gdn/tau_90/1": 2.0,
            "gdn/tau_90/2": 1.5,
            "update_ratio/adamw.decay": 1e-3,
            "perf/tok_per_s": 0.9 * PLANNED.tokens_per_second,
        }
        for i in range(1, 101)
    ]


def judged(
    folder: Path, made: list[dict[str, Any]], config: HyMoConfig = FLAGSHIP, skips: int = 0, device: str | None = "h200"
) -> dict[str, tuple[bool | None, str]]:
    (folder / "metrics.jsonl").write_text("".join(json.dumps(each) + "\n" for each in made))
    (folder / "events.jsonl").write_text(skips * '{"ts": 1, "kind": "skip", "step": 1}\n')
    return {f.name: (f.ok, f.text) for f in verdict(config, folder, device, 4).findings}


def test_a_run_that_goes_well(tmp_path: Path) -> None:
    config = derive_config(FLAGSHIP, training={"verdict_loss": 6.5})
    found = judged(tmp_path, records(), config)
    assert {name: ok for name, (ok, _) in found.items()} == dict.fromkeys(
        ("loss", "spikes", "first_block", "load", "dropped", "decays", "reduction", "speed"), True
    )
    last = [each["train/loss"] for each in records()[-10:]]
    assert found["loss"][1] == f"10.960 at first, {sum(last) / 10:.3f} now, 6.5 planned"
    assert found["load"][1] == "CV 0.50 in layer 4, the worst"
    assert found["speed"][1].endswith("90% of the plan")
    assert judged(tmp_path, records())["loss"][0] is None  # no plan, no judgement
    assert judged(tmp_path, records(), device=None)["speed"][0] is None
    long = derive_config(FLAGSHIP, model={"max_seq_len": 1 << 20}, training={"seq_len": 1 << 20})
    assert judged(tmp_path, records(), long, device="rtx4090")["speed"][0] is None  # the plan says it cannot fit
    bf16 = derive_config(FLAGSHIP, training={"reduce_dtype": "bfloat16"})
    assert judged(tmp_path, records(), bf16)["reduction"][0] is None


def late(name: str, value: Any) -> Callable[[list[dict[str, Any]]], None]:
    def change(made: list[dict[str, Any]]) -> None:
        for each in made[-10:]:
            each[name] = value

    return change


def spiky(made: list[dict[str, Any]]) -> None:
    for i in (60, 70, 80):
        made[i]["train/loss"] = 30.0


def slow(made: list[dict[str, Any]]) -> None:
    for each in made:
        each["perf/tok_per_s"] = 0.7 * PLANNED.tokens_per_second


BAD: list[tuple[Callable[[list[dict[str, Any]]], None], str, str]] = [
    (late("train/loss", 12.0), "loss", "10.960 at first, 12.000 now"),
    (late("train/loss", None), "loss", "no finite loss"),
    (spiky, "spikes", "3 in 100 records, 0 steps skipped; lower the learning rates"),
    (late("train/first_block_share", 0.8), "first_block", "shift model.mla_layers to [1, 5, 9, 13, 17, 21, 25, 29]"),
    (late("moe/load_cv/4", 1.2), "load", "CV 1.20 in layer 4, the worst; raise model.moe_bias_speed"),
    (late("moe/dropped/4", 0.1), "dropped", "10.0% of the tokens in layer 4"),
    (late("gdn/tau_90/2", 0.9), "decays", "layers [2] forget within a token; set model.gdn_decay_init=log_uniform"),
    (late("update_ratio/adamw.decay", 0.0), "decays", "they do not move"),
    (slow, "speed", "70% of the plan; hymo doctor says"),
]


@pytest.mark.parametrize(("spoil", "name", "says"), BAD, ids=[f"{name}-{i}" for i, (_, name, _) in enumerate(BAD)])
def test_what_is_bad_is_named_with_its_cure(
    spoil: Callable[[list[dict[str, Any]]], None], name: str, says: str, tmp_path: Path
) -> None:
    made = records()
    spoil(made)
    found = judged(tmp_path, made)
    assert found[name][0] is False
    assert says in found[name][1]
    others = {other for other, (ok, _) in found.items() if ok is False} - {name}
    assert others <= {"spikes"}  # a loss that jumps is a spike as well
    assert judged(tmp_path, records(), skips=1)["spikes"][0] is False


def test_the_share_of_the_first_block_is_that_of_its_gradients(small: HyMoConfig) -> None:
    with open_run(small) as trainer:
        windows = trainer.next_windows()
        model = trainer.copy.model
        model.weighted_total(model.loss_sums(windows[0]), 1.0).backward()
        trainer.copy.collect_gradients(True)
        squares = {
            name: float(p.grad.double().square().sum()) for name, p in trainer.parameters.items() if p.grad is not None
        }
        first = sum(value for name, value in squares.items() if name.startswith(FIRST_BLOCK))
        assert float(trainer.gradients.share(FIRST_BLOCK)) == pytest.approx(first / sum(squares.values()), rel=1e-5)
        assert 0 < first < sum(squares.values())
        assert float(trainer.gradients.share("nothing")) == 0.0


def test_the_gate_stops_a_bad_run_with_a_checkpoint(
    small: HyMoConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = derive_config(small, training={"verdict_step": 4, "verdict_loss": 0.1, "checkpoint_interval": 50})
    assert config_hash(config) == config_hash(small)  # it trains the same
    path = tmp_path / "c.yaml"
    path.write_text(dump_config(config))
    assert main(["train", str(path), "--gate"]) == 1
    said = capsys.readouterr().err
    assert "error: step 4: the verdict is bad (training.verdict_gate): loss: 5." in said
    folder = run_folder(config)
    assert find_checkpoint(folder)[1].step == 4
    (event,) = [e for e in read_jsonl(folder / "events.jsonl") if e["kind"] == "verdict"]
    assert (event["passed"], event["step"], event["loss"][:5]) == (False, 4, "FAIL:")
    assert main(["train", "--resume", str(folder)]) == 0  # the gate was for that step
    records = read_metrics(folder)
    assert [r["step"] for r in records if r["split"] == "train"] == list(range(1, 13))
    capsys.readouterr()
    assert main(["watch", str(folder), "--once"]) == 0
    assert "  verdict: bad: loss" in capsys.readouterr().out


def test_without_the_gate_it_only_tells(small: HyMoConfig, capsys: pytest.CaptureFixture[str]) -> None:
    config = derive_config(small, training={"verdict_step": 4}, scheduler={"total_steps": 5})
    with open_run(config) as trainer:
        assert trainer.train().step == 5
    (event,) = [e for e in read_jsonl(run_folder(config) / "events.jsonl") if e["kind"] == "verdict"]
    assert event["speed"].startswith("-: ")
    assert "no plan for this device" in event["speed"]
    off = derive_config(config, training={"verdict_step": None}, run={"name": "off"})
    with open_run(off) as trainer:
        trainer.train()
    assert not [e for e in read_jsonl(run_folder(off) / "events.jsonl") if e["kind"] == "verdict"]
