"""A GDN block's projections and their gradients, in Triton's interpreter, against fp64 as written."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from torch import Tensor

from hymo.core.load import derive_config, load_config
from hymo.kernels import dispatch
from hymo.kernels.dispatch import kernel_report
from hymo.models import GatedDeltaNetBlock
from hymo.models.context import SequenceContext
from hymo.models.projections import project
from kernel_helpers import INTERPRETED, relative, run_interpreted

NAMES = ("b", "c", "gate", "dt", "dv", "db_proj", "dc_proj", "dg_proj", "ddt_proj")


def inputs(batch: int, time: int, heads: int, states: int, width: int) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """fp64 values and weights, and cotangents of what `project` returns."""
    rng = torch.Generator().manual_seed(time)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=rng, dtype=torch.float64)

    inner, keys = heads * width, heads * states
    weights = [normal(rows, inner) / inner**0.5 for rows in (keys, keys, inner, heads)]
    pulls = [normal(batch, time, heads, *more) for more in ((states,), (states,), (), ())]
    return normal(batch, time, inner), weights, pulls


def angles(shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    phi = torch.randn(shape, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    return phi.cos().float(), phi.sin().float()


def run(v: Tensor, weights: list[Tensor], pulls: list[Tensor], rotation: Any, pairing: str) -> list[Tensor]:
    """Keys, gate and decay input, and the gradients of values and weights."""
    leaves = [x.detach().requires_grad_() for x in (v, *weights)]
    b, c, g, dt = leaves[1:]
    made = project(leaves[0], (b, c, g, dt), weights[3].shape[0], rotation, pairing)
    cotangents = [pull.to(x.dtype) for pull, x in zip(pulls, made, strict=True)]
    return [*(x.detach() for x in made), *torch.autograd.grad(made, leaves, cotangents)]


if not INTERPRETED:

    def test_in_the_interpreter() -> None:
        run_interpreted(__file__)

    def test_what_the_projections_run_on(monkeypatch: pytest.MonkeyPatch) -> None:
        v = torch.zeros(1, 3, 8)
        monkeypatch.delenv("HYMO_KERNELS", raising=False)
        assert dispatch.choose_projections(v, 4) == "plain"
        monkeypatch.setattr(dispatch, "machine_obstacle", lambda device: "")
        assert dispatch.projections_obstacle(v, 4) == ""
        assert "take keys of pairs of states, not of 3" in dispatch.projections_obstacle(v, 3)
        assert "not torch.float64" in dispatch.projections_obstacle(v.double(), 4)
        monkeypatch.setenv("HYMO_KERNELS", "chunked")
        assert ("projections", "plain", "set by HYMO_KERNELS") in kernel_report()


if INTERPRETED:
    from hymo.kernels import triton_projections_op
    from hymo.models import projections

    @pytest.fixture(autouse=True)
    def small_programs(monkeypatch: pytest.MonkeyPatch) -> None:
        """Few tokens and heads in a program, and the kernels wherever they can run."""
        monkeypatch.setattr(triton_projections_op, "COLUMNS", 64)
        monkeypatch.setattr(triton_projections_op, "ELEMENTS", 256)
        monkeypatch.setenv("HYMO_KERNELS", "triton")

    @pytest.fixture
    def in_fp64(monkeypatch: pytest.MonkeyPatch) -> Any:
        """Calls a function with the plain form."""

        def call(function: Any, *arguments: Any) -> Any:
            with monkeypatch.context() as patch:
                patch.setattr(projections, "choose_projections", lambda v, d_state: "plain")
                return function(*arguments)

        return call

    @pytest.mark.parametrize("pairing", ["half_split", "interleaved", "none"])
    @pytest.mark.parametrize(
        ("heads", "states", "width"), [(3, 16, 32), (3, 32, 16), (1, 6, 48), (2, 64, 64), (2, 8, 128), (17, 2, 1)]
    )
    def test_gradients_of_any_shape(heads: int, states: int, width: int, pairing: str, in_fp64: Any) -> None:
        for batch, time, own in ((2, 3, ()), (1, 7, (1,)), (2, 2, (2,))):  # angles of all rows, packed, of each row
            v, weights, pulls = inputs(batch, time, heads, states, width)
            rotation = angles((*own, time, 1, states // 2))
            turn = None if pairing == "none" else rotation
            narrow, matrices, pulls = v.float(), [x.float() for x in weights], [x.float() for x in pulls]
            got = run(narrow, matrices, pulls, turn, pairing)
            exact = [x.double() for x in matrices], [x.double() for x in pulls]
            want = in_fp64(run, narrow.double(), *exact, turn, pairing)
            errors = {name: relative(x, y) for name, x, y in zip(NAMES, got, want, strict=True)}
            assert max(errors.values()) < 2e-6, errors

    def test_gradients_in_bf16(in_fp64: Any) -> None:
        """A product's gradient is rounded once; the plain form rounds four parts of dv."""
        v, weights, pulls = inputs(2, 9, 4, 32, 32)
        rotation = angles((9, 1, 16))
        rounded = [x.bfloat16() for x in (v, *weights)]
        got = run(rounded[0], rounded[1:], pulls, rotation, "half_split")
        assert [x.dtype for x in got] == [torch.bfloat16] * 2 + [torch.float32] + [torch.bfloat16] * 6
        wide = [x.double() for x in rounded]
        pulls = [x.bfloat16().double() if i != 2 else x.float().double() for i, x in enumerate(pulls)]
        want = in_fp64(run, wide[0], wide[1:], pulls, rotation, "half_split")
        errors = {name: relative(x, y) for name, x, y in zip(NAMES, got, want, strict=True)}
        assert max(errors.values()) < 6e-3, errors

    def test_autocast_takes_the_products_also_where_kernels_are_asked_for(in_fp64: Any) -> None:
        v, weights, pulls = inputs(1, 4, 3, 4, 8)
        narrow, matrices = v.float(), [x.float() for x in weights]
        with torch.autocast("cpu", torch.bfloat16):
            got = run(narrow, matrices, pulls, angles((4, 1, 2)), "half_split")
        want = in_fp64(run, v, weights, pulls, angles((4, 1, 2)), "half_split")
        assert [x.dtype for x in got[:4]] == [torch.bfloat16, torch.bfloat16, torch.float32, torch.bfloat16]
        assert max(relative(x, y) for x, y in zip(got, want, strict=True)) < 2e-2

    def test_what_nobody_uses_has_no_gradient(in_fp64: Any) -> None:
        v, weights, pulls = inputs(1, 4, 3, 4, 8)

        def run_some(v: Tensor, weights: list[Tensor], used: int) -> list[Tensor]:
            leaves = [x.detach().requires_grad_() for x in (v, *weights)]
            b, c, g, dt = leaves[1:]
            made = project(leaves[0], (b, c, g, dt), 3, None, "half_split")[used]
            assert made is not None
            grads = torch.autograd.grad(made, leaves, pulls[used].to(made.dtype), allow_unused=True)
            return [torch.zeros_like(x) if y is None else y for x, y in zip(leaves, grads, strict=True)]

        for used in range(4):
            want = in_fp64(run_some, v, weights, used)
            got = run_some(v.float(), [x.float() for x in weights], used)
            for actual, expected in zip(got, want, strict=True):
                torch.testing.assert_close(actual.double(), expected, rtol=1e-5, atol=1e-6)

    def test_padding_is_zero_and_strides_do_not_matter() -> None:
        heads, states, width = 3, 4, 8
        v, weights, (db, dc, dgate, ddt) = inputs(2, 5, heads, states, width)
        cos, sin = angles((5, 1, 2))
        arguments = [*(x.float() for x in (db, dc, dgate, ddt)), torch.randn(2, 5, heads * width)]
        want = torch.ops.hymo.projections_backward(*arguments, cos, sin, True)
        used = 2 * heads * states + heads * width + heads
        assert want.shape == (10, 64)
        assert want[:, :used].any(0).all()
        assert not want[:, used:].any()
        strided = [x.transpose(0, 1).contiguous().transpose(0, 1) for x in arguments]
        assert torch.equal(torch.ops.hymo.projections_backward(*strided, cos, sin, True), want)
        leaves = [x.float().requires_grad_() for x in (v, *weights)]
        tests = ("test_schema", "test_faketensor")
        torch.library.opcheck(
            torch.ops.hymo.projections_backward.default, (*arguments, cos, sin, True), test_utils=tests
        )
        torch.library.opcheck(
            torch.ops.hymo.projections.default,
            (*leaves, cos, sin, True),
            test_utils=(*tests, "test_autograd_registration"),
        )

    def test_a_compiled_block_has_the_gradients_of_the_block_as_written() -> None:
        """A whole block with all its kernels but the recurrence: as written, compiled, recomputed, against fp64."""
        model = derive_config(load_config("hymo_tiny"), model={"dim": 24, "gdn_d_inner": 32}).model
        rows, time = 2, 5
        angle = angles((time, 1, model.gdn_d_state // 2))
        context = SequenceContext(angle, angle, kernel="recurrent")
        with torch.random.fork_rng():
            torch.manual_seed(0)
            block = GatedDeltaNetBlock(model, 1)
            for parameter in block.parameters():
                torch.nn.init.normal_(parameter, std=0.3)
            x, pull = torch.randn(2, rows, time, 24)

        def gradients(function: Any, exact: bool = False) -> list[Tensor]:
            block.zero_grad()
            own = x.double() if exact else x.clone()
            own.requires_grad_()
            function(own, context).backward(pull.to(own.dtype))
            return [own.grad, *(p.grad for p in block.parameters())]  # type: ignore[list-item]

        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("HYMO_KERNELS", "recurrent")
            want = gradients(block.double(), exact=True)
        block.float()
        torch._dynamo.reset()
        compiled = torch.compile(block, fullgraph=True, backend="aot_eager")
        again = functools.partial(torch.utils.checkpoint.checkpoint, compiled, use_reentrant=False)
        for function in (block, compiled, again):
            got = gradients(function)
            errors = [relative(x, y) for x, y in zip(got, want, strict=True)]
            assert max(errors) < 2e-5, errors
