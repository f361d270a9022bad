"""The completions API as OpenAI's own client sees it, equal to the engine; and every refusal with its code."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import openai
import pytest
import torch

from hymo.core.errors import UsageError
from hymo.core.load import derive_config, load_config
from hymo.data import ByteTokenizer
from hymo.inference import Engine, Sampling, Scheduler
from hymo.inference.serving.run import listen
from hymo.models import build_hymo
from serving_helpers import Served, serving


@pytest.fixture(scope="module")
def engine() -> Engine:
    shape = {"dim": 32, "gdn_d_inner": 64, "n_routed_experts": 4, "moe_inter_dim": 32, "vocab_size": 261}
    model = build_hymo(derive_config(load_config("hymo_tiny"), model=shape), seed=3)
    with torch.no_grad():
        model.embed.weight.mul_(5)
        model.embed.weight[0] = 0  # eos is rare
    return Engine(model.double(), ByteTokenizer())


@pytest.fixture(scope="module")
def served(engine: Engine) -> Iterator[Served]:
    with serving(engine, slots=8, max_waiting=32, max_body=100_000, body_seconds=0.5) as server:
        yield server


@pytest.fixture(scope="module")
def client(served: Served) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{served.url}/v1", api_key="any", max_retries=0)


def test_the_models_are_listed(client: openai.OpenAI, served: Served) -> None:
    assert [model.id for model in client.models.list()] == ["tiny"]
    assert client.models.retrieve("tiny").owned_by == "hymo"
    with pytest.raises(openai.NotFoundError, match="'other' is not here"):
        client.models.retrieve("other")
    status, _, body = served.request("GET", "/health")
    assert status == 200
    assert json.loads(body)["context"] == 256


def test_a_completion_equals_the_engine(client: openai.OpenAI, engine: Engine) -> None:
    answer = client.completions.create(
        model="tiny", prompt="héllo", max_tokens=30, temperature=0.9, top_p=0.95, seed=4, n=2, stop=["q", "zz"],
        extra_body={"top_k": 50, "min_p": 0.001, "repetition_penalty": 1.1, "speculative": 2},
    )  # fmt: skip
    rule = Sampling(0.9, 50, 0.95, 0.001, 1.1, 4)
    request = engine.request("héllo", 30, rule, stop=("q", "zz"), n=2)
    wanted = engine.run([request])[0]
    assert [choice.text for choice in answer.choices] == [generation.text for generation in wanted]
    assert [choice.finish_reason for choice in answer.choices] == [generation.finish_reason for generation in wanted]
    assert [choice.index for choice in answer.choices] == [0, 1]
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == 7
    assert answer.usage.total_tokens == 7 + answer.usage.completion_tokens
    assert answer.object == "text_completion"
    assert answer.model == "tiny"


@pytest.mark.parametrize("prompt", ["ab", ["ab", "", "é"], [1, 70, 71], [[1, 70], [72], [1]]], ids=str)
def test_every_form_of_prompt(client: openai.OpenAI, engine: Engine, prompt: Any) -> None:
    answer = client.completions.create(model="tiny", prompt=prompt, max_tokens=6, temperature=0, echo=True, n=1)
    forms = [prompt] if isinstance(prompt, str) or isinstance(prompt[0], int) else prompt
    assert len(answer.choices) == len(forms)
    for form, choice in zip(forms, answer.choices, strict=True):
        ids = [1, *engine.tokenizer.encode(form).tolist()] if isinstance(form, str) else form
        shown = form if isinstance(form, str) else engine.tokenizer.decode(form)
        with torch.no_grad():
            for _ in range(6):
                logits = engine.model(torch.tensor([ids]))[0, -1]
                logits[[1, 2, 259, 260]] = -torch.inf
                ids = [*ids, int(logits.argmax())]
                if ids[-1] == 0:
                    break
        assert choice.text == shown + engine.tokenizer.decode(ids[-6:])


@pytest.mark.parametrize("echo", [False, True])
def test_log_probabilities_streamed_and_whole(client: openai.OpenAI, engine: Engine, echo: bool) -> None:
    asked: dict[str, Any] = {"model": "tiny", "prompt": "é→b", "max_tokens": 20, "seed": 5, "logprobs": 3, "echo": echo}
    whole = client.completions.create(**asked).choices[0]
    assert whole.logprobs is not None
    got = whole.logprobs
    tokens, values, tops, offsets = got.tokens, got.token_logprobs, got.top_logprobs, got.text_offset
    assert tokens
    assert values
    assert tops
    assert offsets
    ids = [1, *engine.tokenizer.encode("é→b").tolist()]
    ids += engine.generate("é→b", 20, Sampling(seed=5)).tokens
    with torch.no_grad():
        logits = engine.model(torch.tensor([ids]))[0]
    logits[6:, [1, 2, 259, 260]] = -torch.inf  # of generated tokens: among those that a text can continue with
    own = torch.log_softmax(logits, -1)
    first = 1 if echo else 7
    assert values == pytest.approx([float(own[place - 1, ids[place]]) for place in range(first, len(ids))], abs=1e-9)
    for place, (top, value) in enumerate(zip(tops, values, strict=True), first):
        assert 3 <= len(top) <= 4
        assert value in top.values()
        assert max(top.values()) == pytest.approx(float(own[place - 1, :259].max()), abs=1e-9)
    data, place = b"", 0
    for token, offset in zip(tokens, offsets, strict=True):
        assert offset == len(data.decode("utf-8", "ignore")) or "�" in whole.text
        data += bytes.fromhex(token[6:].replace("\\x", "")) if token.startswith("bytes:") else token.encode()
    assert data.decode("utf-8", "replace") == whole.text
    usage = None
    text, streamed, reasons = "", [], []
    for chunk in client.completions.create(**asked, stream=True, stream_options={"include_usage": True}):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            text += choice.text
            reasons.append(choice.finish_reason)
            if choice.logprobs is not None and choice.logprobs.tokens:
                part = choice.logprobs
                assert part.token_logprobs is not None
                assert part.top_logprobs is not None
                assert part.text_offset is not None
                streamed += zip(part.tokens, part.token_logprobs, part.top_logprobs, part.text_offset, strict=True)
    assert text == whole.text
    assert [row[0] for row in streamed] == tokens
    assert [row[3] for row in streamed] == offsets
    assert [row[1] for row in streamed] == pytest.approx(values, abs=1e-9)
    assert reasons[-1] == whole.finish_reason
    assert set(reasons[:-1]) <= {None}
    assert usage is not None
    assert usage.prompt_tokens == 7


def test_scoring_alone(client: openai.OpenAI, engine: Engine) -> None:
    for logprobs in (0, 1):
        answer = client.completions.create(model="tiny", prompt=[1, 70, 71], max_tokens=0, echo=True, logprobs=logprobs)
        got = answer.choices[0].logprobs
        assert got is not None
        assert got.token_logprobs is not None
        assert got.token_logprobs[0] is None
        assert got.tokens == ["<|bos|>", "C", "D"]
        with torch.no_grad():
            own = torch.log_softmax(engine.model(torch.tensor([[1, 70, 71]]))[0], -1)
        assert got.token_logprobs[1:] == pytest.approx([float(own[0, 70]), float(own[1, 71])], abs=1e-9)
        assert bool(got.top_logprobs) == bool(logprobs)
    assert answer.usage is not None
    assert (answer.usage.completion_tokens, answer.choices[0].finish_reason) == (0, "length")


def test_continuations_that_end_in_one_pass_all_arrive(served: Served) -> None:
    for count in (1, 3, 8):
        choices = served.complete(prompt=["a", "b"][: 2 if count < 8 else 1], n=count, max_tokens=1, seed=1)["choices"]
        assert [choice["finish_reason"] for choice in choices] == ["length"] * len(choices)
        assert [choice["index"] for choice in choices] == list(range(len(choices)))


def test_ids_and_text(served: Served) -> None:
    for text in ("", "héé → 😀\n", "<|endoftext|>"):
        status, _, data = served.request("POST", "/tokenize", {"prompt": text, "add_special_tokens": False})
        ids = json.loads(data)["tokens"]
        assert (status, ids) == (200, [3 + byte for byte in text.encode()])
        assert json.loads(served.request("POST", "/tokenize", {"prompt": text})[2])["tokens"] == [1, *ids]
        assert json.loads(served.request("POST", "/detokenize", {"tokens": ids})[2]) == {"prompt": text}


def test_the_tokens_of_the_playground(served: Served) -> None:
    asked = {"prompt": "a", "max_tokens": 12, "seed": 1, "logprobs": 2, "tokens": True, "speculative": True}
    tokens = served.complete(**asked)["choices"][0]["tokens"]
    plain = served.complete(**{**asked, "speculative": False})["choices"][0]["tokens"]
    assert [token["id"] for token in tokens] == [token["id"] for token in plain]
    assert not any(token["drafted"] for token in plain)
    assert all(len(token["top"]) == 2 and token["bytes"] == [token["id"] - 3] for token in tokens)


def test_the_page_needs_nothing_from_elsewhere(served: Served) -> None:
    status, headers, data = served.request("GET", "/")
    page = data.decode()
    assert status == 200
    assert headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "http://" not in page
    assert "https://" not in page
    assert 'name="viewport"' in page
    assert "prefers-color-scheme" in page


REFUSED: list[tuple[Any, int, str | None]] = [
    ({"promt": "a"}, 400, "promt"),
    ({"prompt": "a", "best_of": 3}, 400, "best_of"),
    ({"prompt": "a", "suffix": "b"}, 400, "suffix"),
    ({"prompt": "a", "logit_bias": {"70": 5}}, 400, "logit_bias"),
    ({"prompt": "a", "presence_penalty": 0.5}, 400, "presence_penalty"),
    ({"prompt": "a", "frequency_penalty": -1}, 400, "frequency_penalty"),
    ({"prompt": "a", "user": "me"}, 400, "user"),
    ({"prompt": "a", "temperature": -1}, 400, "temperature"),
    ({"prompt": "a", "temperature": "hot"}, 400, "temperature"),
    ({"prompt": "a", "temperature": float("nan")}, 400, "temperature"),
    ({"prompt": "a", "top_p": 0}, 400, "top_p"),
    ({"prompt": "a", "top_k": -1}, 400, "top_k"),
    ({"prompt": "a", "seed": -1}, 400, "seed"),
    ({"prompt": "a", "seed": 2**64}, 400, "seed"),
    ({"prompt": "a", "n": 0}, 400, "n"),
    ({"prompt": "a", "n": 9}, 400, "n"),
    ({"prompt": "a", "max_tokens": 0}, 400, "max_tokens"),
    ({"prompt": "a", "max_tokens": True}, 400, "max_tokens"),
    ({"prompt": "a", "max_tokens": 255}, 400, "prompt"),
    ({"prompt": "a" * 300}, 400, "prompt"),
    ({"prompt": []}, 400, "prompt"),
    ({"prompt": [[]]}, 400, "prompt"),
    ({"prompt": [1, 259]}, 400, "prompt"),
    ({"prompt": [1, -5]}, 400, "prompt"),
    ({"prompt": [1, 2**70]}, 400, "prompt"),
    ({"prompt": [1, "a"]}, 400, "prompt"),
    ({"prompt": 3}, 400, "prompt"),
    ({"prompt": "\ud800"}, 400, "prompt"),
    ({"prompt": ["a"] * 33}, 400, "prompt"),
    ({"prompt": "a", "stop": ""}, 400, "stop"),
    ({"prompt": "a", "stop": ["x"] * 17}, 400, "stop"),
    ({"prompt": "a", "stop": 5}, 400, "stop"),
    ({"prompt": "a", "logprobs": 21}, 400, "logprobs"),
    ({"prompt": "a", "speculative": 3}, 400, "speculative"),
    ({"prompt": "a", "stream_options": {"include_usage": True}}, 400, "stream_options"),
    ({"prompt": "a", "stream": True, "stream_options": {"x": 1}}, 400, "stream_options"),
    ({"prompt": "a", "model": "gpt"}, 404, "model"),
    ({"prompt": "a", "model": "\ud800"}, 404, "model"),
    ({"\ud800": 1}, 400, "?"),
    ({"x" * 90_000: 1}, 400, "x" * 64 + "..."),
    (b"{", 400, None),
    (b"\xff\xfe", 400, None),
    (b"[]", 400, None),
    (b"[" * 60_000, 400, None),
    (b'{"seed": ' + b"9" * 5000 + b"}", 400, None),
    (b"{}" + b" " * 100_000, 413, None),
]


@pytest.mark.parametrize(("body", "status", "param"), REFUSED, ids=lambda value: str(value)[:40])
def test_a_wrong_request_is_refused_by_name(served: Served, body: Any, status: int, param: str | None) -> None:
    before = served.metric("hymo_prompt_tokens_total")
    found, _, data = served.request("POST", "/v1/completions", body)
    error = json.loads(data)["error"]
    assert (found, error["param"]) == (status, param)
    assert error["type"] == "invalid_request_error"
    assert len(error["message"]) > 10
    assert param is None or param == "prompt" or param in error["message"]
    assert served.metric("hymo_prompt_tokens_total") == before  # nothing was started


def test_other_refusals(served: Served) -> None:
    for method, path, body, headers, status in (
        ("POST", "/v1/chat/completions", {"messages": []}, {}, 400),
        ("GET", "/v1/completions", None, {}, 405),
        ("GET", "/nothing", None, {}, 404),
        ("POST", "/v1/completions", b"prompt=a", {"Content_Type": "text/plain"}, 415),
        ("POST", "/detokenize", {"tokens": [-1]}, {}, 400),
        ("POST", "/detokenize", {"tokens": [300]}, {}, 400),
        ("POST", "/detokenize", {"tokens": "a"}, {}, 400),
        ("POST", "/tokenize", {"prompt": "\udc00"}, {}, 400),
        ("POST", "/tokenize", {"prompt": "a", "model": "b"}, {}, 404),
        ("POST", "/tokenize", {"prompt": "a", "bos": True}, {}, 400),
    ):
        found, _, data = served.request(method, path, body, **headers)
        assert found == status, (path, data)
        assert json.loads(data)["error"]["message"]
    assert "chat template" in json.loads(served.request("POST", "/v1/chat/completions", {})[2])["error"]["message"]


def test_a_chunked_body_is_measured_and_a_slow_one_is_given_up(served: Served) -> None:
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    for rest, status in (
        (b"Content-Length: 50\r\n\r\n{", b"408"),
        (b"Transfer-Encoding: chunked\r\n\r\n" + (b"8000\r\n" + b" " * 0x8000 + b"\r\n") * 4, b"413"),
    ):
        with socket.create_connection(("127.0.0.1", served.port), timeout=20) as connection:
            connection.sendall(head + rest)
            assert connection.recv(1000).split()[1] == status


def test_the_key(engine: Engine) -> None:
    with serving(engine, api_key="schlüssel") as server:  # sent as UTF-8, as curl does
        utf8 = "Bearer schlüssel".encode().decode("latin-1")
        assert server.request("GET", "/metrics", Authorization=utf8)[0] == 200
        assert server.request("GET", "/metrics", Authorization="Bearer schlüssel")[0] == 401
    with serving(engine, api_key="s3cret") as server:
        assert server.request("GET", "/metrics", Host="x/health?")[0] == 401  # a header cannot name an open page
        for path in ("/v1/models", "/metrics", "/v1/models/tiny"):
            for shown in (
                {},
                {"Authorization": "Bearer wrong"},
                {"Authorization": "s3cret"},
                {"Authorization": "Bearer é"},
            ):
                shown = {name: value.encode("utf-8").decode("latin-1") for name, value in shown.items()}
                status, headers, data = server.request("GET", path, **shown)
                assert (status, headers["www-authenticate"]) == (401, "Bearer")
                assert json.loads(data)["error"]["type"] == "authentication_error"
            assert server.request("GET", path, Authorization="Bearer s3cret")[0] == 200
        assert server.request("POST", "/v1/completions", {"prompt": "a"})[0] == 401
        assert server.request("GET", "/health")[0] == server.request("GET", "/")[0] == 200
        good = openai.OpenAI(base_url=f"{server.url}/v1", api_key="s3cret", max_retries=0)
        assert good.completions.create(model="tiny", prompt="a", max_tokens=2).choices
        with pytest.raises(openai.AuthenticationError):
            openai.OpenAI(base_url=f"{server.url}/v1", api_key="x", max_retries=0).models.list()


def test_a_full_queue_says_so_and_those_who_leave_make_room(engine: Engine) -> None:
    """Slots and places in the queue of clients that leave are free again, streamed or not, running or waiting."""
    long = {"prompt": "a", "max_tokens": 250, "temperature": 0.01, "seed": 0}
    slow = _slowed(engine)
    with serving(slow, slots=2, max_waiting=3) as server:
        running = [server.open(**long, stream=True), server.open(**long)]
        server.becomes(2, 0)
        waiting = [server.open(**long, stream=bool(place % 2)) for place in range(3)]
        server.becomes(2, 3)
        status, headers, data = server.request("POST", "/v1/completions", {"prompt": "a"})
        assert (status, headers["retry-after"]) == (429, "1")
        assert json.loads(data)["error"]["code"] == "queue_full"
        assert server.request("POST", "/v1/completions", {"prompt": ["a", "b"]})[0] == 429
        for connection in waiting[:2]:
            connection.close()
        server.becomes(2, 1)
        for connection in running:
            connection.close()
        server.becomes(1, 0)
        waiting[2].close()
        server.becomes(0, 0)
        until = time.monotonic() + 10
        while server.metric('hymo_requests_total{status="499"}') < 5 and time.monotonic() < until:
            time.sleep(0.02)
        assert server.metric('hymo_requests_total{status="499"}') == 5
        assert server.metric('hymo_requests_total{status="429"}') == 2
        assert server.complete(prompt="a", max_tokens=2)["choices"]


def test_a_client_that_does_not_read_holds_up_nobody(served: Served) -> None:
    """Others are answered while more waits for it than the kernel buffers; later it still gets all of it."""
    asked = {"prompt": ["a"] * 8, "max_tokens": 60, "logprobs": 20, "tokens": True, "stream": True, "seed": 0}
    slow = served.open(**asked)
    texts = {served.complete(prompt="b", max_tokens=20, seed=1)["choices"][0]["text"] for _ in range(3)}
    assert len(texts) == 1
    served.becomes(0, 0)  # done as far as the model goes
    data = b""
    while b"[DONE]" not in data[-100:]:
        piece = slow.recv(1 << 20)
        assert piece
        data += piece
    slow.close()
    assert len(data) > 500_000
    assert data.count(b'"finish_reason":"') == 8


def test_a_failure_of_the_model_is_told_and_survived(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(engine) as server:
        original = Scheduler.step

        def fail(self: Scheduler) -> Any:
            raise RuntimeError("no memory")

        monkeypatch.setattr(Scheduler, "step", fail)
        status, _, data = server.request("POST", "/v1/completions", {"prompt": "a"})
        assert (status, json.loads(data)["error"]["type"]) == (500, "server_error")
        status, _, data = server.request("POST", "/v1/completions", {"prompt": "a", "stream": True})
        assert "no memory" in data.decode()
        assert "[DONE]" not in data.decode()
        monkeypatch.setattr(Scheduler, "step", original)
        assert server.complete(prompt="a", max_tokens=2)["choices"]
        assert any("no memory" in line for line in server.reports)


def test_a_model_that_cannot_be_started_again_keeps_nobody_waiting(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a fault of a GPU: what runs, what waits and what comes later is answered, and the log says it once."""
    with serving(engine, slots=1) as server:
        go = threading.Event()

        def fail(*_: Any) -> Any:
            go.wait(20)
            raise RuntimeError("the device is lost")

        monkeypatch.setattr(Scheduler, "step", fail)
        monkeypatch.setattr(server.app.state.worker, "_make", fail)
        waiting = [server.open(prompt="a", stream=stream) for stream in (False, True, False)]
        server.becomes(0, 3)  # the last ones behind the pass that is about to fail, not yet taken up
        go.set()
        for connection in waiting:
            connection.settimeout(20)
            data = b""
            while b"model failed" not in data:
                piece = connection.recv(1 << 16)
                assert piece
                data += piece
            connection.close()
        status, _, data = server.request("POST", "/v1/completions", {"prompt": "a"})
        assert (status, json.loads(data)["error"]["type"]) == (503, "server_error")
        assert server.request("GET", "/health")[0] == 503
        assert [line.split(":")[1] for line in server.reports] == [
            " the model failed",
            " the model cannot be started again",
        ]


def test_requests_under_way_are_finished_before_the_server_ends(engine: Engine) -> None:
    with serving(_slowed(engine), slots=2) as server:
        connection = server.open(prompt="a", max_tokens=60, temperature=0.01, seed=0, stream=True)
        server.becomes(1, 0)
        server.server.should_exit = True
        data = b""
        while piece := connection.recv(1 << 16):
            data += piece
        connection.close()
        assert b"[DONE]" in data
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.port), timeout=1)


def test_an_address_that_is_taken_is_named(served: Served) -> None:
    with pytest.raises(UsageError, match=f"127.0.0.1:{served.port}: cannot listen"):
        listen("127.0.0.1", served.port)
    with pytest.raises(UsageError, match="cannot listen"):
        listen("127.0.0.1", 70_000)


def _slowed(engine: Engine) -> Engine:
    """The same engine with a pause before each pass, so that requests are still there when they are looked at."""

    class Slow(Engine):
        def scheduler(self, *arguments: Any, **named: Any) -> Scheduler:
            scheduler = super().scheduler(*arguments, **named)
            step = scheduler.step

            def slowly() -> Any:
                time.sleep(0.02)
                return step()

            scheduler.step = slowly  # type: ignore[method-assign]
            return scheduler

    return Slow(engine.model, engine.tokenizer)
