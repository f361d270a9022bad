"""The short convolution and the decoding step in Triton's interpreter, against fp64; see test_kernels_triton."""

from __future__ import annotations

import itertools
import sys
import warnings
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from hymo.core.errors import UsageError
from hymo.kernels import dispatch, gated_delta, gated_linear, short_conv
from hymo.kernels.dispatch import kernel_report
from kernel_helpers import INTERPRETED, delta_inputs, linear_inputs, relative, run_interpreted

if not INTERPRETED:

    def test_in_the_interpreter() -> None:
        run_interpreted(__file__)

    def test_what_the_convolution_runs_on(monkeypatch: pytest.MonkeyPatch) -> None:
        def inputs(dtype: torch.dtype, taps: int = 4) -> Any:
            u = SimpleNamespace(shape=(1, 9, 5), dtype=dtype, device=torch.device("cuda"), numel=lambda: 45)
            return u, torch.zeros(5, taps)

        monkeypatch.delenv("HYMO_KERNELS", raising=False)
        u, weight = torch.zeros(1, 9, 5), torch.zeros(5, 4)
        assert dispatch.choose_short_conv("auto", u, weight, None) == "plain"
        with pytest.raises(UsageError, match="implementation='triton': Triton kernels need a CUDA device, not cpu"):
            short_conv(u, weight, implementation="triton")
        with pytest.raises(UsageError, match=r"implementation='plan': unknown.*did you mean 'plain'"):
            short_conv(u, weight, implementation="plan")
        monkeypatch.setattr(dispatch, "machine_obstacle", lambda device: "")
        dispatch._fall_back.cache_clear()
        assert dispatch.choose_short_conv("auto", *inputs(torch.bfloat16), None) == "triton"
        with pytest.warns(UserWarning, match="convolution runs in its slower plain form: .*up to 4 taps, not 7"):
            assert dispatch.choose_short_conv("auto", *inputs(torch.bfloat16, 7), None) == "plain"
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert dispatch.choose_short_conv("auto", *inputs(torch.bfloat16, 7), None) == "plain"
        with pytest.raises(UsageError, match=r"takes fp32, bf16 and fp16, not torch.float64"):
            dispatch.choose_short_conv("triton", *inputs(torch.float64), None)
        window = torch.zeros(1, 3, 5, requires_grad=True)
        with pytest.raises(UsageError, match="no gradient of the window"):
            dispatch.choose_short_conv("triton", *inputs(torch.float32), window)
        for name, chosen in (("chunked", "plain"), ("recurrent", "plain"), ("triton", "triton"), ("auto", "triton")):
            monkeypatch.setenv("HYMO_KERNELS", name)
            assert dispatch.choose_short_conv("auto", *inputs(torch.float32), None) == chosen
        monkeypatch.setenv("HYMO_KERNELS", "plain")
        with pytest.raises(UsageError, match="HYMO_KERNELS='plain': unknown"):
            dispatch.choose_short_conv("auto", *inputs(torch.float32), None)
        monkeypatch.setenv("HYMO_KERNELS", "chunked")
        assert ("short_conv", "plain", "set by HYMO_KERNELS") in kernel_report()

    def test_a_step_takes_few_tokens_without_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
        def values(time: int, dtype: torch.dtype = torch.bfloat16) -> Any:
            device = torch.device("cuda")
            return SimpleNamespace(shape=(1, time, 2, 32), dtype=dtype, device=device, numel=lambda: 64 * time)

        monkeypatch.delenv("HYMO_KERNELS", raising=False)
        monkeypatch.setattr(dispatch, "machine_obstacle", lambda device: "")
        assert dispatch.choose("auto", values(1), 32, stepwise=True) == "step"
        assert dispatch.choose("auto", values(16), 32, stepwise=True) == "step"
        assert dispatch.choose("auto", values(17), 32, stepwise=True) == "triton"
        assert dispatch.choose("auto", values(1), 32) == "recurrent"
        assert dispatch.choose("auto", values(1, torch.float64), 32, stepwise=True) == "recurrent"
        assert dispatch.choose("recurrent", values(1), 32, stepwise=True) == "recurrent"


def relative_errors(got: list[Tensor], want: list[Tensor]) -> list[float]:
    return [relative(x, y) for x, y in zip(got, want, strict=True)]


def convolved(u: Tensor, weight: Tensor, implementation: str, dtype: torch.dtype, **options: Any) -> list[Tensor]:
    """Output and both gradients of a random functional of it."""
    leaves = [x.to(dtype).requires_grad_() for x in (u, weight)]
    y = short_conv(*leaves, implementation=implementation, **options)
    rng = torch.Generator().manual_seed(2)
    cotangent = torch.randn(y.shape, generator=rng, dtype=torch.float64).to(torch.bfloat16).to(dtype)
    assert y.dtype == dtype
    return [y.detach(), *torch.autograd.grad(y, leaves, cotangent)]


def compare_conv(u: Tensor, weight: Tensor, dtype: torch.dtype = torch.float32, **options: Any) -> None:
    rounded = [x.to(dtype).double() for x in (u, weight)]
    want = convolved(*rounded, "plain", torch.float64, **options)
    got = convolved(*rounded, "triton", dtype, **options)
    errors = relative_errors(got, want)
    assert max(errors) < (1e-6 if dtype is torch.float32 else 6e-3), errors


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


if INTERPRETED:
    from hymo.core.load import derive_config, load_config
    from hymo.kernels import triton_short_conv_op
    from hymo.kernels.triton_recurrence_step_op import BlockParts, block_step, recurrence_step
    from hymo.models import build_hymo, gdn
    from hymo.models.state import GDNCache

    @pytest.fixture(autouse=True)
    def short_spans(monkeypatch: pytest.MonkeyPatch) -> None:
        """Spans of 13 tokens, so that short sequences have several."""
        monkeypatch.setattr(triton_short_conv_op, "SPAN", 13)

    @settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(data=st.data())
    def test_conv_of_any_shape(data: st.DataObject) -> None:
        draw = data.draw
        batch, time = draw(st.integers(1, 2), label="B"), draw(st.integers(1, 45), label="T")
        channels, taps = draw(st.sampled_from((1, 5, 128, 130)), label="C"), draw(st.integers(2, 4), label="K")
        window = normal(batch, taps - 1, channels, seed=5) if draw(st.booleans(), label="window") else None
        compare_conv(normal(batch, time, channels), normal(channels, taps, seed=1), window=window)

    @settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(
        lengths=st.lists(st.sampled_from((0, 1, 2, 3, 4, 8, 12, 13, 14)), min_size=1, max_size=6),
        taps=st.integers(2, 4),
    )
    def test_conv_of_packed_documents(lengths: list[int], taps: int) -> None:
        bounds = torch.tensor([0, *lengths, 3], dtype=torch.int32).cumsum(0).to(torch.int32)
        compare_conv(normal(1, int(bounds[-1]), 6), normal(6, taps, seed=1), cu_seqlens=bounds)

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
    def test_conv_in_half_precision(dtype: torch.dtype) -> None:
        compare_conv(normal(2, 33, 9), normal(9, 4, seed=1), dtype)

    def test_conv_isolates_documents_exactly() -> None:
        bounds = torch.tensor([0, 0, 1, 3, 13, 14, 30], dtype=torch.int32)
        u, weight = normal(1, 30, 6).float(), normal(6, 4, seed=1).float()
        before = short_conv(u, weight, cu_seqlens=bounds, implementation="triton")
        for start, end in itertools.pairwise(bounds.tolist()):
            changed = u.clone()
            changed[:, start:end] = float("nan")
            changed.requires_grad_()
            after = short_conv(changed, weight, cu_seqlens=bounds, implementation="triton")
            others = [t for t in range(30) if not start <= t < end]
            assert torch.equal(after[:, others], before[:, others])
            (grad,) = torch.autograd.grad(after[:, others].sum(), changed)
            assert grad[:, others].isfinite().all()

    def test_conv_takes_strided_inputs_and_gradients() -> None:
        u = normal(2, 7, 2, 64).float()[:, :, 1].requires_grad_()
        weight = normal(4, 64, seed=1).float().T.requires_grad_()
        cotangent = normal(2, 64, 64).float().transpose(1, 2)[:, :7]
        results = []
        for x, w, g in ((u, weight, cotangent), (u.contiguous(), weight.contiguous(), cotangent.contiguous())):
            y = short_conv(x, w, implementation="triton")
            results.append([y, *torch.autograd.grad(y, (u, weight), g)])
        assert all(map(torch.equal, *results))

    def test_conv_compiles_without_a_break() -> None:
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        compiled = torch.compile(
            lambda u, w: short_conv(u, w, implementation="triton").sum(), fullgraph=True, backend="aot_eager"
        )
        for time in (20, 25, 32, 17):
            leaves = [x.float().requires_grad_() for x in (normal(1, time, 6), normal(6, 4, seed=1))]
            got = torch.autograd.grad(compiled(*leaves), leaves)
            want = torch.autograd.grad(short_conv(*leaves, implementation="triton").sum(), leaves)
            assert all(map(torch.equal, got, want))
        assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 2

    def test_conv_shapes_and_fake_tensors_agree() -> None:
        leaves = [x.float().requires_grad_() for x in (normal(2, 9, 6), normal(6, 4, seed=1))]
        torch.library.opcheck(
            torch.ops.hymo.short_conv.default,
            (*leaves, None, None),
            test_utils=("test_schema", "test_faketensor", "test_autograd_registration"),
        )

    @settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(data=st.data())
    def test_step_equals_the_loop(data: st.DataObject) -> None:
        draw = data.draw
        delta = draw(st.booleans(), label="delta")
        shape = [draw(st.integers(1, most), label=name) for name, most in (("B", 3), ("T", 5), ("H", 3))]
        widths = [draw(st.sampled_from((1, 3, 16, 20, 32)), label=name) for name in "SD"]
        cases = ("mixed", "equal", "fast", "alternating") if delta else ("spread", "slow", "fast", "alternating")
        inputs = (delta_inputs if delta else linear_inputs)(*shape, *widths, draw(st.sampled_from(cases)))
        state = normal(shape[0], shape[2], *widths) if draw(st.booleans(), label="state") else None
        rule: Any = gated_delta if delta else gated_linear
        rounded = {name: x.float().double() for name, x in inputs.items()}
        first = None if state is None else state.float().double()
        want = rule(**rounded, initial_state=first, output_final_state=True, implementation="recurrent")
        x = {name: value.float() for name, value in inputs.items()}
        if delta:
            named = (x["v"], x["k"], x["q"], x["log_alpha"], x["beta"], None)
        else:
            named = (x["v"], x["b"], x["c"], x["g"], None, x["A_log"])
        for every in (False, True):
            o, after = recurrence_step(*named, None if state is None else state.float(), every)
            errors = relative_errors([o, after[:, -1] if every else after], list(want))
            assert max(errors) < 2e-5, errors

    @pytest.mark.parametrize("rule", [gated_linear, gated_delta])
    def test_auto_steps_where_it_may(rule: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        make = linear_inputs if rule is gated_linear else delta_inputs
        inputs = {name: x.float() for name, x in make(2, 3, 2, 16, 16).items()}
        asked = []

        def choose(implementation: str, v: Tensor, d_state: int, stepwise: bool) -> str:
            asked.append(stepwise)
            return "step" if stepwise else "recurrent"

        monkeypatch.setattr(sys.modules[rule.__module__], "choose", choose)
        state = torch.randn(2, 2, 16, 16)
        got = rule(**inputs, initial_state=state, output_final_state=True)
        leaves = {name: x.requires_grad_() for name, x in inputs.items()}
        plain = rule(**leaves, initial_state=state, output_final_state=True)
        assert asked == [True, False]
        assert max(relative_errors(list(got), [x.double() for x in plain])) < 1e-5
        with pytest.raises(UsageError, match="initial_state: expected"):
            rule(**{n: x.detach() for n, x in inputs.items()}, initial_state=state[:1])

    BLOCKS: list[dict[str, Any]] = [
        {},
        {"gdn_recurrence": "gated_delta"},
        {"gdn_recurrence": "gated_delta", "gdn_rope_target": "v", "gdn_gate": "none"},
        {"gdn_output_norm": True, "gdn_gate": "full", "rope_pairing": "interleaved"},
        {"gdn_decay_sharing": "head", "gdn_rope_target": "none"},
        {"gdn_rope_target": "v"},
    ]

    @pytest.mark.parametrize("changes", BLOCKS, ids=str)
    def test_a_block_in_one_kernel_equals_the_block_as_written(
        changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        torch.manual_seed(0)
        config = derive_config(load_config("hymo_tiny"), model=changes)
        model = build_hymo(config).eval()
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if name.endswith(("A_log", "dt_bias", "D_skip", "o_norm.weight")):
                    parameter.add_(torch.randn_like(parameter) - 2 * name.endswith("A_log"))
        tokens = torch.randint(200, (2, 28))

        def decoded() -> list[Tensor]:
            state = model.init_state(2)
            hidden = [model.decode_hidden(tokens[:, :20], state)]
            ragged = model.decode_hidden(tokens[:, 20:25], state, torch.tensor([5, 2]), keep_history=True)
            hidden += [ragged[0], ragged[1, :2]]
            state.rollback(torch.tensor([3, 2]))
            hidden.append(model.decode_hidden(tokens[:, 25:26], state))
            hidden.append(model.decode_hidden(tokens[:, 26:28], state, torch.tensor([0, 2]))[1])
            return hidden + [x for c in state.layers if isinstance(c, GDNCache) for x in (c.state, c.window)]

        want = decoded()
        calls = []

        def choose(kernel: str, v: Tensor, d_state: int, stepwise: bool) -> str:
            calls.append(v.shape[1])
            return "step" if v.shape[1] <= 16 else "recurrent"

        monkeypatch.setattr(gdn, "choose", choose)
        got = decoded()
        assert set(calls) == {20, 5, 1, 2}
        assert max(relative_errors(got, [x.double() for x in want])) < 2e-6

    def test_the_state_may_be_overwritten_and_rows_do_not_meet() -> None:
        torch.manual_seed(0)
        v, b, c = (torch.randn(3, 1, 2, width) for width in (16, 8, 8))
        dt, rates, state = torch.randn(3, 1, 2), torch.randn(2, 8), torch.randn(3, 2, 8, 16)
        parts = BlockParts(
            torch.randn(2), torch.randn(2), None, False, torch.randn(16), 1e-6, None, False, False, "none"
        )
        want = block_step(v, b, c, dt, None, rates, state, parts)
        alone = block_step(v[1:2], b[1:2], c[1:2], dt[1:2], None, rates, state[1:2], parts)
        assert torch.equal(alone[0][0], want[0][1])
        assert torch.equal(alone[1][0], want[1][1])
        o, after = block_step(v, b, c, dt, None, rates, state, parts, out=state)
        assert after is state
        assert torch.equal(o, want[0])
        assert torch.equal(state, want[1])
