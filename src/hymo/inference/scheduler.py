"""Continuous batching: requests join and leave a running batch between any two passes of the model.

All texts under way are rows of one decode state. Rows that generate come first, rows that still read their prompt
behind them in the order of their arrival::

    | generating ...  | reading ...  | free ... |
      0                 running        len(rows)

so that both kinds are contiguous, a decoding pass works on a part of the state without copying what grows with the
text, and a row that has read its prompt joins the generating ones where it lies. When a row leaves, the last generating
row takes its place.

One step reads at most `chunk` tokens of prompts, first come first served, then gives every generating row its next
tokens: a long prompt delays the others by one piece of it per pass, and no request overtakes an earlier one. What a
request gives depends on itself alone, up to the rounding of products in another batch: its random numbers are its own
(`hymo.inference.sampling`), and drafts only change how many tokens a pass gives. In fp64 texts are the same alone and
in any company; in fp32 they are unless two choices are equal to within rounding.

Speculation. The prediction heads draft the most likely tokens; one pass reads the certain token and the drafts, and
the model's own draw at each place, by the number that belongs to the place, decides how many were right. With one-hot
drafts this accepts a draft x with probability p(x) and otherwise draws from p without x, which is the exact rule of
Leviathan et al., arXiv 2211.17192; and the text is the one that is drawn without drafts from the same seed.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from hymo.core.errors import UsageError
from hymo.data.tokenizer import Tokenizer
from hymo.inference.choice import Choice, Job
from hymo.inference.drafting import Costs
from hymo.inference.picking import Picker, judged
from hymo.inference.recorded import Answer, Recorded, Recorder, Recorders
from hymo.inference.request import Request, Token
from hymo.inference.text import TokenBytes
from hymo.models import DecodeState, HyMo

CHUNK, CHUNK_CUDA = 512, 16_384
"""Tokens of prompts in one step unless told otherwise: about as long as it takes to give some texts some tokens."""


class Scheduler:
    """Runs requests over one model. Not thread-safe: one thread submits, cancels and steps.

    Args:
        model: in evaluation mode.
        tokenizer: of the training data.
        slots: most texts under way at once.
        token_budget: most tokens that the state may have to hold, as rows times the longest of them; what does not fit
            waits. `slots` full contexts unless given.
        chunk: most tokens of prompts that one step reads.
        costs: measured times of passes, to share between schedulers of one model.
        recorders: recorded passes, to share likewise; None runs every pass as written.
    """

    def __init__(
        self,
        model: HyMo,
        tokenizer: Tokenizer,
        slots: int = 16,
        token_budget: int | None = None,
        chunk: int | None = None,
        costs: Costs | None = None,
        recorders: Recorders | None = None,
    ) -> None:
        self.context = model.rope_gdn.positions
        for name, value in (("slots", slots), ("token_budget", token_budget), ("chunk", chunk)):
            if value is not None and value < 1:
                raise UsageError(f"{name}: must be at least 1, not {value}.")
        if chunk is None:
            chunk = CHUNK_CUDA if model.embed.weight.is_cuda else CHUNK
        self.slots, self.chunk = slots, chunk
        self.token_budget = slots * self.context if token_budget is None else token_budget
        self.waiting: deque[Job] = deque()
        """Jobs that have no row yet, in order."""
        self._model, self._tokenizer = model, tokenizer
        self._heads = model.config.mtp_depth
        self._costs = Costs() if costs is None else costs
        self._bytes_of = TokenBytes(tokenizer)
        self._picker = Picker(model, tokenizer)
        self._state: DecodeState | None = None
        self._recorders = recorders
        self._recorder: Recorder | None = None
        self._flight: _Flight | None = None
        self._rows: list[Choice] = []
        self._running = 0
        self._longest = 0
        self._device = model.embed.weight.device

    @property
    def active(self) -> int:
        """Texts that have a row."""
        return len(self._rows)

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do."""
        return not self._rows and not self.waiting

    @property
    def bytes_used(self) -> int:
        """Memory of the decode state in bytes, reserved room included."""
        return 0 if self._state is None else self._state.bytes_used()

    def submit(self, request: Request) -> Job:
        """Queue a request.

        Raises:
            UsageError: it cannot be done, whatever the load: nothing is queued.
        """
        self.check(request)
        job = Job(request, self._tokenizer, self._heads, self._bytes_of)
        self.waiting.append(job)
        return job

    def check(self, request: Request) -> None:
        """Refuse a request that cannot be done.

        Raises:
            UsageError: naming the field.
        """
        request.check(self._tokenizer.vocab_size, self._heads)
        total = len(request.prompt) + request.max_new_tokens
        if total > self.context:
            raise UsageError(
                f"prompt of {len(request.prompt)} tokens and {request.max_new_tokens} new ones exceed the context of "
                f"{self.context}. Shorten the prompt or ask for fewer."
            )
        if request.n > self.slots:
            raise UsageError(f"n: at most {self.slots} texts run at once, not {request.n}. Ask for fewer.")
        if request.n * total > self.token_budget:
            raise UsageError(
                f"n = {request.n} texts of up to {total} tokens exceed the budget of {self.token_budget} tokens. Ask "
                "for fewer texts or tokens."
            )

    @torch.inference_mode()
    def cancel(self, job: Job) -> None:
        """End a job where it is. Its rows are free at once."""
        if job in self.waiting:
            self.waiting.remove(job)
        for choice in job.choices:
            choice.end("cancelled")
        self._compact()

    @torch.inference_mode()
    def step(self) -> list[Choice]:
        """Read a piece of the waiting prompts, then one pass over all texts.

        Returns:
            The continuations that grew or ended.
        """
        self._admit()
        touched = dict.fromkeys(self._read_prompts())
        self._compact()
        if self._running:
            touched |= dict.fromkeys(self._decode())
            self._compact()
        return list(touched)

    def _admit(self) -> None:
        """Give rows to the first of the waiting jobs while they fit."""
        while self.waiting:
            job = self.waiting[0]
            rows = len(self._rows) + job.request.n
            longest = max([job.total, *(choice.job.total for choice in self._rows)])
            if rows > self.slots or rows * longest > self.token_budget:
                return
            self.waiting.popleft()
            self._make_room(rows, longest)
            for choice in job.choices:
                self._pool.clear(len(self._rows))
                self._rows.append(choice)

    def _make_room(self, rows: int, longest: int) -> None:
        """Room for some rows of some tokens: twice as many rows as before while the budget lasts, no more tokens."""
        if self._state is None and self._recorders is not None and not self._recorders.failed:
            self._recorder = self._recorders.take(self._picker.closed)
        if self._recorder is not None:
            held = len(self._rows)
            self._state = self._recorder.make_room(rows, longest, self._heads, self.slots, self.token_budget, held)
            self._longest = self._recorder.room - self._heads
            return
        if self._state is None:
            self._state = self._model.init_state(rows, reserve=longest + self._heads)
            self._longest = longest
            return
        have = self._pool.batch_size
        wanted = max(rows, have if rows <= have else min(2 * have, self.slots, self.token_budget // longest))
        if wanted * longest > self.token_budget:
            wanted = rows
        if wanted * self._longest > self.token_budget:  # room that texts have left behind, no longer to be had
            self._pool.trim(longest + self._heads)
            self._longest = longest
        if wanted != have:
            self._pool.resize(wanted)
        self._pool.reserve(longest + self._heads, exact=True)
        self._longest = max(longest, self._longest)

    def _give_back(self) -> None:
        """Give back what is reserved, if the texts that are left need less than half of it.

        What recorded passes work on is kept for the next texts.
        """
        if not self._rows:
            self._state = None
            if self._recorder is not None and self._recorders is not None:
                self._recorders.give(self._recorder)
                self._recorder = self._flight = None
            return
        if self._recorder is not None:
            return
        rows, have = len(self._rows), self._pool.batch_size
        longest = max(choice.job.total for choice in self._rows)
        if 2 * rows < have or 2 * longest < self._longest:
            self._pool.resize(rows)
            self._pool.trim(longest + self._heads)
            self._longest = longest

    @property
    def _pool(self) -> DecodeState:
        assert self._state is not None
        return self._state

    def _pass(
        self, start: int, tokens: Tensor, lengths: Sequence[int], history: bool = False
    ) -> tuple[DecodeState, Tensor]:
        """Let the rows from `start` on read so many of tokens (rows, width); the rows as a state, and the result."""
        width = tokens.shape[1]
        stop = start + len(lengths)
        ragged = torch.tensor(lengths, device=self._device) if min(lengths) < width else None
        longest = int(self._pool.lengths[start:stop].max())
        part = self._pool.rows(start, stop, longest + width)
        return part, self._model.decode_hidden(tokens, part, ragged, keep_history=history)

    def _read_prompts(self) -> list[Choice]:
        """Read the next piece of prompts; texts whose prompt is read get their first token."""
        start = self._running
        jobs, pieces = self._next_pieces()
        if not jobs:
            return []
        lengths = [len(piece) for piece in pieces]
        width = max(lengths)
        padded = torch.tensor([[*piece, *[0] * (width - len(piece))] for piece in pieces], device=self._device)
        part, hidden = self._pass(start, padded, lengths)
        self._pool.put(start, part)
        ready: list[Choice] = []
        places: list[Tensor] = []
        for row, (job, piece) in enumerate(zip(jobs, pieces, strict=True)):
            if job.request.score_prompt:
                self._picker.score(job, hidden[row, : len(piece)])
            job.read += len(piece)
            if job.read == len(job.request.prompt):
                for sibling in range(1, job.request.n):
                    self._pool.copy_row(start + row, start + row + sibling)
                ready += job.choices
                places += [hidden[row, len(piece) - 1]] * job.request.n
        self._running += len(ready)
        for choice in [choice for choice in ready if choice.job.request.max_new_tokens == 0]:
            choice.end("length")
        pairs = [(c, h) for c, h in zip(ready, places, strict=True) if not c.finished]
        if pairs:
            drawing = [choice for choice, _ in pairs]
            states = torch.stack([state for _, state in pairs])
            self._picker.begin(drawing)
            drawn = self._picker.pick(drawing, self._picker.logits(states[:, None]))
            for choice, state, tokens in zip(drawing, states, drawn, strict=True):
                choice.hidden = state
                choice.push(tokens[0])
        return ready

    def _next_pieces(self) -> tuple[list[Job], list[tuple[int, ...]]]:
        """The jobs that read next and what they read: neighbouring rows, all but the last to their prompt's end."""
        jobs: list[Job] = []
        pieces: list[tuple[int, ...]] = []
        left, row = self.chunk, self._running
        while row < len(self._rows) and left:
            job = self._rows[row].job
            piece = job.request.prompt[job.read : job.read + left]
            width = max(len(piece), *(len(other) for other in pieces)) if pieces else len(piece)
            if pieces and width * (len(pieces) + 1) > 2 * self.chunk:  # too much of it would be padding
                break
            if pieces and jobs[0].read + width > self._longest:  # padding would not fit behind the first
                break
            jobs.append(job)
            pieces.append(piece)
            left -= len(piece)
            if job.request.n > 1 or job.read + len(piece) < len(job.request.prompt):
                break  # its siblings' rows, or the end of the budget
            row += 1
        return jobs, pieces

    def _decode(self) -> list[Choice]:
        """One pass over all texts that generate."""
        began = time.perf_counter()
        ran = self._run_written() if self._recorder is None else self._run_recorded()
        going = []
        for row, (choice, tokens) in enumerate(zip(ran.choices, ran.drawn, strict=True)):
            if choice.finished:  # while the pass was under way
                continue
            if choice.speculation is not None:
                choice.hidden = ran.hidden[row, len(tokens) - 1]
                choice.speculation.note(ran.depths[row], len(tokens) - 1)
            _push(choice, tokens)
            going.append(choice)
        if ran.fits:
            self._costs.note(len(ran.choices), ran.hidden.shape[1] - 1, time.perf_counter() - began)
        return going

    def _depths(self, choices: Sequence[Choice], made: int = 0) -> list[int]:
        """Drafts of each text in the next pass, which makes `made` in any case."""
        seconds = self._costs.of(len(choices), self._heads)
        return [choice.depth(seconds, made) for choice in choices]

    def _run_written(self) -> _Pass:
        """Draft, read and draw, as the model is written."""
        choices = self._rows[: self._running]
        depths = self._depths(choices)
        deepest = max(depths)
        tokens = torch.tensor([[choice.pending] for choice in choices], device=self._device)
        drafts = self._draft(_hidden(choices), tokens[:, 0], deepest) if deepest else None
        if drafts is not None:
            tokens = torch.cat((tokens, drafts), 1)
        part, states = self._pass(0, tokens, [depth + 1 for depth in depths], history=deepest > 0)
        drawn = self._picker.pick(choices, self._picker.logits(states), drafts, depths)
        if deepest:
            part.rollback(torch.tensor([len(tokens) for tokens in drawn], device=self._device))
        self._pool.put(0, part)
        return _Pass(choices, depths, drawn, states)

    def _run_recorded(self) -> _Pass:
        """The same by a recorded pass; as written if none can be recorded after all.

        Where tokens are drawn within the pass and nothing is drafted, the next pass is sent before the answer of this
        one is read: the device works while the host looks at the texts. For a text that ends there it was in vain.
        """
        choices = self._rows[: self._running]
        flight, self._flight = self._flight, None
        if flight is None:
            depths = self._depths(choices)
            width = max(depths) + 1
            work = self._recorded(len(choices), width, all(choice.simple for choice in choices))
            if work is None:
                return self._run_written()
            assert self._recorder is not None
            fits = self._recorder.fits(work, len(choices), width)
            if work.width > width:
                depths = self._depths(choices, made=work.width - 1)
            flight = _Flight(work, choices, depths, fits, self._send(work, choices, depths))
        work, depths, count = flight.work, flight.depths, len(flight.choices)
        if not work.draws:
            drafts = work.drafts[:count] if work.width > 1 else None
            drawn = self._picker.pick(choices, work.logits(count), drafts, depths)
            work.keep([len(tokens) for tokens in drawn])
            return _Pass(choices, depths, drawn, work.hidden, flight.fits)
        lasting = flight.choices == choices and all(choice.lasts for choice in choices)
        if lasting and self._recorded(count, max(depths) + 1, True) is work:
            self._flight = _Flight(work, choices, depths, flight.fits, self._send(work, choices, depths, ahead=1))
        drawn = judged(flight.choices, flight.answer.lines(), work.width, depths)
        return _Pass(flight.choices, depths, drawn, work.hidden, flight.fits)

    def _recorded(self, rows: int, width: int, draws: bool) -> Recorded | None:
        assert self._recorder is not None
        assert self._recorders is not None
        try:
            return self._recorder.of(rows, width, draws)
        except Exception as error:  # compiling and recording fail in many ways: none is a reason to end the texts
            self._recorders.fail(error)
            self._recorder = None
            self._state = DecodeState(self._pool.lengths, self._pool.layers)
            return None

    def _send(self, work: Recorded, choices: Sequence[Choice], depths: Sequence[int], ahead: int = 0) -> Answer:
        """Start a pass; `ahead` of its texts' last tokens, it goes on from those that the pass before draws."""
        packet = [
            [
                -1 if ahead else choice.pending,
                depth + 1,
                choice.rule.temperature,
                *choice.uniforms.peek(work.width, ahead),
            ]
            for choice, depth in zip(choices, depths, strict=True)
        ]
        return work.replay(packet, _hidden(choices) if work.width > 1 else None)

    def _draft(self, hidden: Tensor, last: Tensor, depth: int) -> Tensor:
        """The most likely next tokens by the chain of prediction heads, (rows, depth)."""
        chain, found = hidden, []
        for block in self._model.mtp.blocks[:depth]:
            chain, out = block(chain, self._model.embed_tokens(last))
            last = self._picker.logits(out).argmax(-1)
            found.append(last)
        return torch.stack(found, 1)

    def _compact(self) -> None:
        """Close the gaps of the texts that have ended."""
        if not any(choice.finished for choice in self._rows):
            return
        generating = [row for row in range(self._running) if not self._rows[row].finished]
        # The last ones, which lie behind, fill the gaps.
        order = [generating.pop() if self._rows[row].finished else row for row in range(len(generating))]
        reading = [row for row in range(self._running, len(self._rows)) if not self._rows[row].finished]
        moves = [*order, *reading]
        for target, source in enumerate(moves):  # no source lies before its target, so none is overwritten too early
            if source != target:
                self._pool.copy_row(source, target)
        self._rows = [self._rows[source] for source in moves]
        self._running = len(order)
        self._give_back()


class _Pass(NamedTuple):
    """What a pass gave."""

    choices: list[Choice]
    depths: list[int]
    drawn: list[list[Token]]
    hidden: Tensor
    """(rows, width, dim)."""
    fits: bool = True
    """Whether it ran in its own size, so that its time is that of its size."""


class _Flight(NamedTuple):
    """A recorded pass that runs."""

    work: Recorded
    choices: list[Choice]
    depths: list[int]
    fits: bool
    answer: Answer


def _hidden(choices: Sequence[Choice]) -> Tensor:
    """(rows, dim) hidden states that the last tokens were drawn from."""
    return torch.stack([choice.hidden for choice in choices if choice.hidden is not None])


def _push(choice: Choice, tokens: Sequence[Token]) -> None:
    for token in tokens:
        if choice.finished:
            return
        choice.push(token)
