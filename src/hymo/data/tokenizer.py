"""Text to ids and back, without loss.

A tokenizer maps bytes to ids and ids to the same bytes. The special ids (eos 0, bos 1, pad 2) are never produced from
text, whatever the text contains: they are placed by the shard writer, the evaluation windows and the generator.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hymo.core.errors import DataError, UsageError
from hymo.core.files import write_text
from hymo.core.load import CONFIG

Ids: TypeAlias = Sequence[int] | NDArray[np.integer[Any]]
TOKENIZER = "tokenizer.json"
"""Name of a trained tokenizer's file."""


class Tokenizer(Protocol):
    """What the rest of HyMo asks of a tokenizer."""

    @property
    def name(self) -> str:
        """The spec that `load_tokenizer` turns into this tokenizer."""

    @property
    def vocab_size(self) -> int:
        """Number of ids, specials included."""

    @property
    def eos_id(self) -> int:
        """Ends every stored document."""

    @property
    def bos_id(self) -> int:
        """Starts every stored document."""

    @property
    def pad_id(self) -> int:
        """Fills rows of evaluation windows; never stored."""

    def encode(self, text: str | bytes) -> NDArray[np.int64]:
        """Return the ids of `text`, shape (n,), without any special id."""

    def encode_batch(self, texts: Sequence[str | bytes]) -> list[NDArray[np.unsignedinteger[Any]]]:
        """Return the ids of each text in the type that shards store: uint16, or uint32 from 65,536 entries on."""

    def decode(self, ids: Ids) -> str:
        """Return the text of `ids`; specials add nothing, bytes that are not UTF-8 become U+FFFD."""

    def decode_bytes(self, ids: Ids) -> bytes:
        """Return the exact bytes of `ids`; specials add nothing."""

    def fingerprint(self) -> str:
        """Return a SHA-256 hex digest: equal for two tokenizers if and only if they give the same ids."""


class ByteTokenizer:
    """The tokenizer without training: byte b is id 3 + b, 259 ids in all. Lossless for any bytes."""

    name = "byte"
    eos_id = 0
    bos_id = 1
    pad_id = 2
    n_specials = 3
    vocab_size = 256 + n_specials

    def encode(self, text: str | bytes) -> NDArray[np.int64]:
        """Return one id a byte, shape (n,).

        Raises:
            DataError: `text` is a str with a lone surrogate, which has no UTF-8 form.
        """
        if isinstance(text, str):
            try:
                text = text.encode("utf-8")
            except UnicodeEncodeError as error:
                raise DataError(
                    f"text has a lone surrogate at character {error.start}, which UTF-8 cannot hold: "
                    "repair the text or pass bytes"
                ) from error
        return np.frombuffer(text, dtype=np.uint8).astype(np.int64) + self.n_specials

    def encode_batch(self, texts: Sequence[str | bytes]) -> list[NDArray[np.unsignedinteger[Any]]]:
        """Return the ids of each text as uint16.

        Raises:
            DataError: as `encode`.
        """
        return [self.encode(text).astype(np.uint16) for text in texts]

    def decode_bytes(self, ids: Ids) -> bytes:
        """Return the bytes of `ids`; specials add nothing.

        Raises:
            DataError: an id is outside 0..258.
        """
        array = np.asarray(ids, dtype=np.int64)
        if array.size and (array.min() < 0 or array.max() >= self.vocab_size):
            bad = int(array[(array < 0) | (array >= self.vocab_size)][0])
            raise DataError(f"id {bad} is not in the byte tokenizer's vocabulary (0..{self.vocab_size - 1})")
        return (array[array >= self.n_specials] - self.n_specials).astype(np.uint8).tobytes()

    def decode(self, ids: Ids) -> str:
        """Return the text of `ids`; bytes that are not UTF-8 become U+FFFD."""
        return self.decode_bytes(ids).decode("utf-8", errors="replace")

    def fingerprint(self) -> str:
        """Return the SHA-256 of the mapping's description."""
        mapping = {"kind": self.name, "eos": self.eos_id, "bos": self.bos_id, "pad": self.pad_id, "byte_0": 3}
        return hashlib.sha256(json.dumps(mapping, sort_keys=True).encode()).hexdigest()


def load_tokenizer(spec: str | Path) -> Tokenizer:
    """Return the tokenizer that `spec` names.

    Args:
        spec: ``"byte"``, or the path of a ``tokenizer.json`` or of a folder that holds one. A relative path starts at
            the current folder, wherever the spec is written.

    Raises:
        UsageError: neither of them.
        DataError: the file is damaged, or is no tokenizer that HyMo can use.
    """
    if str(spec) == ByteTokenizer.name:
        return ByteTokenizer()
    path = Path(spec)
    file = path / TOKENIZER if path.is_dir() else path
    if not file.is_file():
        reason = f"that folder holds no {TOKENIZER}" if path.is_dir() else "no such file or folder"
        raise UsageError(
            f"tokenizer '{spec}': {reason}. Give 'byte', or the path of a {TOKENIZER} or its folder; "
            "`hymo tokenizer train` makes one."
        )
    from hymo.data.bpe import BPETokenizer

    return BPETokenizer.load(file, str(spec))


def tokenizer_of_run(spec: str, place: Path) -> Tokenizer:
    """Return the tokenizer that a run was trained with: the copy in its folder if it has one, else `spec`.

    Args:
        spec: `run.tokenizer` of its configuration.
        place: the run's folder or one of its checkpoints.

    Raises:
        UsageError, DataError: as in `load_tokenizer`.
    """
    if spec != ByteTokenizer.name:
        place = place.resolve()
        for folder in (place, *place.parents[:2]):
            if (folder / TOKENIZER).is_file() and (folder / CONFIG).is_file():
                return load_tokenizer(folder / TOKENIZER)
    return load_tokenizer(spec)


def tokenizer_for_run(spec: str, folder: Path) -> Tokenizer:
    """Return the tokenizer to train with: `spec`, or the copy in the run's folder where `spec` is no longer there.

    Raises:
        UsageError, DataError: as in `load_tokenizer`.
    """
    gone = spec != ByteTokenizer.name and not Path(spec).exists()
    return tokenizer_of_run(spec, folder) if gone else load_tokenizer(spec)


def keep_copy(tokenizer: Tokenizer, folder: Path) -> None:
    """Put the file of a trained tokenizer into a run's folder, so that the run can be used where the original is not.

    Raises:
        StorageError, UsageError: the folder cannot be written.
    """
    if isinstance(tokenizer, ByteTokenizer):
        return
    from hymo.data.bpe import BPETokenizer

    assert isinstance(tokenizer, BPETokenizer)
    if not (folder / TOKENIZER).exists() or not tokenizer.file.samefile(folder / TOKENIZER):
        write_text(folder / TOKENIZER, tokenizer.file.read_text(encoding="utf-8"))
