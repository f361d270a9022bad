import gzip
import json
import lzma
import math
from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hymo.core.errors import DataError, UsageError
from hymo.data import sample_paths
from hymo.evaluation.baselines import (
    WittenBell,
    gzip_bits_per_byte,
    join_documents,
    xz_bits_per_byte,
    xz_given_training,
)


def exact_witten_bell(training, text, order):
    """The recursion itself, in fractions."""
    follows = {}
    for n in range(order):
        for i in range(n, len(training)):
            follows.setdefault(training[i - n : i], Counter())[training[i]] += 1

    def p(w, h):
        lower = p(w, h[1:]) if h else Fraction(1, 256)
        counts = follows.get(h)
        if not counts:
            return lower
        return (counts[w] + len(counts) * lower) / (counts.total() + len(counts))

    return [p(w, text[max(0, i - order + 1) : i]) for i, w in enumerate(text)]


small = st.binary(max_size=40) | st.lists(st.sampled_from(list(b"ab\x00\xff")), max_size=40).map(bytes)


@settings(max_examples=150, deadline=None)
@given(small.filter(bool), small.filter(bool), st.integers(1, 8))
def test_witten_bell_equals_exact_fractions(training, text, order):
    exact = exact_witten_bell(training, text, order)
    model = WittenBell(order).fit(training)
    assert model.probabilities(text).tolist() == pytest.approx([float(p) for p in exact], rel=1e-12)
    bits = -sum(math.log2(p) for p in exact) / len(text)
    assert model.bits_per_byte(text) == pytest.approx(bits, rel=1e-12)


@pytest.mark.parametrize("order", [1, 3, 5])
def test_probabilities_sum_to_one(order):
    model = WittenBell(order).fit(b"abracadabra, abracadabra")
    for history in (b"", b"a", b"abra", b"zzzz", b"xabr"):
        assert sum(model.probabilities(history + bytes([w]))[-1] for w in range(256)) == pytest.approx(1, abs=1e-12)


def test_fit_again_forgets_and_misuse_is_named():
    model = WittenBell(3).fit(b"aaaa").fit(b"bcbcbc")
    assert model.bits_per_byte(b"bcbc") == WittenBell(3).fit(b"bcbcbc").bits_per_byte(b"bcbc")
    with pytest.raises(UsageError, match="fit"):
        WittenBell().bits_per_byte(b"x")
    with pytest.raises(UsageError, match="order 9"):
        WittenBell(9)
    for call in (gzip_bits_per_byte, xz_bits_per_byte, model.bits_per_byte):
        with pytest.raises(DataError, match="held-out"):
            call(b"")
    with pytest.raises(DataError, match="training"):
        model.fit(b"")


def test_compressors_count_whole_files():
    data = b"to be or not to be, " * 50
    assert gzip_bits_per_byte(data) == pytest.approx(len(gzip.compress(data, 9)) * 8 / 1000)
    assert xz_bits_per_byte(data) == pytest.approx(len(lzma.compress(data, preset=9 | lzma.PRESET_EXTREME)) * 8 / 1000)
    assert xz_given_training(data, data) < 0.2


def test_join():
    assert join_documents(["a", b"b\n", "ü"]) == b"a\n\nb\n\n\n\xc3\xbc"
    assert join_documents([]) == b""


def test_figures_of_the_shipped_sample():
    """The figures were first taken elsewhere, on the first 46,000 held-out bytes, to two decimals."""
    training, heldout = (
        join_documents(json.loads(line)["text"] for line in path.read_text("utf-8").splitlines())
        for path in (sample_paths()["train"], sample_paths()["validation"])
    )
    first = heldout[:46_000]
    assert round(gzip_bits_per_byte(first), 2) == pytest.approx(2.70, abs=0.011)  # zlib builds differ a little
    assert round(xz_bits_per_byte(first), 2) == 2.54
    assert round(xz_given_training(training, first), 2) in (1.82, 1.83)
    assert [round(WittenBell(n).fit(training).bits_per_byte(first), 2) for n in (4, 5, 6)] == [2.75, 2.56, 2.57]
