"""Router, experts, load balance."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from hymo.models import DeepSeekMoE, HyMo
from hymo.models.context import SequenceContext
from model_helpers import build, close, draw_tokens

EXPERTS = 6


def mixture(double: bool = True, **changes: Any) -> tuple[DeepSeekMoE, SequenceContext]:
    model = build(double=double, **changes)
    moe = model.mixtures()[0]
    moe.reset_buffers()
    return moe, model._context(draw_tokens(1, 4), None, 0, None)


def inputs(rows: int = 2, time: int = 9) -> Tensor:
    return torch.randn(rows, time, 32, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_router_tensors_stay_fp32(dtype: torch.dtype) -> None:
    model = build()
    before = {n: t.clone() for n, t in model.state_dict().items()}
    model = model.to(dtype)
    for moe in model.mixtures():
        assert moe.bias.dtype is moe.load_ema.dtype is moe.router.dtype is moe.tokens_per_expert.dtype is torch.float32
        assert moe.w1.dtype is dtype
    for name, tensor in model.state_dict().items():
        if name.endswith(("router", "bias", "load_ema", "A_log", "D_skip")) and "proj" not in name:
            assert tensor.dtype is torch.float32, name
            assert torch.equal(tensor, before[name]), name
    assert isinstance(model.mixtures()[0].router, torch.nn.Parameter)
    assert model.half().float().mixtures()[0].bias.dtype is torch.float32
    assert build().double().mixtures()[0].bias.dtype is torch.float64


def test_a_bf16_model_counts_and_balances_exactly() -> None:
    """257 is no bf16 number: counts in bf16 would stop growing."""
    model = build(moe_ema_alpha=0.5).to(torch.bfloat16).train()
    for seed in range(5):
        model.loss(draw_tokens(3, 161, seed))["loss"].backward()
    for moe in model.mixtures():
        assert float(moe.tokens_per_expert.sum()) == 5 * 3 * 160 * 2
        moe.after_step()
        assert moe.bias.dtype is torch.float32
        assert moe.bias.any()


def test_the_router_ignores_autocast() -> None:
    moe, _ = mixture(double=False)
    tokens = inputs().float().flatten(0, 1)
    plain = moe.route(tokens)
    with torch.autocast("cpu", torch.bfloat16):
        cast = moe.route(tokens)
    assert cast[2].dtype is torch.float32
    assert all(torch.equal(a, b) for a, b in zip(plain, cast, strict=True))


@pytest.mark.parametrize("score", ["sigmoid", "softmax"])
def test_the_bias_moves_the_choice_and_nothing_else(score: str) -> None:
    moe, context = mixture(router_score=score)
    x = inputs().requires_grad_()
    y = moe(x, context)
    grads = torch.autograd.grad(y.sin().sum(), [x, moe.router])
    moe.bias.fill_(0.7)  # equal for all: no choice changes
    again = moe(x, context)
    assert torch.equal(y, again)
    for a, b in zip(grads, torch.autograd.grad(again.sin().sum(), [x, moe.router]), strict=True):
        assert torch.equal(a, b)
    assert not moe.bias.requires_grad

    moe.bias.copy_(torch.tensor([5.0, 0, 0, 5.0, 0, 0]))  # experts 0 and 3 whatever the scores
    chosen, weights, scores = moe.route(x.flatten(0, 1))
    assert torch.equal(chosen.sort(-1).values, torch.tensor([[0, 3]]).expand_as(chosen))
    raw = scores.gather(-1, chosen)
    close(weights, raw / raw.sum(-1, keepdim=True))


@pytest.mark.parametrize("score", ["sigmoid", "softmax"])
def test_experts_without_tokens_get_exact_zeros(score: str) -> None:
    moe, context = mixture(router_score=score)
    moe.bias.copy_(torch.tensor([5.0, 0, 0, 5.0, 0, 0]))
    moe(inputs(), context).sin().sum().backward()
    for name in ("w1", "w2", "w3"):
        grad = getattr(moe, name).grad
        assert not grad[[1, 2, 4, 5]].any(), name
        assert grad[[0, 3]].flatten(1).any(1).all(), name
    if score == "sigmoid":
        assert not moe.router.grad[[1, 2, 4, 5]].any()


def test_one_expert_of_one_is_a_dense_layer() -> None:
    moe, context = mixture(n_routed_experts=1, n_activated_experts=1, n_shared_experts=0)
    x = inputs()
    gate, up = x @ moe.w1[0].T, x @ moe.w3[0].T
    close(moe(x, context), (gate * torch.sigmoid(gate) * up) @ moe.w2[0].T)


def test_a_row_alone_equals_a_row_in_a_batch() -> None:
    moe, context = mixture()
    x = inputs(5, 7)
    whole = moe(x, context)
    for row in range(5):
        close(moe(x[row : row + 1], context)[0], whole[row], 1e-12)
    close(moe(x[:, 3:4], context), whole[:, 3:4], 1e-12)


@pytest.mark.parametrize("factor", [0.25, 1.0, 1.5])
def test_capacity_equals_a_queue_per_sequence(factor: float) -> None:
    rows, time, k = 3, 20, 2
    moe, _ = mixture(capacity_factor=factor)
    x = inputs(rows, time)
    places = int(np.ceil(factor * time * k / EXPERTS))
    context = SequenceContext((x, x), (x, x), capacity=True)
    chosen, weights, _ = moe.route(x.flatten(0, 1))
    expected = weights.clone()
    dropped = 0
    for row in range(rows):
        used = [0] * EXPERTS
        for t in range(row * time, (row + 1) * time):
            for slot in range(k):
                expert = int(chosen[t, slot])
                used[expert] += 1
                if used[expert] > places:
                    expected[t, slot] = 0
                    dropped += 1
    assert (dropped > 0) == (factor < 1.5) or dropped
    close(weights * moe._within_capacity(chosen, rows, context), expected)


def reference_bias(loads: list[list[int]], alpha: float, speed: float, band: float, mode: str) -> list[Any]:
    """The published rule, step by step in numpy."""
    bias, ema = np.zeros(EXPERTS), np.full(EXPERTS, 1 / EXPERTS)
    found = []
    for counts in loads:
        load = np.array(counts) / np.sum(counts)
        ema = (1 - alpha) * ema + alpha * load
        for e in range(EXPERTS):
            if mode == "sign":
                bias[e] += speed * np.sign(1 / EXPERTS - load[e])
            elif abs(ema[e] * EXPERTS - 1) > band:
                bias[e] += speed if ema[e] < 1 / EXPERTS else -speed
        bias = bias - bias.mean()
        found.append((bias.copy(), ema.copy()))
    return found


@pytest.mark.parametrize("mode", ["ema", "sign"])
@pytest.mark.parametrize("alpha", [0.02, 0.5, 1.0])
def test_the_bias_follows_the_rule(mode: str, alpha: float) -> None:
    moe, _ = mixture(moe_bias_update=mode, moe_ema_alpha=alpha, moe_dead_band=0.05, moe_bias_speed=0.001)
    rng = np.random.default_rng(0)
    loads = [rng.integers(0, 100, EXPERTS).tolist() for _ in range(20)]
    loads += [[60] * EXPERTS, [60, 62, 58, 60, 61, 59], [360, 0, 0, 0, 0, 0], [10, 20, 30, 40, 50, 60]]
    for counts, (bias, ema) in zip(loads, reference_bias(loads, alpha, 0.001, 0.05, mode), strict=True):
        half = torch.tensor(counts) // 2
        moe.tokens_per_expert += half  # two micro-batches
        moe.tokens_per_expert += torch.tensor(counts) - half
        moe.update_gate_bias()
        close(moe.bias, bias, 1e-9)
        close(moe.load_ema, ema, 1e-9)
        assert abs(float(moe.bias.mean())) < 1e-9
        assert not moe.tokens_per_expert.any()
    kept = moe.bias.clone(), moe.load_ema.clone()
    moe.update_gate_bias()  # nothing counted: nothing moves
    assert torch.equal(moe.bias, kept[0])
    assert torch.equal(moe.load_ema, kept[1])


def test_the_dead_band_rests() -> None:
    moe, _ = mixture(moe_ema_alpha=1.0)
    moe.tokens_per_expert += torch.tensor([104, 96, 103, 97, 100, 100])
    moe.update_gate_bias()
    assert not moe.bias.any()


def steps(model: HyMo, accumulation: int, evaluate: bool = False) -> list[Tensor]:
    """Two optimizer steps' worth of counting and bias updates on the same 8 rows each."""
    for step in range(2):
        tokens = draw_tokens(8, 33, seed=step)
        for i, part in enumerate(tokens.chunk(accumulation)):
            model.train().loss(part)["loss"].backward()
            if evaluate and i == 0:  # once: counting every part twice would leave the shares as they are
                with torch.no_grad():
                    model.eval()(tokens[:3])
        for moe in model.mixtures():
            moe.after_step()
    return [t for moe in model.mixtures() for t in (moe.bias, moe.load_ema)]


@pytest.mark.parametrize("changes", [{}, {"moe_placement": "all"}, {"balance_loss_alpha": 0.01}], ids=str)
def test_the_bias_is_blind_to_checkpointing_accumulation_and_evaluation(changes: dict[str, Any]) -> None:
    changes = {**changes, "moe_ema_alpha": 0.5}  # leaves the dead band within two steps
    expected = steps(build(**changes), 1)
    assert len(expected) == 2 * (4 if changes.get("moe_placement") else 2)
    assert all(t.any() for t in expected)
    for mode in ("none", "selective", "full"):
        for accumulation in (1, 4):
            for evaluate in (False, True):
                model = build(**changes)
                model.checkpointing = mode
                for a, b in zip(steps(model, accumulation, evaluate), expected, strict=True):
                    assert torch.equal(a, b), (mode, accumulation, evaluate)


def test_evaluation_counts_nothing() -> None:
    model = build().eval()
    model(draw_tokens(2, 9))
    model.loss(draw_tokens(2, 9))
    assert not any(moe.tokens_per_expert.any() for moe in model.mixtures())


def test_the_balance_loss_is_its_formula() -> None:
    """alpha * sum_e (E / k load_e) share_e per sequence, DeepSeek-V3 eq. 17-20; 1 * alpha at uniform routing."""
    alpha = 0.01
    model = build(double=True, balance_loss_alpha=alpha).train()
    tokens = draw_tokens(3, 21)
    losses = model.loss(tokens)
    moes = model.mixtures()
    seen: dict[int, Tensor] = {}
    hooks = [m.register_forward_pre_hook(lambda mod, args: seen.__setitem__(mod.layer, args[0].detach())) for m in moes]
    model.loss(tokens)
    for hook in hooks:
        hook.remove()
    total = 0.0
    for moe in moes:
        per_row = []
        for row in seen[moe.layer]:
            scores = torch.sigmoid(row @ moe.router.T).detach().numpy()
            chosen = np.argsort(-scores, -1)[:, :2]
            hits = np.array([(chosen == e).sum() for e in range(EXPERTS)]) / len(row)
            share = (scores / scores.sum(-1, keepdims=True)).mean(0)
            per_row.append(alpha * (EXPERTS / 2 * hits * share).sum())
        total += np.mean(per_row)
    close(losses["balance"], total)
    weighted = losses["main"] + 0.3 * losses["mtp_1"] + 0.1 * losses["mtp_2"] + losses["balance"]
    close(losses["loss"], weighted)
    assert "balance" not in model.eval().loss(tokens)


def test_telemetry_of_a_known_load() -> None:
    moe, _ = mixture()
    moe.tokens_per_expert += torch.tensor([0, 0, 0, 0, 60, 60])
    found = {name.split("/")[1]: float(value) for name, value in moe.telemetry().items()}
    assert abs(found["load_cv"] - np.std([0, 0, 0, 0, 3, 3])) < 1e-6
    assert abs(found["max_violation"] - 2) < 1e-6
    assert abs(found["entropy"] - np.log(2) / np.log(6)) < 1e-6
    assert found["bias_absmax"] == 0


def test_experts_in_bf16_leave_routing_and_the_rest_alone() -> None:
    """`moe_mixed_precision`: the routed experts' products in bf16, everything else in the dtype of the block."""
    torch.manual_seed(0)
    layer, context = mixture(double=False)
    layer.train()
    x = inputs().float().requires_grad_()
    found = []
    for dtype in (None, torch.bfloat16):
        layer.expert_dtype = dtype
        y = layer(x, context)
        assert y.dtype is torch.float32
        assert layer._last_counts is not None
        found.append((layer._last_counts, y, *torch.autograd.grad(y.square().sum(), [x, layer.w1, layer.w2])))
    assert torch.equal(found[0][0], found[1][0])
    for exact, rounded in zip(found[0][1:], found[1][1:], strict=True):
        error = float((rounded - exact).norm() / exact.norm())
        assert 1e-5 < error < 1e-2, error
