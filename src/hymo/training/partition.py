"""Which optimizer updates which parameter, from the role that each module states.

A module states the roles of its parameters in a method `parameter_roles() -> dict[str, Role]`, by their exact names
relative to the module (dotted where they sit in a child). A module that fuses several matrices into one parameter names
their row counts in `parameter_blocks() -> dict[str, tuple[int, ...]]`, and in `parameter_columns()` the column counts
of matrices that lie side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from torch import nn

from hymo.core.errors import TrainingError, nearest
from hymo.core.roles import NORMUON_ROLES, Role

PartitionMode = Literal["hybrid", "adamw", "normuon_all"]


@dataclass(frozen=True)
class ParameterPartition:
    """Every parameter of a model under its first name, in exactly one of the two groups, in the model's order."""

    normuon: Mapping[str, nn.Parameter]
    """Parameters of NorMuon."""
    adamw: Mapping[str, nn.Parameter]
    """Parameters of AdamW."""
    roles: Mapping[str, Role]
    """Role of each parameter of both groups."""
    blocks: Mapping[str, tuple[int, ...]]
    """Row counts of the matrices inside fused parameters; the others are absent."""
    columns: Mapping[str, tuple[int, ...]]
    """Column counts of matrices side by side, likewise."""

    def adamw_groups(self) -> dict[Role, dict[str, nn.Parameter]]:
        """AdamW's parameters by role; roles without a parameter are absent."""
        groups: dict[Role, dict[str, nn.Parameter]] = {}
        for name, parameter in self.adamw.items():
            groups.setdefault(self.roles[name], {})[name] = parameter
        return groups


def goes_to_adamw(role: Role, ndim: int, mode: PartitionMode = "hybrid") -> bool:
    """Tell whether AdamW updates a parameter.

    Args:
        role: what its module states.
        ndim: its dimensions; only matrices and stacks of matrices can be orthogonalised.
        mode: `hybrid` gives NorMuon the dense matrices, `adamw` nothing, `normuon_all` the experts as well.
    """
    return ndim not in (2, 3) or role not in NORMUON_ROLES[mode]


def partition_parameters(model: nn.Module, mode: PartitionMode = "hybrid") -> ParameterPartition:
    """Split the parameters of `model`; a tied parameter counts once, under its first name.

    Args:
        model: any module; meta tensors will do.
        mode: as in `goes_to_adamw`.

    Raises:
        TrainingError: a parameter without a role or with two, a stated name that is no parameter, a matrix or expert
            that is not 2-D or 3-D.
    """
    roles = _stated(model, "parameter_roles")
    blocks, columns = _stated(model, "parameter_blocks"), _stated(model, "parameter_columns")
    normuon: dict[str, nn.Parameter] = {}
    adamw: dict[str, nn.Parameter] = {}
    for name, parameter in model.named_parameters():
        if parameter not in roles:
            raise TrainingError(f"{name}: no role is stated. List it in parameter_roles() of its module.")
        role = Role(roles[parameter])
        if role in (Role.MATRIX, Role.EXPERT) and parameter.ndim not in (2, 3):
            raise TrainingError(
                f"{name}: shape {tuple(parameter.shape)} cannot have the role '{role}'. "
                "State 'scalar', or use (out, in) or (experts, out, in)."
            )
        (adamw if goes_to_adamw(role, parameter.ndim, mode) else normuon)[name] = parameter
    named = dict(model.named_parameters())
    return ParameterPartition(
        normuon=normuon,
        adamw=adamw,
        roles={name: Role(roles[parameter]) for name, parameter in named.items()},
        blocks={name: tuple(blocks[parameter]) for name, parameter in named.items() if parameter in blocks},
        columns={name: tuple(columns[parameter]) for name, parameter in named.items() if parameter in columns},
    )


def _stated(model: nn.Module, method: str) -> dict[nn.Parameter, Any]:
    """Collect what the modules of `model` state about their parameters through `method`, each parameter once."""
    parameters = dict(model.named_parameters(remove_duplicate=False))
    stated: dict[nn.Parameter, Any] = {}
    for prefix, module in model.named_modules():
        state: Callable[[], Mapping[str, Any]] | None = getattr(module, method, None)
        for relative, value in (state() if state is not None else {}).items():
            name = f"{prefix}.{relative}" if prefix else relative
            if name not in parameters:
                raise TrainingError(f"{name}: {method}() names it, but it is no parameter{nearest(name, parameters)}.")
            known = stated.setdefault(parameters[name], value)
            if known != value:
                raise TrainingError(f"{name}: {method}() states '{value}', elsewhere '{known}'. State one.")
    return stated
