"""`hymo ablate`: the same figures as `hymo train`, nothing finished lost or repeated, nothing begun that cannot end."""

from __future__ import annotations

import json
import os
import re
import runpy
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hymo.ablations import summary as comparing
from hymo.ablations.families import FAMILIES, family
from hymo.ablations.job import heads_gradient
from hymo.ablations.report import markdown, write_report
from hymo.ablations.results import ORIGIN, OTHERS, Results
from hymo.ablations.rows import measured
from hymo.ablations.runner import Runner, lay_out, visible_gpus
from hymo.ablations.variants import build, cadence
from hymo.cli.app import main
from hymo.core.config import HyMoConfig
from hymo.core.errors import DataError, UsageError
from hymo.core.load import derive_config, dump_config, load_config, run_config
from hymo.training.batches import to_window
from hymo.training.metrics import read_metrics
from hymo.training.run import open_run
from training_helpers import child

SETTINGS = ["--variant", "delta:model.gdn_recurrence=gated_delta", "--variant", "wide:model.moe_inter_dim=48"]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory, dataset: Path) -> Path:
    """A configuration file: hymo_tiny, smaller still, 12 steps of 128 tokens."""
    config = derive_config(
        load_config("hymo_tiny"),
        model={"dim": 32, "gdn_d_inner": 64, "n_routed_experts": 4, "moe_inter_dim": 32, "gdn_chunk_size": 16},
        optimizer={"ns_dtype": "float32"},
        scheduler={"total_steps": 12},
        training={"micro_batch_size": 2, "seq_len": 64, "eval_interval": 4, "eval_sequences": 4, "log_interval": 1},
        run={"data": str(dataset), "device": "cpu", "name": "small"},
    )
    path = tmp_path_factory.mktemp("base") / "small.yaml"
    path.write_text(dump_config(config))
    return path


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory, base: Path) -> Path:
    """The folder of a comparison that has ended: base, delta and wide with two seeds, one run after the other."""
    out = tmp_path_factory.mktemp("ablations") / "out"
    words = ["ablate", "custom", "--preset", str(base), *SETTINGS, "--seeds", "2", "--out", str(out), "--price", "2"]
    assert main(words) == 0
    return out


def rows(out: Path) -> dict[tuple[str, int], dict[str, Any]]:
    return {(row["variant"], row["seed"]): row for row in json.loads((out / "results.json").read_text())["rows"]}


def figures(out: Path) -> dict[tuple[str, int], Any]:
    """What a repetition must give again: scores, and the curve without its clock."""
    return {
        name: (row["bits_per_byte"], row["train_loss"], [(t, score) for t, _, score in row["curve"]])
        for name, row in rows(out).items()
    }


def test_figures_are_those_of_a_separate_training(done: Path, base: Path, tmp_path: Path) -> None:
    command = ["train", str(base), "--set", "training.seed=1", "--set", "model.gdn_recurrence=gated_delta"]
    command += ["--set", "training.eval_interval=1", "--set", f"run.output_dir={tmp_path}", "--set", "run.name=alone"]
    assert main(command) == 0
    (row,) = (row for row in rows(done).values() if row["variant"] == "delta" and row["seed"] == 1)
    alone = read_metrics(tmp_path / "alone")
    scores = {r["tokens"]: r["val/bits_per_byte"] for r in alone if r["split"] == "val"}
    assert [(tokens, scores[tokens]) for tokens, _, _ in row["curve"]] == [(t, s) for t, _, s in row["curve"]]
    assert row["bits_per_byte"] == scores[12 * 128]
    assert row["train_loss"] == [r["train/loss"] for r in alone if r["split"] == "train"][-1]
    (folder,) = (done / "runs").glob("delta-s1-*")
    hashes = [[r["data/hash"] for r in records if r["split"] == "train"] for records in (alone, read_metrics(folder))]
    assert hashes[0] == hashes[1]


def test_rows_say_what_ran(done: Path) -> None:
    found = rows(done)
    assert set(found) == {(name, seed) for name in ("base", "delta", "wide") for seed in (0, 1)}
    wide = found["wide", 0]
    assert wide["overrides"] == {"model.moe_inter_dim": 48}
    assert (wide["family"], found["base", 0]["family"], wide["preset"]) == ("custom", "base", "small")
    assert (wide["tokens"], wide["epochs"]) == (12 * 128, 1)
    assert wide["curve"][-1][0] == 12 * 128
    assert wide["curve"][-1][1] == wide["seconds"] == pytest.approx(wide["tokens"] / wide["tok_per_s"], abs=1e-3)
    assert wide["wall_seconds"] > wide["seconds"]
    assert wide["peak_gib"] > 0.05
    assert 0 <= wide["load_balance"]["load_cv"] < 2
    assert 0 < wide["heads_gradient"] < 2
    orders = {
        (seed, tuple(r["data/hash"] for r in read_metrics(folder) if r["split"] == "train"))
        for seed in (0, 1)
        for folder in (done / "runs").glob(f"*-s{seed}-*")
    }
    assert len(orders) == 2  # one order a seed, the same for every variant


def test_the_report(done: Path) -> None:
    page = (done / "custom.md").read_text()
    assert (done / "custom.png").read_bytes().startswith(b"\x89PNG")
    found = rows(done)
    scores = {name: [found[name, seed]["bits_per_byte"] for seed in (0, 1)] for name in ("base", "wide")}
    mean = sum(scores["wide"]) / 2
    differences = [w - b for w, b in zip(scores["wide"], scores["base"], strict=True)]
    half = 12.7062 * abs(differences[0] - differences[1]) / 2  # t of one degree of freedom, sd of two over sqrt 2
    middle = sum(differences) / 2
    assert f"| wide |  | 2 | {mean:.4f} ±" in page or f"| wide | given with --variant | 2 | {mean:.4f} ±" in page
    assert f"{middle:+.4f} | " in page
    (made,) = (s for s in comparing.summarise(list(found.values())) if s.name == "wide")
    assert made.paired == pytest.approx((middle - half, middle + half), rel=1e-4, abs=1e-9)
    assert "`model.moe_inter_dim=48`" in page
    assert "What this cannot show" in page
    assert "At 2 per device-hour" in page


def test_a_killed_call_loses_and_repeats_nothing_finished(done: Path, base: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ["ablate", "custom", "--preset", str(base), *SETTINGS, "--seeds", "1", "--out", str(out)]
    results = out / "results.json"
    with child([sys.executable, "-m", "hymo", *words], stderr=subprocess.DEVNULL) as process:
        wait_for(lambda: results.exists() and rows(out))
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    finished = rows(out)
    assert len(finished) < 3
    stamps = {path: path.stat().st_mtime_ns for path in metrics_of(out, finished)}
    assert main(words) == 0
    assert figures(out) == {name: row for name, row in figures(done).items() if name[1] == 0}
    assert {path: path.stat().st_mtime_ns for path in stamps} == stamps
    assert all(rows(out)[name] == row for name, row in finished.items())


def metrics_of(out: Path, found: dict[tuple[str, int], Any]) -> list[Path]:
    return [path for name, seed in found for path in (out / "runs").glob(f"{name}-s{seed}-*/metrics.jsonl")]


def wait_for(happened: Any, seconds: float = 120) -> None:
    until = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < until
        time.sleep(0.05)


def test_rows_are_enough_to_go_on_elsewhere(
    done: Path, base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another day, another machine: the results file alone."""
    shutil.copy(done / "results.json", tmp_path / "kept.json")
    words = ["ablate", "custom", "--preset", str(base), *SETTINGS, "--seeds", "2", "--out", str(tmp_path / "new")]
    assert main([*words, "--json", "--results", str(tmp_path / "kept.json")]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["done"] == 0
    assert not list((tmp_path / "new").glob("runs/*"))
    assert "6 of 6 runs are in" in said.err
    assert (tmp_path / "new" / "custom.md").exists()


def runner(base: Path, out: Path, results: Path, told: list[str], **options: Any) -> Runner:
    comparison = build(run_config_of(base), family("custom"), ["wide:model.moe_inter_dim=48", "none:model.mtp_depth=0"])
    runs, data = lay_out(comparison, [0], str(run_config_of(base).run.data), out)
    return Runner(comparison.base.config, runs, data, Results(results), progress=told.append, **options)


def run_config_of(path: Path) -> HyMoConfig:
    """As the command makes it."""
    return derive_config(load_config(path), training=cadence(load_config(path)))


def test_no_run_begins_that_would_not_end(done: Path, base: Path, tmp_path: Path) -> None:
    """Rows of the first seed say how long a run takes; the third variant is not among them."""
    shutil.copy(done / "results.json", tmp_path / "r.json")
    told: list[str] = []
    short = runner(base, tmp_path / "out", tmp_path / "r.json", told, minutes=0.02)
    (run,) = (each for each in short.runs if each.variant.name == "none")
    expected = short.expected_seconds(run.config)
    assert expected is not None
    walls = [row["wall_seconds"] for row in rows(done).values()]
    assert min(walls) * 0.5 < expected < max(walls) * 2
    slow = Results(tmp_path / "r.json")
    for row in list(slow.rows.values()):
        slow.add({**row, "wall_seconds": 1e6}, slow.environment)
    short = runner(base, tmp_path / "out", tmp_path / "r.json", told, minutes=60)
    outcome = short.run()
    assert outcome.left == ["none, seed 0"]
    assert (outcome.done, outcome.exit_code) == (0, 0)
    assert not (tmp_path / "out" / "runs").exists()
    assert any("no time for another run" in line for line in told)
    begun = runner(base, tmp_path / "out", tmp_path / "r.json", told, minutes=60, begin_all=True).run()
    assert (begun.left, begun.done) == ([], 1)


def test_a_row_that_another_comparison_wrote_goes_by_this_ones_names(done: Path, base: Path, tmp_path: Path) -> None:
    """What is run twice under two names is one run, and no report may lose it for its other name."""
    other = Results(done / "results.json")
    other.path = tmp_path / "r.json"
    for row in list(other.rows.values()):
        other.add({**row, "family": "other", "variant": f"{row['variant']} elsewhere"}, other.environment)
    told: list[str] = []
    outcome = runner(base, tmp_path / "out", other.path, told, minutes=0.0001).run()
    assert [(row["family"], row["variant"]) for row in outcome.rows] == [("base", "base"), ("custom", "wide")]
    assert outcome.left == ["none, seed 0"]


def test_a_failed_run_does_not_end_the_others_and_is_tried_again(base: Path, tmp_path: Path) -> None:
    told: list[str] = []
    comparison = build(load_config(base), family("custom"), ["bad:training.max_skipped_steps=0;model.init_std=1e30"])
    runs, data = lay_out(comparison, [0], str(load_config(base).run.data), tmp_path)
    for _ in range(2):
        kept = Results(tmp_path / "results.json")
        each = Runner(
            comparison.base.config, runs, data, kept, parallel=2, discard_checkpoints=True, progress=told.append
        )
        outcome = each.run()
        assert list(outcome.failed) == ["bad, seed 0"]
        assert outcome.exit_code == 1
        assert [row["variant"] for row in outcome.rows] == ["base"]
    assert outcome.done == 0
    assert "not finite" in outcome.failed["bad, seed 0"]
    assert sum(line.startswith("begins: base") for line in told) == 1
    base_folder = next(each.folder for each in runs if each.variant.name == "base")
    assert not (base_folder / "checkpoints").exists()
    page = markdown(comparison.family, list(kept.rows.values()), kept.environment)
    assert "## Runs that failed" in page
    assert run_config(base_folder).training.seed == 0


def test_a_signal_lets_running_variants_save(done: Path, base: Path, tmp_path: Path) -> None:
    told: list[str] = []
    first = runner(base, tmp_path, tmp_path / "results.json", told)

    def interrupt(said: str) -> None:
        told.append(said)
        if said.startswith("begins"):
            os.kill(os.getpid(), signal.SIGTERM)

    first.progress = interrupt
    outcome = first.run()
    assert (outcome.exit_code, outcome.done) == (143, 0)
    assert sorted(outcome.left) == ["base, seed 0", "none, seed 0", "wide, seed 0"]
    again = runner(base, tmp_path, tmp_path / "results.json", told).run()
    assert (again.exit_code, again.done, again.left) == (0, 3, [])
    assert figures(tmp_path)["wide", 0] == figures(done)["wide", 0]


def test_a_signal_to_the_whole_group_is_no_failure(base: Path, tmp_path: Path) -> None:
    """What `timeout` and schedulers send ends the fork server first; runs that it began still count as stopped."""
    command = [sys.executable, "-m", "hymo", "ablate", "custom", "--preset", base, *SETTINGS, "--seeds", "1"]
    command += ["--set", "scheduler.total_steps=4000", "--set", "training.max_epochs=9999", "--out", tmp_path]
    with child(command, start_new_session=True, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        said = [next(line for line in process.stderr if line.startswith("begins"))]
        os.killpg(process.pid, signal.SIGTERM)
        said += process.stderr
        assert process.wait(60) == 143, said
    assert not [line for line in said if line.startswith("failed")]
    assert said[-1].startswith("3 of 3 runs are left"), said
    assert Results(tmp_path / "results.json").rows == {}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["E", "--price", "-1"], "--price -1: must not be below 0"),
        (["X"], "X: unknown family"),
        (["E", "--tokens", "many"], "--tokens many: must be a whole number"),
        (["E", "--seeds", "0"], "give at least one seed"),
        (["E", "--parallel", "0"], "--parallel 0"),
        (["E", "--minutes", "0"], "--minutes 0"),
        (["E", "--variant", "a:model.n_kv_groups=3"], "variant 'a'"),
        (["E", "--tokens", "8k", "--set", "model.vocab_size=200"], "model.vocab_size"),
        (["E", "--data", "nowhere"], "nowhere"),
        (["E", "--preset", "hymo_small"], "--data DIR"),
    ],
)
def test_wrong_requests(
    words: list[str], message: str, base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    preset = [] if "--preset" in words else ["--preset", str(base)]
    assert main(["ablate", *words, *preset, "--out", str(tmp_path / "out")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out" / "runs").exists()


@pytest.mark.parametrize(("option", "place"), [("--out", "out"), ("--results", "r.json")])
def test_a_place_that_cannot_be_written_is_told_before_any_run(
    option: str, place: str, base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("not a folder")
    words = ["ablate", "custom", "--preset", str(base), *SETTINGS]
    words += [] if option == "--out" else ["--out", str(tmp_path / "o")]
    assert main([*words, option, str(tmp_path / "file" / place)]) == 2
    said = capsys.readouterr().err
    assert "cannot be written" in said
    assert f"Choose another {'folder with --out' if option == '--out' else 'place with --results'}" in said
    assert "begins" not in said


def test_two_comparisons_fill_one_results_file(done: Path, tmp_path: Path) -> None:
    """Each has read the file before the other wrote; rows of another machine say so, and reports name both."""
    first, second = (Results(tmp_path / "r.json") for _ in range(2))
    here, there = (
        {"device": d, "torch": "2.13.0", "command": f"hymo on {d}", "note": d} for d in ("cpu", "NVIDIA H200")
    )
    given = list(rows(done).values())
    first.add(given[0], here)
    second.add({**given[1], "failed": "it diverged"}, there)
    first.add(given[2], here)
    second.add(given[1], there)
    found = Results(tmp_path / "r.json")
    assert {key: row.get(ORIGIN) for key, row in found.rows.items()} == {
        given[0]["key"]: None,
        given[1]["key"]: 1,
        given[2]["key"]: None,
    }
    assert not any(row.get("failed") for row in found.rows.values())
    assert (found.environment["note"], found.environment[OTHERS][0]["note"]) == ("cpu", "NVIDIA H200")
    page = markdown(family("E"), list(found.rows.values()), found.environment)
    assert "cpu, torch 2.13.0 and NVIDIA H200, torch 2.13.0, " in page
    assert "hymo on cpu\nhymo on NVIDIA H200\n" in page
    page = markdown(family("E"), [found.rows[given[1]["key"]]], found.environment)
    assert "NVIDIA H200, torch 2.13.0, " in page
    assert "hymo on cpu" not in page
    (tmp_path / "r.json").write_text('{"environment": {}, "rows": []}')  # somebody else's empty one
    first.add(given[3], here)
    assert set(Results(tmp_path / "r.json").rows) == {given[n]["key"] for n in (0, 2, 3)}  # what the first had seen


def test_the_rivals_differences_are_told_too(
    base: Path, done: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows of the base, the rival and a winner, as if they had run: the base's curve with other scores."""
    config = load_config(base)
    config = derive_config(config, training=cadence(config))
    runs, _ = lay_out(build(config, family("next")), (0, 1), str(config.run.data), tmp_path)
    scores = {"base": (3.0, 3.1), "dense transformer, no heads": (2.8, 2.8), "winners": (2.6, 2.7)}
    kept = Results(tmp_path / "results.json")
    for run in runs:
        if run.variant.name in scores:
            seed = run.config.training.seed
            named = {"key": run.key, "family": run.family, "variant": run.variant.name, "seed": seed}
            known = rows(done)["base", seed] | named | {"bits_per_byte": scores[run.variant.name][seed]}
            kept.add(known, {"device": "cpu"})
    words = ["ablate", "next", "--preset", str(base), "--seeds", "2", "--minutes", "0.0001", "--out", str(tmp_path)]
    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["rival"]["name"] == "dense transformer, no heads"
    (winners,) = found["rival"]["variants"]
    assert winners["variant"] == "winners"
    assert winners["difference"] == pytest.approx(-0.15)
    assert next(v for v in found["variants"] if v["variant"] == "winners")["difference"] == pytest.approx(-0.4)
    assert main(words) == 0
    assert "against 'dense transformer, no heads'" in capsys.readouterr().out


def test_a_report_on_other_seeds_does_not_replace_the_first(done: Path, tmp_path: Path) -> None:
    every = list(rows(done).values())
    for part in (every, [row for row in every if row["seed"] == 1]):
        write_report(family("E"), part, {}, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "E-from-seed-1.md",
        "E-from-seed-1.png",
        "E.md",
        "E.png",
    ]


def test_a_file_that_is_no_results(tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text("[]")
    with pytest.raises(DataError, match="no results file"):
        Results(tmp_path / "r.json")
    with pytest.raises(UsageError, match="no finished run"):
        write_report(family("E"), [], {}, tmp_path)


def test_the_clock_of_the_curve(tmp_path: Path) -> None:
    """Rates are means since the last record; a validation between two records lies on the line between them."""
    records = [
        {"ts": 1.0, "step": 2, "tokens": 200, "split": "train", "perf/tok_per_s": 100.0, "train/loss": 3.0},
        {"ts": 2.0, "step": 3, "tokens": 300, "split": "val", "val/bits_per_byte": 4.0},
        {"ts": 3.0, "step": 6, "tokens": 600, "split": "train", "perf/tok_per_s": 400.0, "train/loss": 2.0},
        {"ts": 4.0, "step": 6, "tokens": 600, "split": "val", "val/bits_per_byte": 3.0},
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    row = measured(tmp_path)
    assert row["curve"] == [[300, 2.25, 4.0], [600, 3.0, 3.0]]
    assert (row["seconds"], row["tok_per_s"], row["bits_per_byte"], row["train_loss"]) == (3.0, 200.0, 3.0, 2.0)
    assert row["load_balance"] is None
    assert comparing.time_to(row, 3.25) == pytest.approx(2.25 + 0.75 * 0.75)
    assert comparing.time_to(row, 5.0) == 2.25
    assert comparing.time_to(row, 2.9) is None


def test_memory_is_that_of_all_processes_of_a_run(tmp_path: Path) -> None:
    """One that goes on with the last step of a run has trained nothing and holds little."""
    record = {"ts": 1.0, "step": 2, "tokens": 200, "split": "train", "perf/tok_per_s": 100.0, "perf/mem_gb": 8.0}
    (tmp_path / "metrics.jsonl").write_text(json.dumps(record) + "\n")
    for last, peak in ((0.3, 8e9 / 2**30), (9.5, 9.5)):
        (tmp_path / "ablation.json").write_text(json.dumps({"peak_gib": last, "device": "NVIDIA H200"}))
        assert measured(tmp_path)["peak_gib"] == pytest.approx(peak, abs=1e-4)
    assert measured(tmp_path)["device"] == "NVIDIA H200"


def test_the_plan_of_a_gpu_session(
    done: Path, base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows of an earlier day count, and a base that several families share counts once."""
    shared = ["--data", load_config(base).run.data, "--preset", base, "--seeds", "2", "--parallel", "1"]
    shared += ["--out", tmp_path, "--results", tmp_path / "new.json", "--go-on-from", done / "results.json"]

    script = Path(__file__).parents[2] / "benchmarks" / "ablations.py"

    def session(*words: str) -> list[str]:
        monkeypatch.setattr(sys, "argv", [str(word) for word in (script, *shared, *words)])
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(script), run_name="__main__")
        assert ended.value.code == 0
        return capsys.readouterr().out.splitlines()

    said = session("--plan", "--families", "C", "H")
    heads = [line for line in said if not line.startswith(" ")]
    assert heads[0].startswith("base: 2 of 2 runs done, 0 left, ")
    assert heads[1].startswith("C: 0 of 4 runs done, 4 left, ")
    assert heads[2].startswith("H: 0 of 10 runs done, 10 left, ")
    assert "    no heads, seed 0" in said
    assert "    base, seed 0" not in said
    said = session("--families", "C", "--minutes", "0.0001")  # the time for none
    assert said[-1].endswith("no time for another run: 4 are left")
    assert (tmp_path / "C.md").exists()
    heads = [line for line in session("--plan", "--families", "C", "--variants", "no heads") if line[0] != " "]
    assert heads[1].startswith("C: 0 of 2 runs done, 2 left, ")
    said = session("--plan", "--families", "rates", "--from", "no heads", "--variants", "both halved")
    assert [line for line in said if line[0] == " "] == [
        f"    {name}, seed {n}" for name in ("base", "both halved") for n in (0, 1)
    ]
    said = session("--plan", "--families", "rates", "--from", "2 heads", "--variants", "base")
    assert said[0].startswith("base: 2 of 2 runs done")  # a variant that is the base itself
    for words, message in (
        (["--from", "no head"], "--from no head: no family has this variant (did you mean 'no heads'?)."),
        (
            ["--families", "C", "--variants", "heads"],
            "none of the families has heads. They have: 1 head, 2 heads, base,",
        ),
        (["--seeds", "0"], "--seeds 0 --first-seed 0: at least one, none below 0."),
        (["--go-on-from", "nowhere.json"], "--go-on-from nowhere.json: no such file."),
        (["--families", "Q"], "Q: unknown family"),
        (["--preset", "hymo_tny"], "did you mean 'hymo_tiny'"),
    ):
        monkeypatch.setattr(sys, "argv", [*map(str, (script, *shared, *words)), "--plan"])
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(script), run_name="__main__")
        assert ended.value.code == 2
        assert message in capsys.readouterr().err


def test_the_gpus_in_sight(monkeypatch: pytest.MonkeyPatch) -> None:
    assert visible_gpus("cpu") == []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert visible_gpus("auto") == ["0", "1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3, GPU-5f")
    assert visible_gpus("cuda") == ["3", "GPU-5f"]


def test_the_guides_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As they stand, but for the time: they begin, save what they have and say what is left."""
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[2] / "docs" / "ablate.md").read_text(encoding="utf-8")
    commands = [line for block in re.findall(r"```sh\n(.*?)```", page, re.DOTALL) for line in block.splitlines()]
    assert len(commands) == 2
    for command in commands:
        hymo, *words = shlex.split(command)
        assert hymo == "hymo"
        assert main([*words, "--minutes", "0.001"]) == 0, command
    assert Path("ablations/hymo_demo/data/dataset.json").exists()


def test_the_guide_lists_every_family() -> None:
    page = (Path(__file__).parents[2] / "docs" / "ablate.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `?(\w+)`? \|", page, re.MULTILINE)[1:] == [*FAMILIES, "custom"]


def test_the_heads_gradient_is_that_of_their_losses(done: Path) -> None:
    """Against plain backward passes over the same batch, from the run's last checkpoint."""
    (folder,) = (done / "runs").glob("wide-s0-*")
    with open_run(run_config(folder)) as trainer:
        found = heads_gradient(trainer)
        loader, model = trainer.loader, trainer.master
        assert loader is not None
        batch = loader.batch_at(0)
        assert np.array_equal(batch["tokens"][:2], loader.batch_at(0, rank=0, world=1, micro=0, n_micro=1)["tokens"])
        window = to_window(batch, 259, "test")
        norms = []
        for weights in ({"main": 1.0}, {"mtp_1": 0.3, "mtp_2": 0.1}):
            model.zero_grad()
            counts, sums = model.target_counts(window), model.loss_sums(window)
            sum(weight * sums[name] / counts[name] for name, weight in weights.items()).backward()
            squares = [
                float((p.grad**2).sum()) for n, p in model.named_parameters() if "mtp" not in n and p.grad is not None
            ]
            norms.append(sum(squares) ** 0.5)
    assert found == pytest.approx(norms[1] / norms[0], rel=1e-4)
    row = rows(done)["wide", 0]
    assert row["heads_gradient"] == pytest.approx(found, rel=1e-3)
