"""Bodies of requests: what is known, what is refused by name, and what they ask of the engine."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hymo.core.errors import HymoError, nearest
from hymo.inference.engine import Engine
from hymo.inference.request import Request
from hymo.inference.sampling import Sampling

_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "best_of": (1,),
    "suffix": ("",),
    "logit_bias": ({},),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "user": (),
}
"""Fields of OpenAI's API without an effect here, and the values that mean none; null does too."""
_OURS = {"max_new_tokens": "max_tokens", "slots": "n"}
"""Names of the engine's fields in a body, where they differ."""

_FORMS = {
    "prompt": "must be a string, a list of strings, a list of token ids, or a list of such lists",
    "stop": "must be a string or a list of strings",
    "speculative": "must be true, false, 'auto' or a number of drafts",
}
"""What fields of several types may be."""
_LONGEST_NAME = 64
"""Characters of a client's own name that an error repeats."""


class RequestError(Exception):
    """A request that is answered with an error.

    Args:
        status: HTTP status.
        message: what is wrong and what to do.
        param: the field it is about.
        code: a short name for programs.
    """

    def __init__(self, status: int, message: str, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message, param, code

    def body(self) -> dict[str, Any]:
        """As OpenAI's API has it."""
        kind = {401: "authentication_error", 429: "rate_limit_error"}.get(self.status, "invalid_request_error")
        if self.status >= 500:
            kind = "server_error"
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}


def shown(name: str) -> str:
    """A name that a client made up, fit for an answer: not long, and without surrogates, which UTF-8 cannot hold."""
    cut = name if len(name) <= _LONGEST_NAME else name[:_LONGEST_NAME] + "..."
    return cut.encode("utf-8", "replace").decode("utf-8")


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class StreamOptions(_Body):
    """Options of a stream."""

    include_usage: bool = False


class CompletionBody(_Body):
    """POST /v1/completions."""

    model: str | None = None
    prompt: str | list[str] | list[int] | list[list[int]] = ""
    max_tokens: int = 16
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    n: int = 1
    seed: int | None = None
    stop: str | list[str] = Field(default_factory=list)
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    echo: bool = False
    stream: bool = False
    stream_options: StreamOptions | None = None
    speculative: Literal["auto"] | bool | int | None = None
    tokens: bool = False


class TokenizeBody(_Body):
    """POST /tokenize."""

    model: str | None = None
    prompt: str
    add_special_tokens: bool = True


class DetokenizeBody(_Body):
    """POST /detokenize."""

    model: str | None = None
    tokens: list[int]


BodyType = TypeVar("BodyType", CompletionBody, TokenizeBody, DetokenizeBody)


def parse(data: bytes, kind: type[BodyType]) -> BodyType:
    """Read a body.

    Raises:
        RequestError: 400, naming the field.
    """
    try:
        raw = json.loads(data)
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise RequestError(400, f"The body is no JSON: {reason}.") from None
    if not isinstance(raw, dict):
        raise RequestError(400, "The body must be a JSON object.")
    known = kind.model_fields
    fields = {}
    for name, value in raw.items():
        if kind is CompletionBody and name in _NEUTRAL:
            if value is not None and value not in _NEUTRAL[name]:
                raise RequestError(400, f"{name}: is not supported. Leave it out.", name, "unsupported_field")
        elif name not in known:
            name = shown(name)
            raise RequestError(400, f"{name}: unknown field{nearest(name, known)}.", name, "unknown_field")
        elif value is not None:
            fields[name] = value
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = str(first["loc"][0]) if first["loc"] else "body"
        message = _FORMS.get(name) or f"{first['msg'][:1].lower()}{first['msg'][1:]}"
        raise RequestError(400, f"{name}: {message}.", name, "invalid_value") from None


@dataclass(frozen=True)
class Prompt:
    """One of the prompts of a body."""

    text: str
    """What an echo shows."""
    ids: tuple[int, ...]
    """What the model reads."""
    hidden: int
    """Tokens at its beginning that the client did not send: bos before a text."""


def read_prompts(body: CompletionBody, engine: Engine) -> list[Prompt]:
    """The prompts of a body: a text gets a bos in front, ids are taken as they are.

    Raises:
        RequestError: 400.
    """
    given = body.prompt
    prompts: list[str | list[int]]
    if isinstance(given, str):
        prompts = [given]
    elif given and all(isinstance(item, int) for item in given):
        prompts = [[item for item in given if isinstance(item, int)]]
    else:
        prompts = [item for item in given if not isinstance(item, int)]
    if not prompts:
        raise RequestError(400, "prompt: is an empty list. Give at least one prompt.", "prompt", "invalid_value")
    found = []
    for prompt in prompts:
        try:
            if isinstance(prompt, str):
                found.append(Prompt(prompt, engine.encode(prompt), 1))
            else:
                found.append(Prompt(_decoded(engine, prompt), tuple(prompt), 0))
        except HymoError as error:
            raise RequestError(400, f"prompt: {error}", "prompt", "invalid_value") from None
    return found


def _decoded(engine: Engine, ids: list[int]) -> str:
    return engine.tokenizer.decode(ids) if all(0 <= i < 2**31 for i in ids) else ""


def to_requests(body: CompletionBody, prompts: list[Prompt], default_drafts: Literal["auto"] | bool) -> list[Request]:
    """What a body asks of the engine.

    Raises:
        UsageError: a value out of range.
    """
    sampling = Sampling(body.temperature, body.top_k, body.top_p, body.min_p, body.repetition_penalty, body.seed)
    stop = (body.stop,) if isinstance(body.stop, str) else tuple(body.stop)
    scored = body.echo and (body.logprobs is not None or body.max_tokens == 0)
    return [
        Request(
            prompt.ids,
            body.max_tokens,
            sampling,
            body.n,
            stop,
            body.logprobs or 0,
            score_prompt=scored,
            speculative=default_drafts if body.speculative is None else body.speculative,
        )
        for prompt in prompts
    ]


def refused(error: HymoError, known: type[BaseModel] = CompletionBody) -> RequestError:
    """The answer to a request that the engine refuses: its message, with the field's name in a body."""
    message = str(error)
    name, colon, rest = message.partition(":")
    name = _OURS.get(name, name)
    if colon and name in known.model_fields:
        return RequestError(400, f"{name}:{rest}", name, "invalid_value")
    code = "context_length_exceeded" if "exceed the context" in message else "invalid_value"
    return RequestError(400, message, "prompt" if code.startswith("context") else None, code)
