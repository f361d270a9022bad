"""The checks of `benchmarks/kernels.py` over processes, and what a run that goes on keeps."""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from kernel_pool import Check, inside, run_checks

Row = dict[str, Any]


def answer(number: int, error: float, log: str, seconds: float = 0.0) -> Row:
    with open(log, "a") as file:
        file.write(f"+{number}\n")
    time.sleep(seconds)
    with open(log, "a") as file:
        file.write(f"-{number}\n")
    return {"number": number, "rel_err": {"o": error}, "bound": 0.1}


def die(code: int) -> Row:
    os._exit(code)


def fail() -> Row:
    raise ArithmeticError("no sense")


def mixed(log: str) -> list[Check]:
    runs = [partial(answer, i, 0.001 * i, log) for i in range(12)]
    runs[3:5] = [partial(die, 7), partial(answer, 4, float("nan"), log)]
    runs[8:10] = [fail, partial(answer, 9, 0.5, log)]
    return [Check("op", f"case {i}", run, str(i % 3)) for i, run in enumerate(runs)]


def crowded(log: str) -> list[Check]:
    return [Check("op", str(i), partial(answer, i, 0.0, log, 0.3), large=i < 3) for i in range(6)]


def never() -> list[Check]:
    if multiprocessing.parent_process() is not None:
        os._exit(3)
    return [Check("op", "only", fail)]


@pytest.mark.parametrize("jobs", [1, 3])
def test_rows_come_in_order_and_what_went_wrong_is_named(jobs: int, tmp_path: Path) -> None:
    told: list[int] = []
    rows = run_checks(mixed, (str(tmp_path / "log"),), jobs, lambda index, row: told.append(index))
    assert [row["case"] for row in rows] == [f"case {i}" for i in range(12)]
    assert sorted(told) == list(range(12))
    assert [i for i, row in enumerate(rows) if not inside(row)] == [3, 4, 8, 9]
    assert "ended with exit code 7" in rows[3]["failed"]
    assert rows[8]["failed"] == "ArithmeticError: no sense"
    assert [row["number"] for i, row in enumerate(rows) if i not in (3, 8)] == [0, 1, 2, 4, 5, 6, 7, 9, 10, 11]
    assert all("seconds" in row for i, row in enumerate(rows) if i != 3)


def test_large_checks_run_alone_among_small_ones(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert all(map(inside, run_checks(crowded, (str(log),), 3)))
    running: set[str] = set()
    together = []
    for line in log.read_text().split():
        (running.add if line[0] == "+" else running.remove)(line[1:])
        together.append(sorted(running))
    assert max(sum(name in "012" for name in names) for names in together) == 1
    assert max(map(len, together)) > 1


def test_processes_that_never_start_leave_rows_missing(capfd: pytest.CaptureFixture[str]) -> None:
    (row,) = run_checks(never, (), 2)
    assert row["failed"] == "no process was left"
    assert "ended with exit code 3 before its first check" in capfd.readouterr().out


def test_rows_of_a_cut_run_are_kept_with_their_commits(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    from kernels import jobs, key_of, known_rows

    shape = {"B": 4, "T": 4096, "H": 40, "K": 32, "V": 32}
    row = {"op": "gated_linear", "impl": "hymo", "shape": shape, "direction": "fwd", "ms": 0.5}
    rows = [row, row | {"direction": "fwdbwd", "ms": None}, row | {"impl": "fla-chunk_gla", "commit": "1f74ff1"}]
    here = {"device": "GPU", "torch": "2", "triton": "3", "commit": "abcdef0123"}
    path = tmp_path / "rows.json"
    path.write_text(json.dumps({"environment": here, "rows": rows}))
    known = known_rows([path], here | {"commit": "ffff"}, "")
    assert [(key_of(x), x["commit"]) for x in known.values()] == [
        (("gated_linear", "hymo", (4, 4096, 40, 32, 32), "fwd"), "abcdef0123"),
        (("gated_linear", "fla-chunk_gla", (4, 4096, 40, 32, 32), "fwd"), "1f74ff1"),
    ]
    assert [x["impl"] for x in known_rows([path], here, "1f74ff1aaaa").values()] == ["fla-chunk_gla"]
    with pytest.raises(SystemExit, match="other surroundings: triton 3, here 4"):
        known_rows([path], here | {"triton": "4"}, "")
    keys = {key for job in jobs(["gated_linear"], [(4, 4096, 40, 32, 32)], tuning=None) for key in job.row_keys()}
    assert set(known) < keys


def test_every_row_in_the_repository_is_one_that_a_run_would_measure() -> None:
    """So that `--skip-from` knows them, and a renamed row does not stand beside its old one."""
    pytest.importorskip("triton")
    from kernel_recurrence import SHAPES
    from kernels import ALL, jobs, key_of

    table = jobs(ALL, SHAPES, tuning=None)
    keys = [key for job in table for key in job.row_keys()]
    assert len(set(keys)) == len(keys)
    results = (Path(__file__).parents[2] / "benchmarks" / "results").glob("kernels-*.json")
    found = {key_of(row) for path in results for row in json.loads(path.read_text())["rows"]}
    assert found
    assert found <= set(keys)


def test_checks_of_the_table_are_all_there() -> None:
    pytest.importorskip("triton")
    from kernels import ALL, checks

    table = checks(ALL, False)
    assert len(table) == 128
    assert sum(check.large for check in table) == 3


class Tuner:
    """A kernel whose configuration i takes `times[i]` ms, and whose every trial takes a second of `clock`."""

    nargs: dict[str, Any] = {"x": 1}

    def __init__(self, times: list[float], clock: list[float]) -> None:
        self.times, self.clock, self.cache = times, clock, {"key": 0}
        self.seen: list[int] = []

    def _bench(self, x: int, config: int, grid: int) -> list[float]:
        assert (x, grid) == (1, 2)
        self.clock[0] += 1
        self.seen.append(config)
        return [self.times[config]] * 3


@pytest.mark.parametrize(("limit", "tried"), [(100.0, 30), (11.5, 12), (-1.0, 1)])
def test_a_peer_tries_all_its_configurations_or_says_how_many_not(
    limit: float, tried: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton")
    import kernel_tuning

    clock = [0.0]
    monkeypatch.setattr(kernel_tuning.time, "perf_counter", lambda: clock[0])
    tuning = kernel_tuning.Tuning(limit)
    monkeypatch.setattr(tuning, "_configurations", lambda tuner, options: range(len(tuner.times)))
    tuner = Tuner([float("inf"), *[float(30 - i) for i in range(1, 30)]], clock)
    best = tuning._candidates(tuner, {"grid": 2})
    assert tuner.seen == list(range(tried))
    assert best == sorted(range(tried), key=lambda i: tuner.times[i])[:10]
    label = {"kernels": 1, "tried": tried, "untried": 30 - tried, "in_full": 10, "seconds": float(tried)}
    assert tuning.label() == label
    tuning.start()
    assert (tuner.cache, tuning.label()["tried"]) == ({}, 0)


def test_processes_that_compile_ahead_share_all_configurations(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    import kernel_tuning

    shares = []
    for index in range(4):
        tuning = kernel_tuning.Tuning(share=(index, 4))
        monkeypatch.setattr(tuning, "_configurations", lambda tuner, options: range(len(tuner.times)))
        shares.append(tuning._candidates(Tuner([0.0] * 10, [0.0]), {}))
        assert tuning._candidates(Tuner([0.0], [0.0]), {}) == [0]
    assert sorted(i for share in shares for i in share) == list(range(10))
