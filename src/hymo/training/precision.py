"""fp32 masters and the copy that computes.

The optimizers update masters in fp32; the forward and backward passes run on a copy in `param_dtype`, refreshed once
per optimizer step. In fp32 the two are one. Gradients are added up in fp32 whatever the copy's dtype. Buffers (router
biases, load counts) are shared, and the tensors that a module keeps in fp32 stay so in the copy.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from hymo.kernels.accumulate import accumulate
from hymo.models import HyMo


class WorkingCopy:
    """Pairs a master model with the model that runs."""

    def __init__(self, master: HyMo, dtype: torch.dtype) -> None:
        self.master = master
        self.model = master
        self._pairs: list[tuple[Tensor, Tensor]] = []
        if dtype is torch.float32:
            return
        self.model = copy.deepcopy(master).to(dtype)
        for ours, theirs in zip(self.model.modules(), master.modules(), strict=True):
            ours._buffers = theirs._buffers
        self._pairs = list(zip(master.parameters(), self.model.parameters(), strict=True))

    def begin(self, last: bool) -> None:
        """Before each forward pass of a step; `last` says that none follows."""

    @torch.no_grad()
    def refresh(self) -> None:
        """Copy the masters into the working copy, after they changed."""
        if self._pairs:
            masters, copies = zip(*self._pairs, strict=True)
            torch._foreach_copy_(list(copies), list(masters))

    @torch.no_grad()
    def collect_gradients(self, last: bool = True) -> None:
        """Add the copy's gradients to the masters' in fp32 and drop them; once per backward pass."""
        sums, terms = [], []
        for master, working in self._pairs:
            if working.grad is None:
                continue
            if master.grad is None:
                master.grad = working.grad.to(master.dtype)
            else:
                sums.append(master.grad)
                terms.append(working.grad)
            working.grad = None
        accumulate(sums, terms)

    def drop_gradients(self) -> None:
        """Forget what the optimizers do not hold themselves: nothing."""

    def release(self) -> None:
        """Give back what passes without a backward pass keep: nothing."""
