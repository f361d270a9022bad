"""Following a run through its files, whether it is running, has ended or was killed."""

from __future__ import annotations

import json
import math
import os
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from hymo.core.config import HyMoConfig
from hymo.core.load import CONFIG, run_config
from hymo.training.heartbeat import HEARTBEAT
from hymo.training.lock import Holder, holder
from hymo.training.metrics import EVENTS, METRICS, Record, parse_lines

KEPT_LOSSES = 4096
KEPT_EVENTS = 5
LOST_SECONDS = 300
"""Silence after which a run on another machine counts as lost."""
_MARK_BYTES = 20
"""How much of what was read last must still be there for a file to be the same."""
_BEGINS = ("start", "resume", "continue")


class Tail:
    """The records that a growing JSONL file gained since the last look.

    A line counts once its newline is there, so one that is half written is read whole later. A file that was moved away
    is read to its end, then the one that took its name from its start; so is one that was emptied or written anew.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self._rest = b""
        self._mark = b""

    def read(self) -> list[Record]:
        """New whole records, without those that are no JSON object and the line that states the schema."""
        lines: list[bytes] = []
        if self._file is not None:
            lines += self._take(self._file)
        try:
            there = self._path.stat().st_ino
        except OSError:
            return parse_lines(lines)
        if self._file is None or os.fstat(self._file.fileno()).st_ino != there:
            if self._file is not None:
                self._file.close()
            try:
                self._file = self._path.open("rb")
            except FileNotFoundError:
                self._file = None
                return parse_lines(lines)
            self._rest = self._mark = b""
            lines += self._take(self._file)
        return parse_lines(lines)

    def _take(self, file: BinaryIO) -> list[bytes]:
        """What was added to an open file, in whole lines."""
        offset = file.tell()
        file.seek(max(0, offset - len(self._mark)))
        if file.read(len(self._mark)) != self._mark:  # emptied, and perhaps longer again than it was
            file.seek(0)
            self._rest = self._mark = b""
        data = file.read()
        self._mark = (self._mark + data)[-_MARK_BYTES:] if file.tell() else b""
        *lines, self._rest = (self._rest + data).split(b"\n")
        return lines


@dataclass(frozen=True)
class Beat:
    """What the heartbeat file of a rank says."""

    rank: int
    ts: float
    """When it was written, in seconds."""
    step: int
    same_step_s: float
    """For how long the step has been the same."""
    host: str


def heartbeats(folder: Path) -> list[Beat]:
    """The heartbeats of a run's ranks, by rank; files that are not whole are left out."""
    stem, suffix = HEARTBEAT.split(".")
    found = []
    for path in folder.glob(f"{stem}*.{suffix}"):
        number = path.stem.removeprefix(stem).removeprefix("-")
        try:
            said = json.loads(path.read_text(encoding="utf-8"))
            facts = (float(said["ts"]), int(said["step"]), float(said["same_step_s"]), str(said["host"]))
            found.append(Beat(int(number or 0), *facts))
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return sorted(found, key=lambda beat: beat.rank)


class RunFollower:
    """What is known of a run, brought up to date by `poll`.

    Attributes:
        config: the run's configuration.
        train, val: the newest record of each split; `train` keeps older values of names that not every record has.
        losses: (step, training loss) of the past, thinned out so that memory stays bounded.
        events: the newest events.
        ranks: processes that train it; None if the run does not tell.
        verdict: what the run said of itself at training.verdict_step; empty before.
        beats: what each rank's heartbeat file says, by rank.
        status: waiting, running, stopping and stopped (on request), finished, failed, or lost: the process is gone
            without having said that it ends.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config: HyMoConfig = run_config(folder)
        self.train: Record = {}
        self.val: Record = {}
        self.losses: list[tuple[int, float]] = []
        self.events: deque[Record] = deque(maxlen=KEPT_EVENTS)
        self.status = "waiting"
        self.ranks: int | None = None
        self.verdict: Record = {}
        self.beats: list[Beat] = []
        self._began: float | None = None
        self._device_seconds = 0.0
        self._stride, self._seen = 1, 0
        self._newest = (folder / CONFIG).stat().st_mtime
        self._metrics, self._events = Tail(folder / METRICS), Tail(folder / EVENTS)

    def poll(self) -> list[Record]:
        """Read what is new and take it in; return it in order of time. Events have `kind`, metrics `split`."""
        last = holder(self.folder)  # asked first: what a process wrote before it went is read below
        found = [record for record in self._metrics.read() if {"step", "split"} <= record.keys()]
        found += [record for record in self._events.read() if "kind" in record]
        self.beats = [beat for beat in heartbeats(self.folder) if self.ranks is None or beat.rank < self.ranks]
        new = sorted(found, key=lambda record: float(record.get("ts", 0)))
        for record in new:
            if "kind" in record:
                self._take_event(record)
            else:
                self._take_metrics(record)
            self._newest = max(self._newest, float(record.get("ts", 0)))
        if self._is_gone(last) and not self.ended:
            self.status = "lost"
        elif self.status == "lost" and new:
            self.status = "running"  # somebody took it up again
        return new

    @property
    def ended(self) -> bool:
        """Whether nothing more will come unless somebody resumes the run."""
        return self.status in ("finished", "stopped", "failed", "lost")

    @property
    def told(self) -> str:
        """The status in words."""
        return "stopped without ending" if self.status == "lost" else self.status

    @property
    def cure(self) -> str:
        """What happened to a lost run, and what to do about it."""
        return (
            f"{self.folder}: stopped without ending, after step {self.step} of {self.config.total_steps}: no process "
            f"trains there. Go on from its newest checkpoint with `hymo train --resume {self.folder}`."
        )

    @property
    def step(self) -> int:
        """Optimizer steps done, as far as the records tell."""
        return int(self.train.get("step", 0))

    @property
    def seconds_left(self) -> float | None:
        """Time to the last step at the last measured speed, validation and checkpoints left out."""
        speed = self.train.get("perf/tok_per_s")
        if not speed or self.ended:
            return None
        return (self.config.total_steps - self.step) * self.config.training.tokens_per_step / float(speed)

    @property
    def device_hours(self) -> float:
        """Hours of all devices so far, over every start: from its first step to its last record."""
        now = time.time() if self.status in ("running", "stopping") else self._newest
        running = 0.0 if self._began is None else max(0.0, now - self._began) * (self.ranks or 1)
        return (self._device_seconds + running) / 3600

    @property
    def late(self) -> list[tuple[Beat, str]]:
        """Ranks of a running run that are silent or stand still, and what is the matter with each."""
        if self.status not in ("running", "stopping"):
            return []
        hang, found = self.config.training.hang_minutes, []
        for beat in self.beats:
            silent = time.time() - beat.ts
            if silent > LOST_SECONDS:
                found.append((beat, f"silent for {silent / 60:.0f} min"))
            elif hang is not None and beat.same_step_s >= 60 * hang:
                found.append((beat, f"at step {beat.step} for {beat.same_step_s / 60:.0f} min"))
        return found

    def layers(self, prefix: str) -> dict[int, float]:
        """Values of a metric `prefix/layer` by layer."""
        found = {}
        for name, value in self.train.items():
            head, _, layer = name.rpartition("/")
            if head == prefix and layer.isdigit() and value is not None:
                found[int(layer)] = float(value)
        return found

    def _is_gone(self, last: Holder | None) -> bool:
        """Whether the lock says that nobody trains; one taken on another machine is believed after a long silence."""
        if last is None or last.held:
            return False
        return last.here or time.time() - self._newest > LOST_SECONDS

    def _take_metrics(self, record: Record) -> None:
        if record.get("split") == "val":
            self.val = record
            return
        self.train |= record
        loss = record.get("train/loss")
        if loss is None or not math.isfinite(loss):
            return
        if self._seen % self._stride == 0:
            self.losses.append((record["step"], float(loss)))
            if len(self.losses) > KEPT_LOSSES:
                self.losses = self.losses[::2]
                self._stride *= 2
        self._seen += 1

    def _take_event(self, event: Record) -> None:
        self.events.append(event)
        kind = event["kind"]
        if kind == "verdict":
            self.verdict = event
        if kind == "extend":
            self.config = run_config(self.folder)
        if kind in ("resume", "start"):
            step = event.get("step", 0)
            self.losses = [point for point in self.losses if point[0] <= step]
            self.train |= {"step": step, "tokens": event.get("tokens", 0)}
            if self.val.get("step", 0) > step:
                self.val = {}
            if self.verdict.get("step", 0) > step:
                self.verdict = {}
        elif event.get("step", 0) >= self.step and kind in ("checkpoint", "interrupted", "stop"):
            # Not every step has a record, and these tell of steps that are done.
            self.train |= {name: event[name] for name in ("step", "tokens") if name in event}
        if kind in _BEGINS and self._began is not None:  # what an earlier process did ends with its last record
            self._device_seconds += max(0.0, self._newest - self._began) * (self.ranks or 1)
            self._began = None
        if kind in ("start", "continue", "rewind"):
            self._began = float(event.get("ts", 0)) or None
            self.ranks = event["ranks"] if type(event.get("ranks")) is int else None
        if kind in _BEGINS:
            self.status = "running"
        elif kind == "interrupted":
            self.status = "stopping"
        elif kind == "stop":
            self.status = "finished" if event.get("step", 0) >= self.config.total_steps else "stopped"
        elif kind == "failed":
            self.status = "failed"


def plain_line(record: Mapping[str, Any], total_steps: int) -> str:
    """One record as a line of text without control characters."""
    if "kind" in record:
        details = ", ".join(f"{name} {number(value)}" for name, value in record.items() if name not in ("ts", "kind"))
        return printable(f"{record['kind'].replace('_', ' ')}: {details}" if details else record["kind"])
    if record.get("split") == "val":
        wanted = [("val/bits_per_byte", "bits/byte"), ("val/loss", "loss")]
        accepted = [name for name in record if name.startswith("val/acceptance_")]
        wanted += [(name, name.removeprefix("val/").replace("_", " ")) for name in accepted]
        head = f"step {record['step']} validation:"
    else:
        wanted = [("train/loss", "loss"), ("train/grad_norm", "grad norm"), ("train/lr_factor", "lr factor")]
        wanted += [("perf/tok_per_s", "tok/s"), ("perf/mfu", "MFU")]
        head = f"step {record['step']}/{total_steps}:"
    values = [f"{label} {number(record[name])}" for name, label in wanted if name in record]
    return printable(f"{head} {', '.join(values)}")


def number(value: Any) -> str:
    """A value for people: four significant digits, thousands separated; `not finite` for a null."""
    if value is None:
        return "not finite"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return str(value)


def printable(text: str) -> str:
    """Text with whatever could steer a terminal shown as its escape."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
