"""The Triton kernels in Triton's interpreter on the CPU, against the fp64 time loop.

The interpreter must be chosen before Triton is imported, and for the whole process. So under plain pytest this file
holds one test, which runs the file again with TRITON_INTERPRET=1; there it holds the tests proper.
"""

from __future__ import annotations

import warnings
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from hymo.core.errors import UsageError
from hymo.kernels import dispatch, gated_delta, gated_linear, linear_cross_entropy
from hymo.kernels.compat import chunk_gated_delta_rule
from hymo.kernels.dispatch import kernel_report
from kernel_helpers import INTERPRETED, delta_inputs, linear_inputs, relative, run_interpreted

WIDE = ("g", "beta", "log_alpha", "A_log", "initial_state")
"""Inputs that stay fp32 when the others are rounded."""

if not INTERPRETED:

    def test_in_the_interpreter() -> None:
        run_interpreted(__file__)

    def test_triton_by_name_is_an_error_without_a_gpu() -> None:
        if torch.cuda.is_available():
            return
        inputs = linear_inputs(1, 3, 1, 2, 2)
        with pytest.raises(UsageError, match="need a CUDA device, not cpu"):
            gated_linear(**inputs, implementation="triton")

    def test_the_switch_stands_for_auto_alone(monkeypatch: pytest.MonkeyPatch) -> None:
        inputs = linear_inputs(1, 3, 1, 2, 2)
        monkeypatch.setenv("HYMO_KERNELS", "chunkd")
        with pytest.raises(UsageError, match=r"HYMO_KERNELS='chunkd'.*did you mean 'chunked'"):
            gated_linear(**inputs)
        gated_linear(**inputs, implementation="recurrent")
        monkeypatch.setenv("HYMO_KERNELS", "recurrent")
        assert ("gated_linear", "recurrent", "set by HYMO_KERNELS") in kernel_report()

    def test_auto_on_a_gpu_is_triton_or_says_once_why_not(monkeypatch: pytest.MonkeyPatch) -> None:
        def values(time: int, dtype: torch.dtype, width: int = 32) -> Any:
            shape = (1, time, 2, width)
            return SimpleNamespace(
                shape=shape, dtype=dtype, device=torch.device("cuda"), numel=lambda: 2 * time * width
            )

        monkeypatch.delenv("HYMO_KERNELS", raising=False)
        monkeypatch.setattr(dispatch, "machine_obstacle", lambda device: "")
        dispatch._fall_back.cache_clear()
        assert dispatch.choose("auto", values(40, torch.bfloat16), 32) == "triton"
        assert dispatch.choose("auto", values(16, torch.bfloat16), 32) == "recurrent"
        with pytest.warns(UserWarning, match=r"chunked form: .*up to 128 x 128, not 32 x 256"):
            assert dispatch.choose("auto", values(40, torch.float32, 256), 32) == "chunked"
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert dispatch.choose("auto", values(40, torch.float32, 256), 32) == "chunked"
        with pytest.raises(UsageError, match="take fp32, bf16 and fp16"):
            dispatch.choose("triton", values(40, torch.float64), 32)
        monkeypatch.setattr(dispatch, "shared_memory", lambda device: 99)
        assert dispatch.choose("auto", values(40, torch.bfloat16, 64), 64) == "triton"
        with pytest.warns(UserWarning, match="32 x 128 need 144 KiB of shared memory in a block, this GPU has 99"):
            assert dispatch.choose("auto", values(40, torch.bfloat16, 128), 32) == "chunked"


def test_compat_is_the_delta_rule() -> None:
    inputs = delta_inputs(1, 9, 4, 5, 6)
    q, k = (inputs[name][:, :, ::2] for name in ("q", "k"))
    shared = {name: x.repeat_interleave(2, 2) for name, x in (("q", q), ("k", k))}
    want, _ = gated_delta(shared["q"] * 5**-0.5, shared["k"], inputs["v"], inputs["beta"], inputs["log_alpha"])
    got, state = chunk_gated_delta_rule(q, k, inputs["v"], inputs["log_alpha"], inputs["beta"])
    assert torch.equal(got, want)
    assert state is None
    with pytest.raises(UsageError, match="head_first"):
        chunk_gated_delta_rule(q, k, inputs["v"], inputs["log_alpha"], inputs["beta"], head_first=True)


def run_with_gradients(
    inputs: dict[str, Tensor], implementation: str, dtype: torch.dtype, **options: Any
) -> dict[str, Tensor]:
    """Outputs, final states and all gradients of a random functional of both."""
    wide = dict.fromkeys(WIDE, torch.float32)
    rule: Any = gated_linear if "A_log" in inputs else gated_delta
    exact = dtype is torch.float64
    leaves = {
        name: x.detach().to(dtype if exact else wide.get(name, dtype)).requires_grad_() for name, x in inputs.items()
    }
    o, final = rule(**leaves, output_final_state=True, implementation=implementation, **options)
    assert final is not None
    rng = torch.Generator().manual_seed(1)
    weight, weight_final = (torch.randn(x.shape, generator=rng, dtype=torch.float64) for x in (o, final))
    loss = (o.double() * weight.to(dtype).double()).sum() + (final.double() * weight_final).sum()
    grads = torch.autograd.grad(loss, list(leaves.values()))
    results = {"o": o, "final": final, **{f"d{name}": x for name, x in zip(leaves, grads, strict=True)}}
    return {name: x.detach() for name, x in results.items()}


def compare(inputs: dict[str, Tensor], dtype: torch.dtype = torch.float32, **options: Any) -> None:
    """The kernels against the fp64 loop on the same rounded inputs."""
    rounded = {name: x.to(torch.float32 if name in WIDE else dtype).double() for name, x in inputs.items()}
    want = run_with_gradients(rounded, "recurrent", torch.float64, **options)
    got = run_with_gradients(rounded, "triton", dtype, **options)
    bound = 2e-5 if dtype is torch.float32 else 1e-2
    errors = {name: relative(got[name], want[name]) for name in want}
    if "dA_log" in want and want["dA_log"].norm() < 1e-12 * want["dg"].norm():
        # States that forget within a step: their gradient is below the rounding of the flows that cancel in it.
        errors["dA_log"] = float(got["dA_log"].norm() / want["dg"].norm())
    # Where all but a few states forget at once, little is left of the flows that cancel in the rates' gradient.
    bounds = dict.fromkeys(errors, bound) | {"dA_log": max(bound, 1e-3)}
    assert not {name: error for name, error in errors.items() if not error < bounds[name]}
    assert all(got[name].dtype == dtype for name in ("o", "dv"))


if INTERPRETED:
    from hymo.kernels import segments, triton_common
    from hymo.kernels import triton_gated_linear_op as linear_op

    @pytest.fixture(autouse=True)
    def few_programs(monkeypatch: pytest.MonkeyPatch) -> None:
        """A device of six programs, so that short sequences are cut into segments too."""
        set_programs(6)

    def set_programs(count: int) -> None:
        segments.segment_parts.__defaults__ = (count,)
        segments._dense.cache_clear()

    def test_bf16_operands_are_widened() -> None:
        # The interpreter multiplies bf16 operands wrongly, so kernels must never see bf16 as their operand type here.
        assert triton_common.INTERPRETED.value
        assert str(triton_common.operand_dtype(torch.zeros(1, dtype=torch.bfloat16))) == "fp32"
        compare(linear_inputs(1, 20, 1, 16, 16), torch.bfloat16)

    @pytest.mark.parametrize("rates", ["spread", "slow", "fast", "alternating"])
    def test_linear_equals_the_loop(rates: str) -> None:
        inputs = linear_inputs(1, 70, 2, 16, 16, rates)
        inputs["initial_state"] = torch.randn(1, 2, 16, 16, dtype=torch.float64)
        compare(inputs)

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
    def test_linear_in_half_precision(dtype: torch.dtype) -> None:
        compare(linear_inputs(2, 33, 1, 16, 32), dtype)

    @settings(max_examples=12, deadline=None)
    @given(data=st.data())
    def test_linear_of_any_shape(data: st.DataObject) -> None:
        draw = data.draw
        set_programs(draw(st.integers(1, 8), label="programs"))
        shape = [draw(st.integers(1, most), label=name) for name, most in (("B", 2), ("T", 90), ("H", 3))]
        widths = [draw(st.sampled_from((1, 3, 16, 20, 32, 33)), label=name) for name in "SD"]
        inputs = linear_inputs(*shape, *widths, seed=draw(st.integers(0, 99)))
        if draw(st.booleans(), label="state"):
            inputs["initial_state"] = torch.randn(shape[0], shape[2], *widths, dtype=torch.float64)
        compare(inputs)

    @settings(max_examples=8, deadline=None)
    @given(
        lengths=st.lists(st.sampled_from((0, 1, 2, 15, 16, 17, 40, 70)), min_size=1, max_size=4), state=st.booleans()
    )
    def test_linear_of_packed_documents(lengths: list[int], state: bool) -> None:
        lengths = [*lengths, 5]
        inputs = linear_inputs(1, sum(lengths), 2, 16, 16)
        if state:
            inputs["initial_state"] = torch.randn(len(lengths), 2, 16, 16, dtype=torch.float64)
        bounds = torch.tensor([0, *lengths], dtype=torch.int32).cumsum(0).to(torch.int32)
        compare(inputs, cu_seqlens=bounds)

    def test_one_table_for_all_layers_until_the_boundaries_change() -> None:
        bounds = torch.tensor([0, 37, 90], dtype=torch.int32)
        inputs = linear_inputs(1, 90, 1, 16, 16)
        compare(inputs, cu_seqlens=bounds)
        tables = dict(segments._tables[id(bounds)][1])
        compare(inputs, cu_seqlens=bounds)
        assert segments._tables[id(bounds)][1].keys() == tables.keys()
        bounds[1] = 50
        compare(inputs, cu_seqlens=bounds)
        assert len(segments._tables[id(bounds)][1]) == 2 * len(tables)
        key = id(bounds)
        del bounds
        assert key not in segments._tables

    def test_documents_are_isolated_exactly() -> None:
        inputs = linear_inputs(1, 90, 1, 16, 16, "slow")
        bounds = torch.tensor([0, 37, 90], dtype=torch.int32)
        before = run_with_gradients(inputs, "triton", torch.float32, cu_seqlens=bounds)
        for name in ("v", "b", "c", "g"):
            inputs[name][:, :37] = torch.rand_like(inputs[name][:, :37])
        after = run_with_gradients(inputs, "triton", torch.float32, cu_seqlens=bounds)
        for name in ("o", "dv", "db", "dc", "dg"):
            assert torch.equal(before[name][:, 37:], after[name][:, 37:]), name

    def test_strided_inputs() -> None:
        wide = torch.randn(2, 40, 2, 64, dtype=torch.float32)
        gates = torch.rand(2, 2, 40).transpose(1, 2)
        rates = torch.zeros(2, 16)
        v, b, c, _ = wide.split(16, -1)
        got, _ = gated_linear(v, b, c, gates, rates, implementation="triton")
        want, _ = gated_linear(*(x.contiguous() for x in (v, b, c, gates)), rates, implementation="triton")
        assert torch.equal(got, want)

    @pytest.mark.parametrize("tile", [16, 32])
    def test_every_tile(tile: int, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(linear_op, "OVERRIDE", linear_op.LinearConfig(tile, 1))
        compare(linear_inputs(1, 75, 1, 16, 16))

    def test_compiled_shapes_and_fake_tensors_agree() -> None:
        inputs = {name: x.float() for name, x in linear_inputs(2, 40, 2, 16, 16).items()}
        arguments = (*inputs.values(), torch.zeros(2, 2, 16, 16), None, True)
        torch.library.opcheck(
            torch.ops.hymo.gated_linear.default,
            tuple(x.requires_grad_() if isinstance(x, Tensor) else x for x in arguments),
            test_utils=("test_schema", "test_faketensor", "test_autograd_registration"),
        )

    @pytest.mark.parametrize("rule", [gated_linear, gated_delta])
    def test_lengths_add_no_more_than_one_compilation(rule: Any) -> None:
        make = linear_inputs if rule is gated_linear else delta_inputs
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        compiled = torch.compile(
            lambda **xs: rule(**xs, implementation="triton")[0].sum(), fullgraph=True, backend="aot_eager"
        )
        for time in (40, 50, 64, 33):
            values = {name: x.float().requires_grad_() for name, x in make(1, time, 1, 16, 16).items()}
            torch.autograd.grad(compiled(**values), list(values.values()))
        assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 2

    @pytest.mark.parametrize("softcap", [0.0, 3.0, 15.0, 80.0])
    def test_cross_entropy(softcap: float, monkeypatch: pytest.MonkeyPatch) -> None:
        rng = torch.Generator().manual_seed(0)
        hidden = 3 * torch.randn(11, 8, generator=rng)
        weight = 3 * torch.randn(37, 8, generator=rng)
        targets = torch.randint(37, (11,), generator=rng)
        targets[::4] = -100
        monkeypatch.setattr("hymo.kernels.cross_entropy.logit_chunk_elements", lambda *_: 3 * 37)  # several chunks
        results = []
        for implementation, dtype in (("plain", torch.float64), ("triton", torch.float32)):
            leaves = [x.to(dtype).requires_grad_() for x in (hidden, weight)]
            loss = linear_cross_entropy(*leaves, targets, softcap, implementation=implementation)
            results.append([loss.detach(), *torch.autograd.grad(2 * loss, leaves)])
        for want, got in zip(*results, strict=True):
            assert relative(got, want) < 1e-5

    def test_cross_entropy_without_any_target() -> None:
        hidden = torch.randn(3, 4, requires_grad=True)
        loss = linear_cross_entropy(hidden, torch.randn(9, 4), torch.full((3,), -100), 15.0, implementation="triton")
        assert loss == 0
        assert torch.equal(torch.autograd.grad(loss, hidden)[0], torch.zeros(3, 4))

    @pytest.mark.parametrize("case", ["mixed", "correlated", "equal", "fast", "alternating"])
    def test_delta_equals_the_loop(case: str) -> None:
        inputs = delta_inputs(1, 70, 1, 16, 16, case)
        inputs["initial_state"] = torch.randn(1, 1, 16, 16, dtype=torch.float64)
        compare(inputs)

    def test_delta_in_bf16() -> None:
        compare(delta_inputs(1, 40, 1, 16, 16), torch.bfloat16)

    @settings(max_examples=8, deadline=None)
    @given(data=st.data())
    def test_delta_of_any_shape(data: st.DataObject) -> None:
        draw = data.draw
        set_programs(draw(st.integers(1, 8), label="programs"))
        shape = [draw(st.integers(1, most), label=name) for name, most in (("B", 2), ("T", 80), ("H", 2))]
        widths = [draw(st.sampled_from((1, 3, 16, 20, 32, 33)), label=name) for name in "KD"]
        compare(delta_inputs(*shape, *widths, seed=draw(st.integers(0, 99))))

    @settings(max_examples=5, deadline=None)
    @given(lengths=st.lists(st.sampled_from((0, 1, 16, 17, 70)), min_size=1, max_size=4), state=st.booleans())
    def test_delta_of_packed_documents(lengths: list[int], state: bool) -> None:
        lengths = [*lengths, 5]
        inputs = delta_inputs(1, sum(lengths), 1, 16, 16)
        if state:
            inputs["initial_state"] = torch.randn(len(lengths), 1, 16, 16, dtype=torch.float64)
        compare(inputs, cu_seqlens=torch.tensor([0, *lengths], dtype=torch.int32).cumsum(0).to(torch.int32))
