"""Decoding with a state equals the full forward pass, however the tokens are cut."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

from hymo.core.accounting import cache_numbers, state_bytes
from hymo.core.errors import UsageError
from hymo.core.load import load_config
from hymo.models import DecodeState, HyMo, MultiHeadLatentAttention, build_hymo
from hymo.models.state import GDNCache, MLACache
from model_helpers import RECURRENCES, build, close, draw_tokens, routing_of, slow_decay

CUTS = (1, 3, 4, 15, 16, 17)  # 1, conv - 1, conv, chunk - 1, chunk, chunk + 1
TIME = 37


def decode_parts(model: HyMo, tokens: Tensor, parts: list[int]) -> tuple[Tensor, DecodeState]:
    state = model.init_state(len(tokens))
    logits = [model.decode(part, state) for part in tokens.split(parts, 1)]
    return torch.cat(logits, 1), state


def splits(time: int) -> list[list[int]]:
    two = [[cut, time - cut] for cut in CUTS]
    three = [[cut, 1, time - cut - 1] for cut in CUTS] + [[16, 16, time - 32], [17, 3, time - 20]]
    return [[time], [1] * time, *two, *three, [*([4] * (time // 4)), time % 4], [0, 5, 0, time - 5]]


VARIANTS: list[dict[str, Any]] = [
    {},
    {"gdn_recurrence": "gated_delta"},
    {"router_score": "softmax"},
    {"gdn_recurrence": "gated_delta", "router_score": "softmax", "gdn_rope_target": "v"},
    {"mla_latent": False},
    {"qk_rope_head_dim": 0},
    {"qk_rope_head_dim": 16, "rope_pairing": "interleaved"},
    {"capacity_factor": 0.5},
    {"moe_placement": "all"},
    {"moe_placement": "none", "gdn_ffn_dim": 20, "gdn_gate": "full"},
    {"yarn_factor": 4.0},
    {"gdn_d_conv": 2, "tie_embeddings": False},
]


@pytest.mark.parametrize("changes", VARIANTS, ids=str)
def test_any_split_equals_the_full_pass(changes: dict[str, Any]) -> None:
    model = slow_decay(build(**changes))
    tokens = draw_tokens(2, TIME)
    with torch.no_grad(), routing_of(model) as whole:
        logits = model(tokens)
    for parts in splits(TIME):
        with routing_of(model) as calls:
            got, state = decode_parts(model, tokens, parts)
        for mixture in model.mixtures():
            wanted = next(chosen for layer, chosen in whole if layer == mixture.layer).view(2, TIME, -1)
            chosen = torch.cat([c.view(2, -1, c.shape[-1]) for layer, c in calls if layer == mixture.layer], 1)
            assert torch.equal(chosen, wanted), (parts, mixture.layer)
        close(got, logits, 1e-5)
        assert state.lengths.tolist() == [TIME, TIME]


@pytest.mark.parametrize("recurrence", RECURRENCES)
def test_a_preset_in_fp32(recurrence: str) -> None:
    """hymo_tiny (chunk 32) as it is initialised."""
    from hymo.core.load import derive_config

    config = derive_config(load_config("hymo_tiny"), model={"gdn_recurrence": recurrence})
    model = build_hymo(config).eval()
    tokens = draw_tokens(2, 67, vocab=259)
    with torch.no_grad():
        logits = model(tokens)
    for cut in (1, 3, 4, 31, 32, 33, 64, 65, 66):
        for parts in ([cut, 67 - cut], [cut] + [1] * (67 - cut)):
            close(decode_parts(model, tokens, parts)[0], logits, 1e-5)


@pytest.mark.parametrize("recurrence", RECURRENCES)
def test_one_token_with_and_without_a_state(recurrence: str) -> None:
    model = build(gdn_recurrence=recurrence)
    tokens = draw_tokens(1, 1)
    close(model.decode(tokens, model.init_state(1)), model(tokens), 1e-6)


@pytest.mark.parametrize("recurrence", RECURRENCES)
def test_ragged_rows_equal_solo_rows(recurrence: str) -> None:
    model = slow_decay(build(double=True, gdn_recurrence=recurrence))
    tokens = draw_tokens(4, 60)
    state = model.init_state(4)
    plan = [[20, 7, 1, 0], [1, 1, 1, 1], [3, 0, 17, 5], [0, 2, 0, 0], [2, 2, 2, 2], [1, 16, 15, 30]]
    seen = [0, 0, 0, 0]
    collected: list[list[Tensor]] = [[] for _ in range(4)]
    for lengths in plan:
        width = max(lengths)
        block = torch.randint(0, 64, (4, width))  # padding is any token
        for row, count in enumerate(lengths):
            block[row, :count] = tokens[row, seen[row] : seen[row] + count]
        logits = model.decode(block, state, torch.tensor(lengths))
        for row, count in enumerate(lengths):
            collected[row].append(logits[row, :count])
            seen[row] += count
    assert state.lengths.tolist() == seen
    for row in range(4):
        close(torch.cat(collected[row]), model(tokens[row : row + 1, : seen[row]])[0])


def test_ragged_rows_fit_a_context_that_their_padding_does_not() -> None:
    model = build(double=True, max_seq_len=65)
    state = model.init_state(2)
    tokens = draw_tokens(2, 65)
    model.decode(tokens[:, :60], state, torch.tensor([60, 10]))
    logits = model.decode(torch.cat((tokens[:, 60:], tokens[:, 5:15]), 1), state, torch.tensor([5, 15]))
    close(logits[0, :5], model(tokens[:1])[0, 60:])


def test_the_context_ends_with_an_error() -> None:
    model = build()
    state = model.init_state(1)
    model.decode(draw_tokens(1, 160), state)
    before = copy.deepcopy(state)
    with pytest.raises(UsageError, match="160"):
        model.decode(draw_tokens(1, 1), state)
    assert same(state, before)
    with pytest.raises(UsageError, match="160"):
        model(draw_tokens(1, 161))
    with pytest.raises(UsageError, match="160"):
        model.forward_with_hidden(draw_tokens(1, 2), start_pos=159)
    with pytest.raises(UsageError, match="start_pos"):
        model.forward_with_hidden(draw_tokens(1, 2), start_pos=-1)


def test_misuse_is_refused() -> None:
    model = build()
    with pytest.raises(UsageError, match="2 rows"):
        model.decode(draw_tokens(3, 2), model.init_state(2))
    for bad in ([1, 3], [-1, 1], [1]):
        with pytest.raises(UsageError, match="new_lengths"):
            model.decode(draw_tokens(2, 2), model.init_state(2), torch.tensor(bad))


def parts_of(state: DecodeState) -> list[Tensor]:
    """What the state knows of the tokens read: caches up to each row's length."""
    found = [state.lengths]
    for cache in state.layers:
        for name in cache.tensors():
            tensor = getattr(cache, name)
            if name in ("latent", "rope_keys"):
                found += [tensor[row, : int(n)] for row, n in enumerate(state.lengths)]
            else:
                found.append(tensor)
    return found


def same(a: DecodeState, b: DecodeState) -> bool:
    return all(torch.equal(x, y) for x, y in zip(parts_of(a), parts_of(b), strict=True))


@pytest.mark.parametrize("recurrence", RECURRENCES)
def test_a_rejected_draft_leaves_no_trace(recurrence: str) -> None:
    """After a rollback the state is bit for bit that of having read the kept tokens alone, one by one."""
    model = slow_decay(build(gdn_recurrence=recurrence))
    tokens = draw_tokens(2, 30)
    prompt = model.init_state(2)
    model.decode(tokens[:, :20], prompt)
    for keep in ([0, 0], [0, 4], [2, 1], [4, 4]):
        drafted = prompt.snapshot()
        model.decode_hidden(tokens[:, 20:24], drafted, keep_history=True)
        drafted.rollback(torch.tensor(keep))
        assert drafted.lengths.tolist() == [20 + k for k in keep]
        for row, kept in enumerate(keep):
            solo = prompt.select(torch.tensor([row]))
            for t in range(kept):
                model.decode(tokens[row : row + 1, 20 + t : 21 + t], solo)
            for a, b in zip(parts_of(drafted.select(torch.tensor([row]))), parts_of(solo), strict=True):
                close(a, b, 1e-6)
        if keep == [0, 0]:
            assert same(drafted, prompt)
        ends = [20 + k for k in keep]
        block = torch.stack([tokens[r, e : e + 3] for r, e in enumerate(ends)])
        logits = model.decode(block, drafted)
        for row, end in enumerate(ends):
            close(logits[row], model(tokens[row : row + 1, : end + 3])[0, end:], 1e-5)


def test_the_history_gives_the_same_hidden_states() -> None:
    model = build()
    tokens = draw_tokens(2, 12)
    one, other = model.init_state(2), model.init_state(2)
    close(model.decode_hidden(tokens, one, keep_history=True), model.decode_hidden(tokens, other), 1e-5)


def test_rollback_needs_a_history_and_a_range() -> None:
    model = build()
    state = model.init_state(2)
    model.decode(draw_tokens(2, 4), state)
    with pytest.raises(UsageError, match="keep_history"):
        state.rollback(torch.tensor([1, 1]))
    model.decode_hidden(draw_tokens(2, 3), state, keep_history=True)
    for bad in ([4, 0], [0, -1]):
        with pytest.raises(UsageError, match=r"0\.\.3"):
            state.rollback(torch.tensor(bad))
    state.rollback(torch.tensor([1, 3]))
    with pytest.raises(UsageError, match="keep_history"):
        state.rollback(torch.tensor([1, 1]))
    model.decode_hidden(draw_tokens(2, 3), state, keep_history=True)
    model.decode(draw_tokens(2, 1), state)
    with pytest.raises(UsageError, match="keep_history"):
        state.rollback(torch.tensor([1, 1]))


def test_copies_are_independent() -> None:
    model = build(double=True)
    tokens = draw_tokens(2, 20)
    state = model.init_state(2)
    model.decode(tokens[:, :10], state)
    kept = copy.deepcopy(state)
    snapshot, forked, picked = state.snapshot(), state.fork(3), state.select(torch.tensor([1, 0, 1]))
    assert forked.lengths.tolist() == [10] * 6
    for copied, rows in ((snapshot, [0, 1]), (forked, [0, 0, 0, 1, 1, 1]), (picked, [1, 0, 1])):
        logits = model.decode(tokens[rows, 10:], copied)
        close(logits, model(tokens[rows])[:, 10:])
    assert same(state, kept)
    model.decode(tokens[:, 10:], state)
    close(model.decode(tokens[:, 10:], kept), model(tokens)[:, 10:])


def test_reserved_room_changes_nothing_but_memory() -> None:
    model = build()
    tokens = draw_tokens(1, 100)
    short, long = model.init_state(1), model.init_state(1, reserve=100)
    before = long.bytes_used()
    assert torch.equal(model.decode(tokens, short), model.decode(tokens, long))
    assert long.bytes_used() == before
    config = model.config
    expected = len(config.mla_layers) * cache_numbers(config) * 100 * 4 + state_bytes(config, bytes_per_element=4)
    assert before == expected


def test_decoding_keeps_no_graph_and_counts_no_load() -> None:
    model = build().train()
    state = model.init_state(1)
    logits = model.decode(draw_tokens(1, 5), state)
    assert not logits.requires_grad or logits.grad_fn is not None
    assert not any(getattr(c, n).requires_grad for c in state.layers for n in c.tensors())
    assert not any(m.tokens_per_expert.any() for m in model.mixtures())
    model(draw_tokens(1, 7))
    assert all(float(m.tokens_per_expert.sum()) == 14 for m in model.mixtures())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("preset", ["micro", "hymo_750m"])
def test_absorbed_equals_expanded(preset: str, dtype: torch.dtype) -> None:
    """Both decode paths on the same cache; at the flagship's width for one block."""
    torch.manual_seed(0)
    config = build().config if preset == "micro" else load_config(preset).model
    attention = MultiHeadLatentAttention(config, 0).to(dtype)
    latent = torch.randn(2, 50, config.kv_lora_rank, dtype=dtype)
    keys = torch.randn(2, 50, config.n_kv_groups, config.qk_rope_head_dim, dtype=dtype)
    q = torch.randn(2, 3, config.n_heads, config.head_dim, dtype=dtype)
    visible = torch.arange(50) <= torch.tensor([[30, 31, 32], [47, 48, 49]])[..., None]
    with torch.no_grad():
        expanded = attention._attend_expanded(q, latent, keys, visible)
        absorbed = attention._attend_absorbed(q, latent, keys, visible)
    close(absorbed, expanded, 1e-5 if dtype is torch.float32 else 1e-12)
    assert float(expanded.abs().max()) > 0.1


def test_a_state_of_another_shape_is_refused() -> None:
    """Each would be broadcast, cut or read past its end without a word: a window too long gives wrong logits."""
    model = build()
    tokens = draw_tokens(2, 3)
    gdn = next(i for i, cache in enumerate(model.init_state(2).layers) if isinstance(cache, GDNCache))
    mla = next(i for i, cache in enumerate(model.init_state(2).layers) if isinstance(cache, MLACache))
    longer = torch.zeros(2, model.config.gdn_d_conv, model.config.gdn_d_inner)
    for layer, name, wrong in (
        (gdn, "window", longer),
        (gdn, "window", longer[:, 2:]),
        (gdn, "window", longer[:1, 1:]),
        (gdn, "window", longer[:, 1:, :1]),
        (gdn, "state", model.init_state(1).layers[gdn].state),
        (mla, "latent", torch.zeros(2, 64, 1)),
        (mla, "rope_keys", torch.zeros(2, 1, 1, 1)),
    ):
        state = model.init_state(2)
        setattr(state.layers[layer], name, wrong)
        with pytest.raises(UsageError, match=rf"{name} of layer {layer} is of shape"):
            model.decode(tokens, state)
        assert state.lengths.tolist() == [0, 0]
    state = model.init_state(2)
    state.layers[gdn], state.layers[mla] = state.layers[mla], state.layers[gdn]
    with pytest.raises(UsageError, match="is missing"):
        model.decode(tokens, state)
    state = model.init_state(2)
    state.layers.pop()
    with pytest.raises(UsageError, match="layers, the model"):
        model.decode(tokens, state)


def test_a_plain_call_keeps_nothing_of_the_history_before() -> None:
    model = build()
    state = model.init_state(2)
    caches = [cache for cache in state.layers if isinstance(cache, GDNCache)]
    model.decode_hidden(draw_tokens(2, 3), state, keep_history=True)
    assert [len(cache.history) for cache in caches] == [4] * len(caches)
    model.decode_hidden(draw_tokens(2, 1), state)
    assert [cache.history for cache in caches] == [[]] * len(caches)


@pytest.mark.parametrize("recurrence", RECURRENCES)
def test_ragged_drafts_roll_back_row_by_row(recurrence: str) -> None:
    """Rows of different lengths read different numbers of drafts and keep different numbers of them."""
    model = slow_decay(build(double=True, gdn_recurrence=recurrence))
    tokens = draw_tokens(4, 40)
    state = model.init_state(4)
    starts = [18, 7, 1, 12]
    model.decode(tokens[:, :18], state, torch.tensor(starts))
    for read, keep in (([3, 1, 4, 2], [1, 1, 0, 2]), ([1, 4, 2, 0], [0, 4, 1, 0]), ([3, 3, 3, 3], [3, 0, 2, 1])):
        block = torch.randint(0, 64, (4, max(read)))
        for row, (start, kept) in enumerate(zip(starts, keep, strict=True)):
            block[row, :kept] = tokens[row, start : start + kept]
        model.decode_hidden(block, state, torch.tensor(read), keep_history=True)
        with pytest.raises(UsageError, match="keep must lie in"):
            state.rollback(torch.tensor(read) + torch.tensor([0, 0, 1, 0]))
        state.rollback(torch.tensor(keep))
        starts = [start + kept for start, kept in zip(starts, keep, strict=True)]
        assert state.lengths.tolist() == starts
    block = torch.stack([tokens[row, start : start + 3] for row, start in enumerate(starts)])
    logits = model.decode(block, state)
    for row, start in enumerate(starts):
        close(logits[row], model(tokens[row : row + 1, : start + 3])[0, start:])


def test_rows_of_a_pool_decode_as_if_alone() -> None:
    """Rows join, leave, move and fork while others are left alone; what a row held before does not matter."""
    model = slow_decay(build(double=True))
    tokens = draw_tokens(3, 40)
    pool = model.init_state(1)

    def read(start: int, stop: int, block: Tensor) -> Tensor:
        part = pool.rows(start, stop, int(pool.lengths[start:stop].max()) + block.shape[1])
        logits = model.decode(block, part)
        pool.put(start, part)
        return logits

    read(0, 1, tokens[:1, :10])
    pool.resize(4)
    assert pool.lengths.tolist() == [10, 0, 0, 0]
    read(1, 2, tokens[1:2, :15])
    read(2, 3, draw_tokens(1, 30, seed=9))
    pool.clear(2)
    read(2, 3, tokens[2:, :5])
    pool.copy_row(1, 3)
    close(read(3, 4, tokens[1:2, 15:20]), model(tokens[1:2, :20])[:, 15:])
    for row, length in enumerate((10, 15, 5)):
        close(
            read(row, row + 1, tokens[row : row + 1, length : length + 4])[0],
            model(tokens[row : row + 1])[0, length : length + 4],
        )
    latent = next(c for c in pool.layers if isinstance(c, MLACache)).latent
    part = pool.rows(1, 3, 20)
    assert next(c for c in part.layers if isinstance(c, MLACache)).latent.data_ptr() == latent[1].data_ptr()
    pool.copy_row(2, 0)
    pool.resize(1)
    assert pool.lengths.tolist() == [9]
    close(read(0, 1, tokens[2:, 9:20]), model(tokens[2:, :20])[:, 9:])
