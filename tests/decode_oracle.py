"""Recorded decoding passes beside an fp64 model that takes the same experts.

Where two experts score almost alike, rounding decides which a token takes, and a token that takes another expert is
another token from there on. So the oracle is made to take the experts that the tested pass took, and the choice is
checked by itself: given what the tested router was given, it must have been the best one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor

from hymo.inference.fixed import FixedState
from hymo.inference.recorded import Recorded
from hymo.models import HyMo
from hymo.models.moe import DeepSeekMoE
from hymo.models.state import DecodeState, MLACache
from kernel_helpers import relative
from model_helpers import draw_tokens, routing_of

Choices = dict[int, Tensor]
"""Chosen experts (N, k) by layer."""
UNIT = 2.0**-24
"""Largest relative error of one rounding to fp32."""


@dataclass
class Figures:
    """One pass, relative L2 errors against fp64."""

    hidden: float = 0.0
    """Of the hidden state of a token, the worst one's."""
    states: dict[str, float] = field(default_factory=dict)
    """Of each kind of cached tensor after the pass, the worst layer's; as far as rows have read."""
    lengths: int = 0
    """Rows that have not read as many tokens as they should."""
    router_inputs: float = 0.0
    """Of what routers were given, the worst layer's and token's."""
    choice: float = 0.0
    """By how much the worst choice misses the best, given the router's own input: 1 is all that fp32 explains."""
    others: int = 0
    """Choices (one for each token and layer) that differ from those of the oracle's own input: ties, if choice <= 1."""
    choices: int = 0
    """Choices in all."""


def wrong(figures: list[Figures], hidden: float, state: float) -> list[str]:
    """What is out of bounds over all passes.

    Ties: a difference of two scores errs by about 3e-4 in bf16 (flagship at initialisation: logits of 0.18, a router's
    input off by 6e-3, slope 1/4, two experts), and the last expert taken is about 0.013 from the next one. So one or
    two of a hundred choices are expected to differ; two, and one of 32 more, are allowed.

    Args:
        figures: of all passes.
        hidden: bound of the errors of hidden states and of what routers are given.
        state: bound of the errors of cached tensors.
    """
    found = []
    for place, one in enumerate(figures):
        named = {"hidden states": (one.hidden, hidden), "inputs of routers": (one.router_inputs, hidden)}
        named |= {name: (error, state) for name, error in one.states.items()}
        named |= {"choices": (one.choice, 1.0), "lengths": (one.lengths, 0)}
        found += [f"pass {place}: {n} {x:.2e}, bound {bound:.0e}" for n, (x, bound) in named.items() if not x <= bound]
    others, choices = sum(one.others for one in figures), sum(one.choices for one in figures)
    most = 2 + choices // 32
    if others > most:
        found.append(f"{others} of {choices} choices differ from fp64's own, bound {most}")
    return found


@torch.no_grad()
def passes(model: HyMo, exact: HyMo, rows: int, width: int, count: int = 4, prompt: int = 100) -> list[Figures]:
    """Figures of recorded passes with ragged reads and rollbacks, after a prompt that `model` reads as written.

    Args:
        model: fp32 or bf16, where its passes can be recorded.
        exact: the same weights in fp64.
        rows: rows of the passes; the state has one more.
        width: tokens of a row.
        count: passes.
        prompt: tokens of the longest prompt.
    """
    device, vocabulary = model.embed.weight.device, model.config.vocab_size
    state = FixedState.of(model, rows + 1, prompt + 8 * width)
    tokens = draw_tokens(rows + 1, prompt, vocab=vocabulary).to(device)
    lengths = torch.tensor([prompt, 3, 0, prompt * 7 // 10, *[11] * rows][: rows + 1], device=device)
    part = state.rows(0, rows + 1, prompt)
    with routing_of(model) as calls:
        model.decode(tokens, part, lengths)
    state.put(0, part)
    wanted = exact.init_state(rows + 1)
    with forced(exact, dict(calls), Figures()):
        exact.decode(tokens, wanted, lengths)
    wanted = wanted.select(torch.arange(rows, device=device))
    work = Recorded(model, state, rows, width, torch.zeros(vocabulary, device=device), draws=False)
    taken, given = watched_model(model) if isinstance(work.work, Written) else watched(work)
    work.record(torch.cuda.graph_pool_handle() if device.type == "cuda" else None)
    figures = []
    for place in range(count):
        read = [max(1, width - (row + place) % 3) for row in range(rows)]
        chain = torch.randn(rows, model.config.dim, generator=torch.Generator().manual_seed(place))
        first = draw_tokens(rows, 1, seed=place, vocab=vocabulary)[:, 0].tolist()
        packet = [[token, n, 1.0, *[0.5] * width] for token, n in zip(first, read, strict=True)]
        work.replay(packet, chain.to(device, work.chain.dtype))
        counts = torch.tensor(read, device=device)
        real = torch.arange(width, device=device) < counts[:, None]
        found = Figures()
        with forced(exact, taken, found, given, real.flatten()):
            hidden = exact.decode_hidden(work.work.tokens.clone(), wanted, counts, keep_history=width > 1)
        if width > 1:
            kept = [max(1, n - (row + place + 1) % 2) for row, n in enumerate(read)]
            work.keep(kept)
            wanted.rollback(torch.tensor(kept, device=device))
        found.lengths = int((state.lengths[:rows] != wanted.lengths).sum())
        found.hidden = worst(work.hidden[real], hidden[real])
        found.states = state_errors(state, wanted)
        figures.append(found)
    return figures


def worst(got: Tensor, want: Tensor) -> float:
    """Relative L2 error of the worst token, of (N, dim)."""
    return float(((got.double() - want).norm(dim=-1) / want.norm(dim=-1).clamp_min(1e-30)).max())


def state_errors(state: DecodeState, wanted: DecodeState) -> dict[str, float]:
    """Relative errors of what the rows of `wanted` hold, by kind of tensor; the worst layer's."""
    found: dict[str, float] = {}
    rows = wanted.batch_size
    for mine, theirs in zip(state.layers, wanted.layers, strict=True):
        for name in mine.tensors():
            got, want = getattr(mine, name)[:rows], getattr(theirs, name)
            if isinstance(mine, MLACache):
                used = int(wanted.lengths.max())
                read = torch.arange(used, device=got.device) < wanted.lengths[:, None]
                got, want = got[:, :used][read], want[:, :used][read]
            found[name] = max(found.get(name, 0.0), relative(got, want))
    return found


def watched(work: Recorded) -> tuple[Choices, dict[int, Tensor]]:
    """What the routers of a pass choose and what they are given, by layer; to be called before it is recorded.

    The copies become part of the recording.
    """
    taken: Choices = {}
    given: dict[int, Tensor] = {}
    fused = work.work
    mixture = fused._mixture

    def mix(moe: DeepSeekMoE, norm: Tensor) -> None:
        mixture(moe, norm)
        for kept, buffer in ((taken, fused._chosen), (given, fused._normed)):
            if moe.layer not in kept:
                kept[moe.layer] = torch.empty_like(buffer)
            kept[moe.layer].copy_(buffer)

    fused._mixture = mix  # type: ignore[method-assign]
    return taken, given


class Written:
    """What `FusedPass` does, by the model as written: then texts take no minutes, and bf16 needs no GPU."""

    def __init__(self, model: HyMo, state: FixedState, rows: int, width: int) -> None:
        self.model, self.state, self.rows, self.width = model, state, rows, width
        self.tokens = torch.zeros((rows, width), dtype=torch.int64)
        self.read, self.keep = (torch.zeros(rows, dtype=torch.int32) for _ in range(2))
        self.hidden = torch.zeros((rows, width, model.config.dim), dtype=model.embed.weight.dtype)

    def run(self) -> None:
        """As `FusedPass.run`."""
        self._advance(self.read, self.width == 1)

    def commit(self) -> None:
        """As `FusedPass.commit`."""
        self._advance(self.keep, True)

    def _advance(self, counts: Tensor, stay: bool) -> None:
        part = self.state.rows(0, self.rows, 0)
        one = part if stay else part.snapshot()
        hidden = self.model.decode_hidden(self.tokens, one, counts.long())
        if counts is self.read:
            self.hidden.copy_(hidden)
        if stay:
            self.state.put(0, part)


def watched_model(model: HyMo) -> tuple[Choices, dict[int, Tensor]]:
    """The same of a model as written, from now on."""
    taken: Choices = {}
    given: dict[int, Tensor] = {}

    def wrap(mixture: DeepSeekMoE) -> None:
        route = mixture.route

        def look(tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            result = route(tokens)
            taken[mixture.layer], given[mixture.layer] = result[0], tokens
            return result

        mixture.route = look  # type: ignore[method-assign]

    for mixture in model.mixtures():
        wrap(mixture)
    return taken, given


@contextmanager
def kept(model: HyMo, tokens: int) -> Iterator[Choices]:
    """What the routers of a pass over so many tokens choose, of a compiled model too: it is compiled once more."""
    taken: Choices = {}

    def wrap(mixture: DeepSeekMoE) -> None:
        route, width = mixture.route, mixture.config.n_activated_experts
        taken[mixture.layer] = torch.zeros((tokens, width), dtype=torch.int64, device=mixture.bias.device)

        def look(given: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            result = route(given)
            taken[mixture.layer].copy_(result[0])
            return result

        mixture.route = look  # type: ignore[method-assign]

    for mixture in model.mixtures():
        wrap(mixture)
    try:
        yield taken
    finally:
        for mixture in model.mixtures():
            del mixture.route


@contextmanager
def forced(
    exact: HyMo, choices: Choices, figures: Figures, given: dict[int, Tensor] | None = None, real: Tensor | None = None
) -> Iterator[None]:
    """Let every router of a model take these experts, and note in `figures` how that compares with its own choice.

    Args:
        exact: the model, fp64.
        choices: (N, k) by layer.
        figures: what is found.
        given: (N, dim) what the routers were given that chose so, by layer.
        real: bool (N,) tokens that count; others choose for themselves.
    """

    def wrap(mixture: DeepSeekMoE) -> None:
        route, bias = mixture.route, mixture.bias.double()

        def take(tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            own, _, scores = route(tokens)
            wanted = choices[mixture.layer].long()
            if real is not None:
                wanted = torch.where(real[:, None], wanted, own)
            differ = (wanted.sort(-1).values != own.sort(-1).values).any(-1)
            figures.others, figures.choices = figures.others + int(differ.sum()), figures.choices + len(own)
            if given is not None:
                theirs = given[mixture.layer][real].double()
                figures.router_inputs = max(figures.router_inputs, worst(theirs, tokens[real]))
                figures.choice = max(figures.choice, short(mixture, theirs, route(theirs)[2] + bias, wanted[real]))
            kept = mixture.bias
            mixture.bias = torch.zeros_like(scores).scatter_(-1, wanted, 4.0)  # scores are under 1, so these win
            try:
                return route(tokens)
            finally:
                mixture.bias = kept

        mixture.route = take  # type: ignore[method-assign]

    for mixture in exact.mixtures():
        wrap(mixture)
    try:
        yield
    finally:
        for mixture in exact.mixtures():
            del mixture.route


def short(mixture: DeepSeekMoE, tokens: Tensor, ranking: Tensor, taken: Tensor) -> float:
    """By how much the worst of the chosen experts is under the best of the others, in units of what fp32 explains.

    A sum of n products in fp32 errs by at most n units times the sum of their magnitudes, in any order; a sigmoid's
    slope is at most 1/4; both experts err. The sigmoid itself and the bias add a few units of numbers of about 1.

    Args:
        mixture: with sigmoid scores.
        tokens: (N, dim) fp64, exactly what the tested router was given.
        ranking: (N, E) fp64 scores with the bias.
        taken: (N, k) chosen experts.
    """
    assert mixture.config.router_score == "sigmoid"
    chosen = torch.zeros_like(ranking, dtype=torch.bool).scatter_(-1, taken, True)
    assert bool((chosen.sum(-1) == taken.shape[-1]).all()), "an expert twice"
    missing = ranking.masked_fill(chosen, -torch.inf).amax(-1) - ranking.masked_fill(~chosen, torch.inf).amin(-1)
    magnitudes = (tokens.abs() @ mixture.router.double().abs().T).amax(-1)
    explained = 2 * 0.25 * tokens.shape[-1] * UNIT * magnitudes + 16 * UNIT
    return float((missing / explained).amax().clamp_min(0))
