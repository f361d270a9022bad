"""64 clients at once: nobody gets anybody else's text, and what the server holds stays bounded."""

from __future__ import annotations

import http.client
import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from hymo.data import ByteTokenizer
from hymo.inference import Engine, Sampling
from inference_helpers import drafter
from serving_helpers import serving

CLIENTS = 64


def bodies(count: int, most: int) -> list[dict[str, Any]]:
    """Requests of many kinds, each of which has one right answer."""
    rng = random.Random(0)
    starts = ("The ", "select ", "SQLite is ", "é", "", "a table with", "* ", "If the ")
    return [
        {
            "prompt": rng.choice(starts) + str(place),
            "max_tokens": rng.randint(1, most),
            "temperature": rng.choice([0, 0.5, 1.0]),
            "top_p": rng.choice([1, 0.9]),
            "repetition_penalty": rng.choice([1, 1, 1.2]),
            "seed": place,
            "n": rng.choice([1, 1, 1, 2]),
            "stop": rng.choice([[], ["."], ["the", "\n"]]),
            "stream": bool(place % 2),
        }
        for place in range(count)
    ]


def alone(engine: Engine, body: dict[str, Any]) -> list[tuple[str, str]]:
    rule = Sampling(
        body["temperature"], top_p=body["top_p"], repetition_penalty=body["repetition_penalty"], seed=body["seed"]
    )
    request = engine.request(body["prompt"], body["max_tokens"], rule, stop=body["stop"], n=body["n"])
    return [(generation.text, generation.finish_reason) for generation in engine.run([request])[0]]


def ask(port: int, body: dict[str, Any]) -> list[tuple[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    data = answer.read()
    connection.close()
    assert answer.status == 200, data
    if not body["stream"]:
        return [(choice["text"], choice["finish_reason"]) for choice in json.loads(data)["choices"]]
    texts, reasons = [""] * body["n"], [""] * body["n"]
    lines = [line[6:] for line in data.decode().split("\n\n") if line]
    assert lines[-1] == "[DONE]"
    for line in lines[:-1]:
        for choice in json.loads(line)["choices"]:
            texts[choice["index"]] += choice["text"]
            reasons[choice["index"]] = choice["finish_reason"]
    return list(zip(texts, reasons, strict=True))


def leave(port: int, body: dict[str, Any]) -> None:
    """Ask, and go before the answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    if body["stream"]:
        connection.getresponse().read(20)
    connection.close()


def many(clients: int, work: Callable[[int], None]) -> None:
    """Run `work(client)` in a thread for each client, and raise what any of them raised."""
    errors: list[BaseException] = []

    def run(client: int) -> None:
        try:
            work(client)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(client,)) for client in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def test_64_clients_get_their_own_texts(dataset: Path) -> None:
    engine = Engine(drafter("gated_linear", dataset, double=True), ByteTokenizer())
    asked = bodies(CLIENTS, 24)
    wanted = [alone(engine, body) for body in asked]
    assert len({str(texts) for texts in wanted}) > CLIENTS // 2
    with serving(engine, slots=16) as server:

        def work(client: int) -> None:
            assert ask(server.port, asked[client]) == wanted[client], asked[client]
            if client % 8 == 0:
                leave(server.port, asked[client])

        many(CLIENTS, work)
        server.becomes(0, 0)
        assert server.metric('hymo_requests_total{status="200"}') >= CLIENTS
        assert not server.reports


@contextmanager
def command(*words: str, **environment: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """`hymo serve ...` in a process of its own, and its port."""
    process = subprocess.Popen(
        [sys.executable, "-m", "hymo", "serve", *words, "--port", "0"],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
    )
    assert process.stderr is not None
    try:
        line = process.stderr.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)", line)
        assert found is not None, line + process.stderr.read()
        yield process, int(found[1])
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def test_the_command_serves_the_packaged_model_and_drains_on_sigterm() -> None:
    with command("demo", HYMO_API_KEY="k") as (process, port):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        headers = {"Content-Type": "application/json", "Authorization": "Bearer k"}
        body = {"prompt": "The SQLite ", "max_tokens": 300, "stream": True, "seed": 1}
        connection.request("POST", "/v1/completions", json.dumps(body), headers)
        answer = connection.getresponse()
        first = answer.read(10)
        process.send_signal(signal.SIGTERM)
        data = first + answer.read()
        assert answer.status == 200
        assert data.endswith(b"data: [DONE]\n\n")
        assert process.wait(30) == -signal.SIGTERM
        assert process.stderr is not None
        assert process.stderr.read() == ""
    with pytest.raises(ConnectionRefusedError):
        http.client.HTTPConnection("127.0.0.1", port, timeout=5).connect()


@pytest.mark.heavy
@pytest.mark.timeout(300)
def test_64_clients_for_a_minute_on_the_packaged_model() -> None:
    """No error, no cross-talk, RSS after 60 s at most 5 % above that after 20 s; prints latencies."""
    engine = Engine.from_checkpoint("demo", dtype="float64")
    asked = bodies(48, 64)
    wanted = [alone(engine, body) for body in asked]
    seconds: list[float] = []
    counts: Counter[str] = Counter()
    with command("demo", "--dtype", "float64", "--slots", "32") as (process, port):
        rss = {20: 0, 60: 0}  # the highest of the last ten seconds: the allocator gives back and takes again
        began = time.monotonic()

        def watch() -> None:
            while (now := time.monotonic() - began) < 60:
                for at in rss:
                    if at - 10 < now <= at:
                        rss[at] = max(rss[at], psutil.Process(process.pid).memory_info().rss)
                time.sleep(0.5)

        def work(client: int) -> None:
            rng = random.Random(client)
            while time.monotonic() < began + 62:
                place = rng.randrange(len(asked))
                if rng.random() < 0.05:
                    leave(port, asked[place])
                    counts["left"] += 1
                    continue
                start = time.monotonic()
                assert ask(port, asked[place]) == wanted[place], asked[place]
                seconds.append(time.monotonic() - start)

        watcher = threading.Thread(target=watch)
        watcher.start()
        many(CLIENTS, work)
        watcher.join()
    cuts = statistics.quantiles(seconds, n=100)
    print(f"{len(seconds)} answers, {counts['left']} left early, p50 {cuts[49]:.2f} s, p99 {cuts[98]:.2f} s")
    print(f"RSS {rss[20] / 1e6:.0f} MB after 20 s, {rss[60] / 1e6:.0f} MB after 60 s")
    assert rss[60] <= 1.05 * rss[20]
