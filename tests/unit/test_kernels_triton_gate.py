"""Skip path and output gate: the plain form against NumPy, the kernels in Triton's interpreter against fp64."""

from __future__ import annotations

import warnings
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from hymo.core.errors import UsageError
from hymo.kernels import dispatch, output_gate
from hymo.kernels.dispatch import kernel_report
from kernel_helpers import INTERPRETED, relative, run_interpreted

GATES = ("none", "head", "channel")


def inputs(batch: int, time: int, heads: int, width: int, gate: str) -> list[Tensor]:
    """fp64 outputs, values, skip factors and, unless there is none, a gate; then a cotangent."""
    rng = torch.Generator().manual_seed(time)
    shape = (batch, time, heads, width)
    gates = {"none": [], "head": [shape[:3]], "channel": [shape]}[gate]
    leaves = [torch.randn(s, generator=rng, dtype=torch.float64) for s in (shape, shape, (heads,), *gates, shape)]
    if gate != "none":
        leaves[3] = leaves[3].sigmoid()
    return leaves


def run(leaves: list[Tensor], cotangent: Tensor, implementation: str) -> list[Tensor]:
    """Output and the gradients of all inputs."""
    leaves = [x.detach().requires_grad_() for x in leaves]
    o, v, skip, *gate = leaves
    y = output_gate(o, v, skip, gate[0] if gate else None, implementation)
    assert y.dtype == o.dtype
    return [y.detach(), *torch.autograd.grad(y, leaves, cotangent.to(y.dtype))]


def errors_of(got: list[Tensor], leaves: list[Tensor], pull: Tensor) -> list[float]:
    """Relative errors against fp64; those of sums that can cancel (for skip, for a head's gate) beside their terms."""
    exact = [x.double() for x in leaves]
    want = run(exact, pull.double(), "plain")
    found = [relative(x, y) for x, y in zip(got, want, strict=True)]
    o, v, skip, *gate = exact
    sums = {3: (want[1] * v).abs().sum((0, 1, 3))}
    if gate and gate[0].ndim == 3:
        sums[4] = (pull.double() * (o + skip[:, None] * v)).abs().sum(-1)
    for i, terms in sums.items():
        found[i] = float((got[i].double() - want[i]).norm() / terms.norm())
    return found


if not INTERPRETED:

    def test_in_the_interpreter() -> None:
        run_interpreted(__file__)

    @pytest.mark.parametrize("gate", GATES)
    def test_plain_equals_its_definition_and_derivatives(gate: str) -> None:
        *leaves, pull = inputs(2, 3, 4, 5, gate)
        got = [x.numpy() for x in run(leaves, pull, "auto")]
        o, v, skip, *rest = (x.numpy() for x in leaves)
        z = np.ones(o.shape) if not rest else np.broadcast_to(rest[0].reshape(*rest[0].shape[:3], -1), o.shape)
        scale, weight = skip[:, None], pull.numpy()
        want = [(o + scale * v) * z, weight * z, weight * z * scale, (weight * z * v).sum((0, 1, 3))]
        if rest:
            by_gate = weight * (o + scale * v)
            want.append(by_gate if gate == "channel" else by_gate.sum(-1))
        for actual, expected in zip(got, want, strict=True):
            np.testing.assert_allclose(actual, expected, rtol=1e-12, atol=1e-14)

    def test_plain_rounds_once() -> None:
        """In bf16 o + skip v alone would lose v: 256 + 0.75 is no bf16 number, its double is one."""
        o, v = torch.full((1, 1, 1, 1), 256.0).bfloat16(), torch.full((1, 1, 1, 1), 0.75).bfloat16()
        y = output_gate(o, v, torch.ones(1), torch.full((1, 1, 1), 256 / 257))
        assert y.item() == torch.tensor(256.75 * 256 / 257).bfloat16().item()
        assert y.item() != torch.tensor(256.0 * 256 / 257).bfloat16().item()

    def test_shapes_that_do_not_fit_are_refused() -> None:
        o, skip = torch.zeros(1, 2, 3, 4), torch.zeros(3)
        with pytest.raises(UsageError, match=r"skip \(heads,\), got .*\(4,\)"):
            output_gate(o, o, torch.zeros(4), None)
        with pytest.raises(UsageError, match="expected o and v"):
            output_gate(o, o[:, :1], skip, None)
        with pytest.raises(UsageError, match=r"gate: expected \(1, 2, 3\) or"):
            output_gate(o, o, skip, torch.zeros(1, 2, 3, 1))

    def test_what_the_gate_runs_on(monkeypatch: pytest.MonkeyPatch) -> None:
        def outputs(dtype: torch.dtype, width: int = 32) -> Any:
            shape, device = (1, 9, 2, width), torch.device("cuda")
            return SimpleNamespace(shape=shape, dtype=dtype, device=device, numel=lambda: 18 * width)

        monkeypatch.delenv("HYMO_KERNELS", raising=False)
        o, skip = torch.zeros(1, 9, 2, 4), torch.zeros(2)
        assert dispatch.choose_output_gate("auto", o) == "plain"
        with pytest.raises(UsageError, match="implementation='triton': Triton kernels need a CUDA device, not cpu"):
            output_gate(o, o, skip, None, "triton")
        with pytest.raises(UsageError, match=r"implementation='plan': unknown.*did you mean 'plain'"):
            output_gate(o, o, skip, None, "plan")
        monkeypatch.setattr(dispatch, "machine_obstacle", lambda device: "")
        dispatch._fall_back.cache_clear()
        assert dispatch.choose_output_gate("auto", outputs(torch.bfloat16)) == "triton"
        with pytest.warns(UserWarning, match="output gate runs in its slower plain form: .*up to 128 wide, not 256"):
            assert dispatch.choose_output_gate("auto", outputs(torch.bfloat16, 256)) == "plain"
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert dispatch.choose_output_gate("auto", outputs(torch.bfloat16, 256)) == "plain"
        with pytest.raises(UsageError, match=r"takes fp32, bf16 and fp16, not torch\.float64"):
            dispatch.choose_output_gate("triton", outputs(torch.float64))
        monkeypatch.setenv("HYMO_KERNELS", "chunked")
        assert dispatch.choose_output_gate("auto", outputs(torch.bfloat16)) == "plain"
        assert ("output_gate", "plain", "set by HYMO_KERNELS") in kernel_report()


if INTERPRETED:
    from hymo.kernels import triton_output_gate_op

    @pytest.fixture(autouse=True)
    def short_spans(monkeypatch: pytest.MonkeyPatch) -> None:
        """Few tokens and heads in a program, so that small inputs have several."""
        monkeypatch.setattr(triton_output_gate_op, "SPAN", 6)
        monkeypatch.setattr(triton_output_gate_op, "FORWARD_ELEMENTS", 256)
        monkeypatch.setattr(triton_output_gate_op, "BACKWARD_ELEMENTS", 256)
        monkeypatch.setattr(triton_output_gate_op, "COLUMNS", 64)

    @pytest.mark.parametrize("gate", GATES)
    @pytest.mark.parametrize(("heads", "width"), [(5, 16), (3, 32), (1, 48), (2, 64), (3, 128)])
    def test_gate_of_any_shape(heads: int, width: int, gate: str) -> None:
        for batch, time in ((1, 1), (2, 7), (1, 23)):
            *leaves, pull = inputs(batch, time, heads, width, gate)
            narrow, pull = [x.float() for x in leaves], pull.float()
            errors = errors_of(run(narrow, pull, "triton"), narrow, pull)
            assert max(errors) < 2e-7, errors

    @pytest.mark.parametrize("gate", GATES)
    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
    def test_gate_in_half_precision(dtype: torch.dtype, gate: str) -> None:
        """As in a model: skip and a head's gate in fp32, whose gradients are too, all else in 16 bits."""
        *leaves, pull = inputs(2, 11, 3, 32, gate)
        kinds = [dtype, dtype, torch.float32, torch.float32 if gate == "head" else dtype][: len(leaves)]
        narrow = [x.to(kind) for x, kind in zip(leaves, kinds, strict=True)]
        got = run(narrow, pull.to(dtype), "triton")
        assert [x.dtype for x in got[1:]] == kinds
        errors = errors_of(got, narrow, pull.to(dtype))
        rounding = torch.finfo(dtype).eps  # of the result, and of do once more on the way to dv
        bounds = [rounding, rounding, rounding, 1e-6, 1e-6 if gate == "head" else rounding][: len(errors)]
        assert all(error < bound for error, bound in zip(errors, bounds, strict=True)), errors

    def test_strided_inputs_and_repeats() -> None:
        pull = inputs(2, 6, 4, 16, "head")[-1]
        wide = torch.randn(2, 6, 4, 40)
        o, v = wide[..., 3:19], wide[..., 19:35]
        strided = [o, v, torch.randn(8)[::2], torch.rand(2, 4, 6).transpose(1, 2)]
        turned = pull.float().transpose(1, 2).contiguous().transpose(1, 2)
        got = run(strided, turned, "triton")
        assert all(map(torch.equal, got, run([x.contiguous() for x in strided], turned.contiguous(), "triton")))

    def test_gate_compiles_without_a_break_and_under_checkpointing() -> None:
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()

        def loss(o: Tensor, v: Tensor, skip: Tensor, gate: Tensor) -> Tensor:
            return output_gate(o.sin(), v, skip, gate, "triton").square().sum()

        compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
        for time in (5, 9, 8, 13):
            leaves = [x.float().requires_grad_() for x in inputs(1, time, 3, 16, "head")[:-1]]
            want = torch.autograd.grad(loss(*leaves), leaves)
            assert all(map(torch.equal, torch.autograd.grad(compiled(*leaves), leaves), want))
            again = torch.utils.checkpoint.checkpoint(loss, *leaves, use_reentrant=False)
            assert all(map(torch.equal, torch.autograd.grad(again, leaves), want))
        assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 2

    @pytest.mark.parametrize("gate", GATES)
    def test_gate_shapes_and_fake_tensors_agree(gate: str) -> None:
        leaves = [x.float().requires_grad_() for x in inputs(2, 5, 3, 16, gate)[:-1]]
        arguments = tuple(leaves) if gate != "none" else (*leaves, None)
        torch.library.opcheck(
            torch.ops.hymo.output_gate.default,
            arguments,
            test_utils=("test_schema", "test_faketensor", "test_autograd_registration"),
        )
