"""`hymo watch` on a run of days: rotated logs, resumes, several ranks, what it cost."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from test_training_watch import Terminal, record

from hymo.cli import main
from hymo.training.dashboard import facts
from hymo.training.follow import RunFollower, Tail
from hymo.training.lock import claimed
from hymo.training.metrics import JsonlSink

WATCH = [sys.executable, "-m", "hymo", "watch"]


@pytest.fixture
def live(finished: Path, tmp_path: Path) -> Iterator[tuple[Path, JsonlSink]]:
    """A run of two ranks that has begun, and the sink of its trainer."""
    folder = tmp_path / "live"
    with claimed(folder):
        shutil.copy(finished / "config.yaml", folder)
        sink = JsonlSink(folder)
        sink.on_event("start", {"step": 0, "device": "cpu", "ranks": 2})
        yield folder, sink


def beat(folder: Path, rank: int, step: int, ago: float = 0.0, same: float = 1.0, host: str = "one") -> None:
    path = folder / ("heartbeat.json" if rank == 0 else f"heartbeat-{rank}.json")
    said = {"ts": time.time() - ago, "pid": 1, "host": host, "step": step, "same_step_s": same}
    path.write_text(json.dumps(said))


class Tmux:
    """A command in a real terminal of 150 x 45 characters, driven by keys and read as a person sees it."""

    def __init__(self, words: list[str], folder: Path, size: tuple[int, int] = (150, 45)) -> None:
        self.words = ["tmux", "-S", str(folder / "tmux"), "-f", "/dev/null"]
        done = folder / "code"
        command = " ".join(f"'{word}'" for word in words)
        self.code = done
        script = f"{command}; echo $? > '{done}'; sleep 60"
        environment = {**os.environ, "LC_ALL": "C.UTF-8"}
        window = ["-x", str(size[0]), "-y", str(size[1])]
        subprocess.run([*self.words, "new-session", "-d", *window, script], env=environment, check=True)

    @property
    def screen(self) -> str:
        shown = subprocess.run([*self.words, "capture-pane", "-p"], capture_output=True, text=True, check=False)
        return shown.stdout

    def wait_for(self, *parts: str) -> str:
        until = time.monotonic() + 30
        while not all(part in self.screen for part in parts):
            assert time.monotonic() < until, f"no {parts} in\n{self.screen}"
            time.sleep(0.03)
        return self.screen

    def finish(self, key: str | None = None) -> int:
        if key is not None:
            subprocess.run([*self.words, "send-keys", key], check=True)
        until = time.monotonic() + 30
        while not (self.code.exists() and self.code.read_text().strip()):
            assert time.monotonic() < until, self.screen
            time.sleep(0.03)
        return int(self.code.read_text())

    def end(self) -> None:
        subprocess.run([*self.words, "kill-server"], check=False, capture_output=True)


def rotated(folder: Path) -> None:
    """Move both files away, as logrotate does."""
    for name in ("metrics.jsonl", "events.jsonl"):
        (folder / name).rename(folder / f"{name}.1")


def test_a_long_run_in_a_terminal(live: tuple[Path, JsonlSink], tmp_path: Path) -> None:
    """Driven and read through tmux (a pseudo-terminal where it is not installed): rotation, resume, a silent rank."""
    folder, sink = live
    words = [*WATCH, str(folder), "--interval", "0.05", "--price", "36000"]
    terminal: Any = Tmux(words, tmp_path) if shutil.which("tmux") else Terminal(words)
    try:
        beat(folder, 0, 3)
        beat(folder, 1, 3, host="two")
        sink.on_metrics(record(3, **{"perf/tok_per_s": 128.0, "perf/mfu": 0.412, "moe/load_cv/0": 0.25}))
        sink.on_metrics({"step": 3, "tokens": 768, "split": "val", "val/bits_per_byte": 2.5, "val/acceptance_1": 0.61})
        shown = terminal.wait_for("step 3 of 12", "2 on 2 machines", "ETA", "cost so far")
        for text in ("41.2%", "18 s", "mean 0.25", "61%", "2.5000 (step 3)"):  # MFU, ETA, load, drafts, validation
            assert text in shown, (text, shown)
        rotated(folder)
        sink.on_metrics(record(4))
        terminal.wait_for("step 4 of 12")
        beat(folder, 1, 4, ago=400, host="two")
        terminal.wait_for("(two) silent for 7")
        beat(folder, 1, 4, host="two")
        sink.on_event("resume", {"step": 2, "tokens": 512, "path": "step-00000002"})
        sink.on_event("continue", {"step": 2, "device": "cpu", "ranks": 2})
        terminal.wait_for("step 2 of 12")
        sink.on_metrics(record(3))
        terminal.wait_for("step 3 of 12")
        if isinstance(terminal, Tmux):
            assert terminal.finish("C-c") == 130
            assert "Traceback" not in terminal.screen
    finally:
        if isinstance(terminal, Tmux):
            terminal.end()
        else:
            terminal.process.kill()


@pytest.mark.parametrize("size", [(110, 45), (60, 12)])
def test_a_finished_run_in_a_terminal(finished: Path, tmp_path: Path, size: tuple[int, int]) -> None:
    words = [*WATCH, str(finished)]
    if not shutil.which("tmux"):
        plain = Terminal(words)
        assert plain.finish() == 0
        assert "finished" in plain.frame
        return
    terminal = Tmux(words, tmp_path, size)
    try:
        assert terminal.finish() == 0
        if size[1] > 40:
            for text in ("step 12 of 12, 3,072 tokens", "finished", "expert load CV", "drafts agreeing"):
                assert text in terminal.screen
        assert max(map(len, terminal.screen.splitlines())) <= size[0]
    finally:
        terminal.end()


def emptied(path: Path) -> None:
    """As logrotate's copytruncate does, then longer again than it was before anybody looked."""
    content = path.read_bytes()
    path.with_suffix(".1").write_bytes(content)
    os.truncate(path, 0)
    with path.open("ab") as file:
        file.write(b'{"a": "' + b"x" * len(content) + b'"}\n')


def moved(path: Path) -> None:
    """Moved away with a last line that nobody has seen yet; another file takes the name."""
    with path.open("ab") as file:
        file.write(b'": 0}\n{"last": 1}\n')
    path.rename(path.with_suffix(".1"))
    path.write_bytes(b'{"a": "' + b"x" * 100 + b'"}\n')


@pytest.mark.parametrize("rotate", [emptied, moved])
def test_rotation_loses_no_line(rotate: Callable[[Path], None], tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"first": 1}\n{"half')
    tail = Tail(path)
    assert tail.read() == [{"first": 1}]
    rotate(path)
    found = tail.read()
    assert [next(iter(each)) for each in found] == (["a"] if rotate is emptied else ["half", "last", "a"]), found
    with path.open("ab") as file:
        file.write(b'{"b": 2}\n')
    assert tail.read() == [{"b": 2}]


def test_an_emptied_file_that_is_short_at_first_is_read_once(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(12 * '{"a": 1}\n')
    tail = Tail(path)
    assert len(tail.read()) == 12
    path.write_text('{"b": 1}\n')
    assert tail.read() == [{"b": 1}]
    with path.open("a") as file:
        file.write('{"c": 1}\n')
    assert tail.read() == [{"c": 1}]


def test_the_trainers_sink_begins_a_moved_file_anew(tmp_path: Path) -> None:
    sink, tail = JsonlSink(tmp_path), Tail(tmp_path / "metrics.jsonl")
    sink.on_metrics({"step": 1})
    assert [each["step"] for each in tail.read()] == [1]
    (tmp_path / "metrics.jsonl").rename(tmp_path / "metrics.jsonl.1")
    sink.on_metrics({"step": 2})
    sink.on_metrics({"step": 3})
    assert [each["step"] for each in tail.read()] == [2, 3]
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert json.loads(lines[0]) == {"schema": 1}
    assert [json.loads(line)["step"] for line in lines[1:]] == [2, 3]


def test_device_hours_are_those_of_every_start(live: tuple[Path, JsonlSink]) -> None:
    folder, _ = live
    events: list[dict[str, Any]] = [
        {"ts": 1000, "kind": "start", "step": 0, "ranks": 4},  # 30 minutes on 4
        {"ts": 2800, "kind": "checkpoint", "step": 5},
        {"ts": 90000, "kind": "resume", "step": 5},  # a day lost in a queue costs nothing
        {"ts": 90000, "kind": "continue", "step": 5, "ranks": 2},  # 15 minutes on 2
        {"ts": 90900, "kind": "stop", "step": 12, "tokens": 3072},
    ]
    (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    os.utime(folder / "config.yaml", (0, 0))
    run = RunFollower(folder)
    run.poll()
    assert run.device_hours == pytest.approx(4 * 0.5 + 2 * 0.25)
    assert dict(facts(run, price=3.0))["cost so far"] == "7.50 (2.50 device-hours)"
    assert "cost so far" not in dict(facts(run))


def test_which_rank_is_late(live: tuple[Path, JsonlSink]) -> None:
    folder, sink = live
    beat(folder, 0, 7, same=1900)
    beat(folder, 2, 7)  # of an earlier start with more ranks
    run = RunFollower(folder)
    run.poll()
    run.poll()  # the number of ranks is known by now
    assert dict(facts(run))["ranks"] == "2 on 1 machine, rank 0 (one) at step 7 for 32 min, rank 1 without heartbeat"
    (folder / "heartbeat-1.json").write_text("{")
    run.poll()
    assert [b.rank for b in run.beats] == [0]
    sink.on_event("stop", {"step": 12, "tokens": 3072})
    run.poll()
    assert run.late == []  # nobody is late for a run that has ended


def test_piped_with_a_price(live: tuple[Path, JsonlSink], capsys: pytest.CaptureFixture[str]) -> None:
    folder, sink = live
    beat(folder, 0, 1)
    beat(folder, 1, 1)
    sink.on_metrics(record(1, **{"perf/tok_per_s": 256.0, "perf/mfu": 0.5}))
    assert main(["watch", str(folder), "--once", "--price", "2"]) == 0
    shown = capsys.readouterr().out
    for text in (
        "  MFU: 50.0%\n",
        "  ETA: 11 s\n",
        "  ranks: 2 on 1 machine\n",
        "  cost so far: 0.00 (0.00 device-hours)",
    ):
        assert text in shown
    sink.on_event("stop", {"step": 12, "tokens": 3072})
    assert main(["watch", str(folder)]) == 0
    assert "step 1/12: loss 5.75, tok/s 256, MFU 0.5\n" in capsys.readouterr().out
    assert main(["watch", str(folder), "--price", "-1"]) == 2
