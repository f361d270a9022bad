"""Bits per byte, the tokenizer-independent figure, and its relatives, over fixed held-out windows."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hymo.core.memory import LOGIT_CHUNK_ELEMENTS
from hymo.data.heldout import EvaluationWindows
from hymo.kernels.cross_entropy import IGNORE_INDEX, linear_cross_entropy
from hymo.models import HyMo, Window
from hymo.models.windows import ahead, as_window


@dataclass(frozen=True)
class Perplexity:
    """Sums over a held-out set and the figures that follow from them."""

    nats: float
    """Summed loss of the text tokens."""
    tokens: int
    """Text tokens scored."""
    bytes: int
    """Bytes of the original text."""
    acceptance: tuple[float, ...] = ()
    """Per prediction head, how often it agrees with the model itself (see `evaluate`); empty if not measured."""

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
        return math.exp(min(self.nats / self.bytes, 700.0))

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
            **{f"acceptance_{depth}": rate for depth, rate in enumerate(self.acceptance, 1)},
        }


@torch.inference_mode()
def evaluate(
    model: HyMo,
    windows: EvaluationWindows,
    batch_size: int,
    stop: Callable[[], bool] | None = None,
    *,
    acceptance: bool = False,
) -> Perplexity:
    """Score the windows. The result does not depend on `batch_size` beyond rounding.

    Acceptance of head d is the share of scored tokens t + d + 1 for which the head's most likely token, drafted at t,
    is the model's most likely token at t + d. Both are given the real text before, so it approximates what greedy
    drafting accepts: there the text is the model's own, and a draft counts only if those before it were accepted.

    Args:
        model: used in evaluation mode and handed back in the mode it came in.
        windows: what to score.
        batch_size: rows per forward pass.
        stop: asked between batches; a true answer raises KeyboardInterrupt, so that a long evaluation ends early.
        acceptance: measure the prediction heads too.
    """
    device = model.embed.weight.device
    was_training = model.training
    model.eval()
    nats, tokens, size = 0.0, 0, 0
    drafts = torch.zeros(model.config.mtp_depth if acceptance else 0, 2, dtype=torch.int64)
    try:
        for batch in windows.batches(batch_size):
            if stop is not None and stop():
                raise KeyboardInterrupt
            window = as_window(batch)
            scored = torch.from_numpy(batch["mask"])
            targets = window.targets.masked_fill(~scored, IGNORE_INDEX)
            on_device = Window(window.inputs.to(device), targets.to(device), window.cu_seqlens)
            heads = model.head_inputs(on_device, mtp=acceptance)
            nats += float(_loss_sum(model, heads["main"], on_device.targets))
            if acceptance:
                drafts += _agreement(model, heads, on_device)
            tokens += int((targets != IGNORE_INDEX).sum())
            size += int(batch["bytes"].sum())
    finally:
        model.train(was_training)
    return Perplexity(nats, tokens, size, tuple(agreed / max(judged, 1) for agreed, judged in drafts.tolist()))


def _loss_sum(model: HyMo, hidden: Tensor, targets: Tensor) -> Tensor:
    return linear_cross_entropy(
        hidden.flatten(0, 1), model.output_weight, targets.flatten(), model.config.logit_softcap
    )


def _agreement(model: HyMo, heads: dict[str, Tensor], window: Window) -> Tensor:
    """int64 (depth, 2) on the CPU: drafts that are the model's choice, and drafts judged."""
    choice = _most_likely(model, heads["main"])
    counts = []
    for depth in range(1, len(heads)):
        judged = ahead(window, depth) != IGNORE_INDEX
        agreed = judged & (_most_likely(model, heads[f"mtp_{depth}"]) == choice[:, depth:])
        counts.append(torch.stack((agreed.sum(), judged.sum())))
    return torch.stack(counts).cpu() if counts else torch.zeros(0, 2, dtype=torch.int64)


def _most_likely(model: HyMo, hidden: Tensor) -> Tensor:
    """(B, T) most likely tokens of head inputs (B, T, dim), without all logits at once."""
    rows = max(1, LOGIT_CHUNK_ELEMENTS // model.output_weight.shape[0])
    chunks = hidden.flatten(0, 1).split(rows)
    return torch.cat([model.logits(chunk).argmax(-1) for chunk in chunks]).view(hidden.shape[:2])
