"""Who may see whom: packed documents, the future, other rows, padding."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.distributed.utils import _to_kwargs

from hymo.core.errors import UsageError
from hymo.models import HyMo, Window, split_window
from model_helpers import RECURRENCES, build, close, draw_tokens, slow_decay

BOUNDS = [0, 13, 14, 14, 31, 50]
CU = torch.tensor(BOUNDS, dtype=torch.int32)


def loss_of_others(model: HyMo, tokens: Tensor, document: int) -> tuple[Tensor, ...]:
    """Logits, losses (prediction heads included) and all parameter gradients that the other documents see."""
    start, end = BOUNDS[document], BOUNDS[document + 1]
    others = [t for t in range(50) if not start <= t < end]
    targets = draw_tokens(1, 50, seed=7)
    targets[0, [end - 1 for end in BOUNDS[1:]]] = -100
    targets[0, start:end] = -100
    losses = model.loss(tokens, targets, CU)
    grads = torch.autograd.grad(losses["loss"], list(model.parameters()))
    return (model(tokens, CU)[:, others].detach(), *(x.detach() for x in losses.values()), *grads)


@pytest.mark.parametrize("kernel", ["recurrent", "chunked"])
@pytest.mark.parametrize("recurrence", RECURRENCES)
@pytest.mark.parametrize("layers", [[0, 2], [0, 1, 2, 3], []], ids=["hybrid", "attention", "recurrent"])
def test_a_document_never_moves_another(recurrence: str, kernel: str, layers: list[int]) -> None:
    """Bit for bit, with states that forget nothing: outputs, losses of every head, gradients of every parameter.

    Experts are left out here: how many rows an expert multiplies may change the last bit of each (tested below).
    """
    model = slow_decay(build(gdn_recurrence=recurrence, moe_placement="none", mla_layers=layers))
    model.kernel = kernel
    tokens = draw_tokens(1, 50)
    assert float((model(tokens) - model(tokens, CU))[0, 31:].abs().max()) > 1e-2  # a leak would show
    for document in (0, 1, 3):
        start, end = BOUNDS[document], BOUNDS[document + 1]
        changed = tokens.clone()
        changed[:, start:end] = (changed[:, start:end] + 17) % 64
        before, after = loss_of_others(model, tokens, document), loss_of_others(model, changed, document)
        assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


@pytest.mark.parametrize("recurrence", RECURRENCES)
@pytest.mark.parametrize("capacity", [None, 1.0])
def test_a_document_never_moves_another_through_experts(recurrence: str, capacity: float | None) -> None:
    model = slow_decay(build(double=True, gdn_recurrence=recurrence, capacity_factor=capacity)).train()
    tokens = draw_tokens(1, 50)
    for document in (0, 3):
        start, end = BOUNDS[document], BOUNDS[document + 1]
        changed = tokens.clone()
        changed[:, start:end] = (changed[:, start:end] + 17) % 64
        before, after = loss_of_others(model, tokens, document), loss_of_others(model, changed, document)
        for a, b in zip(before, after, strict=True):
            close(a, b, 1e-12)


def test_a_loss_takes_boundaries_over_whole_windows() -> None:
    """loss(tokens, cu) of rows of T+1 tokens equals loss with explicit inputs, targets and boundaries."""
    model = build(double=True)
    window = draw_tokens(2, 21)
    got = model.loss(window, cu_seqlens=torch.tensor([0, 8, 21, 24, 42, 42], dtype=torch.int32))
    targets = window[:, 1:].clone()
    targets[0, 7] = targets[1, 2] = -100
    explicit = model.loss(window[:, :-1], targets, torch.tensor([0, 8, 20, 23, 40], dtype=torch.int32))
    assert got.keys() == explicit.keys()
    for name in got:
        close(got[name], explicit[name], 1e-12)
    plain, explicit = model.loss(window), model.loss(window[:, :-1], window[:, 1:])
    for name in plain:
        close(plain[name], explicit[name], 1e-12)


@given(
    lengths=st.lists(st.integers(0, 6), min_size=1, max_size=6).filter(any),
    depth=st.integers(0, 3),
    seed=st.integers(0, 99),
)
@settings(max_examples=25, deadline=None)
@example(lengths=[2], depth=3, seed=0)
@example(lengths=[1], depth=1, seed=0)
def test_explicit_targets_stop_at_boundaries_too(lengths: list[int], depth: int, seed: int) -> None:
    """Any targets, the last of a document among them: packed documents score as they do one by one."""
    model = build(double=True, mtp_depth=depth)
    total = sum(lengths)
    tokens, targets = draw_tokens(1, total, seed=seed), draw_tokens(1, total, seed=seed + 100)
    targets[draw_tokens(1, total, seed=seed + 200, vocab=8) == 0] = -100
    bounds = torch.tensor([0, *lengths], dtype=torch.int32).cumsum(0, dtype=torch.int32)
    whole = Window(tokens, targets, bounds)
    parts = zip(tokens.split(lengths, 1), targets.split(lengths, 1), strict=True)
    windows = [Window(x, y, None) for x, y in parts if x.numel()]
    counts, sums = model.target_counts(whole), model.loss_sums(whole)
    assert list(sums) == ["main", *(f"mtp_{d}" for d in range(1, depth + 1))]
    for name, value in sums.items():
        assert counts[name] == sum(model.target_counts(w)[name] for w in windows)
        close(value, sum(model.loss_sums(w)[name] for w in windows))
    losses = model.loss(tokens, targets, bounds)
    for name, value in sums.items():
        close(losses[name], value / max(counts[name], 1))


def test_a_document_over_two_rows_restarts_at_the_row() -> None:
    model = build(double=True)
    window = draw_tokens(2, 11)
    spanning = model.loss(window, cu_seqlens=torch.tensor([0, 4, 15, 22], dtype=torch.int32))
    cut = model.loss(window, cu_seqlens=torch.tensor([0, 4, 11, 15, 22], dtype=torch.int32))
    for name in spanning:
        close(spanning[name], cut[name], 1e-12)


@pytest.mark.parametrize("bounds", [[0, 5], [2, 10], [0, 7, 3, 10], [0, 11]], ids=str)
def test_bad_boundaries_are_refused(bounds: list[int]) -> None:
    model = build()
    cu = torch.tensor(bounds, dtype=torch.int32)
    with pytest.raises(UsageError, match="cu_seqlens"):
        model(draw_tokens(1, 10), cu)
    with pytest.raises(UsageError, match="cu_seqlens"):
        model.loss(draw_tokens(1, 10), cu_seqlens=cu)


def test_a_document_may_not_span_rows_of_a_forward_pass() -> None:
    with pytest.raises(UsageError, match="row start"):
        build()(draw_tokens(2, 5), torch.tensor([0, 10], dtype=torch.int32))


def test_tokens_need_two_dimensions() -> None:
    with pytest.raises(UsageError, match="tokens"):
        build()(draw_tokens(1, 5)[0])


ROUTERS: list[dict[str, Any]] = [
    {"router_score": "sigmoid"},
    {"router_score": "softmax"},
    {"capacity_factor": 0.5},
    {"capacity_factor": 1.0, "router_score": "softmax"},
    {"moe_placement": "all", "capacity_factor": 1.0, "balance_loss_alpha": 0.01},
]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("recurrence", RECURRENCES)
@pytest.mark.parametrize("router", ROUTERS, ids=str)
def test_neither_the_future_nor_other_rows_move_logits(router: dict[str, Any], recurrence: str, training: bool) -> None:
    model = slow_decay(build(double=True, gdn_recurrence=recurrence, **router)).train(training)
    tokens = draw_tokens(3, 40)
    logits = model(tokens)
    for cut in (1, 15, 16, 39):
        changed = tokens.clone()
        changed[:, cut:] = (changed[:, cut:] + 31) % 64
        after = model(changed)
        close(after[:, :cut], logits[:, :cut], 1e-12)
        assert float((after - logits)[:, cut:].detach().abs().amax(-1).min()) > 1e-6
    changed = tokens.clone()
    changed[1:] = (changed[1:] + 31) % 64
    close(model(changed)[0], logits[0], 1e-12)
    close(model(tokens[:1])[0], logits[0], 1e-12)


def test_capacity_drops_late_tokens_in_training_only() -> None:
    tight, free = build(double=True, capacity_factor=0.3), build(double=True)
    tokens = draw_tokens(2, 40)
    assert torch.equal(tight(tokens), free(tokens))
    difference = (tight.train()(tokens) - free.train()(tokens)).detach().abs().amax(-1)
    assert not difference[:, :2].any()  # ceil(0.3 * 40 * 2 / 6) = 4 places per expert: the first tokens always fit
    assert difference[:, -1].all()


@pytest.mark.parametrize("recurrence", RECURRENCES)
def test_padding_on_the_right_changes_nothing(recurrence: str) -> None:
    model = slow_decay(build(double=True, gdn_recurrence=recurrence))
    tokens, filler = draw_tokens(1, 21), draw_tokens(1, 30, seed=3)
    targets = draw_tokens(1, 21, seed=4)
    losses = model.loss(tokens, targets)
    grads = torch.autograd.grad(losses["loss"], list(model.parameters()))
    for extra in (1, 10, 30):
        padded = torch.cat((tokens, filler[:, :extra]), 1)
        close(model(padded)[:, :21], model(tokens), 1e-12)
        ignored = torch.full((1, extra), -100)
        again = model.loss(padded, torch.cat((targets, ignored), 1))
        for name in losses:
            close(again[name], losses[name], 1e-12)
        for a, b in zip(torch.autograd.grad(again["loss"], list(model.parameters())), grads, strict=True):
            close(a, b, 1e-12)


@pytest.mark.parametrize("recurrence", RECURRENCES)
def test_padding_on_the_left_as_a_document_changes_nothing(recurrence: str) -> None:
    model = slow_decay(build(double=True, gdn_recurrence=recurrence))
    tokens, filler = draw_tokens(1, 21), draw_tokens(1, 9, seed=3)
    padded = model(torch.cat((filler, tokens), 1), torch.tensor([0, 9, 30], dtype=torch.int32))
    close(padded[:, 9:], model(tokens), 1e-12)


def test_a_micro_batch_without_targets_is_worth_nothing() -> None:
    model = build()
    losses = model.loss(draw_tokens(1, 8), torch.full((1, 8), -100))
    assert all(float(x.detach()) == 0 for x in losses.values())
    grads = torch.autograd.grad(losses["loss"], list(model.parameters()), allow_unused=True)
    assert all(g is None or (torch.isfinite(g).all() and not g.any()) for g in grads)


def test_ranks_that_share_weights_leave_the_boundaries_on_the_host() -> None:
    """FSDP sends what it finds in tuples and dictionaries to the device; the host would wait to read them there."""
    window = split_window(torch.zeros(2, 9, dtype=torch.int64), torch.tensor([0, 4, 9, 18], dtype=torch.int32))
    (arguments,), _ = _to_kwargs((window,), {}, torch.device("meta"), False)
    assert arguments[0] is window
    assert window.cu_seqlens is not None
    assert window.cu_seqlens.device.type == "cpu"
