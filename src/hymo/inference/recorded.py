"""Decoding passes that are recorded once, as CUDA graphs, and replayed: the host sends a few numbers and one command.

A pass is recorded for a number of rows (a power of two, or all) and of new tokens. It works on a state that stays
where it is; a larger state makes new recordings necessary. In Triton's interpreter, which has no graphs, the kernels
run one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from hymo.inference.fixed import FixedState
from hymo.models import HyMo

_ROUND = 64
"""Room for tokens comes in multiples of this, so that texts of similar length share recordings."""


def obstacle(model: HyMo) -> str:
    """Why a model's passes cannot be recorded, or an empty string."""
    from hymo.kernels.dispatch import machine_obstacle

    if why := machine_obstacle(model.embed.weight.device):
        return why
    from hymo.inference import fused  # only here: Triton is optional

    return fused.obstacle(model)


class Recorded:
    """One recorded pass: its inputs, its outputs, and the command to replay it.

    Args:
        model: in evaluation mode.
        state: what it works on.
        rows: rows of the pass, the first of the state.
        width: new tokens of a row; all but the first are drafted by the prediction heads within the pass.
        closed: (V,) -inf for tokens that are never drawn, else 0.
    """

    def __init__(self, model: HyMo, state: FixedState, rows: int, width: int, closed: Tensor) -> None:
        from hymo.inference.fused import FusedPass

        self._model, self._closed, self.rows, self.width = model, closed, rows, width
        self.work = FusedPass(model, state, rows, width)
        device = closed.device
        self.chain = torch.zeros((rows, model.config.dim), dtype=model.embed.weight.dtype, device=device)
        """(rows, dim) hidden states that the first tokens were drawn from; drafts start there."""
        self.logits = torch.empty(0)
        """(rows, width, V) of the last replay, closed tokens at -inf."""
        self._sent = torch.zeros((2, rows), dtype=torch.int64, pin_memory=device.type == "cuda")
        self._kept = torch.zeros(rows, dtype=torch.int32, pin_memory=device.type == "cuda")
        self._arrived = torch.zeros((2, rows), dtype=torch.int64, device=device)
        self._graph: torch.cuda.CUDAGraph | None = None
        self._after: torch.cuda.CUDAGraph | None = None

    @property
    def tokens(self) -> Tensor:
        """(rows, width) what the last replay read: the given token, then the drafts."""
        return self.work.tokens

    @property
    def hidden(self) -> Tensor:
        """(rows, width, dim) after the last replay."""
        return self.work.hidden

    def record(self, pool: Any) -> None:
        """Run once without any row, which compiles the kernels and changes no state; record, if there are graphs."""
        self._arrived.zero_()
        self.work.keep.zero_()
        if self._closed.device.type != "cuda":
            return
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self._run()
            self._finish()
        torch.cuda.current_stream().wait_stream(side)
        self._graph, self._after = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, pool=pool, capture_error_mode="thread_local"):
            self._run()
        if self.width > 1:
            with torch.cuda.graph(self._after, pool=pool, capture_error_mode="thread_local"):
                self._finish()

    def replay(self, tokens: Sequence[int], read: Sequence[int], chain: Tensor | None) -> None:
        """Send the next token of each row, the number of tokens that it reads, and where its drafts start; then run."""
        count = len(tokens)
        self._sent.zero_()
        self._sent[0, :count] = torch.tensor(tokens)
        self._sent[1, :count] = torch.tensor(read)
        self._arrived.copy_(self._sent, non_blocking=True)
        if chain is not None:
            self.chain[:count] = chain
        if self._graph is None:
            self._run()
        else:
            self._graph.replay()

    def keep(self, counts: Sequence[int]) -> None:
        """Of more than one token a row, let each row have read this many."""
        if self.width == 1:
            return
        self._kept.zero_()
        self._kept[: len(counts)] = torch.tensor(counts, dtype=torch.int32)
        self.work.keep.copy_(self._kept, non_blocking=True)
        if self._after is None:
            self._finish()
        else:
            self._after.replay()

    def _run(self) -> None:
        work, model = self.work, self._model
        work.tokens[:, 0] = self._arrived[0]
        work.read.copy_(self._arrived[1])
        if self.width > 1:
            self._draft()
        work.run()
        self.logits = model.logits(work.hidden) + self._closed

    def _finish(self) -> None:
        if self.width > 1:
            self.work.commit()

    def _draft(self) -> None:
        model, chain = self._model, self.chain
        closed = self._closed.to(chain.dtype)
        for depth, block in enumerate(model.mtp.blocks, 1):
            if depth == self.width:
                break
            chain, out = block(chain, model.embed_tokens(self.work.tokens[:, depth - 1]))
            self.work.tokens[:, depth] = F.linear(out, model.output_weight, closed).argmax(-1)


class Recorder:
    """The state of a batch and the recorded passes over it.

    Args:
        model: in evaluation mode; its weights must stay as they are.
        closed: bool (V,) tokens that are never drawn.
    """

    def __init__(self, model: HyMo, closed: Tensor) -> None:
        self._model = model
        wide = torch.promote_types(model.embed.weight.dtype, torch.float32)
        self._closed = torch.zeros(closed.shape, dtype=wide, device=closed.device).masked_fill(closed, -torch.inf)
        self.state: FixedState | None = None
        self.room = 0
        """Tokens that a row of the state has room for."""
        self._passes: dict[tuple[int, int], Recorded] = {}
        self._pool = torch.cuda.graph_pool_handle() if closed.is_cuda else None

    def make_room(self, rows: int, longest: int, extra: int, slots: int, budget: int, held: int) -> FixedState:
        """A state for `rows` rows of `longest` tokens and `extra` drafts, that keeps the first `held` rows there are.

        It has more room while that fits into `slots` rows and `budget` tokens, so that it need not grow often.
        """
        old = self.state
        have, room = (0, 0) if old is None else (old.batch_size, self.room - extra)
        if rows <= have and longest <= room and have * room <= budget:
            assert old is not None
            return old
        tokens = max(-(-longest // _ROUND) * _ROUND, room)
        wanted = have if rows <= have else min(max(rows, 2 * have), slots)
        if wanted * tokens > budget:
            wanted, tokens = rows, longest
        self._passes.clear()
        new = FixedState.of(self._model, wanted, tokens + extra)
        if old is not None:
            new.take(old, held)
        self.state, self.room = new, tokens + extra
        return new

    def of(self, rows: int, width: int) -> Recorded:
        """The pass for so many rows (at least) and tokens; recorded if it is new."""
        assert self.state is not None
        bucket = min(1 << (rows - 1).bit_length(), self.state.batch_size)
        found = self._passes.get((bucket, width))
        if found is None:
            found = Recorded(self._model, self.state, bucket, width, self._closed)
            found.record(self._pool)
            self._passes[bucket, width] = found
        return found
