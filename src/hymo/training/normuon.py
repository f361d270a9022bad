"""NorMuon: orthogonalised momentum with a second moment per output neuron (arXiv 2510.05491).

For a weight W (out, in) with gradient G, learning rate lr and decay d:

    M <- mu M + (1 - mu) G                        momentum, an exponential average
    O <- NewtonSchulz((1 - mu) G + mu M)          Nesterov look-ahead, singular values driven to 1
    v <- beta2 v + (1 - beta2) mean_in(O * O)     one number per row
    N <- O / (sqrt(v) + eps)
    U <- N |O|_F / |N|_F * sqrt(max(1, out/in))   rows evened out, size kept
    W <- W - lr (U + d [U * W > 0] W)             cautious decay (arXiv 2510.12402), strictly positive only

v needs no bias correction: a factor common to all rows cancels in U. The Frobenius norm is taken over a whole matrix,
never over a shard of it. Turned off, the normalisation leaves Muon with U = O sqrt(max(1, out/in)).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, overload

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer

from hymo.core.errors import ConfigError, UsageError

Coefficients = Literal["polar_express", "jordan"]
NsDtype = Literal["bfloat16", "float32"]
Scale = Literal["frobenius", "rms"]


@dataclass(frozen=True)
class _Polynomial:
    """Coefficients (a, b, c) per iteration; the last triple repeats. The input is X / (margin |X|_F + eps)."""

    triples: tuple[tuple[float, float, float], ...]
    margin: float
    eps: float


_POLYNOMIALS: dict[str, _Polynomial] = {
    # Polar Express (arXiv 2505.16932), five steps, safety 2 %, cushion 2.
    "polar_express": _Polynomial(
        (
            (8.156554524902461, -22.48329292557795, 15.878769915207462),
            (4.042929935166739, -2.808917465908714, 0.5000178451051316),
            (3.8916678022926607, -2.772484153217685, 0.5060648178503393),
            (3.285753657755655, -2.3681294933425376, 0.46449024233003106),
            (2.3465413258596377, -1.7097828382687081, 0.42323551169305323),
        ),
        margin=1.02,
        eps=1e-6,
    ),
    # K. Jordan's quintic of the original Muon: steeper at zero, singular values end in 0.68..1.2.
    "jordan": _Polynomial(((3.4445, -4.7750, 2.0315),), margin=1.0, eps=1e-7),
}
_DTYPES: dict[str, torch.dtype] = {"bfloat16": torch.bfloat16, "float32": torch.float32}

_RMS = 0.2
"""RMS of an AdamW update in practice; the `rms` scale matches it so that both optimizers can share one rate."""
_TINY = 1e-30
"""Smallest divisor of the rescaling: keeps 0 / 0 at 0 and is far below any norm in use."""
_STACK_ELEMENTS = 1 << 26
"""Largest stack orthogonalised at once, in elements (256 MB in fp32): bounds the temporary memory."""


def newton_schulz(
    x: Tensor, steps: int = 5, coefficients: Coefficients = "polar_express", dtype: torch.dtype = torch.bfloat16
) -> Tensor:
    """Replace the singular values of each matrix by values near 1.

    Args:
        x: matrices (..., m, n), any floating dtype. A zero matrix stays zero; matrices with a Frobenius norm far below
            1e-9 shrink towards zero, because what is left in them is noise.
        steps: iterations.
        coefficients: the polynomial, `polar_express` (arXiv 2505.16932) or `jordan`.
        dtype: precision of the matrix products. The norm is taken in the dtype of `x`, at least fp32.

    Returns:
        (..., m, n) in `dtype`.
    """
    polynomial = _POLYNOMIALS[coefficients]
    stack = x.reshape(-1, *x.shape[-2:])
    stack = stack.to(torch.promote_types(stack.dtype, torch.float32))
    stack = (stack / (polynomial.margin * _frobenius(stack) + polynomial.eps)).to(dtype)
    tall = stack.shape[-2] > stack.shape[-1]
    if tall:  # the Gram matrix of the shorter side is the cheaper one
        stack = stack.mT
    for step in range(steps):
        a, b, c = polynomial.triples[min(step, len(polynomial.triples) - 1)]
        gram = stack @ stack.mT
        stack = torch.baddbmm(stack, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), stack, beta=a)
    return (stack.mT if tall else stack).reshape(x.shape)


class NorMuon(Optimizer):
    """NorMuon for matrices (out, in) and stacks of them (experts, out, in), which count as separate matrices.

    Matrices of one shape are orthogonalised as one stack. Masters and moments are fp32. The state exists from
    construction on: `momentum` in the shape of the parameter and `second_moment` (..., out, 1), with a column for each
    of the matrices where several lie side by side. A missing gradient counts as zero, and a parameter that never had a
    gradient does not move, nor decays where decay is cautious.

    Args:
        params: parameters, (name, parameter) pairs or groups, as in `torch.optim`.
        lr: learning rate of a group; read from `param_groups` at each step.
        momentum: weight of the past in the momentum, in [0, 1).
        beta2: weight of the past in the second moment, in [0, 1).
        weight_decay: decoupled decay per unit of lr.
        cautious: decay only the weights that the update moves towards zero.
        normalize: the row normalisation; off is plain Muon.
        scale: `frobenius` as in the module's docstring, or `rms`: an update of RMS 0.2 (step 5 of arXiv 2510.05491);
            without normalisation that is the factor 0.2 sqrt(max(out, in)) of arXiv 2502.16982.
        ns_steps: Newton-Schulz iterations.
        ns_dtype: their precision.
        ns_coefficients: their polynomial.
        eps: guard of the division by sqrt(v).
        blocks: row counts of the matrices that a fused parameter (..., rows, in) stacks; each is treated on its own.
        columns: column counts of matrices that lie side by side in a parameter (..., out, columns), likewise.

    Raises:
        ConfigError: a hyperparameter out of range.
        UsageError: a parameter that is no matrix or is in half precision, or blocks or columns that do not add up.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        *,
        momentum: float = 0.95,
        beta2: float = 0.95,
        weight_decay: float = 0.1,
        cautious: bool = True,
        normalize: bool = True,
        scale: Scale = "frobenius",
        ns_steps: int = 5,
        ns_dtype: NsDtype = "bfloat16",
        ns_coefficients: Coefficients = "polar_express",
        eps: float = 1e-8,
        blocks: Mapping[Tensor, tuple[int, ...]] | None = None,
        columns: Mapping[Tensor, tuple[int, ...]] | None = None,
    ) -> None:
        for name, value, valid in (
            ("lr", lr, lr >= 0),
            ("momentum", momentum, 0 <= momentum < 1),
            ("beta2", beta2, 0 <= beta2 < 1),
            ("weight_decay", weight_decay, weight_decay >= 0),
            ("scale", scale, scale in ("frobenius", "rms")),
            ("ns_steps", ns_steps, ns_steps >= 1),
            ("ns_dtype", ns_dtype, ns_dtype in _DTYPES),
            ("ns_coefficients", ns_coefficients, ns_coefficients in _POLYNOMIALS),
        ):
            if not valid:
                raise ConfigError(f"NorMuon: {name}={value!r} is out of range. See the class for its values.")
        self._blocks, self._columns = dict(blocks or {}), dict(columns or {})
        self._noted: list[Tensor] | None = None
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "beta2": beta2,
            "weight_decay": weight_decay,
            "cautious": cautious,
            "normalize": normalize,
            "scale": scale,
            "ns_steps": ns_steps,
            "ns_dtype": ns_dtype,
            "ns_coefficients": ns_coefficients,
            "eps": eps,
        }
        super().__init__(params, defaults)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group, check its parameters and create their state."""
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        names = group.get("param_names") or [f"parameter {i}" for i in range(len(group["params"]))]
        for name, p in zip(names, group["params"], strict=True):
            shape = tuple(self._whole_shape(p))
            if p.ndim not in (2, 3):
                raise UsageError(f"NorMuon: {name} has shape {shape}. It takes matrices; give the rest to AdamW.")
            if p.dtype not in (torch.float32, torch.float64):
                raise UsageError(f"NorMuon: {name} is {p.dtype}. Keep masters in float32 and cast for compute.")
            rows, columns = self._blocks.get(p, (shape[-2],)), self._columns.get(p, (shape[-1],))
            for what, size, parts in (("rows", shape[-2], rows), ("columns", shape[-1], columns)):
                if sum(parts) != size or min(parts) < 1:
                    raise UsageError(f"NorMuon: {name} has {size} {what}, its blocks are {parts}. Make them add up.")
            moment = torch.zeros_like(p[..., : len(columns)])
            self.state[p] = {"momentum": torch.zeros_like(p), "second_moment": moment}

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Update every parameter once; returns what `closure` returned, if one is given."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            params: list[Tensor] = group["params"]
            grads = {p: torch.zeros_like(p) if p.grad is None else p.grad.to(p.dtype) for p in params}
            torch._foreach_lerp_(
                [self.state[p]["momentum"] for p in params], list(grads.values()), 1 - group["momentum"]
            )
            self._step_group(group, grads)
        return loss

    @torch.no_grad()
    def step_noted(self) -> list[Tensor]:
        """Step; for each group the sums of squares (2,) of its weights before and of their change, in this process."""
        self._noted = [group["params"][0].new_zeros(2) for group in self.param_groups]
        try:
            self.step()
            return self._noted
        finally:
            self._noted = None

    def _note(self, group: dict[str, Any], weights: Sequence[Tensor], update: Tensor) -> None:
        """Count weights that are about to be moved by -lr times `update`, if somebody asked."""
        if self._noted is not None:
            norms = (*torch._foreach_norm(list(weights)), group["lr"] * torch.linalg.vector_norm(update))
            squares = torch.stack(norms).square()
            self._noted[self._index(group)] += torch.stack((squares[:-1].sum(), squares[-1]))

    def _index(self, group: dict[str, Any]) -> int:
        """Place of a group among all: they are dictionaries, which compare by what they hold."""
        return next(i for i, each in enumerate(self.param_groups) if each is group)

    def _whole_shape(self, p: Tensor) -> torch.Size:
        """Shape of the matrices that a parameter is, or is a slice of."""
        return p.shape

    def _step_group(self, group: dict[str, Any], grads: dict[Tensor, Tensor]) -> None:
        """Move the parameters of a group, whose momentum has been advanced by `grads`."""
        for pieces in in_stacks([piece for p in group["params"] for piece in self._pieces(p)]):
            self._update(group, pieces, grads)

    def _pieces(self, p: Tensor) -> Iterator[Piece]:
        """Yield the matrices of a parameter, by rows and columns."""
        rows, columns = self._blocks.get(p, (p.shape[-2],)), self._columns.get(p, (p.shape[-1],))
        for area in areas(rows, columns):
            yield Piece(p, *area)

    def _update(self, group: dict[str, Any], pieces: list[Piece], grads: dict[Tensor, Tensor]) -> None:
        """Move the matrices of one stack. Tensors are (matrices, out, in), moments of rows (matrices, out, 1)."""
        momentum = torch.cat([piece.of(self.state[piece.param]["momentum"]) for piece in pieces])
        update = torch.cat([piece.of(grads[piece.param]) for piece in pieces]).lerp_(momentum, group["momentum"])
        weights = [piece.of(piece.param) for piece in pieces]
        counts = [len(w) for w in weights]
        moments = [piece.moment_of(self.state[piece.param]["second_moment"]) for piece in pieces]
        moment = torch.cat(moments)
        update = direction(group, update, moment)
        torch._foreach_copy_(moments, list(torch.split(moment, counts)))
        if group["weight_decay"]:
            decay(group, update, torch.cat(weights))
        self._note(group, weights, update)
        torch._foreach_add_(weights, list(torch.split(update, counts)), alpha=-group["lr"])


def direction(group: Mapping[str, Any], update: Tensor, moment: Tensor) -> Tensor:
    """U of whole matrices from their look-ahead gradients.

    Args:
        group: hyperparameters, as in a parameter group of NorMuon.
        update: (matrices, out, in), fp32 or fp64.
        moment: second moments of the rows (matrices, out, 1); advanced in place.

    Returns:
        (matrices, out, in) in the dtype of `update`, without the learning rate and without decay.
    """
    out, n_in = update.shape[-2:]
    dtype = update.dtype
    update = newton_schulz(update, group["ns_steps"], group["ns_coefficients"], _DTYPES[group["ns_dtype"]]).to(dtype)
    if group["normalize"]:
        moment.lerp_(update.square().mean(-1, keepdim=True), 1 - group["beta2"])
        norm = _frobenius(update)
        update.div_(moment.sqrt().add_(group["eps"]))
        if group["scale"] == "rms":
            # A live orthogonalised matrix has a norm of at least about 0.7; below 0.5 it is dead and fades out
            # instead of taking a full step of noise.
            norm = _RMS * math.sqrt(out * n_in) * (2 * norm).clamp(max=1)
        update.mul_(norm / _frobenius(update).clamp(min=_TINY))
    if group["scale"] == "frobenius":
        update.mul_(math.sqrt(max(1.0, out / n_in)))
    elif not group["normalize"]:
        update.mul_(_RMS * math.sqrt(max(out, n_in)))
    return update


def decay(group: Mapping[str, Any], update: Tensor, weight: Tensor) -> None:
    """Add the decay to `update` in place, element by element; `weight`, a copy, is used up."""
    if group["cautious"]:
        weight.mul_(update * weight > 0)
    update.add_(weight, alpha=group["weight_decay"])


@dataclass(frozen=True)
class Piece:
    """Some rows and columns of a parameter: one matrix, or one of each expert."""

    param: Tensor
    rows: slice
    columns: slice
    place: slice
    """Which of the matrices side by side it is."""
    moments: Tensor | None = None
    """The parameter's second moments, where they travel with it."""

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns)."""
        return self.rows.stop - self.rows.start, self.columns.stop - self.columns.start

    def of(self, tensor: Tensor) -> Tensor:
        """View its part of `tensor`, which has the parameter's shape, as (matrices, rows, columns)."""
        return self._stacked(tensor)[:, self.rows, self.columns]

    def moment_of(self, moments: Tensor) -> Tensor:
        """View its part of the parameter's second moments as (matrices, rows, 1)."""
        return self._stacked(moments)[:, self.rows, self.place]

    @staticmethod
    def _stacked(tensor: Tensor) -> Tensor:
        return tensor if tensor.ndim == 3 else tensor.unsqueeze(0)


def in_stacks(pieces: Iterable[Piece]) -> Iterator[list[Piece]]:
    """Yield pieces whose matrices have one shape, dtype and device, at most _STACK_ELEMENTS at a time."""
    stacks: dict[tuple[Any, ...], list[Piece]] = {}
    sizes: dict[tuple[Any, ...], int] = {}
    for piece in pieces:
        p = piece.param
        key = (*piece.shape, p.dtype, p.device)
        size = p.numel() // (p.shape[-2] * p.shape[-1]) * piece.shape[0] * piece.shape[1]
        if key in stacks and sizes[key] + size > _STACK_ELEMENTS:
            yield stacks.pop(key)
            sizes[key] = 0
        stacks.setdefault(key, []).append(piece)
        sizes[key] = sizes.get(key, 0) + size
    yield from stacks.values()


def areas(rows: Sequence[int], columns: Sequence[int]) -> Iterator[tuple[slice, slice, slice]]:
    """Yield the rows, the columns and the place side by side of each matrix in a parameter that fuses several."""
    start = 0
    for height in rows:
        left = 0
        for place, width in enumerate(columns):
            yield slice(start, start + height), slice(left, left + width), slice(place, place + 1)
            left += width
        start += height


def _frobenius(x: Tensor) -> Tensor:
    """Frobenius norm of each matrix, (..., 1, 1)."""
    norm: Tensor = torch.linalg.matrix_norm(x, keepdim=True)
    return norm
