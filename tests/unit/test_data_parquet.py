"""Parquet beside JSONL: the same documents, broken files and rows reported."""

import hashlib
import json
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hymo.core.errors import UsageError
from hymo.data import ByteTokenizer, Fields, open_split, prepare
from hymo.data.sources import Rejected, Row, read_blocks, read_documents

TOK = ByteTokenizer()
TEXTS = [f"row {i} " + "größer " * (i % 5) for i in range(100)]


def write(path, columns, rows=7, **options):
    pq.write_table(pa.table(columns), path, row_group_size=rows, **options)
    return path


def quarantine_of(directory):
    return [json.loads(line) for line in (directory / "quarantine.jsonl").read_text("utf-8").splitlines()]


@pytest.mark.parametrize("compression", ["none", "snappy", "zstd"])
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string()), pa.binary()])
def test_the_same_shards_as_from_jsonl(tmp_path, compression, kind):
    lines = [{"text": t, "source": f"s{i % 3}", "id": i} for i, t in enumerate(TEXTS)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    text = pa.array([t.encode() for t in TEXTS] if kind == pa.binary() else TEXTS).cast(kind)
    columns = {"unused": list(range(100)), "text": text, "source": [line["source"] for line in lines]}
    write(tmp_path / "a.parquet", columns | {"id": list(range(100))}, compression=compression)
    for name in ("a.jsonl", "a.parquet"):
        prepare([tmp_path / name], tmp_path / name.replace(".", "-"), TOK, fractions=(0.8, 0.1, 0.1))
    shards = [
        {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in (tmp_path / name).rglob("*.hymo")}
        for name in ("a-jsonl", "a-parquet")
    ]
    assert len(shards[0]) == 3
    assert shards[0] == shards[1]


def test_blocks_end_at_row_groups_and_at_their_size(tmp_path):
    path = write(tmp_path / "a.parquet", {"text": ["x" * 44] * 20, "other": [0] * 20}, rows=8)
    blocks = list(read_blocks(path, Fields(), 1 << 20))
    assert [len(block.items) for block in blocks] == [8, 8, 4]
    assert [len(block.items) for block in read_blocks(path, Fields(), 900)] == [3, 3, 2, 3, 3, 2, 3, 1]
    rows = [item for block in blocks for item in block.items]
    assert all(isinstance(row, Row) and set(row.record) == {"text"} for row in rows)
    assert [row.number for row in rows] == list(range(1, 21))
    positions = [block.position for block in blocks]
    assert positions == sorted(positions)
    assert positions[-1] <= path.stat().st_size


def test_bad_rows_are_quarantined_by_row(tmp_path):
    values = [b"good", None, b"", b" \n", b"bad \xff utf-8", b"nul \0", b"y" * 2000, b"last"]
    text = pa.StringArray.from_buffers(8, *_string_buffers(values))
    path = write(tmp_path / "a.parquet", {"text": text}, rows=3)
    prepare([path], tmp_path / "out", TOK, fractions=(1, 0, 0), fields=Fields(max_document_bytes=1000))
    assert [(q["line"], q["reason"]) for q in quarantine_of(tmp_path / "out")] == [
        (2, "not_a_string"),
        (3, "empty"),
        (4, "empty"),
        (5, "invalid_utf8"),
        (6, "nul"),
        (7, "oversized"),
    ]
    data = open_split(tmp_path / "out", "train", TOK)
    got = {TOK.decode(data.document(i)): data.identity(i) for i in range(data.n_documents)}
    assert got == {"good": ("a", "a.parquet:1"), "last": ("a", "a.parquet:8")}


def _string_buffers(values):
    """Offsets and data of a string column that nobody checked for UTF-8."""
    array = pa.array(values, pa.binary())
    _, offsets, data = array.buffers()
    return offsets, data, array.buffers()[0]


def test_broken_files_cost_themselves_alone(tmp_path):
    whole = write(tmp_path / "whole.parquet", {"text": TEXTS}, compression="gzip")
    data = whole.read_bytes()
    (tmp_path / "cut.parquet").write_bytes(data[: len(data) // 2])
    (tmp_path / "foreign.parquet").write_bytes(b"no table at all " * 9)
    (tmp_path / "empty.parquet").write_bytes(b"")
    damaged = bytearray(data)
    middle = pq.ParquetFile(whole).metadata.row_group(6).column(0).data_page_offset
    damaged[middle : middle + 40] = bytes(40)
    (tmp_path / "damaged.parquet").write_bytes(damaged)
    write(tmp_path / "wrong.parquet", {"content": TEXTS, "lang": ["x"] * 100})
    write(tmp_path / "number.parquet", {"text": [1, 2, 3]})
    manifest = prepare([tmp_path], tmp_path / "out", TOK, fractions=(1, 0, 0))
    assert manifest.quarantined == {"missing_field": 1, "not_a_string": 3, "unreadable": 4}
    found = {(q["file"].rsplit("/", 1)[1], q["line"], q["reason"]) for q in quarantine_of(tmp_path / "out")}
    assert {name for name, _, reason in found if reason == "unreadable"} == {
        f"{name}.parquet" for name in ("cut", "foreign", "empty", "damaged")
    }
    assert ("damaged.parquet", 43, "unreadable") in found
    assert "100 rows" in next(q["detail"] for q in quarantine_of(tmp_path / "out") if q["reason"] == "missing_field")
    assert manifest.splits["train"].documents == len(TEXTS)
    items = list(read_documents(tmp_path / "damaged.parquet", Fields()))
    assert [isinstance(item, Rejected) for item in items] == [False] * 42 + [True]


def test_nested_and_odd_columns_are_no_trouble(tmp_path):
    columns = {"text": ["a", "b"], "source": [{"x": 1}, {"x": 2}], "id": [[1], [2]], "more": [None, None]}
    prepare([write(tmp_path / "a.parquet", columns)], tmp_path / "out", TOK, fractions=(1, 0, 0))
    data = open_split(tmp_path / "out", "train", TOK)
    assert {data.identity(i) for i in range(2)} == {("a", "a.parquet:1"), ("a", "a.parquet:2")}


def test_without_pyarrow_the_message_names_the_extra(tmp_path, monkeypatch):
    path = write(tmp_path / "a.parquet", {"text": ["x"]})
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(UsageError, match=r"hymo\[data\]"):
        prepare([path], tmp_path / "out", TOK)
