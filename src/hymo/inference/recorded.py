"""Decoding passes that are recorded once, as CUDA graphs, and replayed: the host sends a few numbers and one command.

A pass is recorded for a number of rows (a power of two, or all) and of new tokens. It works on a state that stays
where it is; a larger state makes new recordings necessary. In Triton's interpreter, which has no graphs, the kernels
run one by one.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from hymo.inference.fixed import FixedState
from hymo.models import HyMo

_BLOCK = 1024
"""Logits that one program of the drawing kernels looks at."""
_MARKS = (torch.float32, torch.int32, torch.float32, torch.float64)
"""Types of what those kernels note of each block."""
_PATIENCE = 512
"""Passes of a size that run in a larger recording before one is made for it: what they lose, a recording costs.

On an H200 a recording of the flagship takes 0.3 s, or seconds where kernels are yet to be compiled, and a pass in its
own size saves 0.4 ms (16 texts in place of 64) to 1 ms (one text in place of 64). Whether many more passes of a size
will come nobody knows; who records it when the loss has reached the cost loses about twice what foresight would.
"""
_ROUND = 64
"""Room for tokens comes in multiples of this, so that texts of similar length share recordings."""


def obstacle(model: HyMo) -> str:
    """Why a model's passes cannot be recorded, or an empty string."""
    from hymo.kernels.dispatch import machine_obstacle

    if why := machine_obstacle(model.embed.weight.device):
        return why
    from hymo.inference import fused  # only here: Triton is optional

    return fused.obstacle(model)


class Answer(NamedTuple):
    """What a pass sends back to the host."""

    received: Tensor
    """(all rows, 3 width - 1) fp64 on the host: tokens, their log-probabilities, drafts."""
    event: torch.cuda.Event | None
    """When it is there."""

    def lines(self) -> list[list[float]]:
        """The same as lists. The host waits until it is there."""
        if self.event is not None:
            self.event.synchronize()
        found: list[list[float]] = self.received.tolist()
        return found


class Recorded:
    """One recorded pass: its inputs, its outputs, and the command to replay it.

    Args:
        model: in evaluation mode.
        state: what it works on.
        rows: rows of the pass, the first of the state.
        width: new tokens of a row; all but the first are drafted by the prediction heads within the pass.
        closed: (V,) -inf for tokens that are never drawn, else 0.
        draws: whether the pass draws tokens itself, by temperature alone, and keeps the drafts that were right. Else
            `logits` gives what to draw from, and `keep` must be told.
    """

    def __init__(self, model: HyMo, state: FixedState, rows: int, width: int, closed: Tensor, draws: bool) -> None:
        from hymo.inference.fused import FusedPass

        self._model, self._closed, self.rows, self.width, self.draws = model, closed, rows, width, draws
        self.work = FusedPass(model, state, rows, width)
        device, cuda = closed.device, closed.device.type == "cuda"
        self.chain = torch.zeros((rows, model.config.dim), dtype=model.embed.weight.dtype, device=device)
        """(rows, dim) hidden states that the first tokens were drawn from; drafts start there."""
        self.drawn = torch.zeros((rows, width), dtype=torch.int64, device=device)
        """(rows, width) tokens drawn by the last replay."""
        self._raw = torch.empty(0)
        self._packet = torch.zeros((rows, 3 + width), dtype=torch.float64, device=device)
        self._answer = torch.zeros((rows, 3 * width - 1), dtype=torch.float64, device=device)
        # Two of each: a pass may be sent before the answer of the one before is read.
        shapes = [(2, *self._packet.shape), (2, *self._answer.shape)]
        self._sent, self._received = (torch.zeros(s, dtype=torch.float64, pin_memory=cuda) for s in shapes)
        self._turn = 0
        self._cold = torch.zeros(rows, dtype=torch.float64, device=device)  # temperature 0: the most likely token
        self._guess = torch.zeros(rows, dtype=torch.int64, device=device)
        self._unused = torch.zeros((rows, 2), dtype=torch.float64, device=device)
        self._kept = torch.zeros(rows, dtype=torch.int32, pin_memory=cuda)
        self._graph: torch.cuda.CUDAGraph | None = None
        self._after: torch.cuda.CUDAGraph | None = None
        blocks = -(-closed.numel() // _BLOCK)
        marks = (rows * width, blocks)
        self._marks = [torch.empty(marks, dtype=d, device=device) for d in _MARKS] if draws else []

    @property
    def drafts(self) -> Tensor:
        """(rows, width - 1) what the last replay drafted."""
        return self.work.tokens[:, 1:]

    @property
    def hidden(self) -> Tensor:
        """(rows, width, dim) after the last replay."""
        return self.work.hidden

    def logits(self, rows: int) -> Tensor:
        """(rows, width, V) of the last replay, closed tokens at -inf."""
        raw = self._raw[:rows]
        cap = self._model.config.logit_softcap
        wide = raw.to(torch.promote_types(raw.dtype, torch.float32))
        return (cap * torch.tanh(wide / cap) if cap else wide) + self._closed

    def record(self, pool: Any) -> None:
        """Run once without any row, which compiles the kernels and changes no state; record, if there are graphs."""
        self._packet.zero_()
        self.work.keep.zero_()
        if self._closed.device.type != "cuda":
            return
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self._run()
            self._finish()
        torch.cuda.current_stream().wait_stream(side)
        graph, after = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
            self._run()
        if self.width > 1 and not self.draws:
            with torch.cuda.graph(after, pool=pool, capture_error_mode="thread_local"):
                self._finish()
        self._graph, self._after = graph, after

    def replay(self, packet: Sequence[Sequence[float]], chain: Tensor | None = None) -> Answer:
        """Run the pass for the first rows.

        Args:
            packet: of each row the next token (-1: the one that the last replay drew), how many tokens it reads, its
                temperature, and `width` uniform numbers.
            chain: (rows, dim) where drafts start, if there are any.

        Returns:
            What the pass draws, if it does; the host does not wait for it here.
        """
        self._turn = 1 - self._turn
        sent, received = self._sent[self._turn], self._received[self._turn]
        sent[len(packet) :] = 0
        sent[: len(packet)] = torch.tensor(packet, dtype=torch.float64)
        self._packet.copy_(sent, non_blocking=True)
        if chain is not None:
            self.chain[: len(packet)] = chain
        if self._graph is None:
            self._run()
        else:
            self._graph.replay()
        if not self.draws:
            return Answer(received, None)
        received.copy_(self._answer, non_blocking=True)
        if not received.is_pinned():
            return Answer(received, None)
        event = torch.cuda.Event()
        event.record()
        return Answer(received, event)

    def keep(self, counts: Sequence[int]) -> None:
        """Of more than one token a row, let each row have read this many."""
        if self.width == 1 or self.draws:
            return
        self._kept.zero_()
        self._kept[: len(counts)] = torch.tensor(counts, dtype=torch.int32)
        self.work.keep.copy_(self._kept, non_blocking=True)
        if self._after is None:
            self._finish()
        else:
            self._after.replay()

    def _run(self) -> None:
        work, packet = self.work, self._packet
        first = packet[:, 0].to(torch.int64)
        work.tokens[:, 0] = torch.where(first < 0, self.drawn[:, 0], first)
        work.read.copy_(packet[:, 1])
        if self.width > 1:
            self._draft()
        work.run()
        self._raw = F.linear(work.hidden, self._model.output_weight)
        if self.draws:
            self._draw()
            self._answer[:, 2 * self.width :] = self.drafts
            self._finish()

    def _draw(self) -> None:
        packet = self._packet
        temperatures, uniforms = packet[:, 2].contiguous(), packet[:, 3:].contiguous()
        self._pick(self._raw, temperatures, uniforms, self.width, self.drawn, self._answer)
        if self.width > 1:
            self._accept()

    def _accept(self) -> None:
        """Count what each row keeps: its token, and its drafts up to the first that differs from what was drawn."""
        from hymo.kernels import triton_draw

        work, rows = self.work, (self.rows,)
        triton_draw.accept[rows](self.drawn, work.tokens, work.read, work.keep, W=self.width, num_warps=1)

    def _pick(
        self, raw: Tensor, temperatures: Tensor, uniforms: Tensor, width: int, tokens: Tensor, answer: Tensor
    ) -> None:
        """Draw a token from each of the raw logits, `width` places a row."""
        from hymo.kernels import triton_draw

        vocabulary = raw.shape[-1]
        blocks, cap = self._marks[0].shape[1], float(self._model.config.logit_softcap)
        triton_draw.tally[(blocks, self.rows * width)](
            raw, self._closed, temperatures, *self._marks, vocabulary, width, BLOCK=_BLOCK, CAP=cap
        )
        triton_draw.draw[(self.rows * width,)](
            raw, self._closed, temperatures, uniforms, *self._marks, tokens, answer, vocabulary, width,
            answer.stride(0), BLOCKS=blocks, BB=1 << (blocks - 1).bit_length(), BLOCK=_BLOCK, CAP=cap,
        )  # fmt: skip

    def _finish(self) -> None:
        if self.width > 1:
            self.work.commit()

    def _draft(self) -> None:
        model, chain, tokens = self._model, self.chain, self.work.tokens
        closed = self._closed.to(chain.dtype)
        for depth, block in enumerate(model.mtp.blocks, 1):
            if depth == self.width:
                break
            chain, out = block(chain, model.embed_tokens(tokens[:, depth - 1]))
            if self.draws:
                self._pick(F.linear(out, model.output_weight), self._cold, self._cold, 1, self._guess, self._unused)
                tokens[:, depth] = self._guess
            else:
                tokens[:, depth] = F.linear(out, model.output_weight, closed).argmax(-1)


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
        self._passes: dict[tuple[int, int, bool], Recorded] = {}
        self._missed: Counter[tuple[int, int, bool]] = Counter()
        self._pool: Any = None

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
        self._missed.clear()
        self._pool = torch.cuda.graph_pool_handle() if self._closed.is_cuda else None  # that of freed graphs is gone
        new = FixedState.of(self._model, wanted, tokens + extra)
        if old is not None:
            new.take(old, held)
        self.state, self.room = new, tokens + extra
        return new

    def of(self, rows: int, width: int, draws: bool) -> Recorded:
        """The pass for so many rows and tokens, both at least. `draws`: as in `Recorded`. To be asked before each pass.

        It is recorded at once where nothing recorded is large enough. Else the smallest that is serves `_PATIENCE`
        times first: a batch that ends passes through every size, and the last pass of a text has room for fewer drafts
        than those before it; but a text that goes on alone shall not stay in a batch's pass for good, nor many short
        ones after each other. So passes are counted over all texts that share the state.
        """
        assert self.state is not None
        key = (self._bucket(rows), width, draws)
        found = self._passes.get(key)
        if found is None:
            self._missed[key] += 1
            larger = [k for k in self._passes if k[0] >= key[0] and k[1] >= width and k[2] == draws]
            if larger and self._missed[key] <= _PATIENCE:
                return self._passes[min(larger, key=lambda k: k[0] * k[1])]
            found = Recorded(self._model, self.state, key[0], width, self._closed, draws)
            found.record(self._pool)
            self._passes[key] = found
        return found

    def fits(self, work: Recorded, rows: int, width: int) -> bool:
        """Whether a pass is the one made for so many rows and tokens, not a larger one in its place."""
        return (work.rows, work.width) == (self._bucket(rows), width)

    def _bucket(self, rows: int) -> int:
        assert self.state is not None
        return min(1 << (rows - 1).bit_length(), self.state.batch_size)


class Recorders:
    """Recorders of one model that no scheduler uses at the moment, so that what is recorded serves again.

    Args:
        model: in evaluation mode; its weights must stay as they are.
    """

    def __init__(self, model: HyMo) -> None:
        self._model = model
        self._spare: list[Recorder] = []
        self.failed = False
        """Whether recording failed once: then nothing is recorded any more."""

    def take(self, closed: Tensor) -> Recorder:
        """A recorder to use alone, for models with these closed tokens, bool (V,)."""
        return self._spare.pop() if self._spare else Recorder(self._model, closed)

    def give(self, recorder: Recorder) -> None:
        """Bring a recorder back."""
        self._spare.append(recorder)

    def fail(self, error: Exception) -> None:
        """Give recording up, and say why."""
        self.failed = True
        self._spare.clear()
        reason = str(error).strip().splitlines()
        _fall_back(f"{type(error).__name__}: {reason[0] if reason else 'no reason given'}")

    @classmethod
    def of(cls, model: HyMo) -> Recorders | None:
        """Recorders of a model, or None where its passes cannot be recorded; on a GPU that is said once."""
        why = obstacle(model)
        if why and model.embed.weight.is_cuda:
            _fall_back(why)
        return None if why else cls(model)


@lru_cache(maxsize=64)
def _fall_back(why: str) -> None:
    """Warn of a fallback; cached, so once for each reason."""
    warnings.warn(f"decoding runs kernel by kernel, without CUDA graphs: {why}", stacklevel=4)
