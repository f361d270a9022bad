import gzip
import hashlib
import json
import lzma
import random
import subprocess
import sys

import pytest
import zstandard

from hymo.cli.app import main
from hymo.core.errors import DataError, UsageError
from hymo.data import ByteTokenizer, Fields, load_manifest, open_split, prepare, sample_paths

TOK = ByteTokenizer()


def write_jsonl(path, texts, **extra):
    path.write_text("".join(json.dumps({"text": t, **extra}, ensure_ascii=False) + "\n" for t in texts), "utf-8")
    return path


def texts_of(directory, split):
    data = open_split(directory, split, TOK)
    return [TOK.decode(data.document(i)) for i in range(data.n_documents)]


def files_of(directory):
    return {
        str(p.relative_to(directory)): hashlib.sha256(p.read_bytes()).hexdigest()
        for p in directory.rglob("*")
        if p.is_file()
    }


def quarantine_of(directory):
    return [json.loads(line) for line in (directory / "quarantine.jsonl").read_text("utf-8").splitlines()]


TEXTS = [f"document {i}: " + "word " * (i % 7) + "ü" for i in range(300)]


def test_all_documents_arrive_once_and_counts_agree(tmp_path):
    source = write_jsonl(tmp_path / "in.jsonl", TEXTS + TEXTS[:50])
    manifest = prepare([source], tmp_path / "out", TOK, fractions=(0.8, 0.1, 0.1), shard_tokens=1000)
    splits = {name: texts_of(tmp_path / "out", name) for name in ("train", "validation", "test")}
    assert sorted(t for texts in splits.values() for t in texts) == sorted(TEXTS)
    assert manifest.duplicates == 50
    assert manifest.quarantined == {}
    for name, texts in splits.items():
        info = manifest.splits[name]
        size = sum(len(t.encode()) for t in texts)
        assert (info.documents, info.bytes, info.tokens) == (len(texts), size, size + 2 * len(texts))
        assert manifest.sources["in"][name] == {"documents": len(texts), "bytes": size, "tokens": info.tokens}
    assert len(manifest.splits["train"].shards) > 1
    assert load_manifest(tmp_path / "out") == manifest
    # 300 draws: 0.1 +- 5 standard deviations.
    assert 5 <= len(splits["validation"]) <= 56


def test_reordering_changes_nothing_and_adding_moves_nobody(tmp_path):
    shuffled = random.Random(3).sample(TEXTS, len(TEXTS))
    fractions = (0.8, 0.1, 0.1)
    for name, texts in (("a", TEXTS), ("b", shuffled), ("c", [*TEXTS, *(t + "!" for t in TEXTS)])):
        source = write_jsonl(tmp_path / f"{name}.jsonl", texts)
        prepare([source], tmp_path / name, TOK, fractions=fractions)
    for split in ("train", "validation", "test"):
        assert texts_of(tmp_path / "a", split) == texts_of(tmp_path / "b", split)
        assert set(texts_of(tmp_path / "a", split)) <= set(texts_of(tmp_path / "c", split))


def test_two_runs_are_identical_and_the_seed_orders(tmp_path):
    source = write_jsonl(tmp_path / "in.jsonl", [*TEXTS, "", "\0"])
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        prepare([source], tmp_path / name, TOK, seed=seed)
    assert files_of(tmp_path / "a") == files_of(tmp_path / "b")
    a, c = texts_of(tmp_path / "a", "train"), texts_of(tmp_path / "c", "train")
    assert a != c
    assert sorted(a) == sorted(c)
    assert a != [t for t in TEXTS if t in set(a)]


def test_fixed_held_out_inputs_are_never_trained_on(tmp_path):
    train = write_jsonl(tmp_path / "t.jsonl", TEXTS)
    held = write_jsonl(tmp_path / "v.jsonl", [*TEXTS[10:20], "only held out"])
    test = write_jsonl(tmp_path / "e.jsonl", [*TEXTS[15:25]])
    manifest = prepare([train], tmp_path / "out", TOK, validation_inputs=[held], test_inputs=[test])
    assert sorted(texts_of(tmp_path / "out", "validation")) == sorted([*TEXTS[10:20], "only held out"])
    assert sorted(texts_of(tmp_path / "out", "test")) == sorted(TEXTS[20:25])
    assert sorted(texts_of(tmp_path / "out", "train")) == sorted(TEXTS[:10] + TEXTS[25:])
    assert manifest.duplicates == 20


ZOO = [
    (b'{"text": "good one"}', None),
    (b'{"text": "cut', "bad_json"),
    (b'{"text": 7}', "not_a_string"),
    (b'{"text": null}', "not_a_string"),
    (b'{"txet": "typo"}', "missing_field"),
    (b'["text"]', "not_an_object"),
    (b'"text"', "not_an_object"),
    (b"42", "not_an_object"),
    (b'{"text": ""}', "empty"),
    (b'{"text": " \\n\\t "}', "empty"),
    (b'{"text": "a\\u0000b"}', "nul"),
    (b'{"text": "\\ud800"}', "invalid_unicode"),
    (b'{"text": "\xff\xfe"}', "invalid_utf8"),
    (b"\0\0\0\0", "bad_json"),
    (b"[" * 200_000, "bad_json"),
    (b'{"text": "x", "n": ' + b"9" * 5000 + b"}", "bad_json"),
    (b'{"text": "' + b"y" * 5_000_000 + b'"}', "oversized"),
    (b'{"text": "' + b"z" * 50_001 + b'"}', "oversized"),
    (b'{"text": "second <|endoftext|> good", "id": 12, "source": "zoo", "text2": {}}', None),
    (b"", "blank lines are no documents"),
    (b'{"text": "third good", "id": {}, "source": []}\r', None),
    (b'{"text": true}', "not_a_string"),
    (b'{"text": ["a", "b"]}', "not_a_string"),
    (b'{"text": {"text": "a"}}', "not_a_string"),
    (b'{"text": NaN, "id": 3}', "not_a_string"),
    (b'{"text": "nan elsewhere is no trouble", "score": NaN}', None),
    (b'{"text": "first", "text": "of equal keys the last counts"}', None),
    (b"{'text': 'single quotes'}", "bad_json"),
    (b'{"text": "trailing"} garbage', "bad_json"),
    (b'{"text": "a"}{"text": "b"}', "bad_json"),
    (b'{"text": "a",}', "bad_json"),
    (b'{"text": "raw \t tab"}', "bad_json"),
    (b'\xef\xbb\xbf{"text": "a mark in the middle"}', "bad_json"),
    ('{"text": "sixteen bits"}'.encode("utf-16"), "invalid_utf8"),
    (b"PK\x03\x04 an archive", "bad_json"),
    (b"\x1f\x8b\x08 compressed but not named so", "invalid_utf8"),
    (b"null", "not_an_object"),
    (b"{}", "missing_field"),
    (b'{"text": "no line end"}', None),
]


def test_a_zoo_of_broken_lines_is_quarantined_with_place_and_reason(tmp_path):
    source = tmp_path / "zoo.jsonl"
    source.write_bytes(b"\xef\xbb\xbf" + b"\n".join(line for line, _ in ZOO))
    fields = Fields(max_document_bytes=50_000)
    manifest = prepare([source], tmp_path / "out", TOK, fractions=(1, 0, 0), fields=fields)
    expected = [(n, r) for n, (line, r) in enumerate(ZOO, start=1) if r and line]
    assert [(q["line"], q["reason"]) for q in quarantine_of(tmp_path / "out")] == expected
    assert all(q["file"] == str(source) and q["detail"] for q in quarantine_of(tmp_path / "out"))
    assert sum(manifest.quarantined.values()) == len(expected)
    data = open_split(tmp_path / "out", "train", TOK)
    got = {TOK.decode(data.document(i)): data.identity(i) for i in range(data.n_documents)}
    good = [n for n, (_, reason) in enumerate(ZOO, start=1) if reason is None]
    names = {n: ("zoo", f"zoo.jsonl:{n}") for n in good} | {19: ("zoo", "12")}
    texts = {n: json.loads(ZOO[n - 1][0], strict=False)["text"] for n in good}
    assert got == {texts[n]: names[n] for n in good}
    assert len(got) == 6


def compress_zst(data):
    return zstandard.ZstdCompressor().compress(data)


@pytest.mark.parametrize(("suffix", "compress"), [("gz", gzip.compress), ("xz", lzma.compress), ("zst", compress_zst)])
def test_compressed_files_whole_concatenated_truncated_and_foreign(tmp_path, suffix, compress):
    rng = random.Random(0)
    texts = [f"{i} " + "".join(rng.choices("abcdefghijklmnop", k=1000)) for i in range(300)]
    halves = ["".join(json.dumps({"text": t}) + "\n" for t in part).encode() for part in (texts[:150], texts[150:])]
    whole = tmp_path / f"whole.jsonl.{suffix}"
    whole.write_bytes(b"".join(map(compress, halves)))
    prepare([whole], tmp_path / "whole", TOK, fractions=(1, 0, 0))
    assert sorted(texts_of(tmp_path / "whole", "train")) == sorted(texts)

    cut = tmp_path / f"cut.jsonl.{suffix}"
    cut.write_bytes(whole.read_bytes()[: whole.stat().st_size * 3 // 4])
    foreign = tmp_path / f"foreign.jsonl.{suffix}"
    foreign.write_bytes(b"this is not compressed at all\n" * 40)
    after = write_jsonl(tmp_path / "after.jsonl", ["read in spite of all that"])
    manifest = prepare([cut, foreign, after], tmp_path / "cut", TOK, fractions=(1, 0, 0))
    assert manifest.quarantined == {"unreadable": 2}
    assert [q["file"] for q in quarantine_of(tmp_path / "cut")] == [str(cut), str(foreign)]
    kept = set(texts_of(tmp_path / "cut", "train"))
    assert set(texts[:150]) | {"read in spite of all that"} <= kept <= {*texts, "read in spite of all that"}


def test_zst_without_its_package_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "zstandard", None)
    path = tmp_path / "a.jsonl.zst"
    path.write_bytes(b"x")
    with pytest.raises(UsageError, match=r"hymo\[data\]"):
        prepare([path], tmp_path / "out", TOK)


def test_plain_text_is_cut_at_blank_lines_and_loses_nothing(tmp_path):
    rng = random.Random(1)
    text = "".join("é" * rng.randint(0, 30) + rng.choice(["\n", "\n\n", "\r\n"]) for _ in range(900)) + "the end"
    path = tmp_path / "book.txt"
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    manifest = prepare([path], tmp_path / "out", TOK, fractions=(1, 0, 0), fields=Fields(text_chunk_bytes=500))
    data = open_split(tmp_path / "out", "train", TOK)
    pieces = {int(data.identity(i)[1].split(":")[1]): TOK.decode(data.document(i)) for i in range(data.n_documents)}
    ordered = [pieces[line] for line in sorted(pieces)]
    assert "".join(ordered) == text
    assert all(500 <= len(p.encode()) < 1100 for p in ordered[:-1])
    assert sum(p.endswith(("\n\n", "\n\r\n")) for p in ordered) > len(ordered) / 2
    for line, piece in pieces.items():
        assert "".join(text.splitlines(keepends=True)[line - 1 :]).startswith(piece)
    assert manifest.splits["train"].bytes == len(text.encode())

    whole = prepare([path], tmp_path / "one", TOK, fractions=(1, 0, 0), fields=Fields(text_chunk_bytes=0))
    assert whole.splits["train"].documents == 1
    assert texts_of(tmp_path / "one", "train") == [text]


def test_broken_plain_text(tmp_path):
    path = tmp_path / "mixed.txt"
    path.write_bytes(b"good\n\n" + b"bad \xff\n\n" + b"q" * 3000 + b"\n" + b"good again\n\n" + b"nul \0\n\n \n")
    fields = Fields(text_chunk_bytes=1, max_document_bytes=1000)
    manifest = prepare([path], tmp_path / "out", TOK, fractions=(1, 0, 0), fields=fields)
    assert manifest.quarantined["invalid_utf8"] == 1
    assert {"invalid_utf8": 3, "oversized": 5, "nul": 8}.items() <= {
        q["reason"]: q["line"] for q in quarantine_of(tmp_path / "out")
    }.items()
    assert {t.strip() for t in texts_of(tmp_path / "out", "train")} == {"good", "good again"}
    with pytest.raises(DataError, match="1 oversized"):
        prepare([path], tmp_path / "x", TOK, fields=Fields(text_chunk_bytes=0, max_document_bytes=1000))


def test_directories_are_searched(tmp_path):
    (tmp_path / "in" / "deep").mkdir(parents=True)
    write_jsonl(tmp_path / "in" / "b.jsonl", ["b"], source="named")
    (tmp_path / "in" / "deep" / "a.txt").write_text("a")
    (tmp_path / "in" / "readme.md").write_text("not read")
    (tmp_path / "in" / "empty.txt").write_text("")
    manifest = prepare([tmp_path / "in"], tmp_path / "out", TOK, fractions=(1, 0, 0))
    assert sorted(texts_of(tmp_path / "out", "train")) == ["a", "b"]
    assert set(manifest.sources) == {"named", "a"}


def test_wrong_requests_name_the_path(tmp_path):
    empty = tmp_path / "empty.jsonl"
    empty.touch()
    blank = tmp_path / "blank.txt"
    blank.write_text("\n \n")
    odd = tmp_path / "a.parquett"
    odd.write_text("x")
    good = write_jsonl(tmp_path / "good.jsonl", ["hello"])
    (tmp_path / "void").mkdir()
    cases = [
        ([tmp_path / "absent.jsonl"], UsageError, r"absent\.jsonl"),
        ([odd], UsageError, r"a\.parquett.*\.jsonl"),
        ([tmp_path / "void"], UsageError, "void"),
        ([], UsageError, "no input"),
        ([good, empty], DataError, r"empty\.jsonl.*empty"),
        ([blank], DataError, "1 empty"),
    ]
    for inputs, error, pattern in cases:
        with pytest.raises(error, match=pattern):
            prepare(inputs, tmp_path / "out", TOK)
    with pytest.raises(UsageError, match="sum to 1"):
        prepare([good], tmp_path / "out", TOK, fractions=(0.5, 0.1, 0.1))
    with pytest.raises(DataError, match="1 held out"):
        prepare([good], tmp_path / "out", TOK, fractions=(1e-9, 1 - 1e-9, 0))
    with pytest.raises(UsageError, match="is a file"):
        prepare([good], odd, TOK)


def test_an_existing_set_is_kept_unless_asked_and_replaced_whole(tmp_path):
    many, few = write_jsonl(tmp_path / "m.jsonl", TEXTS), write_jsonl(tmp_path / "f.jsonl", ["just one"])
    out = tmp_path / "out"
    prepare([many], out, TOK, shard_tokens=500)
    before = files_of(out)
    with pytest.raises(UsageError, match="already holds a data set"):
        prepare([few], out, TOK)
    assert files_of(out) == before
    (out / "mine.md").write_text("kept")
    manifest = prepare([few], out, TOK, fractions=(1, 0, 0), overwrite=True)
    assert texts_of(out, "train") == ["just one"]
    assert sorted(files_of(out)) == ["dataset.json", "mine.md", "quarantine.jsonl", "train/train-00000.hymo"]
    assert manifest.warnings == []


def test_an_empty_held_out_split_is_a_warning(tmp_path):
    manifest = prepare([write_jsonl(tmp_path / "f.jsonl", ["just one"])], tmp_path / "out", TOK)
    assert len(manifest.warnings) == 2
    assert "validation" in manifest.warnings[0]


def test_progress_runs_from_nothing_to_all(tmp_path):
    calls = []
    source = write_jsonl(tmp_path / "in.jsonl", TEXTS)
    prepare([source], tmp_path / "out", TOK, progress=lambda *call: calls.append(call))
    for phase in ("read", "write"):
        done = [d for p, d, _ in calls if p == phase]
        assert done == sorted(done)
        assert {total for p, _, total in calls if p == phase} == {done[-1]}
    assert calls[-1][1] == sum(len(t.encode()) for t in TEXTS)


def test_the_sample_ships_and_is_disjoint(tmp_path):
    paths = sample_paths()
    manifest = prepare([paths["train"]], tmp_path, TOK, validation_inputs=[paths["validation"]])
    assert (manifest.splits["train"].documents, manifest.splits["train"].bytes) == (40, 990_509)
    assert (manifest.splits["validation"].documents, manifest.splits["validation"].bytes) == (9, 49_096)
    assert manifest.duplicates == 0
    assert manifest.quarantined == {}


def test_importing_data_needs_no_torch():
    code = "import sys, hymo.data, hymo.evaluation.baselines; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_bad_line_costs_its_chunk_and_a_long_line_only_itself(tmp_path):
    bad, long = tmp_path / "bad.txt", tmp_path / "long.txt"
    bad.write_bytes(b"one\ntwo\nthree \xff\nfour\n")
    long.write_bytes(b"before\n" + b"q" * 3000 + b"\nafter\n")
    prepare([bad, long], tmp_path / "out", TOK, fractions=(1, 0, 0), fields=Fields(max_document_bytes=1000))
    assert [(q["file"], q["line"], q["reason"]) for q in quarantine_of(tmp_path / "out")] == [
        (str(bad), 3, "invalid_utf8"),
        (str(long), 2, "oversized"),
    ]
    assert sorted(texts_of(tmp_path / "out", "train")) == ["after\n", "before\n"]


def flipped(data):
    middle = len(data) // 2
    return data[:middle] + bytes(b ^ 0xFF for b in data[middle : middle + 30]) + data[middle + 30 :]


@pytest.mark.parametrize(("suffix", "compress"), [("gz", gzip.compress), ("xz", lzma.compress), ("zst", compress_zst)])
def test_damage_inside_and_behind_compressed_data(tmp_path, suffix, compress):
    rng = random.Random(0)
    texts = [f"{i} " + "".join(rng.choices("abcdefghijklmnop", k=1000)) for i in range(200)]
    data = compress("".join(json.dumps({"text": t}) + "\n" for t in texts).encode())
    for name, content in (("flip", flipped(data)), ("tail", data + b"garbage after the end"), ("cut", data[:-1])):
        (tmp_path / f"{name}.jsonl.{suffix}").write_bytes(content)
        after = write_jsonl(tmp_path / "after.jsonl", ["read in spite of all that"])
        manifest = prepare([tmp_path / f"{name}.jsonl.{suffix}", after], tmp_path / name, TOK, fractions=(1, 0, 0))
        kept = set(texts_of(tmp_path / name, "train"))
        assert "read in spite of all that" in kept
        assert manifest.quarantined.get("unreadable") == 1
        if name != "flip":  # what came before the damage is whole
            assert len(kept & set(texts)) >= 100
    empty = tmp_path / f"nothing.jsonl.{suffix}"
    empty.write_bytes(compress(b""))
    with pytest.raises(DataError, match="no training document is left"):
        prepare([empty], tmp_path / "none", TOK)


HUGE = """
import gzip, json, resource, sys
from pathlib import Path
from hymo.data import ByteTokenizer, prepare, Fields
folder, suffix = Path(sys.argv[1]), sys.argv[2]
opened = gzip.open if suffix == ".gz" else open
with opened(folder / f"a.jsonl{suffix}", "wb") as file:
    file.write(b'{"text": "before"}\\n{"text": "')
    for _ in range(100):
        file.write(b"y" * (1 << 20))
    file.write(b'"}\\n{"text": "after"}\\n')
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
fields = Fields(max_document_bytes=1 << 20)
manifest = prepare([folder / f"a.jsonl{suffix}"], folder / "out", ByteTokenizer(), fractions=(1, 0, 0), fields=fields)
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps([manifest.quarantined, manifest.splits["train"].documents, (after - before) // 1024]))
"""


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_line_of_100_mb_costs_itself_and_no_memory(tmp_path, suffix):
    command = [sys.executable, "-c", HUGE, str(tmp_path), suffix]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    quarantined, documents, grown_mib = json.loads(shown)
    assert quarantined == {"oversized": 1}
    assert documents == 2
    assert grown_mib < 50


def test_nothing_valid_is_an_error_and_something_valid_is_none(tmp_path, capsys):
    bad, good = tmp_path / "bad.jsonl", tmp_path / "good.jsonl"
    bad.write_bytes(b"\n".join(line for line, reason in ZOO if reason and len(line) < 1000))
    write_jsonl(good, ["fine"])
    strict = ["--strict"]
    for inputs, words, code in (([bad], [], 1), ([bad, good], [], 0), ([bad, good], strict, 1), ([good], strict, 0)):
        out = tmp_path / f"out-{len(inputs)}-{len(words)}-{inputs[0].stem}"
        assert main(["data", "prepare", *map(str, inputs), "--out", str(out), *words]) == code
        if bad in inputs:
            assert {q["file"] for q in quarantine_of(out)} == {str(bad)}
        capsys.readouterr()
