"""Evaluation windows against brute force: who is scored, from which context, and how many bytes that covers."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hymo.core.errors import UsageError
from hymo.data import ByteTokenizer, EvaluationWindows, Split
from hymo.data.shards import ShardReader, ShardWriter

TOK = ByteTokenizer()


class PairTokenizer(ByteTokenizer):
    """Bytes, and one id for the pair "ab": tokens and bytes differ in number."""

    vocab_size = 260

    def encode(self, text):
        data = text.encode() if isinstance(text, str) else text
        ids = []
        for i, part in enumerate(data.split(b"ab")):
            ids += ([259] if i else []) + [b + 3 for b in part]
        return np.array(ids, dtype=np.int64)

    def decode_bytes(self, ids):
        return b"".join(b"ab" if i == 259 else bytes([i - 3]) for i in np.asarray(ids).tolist() if i > 2)


def make_split(folder, texts, tokenizer=TOK, shard_tokens=10_000):
    with ShardWriter(folder, "validation", tokenizer, shard_tokens) as writer:
        for i, text in enumerate(texts):
            writer.add(tokenizer.encode(text), len(text), "s", str(i))
    return Split([ShardReader(folder / info.file, tokenizer) for info in writer.shards], "validation")


def scored(batches, T):
    """Return for every scored token (target, visible context as a tuple), by walking the batches one by one."""
    out = []
    for batch in batches:
        tokens, mask = batch["tokens"], batch["mask"]
        assert mask.shape == (len(tokens), T)
        assert tokens.shape == (len(tokens), T + 1)
        flat_starts = batch["cu_seqlens"] if "cu_seqlens" in batch else np.arange(len(tokens)) * (T + 1)
        for row in range(len(tokens)):
            for target in range(1, T + 1):
                if mask[row, target - 1]:
                    place = row * (T + 1) + target
                    start = int(flat_starts[np.searchsorted(flat_starts, place, side="right") - 1])
                    assert start < place, "a target must not open a segment"
                    context = tokens.ravel()[start:place]
                    out.append((int(tokens[row, target]), tuple(context.tolist())))
    return out


@settings(max_examples=80, deadline=None)
@given(
    texts=st.lists(st.binary(min_size=1, max_size=60), min_size=1, max_size=10),
    T=st.integers(1, 25),
    stride=st.integers(1, 25),
    packed=st.booleans(),
    batch_size=st.integers(1, 5),
    world=st.integers(1, 3),
)
def test_each_text_token_is_scored_once_with_the_context_promised(
    tmp_path_factory, texts, T, stride, packed, batch_size, world
):
    stride = min(stride, T)
    split = make_split(tmp_path_factory.mktemp("h"), texts, shard_tokens=70)
    windows = EvaluationWindows(split, T, stride=stride, packed=packed)
    batches = [b for r in range(world) for b in windows.batches(batch_size, rank=r, world=world)]

    expected = Counter()
    for text in texts:
        sequence = [TOK.bos_id, *(b + 3 for b in text)]
        for i in range(1, len(sequence)):
            # The window that scores i is the first one that reaches it.
            k = 0 if i <= T else -(-(i - T) // stride)
            expected[sequence[i], tuple(sequence[k * stride : i])] += 1
    assert Counter(scored(batches, T)) == expected
    assert sum(int(b["mask"].sum()) for b in batches) == windows.n_tokens == sum(map(len, texts))
    assert sum(int(b["bytes"].sum()) for b in batches) == windows.n_bytes == sum(map(len, texts))
    assert sum(len(b["tokens"]) for b in batches) == windows.n_rows
    assert windows.documents(TOK) == texts
    for batch in batches:
        if packed:
            cu = batch["cu_seqlens"]
            assert cu.dtype == np.int32
            assert (cu[0], cu[-1]) == (0, batch["tokens"].size)
            assert (np.diff(cu) > 0).all()
            assert set(range(0, batch["tokens"].size, T + 1)) <= set(cu.tolist())
        assert not (batch["tokens"] == TOK.eos_id).any()


def test_the_first_byte_is_predicted_from_bos_alone_and_the_next_window_from_the_last_token(tmp_path):
    windows = EvaluationWindows(make_split(tmp_path, [b"abcdefg"]), 3, packed=False)
    (batch,) = windows.batches(8)
    bos, a = TOK.bos_id, 3 + ord("a")
    assert batch["tokens"].tolist() == [
        [bos, a, a + 1, a + 2],
        [a + 2, a + 3, a + 4, a + 5],
        [a + 5, a + 6, TOK.pad_id, TOK.pad_id],
    ]
    assert batch["mask"].tolist() == [[True] * 3, [True] * 3, [True, False, False]]
    assert batch["bytes"].tolist() == [0, 0, 7]


def test_packing_fills_rows(tmp_path):
    split = make_split(tmp_path, [b"abc", b"de", b"f", b"ghijkl"])
    windows = EvaluationWindows(split, 8)
    (batch,) = windows.batches(8)
    assert windows.n_rows == 2
    # bos abc | bos de | bos f; bos ghijkl | two of padding
    assert batch["cu_seqlens"].tolist() == [0, 4, 7, 9, 16, 18]
    assert batch["bytes"].tolist() == [6, 6]


def test_uniform_model_gives_the_right_bits_per_byte(tmp_path):
    texts = [b"abababab", b"xyz", b"abc"]
    windows = EvaluationWindows(make_split(tmp_path, texts, PairTokenizer()), 4)
    nats = sum(float(b["mask"].sum()) * np.log(260) for b in windows.batches(2))
    assert windows.n_tokens == 4 + 3 + 2
    assert windows.n_bytes == 14
    assert nats / np.log(2) / windows.n_bytes == pytest.approx(np.log2(260) * 9 / 14)


def test_limits(tmp_path):
    tokenizer = PairTokenizer()
    texts = [b"abab12", b"xyz", b"ababab", b"q"]  # 4, 3, 3, 1 tokens
    split = make_split(tmp_path, texts, tokenizer)
    ids = [tokenizer.encode(text).tolist() for text in texts]
    for limit in range(1, 14):  # exactly so many tokens, out of the first document too
        windows = EvaluationWindows(split, 5, max_tokens=limit, tokenizer=tokenizer)
        left, wanted = limit, []
        for document in ids:
            if left > 0:
                wanted.append(tokenizer.decode_bytes(document[:left]))
                left -= len(document)
        assert windows.documents(tokenizer) == wanted
        assert windows.n_tokens == min(limit, 11) == sum(int(b["mask"].sum()) for b in windows.batches(3))
        assert windows.n_bytes == sum(map(len, wanted)) == sum(int(b["bytes"].sum()) for b in windows.batches(3))
    assert EvaluationWindows(split, 5, max_tokens=7).documents(tokenizer) == texts[:2]  # cuts nothing: no tokenizer
    whole = b"".join(texts)
    for limit in range(2, 20):
        windows = EvaluationWindows(split, 5, max_bytes=limit, tokenizer=tokenizer)
        got = b"".join(windows.documents(tokenizer))
        assert whole.startswith(got)
        # No pair is cut in two.
        assert len(got) == windows.n_bytes == min(limit, 16) - (limit in (3, 10, 12, 14))
        batches = list(windows.batches(3))
        assert sum(int(b["bytes"].sum()) for b in batches) == windows.n_bytes
        assert sum(int(b["mask"].sum()) for b in batches) == windows.n_tokens == len(tokenizer.encode(got))
    for limit in ({"max_bytes": 1}, {"max_bytes": 0}, {"max_tokens": 0}, {"max_tokens": -3}):
        with pytest.raises(UsageError, match="no token"):
            EvaluationWindows(split, 5, tokenizer=tokenizer, **limit)
    for limit in ({"max_bytes": 5}, {"max_tokens": 5}):
        with pytest.raises(UsageError, match="tokenizer"):
            EvaluationWindows(split, 5, **limit)


@pytest.mark.parametrize("bad", [{"seq_len": 0}, {"seq_len": 4, "stride": 0}, {"seq_len": 4, "stride": 5}])
def test_impossible_windows_are_refused(tmp_path, bad):
    with pytest.raises(UsageError, match="stride"):
        EvaluationWindows(make_split(tmp_path, [b"abc"]), **bad)
