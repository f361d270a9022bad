"""The results of ablation runs: one JSON file that grows, rows merged by what decides a result."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from hymo.core.accounting import cache_bytes, count_parameters, flops_per_token, state_bytes
from hymo.core.config import HyMoConfig
from hymo.core.errors import DataError
from hymo.core.files import write_text, writing
from hymo.core.load import config_hash, derive_config
from hymo.training.metrics import read_metrics

Row = dict[str, Any]
OTHERS = "others"
"""Key of a file's environment: those of later rows that were measured elsewhere."""
ORIGIN = "origin"
"""Key of a row that was measured in one of the others: its number there, from 1."""
_LOST: Row = {"failed": "its row is gone"}
_PLACE = ("device", "torch", "triton")
"""What makes two environments one."""
FACTS = "ablation.json"
"""File of a run folder with what its process measured of itself."""


def row_key(config: HyMoConfig, data: str) -> str:
    """What a row is merged by: the hash of all that decides the run's result, and the data's fingerprint."""
    return f"{config_hash(config)}-{data[:12]}"


def group_key(base: HyMoConfig, data: str) -> str:
    """What rows share that may be compared: the base without its seed, and the data."""
    return row_key(derive_config(base, training={"seed": 0}), data)


def environments(environment: Mapping[str, Any], rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Where rows were measured: those of a file's environments that they name, in the order of the file."""
    every = [dict(environment), *environment.get(OTHERS, [])]
    return [every[n] for n in sorted({row.get(ORIGIN, 0) for row in rows}) if n < len(every)]


class Results:
    """A results file, which several processes may fill at once.

    Args:
        path: where it lies, or will lie.

    Raises:
        DataError: what lies there is no such file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.environment: dict[str, Any] = {}
        self.rows: dict[str, Row] = {}
        self._read()

    def _read(self) -> None:
        """Take in what lies there; a run that ended well here stays."""
        if not self.path.exists():
            return
        try:
            there = json.loads(self.path.read_text(encoding="utf-8"))
            environment, rows = dict(there["environment"]), {row["key"]: row for row in there["rows"]}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"{self.path}: is no results file of ablations ({type(error).__name__}: {error}). Move it, or "
                "choose another file with --results."
            ) from None
        kept = {key: row for key, row in self.rows.items() if rows.get(key, _LOST).get("failed")}
        kept = {key: row for key, row in kept.items() if not row.get("failed")}
        self.environment, self.rows = environment, rows | kept

    def finished(self, key: str) -> Row | None:
        """The row of a run that ended well, or None."""
        row = self.rows.get(key)
        return None if row is None or row.get("failed") else row

    def claim(self) -> None:
        """Make sure, before a run begins, that its row can be written.

        Raises:
            UsageError, StorageError: they cannot.
        """
        with self._alone():
            self._read()
            self._write()

    def add(self, row: Row, environment: Mapping[str, Any]) -> None:
        """Put a row in the place of the one with its key, beside what others have written there meanwhile."""
        with self._alone():
            self._read()
            self.rows[row["key"]] = {**row, **self._origin(environment)}
            self._write()

    def _origin(self, environment: Mapping[str, Any]) -> Row:
        """What a row says of where it was measured: nothing for the file's first environment, else a number."""
        first = {k: v for k, v in self.environment.items() if k != OTHERS}
        others: list[dict[str, Any]] = list(self.environment.get(OTHERS, []))
        every = [first, *others]
        same = (n for n, each in enumerate(every) if not each or all(each.get(k) == environment.get(k) for k in _PLACE))
        number = next(same, len(every))
        if number == len(every):
            every.append({})
        every[number] = {**every[number], **environment}
        self.environment = every[0] | ({OTHERS: every[1:]} if every[1:] else {})
        return {ORIGIN: number} if number else {}

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the file's folder, which needs no lock file to be left there."""
        with writing(self.path, "Choose another place with --results, or change its permissions."):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            with suppress(OSError):  # some shared file systems have no locks
                fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            os.close(folder)

    def _write(self) -> None:
        rows = ",\n  ".join(json.dumps(each, allow_nan=False) for each in self.rows.values())
        head = json.dumps(self.environment, indent=1).replace("\n", "\n ")
        write_text(self.path, f'{{\n "environment": {head},\n "rows": [\n  {rows}\n ]\n}}\n')


def describe(config: HyMoConfig) -> Row:
    """What a row says of its run before it has run."""
    model, training = config.model, config.training
    count = count_parameters(model)
    return {
        "seed": training.seed,
        "width": model.dim,
        "steps": config.total_steps,
        "tokens": config.total_steps * training.tokens_per_step,
        "stored_parameters": count.stored,
        "active_parameters": count.active,
        "embedding_parameters": count.parts["embedding"],
        "flops_per_token": flops_per_token(model, training.seq_len, mtp=model.mtp_depth > 0),
        "context": model.max_seq_len,
        "cache_bytes": cache_bytes(model, model.max_seq_len),
        "state_bytes": state_bytes(model),
    }


def measured(folder: Path) -> Row:
    """What a finished run's records say: quality, speed, balance, curve, and what its last process said of itself.

    The clock of the curve counts training steps alone; validation, checkpoints and the start are left out. The peak of
    memory is that of all processes which trained it, where records tell it (on CUDA): the last may only have ended it.
    """
    records = read_metrics(folder)
    seconds, tokens = 0.0, 0
    ends: list[tuple[int, float]] = [(0, 0.0)]
    last_train: Row = {}
    peak = 0.0
    for record in records:
        peak = max(peak, record.get("perf/mem_gb") or 0.0)
        if record.get("split") == "train" and record.get("perf/tok_per_s"):
            seconds += max(0, record["tokens"] - tokens) / record["perf/tok_per_s"]
            tokens = record["tokens"]
            ends.append((tokens, seconds))
            last_train = record
    validations = [record for record in records if record.get("split") == "val"]
    final = validations[-1] if validations else {}
    ended, clocks = [end for end, _ in ends], [at for _, at in ends]
    clock = np.interp([v["tokens"] for v in validations], ended, clocks) if validations else np.empty(0)
    facts: Row = {}
    with suppress(OSError, ValueError):
        facts = json.loads((folder / FACTS).read_text(encoding="utf-8"))
    return {
        "bits_per_byte": final.get("val/bits_per_byte"),
        "heldout_loss": final.get("val/loss"),
        "heldout_bytes": final.get("val/bytes"),
        "train_loss": last_train.get("train/loss"),
        "seconds": round(seconds, 3),
        "tok_per_s": round(tokens / seconds, 1) if seconds else None,
        "load_balance": _balance(last_train),
        "curve": [
            [v["tokens"], round(float(at), 3), v.get("val/bits_per_byte")]
            for v, at in zip(validations, clock, strict=True)
        ],
        **facts,
        "peak_gib": max(facts.get("peak_gib", 0.0), round(peak * 1e9 / 2**30, 4)) or None,
    }


def _balance(record: Mapping[str, Any]) -> dict[str, float] | None:
    """Mean over mixtures of the load's variation and of its worst excess in the last record; None without any."""
    found = {}
    for name in ("load_cv", "max_violation"):
        values = [v for k, v in record.items() if k.startswith(f"moe/{name}/") and v is not None]
        if values:
            found[name] = sum(values) / len(values)
    return found or None
