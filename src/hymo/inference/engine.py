"""Generation over a decode state: prefill once, then one token at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from hymo.core.errors import UsageError
from hymo.data.tokenizer import Tokenizer, load_tokenizer
from hymo.inference.sampling import Sampling
from hymo.models import HyMo
from hymo.models.checkpoint import load_model


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


class Engine:
    """Continues prompts with a model.

    Args:
        model: in evaluation mode, on the device to run on.
        tokenizer: of the training data; documents begin with its bos.
    """

    def __init__(self, model: HyMo, tokenizer: Tokenizer) -> None:
        self.model = model.eval()
        self.tokenizer = tokenizer

    @classmethod
    def from_checkpoint(cls, path: str | Path, device: str = "cpu") -> Engine:
        """Load the model and the tokenizer of a checkpoint, or of a run's newest whole one."""
        model, config, manifest = load_model(path, device)
        tokenizer = load_tokenizer(config.run.tokenizer)
        if manifest.tokenizer and tokenizer.fingerprint() != manifest.tokenizer:
            raise UsageError(f"{config.run.tokenizer}: is not the tokenizer that {path} was trained with.")
        return cls(model, tokenizer)

    @property
    def context(self) -> int:
        """Most tokens of prompt and continuation together."""
        return self.model.rope_gdn.positions

    def generate(self, prompt: str, max_new_tokens: int = 256, sampling: Sampling | None = None) -> Generation:
        """Continue one prompt.

        Raises:
            UsageError: nothing to generate, or more tokens than the context holds.
        """
        tokens, logprobs = [], []
        for token, logprob in self.stream(prompt, max_new_tokens, sampling):
            tokens.append(token)
            logprobs.append(logprob)
        reason = "length"
        if tokens and tokens[-1] == self.tokenizer.eos_id:
            tokens, logprobs, reason = tokens[:-1], logprobs[:-1], "stop"
        return Generation(self.tokenizer.decode(tokens), tokens, logprobs, reason)

    @torch.inference_mode()
    def stream(
        self, prompt: str, max_new_tokens: int = 256, sampling: Sampling | None = None
    ) -> Iterator[tuple[int, float]]:
        """Yield (token id, log-probability) one by one; the last may be eos. Errors as in `generate`."""
        sampling = Sampling() if sampling is None else sampling
        ids = [self.tokenizer.bos_id, *self.tokenizer.encode(prompt).tolist()]
        if max_new_tokens < 1:
            raise UsageError(f"max_new_tokens: must be at least 1, not {max_new_tokens}.")
        if len(ids) + max_new_tokens > self.context:
            raise UsageError(
                f"prompt of {len(ids)} tokens and {max_new_tokens} new ones exceed the context of {self.context}. "
                "Shorten the prompt or ask for fewer."
            )
        device = self.model.embed.weight.device
        generator = torch.Generator(device)
        if sampling.seed is None:
            generator.seed()
        else:
            generator.manual_seed(sampling.seed)
        state = self.model.init_state(1, reserve=len(ids) + max_new_tokens)
        seen = torch.zeros(1, self.model.config.vocab_size, dtype=torch.bool, device=device)
        new = torch.tensor([ids], device=device)
        for _ in range(max_new_tokens):
            seen[0, new[0]] = True
            hidden = self.model.decode_hidden(new, state)[:, -1]
            logits = self._mask(self.model.logits(hidden))
            probabilities = sampling.probabilities(logits, seen)
            new = torch.multinomial(probabilities, 1, generator=generator)
            token = int(new)
            yield token, float(torch.log_softmax(logits, -1)[0, token])
            if token == self.tokenizer.eos_id:
                return

    def _mask(self, logits: Tensor) -> Tensor:
        """Close what no text can continue with: bos, pad, and rows of the vocabulary beyond the tokenizer's."""
        closed = torch.zeros(logits.shape[-1], dtype=torch.bool, device=logits.device)
        closed[[self.tokenizer.bos_id, self.tokenizer.pad_id]] = True
        closed[self.tokenizer.vocab_size :] = True
        return logits.masked_fill(closed, -torch.inf)
