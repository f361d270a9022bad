"""`hymo data`: every command, its exit codes, and what an interrupt leaves."""

import hashlib
import json
import signal
import struct
import subprocess
import sys
import time

import numpy as np
import pytest

from hymo.cli.app import main
from hymo.core.errors import DataError, UsageError
from hymo.data import ByteTokenizer, load_manifest, open_split, prepare, verify_dataset
from hymo.data.export import export
from hymo.data.shards import ShardReader, ShardWriter

TOK = ByteTokenizer()
TEXTS = [f"document {i} " + "wörd " * (i % 9) for i in range(120)]


def write_jsonl(path, texts, field="text", **extra):
    path.write_text("".join(json.dumps({field: t, **extra}) + "\n" for t in texts), "utf-8")
    return path


def run(capsys, *words):
    code = main([str(word) for word in words])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def texts_of(directory, split):
    data = open_split(directory, split, TOK)
    return [TOK.decode(data.document(i)) for i in range(data.n_documents)]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    folder = tmp_path_factory.mktemp("set")
    lines = [{"text": t, "source": f"s{i % 2}", "id": f"id-{i}"} for i, t in enumerate(TEXTS)]
    (folder / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + "broken\n")
    prepare([folder / "in.jsonl"], folder / "out", TOK, fractions=(0.8, 0.1, 0.1), shard_tokens=1000)
    return folder / "out"


def test_prepare_takes_field_names_budget_test_files_and_shard_size(capsys, tmp_path):
    source = write_jsonl(tmp_path / "a.jsonl", TEXTS, "content", lang="de", sha="x")
    held = write_jsonl(tmp_path / "t.jsonl", TEXTS[:3], "content", lang="fr")
    words = ["data", "prepare", source, "--out", tmp_path / "out", "--test", held, "--text-field", "content"]
    words += ["--source-field", "lang", "--id-field", "sha", "--train-tokens", "1e3", "--shard-tokens", "500"]
    code, out, err = run(capsys, *words, "--workers", 1)
    assert (code, err) == (0, "")
    assert "sources of train" in out
    sizes = np.cumsum([len(t.encode()) + 2 for t in TEXTS[3:]])
    expected = TEXTS[3:][: int((sizes < 1000).sum()) + 1]
    assert sorted(texts_of(tmp_path / "out", "train")) == sorted(expected)
    assert texts_of(tmp_path / "out", "test") == TEXTS[:3]
    data = open_split(tmp_path / "out", "train", TOK)
    assert data.identity(0) == ("de", "x")
    assert len(data.readers) == 3
    code, _, err = run(capsys, *words, "--overwrite", "--workers", 0)
    assert code == 2
    assert "workers" in err


def test_strict_writes_the_set_and_exits_1(capsys, tmp_path):
    source = tmp_path / "a.jsonl"
    source.write_text('{"text": "fine"}\n{"text": 3}\n')
    words = ["data", "prepare", source, "--out", tmp_path / "out"]
    code, _, err = run(capsys, *words, "--strict")
    assert code == 1
    assert "1 documents were quarantined" in err
    assert texts_of(tmp_path / "out", "train") == ["fine"]
    assert run(capsys, *words, "--overwrite")[0] == 0


INTERRUPTED = """
import signal, sys
import hymo.data
from hymo.cli.app import main
sys.modules["hymo.data.prepare"].BLOCK_BYTES = 2_000
if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs start with it ignored
    sys.exit(main(sys.argv[1:]))
"""


def test_ctrl_c_says_how_to_go_on_and_the_same_command_does(tmp_path):
    rng = np.random.default_rng(0)
    texts = ["".join(map(chr, rng.integers(97, 123, 300))) for _ in range(500)]
    source = write_jsonl(tmp_path / "a.jsonl", texts)
    script = tmp_path / "run.py"
    script.write_text(INTERRUPTED)
    out = tmp_path / "out"
    words = [sys.executable, script, "data", "prepare", source, "--out", out, "--workers", "2"]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, start_new_session=True)
    while process.poll() is None and len(list(out.glob(".work-*/*[0-9].json"))) < 5:
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "run the same command again" in err
    assert "Traceback" not in err
    done = len(list(out.glob(".work-*/*[0-9].json")))
    assert done >= 5
    again = subprocess.run(words, capture_output=True, text=True, check=True)
    assert again.stderr == ""
    prepare([source], tmp_path / "whole", TOK)
    assert load_manifest(out).fingerprint == load_manifest(tmp_path / "whole").fingerprint


def test_verify_says_whole_or_what_is_damaged(capsys, dataset, tmp_path):
    code, out, _ = run(capsys, "data", "verify", dataset, "--tokenizer", "byte")
    assert code == 0
    assert "whole" in out
    code, out, _ = run(capsys, "data", "verify", dataset, "--json")
    assert json.loads(out)["documents"] == len(TEXTS)
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in dataset.rglob("*.*"):
        (copy / path.relative_to(dataset)).parent.mkdir(exist_ok=True)
        (copy / path.relative_to(dataset)).write_bytes(path.read_bytes())
    shard = sorted((copy / "train").iterdir())[1]
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 4
    shard.write_bytes(data)
    code, _, err = run(capsys, "data", "verify", copy)
    assert code == 1
    assert shard.name in err
    shard.unlink()
    code, _, err = run(capsys, "data", "verify", copy)
    assert code == 1
    assert "missing" in err


def test_verify_finds_a_held_out_document_in_train(tmp_path):
    prepare([write_jsonl(tmp_path / "a.jsonl", TEXTS)], tmp_path / "set", TOK, fractions=(0.8, 0.2, 0))
    manifest = verify_dataset(tmp_path / "set")
    held = open_split(tmp_path / "set", "validation", TOK)
    # The same text, smuggled in under another id.
    with ShardWriter(tmp_path / "set" / "validation", "validation", TOK) as writer:
        for text in [*(TOK.decode_bytes(held.document(i)) for i in range(held.n_documents)), texts_bytes(tmp_path)]:
            writer.add(TOK.encode(text), len(text), "smuggled", f"n{len(text)}")
    raw = json.loads((tmp_path / "set" / "dataset.json").read_text())
    info = writer.shards[0]
    raw["splits"]["validation"] |= {
        "shards": [vars(info)],
        "documents": info.documents,
        "tokens": info.tokens,
        "bytes": info.text_bytes,
    }
    (tmp_path / "set" / "dataset.json").write_text(json.dumps(raw))
    with pytest.raises(DataError, match=r"1 documents of the validation split are trained on.*'n"):
        verify_dataset(tmp_path / "set")
    raw["splits"]["validation"]["documents"] += 1
    (tmp_path / "set" / "dataset.json").write_text(json.dumps(raw))
    with pytest.raises(DataError, match="says"):
        verify_dataset(tmp_path / "set")
    assert manifest.splits["validation"].documents == held.n_documents


def texts_bytes(tmp_path):
    return texts_of(tmp_path / "set", "train")[7].encode()


def test_inspect_and_stats(capsys, dataset):
    code, out, _ = run(capsys, "data", "inspect", dataset, "--first", 3, "--documents", 2, "--json")
    assert code == 0
    shown = json.loads(out)
    assert [item["text"] for item in shown] == [t[:300] for t in texts_of(dataset, "train")[3:5]]
    assert all(item["bytes"] == len(item["text"].encode()) == item["tokens"] - 2 for item in shown)
    assert run(capsys, "data", "inspect", dataset)[0] == 0
    code, _, err = run(capsys, "data", "inspect", dataset, "--first", 100000)
    assert code == 2
    assert "--first" in err
    code, out, _ = run(capsys, "data", "inspect", dataset / "train" / "train-00000.hymo")
    assert code == 0
    assert "uint16" in out

    code, out, _ = run(capsys, "data", "stats", dataset, "--json")
    stats = json.loads(out)
    lengths = [len(t.encode()) + 2 for t in texts_of(dataset, "train")]
    train = stats["splits"]["train"]
    assert train["tokens"] == sum(lengths)
    assert train["length_p50"] == np.median(lengths)
    assert train["bytes_per_token"] == 1
    assert sum(split["train"]["documents"] for split in stats["sources"].values()) == len(lengths)
    code, out, _ = run(capsys, "data", "stats", dataset)
    assert code == 0
    assert "longest" in out


def test_heldout_leaves_out_what_is_trained_on(capsys, dataset, tmp_path):
    trained = texts_of(dataset, "train")
    new = [f"fresh text {i}" for i in range(20)]
    source = write_jsonl(tmp_path / "h.jsonl", [new[0], trained[5], *new, "", trained[9]])
    words = ["data", "heldout", source, "--out", tmp_path / "held", "--against", dataset]
    code, _, err = run(capsys, *words)
    assert code == 0
    assert "2 seen_in_training" in err
    assert texts_of(tmp_path / "held", "validation") == new
    manifest = verify_dataset(tmp_path / "held")
    assert manifest.quarantined == {"empty": 1, "seen_in_training": 2}
    assert manifest.duplicates == 1
    assert manifest.splits["validation"].bytes == sum(len(t) for t in new)
    assert run(capsys, *words)[0] == 2
    assert run(capsys, *words, "--overwrite", "--strict")[0] == 1

    few = [*words[:4], tmp_path / "few", *words[5:], "--documents", "5"]
    assert run(capsys, *few)[0] == 0
    write_jsonl(tmp_path / "h.jsonl", [*new[::-1], trained[5]])
    assert run(capsys, *few, "--overwrite", "--json")[0] == 0
    lowest = sorted(new, key=lambda t: hashlib.sha256(hashlib.sha256(t.encode()).digest()).digest())[:5]
    assert texts_of(tmp_path / "few", "validation") == [t for t in new[::-1] if t in lowest]

    write_jsonl(tmp_path / "h.jsonl", trained[:4])
    code, _, err = run(capsys, *words, "--overwrite")
    assert code == 1
    assert "no document is left" in err
    assert texts_of(tmp_path / "held", "validation") == new
    assert run(capsys, "data", "heldout", source, "--out", tmp_path / "x", "--against", tmp_path / "held")[0] == 2
    assert run(capsys, *words, "--overwrite", "--documents", 0)[0] == 2


# Readers of the three formats, from their descriptions alone.


def read_megatron(prefix):
    """MMIDIDX, u64 version, u8 dtype code, u64 sequences, u64 documents + 1, int32 sizes, int64 pointers and bounds."""
    index, data = (prefix.with_name(prefix.name + suffix).read_bytes() for suffix in (".idx", ".bin"))
    assert index[:9] == b"MMIDIDX\x00\x00"
    version, code, sequences, bounds = struct.unpack_from("<QBQQ", index, 9)
    assert version == 1
    letter = {8: "H", 4: "i"}[code]
    at = 9 + 8 + 1 + 16
    sizes = struct.unpack_from(f"<{sequences}i", index, at)
    pointers = struct.unpack_from(f"<{sequences}q", index, at + 4 * sequences)
    documents = struct.unpack_from(f"<{bounds}q", index, at + 12 * sequences)
    assert len(index) == at + 12 * sequences + 8 * bounds
    assert documents == tuple(range(sequences + 1))
    return [list(struct.unpack_from(f"<{n}{letter}", data, p)) for n, p in zip(sizes, pointers, strict=True)]


def read_datatrove(path):
    ends = path.with_name(path.name + ".index").read_bytes()
    ends = struct.unpack(f"<{len(ends) // 8}Q", ends)
    name, _, rest = path.with_name(path.name + ".metadata").read_text().partition("|")
    size, total = map(int, rest.split("\n")[:2])
    raw = path.read_bytes()
    tokens = struct.unpack(f"<{len(raw) // size}{'H' if size == 2 else 'I'}", raw)
    assert (name, total, ends[-1]) == ("byte", len(tokens), len(tokens))
    return [list(tokens[a:b]) for a, b in zip((0, *ends), ends, strict=False)]


def read_llmc(path):
    raw = path.read_bytes()
    header = struct.unpack_from("<256i", raw)
    assert header[:2] == (20240520, 1)
    assert set(header[3:]) == {0}
    tokens = struct.unpack_from(f"<{header[2]}H", raw, 1024)
    assert len(raw) == 1024 + 2 * header[2]
    return list(tokens)


def test_exports_read_back_by_readers_of_their_own(capsys, dataset, tmp_path):
    for to in ("megatron", "datatrove", "llmc"):
        code, out, _ = run(capsys, "data", "export", dataset, "--to", to, "--out", tmp_path / to, "--json")
        assert code == 0
        assert sorted(json.loads(out)) == sorted(str(p) for p in (tmp_path / to).iterdir())
    for name in ("train", "validation", "test"):
        split = open_split(dataset, name, TOK)
        documents = [split.document(i).tolist() for i in range(split.n_documents)]
        assert read_megatron(tmp_path / "megatron" / name) == documents
        files = sorted((tmp_path / "datatrove").glob(f"*_{name}.ds"))
        assert [d for path in files for d in read_datatrove(path)] == documents
        files = sorted((tmp_path / "llmc").glob(f"{name}_*.bin"))
        assert len(files) == len(split.readers)
        assert [t for path in files for t in read_llmc(path)] == [t for d in documents for t in d]
    assert run(capsys, "data", "export", dataset, "--to", "megatron", "--out", tmp_path / "megatron")[0] == 0
    with pytest.raises(UsageError, match="did you mean 'megatron'"):
        export(dataset, tmp_path / "x", "megatrom")


def test_the_megatron_index_byte_for_byte(tmp_path):
    prepare([write_jsonl(tmp_path / "a.jsonl", ["abc", "de"])], tmp_path / "set", TOK, fractions=(1, 0, 0))
    first, second = (len(t) + 2 for t in texts_of(tmp_path / "set", "train"))
    export(tmp_path / "set", tmp_path / "out", "megatron")
    expected = "4d4d494449445800 00" + "0100000000000000" + "08" + "0200000000000000" + "0300000000000000"
    expected += f"{first:02x}000000{second:02x}000000" + "0000000000000000" + f"{2 * first:02x}00000000000000"
    expected += "0000000000000000" + "0100000000000000" + "0200000000000000"
    assert (tmp_path / "out" / "train.idx").read_bytes() == bytes.fromhex(expected)


class Wide(ByteTokenizer):
    vocab_size = 70_000

    def encode(self, text):
        return super().encode(text) + 66_000


def test_wide_tokens_become_int32_or_are_refused(tmp_path, monkeypatch):
    source = write_jsonl(tmp_path / "a.jsonl", ["abc", "de"])
    prepare([source], tmp_path / "set", Wide(), fractions=(1, 0, 0))
    export(tmp_path / "set", tmp_path / "out", "megatron")
    reader = ShardReader(tmp_path / "set" / "train" / "train-00000.hymo")
    assert read_megatron(tmp_path / "out" / "train") == [reader.document(i).tolist() for i in range(2)]
    export(tmp_path / "set", tmp_path / "out", "datatrove")
    assert read_datatrove(tmp_path / "out" / "00000_train.ds") == [reader.document(i).tolist() for i in range(2)]
    with pytest.raises(UsageError, match="16-bit"):
        export(tmp_path / "set", tmp_path / "out", "llmc")
