"""Text as it comes, against the whole: for any bytes, stop strings, and cuts into tokens."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from hymo.inference.text import TextStream
from inference_helpers import stopped_at

PIECES = ("a", "b", "ab", "é", "→", "😀", "\n\n")
TEXTS = st.lists(st.sampled_from(PIECES), max_size=8).map("".join)
STOPS = st.lists(st.lists(st.sampled_from(PIECES), min_size=1, max_size=3).map("".join), max_size=3, unique=True)


@given(text=TEXTS, broken=st.binary(max_size=2), stops=STOPS, cuts=st.lists(st.integers(0, 40), max_size=12))
@settings(deadline=None, max_examples=400)
def test_any_split_gives_the_same_text(text: str, broken: bytes, stops: list[str], cuts: list[int]) -> None:
    data = text.encode()[:-1] + broken + text.encode()
    end = stopped_at(data, stops)
    wanted = data[:end].decode("utf-8", "replace")
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    stream, shown = TextStream(stops), ""
    for start, stop in pairwise(places):
        shown += stream.push(data[start:stop])
        assert wanted.startswith(shown)  # what was shown is never taken back
    shown += stream.finish()
    assert shown == wanted
    assert stream.stopped == (end is not None)
    assert stream.visible == (len(data) if end is None else end)
    assert (stream.push(b"more"), stream.finish()) == ("", "") or end is None


@given(text=TEXTS, stops=STOPS)
@settings(deadline=None, max_examples=100)
def test_only_what_may_be_a_stop_string_or_part_of_a_character_waits(text: str, stops: list[str]) -> None:
    stream, seen = TextStream(stops), ""
    for byte in text.encode():
        seen += stream.push(bytes([byte]))
    if not stream.stopped:
        waiting = text[len(seen) :]
        assert waiting == "" or any(stop.startswith(waiting) for stop in stops)
