"""How fast a model reads prompts and generates on this machine."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from hymo.core.config import HyMoConfig
from hymo.core.errors import UsageError
from hymo.core.load import load_config
from hymo.data import ByteTokenizer, sample_paths
from hymo.inference.choice import Choice
from hymo.inference.drafting import Speculation
from hymo.inference.engine import DTYPES, Engine
from hymo.inference.packaged import DEMO
from hymo.inference.request import Drafts, Request
from hymo.inference.sampling import Sampling
from hymo.models import build_hymo

_WARM_UP = 8
"""Passes that generate before anything is measured."""


@dataclass(frozen=True)
class DecodeTiming:
    """One measurement; times are wall clock, all work of the engine included."""

    config: str
    """Preset, file or checkpoint."""
    impl: str
    phase: str
    """prefill or decode."""
    batch: int
    context: int
    """Tokens of each prompt."""
    drafts: str
    """Tokens that were drafted a pass."""
    tok_per_s: float
    """Tokens of prompts read, or generated, of all texts together."""
    tokens: int
    """Tokens measured."""
    acceptance: list[float] | None
    """Share of judged drafts that were kept, by depth."""
    tokens_per_pass: float | None
    """Per text."""
    state_bytes: int
    """Memory of the decode state."""

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)


def open_target(target: str, device: str, dtype: str) -> tuple[Engine, bool]:
    """The engine of a checkpoint, or of a configuration with random weights; and whether it is trained.

    Raises:
        UsageError: neither.
    """
    if target == DEMO or Path(target).is_dir():
        return Engine.from_checkpoint(target, device, dtype), True
    config: HyMoConfig = load_config(target)
    tokenizer = ByteTokenizer()
    if config.model.vocab_size < tokenizer.vocab_size:
        raise UsageError(f"{target}: a vocabulary of {config.model.vocab_size} is too small to measure with.")
    return Engine(build_hymo(config, device=device).to(DTYPES[dtype]), tokenizer), False


def bench_decode(
    target: str,
    device: str = "cpu",
    dtype: str = "float32",
    batches: Sequence[int] = (1, 4, 16),
    context: int = 128,
    new_tokens: int = 64,
    drafts: Sequence[Drafts] = (False,),
) -> list[DecodeTiming]:
    """Measure prefill and decoding at several batch sizes.

    Args:
        target: checkpoint or run folder, `demo`, or a configuration, which gets random weights.
        device: where to run.
        dtype: what to compute in.
        batches: numbers of texts at once.
        context: tokens of each prompt; held-out text for a checkpoint.
        new_tokens: tokens to generate for each text.
        drafts: draft depths to measure, fewer first: where one is measured, recordings of more would serve it.

    Raises:
        UsageError: sizes that the context does not hold, or drafts without prediction heads.
    """
    engine, trained = open_target(target, device, dtype)
    if min(batches, default=0) < 1 or context < 1 or new_tokens < 2:
        raise UsageError("--batch and --context: must be at least 1, --new-tokens at least 2.")
    rows = []
    for batch in batches:
        alone = Engine(engine.model, engine.tokenizer)  # recordings of a larger batch would serve this one
        for depth in drafts:
            rows += _measure(alone, target, trained, batch, context, new_tokens, depth)
    return rows


def _measure(
    engine: Engine, target: str, trained: bool, batch: int, context: int, new_tokens: int, drafts: Drafts
) -> list[DecodeTiming]:
    prompts = _prompts(engine, trained, batch, context)

    def run(new: int, most: int | None = None) -> tuple[list[Choice], float, int, int]:
        """The texts, seconds from the first token on (from the start for one token), tokens then, state bytes.

        After `most` passes the texts are given up.
        """
        scheduler = engine.scheduler(slots=batch)
        requests = [Request(p, new, Sampling(seed=place), speculative=drafts) for place, p in enumerate(prompts)]
        jobs = [scheduler.submit(request) for request in requests]
        texts = [job.choices[0] for job in jobs]
        began, before, state = time.perf_counter(), 0, 0
        while any(text.drawn == 0 for text in texts):
            scheduler.step()
            state = max(state, scheduler.bytes_used)
        if new > 1:
            began, before = time.perf_counter(), sum(text.drawn for text in texts)
        passes = 0
        while not scheduler.idle:
            scheduler.step()
            state = max(state, scheduler.bytes_used)
            passes += 1
            if passes == most:
                for job in jobs:
                    scheduler.cancel(job)
        return texts, time.perf_counter() - began, before, state

    run(new_tokens, _WARM_UP)  # with the room of the measured run: what is recorded for it stays
    _, reading, _, _ = run(1)
    texts, writing, before, state = run(new_tokens)
    written = sum(text.drawn for text in texts) - before
    total = engine.new_speculation() if drafts else None
    for text in texts:
        if total is not None and text.speculation is not None:
            total.add(text.speculation)
    depth = engine.model.config.mtp_depth if drafts is True else int(drafts) if drafts != "auto" else drafts

    def row(phase: str, tokens: int, seconds: float, stats: Speculation | None) -> DecodeTiming:
        return DecodeTiming(
            config=target,
            impl="hymo",
            phase=phase,
            batch=batch,
            context=context,
            drafts=str(depth),
            tok_per_s=tokens / seconds,
            tokens=tokens,
            acceptance=None if stats is None else stats.acceptance,
            tokens_per_pass=None if stats is None else stats.tokens_per_pass,
            state_bytes=state,
        )

    rows = [] if drafts else [row("prefill", batch * context, reading, None)]
    return [*rows, row("decode", written, writing, total)]


def _prompts(engine: Engine, trained: bool, batch: int, context: int) -> list[tuple[int, ...]]:
    """As many prompts of a length: pieces of the packaged held-out text, or random tokens."""
    bos = engine.tokenizer.bos_id
    if trained:
        text = engine.tokenizer.encode(sample_paths()["validation"].read_bytes())
        step = max(1, (len(text) - context) // batch)
        starts = [(place * step) % max(1, len(text) - context) for place in range(batch)]
        return [(bos, *text[start : start + context - 1].tolist()) for start in starts]
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randint(3, engine.tokenizer.vocab_size, (batch, context - 1), generator=generator)
    return [(bos, *row) for row in drawn.tolist()]
