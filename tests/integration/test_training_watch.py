"""`hymo watch`: on a terminal and in a pipe, on live, finished and broken runs."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from hymo.cli import main
from hymo.core.config import HyMoConfig
from hymo.core.errors import UsageError
from hymo.core.load import dump_config
from hymo.training.dashboard import duration, plain_summary, sparkline
from hymo.training.follow import KEPT_LOSSES, RunFollower, Tail, plain_line
from hymo.training.lock import LOCK, Holder, claimed, holder
from hymo.training.metrics import JsonlSink, read_jsonl, read_metrics
from hymo.training.plot import curve
from hymo.training.run import run_folder
from training_helpers import child

WATCH = [sys.executable, "-m", "hymo", "watch"]
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07")


class Terminal:
    """A command on a pseudo-terminal of 110 x 45 characters."""

    def __init__(self, words: list[str]) -> None:
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 45, 110, 0, 0))
        environment = {**os.environ, "TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8"}
        self.process = subprocess.Popen(words, stdin=slave, stdout=slave, stderr=slave, env=environment)
        os.close(slave)
        self.raw = ""

    def read(self, seconds: float = 0.2) -> bool:
        """Take in what is there; False once the command has gone and everything is read."""
        if not select.select([self.master], [], [], seconds)[0]:
            return True
        try:
            data = os.read(self.master, 65536)
        except OSError:  # Linux: the other side is closed
            return False
        self.raw += data.decode("utf-8", "replace")
        return bool(data)

    @property
    def frame(self) -> str:
        """The newest frame as text: from the last upper edge on."""
        text = CONTROL.sub("", self.raw).replace("\r", "")
        return text[text.rfind("╭") :]

    def wait_for(self, *parts: str) -> str:
        deadline = time.monotonic() + 60
        while not ("╰" in self.frame and all(part in self.frame for part in parts)):
            assert self.read(), f"ended without {parts}: {self.raw}"
            assert time.monotonic() < deadline, f"no {parts} in {self.frame}"
        return self.frame

    def finish(self) -> int:
        while self.read():
            pass
        os.close(self.master)
        return self.process.wait(60)


@pytest.fixture
def live(finished: Path, tmp_path: Path) -> Iterator[tuple[Path, JsonlSink]]:
    """A run that has begun but has nothing to show, and the sink that its trainer would write to."""
    folder = tmp_path / "live"
    with claimed(folder):
        shutil.copy(finished / "config.yaml", folder)
        yield folder, JsonlSink(folder)


def record(step: int, **more: Any) -> dict[str, Any]:
    return {"step": step, "tokens": 256 * step, "split": "train", "train/loss": 6.0 - step / 4, **more}


def test_a_finished_run_on_a_terminal(finished: Path) -> None:
    terminal = Terminal([*WATCH, str(finished)])
    assert terminal.finish() == 0
    train = [r for r in read_metrics(finished) if r["split"] == "train"]
    val = [r for r in read_metrics(finished) if r["split"] == "val"]
    frame = terminal.frame
    assert "step 12 of 12, 3,072 tokens" in frame
    assert "finished" in frame
    for name, value in (
        ("loss", f"{train[-1]['train/loss']:.4g}"),
        ("MTP loss 2", f"{train[-1]['train/mtp_2']:.4g}"),
        ("val bits/byte", f"{val[-1]['val/bits_per_byte']:.4f} (step 12)"),
        ("drafts agreeing", f"{val[-1]['val/acceptance_1']:.0%} / {val[-1]['val/acceptance_2']:.0%}"),
        ("grad norm", f"{train[-1]['train/grad_norm']:.4g}"),
        ("lr factor", "0.05"),
        ("tok/s", f"{train[-1]['perf/tok_per_s']:,.0f}"),
        ("|o| max", f"{max(v for k, v in train[-1].items() if k.startswith('gdn/o_absmax/')):.4g} in layer"),
    ):
        assert re.search(re.escape(name) + r"\s+" + re.escape(value), frame), (name, value, frame)
    for name in ("expert load CV", "router bias max", "time constants", "stop: step 12"):
        assert name in frame
    assert re.search(r"loss [\d.]+ → [\d.]+ [▁▂▃▄▅▆▇█]{12} ", frame)
    assert "ETA" not in frame
    assert terminal.raw.rfind("\x1b[?25h") > terminal.raw.rfind("\x1b[?25l") >= 0  # the cursor is back


def test_a_live_run_on_a_terminal_until_it_ends(live: tuple[Path, JsonlSink]) -> None:
    folder, sink = live
    terminal = Terminal([*WATCH, str(folder), "--interval", "0.05"])
    terminal.wait_for("waiting", "step 0 of 12")
    sink.on_event("start", {"step": 0})
    sink.on_metrics(record(1, **{"perf/tok_per_s": 1408.0, "moe/load_cv/0": 0.5, "moe/load_cv/2": 1.5}))
    frame = terminal.wait_for("running", "step 1 of 12")
    assert re.search(r"ETA\s+2 s", frame)  # 11 steps of 256 tokens at 1,408 a second
    assert re.search(r"expert load CV\s+mean 1, 1.5 in layer 2", frame)
    sink.on_metrics(record(2))
    sink.on_event("skip", {"step": 2, "tensor": "layers.0.wo"})
    terminal.wait_for("step 2 of 12", "skip: step 2, tensor layers.0.wo")
    sink.on_metrics({**record(3), "train/loss": None})
    terminal.wait_for("not finite")
    sink.on_event("stop", {"step": 12, "tokens": 3072})
    assert terminal.finish() == 0
    assert "finished" in terminal.frame


def test_ctrl_c_leaves_the_terminal_as_it_was(live: tuple[Path, JsonlSink]) -> None:
    folder, sink = live
    sink.on_event("start", {"step": 0})
    terminal = Terminal([*WATCH, str(folder), "--interval", "0.05"])
    terminal.wait_for("running")
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.finish() == 130
    assert "Traceback" not in terminal.raw
    assert terminal.raw.rfind("\x1b[?25h") > terminal.raw.rfind("\x1b[?25l") >= 0


def test_once_on_a_terminal_does_not_wait(live: tuple[Path, JsonlSink]) -> None:
    terminal = Terminal([*WATCH, str(live[0]), "--once"])
    assert terminal.finish() == 0
    assert "waiting" in terminal.frame


def test_a_live_run_in_a_pipe(live: tuple[Path, JsonlSink]) -> None:
    folder, sink = live
    words = [*WATCH, str(folder), "--interval", "0.05"]
    with child(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        sink.on_event("start", {"step": 0})
        assert process.stdout.readline() == "start: step 0\n"
        sink.on_metrics(record(1))
        assert process.stdout.readline() == "step 1/12: loss 5.75\n"
        line = json.dumps({"ts": time.time(), **record(2)})
        with (folder / "metrics.jsonl").open("a") as file:
            file.write(line[:30])
            file.flush()
            time.sleep(0.15)
            file.write(line[30:] + "\n")
        assert process.stdout.readline() == "step 2/12: loss 5.5\n"
        sink.on_event("odd", {"text": "\x1b[2Jgone\n"})
        assert process.stdout.readline() == "odd: text \\x1b[2Jgone\\n\n"
        sink.on_event("failed", {"error": "TrainingError: no"})
        assert process.stdout.read() == "failed: error TrainingError: no\n"
        assert process.stderr.read() == ""
    assert process.returncode == 1


def test_a_finished_run_in_a_pipe(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", str(finished)]) == 0
    shown = capsys.readouterr().out
    assert all(c == "\n" or c.isprintable() for c in shown)
    lines = shown.splitlines()
    assert len(lines) == len(read_metrics(finished)) + len(read_jsonl(finished / "events.jsonl"))
    (val,) = [r for r in read_metrics(finished) if r["split"] == "val" and r["step"] == 6]
    assert any(
        line.startswith(f"step 6 validation: bits/byte {val['val/bits_per_byte']:.4g}, loss {val['val/loss']:.4g}")
        for line in lines
    )
    assert lines[-1] == "stop: step 12, tokens 3072"
    assert main(["watch", str(finished), "--once"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("small: finished, step 12 of 12, 3,072 tokens\n")
    assert all(c == "\n" or c.isprintable() for c in shown)


def test_a_resume_takes_back_what_came_after_it(live: tuple[Path, JsonlSink]) -> None:
    folder, sink = live
    run = RunFollower(folder)
    assert (run.poll(), run.status) == ([], "waiting")
    sink.on_event("start", {"step": 0})
    for step in range(1, 9):
        sink.on_metrics(record(step))
    sink.on_metrics({"step": 8, "tokens": 2048, "split": "val", "val/loss": 3.0})
    sink.on_event("interrupted", {"step": 9, "signal": 15})
    run.poll()
    assert (run.status, run.ended, run.step) == ("stopping", False, 9)  # though step 9 has no record of numbers
    sink.on_event("checkpoint_failed", {"step": 99})
    sink.on_event("stop", {"step": 9, "tokens": 2304})
    run.poll()
    assert (run.status, run.ended, run.step, run.val["step"]) == ("stopped", True, 9, 8)
    assert run.train["tokens"] == 2304
    sink.on_event("resume", {"step": 5, "tokens": 1280})
    sink.on_event("continue", {"step": 5})
    assert [event["kind"] for event in run.poll()] == ["resume", "continue"]
    assert (run.status, run.step, run.val) == ("running", 5, {})
    assert [step for step, _ in run.losses] == [1, 2, 3, 4, 5]
    sink.on_metrics(record(6))
    run.poll()
    assert run.losses[-1] == (6, 4.5)


DIE_AFTER_STEP_2 = """
import os, signal, sys
from pathlib import Path
from hymo.core.load import load_config
from hymo.training.run import open_run
with open_run(load_config(sys.argv[1])) as trainer:
    original = trainer._between_steps
    def between(stop):
        original(stop)
        if trainer.step == 2:
            os.kill(os.getpid(), signal.SIGKILL)
    trainer._between_steps = between
    trainer.train()
"""


@pytest.fixture
def killed(small: HyMoConfig) -> Path:
    """The folder of a run whose process was killed -9 after step 2."""
    path = Path(small.run.output_dir) / "killed.yaml"
    path.write_text(dump_config(small))
    done = subprocess.run([sys.executable, "-c", DIE_AFTER_STEP_2, str(path)], timeout=120, check=False)
    assert done.returncode == -signal.SIGKILL
    return run_folder(small)


def test_a_killed_run_is_told_from_a_live_one(killed: Path, capfd: pytest.CaptureFixture[str]) -> None:
    cure = (
        f"error: {killed}: stopped without ending, after step 2 of 12: no process trains there. Go on from its newest "
        f"checkpoint with `hymo train --resume {killed}`.\n"
    )
    assert main(["watch", str(killed)]) == 1
    shown = capfd.readouterr()
    assert shown.out.splitlines()[-1].startswith("step 2/12: loss ")
    assert shown.err == cure
    assert main(["watch", str(killed), "--once"]) == 1
    shown = capfd.readouterr()
    assert shown.out.startswith("small: stopped without ending, step 2 of 12, 512 tokens\n")
    assert shown.err == cure

    terminal = Terminal([*WATCH, str(killed)])
    assert terminal.finish() == 1
    assert "stopped without ending" in terminal.frame
    assert f"hymo train --resume {killed}" in CONTROL.sub("", terminal.raw).replace("\r\n", "")

    with claimed(killed):  # somebody took it up again
        run = RunFollower(killed)
        run.poll()
        assert (run.status, run.ended) == ("running", False)
    run.poll()
    assert (run.status, run.ended) == ("lost", True)
    with claimed(killed):
        JsonlSink(killed).on_event("resume", {"step": 0})
        run.poll()
        assert run.status == "running"


def test_a_run_on_another_machine_is_lost_after_a_long_silence(live: tuple[Path, JsonlSink]) -> None:
    folder, sink = live
    sink.on_event("start", {"step": 0})
    (folder / LOCK).unlink()
    run = RunFollower(folder)
    run.poll()
    assert (holder(folder), run.status) == (None, "running")  # nobody knows
    (folder / LOCK).write_text(json.dumps({"pid": 1, "host": "another"}))
    run = RunFollower(folder)
    run.poll()
    assert run.status == "running"
    os.utime(folder / "config.yaml", (0, 0))
    (folder / "events.jsonl").write_text(json.dumps({"ts": time.time() - 301, "kind": "start", "step": 0}) + "\n")
    run = RunFollower(folder)
    run.poll()
    assert run.status == "lost"


def test_looking_at_a_lock_keeps_nobody_out(live: tuple[Path, JsonlSink], tmp_path: Path) -> None:
    assert holder(live[0]) == Holder(True, os.getpid())
    assert holder(tmp_path) is None
    folder = tmp_path / "free"
    with claimed(folder):
        pass
    assert holder(folder) == Holder(False, os.getpid())
    with (folder / LOCK).open() as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        threading.Timer(0.1, lambda: fcntl.flock(looking, fcntl.LOCK_UN)).start()
        with claimed(folder):
            assert holder(folder) == Holder(True, os.getpid())


def test_tail_reads_each_byte_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.jsonl"
    tail = Tail(path)
    assert tail.read() == []
    path.write_bytes(b'{"schema": 1}\n{"a": 1}\nnot json\n[2]\n{"text": "\xc3')
    assert tail.read() == [{"a": 1}]
    with path.open("ab") as file:
        file.write(b'\xa9"')
        file.flush()
        assert tail.read() == []
        file.write(b'}\n{"a": 2}\n')
    path.write_bytes(b"x" * (path.stat().st_size - 40) + path.read_bytes()[-40:])  # what is read is not looked at again
    assert tail.read() == [{"text": "é"}, {"a": 2}]
    assert tail.read() == []
    path.write_bytes(b'{"a": 3}\n')  # made anew
    assert tail.read() == [{"a": 3}]


def test_memory_of_losses_is_bounded(live: tuple[Path, JsonlSink]) -> None:
    folder, _ = live
    steps = 3 * KEPT_LOSSES + 7
    with (folder / "metrics.jsonl").open("a") as file:
        file.writelines(json.dumps({"ts": i, **record(i)}) + "\n" for i in range(1, steps + 1))
    run = RunFollower(folder)
    run.poll()
    kept = [step for step, _ in run.losses]
    assert KEPT_LOSSES // 2 <= len(kept) <= KEPT_LOSSES
    gaps = {b - a for a, b in pairwise(kept)}
    assert (kept[0], gaps) == (1, {4})


def test_a_line_cut_short_by_a_crash_does_not_swallow_the_next(tmp_path: Path) -> None:
    JsonlSink(tmp_path).on_metrics({"step": 1})
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"ts": 1, "step": 2, "tok')
    JsonlSink(tmp_path).on_metrics({"step": 3})
    assert [r["step"] for r in read_jsonl(tmp_path / "metrics.jsonl")] == [1, 3]


ODD: tuple[Any, ...] = (None, "x", [], {}, True, 1.5, 1e308, "\x1b[2J")


def test_readers_survive_any_field_of_any_type(finished: Path, tmp_path: Path) -> None:
    """One field of one record at a time, replaced or left out: records are skipped, never tracebacks."""
    folder = Path(shutil.copytree(finished, tmp_path / "odd"))
    for name in ("metrics.jsonl", "events.jsonl"):
        lines = (finished / name).read_text().splitlines()
        kinds = {json.loads(line).get("split") or json.loads(line).get("kind"): i for i, line in enumerate(lines)}
        for index in kinds.values():
            good = json.loads(lines[index])
            for key in good:
                for value in (*ODD, ...):
                    record = {k: v for k, v in good.items() if k != key} | ({} if value is ... else {key: value})
                    changed = [*lines[:index], json.dumps(record), *lines[index + 1 :]]
                    (folder / name).write_text("\n".join(changed) + "\n")
                    run = RunFollower(folder)
                    for each in run.poll():
                        assert plain_line(each, 12).isprintable()
                    assert all(c == "\n" or c.isprintable() for c in plain_summary(run))
                    records = read_metrics(folder)
                    assert len(records) >= 13 or name == "events.jsonl"
                    curve(records, "train/loss")
        (folder / name).write_text("\n".join(lines) + "\n")


def test_small_parts() -> None:
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7], 8) == "▁▂▃▄▅▆▇█"
    assert sparkline([0.0, 2.0, 7.0, 7.0], 2) == "▁█"
    assert (sparkline([3.0, 3.0], 9), sparkline([], 9)) == ("▁▁", "")
    assert [duration(s) for s in (0.2, 59, 60, 3725, 90000)] == ["1 s", "59 s", "1 min 00 s", "1 h 02 min", "1 d 01 h"]


def test_what_is_wrong_is_said(finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageError, match=r"config\.yaml: not found"):
        RunFollower(tmp_path)
    assert main(["watch", str(finished), "--interval", "0"]) == 2
    assert "--interval" in capsys.readouterr().err


def test_reading_a_run_loads_no_torch(finished: Path) -> None:
    code = (
        f"import sys; from hymo.cli import main; main(['watch', {str(finished)!r}]); sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=120, check=False)
    assert done.returncode == 0
