"""`hymo generate`: continue a prompt."""

from __future__ import annotations

import codecs
import os
import sys
import time
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from hymo.cli.options import Json
from hymo.cli.output import log, print_json

_MOST = 256
"""Tokens to generate unless asked for another number."""


def generate(
    checkpoint: Path,
    prompt: str = "",
    /,
    *,
    max_new_tokens: int | None = None,
    temperature: float = 0.8,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    repetition_penalty: float = 1.0,
    seed: int | None = None,
    speculative: Annotated[bool, Parameter(negative="")] = False,
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto",
    json: Json = False,
) -> None:
    """Continue a prompt, streaming to stdout.

    Args:
        checkpoint: Checkpoint folder, or a run folder (its newest whole checkpoint).
        prompt: Text to continue; empty starts a document.
        max_new_tokens: Most tokens to generate; 256, or what the context leaves, unless given.
        temperature: 0 takes the most likely token each time.
        top_k: Keep only the k most likely tokens; 0 keeps all.
        top_p: Keep the smallest set of tokens whose probability reaches p.
        min_p: Keep tokens at least this share as likely as the most likely.
        repetition_penalty: Above 1 makes tokens seen before less likely.
        seed: Seed of the draw; a fresh one unless given.
        speculative: Let the prediction heads draft; faster where they are right, same distribution of texts.
        device: Where to run.
        json: Write text, tokens and log-probabilities as JSON instead of streaming.
    """
    from hymo.inference import Engine, Sampling
    from hymo.training.device import resolve_device

    given = os.fsencode(prompt)  # bytes that are no UTF-8 stay what they are
    shown = given.decode("utf-8", "replace")
    sampling = Sampling(temperature, top_k, top_p, min_p, repetition_penalty, seed)
    engine = Engine.from_checkpoint(checkpoint, str(resolve_device(device)))
    if max_new_tokens is None:
        max_new_tokens = max(1, min(_MOST, engine.room(given)))
    if json:
        result = engine.generate(given, max_new_tokens, sampling, speculative)
        print_json(
            {
                "prompt": shown,
                "text": result.text,
                "tokens": result.tokens,
                "logprobs": result.logprobs,
                "finish_reason": result.finish_reason,
                "acceptance": None if result.speculation is None else result.speculation.acceptance,
                "tokens_per_pass": None if result.speculation is None else result.speculation.tokens_per_pass,
            }
        )
        return
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    stats = engine.new_speculation() if speculative else None
    tokens = engine.stream(given, max_new_tokens, sampling, stats)
    sys.stdout.write(shown)
    began, count = time.perf_counter(), 0
    for token in tokens:
        count += 1
        sys.stdout.write(decoder.decode(engine.tokenizer.decode_bytes([token.id])))
        sys.stdout.flush()
    sys.stdout.write(decoder.decode(b"", final=True) + "\n")
    drafts = ""
    if stats is not None:
        rates = " / ".join(f"{a:.0%}" for a in stats.acceptance)
        drafts = f", {stats.tokens_per_pass:.2f} tokens a pass, drafts accepted {rates}"
    log(f"{count} tokens, {count / (time.perf_counter() - began):.0f} tokens/s{drafts}")
