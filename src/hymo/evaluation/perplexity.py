"""Bits per byte, the tokenizer-independent figure, and its relatives, over fixed held-out windows."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from hymo.data.heldout import EvaluationWindows
from hymo.kernels.cross_entropy import IGNORE_INDEX
from hymo.models import HyMo, Window, split_window


@dataclass(frozen=True)
class Perplexity:
    """Sums over a held-out set and the figures that follow from them."""

    nats: float
    """Summed loss of the text tokens."""
    tokens: int
    """Text tokens scored."""
    bytes: int
    """Bytes of the original text."""

    @property
    def loss(self) -> float:
        """Nats per token."""
        return self.nats / self.tokens

    @property
    def bits_per_byte(self) -> float:
        """Bits per byte of the original text."""
        return self.nats / math.log(2) / self.bytes

    @property
    def byte_perplexity(self) -> float:
        """exp(nats per byte)."""
        return math.exp(self.nats / self.bytes)

    @property
    def token_perplexity(self) -> float:
        """exp(nats per token)."""
        return math.exp(min(self.loss, 700.0))

    def to_dict(self) -> dict[str, Any]:
        """All figures by name."""
        return {
            "bits_per_byte": self.bits_per_byte,
            "byte_perplexity": self.byte_perplexity,
            "token_perplexity": self.token_perplexity,
            "loss": self.loss,
            "tokens": self.tokens,
            "bytes": self.bytes,
        }


@torch.inference_mode()
def evaluate(
    model: HyMo, windows: EvaluationWindows, batch_size: int, stop: Callable[[], bool] | None = None
) -> Perplexity:
    """Score the windows. The result does not depend on `batch_size` beyond rounding.

    Args:
        model: used in evaluation mode and handed back in the mode it came in.
        windows: what to score.
        batch_size: rows per forward pass.
        stop: asked between batches; a true answer raises KeyboardInterrupt, so that a long evaluation ends early.
    """
    device = model.embed.weight.device
    was_training = model.training
    model.eval()
    nats, tokens, size = 0.0, 0, 0
    try:
        for batch in windows.batches(batch_size):
            if stop is not None and stop():
                raise KeyboardInterrupt
            bounds = batch.get("cu_seqlens")
            window = split_window(
                torch.from_numpy(batch["tokens"]), None if bounds is None else torch.from_numpy(bounds)
            )
            scored = torch.from_numpy(batch["mask"])
            targets = window.targets.masked_fill(~scored, IGNORE_INDEX)
            on_device = Window(window.inputs.to(device), targets.to(device), window.cu_seqlens)
            nats += float(model.loss_sums(on_device, mtp=False)["main"])
            tokens += int((targets != IGNORE_INDEX).sum())
            size += int(batch["bytes"].sum())
    finally:
        model.train(was_training)
    return Perplexity(nats, tokens, size)
