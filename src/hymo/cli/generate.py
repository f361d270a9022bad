"""`hymo generate`: continue prompts."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from hymo.cli.options import Json
from hymo.cli.output import log, print_json

if TYPE_CHECKING:
    from hymo.inference import Engine, Generation, Request
    from hymo.inference.request import Drafts

_MOST = 256
"""Tokens to generate unless asked for another number."""


def generate(
    checkpoint: Path,
    prompt: str = "",
    /,
    *,
    prompts: Path | None = None,
    max_new_tokens: int | None = None,
    temperature: float = 0.8,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    repetition_penalty: float = 1.0,
    stop: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    n: int = 1,
    seed: int | None = None,
    logprobs: int = 0,
    speculative: Annotated[bool, Parameter(negative="")] = False,
    draft_depth: int | None = None,
    batch_size: int = 16,
    dtype: Literal["float32", "float64", "bfloat16"] = "float32",
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto",
    json: Json = False,
) -> None:
    """Continue a prompt, streaming to stdout, or several in one batch.

    Args:
        checkpoint: Checkpoint folder, run folder (its newest whole checkpoint), or `demo`, which hymo brings along.
        prompt: Text to continue; empty starts a document.
        prompts: File with a prompt per line (.txt), or a JSON string or an object with a field `prompt` (.jsonl).
        max_new_tokens: Most tokens to generate; 256, or what the context leaves, unless given.
        temperature: 0 takes the most likely token each time.
        top_k: Keep only the k most likely tokens; 0 keeps all.
        top_p: Keep the smallest set of tokens whose probability reaches p.
        min_p: Keep tokens at least this share as likely as the most likely.
        repetition_penalty: Above 1 makes tokens seen before less likely.
        stop: End at this string, which is not written. May be repeated.
        n: Continuations of each prompt.
        seed: Seed of the draw; a fresh one unless given.
        logprobs: Report this many most likely tokens in each place; needs --json.
        speculative: Let the prediction heads draft where that is faster; the text is the same.
        draft_depth: Always draft so many tokens, with --speculative.
        batch_size: Most continuations at once.
        dtype: What to compute in. In float64 a text does not depend on the batch at all.
        device: Where to run.
        json: Write text, tokens and log-probabilities as JSON instead of streaming.
    """
    from hymo.core.errors import UsageError
    from hymo.inference import Engine, Sampling
    from hymo.training.device import resolve_device

    if logprobs and not json:
        raise UsageError("--logprobs: needs --json. Add it, or leave --logprobs out.")
    if draft_depth is not None and not speculative:
        raise UsageError("--draft-depth: needs --speculative. Add it, or leave --draft-depth out.")
    if prompts is not None and prompt:
        raise UsageError("--prompts: names the prompts. Leave PROMPT out, or --prompts.")
    if batch_size < 1:
        raise UsageError(f"--batch-size: must be at least 1, not {batch_size}.")
    given = [os.fsencode(prompt)] if prompts is None else read_prompts(prompts)  # bytes that are no UTF-8 stay so
    sampling = Sampling(temperature, top_k, top_p, min_p, repetition_penalty, seed)
    engine = Engine.from_checkpoint(checkpoint, str(resolve_device(device)), dtype)
    engine.settle()
    drafts: Drafts = (draft_depth if draft_depth is not None else "auto") if speculative else False

    def request(text: bytes) -> Request:
        most = max(1, min(_MOST, engine.room(text))) if max_new_tokens is None else max_new_tokens
        return engine.request(text, most, sampling, drafts, stop, logprobs, n)

    requests = [request(text) for text in given]
    if not json and len(requests) == 1 and n == 1:
        _stream(engine, given[0], requests[0])
        return
    began = time.perf_counter()
    found = engine.run(requests, slots=max(batch_size, n))
    seconds = time.perf_counter() - began
    if json:
        said = [
            _as_json(engine, text, one, logprobs) for text, results in zip(given, found, strict=True) for one in results
        ]
        print_json(said[0] if prompts is None and n == 1 else said)
        return
    for text, results in zip(given, found, strict=True):
        for index, result in enumerate(results, 1):
            print(f"--- {index} of {n}" if n > 1 else "---")
            print(_shown(text) + result.text)
    _report(engine, [result for results in found for result in results], seconds)


def read_prompts(path: Path) -> list[bytes]:
    """The prompts of a file: its lines, or for `.jsonl` the strings on them.

    Raises:
        UsageError: no such file, none in it, or a line that is no prompt.
    """
    import json

    from hymo.core.errors import UsageError

    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror}). Name a file of prompts.") from None
    prompts = []
    for number, line in enumerate(lines, 1):
        if path.suffix != ".jsonl":
            prompts.append(line)
            continue
        if not line.strip():
            continue
        try:
            value = json.loads(line)
            text = value["prompt"] if isinstance(value, dict) else value
            prompts.append(text.encode("utf-8"))
        except (ValueError, KeyError, AttributeError, TypeError):
            raise UsageError(f"{path}:{number}: no JSON string and no object with a field 'prompt'.") from None
    if not prompts:
        raise UsageError(f"{path}: holds no prompt.")
    return prompts


def _stream(engine: Engine, prompt: bytes, request: Request) -> None:
    """Write prompt and continuation as it comes."""
    stream = engine.stream(prompt, request.max_new_tokens, request.sampling, request.speculative, request.stop)
    sys.stdout.write(_shown(prompt))
    began = time.perf_counter()
    for chunk in stream:
        sys.stdout.write(chunk.text)
        sys.stdout.flush()
    sys.stdout.write("\n")
    _report(engine, [stream.generation], time.perf_counter() - began)


def _report(engine: Engine, results: Sequence[Generation], seconds: float) -> None:
    count = sum(len(result.tokens) for result in results)
    drafts = ""
    if results[0].speculation is not None:
        total = engine.new_speculation()
        for result in results:
            if result.speculation is not None:
                total.add(result.speculation)
        rates = " / ".join(f"{a:.0%}" for a in total.acceptance)
        drafts = f", {total.tokens_per_pass:.2f} tokens a pass, drafts accepted {rates}"
    log(f"{count} tokens, {count / seconds:.0f} tokens/s{drafts}")


def _shown(prompt: bytes) -> str:
    return prompt.decode("utf-8", "replace")


def _as_json(engine: Engine, prompt: bytes, result: Generation, alternatives: int) -> dict[str, Any]:
    speculation = result.speculation
    said: dict[str, Any] = {
        "prompt": _shown(prompt),
        "text": result.text,
        "tokens": result.tokens,
        "logprobs": result.logprobs,
        "finish_reason": result.finish_reason,
        "acceptance": None if speculation is None else speculation.acceptance,
        "tokens_per_pass": None if speculation is None else speculation.tokens_per_pass,
    }
    if alternatives:
        said["top"] = [
            [{"id": id, "text": engine.tokenizer.decode([id]), "logprob": value} for id, value in token.top]
            for token in result.details
        ]
    return said
