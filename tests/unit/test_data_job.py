"""Workers and interruptions change nothing; held-out text is never trained on."""

import dataclasses
import hashlib
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hymo.data import ByteTokenizer, load_manifest, open_split, prepare
from hymo.data import prepare as prepare_function
from hymo.data.prepare import clear_output, make_job
from hymo.data.reading import FeedReader, settle
from hymo.data.selection import first_occurrences, shard_bounds, shuffled, split_of
from hymo.data.workers import Workers

TOK = ByteTokenizer()


def corpus(folder, documents=400, seed=0):
    rng = random.Random(seed)
    texts = ["".join(rng.choices("abcdefgh ü\n", k=rng.randint(1, 900))) for _ in range(documents)]
    texts += texts[::7]
    for name, part in (("a", texts[::2]), ("b", texts[1::2])):
        lines = [json.dumps({"text": t, "source": f"s{len(t) % 3}"}) for t in part]
        lines[5:5] = ['{"text": 3}', "not json"]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n", "utf-8")
    (folder / "c.txt").write_text("\n\n".join(texts[:40]) + "\nthe end", "utf-8")
    return [folder / "a.jsonl", folder / "b.jsonl", folder / "c.txt"]


def files_of(directory):
    return {
        str(p.relative_to(directory)): hashlib.sha256(p.read_bytes()).hexdigest()
        for p in directory.rglob("*")
        if p.is_file()
    }


SETTINGS = {"fractions": (0.8, 0.1, 0.1), "shard_tokens": 20_000, "seed": 3}


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(sys.modules["hymo.data.prepare"], "BLOCK_BYTES", 6_000)


@pytest.mark.usefixtures("small_blocks")
def test_one_two_and_three_workers_write_the_same_files(tmp_path):
    inputs = corpus(tmp_path)
    for workers in (1, 2, 3):
        prepare(inputs, tmp_path / f"out{workers}", TOK, workers=workers, **SETTINGS)
    expected = files_of(tmp_path / "out1")
    assert len([name for name in expected if name.startswith("train/")]) > 5
    assert set(expected) > {"dataset.json", "quarantine.jsonl"}
    assert files_of(tmp_path / "out2") == expected
    assert files_of(tmp_path / "out3") == expected


def test_the_size_of_blocks_changes_no_shard(tmp_path, monkeypatch):
    inputs = corpus(tmp_path, documents=60)
    for size in (1, 5_000, 1 << 30):
        monkeypatch.setattr(sys.modules["hymo.data.prepare"], "BLOCK_BYTES", size)
        prepare(inputs, tmp_path / f"out{size}", TOK, **SETTINGS)
    assert files_of(tmp_path / "out1") == files_of(tmp_path / "out5000") == files_of(tmp_path / f"out{1 << 30}")


class StopError(Exception):
    pass


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("step", ["encode", "write"])
def test_an_interrupted_preparation_goes_on_where_it_was(tmp_path, monkeypatch, step):
    job = sys.modules["hymo.data.job"].Job
    inputs = corpus(tmp_path)
    prepare(inputs, tmp_path / "whole", TOK, **SETTINGS)
    original, calls = getattr(job, step), []

    def counted(self, *args):
        calls.append(args)
        if len(calls) == 4:
            raise StopError
        return original(self, *args)

    monkeypatch.setattr(job, step, counted)
    with pytest.raises(StopError):
        prepare(inputs, tmp_path / "out", TOK, **SETTINGS)
    assert not (tmp_path / "out" / "dataset.json").exists()
    prepare(inputs, tmp_path / "out", TOK, **SETTINGS)
    first, again = calls[:3], calls[4:]
    if step == "encode":
        assert not {place for place, *_ in first} & {place for place, *_ in again}
    assert files_of(tmp_path / "out") == files_of(tmp_path / "whole")


@pytest.mark.usefixtures("small_blocks")
def test_leftovers_of_other_settings_or_changed_inputs_are_never_used(tmp_path, monkeypatch):
    inputs = corpus(tmp_path)
    monkeypatch.setattr(sys.modules["hymo.data.job"].Job, "finish", lambda *_: (_ for _ in ()).throw(StopError()))
    with pytest.raises(StopError):
        prepare(inputs, tmp_path / "out", TOK, **SETTINGS)
    monkeypatch.undo()
    inputs[0].write_text(json.dumps({"text": "changed"}) + "\n")
    prepare(inputs, tmp_path / "out", TOK, **SETTINGS)
    prepare(inputs, tmp_path / "fresh", TOK, **SETTINGS)
    assert files_of(tmp_path / "out") == files_of(tmp_path / "fresh")


KILLED = """
import sys
from hymo.data import ByteTokenizer
from pathlib import Path
if __name__ == "__main__":
    module = sys.modules["hymo.data.prepare"]
    module.BLOCK_BYTES = 6_000
    folder = Path(sys.argv[1])
    inputs = [folder / name for name in ("a.jsonl", "b.jsonl", "c.txt")]
    settings = {"fractions": (0.8, 0.1, 0.1), "shard_tokens": 20_000, "seed": 3}
    module.prepare(inputs, folder / "out", ByteTokenizer(), workers=2, **settings)
"""


@pytest.mark.usefixtures("small_blocks")
def test_killed_twice_and_run_again(tmp_path):
    inputs = corpus(tmp_path, documents=900)
    prepare_function(inputs, tmp_path / "whole", TOK, **SETTINGS)
    script = tmp_path / "run.py"
    script.write_text(KILLED)
    out, parts = tmp_path / "out", []
    for wanted in (5, 30):
        process = subprocess.Popen([sys.executable, script, tmp_path], start_new_session=True)
        while process.poll() is None and len(list(out.glob(".work-*/*[0-9].json"))) < wanted:
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        process.wait()
        parts.append(len(list(out.glob(".work-*/*[0-9].json"))))
        deadline = time.monotonic() + 20
        while _alive(process.pid) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not _alive(process.pid), "workers outlive their parent"
    assert 5 <= parts[0] < parts[1], parts
    assert not (out / "dataset.json").exists()
    prepare_function(inputs, out, TOK, **SETTINGS)
    assert files_of(out) == files_of(tmp_path / "whole")


def _alive(group):
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_held_out_digests_never_occur_in_train(tmp_path):
    inputs = corpus(tmp_path)
    prepare(inputs, tmp_path / "out", TOK, **SETTINGS)
    digests = {}
    for name in ("train", "validation", "test"):
        split = open_split(tmp_path / "out", name, TOK)
        digests[name] = [row.tobytes() for reader in split.readers for row in reader.digests]
        assert digests[name] == [
            hashlib.sha256(TOK.decode_bytes(split.document(i))).digest() for i in range(split.n_documents)
        ]
    every = [digest for rows in digests.values() for digest in rows]
    assert len(set(every)) == len(every)
    assert load_manifest(tmp_path / "out").duplicates > 50


@given(st.lists(st.integers(0, 12), max_size=60))
def test_first_occurrences_equal_a_set(numbers):
    digests = np.array([list(hashlib.sha256(bytes([n])).digest()) for n in numbers], dtype=np.uint8).reshape(-1, 32)
    seen = set()
    expected = [not (n in seen or seen.add(n)) for n in numbers]
    assert first_occurrences(digests).tolist() == expected


@given(st.sets(st.binary(min_size=32, max_size=32), max_size=40), st.integers(-5, 2**40))
def test_the_order_is_that_of_keyed_hashes(rows, seed):
    rows = sorted(rows)
    salt = seed.to_bytes(16, "little", signed=True)
    expected = sorted(rows, key=lambda row: hashlib.blake2b(row, digest_size=16, salt=salt).digest())
    order = shuffled(np.frombuffer(b"".join(rows), dtype=np.uint8).reshape(-1, 32), seed)
    assert [rows[i] for i in order] == expected


@given(st.lists(st.integers(1, 50), max_size=60), st.integers(50, 120))
def test_shards_are_filled_greedily(lengths, size):
    bounds, expected, held = [0], [], 0
    for length in lengths:
        if held + length > size:
            expected.append(held)
            held = 0
        held += length
    expected += [held] if held else []
    bounds = shard_bounds(np.array(lengths, dtype=np.int64), size)
    assert [sum(lengths[a:b]) for a, b in itertools.pairwise(bounds)] == expected


@settings(max_examples=40, deadline=None)
@given(
    texts=st.lists(st.text("abcé", min_size=1, max_size=12), min_size=1, max_size=40),
    budget=st.integers(1, 200),
    block=st.integers(1, 60),
    ahead=st.integers(0, 400),
)
@example(texts=["a", "b", "ab", "ba"], budget=12, block=1, ahead=0)  # nothing is known about duplicates yet
def test_a_budget_takes_the_first_new_documents_however_far_was_read(tmp_path_factory, texts, budget, block, ahead):
    folder = tmp_path_factory.mktemp("budget")
    for name, part in (("a", texts[::2]), ("b", texts[1::2])):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps({"text": t}) + "\nbroken\n" for t in part) or "\n")
    inputs = [folder / "a.jsonl", folder / "b.jsonl"]
    job = make_job(inputs, folder / "out", TOK, fractions=(0.7, 0.2, 0.1), train_tokens=budget, shard_tokens=100)
    job = dataclasses.replace(job, block_bytes=block)
    clear_output(job, False)
    with Workers(job, TOK, 1) as pool:
        readers = [FeedReader(job, 0)]
        readers[0].read(pool, ahead)  # too little or too much
        plan = settle(job, pool, readers)
    rejected = list(job.rejected(plan))

    expected, seen, train = {"train": [], "validation": [], "test": []}, set(), 0
    for text in [*texts[::2], *texts[1::2]]:
        if train >= budget:
            break
        if text in seen:
            continue
        seen.add(text)
        split = split_of(hashlib.sha256(text.encode()).digest(), (0.7, 0.2, 0.1))
        expected[split].append(text)
        train += (len(text.encode()) + 2) * (split == "train")
    taken = {
        split: sum(counts.get(split, {}).get("documents", 0) for counts in plan.sources.values()) for split in expected
    }
    assert taken == {split: len(found) for split, found in expected.items()}
    assert sum(counts.get("train", {}).get("tokens", 0) for counts in plan.sources.values()) == train
    assert bool(plan.warnings) == (train < budget)
    # What is reported as broken does not depend on how far was read, either.
    again = settle(job, None, [reader_to_the_end(job)])
    assert list(job.rejected(again)) == rejected
    assert again.used == plan.used
    for split in expected:
        assert (again.part[split].tolist(), again.document[split].tolist()) == (
            plan.part[split].tolist(),
            plan.document[split].tolist(),
        )


def reader_to_the_end(job):
    reader = FeedReader(job, 0)
    with Workers(job, TOK, 1) as pool:
        reader.read(pool, None)
    return reader


FEW_FILES = """
import resource, sys
soft, hard = map(int, sys.argv[2:])
from hymo.data import ByteTokenizer
from pathlib import Path
module = sys.modules["hymo.data.prepare"]
module.BLOCK_BYTES = 1
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
folder = Path(sys.argv[1])
settings = {"fractions": (0.8, 0.1, 0.1), "shard_tokens": 20_000, "seed": 3}
inputs = [folder / name for name in ("a.jsonl", "b.jsonl", "c.txt")]
module.prepare(inputs, folder / f"out{soft}", ByteTokenizer(), **settings)
"""


@pytest.mark.parametrize(("soft", "hard"), [(50, 4000), (140, 140)])
def test_more_parts_than_files_may_be_open(tmp_path, soft, hard):
    inputs = corpus(tmp_path, documents=130)
    prepare(inputs, tmp_path / "whole", TOK, **SETTINGS)
    command = [sys.executable, "-c", FEW_FILES, str(tmp_path), str(soft), str(hard)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert files_of(tmp_path / f"out{soft}") == files_of(tmp_path / "whole")
