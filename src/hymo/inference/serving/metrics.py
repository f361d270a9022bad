"""Figures of the server for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)


class Metrics:
    """Counters of one server."""

    def __init__(self) -> None:
        registry = CollectorRegistry()
        self._registry = registry
        self._requests = Counter(
            "hymo_requests",
            "Completion requests by HTTP status; 499 is a client that left.",
            ["status"],
            registry=registry,
        )
        self._prompt = Counter("hymo_prompt_tokens", "Tokens of accepted prompts.", registry=registry)
        self._generated = Counter("hymo_generated_tokens", "Tokens generated for finished requests.", registry=registry)
        self._proposed = Counter("hymo_draft_tokens_judged", "Drafts that the model judged.", registry=registry)
        self._accepted = Counter("hymo_draft_tokens_accepted", "Drafts that it kept.", registry=registry)
        self._active = Gauge("hymo_active_texts", "Continuations under way.", registry=registry)
        self._waiting = Gauge("hymo_waiting_requests", "Requests without a row.", registry=registry)
        self._state = Gauge("hymo_decode_state_bytes", "Memory of the decode state.", registry=registry)
        self._first = Histogram(
            "hymo_time_to_first_token_seconds",
            "From the request to its first token.",
            buckets=_SECONDS,
            registry=registry,
        )
        self._whole = Histogram(
            "hymo_request_seconds", "From the request to its end.", buckets=_SECONDS, registry=registry
        )

    def load(self, active: int, waiting: int, state_bytes: int) -> None:
        """The load after a pass."""
        self._active.set(active)
        self._waiting.set(waiting)
        self._state.set(state_bytes)

    def answered(self, status: int, seconds: float) -> None:
        """A request has ended."""
        self._requests.labels(str(status)).inc()
        if status == 200:
            self._whole.observe(seconds)

    def first_token(self, seconds: float) -> None:
        """A request got its first token."""
        self._first.observe(seconds)

    def tokens(self, prompt: int, generated: int, proposed: int, accepted: int) -> None:
        """What a request came to."""
        self._prompt.inc(prompt)
        self._generated.inc(generated)
        self._proposed.inc(proposed)
        self._accepted.inc(accepted)

    def text(self) -> bytes:
        """In Prometheus' text format."""
        return generate_latest(self._registry)
