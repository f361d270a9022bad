"""What ends ranks when one fails; the rest of it takes real ranks."""

from __future__ import annotations

import threading

import pytest

from hymo.training import failures


class Silent:
    """A store whose machine is gone: a question to it gets no answer before a long time-out."""

    def __init__(self) -> None:
        self.asked = threading.Event()

    def clone(self) -> Silent:
        return self

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
