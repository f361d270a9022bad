"""NorMuon where every rank holds some rows of each matrix: gather, orthogonalise, scatter.

Momentum and second moment are sliced like their parameter. Orthogonalising needs the whole matrix, and so do its norms:
each parameter has an owner, one of all ranks, which is sent the look-ahead gradient and the second moment, computes the
same update as a single process would, and sends every rank its rows of the result. Decay and the step itself are
elementwise. Replicas do no work twice: the owner answers all of them.

Owners are assigned largest first to the rank with the least work so far, work being the multiplications of
Newton-Schulz. The parameters travel in a few parcels: while one is orthogonalised, the next is on its way in and the
last on its way out.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from hymo.training.normuon import NorMuon, Piece, areas, decay, direction, in_stacks
from hymo.training.ranks import Ranks

_PARCELS = 4
"""Parcels per step: enough for one to travel while another is worked on, few enough to keep stacks large."""


def newton_schulz_cost(shape: Sequence[int], rows: Sequence[int], columns: Sequence[int], steps: int) -> int:
    """Multiplications to orthogonalise a parameter of `shape` whose matrices have these row and column counts."""
    total = 0
    for height in rows:
        for width in columns:
            short, long = min(height, width), max(height, width)
            total += steps * short * short * (2 * long + short)
    return total * (shape[0] if len(shape) == 3 else 1)


def assign_owners(costs: Sequence[int], ranks: int) -> list[int]:
    """Give each piece of work to a rank: largest first, always to the one with the least so far."""
    loads = [(0, rank) for rank in range(ranks)]
    owners = [0] * len(costs)
    for item in sorted(range(len(costs)), key=lambda i: (-costs[i], i)):
        load, rank = heapq.heappop(loads)
        owners[item] = rank
        heapq.heappush(loads, (load + costs[item], rank))
    return owners


def slice_of(rows: int, shard: int, shards: int) -> slice:
    """The rows that a shard holds: equal chunks, the last ones short or empty."""
    chunk = -(-rows // shards)
    return slice(min(rows, shard * chunk), min(rows, (shard + 1) * chunk))


@dataclass(frozen=True)
class _Item:
    """One parameter as all ranks know it."""

    param: Tensor
    """This rank's slice."""
    shape: torch.Size
    """Of the whole."""
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    owner: int

    def sizes(self, shard: int, shards: int) -> tuple[int, int]:
        """Elements of a shard's rows, and of their second moments."""
        part = slice_of(self.shape[0], shard, shards)
        height = part.stop - part.start
        inner = self.shape[1:].numel()
        return height * inner, height * (inner // self.shape[-1]) * len(self.columns)


class ShardedNorMuon(NorMuon):
    """NorMuon over slices; arguments as there, and:

    Args:
        shapes: shape of each parameter over all ranks.
        ranks: who holds the other slices.
    """

    def __init__(
        self, params: Iterable[Any], lr: float, *, shapes: Mapping[Tensor, torch.Size], ranks: Ranks, **rest: Any
    ):
        self._shapes, self._ranks = dict(shapes), ranks
        self._plans: dict[int, list[list[_Item]]] = {}
        super().__init__(params, lr, **rest)

    def _whole_shape(self, p: Tensor) -> torch.Size:
        return self._shapes[p]

    def _plan(self, index: int) -> list[list[_Item]]:
        """Parcels of a parameter group, the same on every rank."""
        if index not in self._plans:
            group = self.param_groups[index]
            items = []
            for p in group["params"]:
                shape = self._shapes[p]
                items.append((p, shape, self._blocks.get(p, (shape[-2],)), self._columns.get(p, (shape[-1],))))
            costs = [newton_schulz_cost(shape, rows, cols, group["ns_steps"]) for _, shape, rows, cols in items]
            owners = assign_owners(costs, self._ranks.size)
            known = [_Item(*item, owner) for item, owner in zip(items, owners, strict=True)]
            known.sort(key=lambda item: tuple(item.shape), reverse=True)  # equal shapes travel together
            total, parcels, filled = sum(costs), [list[_Item]()], 0
            for item in known:
                if filled * _PARCELS >= total * len(parcels) and len(parcels) < _PARCELS:
                    parcels.append([])
                parcels[-1].append(item)
                filled += newton_schulz_cost(item.shape, item.rows, item.columns, group["ns_steps"])
            self._plans[index] = parcels
        return self._plans[index]

    def _step_group(self, group: dict[str, Any], grads: dict[Tensor, Tensor]) -> None:
        parcels = self._plan(self._index(group))
        incoming = [_Gather(self, parcel, group, grads) for parcel in parcels]
        outgoing = [gather.orthogonalise(group) for gather in incoming]
        for scatter in outgoing:
            for item, update, moment in scatter.results():
                self.state[item.param]["second_moment"].copy_(moment)
                if group["weight_decay"]:
                    decay(group, update, item.param.clone())
                self._note(group, [item.param], update)
                item.param.add_(update, alpha=-group["lr"])


class _Gather:
    """The rows of one parcel on their way to the owners."""

    def __init__(
        self, optimizer: ShardedNorMuon, parcel: list[_Item], group: dict[str, Any], grads: dict[Tensor, Tensor]
    ) -> None:
        ranks = optimizer._ranks
        self._parcel, self._ranks, self._shards = parcel, ranks, ranks.shards
        replica = ranks.rank // ranks.shards
        some = parcel[0].param
        parts: list[Tensor] = []
        sends = [0] * ranks.size
        for owner in range(replica * ranks.shards, (replica + 1) * ranks.shards):
            for item in parcel:
                if item.owner == owner:
                    state = optimizer.state[item.param]
                    ahead = grads[item.param].lerp(state["momentum"], group["momentum"])
                    parts += [ahead.flatten(), state["second_moment"].flatten()]
            sends[owner] = sum(part.numel() for part in parts) - sum(sends)
        self._mine = [item for item in parcel if item.owner == ranks.rank]
        receives = [
            sum(sum(item.sizes(source % self._shards, self._shards)) for item in self._mine)
            if source // self._shards == replica
            else 0
            for source in range(ranks.size)
        ]
        self._received = some.new_empty(sum(receives))
        self._splits = receives
        self._sent = torch.cat(parts) if parts else some.new_empty(0)
        self._work = dist.all_to_all_single(self._received, self._sent, receives, sends, async_op=True)

    def orthogonalise(self, group: dict[str, Any]) -> _Scatter:
        """Wait for the parcel, compute what this rank owns of it, and send the results off."""
        self._work.wait()
        pieces: dict[int, tuple[list[Tensor], list[Tensor]]] = {id(item): ([], []) for item in self._mine}
        for source, chunk in enumerate(self._received.split(self._splits)):
            if not chunk.numel():
                continue
            sizes = [size for item in self._mine for size in item.sizes(source % self._shards, self._shards)]
            for item, ahead, moment in zip(self._mine, *_alternating(chunk.split(sizes)), strict=True):
                pieces[id(item)][0].append(ahead)
                pieces[id(item)][1].append(moment)
        whole: dict[int, tuple[Tensor, Tensor]] = {}
        tiles: list[Piece] = []
        for item in self._mine:
            aheads, moments = pieces[id(item)]
            update = torch.cat(aheads).view(item.shape)
            moment = torch.cat(moments).view(*item.shape[:-1], len(item.columns))
            whole[id(item)] = update, moment
            tiles += [Piece(update, *area, moment) for area in areas(item.rows, item.columns)]
        for stack in in_stacks(tiles):
            updates = [piece.of(piece.param) for piece in stack]
            moments = [piece.moment_of(piece.moments) for piece in stack if piece.moments is not None]
            counts = [len(update) for update in updates]
            moment = torch.cat(moments)
            update = direction(group, torch.cat(updates), moment)
            torch._foreach_copy_(updates, list(update.split(counts)))
            torch._foreach_copy_(moments, list(moment.split(counts)))
        return _Scatter(self._ranks, self._parcel, [(item, *whole[id(item)]) for item in self._mine])


class _Scatter:
    """The results of one parcel on their way to all ranks."""

    def __init__(self, ranks: Ranks, parcel: list[_Item], owned: list[tuple[_Item, Tensor, Tensor]]) -> None:
        self._ranks, self._parcel = ranks, parcel
        parts: list[Tensor] = []
        sends: list[int] = []
        for target in range(ranks.size):
            before = len(parts)
            for item, update, moment in owned:
                part = slice_of(item.shape[0], target % ranks.shards, ranks.shards)
                parts += [update[part].flatten(), moment[part].flatten()]
            sends.append(sum(part.numel() for part in parts[before:]))
        self._splits = [
            sum(sum(item.sizes(ranks.shard, ranks.shards)) for item in parcel if item.owner == source)
            for source in range(ranks.size)
        ]
        some = parcel[0].param
        self._received = some.new_empty(sum(self._splits))
        self._sent = torch.cat(parts) if parts else some.new_empty(0)
        self._work = dist.all_to_all_single(self._received, self._sent, self._splits, sends, async_op=True)

    def results(self) -> list[tuple[_Item, Tensor, Tensor]]:
        """Wait for the parcel: each parameter with this rank's rows of its update and of its second moment."""
        self._work.wait()
        found = []
        for source, chunk in enumerate(self._received.split(self._splits)):
            items = [item for item in self._parcel if item.owner == source]
            sizes = [size for item in items for size in item.sizes(self._ranks.shard, self._ranks.shards)]
            for item, update, moment in zip(items, *_alternating(chunk.split(sizes)), strict=True):
                rows = item.param.shape
                found.append((item, update.view(rows), moment.view(*rows[:-1], len(item.columns))))
        return found


def _alternating(parts: Sequence[Tensor]) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
    return parts[0::2], parts[1::2]
