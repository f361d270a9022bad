"""One run's row: what decides it, what its configuration says, and what its records measured."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from hymo.core.accounting import cache_bytes, count_parameters, flops_per_token, state_bytes
from hymo.core.config import HyMoConfig
from hymo.core.load import config_hash, derive_config
from hymo.training.metrics import read_metrics

Row = dict[str, Any]
FACTS = "ablation.json"
"""File of a run folder with what its process measured of itself."""


def row_key(config: HyMoConfig, data: str) -> str:
    """What a row is merged by: the hash of all that decides the run's result, and the data's fingerprint."""
    return f"{config_hash(config)}-{data[:12]}"


def group_key(base: HyMoConfig, data: str) -> str:
    """What rows share that may be compared: the base without its seed, and the data."""
    return row_key(derive_config(base, training={"seed": 0}), data)


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
