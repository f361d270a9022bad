"""Exported tokenizers as transformers loads them, id for id."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from hymo.data import ByteTokenizer, Tokenizer, load_tokenizer, sample_paths
from hymo.data.bpe import SPECIALS
from hymo.data.bpe_training import sample_of, train
from hymo.interop.tokenizer_files import write_tokenizer

TEXTS = [
    *("", " ", "a", "Hello, world!", "  two  spaces\n\n\tx\r\n", "don't WE'LL", "12345 x_1", "naïve Größe Привет"),
    *("世界。", "\U0001f600\U0001f468‍\U0001f469", "\x00\x01\x7f", "<|endoftext|>", "a<|bos|>b<|pad|>", " ."),
    *("é", "\ufeffx", "a" * 3000, " " * 700),
]


@pytest.fixture(scope="module", params=["byte", "bpe"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Tokenizer, Any, Path]:
    folder = tmp_path_factory.mktemp(request.param)
    ours: Tokenizer = ByteTokenizer()
    if request.param == "bpe":
        train(sample_of([sample_paths()["train"]]), folder / "trained", 600)
        ours = load_tokenizer(folder / "trained")
    (folder / "export").mkdir()
    write_tokenizer(ours, folder / "export", 256)
    return ours, PreTrainedTokenizerFast.from_pretrained(folder / "export"), folder / "export"


@pytest.mark.parametrize("text", TEXTS)
def test_ids_and_text(pair: tuple[Tokenizer, Any, Path], text: str) -> None:
    ours, theirs, _ = pair
    ids = ours.encode(text).tolist()
    assert theirs(text)["input_ids"] == [ours.bos_id, *ids]
    assert theirs(text, add_special_tokens=False)["input_ids"] == ids
    assert theirs.decode([1, *ids, 0], skip_special_tokens=True) == text


@given(text=st.text(max_size=80))
def test_any_text(pair: tuple[Tokenizer, Any, Path], text: str) -> None:
    ours, theirs, _ = pair
    ids = ours.encode(text).tolist()
    assert theirs(text)["input_ids"] == [ours.bos_id, *ids]
    assert theirs.decode(ids, skip_special_tokens=True) == text


@given(data=st.binary(max_size=40))
def test_broken_bytes_decode_alike(pair: tuple[Tokenizer, Any, Path], data: bytes) -> None:
    ours, theirs, _ = pair
    assert theirs.decode(ours.encode(data).tolist()) == ours.decode(ours.encode(data))


def test_specials_padding_and_size(pair: tuple[Tokenizer, Any, Path]) -> None:
    ours, theirs, _ = pair
    assert len(theirs) == ours.vocab_size
    assert (theirs.eos_token_id, theirs.bos_token_id, theirs.pad_token_id) == (0, 1, 2)
    assert theirs.convert_ids_to_tokens([0, 1, 2]) == list(SPECIALS[:3])
    assert theirs.model_max_length == 256
    batch = theirs(["abc", "a"], padding=True)
    assert batch["attention_mask"][1][0] == 0
    assert batch["input_ids"][1][0] == 2
    assert batch["input_ids"][1][-1] == ours.encode("a")[0]
    assert set(batch) == {"input_ids", "attention_mask"}


def test_a_trained_tokenizer_comes_back(pair: tuple[Tokenizer, Any, Path]) -> None:
    ours, _, folder = pair
    if isinstance(ours, ByteTokenizer):
        assert json.loads((folder / "tokenizer.json").read_text())["model"]["merges"] == []
    else:
        assert load_tokenizer(folder).fingerprint() == ours.fingerprint()
