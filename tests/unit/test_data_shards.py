import itertools
import json
import os
import shutil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hymo.core.errors import DataError, UsageError
from hymo.data import ByteTokenizer, load_manifest, open_split, prepare, verify_dataset
from hymo.data.shards import ShardReader, ShardWriter, verify

TOK = ByteTokenizer()
DOCUMENTS = [b"first document", b"\xff\xfe not utf-8 \x00", "größer".encode(), b"x", b"the last one " * 9]


class Foreign(ByteTokenizer):
    name = "foreign"

    def fingerprint(self):
        return "f" * 64


class Wide(ByteTokenizer):
    vocab_size = 70_000


def write(folder, documents, shard_tokens=50_000_000, tokenizer=TOK):
    with ShardWriter(folder, "train", tokenizer, shard_tokens) as writer:
        for i, text in enumerate(documents):
            writer.add(tokenizer.encode(text), len(text), f"source-{i % 2}", f"dök-{i}")
    return writer.shards


@pytest.fixture
def shard(tmp_path):
    write(tmp_path, DOCUMENTS)
    return tmp_path / "train-00000.hymo"


def test_documents_come_back_as_bos_text_eos(shard):
    reader = ShardReader(shard, TOK, verify=True)
    assert reader.n_documents == len(DOCUMENTS)
    assert reader.n_tokens == sum(len(d) + 2 for d in DOCUMENTS)
    assert reader.text_bytes.tolist() == [len(d) for d in DOCUMENTS]
    assert reader.tokens.dtype == np.uint16
    for i, text in enumerate(DOCUMENTS):
        assert reader.document(i).tolist() == [1, *(b + 3 for b in text), 0]
        assert (reader.source(i), reader.document_id(i)) == (f"source-{i % 2}", f"dök-{i}")
    assert verify(shard, TOK).digest == reader.digest


@settings(max_examples=30, deadline=None)
@given(st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=12), st.integers(42, 90))
def test_shards_keep_order_and_never_cut_a_document(tmp_path_factory, documents, shard_tokens):
    folder = tmp_path_factory.mktemp("shards")
    infos = write(folder, documents, shard_tokens)
    readers = [ShardReader(folder / info.file, TOK, verify=True) for info in infos]
    texts = [TOK.decode_bytes(r.document(i)) for r in readers for i in range(r.n_documents)]
    assert texts == documents
    assert all(r.n_tokens <= shard_tokens for r in readers)
    # Greedy: the next shard's first document would not have fitted.
    for left, right in itertools.pairwise(readers):
        assert left.n_tokens + len(right.document(0)) > shard_tokens
    shutil.rmtree(folder)


def test_wide_vocabulary_takes_four_bytes(tmp_path):
    with ShardWriter(tmp_path, "train", Wide()) as writer:
        writer.add(np.array([5, 69_999, 65_536]), 7)
    reader = ShardReader(tmp_path / "train-00000.hymo", verify=True)
    assert reader.tokens.dtype == np.uint32
    assert reader.document(0).tolist() == [1, 5, 69_999, 65_536, 0]


@pytest.mark.parametrize(
    ("ids", "n_bytes", "reason"),
    [
        ([], 0, "empty"),
        ([5, 0], 2, "special"),
        ([5, 1], 2, "special"),
        ([5, 259], 2, "outside"),
        ([5] * 99, 99, "holds"),
    ],
)
def test_writer_refuses_what_is_no_document(tmp_path, ids, n_bytes, reason):
    writer = ShardWriter(tmp_path, "train", TOK, shard_tokens=100)
    with pytest.raises(DataError, match=reason):
        writer.add(np.array(ids, dtype=np.int64), n_bytes, "s", "the-id")
    assert writer.close() == []


def test_nothing_appears_if_writing_fails_halfway(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DataError, match=r"train-00000\.hymo.*No space"):
        write(tmp_path, DOCUMENTS)
    assert list(tmp_path.iterdir()) == []


def test_every_truncation_is_refused(shard):
    whole = shard.read_bytes()
    for size in [*range(80), *range(80, len(whole), 61), len(whole) - 1]:
        shard.write_bytes(whole[:size])
        with pytest.raises(DataError, match=r"train-00000\.hymo.*(truncated|magic)"):
            ShardReader(shard)
    shard.write_bytes(whole + b"\0")
    with pytest.raises(DataError, match="longer"):
        ShardReader(shard)


def test_every_flipped_byte_is_found(shard):
    whole = shard.read_bytes()
    for position in range(len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= 0x10
        shard.write_bytes(damaged)
        with pytest.raises(DataError, match=r"train-00000\.hymo"):
            ShardReader(shard, TOK, verify=True)


def test_flips_are_named_by_section_and_index_flips_found_on_opening(shard):
    reader = ShardReader(shard)
    whole, start = shard.read_bytes(), reader._header_end
    for name, info in ((n, reader.header["sections"][n]) for n in ("tokens", "offsets", "text_bytes")):
        damaged = bytearray(whole)
        damaged[start] ^= 1
        shard.write_bytes(damaged)
        with pytest.raises(DataError, match=f"section '{name}'"):
            verify(shard)
        if name != "tokens":
            with pytest.raises(DataError, match=f"section '{name}'"):
                ShardReader(shard)
        start += -(-info["count"] * np.dtype(info["dtype"]).itemsize // 64) * 64


def test_magic_version_and_tokenizer(shard, tmp_path):
    with pytest.raises(DataError, match=r"foreign tokenizer.*'foreign'"):
        ShardReader(shard, Foreign())
    whole = shard.read_bytes()
    shard.write_bytes(whole[:8] + (9).to_bytes(4, "little") + whole[12:])
    with pytest.raises(DataError, match="version 9"):
        ShardReader(shard)
    shard.write_bytes(b"NOTSHARD" + whole[8:])
    with pytest.raises(DataError, match="magic"):
        ShardReader(shard)
    with pytest.raises(DataError, match=r"absent\.hymo"):
        ShardReader(tmp_path / "absent.hymo")


@pytest.fixture
def dataset(tmp_path):
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps({"text": f"document number {i} " * 5}) + "\n" for i in range(40)))
    prepare([source], tmp_path / "set", TOK, fractions=(0.5, 0.5, 0.0), shard_tokens=500)
    return tmp_path / "set"


def test_damage_of_a_set_is_found_and_named(dataset):
    verify_dataset(dataset, TOK)
    train = dataset / "train"
    last = sorted(train.iterdir())[-1]
    whole = last.read_bytes()

    last.write_bytes(whole[:-64])
    with pytest.raises(DataError, match=last.name):
        open_split(dataset, "train")
    last.write_bytes(whole)
    open_split(dataset, "train")

    # An intact shard that is not the listed one.
    shutil.copy(sorted(train.iterdir())[0], last)
    with pytest.raises(DataError, match=rf"{last.name}.*lists"):
        open_split(dataset, "train")
    last.unlink()
    with pytest.raises(DataError, match=rf"{last.name}.*missing"):
        verify_dataset(dataset)


def test_opening_the_wrong_thing_says_so(dataset, tmp_path):
    with pytest.raises(UsageError, match="did you mean 'validation'"):
        open_split(dataset, "validaton")
    with pytest.raises(UsageError, match="test split holds no documents"):
        open_split(dataset, "test")
    with pytest.raises(DataError, match="foreign tokenizer"):
        open_split(dataset, "train", Foreign())
    with pytest.raises(UsageError, match="nowhere"):
        open_split(tmp_path / "nowhere")
    manifest = dataset / "dataset.json"
    manifest.write_text(manifest.read_text()[:100])
    with pytest.raises(DataError, match="damaged manifest"):
        load_manifest(dataset)
    manifest.unlink()
    with pytest.raises(UsageError, match="no complete data set"):
        open_split(dataset)
