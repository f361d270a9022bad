"""The loader against an independent reference: Python lists, concatenated and cut."""

import itertools
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hymo.core.errors import DataError, UsageError
from hymo.data import ByteTokenizer, PackedLoader, Split
from hymo.data.loader import document_order
from hymo.data.shards import ShardReader, ShardWriter

TOK = ByteTokenizer()


def make_split(folder, sizes, shard_tokens=200, salt=0):
    rng = np.random.default_rng(salt)
    with ShardWriter(folder, "train", TOK, shard_tokens) as writer:
        for i, size in enumerate(sizes):
            text = rng.integers(0, 256, size, dtype=np.uint8).tobytes()
            writer.add(TOK.encode(text), size, f"source-{i % 3}", f"id-{i}")
    return Split([ShardReader(folder / info.file, TOK) for info in writer.shards])


@pytest.fixture(scope="module")
def split(tmp_path_factory):
    sizes = np.random.default_rng(7).integers(1, 60, 80).tolist()
    return make_split(tmp_path_factory.mktemp("split"), sizes)


def reference_windows(split, seed, epoch, T):
    """All windows of an epoch as lists, and per window the positions where a document starts."""
    stream, starts = [], set()
    for document in document_order(split.n_documents, seed, epoch).tolist():
        starts.add(len(stream))
        stream += split.document(document).tolist()
    count = (len(stream) - 1) // T
    windows = [stream[i * T : i * T + T + 1] for i in range(count)]
    boundaries = [[p for p in range(T + 1) if p == 0 or i * T + p in starts] for i in range(count)]
    return windows, boundaries


def test_document_order_is_a_permutation_of_seed_and_epoch_alone():
    orders = {(s, e): document_order(500, s, e).tolist() for s in (0, 1, 2**63) for e in (0, 1, 2)}
    assert all(sorted(order) == list(range(500)) for order in orders.values())
    assert len({tuple(order) for order in orders.values()}) == 9
    assert document_order(500, 1, 2).tolist() == orders[1, 2]
    # A frozen value: a resumed run must find the same order under any NumPy.
    assert document_order(10, 0, 0).tolist() == FROZEN


def philox_first_words():
    """Philox4x64-10 written from its definition (Salmon et al. 2011), counter from 1 as NumPy runs it, key (0, 0)."""
    mask, words = 2**64 - 1, []
    for block in (1, 2, 3):
        c, k = [block, 0, 0, 0], [0, 0]
        for _ in range(10):
            a, b = c[0] * 0xD2E7470EE14C6C93, c[2] * 0xCA5A826395121157
            c = [(b >> 64) ^ c[1] ^ k[0], b & mask, (a >> 64) ^ c[3] ^ k[1], a & mask]
            k = [(k[0] + 0x9E3779B97F4A7C15) & mask, (k[1] + 0xBB67AE8584CAA73B) & mask]
        words += c
    return words[:10]


FROZEN = sorted(range(10), key=lambda i: philox_first_words()[i])


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 30), min_size=1, max_size=25),
    T=st.integers(1, 40),
    n=st.integers(1, 6),
    seed=st.integers(0, 2**64 - 1),
    epoch=st.integers(0, 3),
    data=st.data(),
)
def test_windows_and_boundaries_equal_the_reference(tmp_path_factory, sizes, T, n, seed, epoch, data):
    split = make_split(tmp_path_factory.mktemp("s"), sizes, shard_tokens=64)
    windows, boundaries = reference_windows(split, seed, epoch, T)
    if not windows:
        with pytest.raises(UsageError, match="tokens"):
            PackedLoader(split, T, 1, seed=seed)
        return
    loader = PackedLoader(split, T, 1, seed=seed)
    assert loader.samples_per_epoch == len(windows)
    n = min(n, len(windows))
    first = data.draw(st.integers(0, len(windows) - n))
    batch = loader.samples(epoch, first, n)
    assert batch["tokens"].tolist() == windows[first : first + n]
    assert batch["tokens"].dtype == np.int64
    expected = [r * (T + 1) + p for r in range(n) for p in boundaries[first + r]] + [n * (T + 1)]
    assert batch["cu_seqlens"].tolist() == expected
    assert batch["cu_seqlens"].dtype == np.int32


def test_every_token_is_a_target_once_and_no_target_crosses_a_document(split):
    T = 16
    loader = PackedLoader(split, T, 4, seed=3)
    batch = loader.samples(0, 0, loader.samples_per_epoch)
    stream = np.concatenate([split.document(d) for d in document_order(split.n_documents, 3, 0)])
    assert batch["tokens"][:, 1:].ravel().tolist() == stream[1 : loader.samples_per_epoch * T + 1].tolist()
    # Within the segments of cu_seqlens the only tokens never predicted are bos and those that open a row.
    cu, flat = batch["cu_seqlens"], batch["tokens"].ravel()
    assert (np.diff(cu) > 0).all()
    unpredicted = set(cu[:-1].tolist())
    assert {i for i in range(len(flat)) if flat[i] == TOK.bos_id} <= unpredicted
    assert all(flat[i] == TOK.bos_id or i % (T + 1) == 0 for i in unpredicted)


def test_unpacked_has_the_same_tokens_and_no_boundaries(split):
    packed, unpacked = PackedLoader(split, 9, 4), PackedLoader(split, 9, 4, packed=False)
    assert set(unpacked.batch_at(5)) == {"tokens"}
    assert (unpacked.batch_at(5)["tokens"] == packed.batch_at(5)["tokens"]).all()


@pytest.mark.parametrize("world", range(1, 9))
@pytest.mark.parametrize("n_micro", [1, 2, 3])
def test_ranks_and_micro_batches_partition_the_same_step(split, world, n_micro):
    Bg = 2 * world * n_micro
    loader = PackedLoader(split, 7, Bg, seed=1)
    for step in (0, 2, loader.steps_per_epoch - 1, loader.steps_per_epoch, 3 * loader.steps_per_epoch + 1):
        whole = loader.batch_at(step)
        pieces = [
            loader.batch_at(step, rank=rank, world=world, micro=micro, n_micro=n_micro)
            for rank in range(world)
            for micro in range(n_micro)
        ]
        assert (np.concatenate([p["tokens"] for p in pieces]) == whole["tokens"]).all()
        shifts = itertools.accumulate([0] + [p["tokens"].size for p in pieces])
        joined = {int(c) + shift for p, shift in zip(pieces, shifts, strict=False) for c in p["cu_seqlens"]}
        assert sorted(joined) == whole["cu_seqlens"].tolist()


def test_sizes_that_do_not_divide_are_refused(split):
    loader = PackedLoader(split, 7, 48)
    for bad in ({"world": 5}, {"world": 7}, {"n_micro": 5}, {"rank": 2, "world": 2}, {"micro": -1}, {"world": 0}):
        with pytest.raises(UsageError, match="48"):
            loader.batch_at(0, **bad)


def test_an_epoch_covers_each_sample_once_then_shuffles_anew(split):
    T, Bg = 11, 8
    loader = PackedLoader(split, T, Bg, seed=5)
    steps = loader.steps_per_epoch
    for epoch in range(3):
        windows, _ = reference_windows(split, 5, epoch, T)
        rows = [row for s in range(epoch * steps, (epoch + 1) * steps) for row in loader.batch_at(s)["tokens"].tolist()]
        assert rows == windows[: steps * Bg]
        assert 0 <= len(windows) - len(rows) < Bg
    assert loader.batch_at(0)["tokens"].tolist() != loader.batch_at(steps)["tokens"].tolist()


@settings(max_examples=40, deadline=None)
@given(stop=st.integers(0, 120), world=st.sampled_from([1, 2, 4]), n_micro=st.sampled_from([1, 3]))
def test_resume_from_any_step_continues_the_order_on_any_world(split, stop, world, n_micro):
    reference = PackedLoader(split, 7, 24, seed=2)
    state = json.loads(json.dumps(reference.state_dict(stop)))
    resumed = PackedLoader(split, 7, 24, seed=2)
    assert resumed.load_state_dict(state) == stop
    for step in range(stop, stop + 5):
        pieces = ((rank, micro) for rank in range(world) for micro in range(n_micro))
        rows = [resumed.batch_at(step, rank=r, world=world, micro=m, n_micro=n_micro)["tokens"] for r, m in pieces]
        assert (np.concatenate(rows) == reference.batch_at(step)["tokens"]).all()
    assert (resumed.batch_at(0)["tokens"] == reference.batch_at(0)["tokens"]).all()


def test_a_new_global_batch_after_resume_leaves_out_and_repeats_nothing(split):
    T = 7
    first = PackedLoader(split, T, 10, seed=2)
    seen = [row for s in range(7) for row in first.batch_at(s)["tokens"].tolist()]
    second = PackedLoader(split, T, 16, seed=2)
    step = second.load_state_dict(first.state_dict(7))
    windows, _ = reference_windows(split, 2, 0, T)
    left = (len(windows) - 70) // 16
    seen += [row for s in range(step, step + left) for row in second.batch_at(s)["tokens"].tolist()]
    assert seen == windows[: 70 + left * 16]
    # The next epoch starts at its beginning, and a second resume keeps all that.
    assert second.batch_at(step + left)["tokens"].tolist() == reference_windows(split, 2, 1, T)[0][:16]
    third = PackedLoader(split, T, 16, seed=2)
    third.load_state_dict(second.state_dict(step + 2))
    assert (third.batch_at(step + 2)["tokens"] == second.batch_at(step + 2)["tokens"]).all()
    with pytest.raises(UsageError, match="earlier size"):
        second.batch_at(step - 1)


def test_changed_data_seed_or_length_are_refused(split, tmp_path):
    state = PackedLoader(split, 7, 12, seed=4).state_dict(5)
    other = make_split(tmp_path, [20] * 60, salt=9)
    with pytest.raises(DataError, match="changed since the checkpoint"):
        PackedLoader(other, 7, 12, seed=4).load_state_dict(state)
    with pytest.raises(UsageError, match="seed 4"):
        PackedLoader(split, 7, 12, seed=5).load_state_dict(state)
    with pytest.raises(UsageError, match="seq_len 7"):
        PackedLoader(split, 8, 12, seed=4).load_state_dict(state)


def test_more_than_max_epochs_is_refused_early(split):
    loader = PackedLoader(split, 7, 12, max_epochs=2)
    steps = loader.steps_per_epoch
    assert [loader.epochs_needed(n) for n in (0, 1, steps, steps + 1, 2 * steps, 2 * steps + 1)] == [0, 1, 1, 2, 2, 3]
    loader.require_steps(2 * steps)
    for call in (loader.require_steps, loader.batch_at):
        with pytest.raises(UsageError, match="max_epochs is 2"):
            call(2 * steps + 1)
    PackedLoader(split, 7, 12).require_steps(10**9)


def test_too_little_text_for_one_step_says_how_much_is_needed(tmp_path):
    split = make_split(tmp_path, [29])  # 31 tokens
    PackedLoader(split, 10, 3)
    with pytest.raises(UsageError, match="41"):
        PackedLoader(split, 10, 4)
    for bad in ((0, 1), (1, 0)):
        with pytest.raises(UsageError):
            PackedLoader(split, *bad)


def test_describe_names_the_documents_of_a_window(split):
    T = 50
    loader = PackedLoader(split, T, 4, seed=6)
    for sample in range(loader.samples_per_epoch):
        spans = loader.describe(1, sample)
        window = loader.samples(1, sample, 1)["tokens"][0]
        rebuilt = []
        for span in spans:
            assert span.window_offset == len(rebuilt)
            assert (span.source, span.document_id) == (f"source-{span.document % 3}", f"id-{span.document}")
            document = split.document(span.document).tolist()
            rebuilt += document[span.document_offset : span.document_offset + span.length]
        assert rebuilt == window.tolist()


def test_documents_returns_the_text_that_the_steps_read(split):
    loader = PackedLoader(split, 25, 4, seed=6)
    order = document_order(split.n_documents, 6, 0).tolist()
    texts = [TOK.decode_bytes(split.document(d)) for d in order]
    got = loader.documents(TOK, 3)
    assert got[:-1] == texts[: len(got) - 1]
    assert texts[len(got) - 1].startswith(got[-1])
    size = sum(len(t) for t in got)
    assert 301 - 2 * len(got) <= size <= 301 - 2 * (len(got) - 1) - 1
    assert len(loader.documents(TOK, 10**6)) == len(loader.documents(TOK, loader.steps_per_epoch))


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 40), min_size=4, max_size=30),
    T=st.integers(1, 12),
    size=st.integers(1, 2),
    world=st.integers(1, 8),
    n_micro=st.integers(1, 3),
    workers=st.sampled_from([0, 1, 3]),
    seed=st.integers(0, 2**32),
)
def test_ranks_cut_every_epoch_exactly_as_the_reference(
    tmp_path_factory, sizes, T, size, world, n_micro, workers, seed
):
    split = make_split(tmp_path_factory.mktemp("s"), sizes, shard_tokens=64)
    Bg = size * world * n_micro
    if (split.n_tokens - 1) // T < Bg:
        return
    loaders = [PackedLoader(split, T, Bg, seed=seed, max_epochs=2, num_workers=workers) for _ in range(world)]
    steps = loaders[0].steps_per_epoch
    for epoch in range(2):
        windows, boundaries = reference_windows(split, seed, epoch, T)
        rows = []
        for step in range(epoch * steps, (epoch + 1) * steps):
            for rank, loader in enumerate(loaders):
                for micro in range(n_micro):
                    batch = loader.batch_at(step, rank=rank, world=world, micro=micro, n_micro=n_micro)
                    first = len(rows)
                    rows += batch["tokens"].tolist()
                    inner = [i * (T + 1) + p for i, starts in enumerate(boundaries[first : len(rows)]) for p in starts]
                    assert batch["cu_seqlens"].tolist() == [*inner, size * (T + 1)]
        assert rows == windows[: steps * Bg]


def test_threads_ahead_change_nothing_whatever_is_asked_for(split):
    plain = PackedLoader(split, 7, 12, seed=1, max_epochs=3)
    ahead = PackedLoader(split, 7, 12, seed=1, max_epochs=3, num_workers=4)
    rng = np.random.default_rng(0)
    last = 3 * plain.steps_per_epoch - 1
    steps = [*range(last - 3, last + 1), 0, 0, 5, 6, 7, 3, *rng.integers(0, last, 40).tolist()]
    for step in steps:
        for micro in range(3):
            one, other = (loader.batch_at(step, micro=micro, n_micro=3) for loader in (plain, ahead))
            assert one["tokens"].tolist() == other["tokens"].tolist()
            assert one["cu_seqlens"].tolist() == other["cu_seqlens"].tolist()
    resumed = PackedLoader(split, 7, 10, seed=1, num_workers=2)
    resumed.batch_at(0)
    start = resumed.load_state_dict(plain.state_dict(5))
    other = PackedLoader(split, 7, 10, seed=1)
    other.load_state_dict(plain.state_dict(5))
    for step in range(start, start + 4):
        assert (resumed.batch_at(step)["tokens"] == other.batch_at(step)["tokens"]).all()
    with pytest.raises(UsageError, match="num_workers -1"):
        PackedLoader(split, 7, 10, num_workers=-1)


def test_batches_are_there_before_they_are_asked_for(split, monkeypatch):
    loader = PackedLoader(split, 7, 12, seed=1, num_workers=2)
    built = []
    original = PackedLoader.samples

    def samples(self, *arguments):
        if self is loader:  # threads of earlier tests may still be at work
            built.append(arguments)
        return original(self, *arguments)

    monkeypatch.setattr(PackedLoader, "samples", samples)
    loader.batch_at(0)
    loader.batch_at(1)
    loader.batch_at(2)
    loader._ahead._pool.shutdown(wait=True)
    assert sorted(first for _, first, _ in built) == [0, 12, 24, 36, 48]  # each once, two beyond


def test_an_error_in_a_thread_arrives_where_the_batch_is_asked_for(split, monkeypatch):
    loader = PackedLoader(split, 7, 12, seed=1, num_workers=1)
    monkeypatch.setattr(PackedLoader, "read", lambda *_: (_ for _ in ()).throw(DataError("the disk is gone")))
    with pytest.raises(DataError, match="the disk is gone"):
        loader.batch_at(0)
    with pytest.raises(DataError, match="the disk is gone"):
        loader.batch_at(1)
