"""The watchdog, the endpoint, alerts and sinks: what tells people and machines how a run is."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

import rank_faults
from hymo.core.config import HyMoConfig
from hymo.core.errors import UsageError
from hymo.core.load import config_hash, derive_config, dump_config
from hymo.training import alerts, track
from hymo.training.alerts import Alerts
from hymo.training.health import Recorder, endpoint
from hymo.training.heartbeat import heartbeat
from hymo.training.metrics import read_jsonl, read_metrics
from hymo.training.run import open_run, run_folder
from rank_helpers import Job, free_port
from rank_tasks import odd_config


def get(port: int, path: str = "/health") -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def health(port: int) -> int:
    """Status of /health; 0 while nobody answers."""
    with contextlib.suppress(OSError, http.client.HTTPException):
        return get(port)[0]
    return 0


def test_a_rank_that_hangs_ends_all_with_their_stacks(tmp_path: Path, dataset: Path) -> None:
    """The second rank sleeps in step 5: after hang_minutes both write their stacks, tell it, and end with 1."""
    port = free_port()
    config = derive_config(
        odd_config(tmp_path, dataset),
        scheduler={"total_steps": 10},
        training={"grad_accum_steps": 2, "checkpoint_interval": 3, "hang_minutes": 0.03, "hang_abort": True},
        run={"name": "run", "health_port": port},
    )
    folder = run_folder(config)
    folder.mkdir()
    path = tmp_path / "run.yaml"
    path.write_text(dump_config(config))
    job = Job(2, rank_faults.command, ["train", str(path)], folder / "said", "hang@5")
    seen: list[set[int]] = [set(), set()]
    while any(process.is_alive() for process in job.processes):
        for rank in (0, 1):
            seen[rank].add(health(port + rank))
        time.sleep(0.05)
    assert job.exits(10) == [1, 1]
    assert seen[0] >= {200, 503}
    assert seen[1] >= {200, 503}
    for rank, name in enumerate(("stacks.txt", "stacks-1.txt")):
        stacks = (folder / name).read_text()
        assert "most recent call first" in stacks
        assert ("in in_step" in stacks) is (rank == 1)  # where the second rank sleeps
        assert ("in _optimizer_step" in stacks) is (rank == 0)  # and the first waits for it
    failed = read_jsonl(folder / "events.jsonl")[-1]
    assert failed["kind"] == "failed"
    assert "no step after step 4 for" in failed["error"]
    beats = [json.loads((folder / name).read_text()) for name in ("heartbeat.json", "heartbeat-1.json")]
    assert [(beat["step"], beat["hangs"]) for beat in beats] == [(4, True), (4, True)]
    assert config_hash(derive_config(config, training={"hang_abort": False})) == config_hash(config)


def test_a_process_on_its_own_that_hangs_ends_too(small: HyMoConfig) -> None:
    called = Path(small.run.output_dir) / "called"
    changes = {"alert": f"cat > {called}"}
    config = derive_config(small, training={"hang_minutes": 0.02, "hang_abort": True}, run=changes)
    path = Path(small.run.output_dir) / "c.yaml"
    path.write_text(dump_config(config))
    job = Job(1, rank_faults.command, ["train", str(path)], path.with_name("said"), "stall@2")
    assert job.exits(30) == [1]
    assert "error: no step after step 1 for 0.02" in path.with_name("said-0").read_text()
    assert read_jsonl(run_folder(config) / "events.jsonl")[-1]["kind"] == "failed"
    assert "rank_faults.py" in (run_folder(config) / "stacks.txt").read_text()
    assert json.loads(called.read_text())["kind"] == "failed"  # somebody was told before the end


def test_nobody_who_keeps_pythons_lock_keeps_the_run(small: HyMoConfig) -> None:
    """Then no thread of Python's can look at a clock: faulthandler's own writes the stacks and ends the process."""
    config = derive_config(small, training={"hang_minutes": 0.02, "hang_abort": True})
    path = Path(small.run.output_dir) / "c.yaml"
    path.write_text(dump_config(config))
    job = Job(1, rank_faults.command, ["train", str(path)], path.with_name("said"), "freeze@2")
    assert job.exits(30) == [1]
    assert "rank_faults.py" in (run_folder(config) / "stacks.txt").read_text()


def test_health_and_metrics_of_a_run(small: HyMoConfig) -> None:
    config = derive_config(small, run={"health_port": free_port()}, scheduler={"total_steps": 2})
    port = config.run.health_port
    assert port is not None
    with open_run(config) as trainer:
        trainer.train()
        status, body = get(port)
        said = json.loads(body)
        assert (status, said["ok"], said["run"], said["rank"], said["pid"]) == (200, True, "small", "0", os.getpid())
        families = {f.name: f for f in text_string_to_metric_families(get(port, "/metrics")[1])}
        assert get(port, "/secret")[0] == 404
    assert health(port) == 0  # it ends with the run
    record = [r for r in read_metrics(run_folder(config)) if r["split"] == "train"][-1]
    values = {name: family.samples[0].value for name, family in families.items()}
    assert values["hymo_train_loss"] == record["train/loss"]
    assert values["hymo_tokens"] == record["tokens"] == 512
    layers = {s.labels["layer"]: s.value for s in families["hymo_moe_load_cv"].samples}
    assert layers == {k.split("/")[2]: v for k, v in record.items() if k.startswith("moe/load_cv/")}
    events = {s.labels["kind"]: s.value for s in families["hymo_events"].samples}
    assert (events["start"], events["stop"]) == (1, 1)
    assert all(s.labels["run"] == "small" for family in families.values() for s in family.samples)


def test_a_port_in_use_is_told_before_anything_is_written(small: HyMoConfig) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        config = derive_config(small, run={"health_port": port})
        with pytest.raises(UsageError, match=rf"run\.health_port: nobody can listen on .*:{port}"), open_run(config):
            pass
    assert not run_folder(config).exists()


def test_the_endpoint_tells_that_a_rank_stands_still(tmp_path: Path) -> None:
    recorder = Recorder()
    recorder.on_metrics({"step": 1, "tokens": 5, "split": "train", "train/loss": float("nan"), "name": "x"})
    with (
        heartbeat(tmp_path, lambda: 7, 0.1 / 60) as pulse,
        endpoint("127.0.0.1", 0, pulse.facts, recorder, {"run": 'a"\\\n'}) as port,
    ):
        until = time.monotonic() + 20
        while health(port) != 503:
            assert time.monotonic() < until
            time.sleep(0.02)
        families = {f.name: f.samples[0] for f in text_string_to_metric_families(get(port, "/metrics")[1]) if f.samples}
        with (
            pytest.raises(UsageError, match=r"run\.health_port: nobody can listen"),
            endpoint("127.0.0.1", port, pulse.facts, recorder, {}),
        ):
            pass
        slow = socket.create_connection(("127.0.0.1", port))  # one that says nothing keeps nobody
        assert health(port) == 503
        slow.close()
    assert (families["hymo_step"].value, families["hymo_hangs"].value) == (7, 1)
    assert families["hymo_step"].labels == {"run": 'a"\\\n'}
    assert families["hymo_train_loss"].value != families["hymo_train_loss"].value


@pytest.fixture
def hook() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A web hook on this machine, and what it was told."""
    told: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            told.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204 if len(told) < 3 else 500)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/hook", told
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_web_hook_is_told_once_a_minute_of_each_kind(
    hook: tuple[str, list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOOK", hook[0])
    told = Alerts("env:HOOK", "mine")
    told.on_metrics({"train/loss": 1.0})
    told.on_event("checkpoint", {"step": 3})
    for step in (4, 5):
        told.on_event("skip", {"step": step, "tensor": "wo"})
    told.on_event("failed", {"error": "boom"})
    told.close()
    assert [(m["kind"], m["run"], m["text"]) for m in hook[1]] == [
        ("skip", "mine", "mine: skip: step 4, tensor wo"),
        ("failed", "mine", "mine: failed: error boom"),
    ]
    assert (hook[1][0]["host"], hook[1][0]["step"]) == (socket.gethostname(), 4)
    monkeypatch.setattr(alerts, "_QUIET_SECONDS", 0.0)
    told = Alerts("env:HOOK", "mine")
    told.on_event("skip", {})
    told.on_event("skip", {})
    told.close()
    err = capsys.readouterr().err
    assert err == "run.alert: not delivered (HTTPError)\n"  # once, and without the address
    monkeypatch.delenv("HOOK")
    with pytest.raises(UsageError, match="HOOK is not set"):
        Alerts("env:HOOK", "mine")


def test_a_command_is_given_what_happened(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = Alerts(f"cat >> {tmp_path}/said; echo noise", "mine")
    told.on_event("stop", {"step": 12})
    told.close()
    assert json.loads((tmp_path / "said").read_text())["text"] == "mine: stop: step 12"
    told = Alerts("exit 3", "mine")
    told.on_event("stop", {"step": 12})
    told.close()
    assert capsys.readouterr() == ("", "run.alert: not delivered (CalledProcessError)\n")


class Service:
    """What Trackio and W&B have in common."""

    def __init__(self, fails: bool = False) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.fails = fails

    def init(self, **options: Any) -> None:
        self.calls.append(("init", options))

    def log(self, values: Mapping[str, float], step: int) -> None:
        if self.fails:
            raise ConnectionError("no route")
        self.calls.append(("log", (step, dict(values))))

    def finish(self) -> None:
        self.calls.append(("finish", None))


def test_sinks_get_what_the_file_holds(
    small: HyMoConfig, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The real TensorBoard, and the calls of the other two."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    wandb, trackio = Service(), Service(fails=True)
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    monkeypatch.setitem(sys.modules, "trackio", trackio)
    found = SimpleNamespace(find_spec=lambda name: name)
    monkeypatch.setattr(track.importlib, "util", found)
    names = ("tensorboard", "wandb", "trackio")
    config = derive_config(small, run={"track": names, "alert": "cat >/dev/null"}, scheduler={"total_steps": 3})
    assert config_hash(config) == config_hash(derive_config(config, run={"track": ()}))
    with open_run(config) as trainer:
        trainer.train()
    records = read_metrics(run_folder(config))
    train = {r["step"]: r["train/loss"] for r in records if r["split"] == "train"}
    assert list(train) == [1, 2, 3]
    board = EventAccumulator(str(run_folder(config) / "tensorboard"))
    board.Reload()
    scalars = {event.step: event.value for event in board.Scalars("train/loss")}
    assert scalars == pytest.approx(train)
    assert [event.step for event in board.Scalars("val/bits_per_byte")] == [3]

    (kind, options), *logged, last = wandb.calls
    assert (kind, options["project"], options["name"], options["id"]) == ("init", "hymo", "small", "small")
    assert options["config"]["training"]["seq_len"] == 64
    assert "cat" not in str(options["config"]["run"])  # an alert's address may be a secret
    assert options["resume"] == "allow"
    assert {step: v["train/loss"] for _, (step, v) in logged if "train/loss" in v} == train
    assert last == ("finish", None)
    assert [call for call, _ in trackio.calls] == ["init"]  # it failed once and was left alone
    assert capsys.readouterr().err.count("trackio: ConnectionError: no route; training goes on without it") == 1


def test_a_sink_that_cannot_be_opened_is_refused(small: HyMoConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    config = derive_config(small, run={"track": ("trackio",)})
    monkeypatch.setitem(track._MODULES, "trackio", "no_such_module")
    missing = r"trackio is not installed\. Install it with `pip install 'hymo\[track\]'`"
    with pytest.raises(UsageError, match=missing), open_run(config):
        pass
    monkeypatch.setitem(track._MODULES, "trackio", "json")  # it is there, but not what it should be
    with pytest.raises(UsageError, match=r"run\.track: trackio cannot be opened"), open_run(config):
        pass
    service = Service()
    monkeypatch.setitem(track._MODULES, "trackio", "tracks")
    monkeypatch.setitem(sys.modules, "tracks", service)
    monkeypatch.setattr(track.importlib, "util", SimpleNamespace(find_spec=lambda name: name))
    unset = derive_config(config, run={"alert": "env:NOT_SET"})
    with pytest.raises(UsageError, match="NOT_SET is not set"), open_run(unset):
        pass
    assert [call for call, _ in service.calls] == ["init", "finish"]  # what was open is closed
