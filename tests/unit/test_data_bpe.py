"""The tokenizer's ids against the library that its file belongs to, and what a file must hold to be taken."""

from __future__ import annotations

import copy
import json
import random
import unicodedata
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiktoken
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from hymo.core.errors import DataError, UsageError
from hymo.data import ByteTokenizer, load_tokenizer, sample_paths
from hymo.data import bpe as module
from hymo.data.bpe import SPECIALS, SPLIT, BPETokenizer, byte_letters, read_vocabulary
from hymo.data.bpe_training import sample_of, train
from hymo.data.tokenizer import TOKENIZER, keep_copy, tokenizer_for_run, tokenizer_of_run

SPECIAL_TEXTS = [*SPECIALS[:4], "<|", "|>", "<|endoftext", "endoftext|>", "<|endoftext|><|endoftext|>"]
ALL_CHARACTERS = [chr(i) for i in range(0x110000) if not 0xD800 <= i < 0xE000]


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer of 2,000 entries, trained on the packaged text and some of other scripts."""
    out = tmp_path_factory.mktemp("tokenizer")
    other = out / "other.txt"
    other.write_text(
        "Größe, naïve, Привет, мир! 你好 世界。 12345 0x1F600 \U0001f600\U0001f600 don't WE'LL  \n\n\tx\n" * 50
    )
    train(sample_of([sample_paths()["train"], other]), out / "bpe", 2000)
    return out / "bpe"


@pytest.fixture(scope="session")
def tok(folder: Path) -> BPETokenizer:
    return BPETokenizer.load(folder / TOKENIZER)


@pytest.fixture(scope="session")
def library(folder: Path) -> tokenizers.Tokenizer:
    """The Hugging Face library on the same file, told to read special strings as text."""
    loaded = tokenizers.Tokenizer.from_file(str(folder / TOKENIZER))
    loaded.encode_special_tokens = True
    return loaded


@pytest.fixture
def changed(folder: Path, tmp_path: Path) -> Callable[[Callable[[dict[str, Any]], None]], Path]:
    """Write the file with a change to its content."""
    content = json.loads((folder / TOKENIZER).read_text())

    def write(change: Callable[[dict[str, Any]], None]) -> Path:
        new = copy.deepcopy(content)
        change(new)
        path = tmp_path / "changed.json"
        path.write_text(json.dumps(new))
        return path

    return write


def fuzz(seed: int, n: int) -> list[str | bytes]:
    """Strings of many kinds, a quarter of them bytes that are hardly ever UTF-8."""
    draw = random.Random(seed)
    words = [
        "the",
        " the",
        "'s",
        "'LL",
        "don't",
        " x",
        "(",
        "))",
        "==",
        "0",
        "12",
        "3456",
        "é",
        "ß",
        "你",
        "п",
        "\u0301",
    ]
    spaces = [" ", "  ", "\n", "\r\n", "\t", "\u00a0", "\u2028", "\u3000", "\x85", "\x1c", "\u200b"]
    pools: list[Callable[[], str]] = [
        lambda: draw.choice(words),
        lambda: draw.choice(spaces),
        lambda: draw.choice(SPECIAL_TEXTS),
        lambda: chr(draw.randrange(32, 127)),
        lambda: draw.choice(ALL_CHARACTERS),
        lambda: chr(draw.randrange(0x250, 0x3000)),
        lambda: draw.choice("ab 1\n'") * draw.randrange(1, 30),
    ]
    texts: list[str | bytes] = []
    for i in range(n):
        some = draw.choices(pools, k=draw.randrange(1, 4))
        text = "".join(draw.choice(some)() for _ in range(draw.randrange(0, 40)))
        if i % 4:
            texts.append(text)
        else:
            data = bytearray(text.encode() + draw.randbytes(draw.randrange(0, 8)))
            for _ in range(draw.randrange(0, 4)):
                if data:
                    data[draw.randrange(len(data))] = draw.randrange(256)
            texts.append(bytes(data))
    return texts


def utf8_parts(data: bytes) -> list[tuple[bool, bytes]]:
    """Cut bytes into the longest stretches that are UTF-8 and single bytes that are not; slow and simple."""
    parts: list[tuple[bool, bytes]] = []
    good = b""
    while data:
        for size in range(1, 5):
            try:
                data[:size].decode()
            except UnicodeDecodeError:
                continue
            good, data = good + data[:size], data[size:]
            break
        else:
            if good:
                parts.append((True, good))
            parts.append((False, data[:1]))
            good, data = b"", data[1:]
    return [*parts, (True, good)] if good else parts


def check_fuzz(tok: BPETokenizer, library: tokenizers.Tokenizer, seed: int, n: int) -> None:
    texts = fuzz(seed, n)
    strings = [text for text in texts if isinstance(text, str)]
    expected = dict(zip(strings, library.encode_batch_fast(strings, add_special_tokens=False), strict=True))
    byte_ids = {bytes([b]): library.token_to_id(letter) for b, letter in byte_letters().items()}
    for text, ids in zip(texts, tok.encode_batch(texts), strict=True):
        assert ids.dtype == np.uint16
        assert not ids.size or ids.min() >= len(SPECIALS)
        if isinstance(text, str):
            assert ids.tolist() == expected[text].ids, ascii(text)
            assert tok.decode(ids) == text
            assert tok.encode(text.encode()).tolist() == ids.tolist()
        else:
            slow: list[int] = []
            for good, part in utf8_parts(text):
                slow += library.encode(part.decode(), add_special_tokens=False).ids if good else [byte_ids[part]]
            assert ids.tolist() == slow, text
            assert tok.decode_bytes(ids) == text


def test_ids_of_any_text_and_bytes_are_the_librarys(tok: BPETokenizer, library: tokenizers.Tokenizer) -> None:
    check_fuzz(tok, library, 1, 2000)


@pytest.mark.heavy
def test_ids_of_100_000_texts_and_bytes_are_the_librarys(tok: BPETokenizer, library: tokenizers.Tokenizer) -> None:
    for seed in range(10):
        check_fuzz(tok, library, seed, 10_000)


@given(text=st.text(max_size=60))
def test_ids_are_the_librarys(tok: BPETokenizer, library: tokenizers.Tokenizer, text: str) -> None:
    ids = tok.encode(text)
    assert ids.dtype == np.int64
    assert ids.tolist() == library.encode(text, add_special_tokens=False).ids
    assert tok.decode(ids) == text


@given(data=st.binary(max_size=60))
def test_any_bytes_survive(tok: BPETokenizer, data: bytes) -> None:
    assert tok.decode_bytes(tok.encode(data)) == data


def test_ids_are_those_of_transformers(tok: BPETokenizer, folder: Path) -> None:
    plain = PreTrainedTokenizerFast(tokenizer_file=str(folder / TOKENIZER))
    assert len(plain) == tok.vocab_size
    strings = [text for text in fuzz(2, 1000) if isinstance(text, str)]
    for text in [text for text in strings if not any(special in text for special in SPECIALS)]:
        assert plain(text, add_special_tokens=False)["input_ids"] == tok.encode(text).tolist()
    split = PreTrainedTokenizerFast(tokenizer_file=str(folder / TOKENIZER), split_special_tokens=True)
    for text in [*SPECIAL_TEXTS, *strings]:
        assert split(text, add_special_tokens=False)["input_ids"] == tok.encode(text).tolist()
    assert plain.decode(tok.encode("Größe, 12 don't\n"), clean_up_tokenization_spaces=False) == "Größe, 12 don't\n"


@pytest.mark.parametrize("text", SPECIAL_TEXTS)
def test_special_strings_in_text_stay_text(tok: BPETokenizer, text: str) -> None:
    for given_ in (text, f"a{text}b", text.encode(), text.encode() + b"\xff"):
        ids = tok.encode(given_)
        assert ids.min() >= len(SPECIALS)
        assert tok.decode_bytes(ids) == (given_ if isinstance(given_, bytes) else given_.encode())


def test_specials_come_first_and_every_byte_has_an_entry(tok: BPETokenizer, library: tokenizers.Tokenizer) -> None:
    assert (tok.eos_id, tok.bos_id, tok.pad_id, tok.vocab_size) == (0, 1, 2, 2000)
    assert [library.id_to_token(i) for i in range(len(SPECIALS))] == list(SPECIALS)
    assert library.get_vocab_size() == 2000
    assert all(len(tok.encode(bytes([b]))) == 1 for b in range(256))
    assert tok.decode_bytes([1, *tok.encode("ab"), 2, 0, 15]) == b"ab"


def test_empty_broken_and_foreign(tok: BPETokenizer) -> None:
    assert tok.encode("").shape == tok.encode(b"").shape == (0,)
    assert tok.decode([]) == ""
    assert tok.decode(tok.encode(b"a\xff")) == "a\ufffd"
    with pytest.raises(DataError, match="character 2"):
        tok.encode("ab\ud800")
    for bad in (-1, 2000):
        with pytest.raises(DataError, match=str(bad)):
            tok.decode([20, bad])


# The split regex, read by two engines.


def pieces_by_library(text: str) -> list[str]:
    return [piece for piece, _ in pre_tokenizers.Split(Regex(SPLIT), "isolated").pre_tokenize_str(text)]


BYTE_RANKS = {bytes([b]): b for b in range(256)}


@cache
def matched(pattern: str) -> tuple[str, str]:
    """All characters that a pattern of one character matches, as each engine reads it."""
    text, pattern = "".join(ALL_CHARACTERS), f"{pattern}+"
    engine = tiktoken.Encoding("t", pat_str=pattern, mergeable_ranks=BYTE_RANKS, special_tokens={"<>": 256})
    by_tiktoken = engine.encode_to_numpy(text, disallowed_special=()).astype(np.uint8).tobytes().decode()
    rest = pre_tokenizers.Split(Regex(pattern), "removed").pre_tokenize_str(text)
    left = set("".join(piece for piece, _ in rest))
    return by_tiktoken, "".join(c for c in ALL_CHARACTERS if c not in left)


@pytest.mark.parametrize("pattern", [r"\p{L}", r"\p{N}", r"\s"])
def test_both_engines_know_the_same_letters_numbers_and_spaces(pattern: str) -> None:
    one, other = matched(pattern)
    assert one == other
    assert 20 < len(one) < 200_000
    # Python knows an older Unicode; what it calls a letter is one.
    kind = {r"\p{L}": "L", r"\p{N}": "N", r"\s": "Z"}[pattern]
    assert {c for c in ALL_CHARACTERS if unicodedata.category(c)[0] == kind} <= set(one)


def test_white_space_is_spelled_out_as_the_engines_know_it() -> None:
    one, _ = matched(rf"[{module._WHITE_SPACE}]")
    assert one == matched(r"\s")[0]


def check_characters(tok: BPETokenizer, library: tokenizers.Tokenizer, characters: list[str]) -> None:
    """Each character in all neighbourhoods: the ids show where the pieces end, since a merge never crosses one."""
    for around in (
        "{}",
        "a{}",
        "{}a",
        " {}",
        "{} a",
        "1{}",
        "{}1",
        "!{}",
        "{}!",
        "{}\n",
        "\n{}",
        "'{}",
        "{}{}",
        "  {}",
    ):
        text = "|".join(around.replace("{}", c) for c in characters)
        ids, other = tok.encode(text).tolist(), library.encode(text, add_special_tokens=False).ids
        assert ids == other, f"{around}: {tok.decode(ids[max(0, first_difference(ids, other) - 3) :][:9])!a}"


def first_difference(one: list[int], other: list[int]) -> int:
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def test_a_character_of_each_category_in_all_neighbourhoods(tok: BPETokenizer, library: tokenizers.Tokenizer) -> None:
    check_characters(tok, library, [*ALL_CHARACTERS[:0x500], *ALL_CHARACTERS[0x500::997]])


@pytest.mark.heavy
def test_every_character_in_all_neighbourhoods(tok: BPETokenizer, library: tokenizers.Tokenizer) -> None:
    for start in range(0, len(ALL_CHARACTERS), 50_000):
        check_characters(tok, library, ALL_CHARACTERS[start : start + 50_000])


@given(text=st.text(alphabet=" \n\r\t\u00a0a1é!'", max_size=40))
def test_pieces_are_whole_and_as_designed(text: str) -> None:
    pieces = pieces_by_library(text)
    assert "".join(pieces) == text
    assert all(len(piece) <= 3 for piece in pieces if piece.isdigit())


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("don't WE'LL", ["don", "'t", " WE", "'LL"]),
        ("1234567", ["123", "456", "7"]),
        ("if x:\n    return 10", ["if", " x", ":\n", "   ", " return", " ", "10"]),
        ("a  \n\n  b", ["a", "  \n\n", " ", " b"]),
        ("end.  ", ["end", ".", "  "]),
        ("größe-naïve", ["größe", "-naïve"]),
    ],
)
def test_how_text_is_split(text: str, pieces: list[str]) -> None:
    assert pieces_by_library(text) == pieces


# Long texts.


@pytest.fixture(scope="session")
def short(folder: Path) -> BPETokenizer:
    """Calls runs of white space long from 3 characters on, and so goes around the regex engine."""
    tokenizer = BPETokenizer.load(folder / TOKENIZER)
    tokenizer._longest_run = 3
    return tokenizer


@settings(max_examples=1000)
@given(text=st.text(alphabet=" \n\r\t\u3000a1!'", max_size=40))
def test_long_runs_of_white_space_are_cut_out_right(short: BPETokenizer, tok: BPETokenizer, text: str) -> None:
    assert short.encode(text).tolist() == tok.encode(text).tolist()


@pytest.mark.parametrize("character", ["a", " ", "\n", "1", "!", "é", "\u3000", "\x00", "'"])
def test_100_000_times_one_character(tok: BPETokenizer, library: tokenizers.Tokenizer, character: str) -> None:
    ids = tok.encode(character * 100_000)
    assert tok.decode(ids) == character * 100_000
    assert ids.tolist() == library.encode(character * 100_000, add_special_tokens=False).ids


@pytest.mark.parametrize(
    ("unit", "size"),
    [("lorem ipsum, 42 ", 5_000_000), ("x", 10**6), (" ", 1_100_000), (" \t", 1_100_000), ("!1", 10**6)],
)
def test_a_line_of_megabytes(tok: BPETokenizer, unit: str, size: int) -> None:
    """Quadratic time would not come back before the limit of a test; the regex engine's stack ends at a million."""
    text = unit * (size // len(unit)) + "x"
    assert tok.decode_bytes(tok.encode(text)) == text.encode()


def test_much_that_is_no_utf8(tok: BPETokenizer) -> None:
    data = b"\xff\xfea\x80" * 10_000 + b"\xc3"
    ids = tok.encode(data)
    assert len(ids) == len(data)
    assert tok.decode_bytes(ids) == data


# Files.


def test_fingerprint_is_of_the_content(
    tok: BPETokenizer, changed: Callable[[Callable[[dict[str, Any]], None]], Path]
) -> None:
    def reformatted(content: dict[str, Any]) -> None:
        content["version"] = "9"
        content["model"]["vocab"] = dict(reversed(content["model"]["vocab"].items()))
        content["model"]["merges"] = [" ".join(merge) for merge in content["model"]["merges"]]

    def renamed(content: dict[str, Any]) -> None:
        content["added_tokens"][5]["content"] = "<|im_start|>"
        content["model"]["vocab"]["<|im_start|>"] = content["model"]["vocab"].pop(SPECIALS[5])

    def shorter(content: dict[str, Any]) -> None:
        content["model"]["merges"].pop()
        content["model"]["vocab"] = {k: i for k, i in content["model"]["vocab"].items() if i < 1999}

    same = BPETokenizer.load(changed(reformatted))
    assert same.fingerprint() == tok.fingerprint()
    assert same.encode("the same text").tolist() == tok.encode("the same text").tolist()
    others = {BPETokenizer.load(changed(change)).fingerprint() for change in (renamed, shorter)}
    assert len({tok.fingerprint(), ByteTokenizer().fingerprint(), *others}) == 4


def _normalizer(content: dict[str, Any]) -> None:
    content["normalizer"] = {"type": "NFC"}


def _dropout(content: dict[str, Any]) -> None:
    content["model"]["dropout"] = 0.1


def _other_split(content: dict[str, Any]) -> None:
    content["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = r"\p{L}+"


def _other_pre_tokenizer(content: dict[str, Any]) -> None:
    content["pre_tokenizer"] = content["pre_tokenizer"]["pretokenizers"][1]


def _plain_added(content: dict[str, Any]) -> None:
    content["added_tokens"][7]["special"] = False


def _gap(content: dict[str, Any]) -> None:
    content["model"]["vocab"][next(reversed(content["model"]["vocab"]))] = 5000


def _no_pad(content: dict[str, Any]) -> None:
    del content["added_tokens"][2]


def _lost_merge(content: dict[str, Any]) -> None:
    content["model"]["merges"].pop()


def _swapped_merges(content: dict[str, Any]) -> None:
    merges = content["model"]["merges"]
    merges[3], merges[4] = merges[4], merges[3]


def _unknown_part(content: dict[str, Any]) -> None:
    content["model"]["merges"][0] = ["never", "there"]


def _no_such_byte(content: dict[str, Any]) -> None:
    vocab = content["model"]["vocab"]
    vocab["\u4e00"] = vocab.pop(next(reversed(vocab)))


def _raw_byte(content: dict[str, Any]) -> None:
    vocab = content["model"]["vocab"]
    vocab["\x00"] = vocab.pop("\u0100")


def _no_model(content: dict[str, Any]) -> None:
    del content["model"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (_normalizer, "normalizer"),
        (_dropout, "dropout"),
        (_other_split, "pre_tokenizer"),
        (_other_pre_tokenizer, "pre_tokenizer"),
        (_plain_added, "not special"),
        (_gap, "without gaps"),
        (_no_pad, "ids 0, 1 and 2|bytes"),
        (_lost_merge, "not one for each"),
        (_swapped_merges, "not in the order"),
        (_unknown_part, "no pair of entries"),
        (_no_such_byte, "stands for no byte"),
        (_raw_byte, "stands for no byte"),
        (_no_model, "whole"),
    ],
)
def test_other_tokenizers_are_refused(
    changed: Callable[[Callable[[dict[str, Any]], None]], Path], change: Callable[[dict[str, Any]], None], says: str
) -> None:
    with pytest.raises(DataError, match=says) as caught:
        BPETokenizer.load(changed(change))
    assert "changed.json" in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 100_000, b'{"model": 3}'])
def test_damaged_files_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / TOKENIZER).write_bytes(content)
    with pytest.raises(DataError, match=TOKENIZER.replace(".", r"\.")):
        load_tokenizer(tmp_path)


def by_rank(data: bytes, ids: dict[bytes, int]) -> list[bytes]:
    """BPE as tiktoken does it: join the leftmost pair whose joined bytes have the lowest id."""
    parts = [data[i : i + 1] for i in range(len(data))]
    while True:
        ranked = [(ids[a + b], i) for i, (a, b) in enumerate(pairwise(parts)) if a + b in ids]
        if not ranked:
            return parts
        _, i = min(ranked)
        parts[i : i + 2] = [parts[i] + parts[i + 1]]


@settings(max_examples=300)
@given(data=st.data())
def test_entries_that_never_come_about_are_found(data: st.DataObject) -> None:
    """Random merges, sensible or not, against merging each entry's bytes with what is older."""
    tokens = [bytes([b]) for b in range(256)]
    ids = {token: i for i, token in enumerate(tokens)}
    merges: list[tuple[int, int, int]] = []
    for _ in range(data.draw(st.integers(1, 8))):
        known = [97, 98, 99, *range(256, len(tokens))]
        left, right = data.draw(st.sampled_from(known)), data.draw(st.sampled_from(known))
        joined = tokens[left] + tokens[right]
        if joined not in ids:
            merges.append((left, right, len(tokens)))
            ids[joined] = len(tokens)
            tokens.append(joined)
    good = all(
        by_rank(tokens[result], {token: i for token, i in ids.items() if i < result}) == [tokens[left], tokens[right]]
        for left, right, result in merges
    )
    assert (module._why_not_bpe(tokens, merges) == "") == good


# Where a tokenizer is found.


def test_specs(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    by_file, by_folder = load_tokenizer(folder / TOKENIZER), load_tokenizer(str(folder))
    assert by_file.fingerprint() == by_folder.fingerprint()
    assert (by_file.name, by_folder.name) == (str(folder / TOKENIZER), str(folder))
    assert load_tokenizer(by_folder.name).vocab_size == 2000
    monkeypatch.chdir(folder.parent)
    assert load_tokenizer("bpe").fingerprint() == by_file.fingerprint()
    for spec, says in (("gpt2", "no such file or folder"), (tmp_path, "holds no tokenizer")):
        with pytest.raises(UsageError, match=says) as caught:
            load_tokenizer(spec)
        assert "'byte'" in str(caught.value)


def test_a_run_keeps_a_copy(folder: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    step = run / "checkpoints" / "step-00000003"
    step.mkdir(parents=True)
    for place in (run, step):
        (place / "config.yaml").touch()
    original = load_tokenizer(folder)
    keep_copy(ByteTokenizer(), run)
    assert not (run / TOKENIZER).exists()
    assert tokenizer_of_run(str(folder), run).name == str(folder)
    keep_copy(original, run)
    keep_copy(load_tokenizer(run), run)
    assert (run / TOKENIZER).read_bytes() == (folder / TOKENIZER).read_bytes()
    for place in (run, step):
        assert tokenizer_of_run("no/longer/there", place).fingerprint() == original.fingerprint()
        assert tokenizer_of_run(str(folder), place).name == str(run / TOKENIZER)
        assert isinstance(tokenizer_of_run("byte", place), ByteTokenizer)
    assert tokenizer_for_run("no/longer/there", run).name == str(run / TOKENIZER)
    assert tokenizer_for_run(str(folder), run).name == str(folder)
    (run / "config.yaml").unlink()  # a tokenizer beside other things than a run
    for find in (tokenizer_of_run, tokenizer_for_run):
        with pytest.raises(UsageError, match="no such file"):
            find("no/longer/there", run)


def test_a_large_vocabulary_is_stored_in_32_bits(tok: BPETokenizer, folder: Path) -> None:
    filler = [b"\xff" + i.to_bytes(3, "big") for i in range(64_000)]
    large = BPETokenizer(module.Vocabulary([*tok.vocabulary.tokens, *filler], tok.vocabulary.specials), folder, "large")
    assert large.vocab_size == 66_000
    assert large.encode_batch(["abc"])[0].dtype == np.uint32
    assert read_vocabulary(folder / TOKENIZER) == tok.vocabulary
