"""What is evaluated: a HyMo checkpoint behind the harness's interface, with what identifies it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from hymo.core.version import VERSION, commit
from hymo.data.of_run import tokenizer_of_checkpoint
from hymo.evaluation.harness import Counts, HymoLM
from hymo.evaluation.hashes import weights_hash
from hymo.models.checkpoint import load_model


class Scorer(Protocol):
    """A model of the harness as HyMo uses it."""

    counts: Counts
    seed: int

    def score_documents(self, documents: list[bytes]) -> list[float]:
        """Log-probability in nats of each whole document, no token of context from another."""


@dataclass(frozen=True)
class Subject:
    """A model under evaluation."""

    lm: Scorer
    name: str
    """As it was asked for."""
    facts: dict[str, Any]
    """Step, versions and hashes, for the result files."""


def checkpoint_subject(
    checkpoint: Path, device: torch.device, *, batch_size: int, stride: int | None = None, progress: bool = False
) -> Subject:
    """Load a checkpoint, or a run's newest whole one.

    Raises:
        UsageError, CheckpointError: as in `load_model`.
    """
    model, config, manifest = load_model(checkpoint, device)
    tokenizer = tokenizer_of_checkpoint(config.run.tokenizer, manifest.tokenizer, checkpoint)
    lm = HymoLM(
        model, tokenizer, window=config.training.seq_len, stride=stride, batch_size=batch_size, progress=progress
    )
    facts = {
        "model": str(checkpoint),
        "step": manifest.step,
        "checkpoint_hash": weights_hash(model),
        "config_hash": manifest.config_hash,
        "tokenizer_hash": tokenizer.fingerprint(),
        "dtype": str(model.embed.weight.dtype).removeprefix("torch."),
        "device": device.type,
        "context": lm.max_length,
        "bos": "once, before every prompt",
        "hymo_version": VERSION,
        "commit": commit(),
        "torch_version": torch.__version__,
    }
    return Subject(lm, str(checkpoint), facts)
