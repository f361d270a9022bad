"""What a parameter is for. Modules state it, the optimizer partition reads it; neither knows the other."""

from __future__ import annotations

from enum import StrEnum


class Role(StrEnum):
    """The part that a parameter plays in its module."""

    MATRIX = "matrix"
    """A dense 2-D projection (out, in) whose whole update may be orthogonalised."""
    EXPERT = "expert"
    """Weights of a routed or shared expert, stacked (experts, out, in) or 2-D (out, in)."""
    ROUTER = "router"
    """The routing matrix of a mixture of experts."""
    EMBEDDING = "embedding"
    """The token embedding, or an untied output head."""
    SCALAR = "scalar"
    """Norm weights, learned scales, short convolutions and tiny gates."""
    DECAY = "decay"
    """What sets the memory of a recurrence (A_log, dt_bias): gradients far below Adam's usual eps."""


NORMUON_ROLES: dict[str, frozenset[Role]] = {
    "hybrid": frozenset({Role.MATRIX}),
    "adamw": frozenset(),
    "normuon_all": frozenset({Role.MATRIX, Role.EXPERT}),
}
"""What NorMuon updates under each `optimizer.optimizer_partition`; AdamW updates the rest."""
