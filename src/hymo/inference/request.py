"""What is asked of the engine, and what comes back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from hymo.core.errors import UsageError
from hymo.inference.drafting import Speculation
from hymo.inference.sampling import Sampling

Drafts = bool | int | Literal["auto"]
"""Tokens to draft in a pass: False or 0 none, True as many as there are prediction heads, auto what is fastest."""

MOST_ALTERNATIVES = 20
"""Most alternatives per token."""
MOST_STOPS, LONGEST_STOP = 16, 1024
"""Most stop strings, and most bytes of one."""


@dataclass(frozen=True)
class Request:
    """One prompt and how to continue it."""

    prompt: tuple[int, ...]
    """Token ids that the model reads, a bos in front of a new document included."""
    max_new_tokens: int = 256
    """Most tokens of a continuation; 0 only scores the prompt."""
    sampling: Sampling = field(default_factory=Sampling)
    n: int = 1
    """Continuations. The first is the one of a request with n = 1 and the same seed."""
    stop: tuple[str, ...] = ()
    """Strings that end a continuation; they are not part of it."""
    alternatives: int = 0
    """The k most likely tokens to report in each place, with their log-probabilities."""
    score_prompt: bool = False
    """Whether to report log-probabilities of the prompt's tokens too."""
    speculative: Drafts = False
    """Drafting by the prediction heads. It changes the speed and not the text."""

    def check(self, vocab_size: int, heads: int) -> None:
        """Refuse what cannot be done.

        Raises:
            UsageError: naming the field.
        """
        least = 0 if self.score_prompt else 1
        if self.max_new_tokens < least:
            raise UsageError(f"max_new_tokens: must be at least {least}, not {self.max_new_tokens}.")
        if self.n < 1:
            raise UsageError(f"n: must be at least 1, not {self.n}.")
        if not 0 <= self.alternatives <= MOST_ALTERNATIVES:
            raise UsageError(f"logprobs: must lie in 0..{MOST_ALTERNATIVES}, not {self.alternatives}.")
        if len(self.stop) > MOST_STOPS:
            raise UsageError(f"stop: at most {MOST_STOPS} strings, not {len(self.stop)}.")
        for text in self.stop:
            try:
                size = len(text.encode("utf-8"))
            except UnicodeEncodeError:
                raise UsageError("stop: has a lone surrogate, which no text can hold. Repair the string.") from None
            if not 1 <= size <= LONGEST_STOP:
                raise UsageError(f"stop: a string must have 1 to {LONGEST_STOP} bytes, not {size}.")
        if not self.prompt:
            raise UsageError("prompt: has no token. Give at least one, such as bos.")
        wrong = next((token for token in self.prompt if not 0 <= token < vocab_size), None)
        if wrong is not None:
            raise UsageError(f"prompt: token {wrong} is not in the vocabulary (0..{vocab_size - 1}).")
        if self.speculative:
            require_heads(heads)
        if self.speculative not in ("auto", True, False) and not 0 <= int(self.speculative) <= heads:
            raise UsageError(f"speculative: must lie in 0..{heads}, the number of heads, not {self.speculative}.")


def require_heads(heads: int) -> None:
    """Refuse drafts from a model that has nothing to draft with.

    Raises:
        UsageError: no heads.
    """
    if heads == 0:
        raise UsageError("speculative: the model has no prediction heads (mtp_depth 0). Generate without drafts.")


@dataclass(frozen=True)
class Token:
    """One token of a continuation."""

    id: int
    logprob: float
    """Log-probability under the model's own distribution."""
    drafted: bool = False
    """Whether it was an accepted draft."""
    top: tuple[tuple[int, float], ...] = ()
    """The most likely tokens here and their log-probabilities, most likely first, as many as were asked for."""


@dataclass(frozen=True)
class Scored:
    """One token of a prompt under the model."""

    id: int
    logprob: float | None
    """Log-probability after the tokens before it; None for the first, which nothing predicts."""
    top: tuple[tuple[int, float], ...] = ()
    """As in `Token`."""


@dataclass(frozen=True)
class Chunk:
    """What a continuation has grown by."""

    text: str
    """May be empty, and may lag behind the tokens by a part of a character."""
    tokens: tuple[Token, ...] = ()


@dataclass(frozen=True)
class Generation:
    """One finished continuation."""

    text: str
    """Continuation without the prompt."""
    tokens: list[int]
    """Its token ids, eos left out; with a stop string, those that begin before it."""
    logprobs: list[float]
    """Log-probability of each token under the model's own distribution."""
    finish_reason: str
    """`stop` at the end-of-text token or a stop string, `length` at the limit, `cancelled`."""
    speculation: Speculation | None = None
    """Filled if drafts were used."""
    details: list[Token] = field(default_factory=list, repr=False)
    """The same tokens with all that is known of them."""
