"""From logits to a token: temperature, top-k, top-p, min-p and repetition penalty.

A token is drawn by inverting the distribution function at one uniform number. Each text has its own sequence of such
numbers, one for each token, fixed by its seed: so what a text becomes depends neither on the texts beside it nor on how
many drafts were judged on the way.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass

import torch
from torch import Tensor

from hymo.core.errors import UsageError

_HOTTEST = 1e6
"""All but uniform over any logits; far beyond it fp32 overflows."""


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn. The defaults draw from the model's own distribution."""

    temperature: float = 1.0
    """Divides the logits; 0 takes the most likely token."""
    top_k: int = 0
    """Keep only the k most likely tokens; 0 keeps all."""
    top_p: float = 1.0
    """Keep the smallest set of most likely tokens whose probability reaches p."""
    min_p: float = 0.0
    """Keep tokens at least min_p times as likely as the most likely one."""
    repetition_penalty: float = 1.0
    """Divides positive and multiplies negative logits of tokens seen before."""
    seed: int | None = None
    """Seed of the draw, 0 to 2^64 - 1; None draws a fresh one."""

    def __post_init__(self) -> None:
        checks = (
            ("temperature", 0 <= self.temperature <= _HOTTEST, "in [0, 1e6]"),
            ("top_k", self.top_k >= 0, "at least 0"),
            ("top_p", 0 < self.top_p <= 1, "in (0, 1]"),
            ("min_p", 0 <= self.min_p <= 1, "in [0, 1]"),
            ("repetition_penalty", 0.01 <= self.repetition_penalty <= 100, "in [0.01, 100]"),
            ("seed", self.seed is None or 0 <= self.seed < 2**64, "in 0..2^64 - 1"),
        )
        for name, fits, wanted in checks:
            if not fits:
                raise UsageError(f"{name}: must be {wanted}, not {getattr(self, name)}.")

    def probabilities(self, logits: Tensor, seen: Tensor | None = None) -> Tensor:
        """The distribution that tokens are drawn from.

        Args:
            logits: (..., V).
            seen: bool (..., V), tokens that the penalty applies to.

        Returns:
            (..., V) in fp32 (fp64 for fp64 logits), summing to 1; one-hot at temperature 0.
        """
        logits = self._penalised(logits, seen)
        if self.temperature == 0:
            return torch.zeros_like(logits).scatter_(-1, logits.argmax(-1, keepdim=True), 1.0)
        below = logits - logits.amax(-1, keepdim=True)  # at most 0: no temperature overflows to an undefined share
        probabilities = torch.softmax(torch.where(below == 0, below, below / self.temperature), -1)
        if self.top_k and self.top_k < logits.shape[-1]:
            least = probabilities.topk(self.top_k, -1).values[..., -1:]
            probabilities = probabilities.masked_fill(probabilities < least, 0)
        if self.top_p < 1:
            ordered, order = probabilities.sort(-1, descending=True)
            before = ordered.cumsum(-1) - ordered
            total = ordered.sum(-1, keepdim=True)
            kept = torch.where(before < self.top_p * total, ordered, 0)
            kept[..., :1] = ordered[..., :1]  # however small p is
            probabilities = torch.zeros_like(probabilities).scatter_(-1, order, kept)
        if self.min_p > 0:
            most = probabilities.amax(-1, keepdim=True)
            probabilities = probabilities.masked_fill(probabilities < self.min_p * most, 0)
        return probabilities / probabilities.sum(-1, keepdim=True)

    def draw(self, logits: Tensor, uniforms: Tensor, seen: Tensor | None = None) -> Tensor:
        """int64 (...) tokens drawn from `probabilities` with uniform numbers (...)."""
        if self.temperature == 0:
            return self._penalised(logits, seen).argmax(-1)
        return draw(self.probabilities(logits, seen), uniforms)

    def _penalised(self, logits: Tensor, seen: Tensor | None) -> Tensor:
        if seen is None or self.repetition_penalty == 1:
            return logits
        penalty = self.repetition_penalty
        return torch.where(seen, torch.where(logits > 0, logits / penalty, logits * penalty), logits)


class Uniforms:
    """The uniform numbers that a text's tokens are drawn with, in order.

    Args:
        seed: None for numbers that nobody can repeat.
        index: which of several continuations of one request it is.
    """

    def __init__(self, seed: int | None, index: int = 0) -> None:
        self._source = random.Random(None if seed is None else f"{seed}/{index}")
        self._ahead: deque[float] = deque()

    def peek(self, count: int, after: int = 0) -> list[float]:
        """`count` numbers in [0, 1) behind the next `after`; all stay where they are."""
        while len(self._ahead) < after + count:
            self._ahead.append(self._source.random())
        return [self._ahead[after + i] for i in range(count)]

    def skip(self, count: int) -> None:
        """Use up `count` numbers."""
        self.peek(count)
        for _ in range(count):
            self._ahead.popleft()


def draw(probabilities: Tensor, uniforms: Tensor) -> Tensor:
    """Invert the distribution function: the first token whose cumulated probability exceeds the uniform number.

    Args:
        probabilities: (..., V).
        uniforms: (...) in [0, 1).

    Returns:
        (...) int64 tokens, each of a probability above 0.
    """
    wide = torch.float32 if probabilities.device.type == "mps" else torch.float64
    reached = probabilities.to(wide).cumsum(-1)
    total = reached[..., -1:]
    chosen = (reached <= uniforms[..., None].to(wide) * total).sum(-1)
    return torch.minimum(
        chosen, (reached < total).sum(-1)
    )  # rounding may put a number close to 1 behind the last token
