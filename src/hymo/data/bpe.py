"""Byte-level BPE: a ``tokenizer.json`` of Hugging Face's format, encoded by tiktoken.

A text is first split into pieces by a regular expression, then the bytes of each piece are merged, pair by pair, in the
order in which training found the pairs (Sennrich et al. 2016; on bytes: Radford et al. 2019). `SPLIT` cuts as GPT-4's
tokenizer does: contractions, a word with the sign or space before it, up to three digits, signs with their line ends,
white space that ends in a line end, other white space less the last character before a word.

tiktoken knows no list of merges. It joins the neighbours whose joined bytes have the lowest id. Both rules agree if
every entry is what the rule makes of its own bytes; training guarantees that, and loading checks it for each entry, so
a file either gives the ids that the Hugging Face library gives or is refused.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import tiktoken
from numpy.typing import NDArray

from hymo.core.errors import DataError
from hymo.data.tokenizer import Ids

# Only the last alternative but one looks ahead. Those before it are one group, which the regex engine behind tiktoken
# can run without backtracking: 31 instead of 18 MB/s on one core. Letters of both cases are spelled out because engines
# fold case differently.
SPLIT = (
    r"(?:'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n])|\s+(?!\S)|\s+"
)
N_RESERVED = 13
SPECIALS = ("<|endoftext|>", "<|bos|>", "<|pad|>", *(f"<|reserved_{i}|>" for i in range(N_RESERVED)))
"""Special entries of a tokenizer trained here, in the order of their ids from 0."""

# The regex engine keeps one entry on a stack of 1,000,000 for each character of white space that it may give back.
_LONG_RUN = 500_000
_WHITE_SPACE = r"\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"  # Unicode's White_Space
_NOT_UTF8 = re.compile("([\udc80-\udcff]+)")  # what errors="surrogateescape" makes of bytes that are no UTF-8
_ONE_PIECE, _WORD_CHARACTER = r"(?s:.+)", r"[\p{L}\p{N}]"


def byte_letters() -> dict[int, str]:
    """Return the printable character that stands for each byte in a ``tokenizer.json`` (a convention of GPT-2).

    Bytes that are printable in Latin-1 stand for themselves, the others for the characters from U+0100 on.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {**{byte: chr(byte) for byte in printable}, **{byte: chr(0x100 + i) for i, byte in enumerate(others)}}


@dataclass(frozen=True)
class Vocabulary:
    """What decides the ids of a tokenizer beside `SPLIT`: `tokens` (bytes by id, None for specials) and `specials`."""

    tokens: list[bytes | None]
    specials: dict[str, int]

    def fingerprint(self) -> str:
        """Return the SHA-256 hex digest of entries, specials and split regex; how the file is written does not count.

        The merges are not part of it: they follow from the entries.
        """
        content = {
            "kind": "byte-level BPE",
            "split": SPLIT,
            "specials": sorted(self.specials.items(), key=lambda item: item[1]),
            "tokens": [None if token is None else token.hex() for token in self.tokens],
        }
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()


class BPETokenizer:
    """A trained byte-level BPE tokenizer: lossless for any bytes.

    Special strings inside a text are text. Bytes that are no UTF-8 become one id each, and what stands between them is
    encoded as a text of its own.

    Attributes:
        name: the spec it was loaded by.
        file: its ``tokenizer.json``.
        vocabulary: its content.
    """

    eos_id = 0
    bos_id = 1
    pad_id = 2

    def __init__(self, vocabulary: Vocabulary, file: Path, name: str) -> None:
        self.vocabulary, self.file, self.name = vocabulary, file, name
        self.vocab_size = len(vocabulary.tokens)
        self._dtype: type[np.uint16 | np.uint32] = np.uint16 if self.vocab_size < 65_536 else np.uint32
        self._longest_run = _LONG_RUN
        self._bytes = [token or b"" for token in vocabulary.tokens]
        self._encoding = self._engine(SPLIT)
        self._fingerprint = vocabulary.fingerprint()

    @classmethod
    def load(cls, file: str | Path, name: str | None = None) -> BPETokenizer:
        """Read a ``tokenizer.json``.

        Raises:
            DataError: not JSON, not such a tokenizer, or one that HyMo cannot use; the message names the field.
        """
        return cls(read_vocabulary(Path(file)), Path(file), str(file) if name is None else name)

    def encode(self, text: str | bytes) -> NDArray[np.int64]:
        """Return the ids of `text`, shape (n,), never a special one.

        Raises:
            DataError: `text` is a str with a lone surrogate, which has no UTF-8 form.
        """
        return self._ids(text).astype(np.int64)

    def encode_batch(self, texts: Sequence[str | bytes]) -> list[NDArray[np.unsignedinteger[Any]]]:
        """Return the ids of each text as uint16, or as uint32 from 65,536 entries on.

        Raises:
            DataError: as `encode`.
        """
        return [self._ids(text).astype(self._dtype) for text in texts]

    def decode_bytes(self, ids: Ids) -> bytes:
        """Return the bytes of `ids`; specials add nothing.

        Raises:
            DataError: an id is not in the vocabulary.
        """
        array = np.asarray(ids, dtype=np.int64)
        if array.size and (array.min() < 0 or array.max() >= self.vocab_size):
            bad = int(array[(array < 0) | (array >= self.vocab_size)][0])
            raise DataError(f"id {bad} is not in the vocabulary of tokenizer '{self.name}' (0..{self.vocab_size - 1})")
        return b"".join([self._bytes[i] for i in array.tolist()])

    def decode(self, ids: Ids) -> str:
        """Return the text of `ids`; bytes that are not UTF-8 become U+FFFD."""
        return self.decode_bytes(ids).decode("utf-8", errors="replace")

    def fingerprint(self) -> str:
        """Return the SHA-256 of what decides the ids, see `Vocabulary.fingerprint`."""
        return self._fingerprint

    def _engine(self, split: str) -> tiktoken.Encoding:
        """Return an encoder with another split regex; text that `split` does not match gives no ids."""
        ranks = {token: i for i, token in enumerate(self.vocabulary.tokens) if token is not None}
        return tiktoken.Encoding(
            "hymo", pat_str=split, mergeable_ranks=ranks, special_tokens={SPECIALS[0]: self.eos_id}
        )

    @cached_property
    def _one_piece(self) -> tiktoken.Encoding:
        return self._engine(_ONE_PIECE)

    @cached_property
    def _word_characters(self) -> tiktoken.Encoding:
        return self._engine(_WORD_CHARACTER)

    @cached_property
    def _long_run(self) -> re.Pattern[str]:
        return re.compile(f"(?<![{_WHITE_SPACE}])[{_WHITE_SPACE}]{{{self._longest_run},}}")

    def _ids(self, text: str | bytes) -> NDArray[np.uint32]:
        if isinstance(text, bytes):
            try:
                decoded = text.decode("utf-8")
            except UnicodeDecodeError:
                return self._ids_of_bytes(text)
            text = decoded
        try:
            if len(text) >= self._longest_run and self._long_run.search(text):
                return np.concatenate(list(self._around_long_runs(text)))
            return self._encoding.encode_to_numpy(text, disallowed_special=())
        except UnicodeEncodeError as error:
            raise DataError(
                f"text has a lone surrogate at character {error.start}, which UTF-8 cannot hold: "
                "repair the text or pass bytes"
            ) from error

    def _ids_of_bytes(self, data: bytes) -> NDArray[np.uint32]:
        parts = _NOT_UTF8.split(data.decode("utf-8", errors="surrogateescape"))
        ids = [self._ids(part) for part in parts[::2]]
        for i, part in enumerate(parts[1::2]):
            single = [self._byte_ids[byte] for byte in part.encode("utf-8", errors="surrogateescape")]
            ids.insert(2 * i + 1, np.array(single, dtype=np.uint32))
        return np.concatenate(ids)

    @cached_property
    def _byte_ids(self) -> list[int]:
        ids = {token: i for i, token in enumerate(self.vocabulary.tokens)}
        return [ids[bytes([byte])] for byte in range(256)]

    def _around_long_runs(self, text: str) -> Iterator[NDArray[np.uint32]]:
        """Cut out the pieces of `SPLIT` that long runs of white space make; the regex engine would fail on them."""
        start = 0
        for run in self._long_run.finditer(text):
            head, space = text[start : run.start()], run.group()
            # Signs keep the line ends behind them; words do not.
            if head and not self._word_characters.encode_to_numpy(head[-1]).size:
                line_ends = space[: len(space) - len(space.lstrip("\r\n"))]
                head, space = head + line_ends, space[len(line_ends) :]
            cut = max(space.rfind("\r"), space.rfind("\n")) + 1
            yield self._encoding.encode_to_numpy(head, disallowed_special=())
            yield self._one_piece.encode_to_numpy(space[:cut])
            # The last character of white space goes with the word or sign behind it, if there is one.
            last = 1 if space[cut:] and run.end() < len(text) else 0
            yield self._one_piece.encode_to_numpy(space[cut : len(space) - last])
            start = run.end() - last
        yield self._encoding.encode_to_numpy(text[start:], disallowed_special=())


def read_vocabulary(file: Path) -> Vocabulary:
    """Read and check a ``tokenizer.json``.

    Raises:
        DataError: see `BPETokenizer.load`.
    """

    def refuse(what: str) -> DataError:
        return DataError(f"{file}: {what}. HyMo reads byte-level BPE as `hymo tokenizer train` writes it.")

    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        model = content["model"]
        entries = {str(entry): int(i) for entry, i in model["vocab"].items()}
        merges = [tuple(merge.split(" ")) if isinstance(merge, str) else tuple(merge) for merge in model["merges"]]
        added = [(str(item["content"]), int(item["id"]), bool(item["special"])) for item in content["added_tokens"]]
        split = _split_regex(content)
        plain = model["type"] == "BPE" and content.get("normalizer") is None
        odd = [
            key for key in ("dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix") if model.get(key)
        ]
    except OSError as error:
        raise DataError(f"{file}: cannot be read ({error.strerror}). Check the path and its permissions.") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise refuse(f"not a whole tokenizer.json ({error!r})") from error
    if not plain or odd or model.get("byte_fallback"):
        raise refuse(f"model of another kind ({', '.join(odd) or 'type, normalizer or byte_fallback'})")
    if split != SPLIT:
        # Another regex may skip text or be read differently by the two engines, so nothing could be promised of it.
        raise refuse(f"pre_tokenizer: not a Split by {SPLIT!r} followed by ByteLevel without a regex")
    if ordinary := [entry for entry, _, special in added if not special]:
        raise refuse(f"added_tokens: {ordinary[0]!r} is not special")
    specials = {entry: i for entry, i, _ in added}
    entries.update(specials)
    if sorted(entries.values()) != list(range(len(entries))):
        raise refuse("model.vocab: its ids are not 0, 1, 2, … without gaps")
    if not {0, 1, 2} <= set(specials.values()):
        raise refuse("added_tokens: ids 0, 1 and 2 must be special (end of text, begin of text, padding)")
    letters = {ord(letter): byte for byte, letter in byte_letters().items()}
    if unknown := {ord(c) for entry in entries if entry not in specials for c in entry} - set(letters):
        raise refuse(f"model.vocab: {chr(min(unknown))!r} stands for no byte")
    tokens: list[bytes | None] = [None] * len(entries)
    for entry, i in entries.items():
        if entry not in specials:
            tokens[i] = entry.translate(letters).encode("latin-1")
    try:
        pairs = [(entries[left], entries[right], entries[left + right]) for left, right in merges]
    except (KeyError, ValueError, TypeError) as error:
        raise refuse(f"model.merges: one that is no pair of entries whose join is an entry ({error})") from error
    if problem := _why_not_bpe(tokens, pairs):
        raise refuse(problem)
    return Vocabulary(tokens, specials)


def _split_regex(content: dict[str, Any]) -> str | None:
    """Return the regex of a pre-tokenizer that is a Split by it, then ByteLevel without a regex; None of another."""
    match content["pre_tokenizer"]:
        case {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": str(split)}, "behavior": "Isolated", "invert": False},
                {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False},
            ],
        }:
            return split
    return None


def _why_not_bpe(tokens: Sequence[bytes | None], merges: Sequence[tuple[int, int, int]]) -> str:
    """Say why joining neighbours of the lowest joined id is not the same as these merges (left, right, result)."""
    ids = {token: i for i, token in enumerate(tokens) if token is not None}
    parts = {result: (left, right) for left, right, result in merges}
    single = [i for token, i in ids.items() if len(token) == 1]
    if len(single) != 256:
        return f"model.vocab: has {len(single)} of the 256 bytes, so some text would be lost"
    if len(ids) != 256 + len(merges) or len(parts) != len(merges) or None in (tokens[i] for m in merges for i in m):
        return "model.merges: not one for each entry beside bytes and specials"
    order = [max(single), *(result for _, _, result in merges)]
    if any(before >= after for before, after in pairwise(order)):
        return "model.merges: not in the order of the ids of what they make"
    for left, right, result in merges:
        if not _comes_about(left, right, result, parts, tokens, ids):
            return f"model.merges: {tokens[result]!r} never comes about, since its bytes are merged otherwise before"
    return ""


def _comes_about(
    left: int,
    right: int,
    result: int,
    parts: dict[int, tuple[int, int]],
    tokens: Sequence[bytes | None],
    ids: dict[bytes, int],
) -> bool:
    """Whether merging the bytes of `left` and `right` by lowest id leaves the border between them until `result`.

    Goes back in time: the younger of the two neighbours at the border is taken apart, until both are bytes. Any pair of
    neighbours met on the way must not have been merged before the younger one came up. Of equal pairs the left one is
    merged first.
    """
    before = result
    while True:
        rival = ids.get((tokens[left] or b"") + (tokens[right] or b""))
        if rival is not None and rival < before:
            return False
        if max(left, right) not in parts:
            return True
        if left > right:
            before, left = left, parts[left][1]
        else:
            before, right = right + 1, parts[right][0]
