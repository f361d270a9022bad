"""Sums of many tensors in place: what adds the gradients of a micro-batch to those of the step."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from hymo.kernels.dispatch import choose_accumulate


def accumulate(sums: Sequence[Tensor], terms: Sequence[Tensor]) -> None:
    """sums[i] += terms[i], each element added in the type of the sums; equal shapes, nothing overlaps.

    On a GPU large tensors of one pair of types go to one kernel, the others one by one.
    """
    with torch.no_grad():
        if sums and choose_accumulate(sums[0]) == "triton":
            from hymo.kernels.triton_accumulate_launch import add_together  # only here: Triton is optional

            sums, terms = add_together(sums, terms)
        for total, term in zip(sums, terms, strict=True):
            total += term
