"""A request under way: the job, and each of its continuations."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from torch import Tensor

from hymo.data.tokenizer import Tokenizer
from hymo.inference.drafting import Speculation, choose_depth
from hymo.inference.request import Chunk, Generation, Request, Scored, Token
from hymo.inference.sampling import Sampling, Uniforms
from hymo.inference.text import TextStream, TokenBytes

Reason = Literal["stop", "length", "cancelled"]


class Choice:
    """One continuation of a job, from its first token to its end."""

    def __init__(
        self, job: Job, index: int, tokenizer: Tokenizer, heads: int, bytes_of: TokenBytes | None = None
    ) -> None:
        request = job.request
        self.job, self.index = job, index
        self.finish_reason: Reason | None = None
        """Set when the continuation has ended."""
        self.drawn = 0
        """Tokens so far, eos included."""
        self.pending = -1
        """The last token, which the model has not read yet."""
        self.hidden: Tensor | None = None
        """(dim,) hidden state that the last token was drawn from."""
        self.seen: Tensor | None = None
        """bool (V,) tokens of prompt and continuation; kept only for a repetition penalty."""
        self.uniforms = Uniforms(request.sampling.seed, index)
        self.rule: Sampling = replace(request.sampling, seed=None)
        """How tokens are drawn, alike for all texts with the same settings."""
        plain = replace(self.rule, temperature=1.0) == Sampling()
        self.simple = plain and not request.alternatives
        """Whether its temperature is all that drawing depends on, and its token all that is asked for."""
        self.speculation = Speculation([0] * heads, [0] * heads) if request.speculative else None
        self._tokenizer = tokenizer
        self._bytes_of = TokenBytes(tokenizer) if bytes_of is None else bytes_of
        self._text = TextStream(request.stop)
        self._tokens: list[Token] = []
        self._ends: list[int] = []
        self._shown: list[str] = []
        self._taken_tokens = 0
        self._taken_texts = 0

    @property
    def finished(self) -> bool:
        """Whether it has ended."""
        return self.finish_reason is not None

    @property
    def lasts(self) -> bool:
        """Whether it certainly gets two more tokens without drafts, unless it stops."""
        return self.speculation is None and self.drawn + 2 <= self.job.request.max_new_tokens

    def depth(self, seconds: list[float | None], made: int = 0) -> int:
        """Drafts for the next pass, given the measured times of a pass with 0, 1, ... of them.

        Where the pass makes `made` drafts in any case, a text that drafts as far as it pays has them all judged.
        """
        asked = self.job.request.speculative
        if self.speculation is None:
            return 0
        heads = len(self.speculation.proposed)
        left = self.job.request.max_new_tokens - self.drawn
        if asked == "auto":
            depth = made or choose_depth(self.speculation.recent, seconds, self.speculation.passes)
        else:
            depth = heads if asked is True else int(asked)
        return min(depth, left - 1)

    def push(self, token: Token) -> None:
        """Add a token, and end the continuation if that was its last."""
        self.drawn += 1
        self.pending = token.id
        if self.seen is not None:
            self.seen[token.id] = True
        if token.id == self._tokenizer.eos_id:
            self.end("stop")
            return
        data = self._bytes_of(token.id)
        self._tokens.append(token)
        self._ends.append((self._ends[-1] if self._ends else 0) + len(data))
        self._shown.append(self._text.push(data))
        if self._text.stopped:
            self.end("stop")
        elif self.drawn == self.job.request.max_new_tokens:
            self.end("length")

    def end(self, reason: Reason) -> None:
        """The continuation ends here."""
        if self.finished:
            return
        self.finish_reason = reason
        self._shown.append(self._text.finish())
        if self._text.stopped:  # tokens that only spell the stop string are not part of the text
            starts = [0, *self._ends]
            kept = sum(start < self._text.visible for start in starts[: len(self._tokens)])
            del self._tokens[kept:], self._ends[kept:]
        self.hidden = self.seen = None

    def take(self) -> Chunk:
        """What is new since the last call. Tokens wait until the text that they stand for is sure."""
        texts = self._shown[self._taken_texts :]
        self._taken_texts = len(self._shown)
        first = self._taken_tokens
        while self._taken_tokens < len(self._tokens) and (self.finished or self._sure(self._taken_tokens)):
            self._taken_tokens += 1
        return Chunk("".join(texts), tuple(self._tokens[first : self._taken_tokens]))

    def _sure(self, place: int) -> bool:
        start = self._ends[place - 1] if place else 0
        return start < self._text.visible >= self._ends[place]

    def generation(self) -> Generation:
        """The finished continuation."""
        assert self.finish_reason is not None
        ids = [token.id for token in self._tokens]
        logprobs = [token.logprob for token in self._tokens]
        text = "".join(self._shown)
        return Generation(text, ids, logprobs, self.finish_reason, self.speculation, list(self._tokens))


class Job:
    """A submitted request."""

    def __init__(self, request: Request, tokenizer: Tokenizer, heads: int, bytes_of: TokenBytes | None = None) -> None:
        self.request = request
        self.read = 0
        """Tokens of the prompt that the model has read."""
        self.scored: list[Scored] = []
        """The prompt's tokens under the model, if asked for, as far as they are read."""
        self.choices = [Choice(self, index, tokenizer, heads, bytes_of) for index in range(request.n)]

    @property
    def finished(self) -> bool:
        """Whether every continuation has ended."""
        return all(choice.finished for choice in self.choices)

    @property
    def total(self) -> int:
        """Most tokens that a row of it may come to hold."""
        return len(self.request.prompt) + self.request.max_new_tokens

    def generations(self) -> list[Generation]:
        """The finished continuations."""
        return [choice.generation() for choice in self.choices]
