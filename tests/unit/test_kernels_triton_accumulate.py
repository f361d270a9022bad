"""Sums of many tensors in place: the kernel in Triton's interpreter adds as a loop does, bit for bit."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from hymo.kernels.accumulate import accumulate
from kernel_helpers import INTERPRETED, run_interpreted

SHAPES = [(5,), (64, 48), (3, 16), (1,), (33, 16), (16,), (0,), (100,), (8, 8, 40)]


def made(dtype: torch.dtype = torch.bfloat16) -> tuple[list[Tensor], list[Tensor]]:
    """Sums in fp32 and terms: contiguous, turned, at odd addresses, and one pair in other types."""
    torch.manual_seed(0)
    sums, terms = [torch.randn(shape) for shape in SHAPES], [torch.randn(shape).to(dtype) for shape in SHAPES]
    sums += [torch.randn(48, 32).T, torch.randn(1601)[1:], torch.randn(1600).double()]
    terms += [torch.randn(32, 48).to(dtype), torch.randn(1600).to(dtype), torch.randn(1600)]
    return sums, terms


def expected(sums: list[Tensor], terms: list[Tensor]) -> list[Tensor]:
    return [x + y.to(x.dtype) for x, y in zip(sums, terms, strict=True)]


if not INTERPRETED:

    def test_in_the_interpreter() -> None:
        run_interpreted(__file__)

    def test_sums_in_place() -> None:
        sums, terms = made()
        want, where = expected(sums, terms), [x.data_ptr() for x in sums]
        accumulate(sums, terms)
        assert all(map(torch.equal, sums, want))
        assert [x.data_ptr() for x in sums] == where
        accumulate([], [])


if INTERPRETED:
    from hymo.kernels import triton_accumulate_launch

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
    def test_one_launch_adds_as_a_loop_does(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HYMO_KERNELS", "triton")
        monkeypatch.setattr(triton_accumulate_launch, "FEWEST", 16)
        monkeypatch.setattr(triton_accumulate_launch, "BLOCK", 256)
        triton_accumulate_launch._table.cache_clear()
        launched: list[int] = []
        original = triton_accumulate_launch.add_together

        def counted(sums: list[Tensor], terms: list[Tensor]) -> Any:
            left = original(sums, terms)
            launched.append(len(sums) - len(left[0]))
            return left

        monkeypatch.setattr(triton_accumulate_launch, "add_together", counted)
        for _ in range(2):  # the second time from the table of the first
            sums, terms = made(dtype)
            want = expected(sums, terms)
            accumulate(sums, terms)
            assert all(map(torch.equal, sums, want))
        assert launched == [5, 5]
        narrow, wide = torch.full((64,), 256.0).to(torch.bfloat16), torch.full((64,), 1.25)
        accumulate([narrow], [wide])  # rounded once, after the sum: 257.25 is nearer to 258 than to 256
        assert launched[-1] == 0
        assert narrow.tolist() == [258.0] * 64
        triton_accumulate_launch._table.cache_clear()
