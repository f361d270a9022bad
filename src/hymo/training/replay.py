"""Rebuilding what a step was trained on, from the configuration, the data and the step alone.

Steps are counted as in metrics.jsonl and in the names of checkpoints: step N is the one after which the counter reads
N, so it starts from the weights of checkpoint N - 1.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from hymo.core.config import HyMoConfig
from hymo.core.errors import CheckpointError, UsageError
from hymo.core.load import CHECKPOINTS, run_config
from hymo.data import Tokenizer, open_split, tokenizer_of_run
from hymo.data.loader import Batch, Span, batch_digest
from hymo.data.of_run import data_of_run
from hymo.kernels.cross_entropy import IGNORE_INDEX
from hymo.models.checkpoint import list_checkpoints, load_model, step_of, verify
from hymo.models.windows import as_window
from hymo.training.metrics import EVENTS, read_jsonl, read_metrics
from hymo.training.run import training_loader
from hymo.training.spikes import batch_of


@dataclass(frozen=True)
class Piece:
    """A piece of a document within a sample."""

    span: Span
    text: str
    """Its tokens as text; specials add nothing, bytes that are not UTF-8 become U+FFFD."""


@dataclass(frozen=True)
class Sample:
    """One row of a micro-batch."""

    micro: int
    row: int
    epoch: int
    sample: int
    """Place in the epoch's order."""
    tokens: NDArray[np.int64]
    """(T + 1,) ids."""
    pieces: list[Piece]


@dataclass(frozen=True)
class Replay:
    """The batch of one optimizer step."""

    step: int
    config: HyMoConfig
    hash: str
    """Over all micro-batches, as the trainer records it under `data/hash`."""
    recorded: str | None
    """What the run recorded for this step; None if it recorded nothing."""
    batches: list[Batch]
    samples: list[Sample]

    @property
    def equal(self) -> bool | None:
        """Whether the batch is the one that was trained on; None if the run does not tell."""
        return None if self.recorded is None else self.hash == self.recorded


@dataclass(frozen=True)
class TokenLosses:
    """Losses of a batch under a checkpoint."""

    checkpoint: Path
    losses: dict[int, NDArray[np.float32]]
    """By micro-batch: (B, T) nats of each target, NaN where there is none."""

    @property
    def mean(self) -> float:
        """Nats per target; over the whole step, that is its training loss if the checkpoint is the one before it."""
        values = np.concatenate([each[~np.isnan(each)] for each in self.losses.values()])
        return float(values.mean(dtype=np.float64))


def replay(run: Path, step: int) -> Replay:
    """Rebuild the batch of step `step` of a run, 1 to its last.

    Raises:
        UsageError: not a run, no such step, or the data set is gone.
        DataError: the data set is damaged or of another tokenizer.
    """
    config = run_config(run)
    if not 1 <= step <= config.total_steps:
        raise UsageError(f"step {step}: {run} has steps 1 to {config.total_steps}, counted as in metrics.jsonl.")
    tokenizer = tokenizer_of_run(config.run.tokenizer, run)
    loader = training_loader(config, open_split(data_of_run(config.run.data, run), "train", tokenizer))
    cfg = config.training
    pieces = cfg.grad_accum_steps * cfg.dp_size
    place_in_order = batch_of(step - 1, _left_out(run))
    batches = [loader.batch_at(place_in_order, micro=micro, n_micro=pieces) for micro in range(pieces)]
    start = loader.position(place_in_order)
    samples = []
    for micro, batch in enumerate(batches):
        for row, tokens in enumerate(batch["tokens"]):
            place = start.sample + micro * len(batch["tokens"]) + row
            spans = loader.describe(start.epoch, place)
            samples.append(
                Sample(micro, row, start.epoch, place, tokens, [_piece(span, tokens, tokenizer) for span in spans])
            )
    return Replay(step, config, batch_digest(batches), _recorded(run, step), batches, samples)


def token_losses(replayed: Replay, run: Path, checkpoint: Path | None = None, micro: int | None = None) -> TokenLosses:
    """Loss of every token of a replayed batch, on the CPU in fp32.

    Args:
        replayed: the batch.
        run: its run.
        checkpoint: whose weights to take; the run's newest whole one that had not seen the step unless given.
        micro: the only micro-batch to score; all unless given.

    Raises:
        CheckpointError: no such checkpoint, or a damaged one.
    """
    folder = _before(run, replayed.step) if checkpoint is None else checkpoint
    model, _, _ = load_model(folder)
    losses = {}
    with torch.inference_mode():
        for index, batch in enumerate(replayed.batches):
            if micro not in (None, index):
                continue
            window = as_window(batch)
            hidden = model.head_inputs(window, mtp=False)["main"]
            rows = [
                F.cross_entropy(model.logits(h), y, ignore_index=IGNORE_INDEX, reduction="none").masked_fill(
                    y == IGNORE_INDEX, torch.nan
                )
                for h, y in zip(hidden, window.targets, strict=True)
            ]
            losses[index] = torch.stack(rows).numpy()
    return TokenLosses(folder, losses)


def span_dict(piece: Piece) -> dict[str, Any]:
    """A piece as plain values."""
    return {**asdict(piece.span), "text": piece.text}


def _piece(span: Span, tokens: NDArray[np.int64], tokenizer: Tokenizer) -> Piece:
    return Piece(span, tokenizer.decode(tokens[span.window_offset : span.window_offset + span.length]))


def _recorded(run: Path, step: int) -> str | None:
    found = read_metrics(run, lambda record: record.get("step") == step and "data/hash" in record)
    return str(found[-1]["data/hash"]) if found else None


def _left_out(run: Path) -> list[int]:
    """Batches that loss spikes made the run pass over."""
    found = (event.get("batch") for event in read_jsonl(run / EVENTS) if event["kind"] == "rewind")
    return sorted({batch for batch in found if type(batch) is int})


def _before(run: Path, step: int) -> Path:
    """The newest whole checkpoint whose weights had not been trained on `step`."""
    there = list_checkpoints(run / CHECKPOINTS)
    for path in there:
        saved = step_of(path)
        if saved is not None and saved < step:
            try:
                verify(path)
            except CheckpointError:
                continue
            return path
    names = ", ".join(path.name for path in there) or "none"
    raise CheckpointError(
        f"{run}: no whole checkpoint from before step {step} (there: {names}). Choose one with --checkpoint."
    )
