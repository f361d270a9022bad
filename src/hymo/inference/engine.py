"""Generation over a decode state: prefill once, then one token at a time, or several with drafts.

Speculation. The prediction heads draft up to `mtp_depth` tokens; one pass of the model reads the certain token and
the drafts, and its own distributions decide how many to keep. A draft x is the head's most likely token, so the exact
rule is: accept with probability p(x), else draw from p without x. At temperature 0 that is: accept while it is the
argmax. The state then rolls back past what was rejected. Source of the rule: Leviathan et al., arXiv 2211.17192, for
a one-hot draft.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from hymo.core.errors import UsageError
from hymo.data.of_run import tokenizer_of_checkpoint
from hymo.data.tokenizer import Tokenizer
from hymo.inference.sampling import Sampling
from hymo.models import HyMo
from hymo.models.checkpoint import load_model


@dataclass
class Speculation:
    """How drafting went."""

    proposed: list[int]
    """Drafts that the model judged, by depth: those after a rejected one are not counted."""
    accepted: list[int]
    """Drafts kept, by depth."""
    passes: int = 0
    """Passes of the model after the prompt."""
    tokens: int = 0
    """Tokens that those passes gave."""

    @property
    def acceptance(self) -> list[float]:
        """Accepted / judged, by depth; 0 where nothing was judged."""
        return [a / p if p else 0.0 for a, p in zip(self.accepted, self.proposed, strict=True)]

    @property
    def tokens_per_pass(self) -> float:
        """Mean tokens per pass; 1 without any use of drafts."""
        return self.tokens / self.passes if self.passes else 0.0


@dataclass(frozen=True)
class Token:
    """One generated token."""

    id: int
    logprob: float
    """Log-probability under the model's own distribution."""
    drafted: bool = False
    """Whether it was an accepted draft."""


@dataclass(frozen=True)
class Generation:
    """One finished continuation."""

    text: str
    """Continuation without the prompt."""
    tokens: list[int]
    """Its token ids, eos left out."""
    logprobs: list[float]
    """Log-probability of each token under the model's own distribution."""
    finish_reason: str
    """`stop` at the end-of-text token, `length` at the limit."""
    speculation: Speculation | None = None
    """Filled if drafts were used."""


@dataclass
class _Draw:
    """What drawing a token depends on."""

    sampling: Sampling
    generator: torch.Generator
    seen: Tensor = field(repr=False)
    """bool (V,) tokens of prompt and continuation so far."""

    def probabilities(self, logits: Tensor) -> Tensor:
        """(V,) distribution at this point of the text."""
        return self.sampling.probabilities(logits, self.seen)

    def draw(self, probabilities: Tensor) -> int:
        """One token."""
        return int(torch.multinomial(probabilities, 1, generator=self.generator))

    def accepts(self, probability: float) -> bool:
        """Whether a draft of this probability is kept. Certain outcomes use no random number."""
        if probability in (0.0, 1.0):
            return probability == 1.0
        return float(torch.rand((), generator=self.generator, device=self.generator.device)) < probability


class Engine:
    """Continues prompts with a model.

    Args:
        model: in evaluation mode, on the device to run on.
        tokenizer: of the training data; documents begin with its bos.
    """

    def __init__(self, model: HyMo, tokenizer: Tokenizer) -> None:
        self.model = model.eval()
        self.tokenizer = tokenizer
        closed = torch.zeros(model.config.vocab_size, dtype=torch.bool, device=model.embed.weight.device)
        closed[[tokenizer.bos_id, tokenizer.pad_id]] = True
        closed[tokenizer.vocab_size :] = True
        self._closed = closed

    @classmethod
    def from_checkpoint(cls, path: str | Path, device: str = "cpu") -> Engine:
        """Load the model and the tokenizer of a checkpoint, or of a run's newest whole one."""
        model, config, manifest = load_model(path, device)
        return cls(model, tokenizer_of_checkpoint(config.run.tokenizer, manifest.tokenizer, Path(path)))

    @property
    def context(self) -> int:
        """Most tokens of prompt and continuation together."""
        return self.model.rope_gdn.positions

    def generate(
        self,
        prompt: str | bytes,
        max_new_tokens: int = 256,
        sampling: Sampling | None = None,
        speculative: bool = False,
    ) -> Generation:
        """Continue one prompt. With `speculative`, the prediction heads draft; the distribution of the text stays.

        Raises:
            UsageError: nothing to generate, more tokens than the context holds, or drafts from a model without heads.
        """
        stats = self.new_speculation() if speculative else None
        tokens = list(self.stream(prompt, max_new_tokens, sampling, stats))
        reason = "length"
        if tokens and tokens[-1].id == self.tokenizer.eos_id:
            tokens, reason = tokens[:-1], "stop"
        ids = [token.id for token in tokens]
        return Generation(self.tokenizer.decode(ids), ids, [token.logprob for token in tokens], reason, stats)

    def new_speculation(self) -> Speculation:
        """Empty counters for `stream`, which drafts if it is given any."""
        depth = self.model.config.mtp_depth
        if depth == 0:
            raise UsageError("speculative: the model has no prediction heads (mtp_depth 0). Generate without drafts.")
        return Speculation([0] * depth, [0] * depth)

    def room(self, prompt: str | bytes) -> int:
        """Most tokens that the context leaves for a continuation."""
        return self.context - 1 - len(self.tokenizer.encode(prompt))

    def stream(
        self,
        prompt: str | bytes,
        max_new_tokens: int = 256,
        sampling: Sampling | None = None,
        speculation: Speculation | None = None,
    ) -> Iterator[Token]:
        """Tokens one by one; the last may be eos. Arguments as in `generate`, errors too, before the first token."""
        sampling = Sampling() if sampling is None else sampling
        ids = [self.tokenizer.bos_id, *self.tokenizer.encode(prompt).tolist()]
        if max_new_tokens < 1:
            raise UsageError(f"max_new_tokens: must be at least 1, not {max_new_tokens}.")
        if len(ids) + max_new_tokens > self.context:
            raise UsageError(
                f"prompt of {len(ids)} tokens and {max_new_tokens} new ones exceed the context of {self.context}. "
                "Shorten the prompt or ask for fewer."
            )
        return self._stream(ids, max_new_tokens, sampling, speculation)

    @torch.inference_mode()
    def _stream(
        self, ids: list[int], max_new_tokens: int, sampling: Sampling, speculation: Speculation | None
    ) -> Iterator[Token]:
        draw = self._draw(sampling, ids)
        depth = 0 if speculation is None else len(speculation.proposed)
        state = self.model.init_state(1, reserve=len(ids) + max_new_tokens + depth)
        hidden = self.model.decode_hidden(self._tokens(ids), state)[0, -1]
        pending, left = self._first(hidden, draw), max_new_tokens
        while True:
            yield pending
            left -= 1
            if pending.id == self.tokenizer.eos_id or left == 0:
                return
            drafts = self._draft(hidden, pending.id, min(depth, left - 1)) if depth else []
            states = self.model.decode_hidden(self._tokens([pending.id, *drafts]), state, keep_history=bool(drafts))[0]
            kept, pending = self._judge(states, drafts, draw, speculation)
            hidden = states[len(kept)]
            if drafts:
                state.rollback(torch.tensor([1 + len(kept)], device=hidden.device))
            for token in kept:
                yield token
                left -= 1
                if token.id == self.tokenizer.eos_id:
                    return

    def _draw(self, sampling: Sampling, ids: list[int]) -> _Draw:
        device = self._closed.device
        generator = torch.Generator(device)
        if sampling.seed is None:
            generator.seed()
        else:
            generator.manual_seed(sampling.seed)
        seen = torch.zeros_like(self._closed)
        seen[ids] = True
        return _Draw(sampling, generator, seen)

    def _tokens(self, ids: list[int]) -> Tensor:
        return torch.tensor([ids], device=self._closed.device)

    def _logits(self, hidden: Tensor) -> Tensor:
        """(V,) logits with those rows closed that no text can continue with: bos, pad, and unused ones."""
        return self.model.logits(hidden).masked_fill(self._closed, -torch.inf)

    def _first(self, hidden: Tensor, draw: _Draw) -> Token:
        logits = self._logits(hidden)
        token = draw.draw(draw.probabilities(logits))
        draw.seen[token] = True
        return Token(token, float(torch.log_softmax(logits, -1)[token]))

    def _draft(self, hidden: Tensor, token: int, count: int) -> list[int]:
        """The most likely next tokens by the chain of prediction heads, after `token`."""
        drafts: list[int] = []
        chain = hidden
        for block in self.model.mtp.blocks[:count]:
            embedded = self.model.embed_tokens(self._tokens([drafts[-1] if drafts else token])[0, 0])
            chain, out = block(chain, embedded)
            drafts.append(int(self._logits(out).argmax()))
        return drafts

    def _judge(
        self, states: Tensor, drafts: list[int], draw: _Draw, speculation: Speculation | None
    ) -> tuple[list[Token], Token]:
        """Keep drafts while the model agrees, then one token of its own; `states` (1 + drafts, dim)."""
        kept: list[Token] = []
        for place in range(len(drafts) + 1):
            logits = self._logits(states[place])
            probabilities = draw.probabilities(logits)
            logprobs = torch.log_softmax(logits, -1)
            if place < len(drafts):
                draft = drafts[place]
                accepted = draw.accepts(float(probabilities[draft]))
                if speculation is not None:
                    speculation.proposed[place] += 1
                    speculation.accepted[place] += accepted
                if accepted:
                    draw.seen[draft] = True
                    kept.append(Token(draft, float(logprobs[draft]), drafted=True))
                    if draft == self.tokenizer.eos_id:
                        break
                    continue
                probabilities = probabilities.clone()
                probabilities[draft] = 0
            own = draw.draw(probabilities)
            break
        if speculation is not None:
            speculation.passes += 1
            speculation.tokens += len(kept) + 1
        if kept and kept[-1].id == self.tokenizer.eos_id:
            return kept, kept[-1]
        draw.seen[own] = True
        return kept, Token(own, float(logprobs[own]))
