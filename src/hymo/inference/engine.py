"""Generation from a model: one prompt, many, or streamed. All of it runs on `hymo.inference.scheduler`."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from hymo.core.errors import UsageError
from hymo.data.of_run import tokenizer_of_checkpoint
from hymo.data.tokenizer import Tokenizer
from hymo.inference.choice import Job
from hymo.inference.drafting import Costs, Speculation
from hymo.inference.packaged import checkpoint_path
from hymo.inference.recorded import Recorders
from hymo.inference.request import Chunk, Drafts, Generation, Request, require_heads
from hymo.inference.sampling import Sampling
from hymo.inference.scheduler import Scheduler
from hymo.models import HyMo
from hymo.models.checkpoint import load_model

_SMALL = 20_000_000
"""Parameters below which the threads of a CPU wait for each other longer than they compute."""

DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16}
"""What a model may run in."""


class Stream:
    """The chunks of one continuation as they come; `generation` is there once they have ended."""

    def __init__(self, scheduler: Scheduler, job: Job) -> None:
        self._scheduler, self._job = scheduler, job
        self._chunks = self._run()

    def __iter__(self) -> Iterator[Chunk]:
        return self._chunks

    def __next__(self) -> Chunk:
        return next(self._chunks)

    @property
    def generation(self) -> Generation:
        """The finished continuation."""
        return self._job.choices[0].generation()

    def _run(self) -> Iterator[Chunk]:
        choice = self._job.choices[0]
        while not choice.finished:
            self._scheduler.step()
            chunk = choice.take()
            if chunk.text or chunk.tokens:
                yield chunk


class Engine:
    """Continues prompts with a model.

    Args:
        model: in evaluation mode, on the device to run on.
        tokenizer: of the training data; documents begin with its bos.
        record: on a CUDA device, record decoding passes as graphs and replay them. The weights must stay as they are.
    """

    def __init__(self, model: HyMo, tokenizer: Tokenizer, record: bool = True) -> None:
        self.model = model.eval()
        self.tokenizer = tokenizer
        self._costs = Costs()
        self._recorders = Recorders.of(self.model) if record else None

    @classmethod
    def from_checkpoint(cls, path: str | Path, device: str = "cpu", dtype: str = "float32") -> Engine:
        """Load the model and the tokenizer of a checkpoint, of a run's newest whole one, or of the packaged `demo`.

        Args:
            path: folder of a checkpoint or a run; `demo` if no folder has that name.
            device: where to run.
            dtype: float32, bfloat16 (faster on a GPU), or float64 (texts do not depend on the batch at all).

        Raises:
            UsageError, CheckpointError: nothing there, or damaged.
        """
        if dtype not in DTYPES:
            raise UsageError(f"dtype: must be one of {', '.join(DTYPES)}, not {dtype}.")
        folder = checkpoint_path(path)
        model, config, manifest = load_model(folder, device)
        tokenizer = tokenizer_of_checkpoint(config.run.tokenizer, manifest.tokenizer, folder)
        return cls(model.to(DTYPES[dtype]), tokenizer)

    def settle(self) -> None:
        """Make this process one that generates. For whole processes, once their model is loaded.

        On a CPU a small model runs on one thread, unless OMP_NUM_THREADS says otherwise: one token's products are too
        small to share, and with two threads on two busy cores `demo` was 20 times slower.

        Beside a CUDA device Python's garbage collections pass over what is loaded by now. Tokens and requests make one
        necessary now and then, and the libraries' hundreds of thousands of objects keep it busy for hundreds of passes.
        """
        weight = self.model.embed.weight
        size = sum(parameter.numel() for parameter in self.model.parameters())
        if weight.device.type == "cpu" and size < _SMALL and "OMP_NUM_THREADS" not in os.environ:
            torch.set_num_threads(1)
        if weight.device.type == "cuda" and not gc.get_freeze_count():
            gc.collect()
            gc.freeze()

    @property
    def context(self) -> int:
        """Most tokens of prompt and continuation together."""
        return self.model.rope_gdn.positions

    def encode(self, prompt: str | bytes) -> tuple[int, ...]:
        """A prompt as the model reads it: bos, then the tokens of the text."""
        return (self.tokenizer.bos_id, *self.tokenizer.encode(prompt).tolist())

    def room(self, prompt: str | bytes) -> int:
        """Most tokens that the context leaves for a continuation."""
        return self.context - len(self.encode(prompt))

    def scheduler(self, slots: int = 16, token_budget: int | None = None, chunk: int | None = None) -> Scheduler:
        """A batch of its own to submit requests to; arguments as there."""
        return Scheduler(self.model, self.tokenizer, slots, token_budget, chunk, self._costs, self._recorders)

    def new_speculation(self) -> Speculation:
        """Empty counters, to add up those of several texts."""
        depth = self.model.config.mtp_depth
        require_heads(depth)
        return Speculation([0] * depth, [0] * depth)

    def generate(
        self,
        prompt: str | bytes,
        max_new_tokens: int = 256,
        sampling: Sampling | None = None,
        speculative: Drafts = False,
        stop: Sequence[str] = (),
        alternatives: int = 0,
    ) -> Generation:
        """Continue one prompt.

        Args:
            prompt: text; empty starts a document.
            max_new_tokens: most tokens to generate.
            sampling: how tokens are drawn.
            speculative: let the prediction heads draft: True always as far as they see, a number so far, "auto" as far
                as it pays. The text is the same.
            stop: strings that end the text, which they are not part of.
            alternatives: most likely tokens to report with each token.

        Raises:
            UsageError: nothing to generate, more tokens than the context holds, or drafts from a model without heads.
        """
        request = self.request(prompt, max_new_tokens, sampling, speculative, stop, alternatives)
        return self.run([request], slots=1)[0][0]

    def stream(
        self,
        prompt: str | bytes,
        max_new_tokens: int = 256,
        sampling: Sampling | None = None,
        speculative: Drafts = False,
        stop: Sequence[str] = (),
        alternatives: int = 0,
    ) -> Stream:
        """The same text in chunks. Arguments as in `generate`, errors too, before the first chunk."""
        scheduler = self.scheduler(slots=1)
        job = scheduler.submit(self.request(prompt, max_new_tokens, sampling, speculative, stop, alternatives))
        return Stream(scheduler, job)

    def request(
        self,
        prompt: str | bytes,
        max_new_tokens: int = 256,
        sampling: Sampling | None = None,
        speculative: Drafts = False,
        stop: Sequence[str] = (),
        alternatives: int = 0,
        n: int = 1,
    ) -> Request:
        """A request for `run` or a scheduler. Arguments as in `generate`; `n` continuations."""
        rule = Sampling() if sampling is None else sampling
        return Request(self.encode(prompt), max_new_tokens, rule, n, tuple(stop), alternatives, speculative=speculative)

    def run(self, requests: Sequence[Request], slots: int = 16) -> list[list[Generation]]:
        """Run requests, up to `slots` texts in one batch, and return the continuations of each.

        Raises:
            UsageError: a request that cannot be done, before any of them runs.
        """
        scheduler = self.scheduler(slots)
        jobs = [scheduler.submit(request) for request in requests]
        while not scheduler.idle:
            scheduler.step()
        return [job.generations() for job in jobs]
