import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hymo.core.errors import DataError, UsageError
from hymo.data import ByteTokenizer, load_tokenizer

TOK = ByteTokenizer()


@given(st.binary(max_size=300))
def test_any_bytes_survive(data):
    ids = TOK.encode(data)
    assert TOK.decode_bytes(ids) == data
    assert len(ids) == len(data)
    assert all(3 <= i < TOK.vocab_size for i in ids)


@given(st.text(max_size=200))
def test_any_unicode_survives(text):
    ids = TOK.encode(text)
    assert TOK.decode(ids) == text
    assert TOK.decode(ids.tolist()) == text
    assert ids.tolist() == [b + 3 for b in text.encode()]


def test_text_that_looks_like_a_special_stays_text():
    for text in ("<|endoftext|>", "<eos>", "\x00\x01\x02"):
        assert not set(TOK.encode(text).tolist()) & {TOK.eos_id, TOK.bos_id, TOK.pad_id}
        assert TOK.decode(TOK.encode(text)) == text


def test_specials_decode_to_nothing_and_broken_utf8_to_replacement():
    assert TOK.decode_bytes([1, 3 + ord("a"), 2, 3 + ord("b"), 0]) == b"ab"
    assert TOK.decode([3 + 0xFF]) == "\ufffd"
    assert TOK.decode([]) == ""
    assert TOK.encode("").shape == (0,)


@pytest.mark.parametrize("bad", [-1, 259, 70_000])
def test_foreign_ids_are_named(bad):
    with pytest.raises(DataError, match=str(bad)):
        TOK.decode(np.array([5, bad]))


def test_lone_surrogate_is_an_error_with_its_place():
    with pytest.raises(DataError, match="character 2"):
        TOK.encode("ab\ud800")


def test_load_and_fingerprint():
    loaded = load_tokenizer("byte")
    assert loaded.vocab_size == 259
    assert loaded.fingerprint() == TOK.fingerprint()
    assert len(bytes.fromhex(TOK.fingerprint())) == 32
    with pytest.raises(UsageError, match=r"tokenizer\.json"):
        load_tokenizer("tokenizer.json")
