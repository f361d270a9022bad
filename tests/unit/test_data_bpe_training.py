"""What a tokenizer is trained on, and when it is refused."""

from __future__ import annotations

import json
import lzma
from collections.abc import Sequence
from pathlib import Path

import pytest

from hymo.core.errors import DataError, UsageError
from hymo.data import ByteTokenizer, Fields, sample_paths
from hymo.data.bpe_training import Sample, SourceCounts, count_tokens, sample_of, total, train

SMALLEST = 16 + 256


def write(path: Path, *texts: str, source: str = "s") -> Path:
    path.write_text("".join(json.dumps({"text": text, "source": source}) + "\n" for text in texts))
    return path


@pytest.fixture
def inputs(tmp_path: Path) -> list[Path]:
    """Three inputs of documents of 10 bytes: 30, 20 and, of two files, 3 documents."""
    (tmp_path / "c").mkdir()
    write(tmp_path / "c" / "1.jsonl", "c00-------", "c01-------")
    write(tmp_path / "c" / "0.jsonl", "c10-------")
    return [
        write(tmp_path / "a.jsonl", *(f"a{i:02}-------" for i in range(30))),
        write(tmp_path / "b.jsonl", *(f"b{i:02}-------" for i in range(20))),
        tmp_path / "c",
    ]


def heads(sample: Sample) -> list[str]:
    return [document.text[:3].decode() for document in sample]


def test_inputs_take_turns_until_the_limit(inputs: Sequence[Path]) -> None:
    sample = sample_of(inputs, limit=95)
    assert heads(sample) == ["a00", "b00", "c10", "a01", "b01", "c00", "a02", "b02", "c01"]
    assert (sample.documents, sample.bytes, sample.whole) == ([3, 3, 3], [30, 30, 30], False)
    assert heads(sample) == heads(sample_of(inputs, limit=95))


def test_weights_share_out_bytes_while_an_input_lasts(inputs: Sequence[Path]) -> None:
    sample = sample_of(inputs, limit=300, weights=[4, 1, 1])
    heads(sample)
    assert sample.documents == [21, 6, 3]
    everything = sample_of(inputs, weights=[1, 9, 1])
    heads(everything)
    assert (everything.documents, everything.whole) == ([30, 20, 3], True)


def test_reading_is_shown(inputs: Sequence[Path]) -> None:
    seen: list[tuple[int, int]] = []
    heads(sample_of(inputs, progress=lambda done, total: seen.append((done, total))))
    size = sum(path.stat().st_size for path in [*inputs[:2], *inputs[2].iterdir()])
    assert seen[-1] == (size, size)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_unusable_documents_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'{"text": "good"}\n{"text": 3}\n\xff\n{"tex": "x"}\n{"text": " "}\n')
    sample = sample_of([path])
    assert heads(sample) == ["goo"]
    assert sample.rejected == {"not_a_string": 1, "invalid_utf8": 1, "missing_field": 1, "empty": 1}
    path.write_text('{"text": 3}\n')
    for use in (lambda: count_tokens(ByteTokenizer(), sample), lambda: train(sample, tmp_path / "out", SMALLEST)):
        with pytest.raises(DataError, match=r"no usable document.*1 not_a_string"):
            use()
    assert not (tmp_path / "out").exists()


def test_counts_by_source(tmp_path: Path) -> None:
    write(tmp_path / "b.jsonl", "four", "sixsix", source="b")
    write(tmp_path / "a.jsonl", "äé", source="a")
    counts = count_tokens(ByteTokenizer(), sample_of([tmp_path]))
    assert list(counts.items()) == [("a", SourceCounts(1, 4, 4)), ("b", SourceCounts(2, 10, 10))]
    assert total(counts) == SourceCounts(3, 14, 14)
    assert SourceCounts(1, 9, 2).bytes_per_token == 4.5


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"inputs": []}, "no input files"),
        ({"limit": 0}, "limit"),
        ({"limit": 5_000_000_000}, "limit"),
        ({"weights": [1.0]}, "one above 0 for each of the 3 inputs"),
        ({"weights": [1.0, 0.0, 1.0]}, "one above 0"),
    ],
)
def test_wrong_requests(inputs: Sequence[Path], change: dict[str, object], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        sample_of(**{"inputs": inputs, **change})  # type: ignore[arg-type]


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.txt").touch()
    with pytest.raises(DataError, match=r"x\.txt: the file is empty"):
        sample_of([tmp_path / "x.txt"])


def test_too_little_text_or_too_few_entries(inputs: Sequence[Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(
        DataError, match=r"530 bytes of text give (\d+) entries, not 5,000: .* at most \1 entries"
    ) as caught:
        train(sample_of(inputs), out, 5000)
    entries = int(str(caught.value).split(" entries")[0].split()[-1])
    with pytest.raises(UsageError, match="272 are specials and bytes"):
        train(sample_of(inputs), out, SMALLEST - 1)
    with pytest.raises(DataError, match="exceeds the limit of 5 bytes"):
        train(sample_of(inputs, limit=5), out, SMALLEST)
    assert not out.exists()
    assert train(sample_of(inputs), out, entries)[0].vocab_size == entries


def test_nothing_but_bytes(inputs: Sequence[Path], tmp_path: Path) -> None:
    tokenizer, report = train(sample_of(inputs), tmp_path / "out", SMALLEST)
    assert len(tokenizer.encode("größe")) == len("größe".encode())
    assert report["bytes_per_token"] == 1


def test_the_same_text_gives_the_same_file_however_it_is_packed(tmp_path: Path) -> None:
    text = sample_paths()["validation"].read_bytes()
    for name, data in (("plain.jsonl", text), ("packed.jsonl.xz", lzma.compress(text))):
        (tmp_path / name).write_bytes(data)
        train(sample_of([tmp_path / name]), tmp_path / name.split(".")[0], 600)
    plain, packed = tmp_path / "plain", tmp_path / "packed"
    assert (plain / "tokenizer.json").read_bytes() == (packed / "tokenizer.json").read_bytes()
    reports = [json.loads((folder / "report.json").read_text()) for folder in (plain, packed)]
    assert reports[0]["sources"] == reports[1]["sources"]
    assert reports[0]["inputs"][0]["files"][0]["bytes"] == len(text)


def test_what_is_there_is_replaced_on_request_only(inputs: Sequence[Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    train(sample_of(inputs), out, SMALLEST)
    with pytest.raises(UsageError, match="--overwrite"):
        train(sample_of(inputs), out, SMALLEST + 1)
    assert train(sample_of(inputs), out, SMALLEST + 1, overwrite=True)[0].vocab_size == SMALLEST + 1
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot be written"):
        train(sample_of(inputs), tmp_path / "file" / "out", SMALLEST)


def test_fields_and_bytes_per_token_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text("".join(json.dumps({"body": "the same words, " * 9, "kind": "k"}) + "\n" for _ in range(9)))
    fields = Fields(text="body", source="kind")
    tokenizer, report = train(sample_of([path], fields=fields), tmp_path / "out", SMALLEST + 9)
    ids = tokenizer.encode("the same words, " * 9)
    assert report["sources"] == {
        "k": {"documents": 9, "bytes": 9 * 144, "tokens": 9 * len(ids), "bytes_per_token": round(144 / len(ids), 4)}
    }
    assert report["settings"]["fields"]["text"] == "body"
