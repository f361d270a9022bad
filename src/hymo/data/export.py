"""Shards in the formats of other trainers: an exit for whoever wants to leave.

    megatron    SPLIT.bin, SPLIT.idx              Megatron-LM's indexed data set: one sequence per document
    datatrove   00000_SPLIT.ds + .index, .metadata   one triple per shard
    llmc        SPLIT_000000.bin                  llm.c and modded-nanogpt: 256 int32 of header, then uint16 tokens

Tokens are written as they are stored, ``bos text eos`` for each document, little-endian.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np

from hymo.core.errors import UsageError, nearest
from hymo.core.files import writing
from hymo.data.dataset import SPLITS, load_manifest, open_split
from hymo.data.shards import ShardReader

_MEGATRON_MAGIC = b"MMIDIDX\x00\x00"
_MEGATRON_CODES = {"uint16": 8, "int32": 4}
_LLMC_MAGIC, _LLMC_VERSION, _LLMC_HEADER = 20240520, 1, 256


def export(directory: str | Path, out: str | Path, to: str) -> list[Path]:
    """Write all splits of a data set in another format and return the files, in order.

    Args:
        directory: the data set; every byte of it is checked first.
        out: a folder, made if need be; files of the same names are replaced.
        to: "megatron", "datatrove" or "llmc".

    Raises:
        UsageError: an unknown format, or one that cannot hold a vocabulary of more than 65,536 entries.
        DataError: the data set is damaged.
    """
    if to not in FORMATS:
        raise UsageError(f"unknown format '{to}'{nearest(to, FORMATS)}; HyMo exports to {', '.join(FORMATS)}")
    manifest = load_manifest(directory)
    out = Path(out)
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
    written = []
    for split in SPLITS:
        if split in manifest.splits and manifest.splits[split].shards:
            readers = open_split(directory, split, verify=True).readers
            written += FORMATS[to](readers, out, split, manifest.tokenizer)
    return written


@contextmanager
def _new(path: Path) -> Iterator[IO[bytes]]:
    """Open a file that appears under its name only when it is complete."""
    temporary = path.with_name(f".{path.name}.tmp")
    with writing(path):
        try:
            with temporary.open("wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)


def _to_megatron(readers: list[ShardReader], out: Path, split: str, tokenizer: str) -> list[Path]:
    kind = "uint16" if readers[0].tokens.dtype.itemsize == 2 else "int32"
    dtype = np.dtype(kind).newbyteorder("<")
    data, index = out / f"{split}.bin", out / f"{split}.idx"
    with _new(data) as file:
        for reader in readers:
            file.write(np.ascontiguousarray(reader.tokens, dtype=dtype).data)
    lengths = np.concatenate([np.diff(reader.offsets) for reader in readers])
    pointers = (np.cumsum(lengths) - lengths) * dtype.itemsize
    with _new(index) as file:
        file.write(_MEGATRON_MAGIC + struct.pack("<QB", 1, _MEGATRON_CODES[kind]))
        file.write(struct.pack("<QQ", len(lengths), len(lengths) + 1))
        file.write(lengths.astype("<i4").data)
        file.write(pointers.astype("<i8").data)
        file.write(np.arange(len(lengths) + 1, dtype="<i8").data)
    return [data, index]


def _to_datatrove(readers: list[ShardReader], out: Path, split: str, tokenizer: str) -> list[Path]:
    written = []
    for number, reader in enumerate(readers):
        path = out / f"{number:05d}_{split}.ds"
        written += [path, Path(f"{path}.index"), Path(f"{path}.metadata")]
        with _new(written[-3]) as file:
            file.write(np.ascontiguousarray(reader.tokens).data)
        with _new(written[-2]) as file:
            file.write(reader.offsets[1:].astype("<u8").data)
        with _new(written[-1]) as file:
            file.write(f"{tokenizer}|{reader.tokens.dtype.itemsize}\n{reader.n_tokens}".encode())
    return written


def _to_llmc(readers: list[ShardReader], out: Path, split: str, tokenizer: str) -> list[Path]:
    written = []
    for number, reader in enumerate(readers):
        if reader.tokens.dtype.itemsize != 2:
            raise UsageError("llmc holds 16-bit tokens: a vocabulary above 65,535 entries fits megatron or datatrove")
        header = np.zeros(_LLMC_HEADER, dtype="<i4")
        header[:3] = _LLMC_MAGIC, _LLMC_VERSION, reader.n_tokens
        written.append(out / f"{split}_{number:06d}.bin")
        with _new(written[-1]) as file:
            file.write(header.data)
            file.write(np.ascontiguousarray(reader.tokens).data)
    return written


FORMATS: dict[str, Callable[[list[ShardReader], Path, str, str], list[Path]]] = {
    "megatron": _to_megatron,
    "datatrove": _to_datatrove,
    "llmc": _to_llmc,
}
