"""How many tokens to draft: as many as the acceptance so far and the measured cost of a pass say is fastest.

With a_k the chance that the k-th draft is right if those before it were, a pass with d drafts gives on average::

    n(d) = 1 + a_1 + a_1 a_2 + ... + a_1 ... a_d

tokens and takes t(d) seconds, drafting included. The best depth has the greatest n(d) / t(d); 0 is drafting switched
off. A choice changes speed and nothing else: the tokens are the same for any depth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

_FORGET = 0.95
"""Weight of all earlier verdicts against a new one: about the last twenty count."""
_SMOOTH = 0.2
"""Weight of a new time against the earlier ones."""
_WARM = 2
"""Passes of a kind that are not counted: the first ones allocate and tune."""
PROBE = 64
"""Passes after which the full depth is tried again, since text and load change."""


def expected_tokens(acceptance: Sequence[float], depth: int) -> float:
    """Mean tokens of a pass with `depth` drafts.

    Args:
        acceptance: chance of each draft to be right, given that those before it were.
        depth: drafts, at most as many as there are chances.
    """
    total, reached = 1.0, 1.0
    for chance in acceptance[:depth]:
        reached *= chance
        total += reached
    return total


def best_depth(acceptance: Sequence[float], seconds: Sequence[float]) -> int:
    """Depth with the most tokens per second; the smaller one of equals.

    Args:
        acceptance: as in `expected_tokens`.
        seconds: of a pass with 0, 1, ... drafts.
    """
    rates = [expected_tokens(acceptance, depth) / cost for depth, cost in enumerate(seconds)]
    return rates.index(max(rates))


def choose_depth(acceptance: Sequence[float], seconds: Sequence[float | None], passes: int) -> int:
    """Depth of the next pass: one not yet measured, now and then the full one, else the best.

    Args:
        acceptance: as in `expected_tokens`.
        seconds: of a pass with 0, 1, ... drafts; None where too few were measured.
        passes: of this text so far.
    """
    deepest = len(acceptance)
    for depth in range(deepest, -1, -1):
        if seconds[depth] is None:
            return depth
    if passes % PROBE == PROBE - 1:
        return deepest
    return best_depth(acceptance, [cost for cost in seconds if cost is not None])


class Costs:
    """Seconds of a pass by number of rows and of drafts, as measured here; rows in powers of two."""

    def __init__(self) -> None:
        self._seconds: dict[tuple[int, int], float] = {}
        self._count: dict[tuple[int, int], int] = {}

    def note(self, rows: int, depth: int, seconds: float) -> None:
        """Take a measurement in. One that is far too long (the machine did something else) counts for little."""
        key = (rows.bit_length(), depth)
        self._count[key] = self._count.get(key, 0) + 1
        if self._count[key] <= _WARM:
            return
        old = self._seconds.get(key)
        self._seconds[key] = seconds if old is None else old + _SMOOTH * (min(seconds, 3 * old) - old)

    def of(self, rows: int, deepest: int) -> list[float | None]:
        """Seconds for 0..deepest drafts; None where too few were measured."""
        return [self._seconds.get((rows.bit_length(), depth)) for depth in range(deepest + 1)]


@dataclass
class Speculation:
    """How drafting went."""

    proposed: list[int]
    """Drafts that the model judged, by depth: those after a rejected one are not counted."""
    accepted: list[int]
    """Drafts kept, by depth."""
    passes: int = 0
    """Passes of the model after the prompt."""
    tokens: int = 0
    """Tokens that those passes gave."""
    _recent: list[tuple[float, float]] = field(default_factory=list, repr=False)
    """Judged and accepted by depth, forgetting: starts as if one in two had been right."""

    def __post_init__(self) -> None:
        self._recent = [(2.0, 1.0) for _ in self.proposed]

    def note(self, drafts: int, accepted: int) -> None:
        """Count a pass that judged drafts in order until the first wrong one."""
        self.passes += 1
        self.tokens += accepted + 1
        for depth in range(min(accepted + 1, drafts)):
            right = depth < accepted
            self.proposed[depth] += 1
            self.accepted[depth] += right
            judged, kept = self._recent[depth]
            self._recent[depth] = (_FORGET * judged + 1, _FORGET * kept + right)

    def add(self, other: Speculation) -> None:
        """Add the counts of another text."""
        self.passes += other.passes
        self.tokens += other.tokens
        for depth in range(len(self.proposed)):
            self.proposed[depth] += other.proposed[depth]
            self.accepted[depth] += other.accepted[depth]

    @property
    def recent(self) -> list[float]:
        """Acceptance over about the last twenty verdicts, by depth."""
        return [kept / judged for judged, kept in self._recent]

    @property
    def acceptance(self) -> list[float]:
        """Accepted / judged, by depth; 0 where nothing was judged."""
        return [a / p if p else 0.0 for a, p in zip(self.accepted, self.proposed, strict=True)]

    @property
    def tokens_per_pass(self) -> float:
        """Mean tokens per pass; 1 without any use of drafts."""
        return self.tokens / self.passes if self.passes else 0.0
