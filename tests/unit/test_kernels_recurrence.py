"""Both recurrences against numpy loops, and their implementations against each other."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from hymo.core.errors import UsageError
from hymo.kernels import gated_delta, gated_linear
from hymo.kernels.chunking import decay_
from hymo.kernels.segments import PROGRAMS, segment_parts
from kernel_oracles import gated_delta_loop, gated_linear_loop, per_document

OPS = ("linear", "delta")
IMPLEMENTATIONS = ("recurrent", "chunked")
LINEAR_CASES = ("mixed", "slow", "fast", "alternating", "spread", "zero_keys", "equal_keys")
DELTA_CASES = ("mixed", "slow", "fast", "alternating", "strong", "zero_keys", "equal_keys", "correlated")

Inputs = dict[str, Tensor]


def linear_inputs(case: str, batch: int, time: int, heads: int, states: int, width: int, seed: int = 0) -> Inputs:
    rng = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=rng, dtype=torch.float64)

    v, b, c = normal(batch, time, heads, width), normal(batch, time, heads, states), normal(batch, time, heads, states)
    g = torch.rand((batch, time, heads), generator=rng, dtype=torch.float64)
    rates = torch.linspace(1, 40, heads * states, dtype=torch.float64).view(heads, states)
    if case == "slow":  # 0.999999 per step
        g, rates = torch.ones_like(g), torch.full_like(rates, 1e-6)
    elif case == "fast":  # e^-40 per step
        g, rates = torch.ones_like(g), torch.full_like(rates, 40.0)
    elif case == "alternating":  # decay 1 and e^-40 in turn
        g, rates = (torch.arange(time) % 2).double()[None, :, None].expand_as(g).clone(), torch.full_like(rates, 40.0)
    elif case == "spread":
        rates = torch.logspace(-6, 1.7, heads * states, dtype=torch.float64).view(heads, states)
    elif case == "zero_keys":
        b[:, ::2] = 0
        c[:, 1::3] = 0
    elif case == "equal_keys":
        b, rates = b[:, :1].expand_as(b).clone(), torch.full_like(rates, 0.01)
        c = b.clone()
    return {"v": v, "b": b, "c": c, "g": g, "A_log": rates.log()}


def delta_inputs(case: str, batch: int, time: int, heads: int, states: int, width: int, seed: int = 0) -> Inputs:
    rng = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=rng, dtype=torch.float64)

    q, k, v = normal(batch, time, heads, states), normal(batch, time, heads, states), normal(batch, time, heads, width)
    if case == "equal_keys":
        k = k[:, :1].expand_as(k).clone()
    elif case == "correlated":
        k = k[:, :1] + 0.05 * k
    k = k / k.norm(dim=-1, keepdim=True)
    beta = torch.rand((batch, time, heads), generator=rng, dtype=torch.float64)
    log_alpha = -torch.rand((batch, time, heads), generator=rng, dtype=torch.float64)
    if case in ("slow", "equal_keys", "correlated"):
        log_alpha = torch.full_like(log_alpha, -1e-6)
    elif case == "fast":
        log_alpha = torch.full_like(log_alpha, -40.0)
    elif case == "alternating":
        log_alpha = -40 * (torch.arange(time) % 2).double()[None, :, None].expand_as(log_alpha)
    elif case == "strong":
        beta, log_alpha = torch.full_like(beta, 1.9), 0.01 * log_alpha
    elif case == "zero_keys":
        k[:, ::2] = 0
    if case == "equal_keys":
        beta = torch.ones_like(beta)
    return {"q": q, "k": k, "v": v, "beta": beta, "log_alpha": log_alpha.clone()}


def make(op: str, case: str, *shape: int, seed: int = 0) -> Inputs:
    return (linear_inputs if op == "linear" else delta_inputs)(case, *shape, seed=seed)


def run(op: str, inputs: Inputs, **options: Any) -> tuple[Tensor, Tensor]:
    function: Callable[..., Any] = gated_linear if op == "linear" else gated_delta
    o, final = function(**inputs, output_final_state=True, **options)
    return o, final


def oracle(op: str, inputs: Inputs, state: Tensor | None = None, bounds: list[int] | None = None) -> Any:
    arrays = {name: x.double().numpy() for name, x in inputs.items()}
    extra = [np.exp(arrays.pop("A_log"))] if op == "linear" else []
    loop = gated_linear_loop if op == "linear" else gated_delta_loop
    first = None if state is None else state.double().numpy()
    if bounds is not None:
        return per_document(loop, list(arrays.values()), extra, bounds, first)
    return loop(*arrays.values(), *extra, first)


def state_for(inputs: Inputs, sequences: int, seed: int = 5) -> Tensor:
    v = inputs["v"]
    keys = inputs["b"] if "b" in inputs else inputs["k"]
    rng = torch.Generator().manual_seed(seed)
    return torch.randn((sequences, v.shape[2], keys.shape[-1], v.shape[3]), generator=rng, dtype=torch.float64)


def close(actual: Tensor, expected: Any, tolerance: float = 1e-9) -> None:
    torch.testing.assert_close(actual.double(), torch.as_tensor(expected).double(), rtol=tolerance, atol=tolerance)


def gradients(op: str, inputs: Inputs, state: Tensor | None, **options: Any) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Outputs, final states, and the gradients of a random projection of both with respect to everything."""
    leaves = {name: x.clone().requires_grad_() for name, x in inputs.items()}
    first = None if state is None else state.clone().requires_grad_()
    o, final = run(op, leaves, initial_state=first, **options)
    rng = torch.Generator().manual_seed(9)
    pull_o = torch.randn(o.shape, generator=rng, dtype=torch.float64).to(o.dtype)
    pull_final = torch.randn(final.shape, generator=rng, dtype=torch.float64).to(final.dtype)
    ((o * pull_o).sum() + (final * pull_final).sum()).backward()
    tensors = [*leaves.values(), *([] if first is None else [first])]
    grads = [torch.zeros_like(x) if x.grad is None else x.grad for x in tensors]
    return o.detach(), final.detach(), grads


@pytest.mark.parametrize(
    ("op", "case"), [("linear", c) for c in LINEAR_CASES] + [("delta", c) for c in DELTA_CASES], ids=str
)
def test_implementations_equal_the_loop(op: str, case: str) -> None:
    for time in (1, 2, 17, 65):
        inputs = make(op, case, 2, time, 2, 4, 3, seed=time)
        state = state_for(inputs, 2)
        for first in (None, state):
            o, final = oracle(op, inputs, first)
            for implementation in IMPLEMENTATIONS:
                got, last = run(op, inputs, initial_state=first, implementation=implementation, chunk_size=16)
                close(got, o)
                close(last, final)


@pytest.mark.parametrize(
    ("op", "case"), [("linear", c) for c in LINEAR_CASES] + [("delta", c) for c in DELTA_CASES], ids=str
)
def test_chunked_equals_recurrent_with_every_gradient(op: str, case: str) -> None:
    lengths = range(1, 18) if case == "mixed" else ()
    for time in (*lengths, 63, 64, 65, 100, 129):
        inputs = make(op, case, 2, time, 2, 4, 3, seed=time)
        state = state_for(inputs, 2)
        o, final, grads = gradients(op, inputs, state, implementation="recurrent")
        assert all(torch.isfinite(x).all() for x in (o, final, *grads))
        for size in (16, 32, 64, 128) if time in (17, 65, 129) else (32,):
            got = gradients(op, inputs, state, implementation="chunked", chunk_size=size)
            close(got[0], o)
            close(got[1], final)
            for name, actual, expected in zip([*inputs, "state"], got[2], grads, strict=True):
                scale = max(1.0, float(expected.abs().max()))
                assert float((actual - expected).abs().max()) <= 1e-9 * scale, (case, time, size, name)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_decays_are_exponentials_or_zero(dtype: torch.dtype) -> None:
    """Down to the least normal number, within what rounding the exponent explains; below it 0."""
    exponents = -torch.logspace(-3, 3.2, 4001, dtype=dtype)
    expected = torch.from_numpy(np.exp(exponents.numpy().astype(np.longdouble)).astype(np.float64))
    found, least = decay_(exponents.clone()).double(), torch.finfo(dtype).tiny
    normal = expected > 2 * least
    assert 0.7 < float(normal.double().mean()) < 0.99
    assert float(((found - expected)[normal] / expected[normal]).abs().max()) < 4 * torch.finfo(dtype).eps
    assert (found[expected < least] == 0).all()
    assert decay_(torch.tensor([0.0, -torch.inf], dtype=dtype)).tolist() == [1.0, 0.0]


@pytest.mark.parametrize("op", OPS)
def test_gradients_that_all_but_vanish_are_still_right(op: str) -> None:
    # With every decay e^-40 the gates' gradients are of that size, beside others of size 1 that must not drown them.
    inputs = make(op, "fast", 1, 100, 2, 4, 3)
    inputs.pop("initial_state", None)
    want, got = (gradients(op, inputs, None, implementation=name)[2] for name in IMPLEMENTATIONS)
    for name, x, y in zip(inputs, got, want, strict=True):
        assert relative(x, y) < 1e-11, name


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_gradients_equal_finite_differences(op: str, implementation: str) -> None:
    inputs = make(op, "mixed", 1, 5, 2, 2, 3)
    if op == "linear":
        inputs["g"] += 0.1
    state = state_for(inputs, 1)

    def function(*tensors: Tensor) -> tuple[Tensor, Tensor]:
        named = dict(zip(inputs, tensors[:-1], strict=True))
        return run(op, named, initial_state=tensors[-1], implementation=implementation, chunk_size=16)

    leaves = [x.clone().requires_grad_() for x in (*inputs.values(), state)]
    assert torch.autograd.gradcheck(function, leaves, eps=1e-6, atol=1e-6)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize(
    "lengths", [[9, 20, 3], [0, 5, 0, 0, 18, 1, 0], [1, 1, 1], [40], [16, 16, 17, 15, 32]], ids=str
)
def test_packed_documents_equal_a_loop_over_documents(op: str, implementation: str, lengths: list[int]) -> None:
    bounds = [0, *np.cumsum(lengths).tolist()]
    inputs = make(op, "slow", 1, bounds[-1], 2, 4, 3)
    cu = torch.tensor(bounds, dtype=torch.int32)
    for state in (None, state_for(inputs, len(lengths))):
        o, final = oracle(op, inputs, state, bounds)
        got, last = run(op, inputs, initial_state=state, cu_seqlens=cu, implementation=implementation, chunk_size=16)
        close(got, o)
        close(last, final)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_packed_gradients_are_those_of_separate_documents(op: str, implementation: str) -> None:
    bounds = [0, 17, 17, 18, 51, 60]
    inputs = make(op, "slow", 1, 60, 2, 4, 3)
    state = state_for(inputs, 5)
    cu = torch.tensor(bounds, dtype=torch.int32)
    leaves = {name: x.clone().requires_grad_() for name, x in inputs.items()}
    first = state.clone().requires_grad_()
    options = {"implementation": implementation, "chunk_size": 16}
    o, final = run(op, leaves, initial_state=first, cu_seqlens=cu, **options)
    (o.square().sum() + final.square().sum()).backward()

    alone = {name: x.clone().requires_grad_() for name, x in inputs.items()}
    first_alone = state.clone().requires_grad_()
    total = torch.zeros((), dtype=torch.float64)
    for i, (start, end) in enumerate(itertools.pairwise(bounds)):
        part = {name: x if name == "A_log" else x[:, start:end] for name, x in alone.items()}
        o_i, final_i = run(op, part, initial_state=first_alone[i : i + 1], implementation="recurrent")
        total = total + o_i.square().sum() + final_i.square().sum()
    total.backward()
    for name in inputs:
        close(leaves[name].grad, alone[name].grad)
    close(first.grad, first_alone.grad)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_a_document_never_moves_another(op: str, implementation: str) -> None:
    """Slow decay; the values of one document change; outputs, states and gradients elsewhere stay bit for bit."""
    bounds = [0, 20, 20, 21, 57, 70]
    cu = torch.tensor(bounds, dtype=torch.int32)
    for document in (0, 2, 3):
        start, end = bounds[document], bounds[document + 1]
        results = []
        for change in (0.0, 1.0):
            inputs = make(op, "slow", 1, 70, 2, 4, 3)
            keys = ("v", "b", "c") if op == "linear" else ("v", "q")
            for name in keys:
                inputs[name][:, start:end] += change
            leaves = {name: x.requires_grad_() for name, x in inputs.items()}
            o, final = run(op, leaves, cu_seqlens=cu, implementation=implementation, chunk_size=16)
            others = [i for i in range(70) if not start <= i < end]
            kept = [i for i in range(5) if i != document]
            loss = o[:, others].sin().sum() + final[kept].sin().sum()
            grads = torch.autograd.grad(loss, list(leaves.values()), retain_graph=True)
            results.append((o[:, others], final[kept], *grads))
            assert o[:, start:end].detach().any()
        for before, after in zip(*results, strict=True):
            assert torch.equal(before, after)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_the_state_continues_from_any_split(op: str, implementation: str) -> None:
    time = 35
    inputs = make(op, "mixed", 2, time, 2, 4, 3)
    if op == "linear":
        inputs["A_log"] -= 4
    state = state_for(inputs, 2)
    whole, final = run(op, inputs, initial_state=state, implementation="recurrent")
    for cut in range(time + 1):
        first = {name: x if name == "A_log" else x[:, :cut] for name, x in inputs.items()}
        second = {name: x if name == "A_log" else x[:, cut:] for name, x in inputs.items()}
        o_1, middle = run(op, first, initial_state=state, implementation=implementation, chunk_size=16)
        o_2, last = run(op, second, initial_state=middle, implementation=implementation, chunk_size=16)
        close(torch.cat((o_1, o_2), 1), whole)
        close(last, final)


@st.composite
def problems(draw: st.DrawFn) -> tuple[str, str, list[int], tuple[int, int, int], int, bool, int]:
    op = draw(st.sampled_from(OPS))
    case = draw(st.sampled_from(LINEAR_CASES if op == "linear" else DELTA_CASES))
    lengths = draw(st.lists(st.integers(0, 40), min_size=1, max_size=5).filter(lambda x: sum(x) > 0))
    shape = tuple(draw(st.integers(1, 7)) for _ in range(3))
    return op, case, lengths, shape, draw(st.sampled_from((16, 32, 64))), draw(st.booleans()), draw(st.integers(0, 99))  # type: ignore[return-value]


@settings(max_examples=40, deadline=None)
@given(problems())
def test_any_shape_equals_the_loop(problem: Any) -> None:
    op, case, lengths, (heads, states, width), size, with_state, seed = problem
    bounds = [0, *np.cumsum(lengths).tolist()]
    inputs = make(op, case, 1, bounds[-1], heads, states, width, seed=seed)
    state = state_for(inputs, len(lengths)) if with_state else None
    cu = torch.tensor(bounds, dtype=torch.int32)
    o, final = oracle(op, inputs, state, bounds)
    for implementation in IMPLEMENTATIONS:
        got, last = run(op, inputs, initial_state=state, cu_seqlens=cu, implementation=implementation, chunk_size=size)
        close(got, o, 1e-8)
        close(last, final, 1e-8)


def relative(actual: Tensor, expected: Tensor) -> float:
    return float((actual.double() - expected).norm() / expected.norm().clamp_min(1e-30))


@pytest.mark.parametrize("case", ["mixed", "slow", "fast", "alternating"])
@pytest.mark.parametrize("op", OPS)
def test_fp32_stays_near_fp64(op: str, case: str) -> None:
    inputs = make(op, case, 2, 150, 2, 8, 8)
    narrow = {name: x.float() for name, x in inputs.items()}
    exact = {name: x.double() for name, x in narrow.items()}  # the same numbers, rounded once
    o, final, grads = gradients(op, exact, None, implementation="recurrent")
    # Running sums of the gate are rounded at up to 64 x 40: about 1e-5 in the exponent, and so in the decay.
    for implementation, bound in (("recurrent", 2e-6), ("chunked", 3e-5)):
        got = gradients(op, narrow, None, implementation=implementation)
        assert relative(got[0], o) < bound
        assert relative(got[1], final) < bound
        for name, actual, expected in zip(inputs, got[2], grads, strict=True):
            floor = 1e-15 * sum(float(x.norm()) for x in grads)
            if (case, name, implementation) == ("alternating", "A_log", "chunked"):
                # Decays of exactly 1 and about 0: this gradient vanishes, as a difference of sums as large as g's.
                floor = 3e-6 * float(grads[list(inputs).index("g")].norm())
            assert float((actual.double() - expected).norm()) <= 1e-4 * float(expected.norm()) + floor, name


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_half_inputs_keep_an_fp32_state(op: str, implementation: str, dtype: torch.dtype) -> None:
    inputs = {name: x.to(dtype) for name, x in make(op, "slow", 1, 300, 2, 4, 3).items()}
    o, final = oracle(op, inputs)
    got, last = run(op, inputs, implementation=implementation)
    assert got.dtype is dtype
    assert last.dtype is torch.float32
    # bf16 states would be off by a per cent after 300 additions; fp32 ones by rounding of fp32 alone.
    assert relative(last, torch.as_tensor(final)) < 1e-5
    assert relative(got, torch.as_tensor(o)) < (4e-3 if dtype is torch.bfloat16 else 5e-4)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_autocast_changes_nothing(op: str, implementation: str) -> None:
    inputs = {name: x.float() for name, x in make(op, "slow", 1, 70, 2, 4, 3).items()}
    o, final = run(op, inputs, implementation=implementation)
    with torch.autocast("cpu", torch.bfloat16):
        got, last = run(op, inputs, implementation=implementation)
    assert torch.equal(got, o)
    assert torch.equal(last, final)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_training_after_inference_mode(op: str, implementation: str) -> None:
    """Nothing made under inference mode may be kept: autograd refuses such tensors later."""
    inputs = make(op, "mixed", 1, 40, 3, 4, 3)
    with torch.inference_mode():
        run(op, inputs, implementation=implementation, chunk_size=256)
    gradients(op, inputs, None, implementation=implementation, chunk_size=256)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_strides_do_not_matter(op: str, implementation: str) -> None:
    inputs = make(op, "mixed", 2, 37, 3, 4, 6)
    o, final, grads = gradients(op, inputs, None, implementation="recurrent")

    def views(x: Tensor) -> list[Tensor]:
        wide = torch.stack((x, torch.full_like(x, torch.nan)), -1)
        order = list(range(x.ndim))[::-1]
        flipped = x.flip(0).flip(0) if x.ndim < 3 else x.flip(1)[:, torch.arange(x.shape[1] - 1, -1, -1)]
        return [x.permute(order).contiguous().permute(order), wide[..., 0], flipped]

    for kind in range(3):
        strided = {name: views(x)[kind] for name, x in inputs.items()}
        got = gradients(op, strided, None, implementation=implementation, chunk_size=16)
        close(got[0], o)
        close(got[1], final)
        for actual, expected in zip(got[2], grads, strict=True):
            close(actual, expected)
    expanded = {name: x[:1].expand(2, *x.shape[1:]) if name != "A_log" else x for name, x in inputs.items()}
    got_o, _ = run(op, expanded, implementation=implementation, chunk_size=16)
    assert torch.equal(got_o[0], got_o[1])


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_no_tokens_hand_the_state_on(op: str, implementation: str) -> None:
    inputs = make(op, "mixed", 2, 0, 2, 4, 3)
    state = state_for(inputs, 2)
    o, final = run(op, inputs, initial_state=state, implementation=implementation)
    assert o.shape == (2, 0, 2, 3)
    assert torch.equal(final, state)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_huge_and_degenerate_inputs_stay_finite(implementation: str) -> None:
    linear = make("linear", "mixed", 1, 65, 1, 3, 5)
    linear["A_log"] = torch.full_like(linear["A_log"], 20.0)  # a decay of 0 exactly
    linear["v"] *= 1e4
    delta = make("delta", "equal_keys", 1, 65, 1, 3, 5)
    delta["log_alpha"] = torch.full_like(delta["log_alpha"], -1e4)
    for op, inputs in (("linear", linear), ("delta", delta)):
        o, final, grads = gradients(op, inputs, None, implementation=implementation)
        assert all(torch.isfinite(x).all() for x in (o, final, *grads))
        close(o, oracle(op, inputs)[0])


def test_the_final_state_is_returned_on_request_only() -> None:
    inputs = make("linear", "mixed", 1, 20, 1, 2, 2)
    assert gated_linear(**inputs)[1] is None
    assert gated_delta(**make("delta", "mixed", 1, 20, 1, 2, 2))[1] is None


def test_auto_agrees_on_both_sides_of_its_switch() -> None:
    for time in (1, 16, 17, 40):
        for op in OPS:
            inputs = make(op, "mixed", 1, time, 2, 4, 3)
            close(run(op, inputs)[0], oracle(op, inputs)[0])


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize(
    "bounds",
    [[0, 9], [1, 10], [0, 7, 5, 10], [0], [[0, 10]], [0, 12], [-1, 10]],
    ids=str,
)
def test_bad_boundaries_are_refused(op: str, implementation: str, bounds: Any) -> None:
    inputs = make(op, "mixed", 1, 10, 2, 4, 3)
    with pytest.raises(UsageError, match="cu_seqlens"):
        run(op, inputs, cu_seqlens=torch.tensor(bounds, dtype=torch.int32), implementation=implementation)


@pytest.mark.parametrize("op", OPS)
def test_misuse_is_refused(op: str) -> None:
    inputs = make(op, "mixed", 2, 10, 2, 4, 3)
    cu = torch.tensor([0, 10], dtype=torch.int32)
    with pytest.raises(UsageError, match="batch is 2"):
        run(op, inputs, cu_seqlens=cu)
    with pytest.raises(UsageError, match="cu_seqlens"):
        run(op, make(op, "mixed", 1, 10, 2, 4, 3), cu_seqlens=cu.float())
    with pytest.raises(UsageError, match="did you mean 'chunked'"):
        run(op, inputs, implementation="chunkd")
    with pytest.raises(UsageError, match=r"initial_state: expected \(2, 2, 4, 3\)"):
        run(op, inputs, initial_state=torch.zeros(2, 2, 3, 4))
    for name, x in inputs.items():
        if name == "A_log":
            continue
        for wrong in (x[:, :-1], x[:1], x[..., None], x[:, :, :1]):
            with pytest.raises(UsageError, match="expected"):
                run(op, {**inputs, name: wrong})
    read = "c" if op == "linear" else "q"
    with pytest.raises(UsageError, match="d_state"):
        run(op, {**inputs, read: inputs[read][..., :2]})


@pytest.mark.parametrize("wrong", [(4, 2), (2,), (4,), (1, 4), (2, 1), (2, 5)])
def test_a_wrong_shape_of_log_rates_is_refused(wrong: tuple[int, ...]) -> None:
    inputs = make("linear", "mixed", 1, 20, 2, 4, 3)
    for implementation in IMPLEMENTATIONS:
        with pytest.raises(UsageError, match="A_log"):
            run("linear", {**inputs, "A_log": torch.zeros(wrong)}, implementation=implementation)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("size", [1, 2, 4, 48, 5, 0, -16])
def test_a_chunk_size_is_right_or_refused(op: str, size: int) -> None:
    inputs = make(op, "mixed", 1, 100, 2, 4, 3)
    inputs.get("A_log", torch.zeros(())).sub_(5)
    try:
        o, _ = run(op, inputs, implementation="chunked", chunk_size=size)
    except UsageError as error:
        assert "chunk_size" in str(error)  # noqa: PT017
        return
    close(o, oracle(op, inputs)[0])


def test_segments_of_any_number_of_documents_are_one_graph() -> None:
    """At most three waves, then a segment a document more; compiled code must not branch on the number."""

    def room(x: Tensor) -> Tensor:
        return x.new_zeros(segment_parts(x.shape[0], 40, True, 1))

    graphs: list[object] = []

    def count(graph: torch.fx.GraphModule, _inputs: object) -> torch.fx.GraphModule:
        graphs.append(graph)
        return graph

    compiled = torch.compile(room, backend=count, dynamic=True)
    wave = PROGRAMS // 40
    wanted = {2: wave, wave // 2: wave, 30: 2 * wave, 60: 3 * wave, 90: 3 * wave, 110: 110 + wave, 500: 500 + wave}
    assert {documents: len(compiled(torch.zeros(documents))) for documents in wanted} == wanted
    assert len(graphs) == 1
