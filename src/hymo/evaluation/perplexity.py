"""Bits per byte, the tokenizer-independent figure, and its relatives, over fixed held-out windows."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

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


class Share(Protocol):
    """Who scores the windows together: `rank` of `size` processes, which all call `evaluate` at once."""

    @property
    def rank(self) -> int:
        """Number of this process, from 0."""

    @property
    def size(self) -> int:
        """Number of processes."""

    def gather_table(self, table: Tensor) -> Tensor:
        """Sum a table on the CPU over all processes."""


def evaluate(
    model: HyMo,
    windows: EvaluationWindows,
    batch_size: int,
    stop: Callable[[], bool] | None = None,
    *,
    acceptance: bool = False,
    share: Share | None = None,
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
        share: processes that take the batches in turn. Each makes equally many passes, with nothing to score in those
            that are left over, and gets the result of all: the same to the last bit however many they are.
    """
    device = model.embed.weight.device
    was_training = model.training
    model.eval()
    rank, size = (0, 1) if share is None else (share.rank, share.size)
    count = -(-windows.n_rows // max(batch_size, 1))  # `batches` refuses 0
    depth = model.config.mtp_depth if acceptance else 0
    table = torch.zeros(count, 3 + 2 * depth, dtype=torch.float64)  # nats, tokens, bytes; agreed and judged by head
    mine = windows.batches(batch_size, rank=rank, world=size)
    spare = None
    # What is gathered while grads are off must serve training afterwards, which inference tensors cannot.
    try:
        with torch.inference_mode() if size == 1 else torch.no_grad():
            for first in range(0, count, size):
                if stop is not None and stop():
                    raise KeyboardInterrupt
                if first + rank < count:
                    table[first + rank] = _score(model, next(mine), device, acceptance)
                elif size > 1:
                    spare = spare or next(windows.batches(batch_size))
                    _score(model, spare, device, acceptance)
    finally:
        model.train(was_training)
    rows = (table if share is None else share.gather_table(table)).tolist()
    nats = 0.0
    for row in rows:
        nats += row[0]
    tokens, n_bytes, *drafts = (int(sum(row[place] for row in rows)) for place in range(1, table.shape[1]))
    rates = [agreed / max(judged, 1) for agreed, judged in zip(drafts[0::2], drafts[1::2], strict=True)]
    return Perplexity(nats, tokens, n_bytes, tuple(rates))


def _score(model: HyMo, batch: dict[str, Any], device: torch.device, acceptance: bool) -> Tensor:
    """What one batch adds to the table of `evaluate`: one row, fp64."""
    window = as_window(batch)
    scored = torch.from_numpy(batch["mask"])
    targets = window.targets.masked_fill(~scored, IGNORE_INDEX)
    on_device = Window(window.inputs.to(device), targets.to(device), window.cu_seqlens)
    heads = model.head_inputs(on_device, mtp=acceptance)
    nats = float(_loss_sum(model, heads["main"], on_device.targets))
    drafts = _agreement(model, heads, on_device).flatten().tolist() if acceptance else []
    row = [nats, int((targets != IGNORE_INDEX).sum()), int(batch["bytes"].sum()), *drafts]
    return torch.tensor(row, dtype=torch.float64)


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
