"""Convolution, attention, grouped products and cross-entropy against plain definitions."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from hymo.core.errors import UsageError
from hymo.kernels import arguments, cross_entropy, document_attention, grouped_linear, linear_cross_entropy, short_conv
from hymo.kernels.attention import aligned_attention


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def close(actual: Tensor | None, expected: Any, tolerance: float = 1e-12) -> None:
    assert actual is not None
    torch.testing.assert_close(actual.double(), torch.as_tensor(expected).double(), rtol=tolerance, atol=tolerance)


# Short convolution


@pytest.mark.parametrize("taps", [2, 3, 4, 7])
@pytest.mark.parametrize("time", [1, 2, 3, 4, 5, 20])
def test_conv_equals_torch(taps: int, time: int) -> None:
    u, weight = normal(2, time, 5).requires_grad_(), normal(5, taps, seed=1).requires_grad_()
    padded = F.pad(u.transpose(1, 2), (taps - 1, 0))
    expected = F.silu(F.conv1d(padded, weight[:, None], groups=5)).transpose(1, 2)
    got = short_conv(u, weight)
    close(got, expected)
    for actual, wanted in zip(
        torch.autograd.grad(got.sin().sum(), (u, weight)),
        torch.autograd.grad(expected.sin().sum(), (u, weight)),
        strict=True,
    ):
        close(actual, wanted)


@pytest.mark.parametrize("taps", [2, 4, 6])
def test_conv_continues_from_its_window(taps: int) -> None:
    u, weight = normal(2, 12, 3), normal(3, taps, seed=1)
    whole = short_conv(u, weight)
    for cut in range(13):
        past = torch.cat((torch.zeros(2, taps - 1, 3, dtype=u.dtype), u[:, :cut]), 1)[:, cut : cut + taps - 1]
        close(short_conv(u[:, cut:], weight, past), whole[:, cut:])


def test_conv_restarts_at_documents_exactly() -> None:
    bounds = [0, 1, 1, 3, 9, 10, 16]
    weight = normal(3, 4, seed=1)
    cu = torch.tensor(bounds, dtype=torch.int32)
    u = normal(1, 16, 3)
    packed = short_conv(u, weight, cu_seqlens=cu)
    alone = [short_conv(u[:, s:e], weight) for s, e in itertools.pairwise(bounds)]
    close(packed, torch.cat(alone, 1))
    for start, end in itertools.pairwise(bounds):
        changed = u.clone()
        changed[:, start:end] = 1e6
        after = short_conv(changed.requires_grad_(), weight, cu_seqlens=cu)
        others = [t for t in range(16) if not start <= t < end]
        assert torch.equal(after[:, others], packed[:, others])
        if others:
            (grad,) = torch.autograd.grad(after[:, others].sum(), changed)
            assert not grad[:, start:end].any()


# Attention


def explicit_attention(q: Tensor, k: Tensor, v: Tensor, scale: float) -> np.ndarray[Any, Any]:
    qn, kn, vn = q.double().numpy(), k.double().numpy(), v.double().numpy()
    batch, time, heads, _ = qn.shape
    per_group = heads // kn.shape[2]
    out = np.zeros((batch, time, heads, vn.shape[-1]))
    for b in range(batch):
        for h in range(heads):
            for t in range(time):
                scores = kn[b, : t + 1, h // per_group] @ qn[b, t, h] * scale
                weights = np.exp(scores - scores.max())
                out[b, t, h] = weights / weights.sum() @ vn[b, : t + 1, h // per_group]
    return out


@pytest.mark.parametrize(("heads", "groups"), [(4, 4), (4, 2), (6, 1), (1, 1)])
@pytest.mark.parametrize("time", [1, 2, 19])
def test_attention_equals_softmax(heads: int, groups: int, time: int) -> None:
    q, k, v = normal(2, time, heads, 6), normal(2, time, groups, 6, seed=1), normal(2, time, groups, 5, seed=2)
    close(document_attention(q, k, v, 0.4), explicit_attention(q, k, v, 0.4))
    close(document_attention(q.float(), k.float(), v.float(), 0.4), explicit_attention(q, k, v, 0.4), 1e-5)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=6).filter(lambda x: sum(x) > 0))
def test_packed_attention_equals_separate(lengths: list[int]) -> None:
    bounds = np.cumsum([0, *lengths]).tolist()
    q, k, v = normal(1, bounds[-1], 4, 6), normal(1, bounds[-1], 2, 6, seed=1), normal(1, bounds[-1], 2, 5, seed=2)
    leaves = [x.requires_grad_() for x in (q, k, v)]
    packed = document_attention(*leaves, 0.4, torch.tensor(bounds, dtype=torch.int32))
    alone = torch.cat(
        [document_attention(*(x[:, s:e] for x in leaves), 0.4) for s, e in itertools.pairwise(bounds) if e > s], 1
    )
    close(packed, alone)
    for actual, expected in zip(
        torch.autograd.grad(packed.sin().sum(), leaves), torch.autograd.grad(alone.sin().sum(), leaves), strict=True
    ):
        close(actual, expected)


def test_attention_refuses_bad_boundaries() -> None:
    q = normal(2, 4, 2, 4)
    with pytest.raises(UsageError, match="batch is 2"):
        document_attention(q, q, q, 1.0, torch.tensor([0, 4], dtype=torch.int32))
    with pytest.raises(UsageError, match="cu_seqlens"):
        document_attention(q[:1], q[:1], q[:1], 1.0, torch.tensor([0, 3], dtype=torch.int32))


# Grouped products


COUNTS = [[3, 0, 5, 1], [0, 0, 9, 0], [9, 0, 0, 0], [0, 0, 0, 9]]


@pytest.mark.parametrize(
    ("implementation", "counts"),
    [("loop", c) for c in [*COUNTS, [0, 0, 0, 0]]] + [("grouped", c) for c in COUNTS],
    ids=str,
)
def test_groups_equal_a_row_loop(implementation: str, counts: list[int]) -> None:
    rows = sum(counts)
    dtype = torch.float64 if implementation == "loop" else torch.float32
    x, weight = normal(rows, 16, dtype=dtype).requires_grad_(), normal(4, 8, 16, seed=1, dtype=dtype).requires_grad_()
    group = np.repeat(np.arange(4), counts)
    got = grouped_linear(x, weight, torch.tensor(counts), implementation)
    pull = normal(rows, 8, seed=2, dtype=dtype)
    grad_x, grad_weight = torch.autograd.grad(got, (x, weight), pull)
    xn, wn, pn = x.detach().double().numpy(), weight.detach().double().numpy(), pull.double().numpy()
    tolerance = 1e-12 if implementation == "loop" else 1e-5
    expected_x, expected_weight = np.zeros_like(xn), np.zeros_like(wn)
    for row in range(rows):
        close(got[row].detach(), wn[group[row]] @ xn[row], tolerance)
        expected_x[row] = pn[row] @ wn[group[row]]
        expected_weight[group[row]] += np.outer(pn[row], xn[row])
    close(grad_x, expected_x, tolerance)
    close(grad_weight, expected_weight, tolerance)
    for expert, count in enumerate(counts):
        if count == 0:
            assert not grad_weight[expert].any()


def test_an_unknown_grouped_implementation_is_refused() -> None:
    with pytest.raises(UsageError, match="loop"):
        grouped_linear(normal(2, 2), normal(1, 2, 2), torch.tensor([2]), "lop")


# Cross-entropy


def nats(hidden: Tensor, weight: Tensor, targets: Tensor, softcap: float) -> float:
    logits = hidden.double().numpy() @ weight.double().numpy().T
    if softcap:
        logits = softcap * np.tanh(logits / softcap)
    total = 0.0
    for row, target in zip(logits, targets.tolist(), strict=True):
        if target != -100:
            total += row.max() + np.log(np.exp(row - row.max()).sum()) - row[target]
    return total


def losses(
    hidden: Tensor, weight: Tensor, targets: Tensor, softcap: float, implementation: str
) -> tuple[Tensor, Tensor, Tensor]:
    leaves = hidden.clone().requires_grad_(), weight.clone().requires_grad_()
    loss = linear_cross_entropy(*leaves, targets, softcap, implementation)
    grads = torch.autograd.grad(3 * loss, leaves)
    return loss.detach(), *grads


IGNORED: dict[str, Any] = {
    "none": [],
    "first chunk": slice(0, 4),
    "some": slice(None, None, 3),
    "last chunk": slice(8, None),
    "all": slice(None),
}


@pytest.mark.parametrize("rows", [1, 3, 4, 10, 11, 100])
@pytest.mark.parametrize("softcap", [0.0, 15.0])
@pytest.mark.parametrize("ignored", IGNORED)
def test_chunked_loss_equals_plain(monkeypatch: pytest.MonkeyPatch, rows: int, softcap: float, ignored: str) -> None:
    hidden, weight = 3 * normal(11, 6), normal(13, 6, seed=1)
    targets = torch.randint(0, 13, (11,), generator=torch.Generator().manual_seed(2))
    targets[IGNORED[ignored]] = -100
    monkeypatch.setattr(cross_entropy, "LOGIT_CHUNK_ELEMENTS", 13 * rows)
    plain = losses(hidden, weight, targets, softcap, "plain")
    chunked = losses(hidden, weight, targets, softcap, "chunked")
    auto = losses(hidden, weight, targets, softcap, "auto")
    close(plain[0], nats(hidden, weight, targets, softcap))
    for expected, *others in zip(plain, chunked, auto, strict=True):
        for actual in others:
            close(actual, expected)
    if ignored == "all":
        for loss, *grads in (plain, chunked):
            assert float(loss) == 0
            assert not any(g.any() for g in grads)
    else:
        off = targets == -100
        assert not chunked[1][off].any()


@pytest.mark.parametrize("implementation", ["plain", "chunked"])
@pytest.mark.parametrize("softcap", [0.0, 15.0])
def test_loss_gradients_equal_finite_differences(implementation: str, softcap: float) -> None:
    targets = torch.tensor([1, -100, 4, 0])
    leaves = normal(4, 3).requires_grad_(), normal(5, 3, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(
        lambda h, w: linear_cross_entropy(h, w, targets, softcap, implementation), leaves, eps=1e-6, atol=1e-7
    )


@pytest.mark.parametrize("implementation", ["plain", "chunked"])
@pytest.mark.parametrize("softcap", [0.0, 15.0])
@pytest.mark.parametrize("size", [1e-6, 1e3, 1e5])
def test_extreme_logits_stay_finite(implementation: str, softcap: float, size: float) -> None:
    hidden, weight = size * normal(5, 4, dtype=torch.float32), normal(7, 4, seed=1, dtype=torch.float32)
    targets = torch.tensor([0, 1, 2, -100, 6])
    loss, *grads = losses(hidden, weight, targets, softcap, implementation)
    assert all(torch.isfinite(x).all() for x in (loss, *grads))
    expected = nats(hidden, weight, targets, softcap)
    assert abs(float(loss) - expected) <= 1e-4 * max(1.0, expected)


@pytest.mark.parametrize("softcap", [0.0, 15.0])
def test_bf16_loss_is_summed_in_fp32(monkeypatch: pytest.MonkeyPatch, softcap: float) -> None:
    """Exact fp32 of the bf16 logits: with V = 2000 a log-sum-exp in bf16 would be off by 0.03 per token."""
    hidden, weight = normal(64, 32, dtype=torch.bfloat16), normal(2000, 32, seed=1, dtype=torch.bfloat16)
    targets = torch.randint(0, 2000, (64,), generator=torch.Generator().manual_seed(2))
    monkeypatch.setattr(cross_entropy, "LOGIT_CHUNK_ELEMENTS", 2000 * 24)
    logits = (hidden @ weight.T).double()
    if softcap:
        logits = softcap * torch.tanh(logits / softcap)
    expected = F.cross_entropy(logits, targets, reduction="sum")
    results = [losses(hidden, weight, targets, softcap, i) for i in ("plain", "chunked")]
    for loss, grad_hidden, grad_weight in results:
        assert loss.dtype is torch.float32
        assert grad_hidden.dtype is grad_weight.dtype is torch.bfloat16
        assert abs(float(loss - expected)) < 1e-3
    exact = losses(hidden.double(), weight.double(), targets, softcap, "plain")
    for plain, chunked, reference in zip(results[0][1:], results[1][1:], exact[1:], strict=True):
        for grad in (plain, chunked):
            assert float((grad.double() - reference).norm() / reference.norm()) < 0.02


def test_a_loss_may_need_one_gradient_or_none() -> None:
    hidden, weight, targets = normal(4, 3), normal(5, 3, seed=1), torch.tensor([0, 1, 2, 3])
    expected = losses(hidden, weight, targets, 15.0, "plain")
    for needs in ((True, False), (False, True)):
        leaves = [x.clone().requires_grad_(n) for x, n in zip((hidden, weight), needs, strict=True)]
        linear_cross_entropy(*leaves, targets, 15.0, "chunked").backward()
        for leaf, need, grad in zip(leaves, needs, expected[1:], strict=True):
            if need:
                close(3 * leaf.grad, grad)
    with torch.no_grad():
        close(linear_cross_entropy(hidden, weight, targets, 15.0, "chunked"), expected[0])


@pytest.mark.parametrize("implementation", ["plain", "chunked"])
@pytest.mark.parametrize("target", [-1, 5])
def test_a_target_outside_the_vocabulary_is_no_silent_loss(implementation: str, target: int) -> None:
    with pytest.raises((IndexError, RuntimeError)):
        linear_cross_entropy(normal(2, 3), normal(5, 3), torch.tensor([0, target]), 15.0, implementation)


def test_an_unknown_loss_implementation_is_refused() -> None:
    with pytest.raises(UsageError, match="plain"):
        linear_cross_entropy(normal(2, 3), normal(5, 3), torch.tensor([0, 1]), 15.0, "plane")


def test_no_tokens_cost_nothing() -> None:
    hidden, weight = normal(0, 3).requires_grad_(), normal(5, 3).requires_grad_()
    for implementation in ("plain", "chunked"):
        loss = linear_cross_entropy(hidden, weight, torch.zeros(0, dtype=torch.int64), 15.0, implementation)
        assert float(loss.detach()) == 0
        assert not torch.autograd.grad(loss, weight)[0].any()


@pytest.mark.parametrize(("new", "total"), [(5, 9), (5, 5), (1, 4)])
def test_aligned_attention_is_causal_from_the_end(new: int, total: int) -> None:
    """Query t of the last `new` sees keys up to its own place; one head at a time, in fp64."""
    rng = torch.Generator().manual_seed(0)
    shapes = ((2, new, 4, 8), (2, total, 2, 8), (2, total, 2, 6))
    q, k, v = (torch.randn(shape, generator=rng, dtype=torch.float64) for shape in shapes)
    got = aligned_attention(q, k, v, 0.3)
    for row in range(2):
        for head in range(4):
            for t in range(new):
                seen = total - new + t + 1
                weights = torch.softmax(0.3 * k[row, :seen, head // 2] @ q[row, t, head], 0)
                torch.testing.assert_close(got[row, t, head], weights @ v[row, :seen, head // 2])


def test_boundaries_of_a_pass_without_gradients_reach_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Evaluation runs in inference mode, whose tensors count no changes. The copy to the device is simulated."""
    copies: list[Tensor] = []

    def copy(x: Tensor, device: torch.device) -> Tensor:
        copies.append(x.clone())
        return copies[-1]

    monkeypatch.setattr(arguments, "on_device", copy)
    cuda = torch.device("cuda")
    with torch.inference_mode():
        bounds = torch.tensor([0, 3, 7])
        moved = arguments.boundaries_on(bounds, cuda)
        assert moved.tolist() == [0, 3, 7]
        assert not arguments._new(moved)  # checked on the host: no kernel reads it back
        bounds[1] = 5
        assert arguments.boundaries_on(bounds, cuda).tolist() == [0, 5, 7]
        strange = torch.tensor([0, 9, 7])
        assert arguments._new(strange)
        assert arguments._new(strange)  # it may have changed since
    counted = torch.tensor([0, 4, 7])
    assert arguments.boundaries_on(counted, cuda).tolist() == [0, 4, 7]
    counted[1] = 2
    assert arguments.boundaries_on(counted, cuda).tolist() == [0, 2, 7]
