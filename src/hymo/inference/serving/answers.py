"""From continuations to the JSON of OpenAI's completions API."""

from __future__ import annotations

import codecs
import time
import uuid
from collections.abc import Sequence
from typing import Any

from hymo.data.tokenizer import Tokenizer
from hymo.inference.choice import Choice, Job
from hymo.inference.request import Scored, Token
from hymo.inference.serving.protocol import CompletionBody, Prompt


class _Cursor:
    """Where in the shown text the next token begins, in characters."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._place = 0

    def pass_over(self, data: bytes) -> int:
        """Go past a token; return where it began."""
        began = self._place
        self._place += len(self._decoder.decode(data))
        return began


class Answer:
    """One response: its prompts, its continuations, and how they are told."""

    def __init__(self, body: CompletionBody, model: str, tokenizer: Tokenizer, prompts: Sequence[Prompt]) -> None:
        self.body, self.prompts = body, prompts
        self._tokenizer = tokenizer
        self._names = {tokenizer.eos_id: "<|endoftext|>", tokenizer.bos_id: "<|bos|>", tokenizer.pad_id: "<|pad|>"}
        self._head = {
            "id": f"cmpl-{uuid.uuid4().hex}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": model,
        }
        self._cursors: dict[int, _Cursor] = {}

    def whole(self, jobs: Sequence[Job]) -> dict[str, Any]:
        """The response that is not streamed."""
        choices = []
        for place, job in enumerate(jobs):
            for choice in job.choices:
                generation = choice.generation()
                prompt = self.prompts[place] if self.body.echo else None
                choices.append(
                    self._choice(place, choice, generation.text, generation.details, prompt, generation.finish_reason)
                )
        return {**self._head, "choices": choices, "usage": self.usage(jobs)}

    def opening(self, place: int, choice: Choice) -> dict[str, Any]:
        """The chunk of a stream that echoes the prompt."""
        return self._chunk([self._choice(place, choice, "", [], self.prompts[place], None)])

    def part(self, place: int, choice: Choice, text: str, tokens: Sequence[Token], last: bool) -> dict[str, Any]:
        """A chunk of a stream."""
        reason = choice.finish_reason if last else None
        return self._chunk([self._choice(place, choice, text, tokens, None, reason)])

    def closing(self, jobs: Sequence[Job]) -> dict[str, Any]:
        """The chunk that only tells the usage."""
        return {**self._head, "choices": [], "usage": self.usage(jobs)}

    def usage(self, jobs: Sequence[Job]) -> dict[str, int]:
        """Tokens read and generated; a prompt counts once whatever `n` is, its bos included."""
        read = sum(len(job.request.prompt) for job in jobs)
        written = sum(choice.drawn for job in jobs for choice in job.choices)
        return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}

    def _chunk(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        asked = self.body.stream_options is not None and self.body.stream_options.include_usage
        return {**self._head, "choices": choices, **({"usage": None} if asked else {})}

    def _choice(
        self,
        place: int,
        choice: Choice,
        text: str,
        tokens: Sequence[Token],
        echoed: Prompt | None,
        reason: str | None,
    ) -> dict[str, Any]:
        index = place * self.body.n + choice.index
        said: dict[str, Any] = {
            "index": index,
            "text": text if echoed is None else echoed.text + text,
            "logprobs": None,
            "finish_reason": reason,
        }
        if self.body.logprobs is not None:
            scored: Sequence[Scored] = choice.job.scored[echoed.hidden :] if echoed is not None else ()
            cursor = self._cursors.setdefault(index, _Cursor())
            said["logprobs"] = self._logprobs([*scored, *tokens], cursor)
        if self.body.tokens:
            said["tokens"] = [self._details(token) for token in tokens]
        return said

    def _logprobs(self, tokens: Sequence[Token | Scored], cursor: _Cursor) -> dict[str, Any]:
        offsets = [cursor.pass_over(self._tokenizer.decode_bytes([token.id])) for token in tokens]
        tops: list[dict[str, float] | None] = []
        for token in tokens:
            if token.logprob is None:
                tops.append(None)
            else:
                top = {self._text(i): value for i, value in token.top}
                tops.append({**top, self._text(token.id): token.logprob})
        return {
            "tokens": [self._text(token.id) for token in tokens],
            "token_logprobs": [token.logprob for token in tokens],
            "top_logprobs": tops if self.body.logprobs else None,
            "text_offset": offsets,
        }

    def _details(self, token: Token) -> dict[str, Any]:
        top = [{"id": i, "text": self._text(i), "logprob": value} for i, value in token.top]
        return {
            "id": token.id,
            "text": self._text(token.id),
            "bytes": list(self._tokenizer.decode_bytes([token.id])),
            "logprob": token.logprob,
            "drafted": token.drafted,
            "top": top,
        }

    def _text(self, token: int) -> str:
        """A token as a string of its own: specials by name, parts of characters as `bytes:\\xe2`."""
        if token in self._names:
            return self._names[token]
        data = self._tokenizer.decode_bytes([token])
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)
