"""What ends ranks when one fails; the rest of it takes real ranks."""

from __future__ import annotations

import threading

import pytest

from hymo.core.errors import TrainingError
from hymo.training import failures


class Silent:
    """A store whose machine is gone: a question to it gets no answer before a long time-out."""

    def __init__(self) -> None:
        self.asked = threading.Event()

    def clone(self) -> Silent:
        return self

    def compare_set(self, *_: str) -> bytes:
        raise AssertionError("asked again")

    def check(self, _: list[str]) -> bool:
        self.asked.set()
        threading.Event().wait()
        return False


def test_a_store_that_does_not_answer_keeps_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(failures, "GRACE_SECONDS", 0.01)
    store = Silent()
    ended = threading.Event()

    def use() -> None:
        with failures.FailureWatch(0, store, "start"):
            assert store.asked.wait(60)
        ended.set()

    threading.Thread(target=use, daemon=True).start()
    assert ended.wait(60)


def test_a_rank_that_lost_contact_does_not_wait_for_a_silent_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "_ANSWER_SECONDS", 0.01)
    watch = failures.FailureWatch(1, Silent(), "start")
    said: list[str] = []

    def use() -> None:
        try:
            with watch.telling():
                raise RuntimeError("gloo: timed out waiting for rank 0")
        except TrainingError as error:
            said.append(str(error))

    thread = threading.Thread(target=use, daemon=True)
    thread.start()
    thread.join(60)
    assert said
    assert said[0].startswith("rank 1: lost the other ranks (gloo: timed out waiting for rank 0)")
