"""The HTTP side: routes, limits, keys and streams. One event loop, one worker thread for the model.

Everything that can be refused is refused before any work: size and form of the body, unknown fields, values, context,
and a full queue. A client that leaves takes its requests with it.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Literal

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from hymo.core.errors import HymoError
from hymo.core.version import VERSION
from hymo.inference.engine import Engine
from hymo.inference.request import require_heads
from hymo.inference.serving.answers import Answer
from hymo.inference.serving.metrics import Metrics
from hymo.inference.serving.protocol import (
    CompletionBody,
    DetokenizeBody,
    RequestError,
    TokenizeBody,
    parse,
    read_prompts,
    refused,
    shown,
    to_requests,
)
from hymo.inference.serving.worker import Failed, QueueFull, Ticket, Update, Worker

_PUBLIC = ("/", "/health")
_LEFT = 499
"""Status of a client that did not wait, in the metrics."""
_PAGE_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; img-src data:"
)


@dataclass(frozen=True)
class Settings:
    """How a server behaves."""

    model: str
    """Name that it goes by."""
    slots: int = 16
    """Most continuations at once."""
    token_budget: int | None = None
    """Most tokens that the decode state may have to hold; full contexts for all slots unless given."""
    max_waiting: int = 256
    """Most requests that wait for a slot; more are answered with 429."""
    max_body: int = 4 << 20
    """Most bytes of a body; more are answered with 413."""
    body_seconds: float = 30.0
    """Longest time for a body to arrive; later ones are answered with 408."""
    api_key: str | None = None
    """Key that clients must show as a bearer token; none is asked for unless given."""
    speculative: Literal["auto"] | bool = "auto"
    """Drafting for requests that do not say."""


def create_app(engine: Engine, settings: Settings, report: Callable[[str], None] = print) -> Starlette:
    """The application, ready for an ASGI server.

    Args:
        engine: what generates.
        settings: see there.
        report: takes a line for the log.

    Raises:
        UsageError: drafts for every request, from a model without prediction heads.
    """
    if settings.speculative is True:
        require_heads(engine.model.config.mtp_depth)
    server = _Server(engine, settings, report)
    routes = [
        Route("/", server.playground),
        Route("/health", server.health),
        Route("/metrics", server.metrics_text),
        Route("/v1/models", server.models),
        Route("/v1/models/{name:path}", server.one_model),
        Route("/v1/completions", server.completions, methods=["POST"]),
        Route("/v1/chat/completions", server.chat, methods=["POST"]),
        Route("/tokenize", server.tokenize, methods=["POST"]),
        Route("/detokenize", server.detokenize, methods=["POST"]),
    ]
    routes = [Route(r.path, server.guarded(r.endpoint), methods=list(r.methods or ["GET"])) for r in routes]
    handlers: dict[Any, Callable[[Request, Any], Awaitable[Response]]] = {
        HTTPException: _no_such_place,
        Exception: _failed,
    }
    app = Starlette(routes=routes, lifespan=server.lifespan, exception_handlers=handlers)
    app.state.worker = server.worker
    return app


@dataclass
class _Outcome:
    """How a stream went."""

    began: float
    status: int = _LEFT


class _EventStream(StreamingResponse):
    """Server-sent events, with something to do when they end, however they do: also if they never begin."""

    def __init__(self, events: AsyncIterator[bytes], ended: Callable[[], None]) -> None:
        super().__init__(events, media_type="text/event-stream", headers={"Cache-Control": "no-store"})
        self._ended = ended

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send them."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._ended()


class _Server:
    def __init__(self, engine: Engine, settings: Settings, report: Callable[[str], None]) -> None:
        self.engine, self.settings = engine, settings
        self.metrics = Metrics()
        self.started = int(time.time())
        self.worker = Worker(
            lambda: engine.scheduler(settings.slots, settings.token_budget), settings.max_waiting, self.metrics, report
        )
        drafts = engine.model.config.mtp_depth > 0
        self._drafts: Literal["auto"] | bool = settings.speculative if drafts else False
        self._page = (files("hymo.inference.serving") / "playground.html").read_text(encoding="utf-8")

    @asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        """The worker lives as long as the application."""
        self.worker.start()
        try:
            yield
        finally:
            await asyncio.to_thread(self.worker.stop)

    def guarded(self, endpoint: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        """An endpoint that asks for the key and turns errors into answers."""

        async def call(request: Request) -> Response:
            try:
                self._check_key(request)
                return await endpoint(request)
            except RequestError as error:
                headers = {401: {"WWW-Authenticate": "Bearer"}, 429: {"Retry-After": "1"}}.get(error.status)
                return JSONResponse(error.body(), error.status, headers)
            except ClientDisconnect:
                return Response(status_code=_LEFT)

        return call

    def _check_key(self, request: Request) -> None:
        key = self.settings.api_key
        if key is None or request.scope["path"] in _PUBLIC:  # not `request.url`, which the Host header is part of
            return
        scheme, _, sent = request.headers.get("authorization", "").partition(" ")
        # Headers are decoded as Latin-1: back to the bytes that were sent, which are UTF-8 where a key is not ASCII.
        right = hmac.compare_digest(sent.strip().encode("latin-1"), key.encode("utf-8", "surrogateescape"))
        if scheme.lower() != "bearer" or not right:
            raise RequestError(401, "The key is missing or wrong. Send it as 'Authorization: Bearer KEY'.")

    def _check_model(self, name: str | None) -> None:
        if name is not None and name != self.settings.model:
            message = f"model: '{shown(name)}' is not here, '{self.settings.model}' is."
            raise RequestError(404, message, "model", "model_not_found")

    async def _body(self, request: Request) -> bytes:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise RequestError(415, "The body must be JSON. Send 'Content-Type: application/json'.")
        too_large = RequestError(413, f"The body is larger than {self.settings.max_body} bytes. Send less at once.")
        declared = request.headers.get("content-length", "0")
        if declared.isdigit() and int(declared) > self.settings.max_body:
            raise too_large
        data = bytearray()
        try:
            async with asyncio.timeout(self.settings.body_seconds):
                async for piece in request.stream():
                    data += piece
                    if len(data) > self.settings.max_body:
                        raise too_large
        except TimeoutError:
            raise RequestError(408, f"The body did not arrive within {self.settings.body_seconds:g} s.") from None
        return bytes(data)

    async def playground(self, request: Request) -> Response:
        """GET /: the page."""
        return Response(self._page, media_type="text/html", headers={"Content-Security-Policy": _PAGE_POLICY})

    async def health(self, request: Request) -> Response:
        """GET /health: whether the server works, and its load."""
        alive = self.worker.alive
        facts = {"status": "ok" if alive else "failed", "model": self.settings.model, "version": VERSION}
        load = {"active": self.worker.scheduler.active, "waiting": self.worker.waiting}
        return JSONResponse({**facts, **load, "context": self.engine.context}, 200 if alive else 503)

    async def metrics_text(self, request: Request) -> Response:
        """GET /metrics: for Prometheus."""
        return Response(self.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def models(self, request: Request) -> Response:
        """GET /v1/models."""
        return JSONResponse({"object": "list", "data": [self._model()]})

    async def one_model(self, request: Request) -> Response:
        """GET /v1/models/NAME."""
        self._check_model(request.path_params["name"])
        return JSONResponse(self._model())

    def _model(self) -> dict[str, Any]:
        return {
            "id": self.settings.model,
            "object": "model",
            "created": self.started,
            "owned_by": "hymo",
            "max_model_len": self.engine.context,
            "prediction_heads": self.engine.model.config.mtp_depth,
        }

    async def chat(self, request: Request) -> Response:
        """POST /v1/chat/completions: refused, since a base model has no template."""
        raise RequestError(
            400, "This model has no chat template. Use /v1/completions with a prompt.", "messages", "no_chat_template"
        )

    async def tokenize(self, request: Request) -> Response:
        """POST /tokenize: the ids of a text; with add_special_tokens as a prompt has them."""
        body = parse(await self._body(request), TokenizeBody)
        self._check_model(body.model)
        try:
            ids = await asyncio.to_thread(self.engine.encode, body.prompt)
        except HymoError as error:
            raise RequestError(400, f"prompt: {error}", "prompt", "invalid_value") from None
        ids = ids if body.add_special_tokens else ids[1:]
        return JSONResponse({"tokens": list(ids), "count": len(ids), "max_model_len": self.engine.context})

    async def detokenize(self, request: Request) -> Response:
        """POST /detokenize: the text of ids."""
        body = parse(await self._body(request), DetokenizeBody)
        self._check_model(body.model)
        size = self.engine.tokenizer.vocab_size
        wrong = next((i for i in body.tokens if not 0 <= i < size), None)
        if wrong is not None:
            message = f"tokens: {wrong} is not in the vocabulary (0..{size - 1})."
            raise RequestError(400, message, "tokens", "invalid_value")
        return JSONResponse({"prompt": self.engine.tokenizer.decode(body.tokens)})

    async def completions(self, request: Request) -> Response:
        """POST /v1/completions."""
        began = time.perf_counter()
        status = 500
        try:
            response = await self._complete(request, began)
            status = response.status_code
            if isinstance(response, StreamingResponse):  # counts when it ends
                status = 0
            return response
        except RequestError as error:
            status = error.status
            raise
        except (ClientDisconnect, asyncio.CancelledError):
            status = _LEFT
            raise
        finally:
            if status:
                self.metrics.answered(status, time.perf_counter() - began)

    async def _complete(self, request: Request, began: float) -> Response:
        body = parse(await self._body(request), CompletionBody)
        self._check_model(body.model)
        if body.stream_options is not None and not body.stream:
            raise RequestError(400, "stream_options: needs stream.", "stream_options", "invalid_value")
        prompts = await asyncio.to_thread(read_prompts, body, self.engine)  # megabytes of text take seconds
        if len(prompts) > self.settings.max_waiting:
            message = f"prompt: at most {self.settings.max_waiting} prompts in one request, not {len(prompts)}."
            raise RequestError(400, message, "prompt", "invalid_value")
        try:
            ticket = self.worker.submit(to_requests(body, prompts, self._drafts))
        except HymoError as error:
            raise refused(error) from None
        except QueueFull:
            raise RequestError(429, "Too many requests wait already. Try again later.", None, "queue_full") from None
        except Failed as error:
            raise RequestError(503, f"The model failed: {error}", None, "model_failed") from None
        answer = Answer(body, self.settings.model, self.engine.tokenizer, prompts)
        if body.stream:
            outcome = _Outcome(began)
            return _EventStream(self._stream(ticket, answer, outcome), lambda: self._end_stream(ticket, outcome))
        return await self._wait(request, ticket, answer, began)

    async def _wait(self, request: Request, ticket: Ticket, answer: Answer, began: float) -> Response:
        """The whole answer, unless the client leaves first."""
        reading = asyncio.create_task(self._finish(ticket, began))
        leaving = asyncio.create_task(_left(request))
        try:
            await asyncio.wait((reading, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                raise ClientDisconnect
            reading.result()
        except Failed as error:
            raise RequestError(500, f"The model failed: {error}", None, "model_failed") from None
        finally:
            for task in (reading, leaving):
                task.cancel()
            self._close(ticket)
        return JSONResponse(answer.whole(ticket.jobs))

    async def _finish(self, ticket: Ticket, began: float) -> None:
        async for _ in self._updates(ticket, began):
            pass

    async def _updates(self, ticket: Ticket, began: float) -> AsyncIterator[Update]:
        """All news of a ticket."""
        first = True
        while ticket.open:
            update = await ticket.next()
            if first:
                self.metrics.first_token(time.perf_counter() - began)
                first = False
            ticket.open -= update.finished
            yield update

    async def _stream(self, ticket: Ticket, answer: Answer, outcome: _Outcome) -> AsyncIterator[bytes]:
        """Server-sent events."""
        opened: set[int] = set()
        try:
            async for update in self._updates(ticket, outcome.began):
                if answer.body.echo and id(update.choice) not in opened:
                    opened.add(id(update.choice))
                    yield _event(answer.opening(update.job, update.choice))
                chunk = update.chunk
                yield _event(answer.part(update.job, update.choice, chunk.text, chunk.tokens, update.finished))
            if answer.body.stream_options is not None and answer.body.stream_options.include_usage:
                yield _event(answer.closing(ticket.jobs))
            yield b"data: [DONE]\n\n"
            outcome.status = 200
        except Failed as error:
            outcome.status = 500
            yield _event(RequestError(500, f"The model failed: {error}", None, "model_failed").body())

    def _end_stream(self, ticket: Ticket, outcome: _Outcome) -> None:
        self._close(ticket)
        self.metrics.answered(outcome.status, time.perf_counter() - outcome.began)

    def _close(self, ticket: Ticket) -> None:
        """Free what a ticket still holds and count what it came to."""
        if ticket.open:
            self.worker.cancel(ticket)
        choices = [choice for job in ticket.jobs for choice in job.choices]
        stats = [choice.speculation for choice in choices if choice.speculation is not None]
        self.metrics.tokens(
            sum(len(job.request.prompt) for job in ticket.jobs),
            sum(choice.drawn for choice in choices),
            sum(sum(one.proposed) for one in stats),
            sum(sum(one.accepted) for one in stats),
        )


def _event(value: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace") + b"\n\n"


async def _left(request: Request) -> None:
    """Return when the client has closed the connection."""
    with suppress(RuntimeError):
        while (await request.receive())["type"] != "http.disconnect":
            pass


async def _no_such_place(request: Request, error: Any) -> Response:
    hint = {404: "There is nothing at this path.", 405: "This path does not take that method."}
    message = hint.get(error.status_code, str(error.detail))
    return JSONResponse(RequestError(error.status_code, message).body(), error.status_code, error.headers)


async def _failed(request: Request, error: Any) -> Response:
    return JSONResponse(RequestError(500, "The server failed. Its log says why.").body(), 500)
