"""What ranks do in `test_ranks_*.py`: functions that a rank's process can import. Each returns plain values."""

from __future__ import annotations

import contextlib
import hashlib
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from hymo.core.config import HyMoConfig
from hymo.core.load import derive_config, load_config
from hymo.models.moe import DeepSeekMoE
from hymo.training.metrics import read_metrics
from hymo.training.normuon import NorMuon
from hymo.training.ranks import Ranks, open_ranks
from hymo.training.run import open_run, run_folder
from hymo.training.sharded_normuon import ShardedNorMuon, slice_of
from hymo.training.trainer import Trainer
from training_helpers import stop_after

ROWS = 12
"""Micro-batches of a step, one row each: 1, 2, 3 and 4 ranks divide them."""
STEPS = 20


def odd_config(folder: Path, data: Path) -> HyMoConfig:
    """Two blocks with sizes that no number of ranks divides: experts 3, inner width 31, model width 36."""
    return derive_config(
        load_config("hymo_tiny"),
        model={
            "dim": 36,
            "n_layers": 2,
            "mla_layers": [1],
            "gdn_d_inner": 64,
            "gdn_chunk_size": 16,
            "n_routed_experts": 3,
            "moe_inter_dim": 31,
            "n_heads": 3,
            "n_kv_groups": 1,
        },
        optimizer={"ns_dtype": "float32"},
        scheduler={"total_steps": STEPS},
        training={
            "micro_batch_size": 1,
            "grad_accum_steps": ROWS,
            "seq_len": 32,
            "eval_interval": 4,
            "eval_sequences": 5,
            "checkpoint_interval": 100,
            "log_interval": 1,
            "start_timeout_minutes": 1.0,
            "rank_timeout_minutes": 0.5,
        },
        run={"output_dir": str(folder), "data": str(data), "device": "cpu", "name": "odd"},
    )


def uneven(steps: int, length: int) -> Iterator[dict[str, Any]]:
    """Micro-batches with very different numbers of targets; every seventh has a document per token, so none at all."""
    rng = np.random.default_rng(7)
    for number in range(steps * ROWS):
        bounds = [0, length + 1]
        if number % 7 == 3:
            bounds = list(range(length + 2))
        elif number % 2:
            bounds = sorted({0, length + 1, *rng.integers(1, length, rng.integers(1, length)).tolist()})
        tokens = rng.integers(3, 60, (1, length + 1)) ** 2 % 259
        yield {"tokens": tokens, "cu_seqlens": np.array(bounds, np.int32)}


def whole(trainer: Trainer) -> dict[str, Any]:
    """Every parameter as NumPy, put together from the slices of all ranks."""
    found = {}
    for name, parameter in trainer.parameters.items():
        parts: list[Any] = [parameter.detach()]
        if name in trainer.rows:
            parts = trainer.ranks.everywhere(lambda p=parameter: p.detach().clone())[: trainer.ranks.shards]
        found[name] = torch.cat(parts).numpy().copy()
    return found


@contextlib.contextmanager
def routes() -> Iterator[list[Any]]:
    """Record the expert sets chosen in passes with gradients, and how close the next expert came."""
    seen: list[Any] = []
    original = DeepSeekMoE.route

    def route(self: DeepSeekMoE, tokens: torch.Tensor) -> Any:
        chosen, weights, scores = original(self, tokens)
        if torch.is_grad_enabled():
            ranked = (scores.detach() + self.bias).sort(-1, descending=True).values
            k = self.config.n_activated_experts
            seen.append((chosen.sort(-1).values.numpy().copy(), (ranked[:, k - 1] - ranked[:, k]).numpy().copy()))
        return chosen, weights, scores

    DeepSeekMoE.route = route  # type: ignore[method-assign]
    try:
        yield seen
    finally:
        DeepSeekMoE.route = original  # type: ignore[method-assign]


def curve(ranks: Ranks, config: HyMoConfig) -> dict[str, Any]:
    """Twenty steps on uneven batches: what was recorded, the weights, and the routing of every micro-batch."""
    with routes() as seen:
        trainer = Trainer(config, uneven(STEPS, config.training.seq_len), ranks=ranks)
        first = whole(trainer)
        records = [trainer.take_step(trainer.next_windows(), telemetry=i % 6 == 0)[0] for i in range(STEPS)]
    return {
        "records": records,
        "first": first,
        "weights": whole(trainer),
        "bias": [m.bias.numpy().copy() for m in trainer.master.mixtures()],
        "routes": seen,
        "tokens": trainer.tokens,
    }


SHAPES = [(7, 5), (2, 3), (1, 4), (13, 13), (31, 36), (3, 11, 6), (20, 8), (20, 8), (20, 8)]
BLOCKS = {4: (10, 21), 6: (6, 14)}
COLUMNS = {7: (3, 5)}


def normuon_against_single(ranks: Ranks, **settings: Any) -> float:
    """Largest difference of weights after 6 steps of a sharded and a single NorMuon, relative to the largest weight."""
    torch.manual_seed(3)
    whole = [torch.nn.Parameter(torch.randn(shape)) for shape in SHAPES]
    part = [slice_of(p.shape[0], ranks.shard, ranks.shards) for p in whole]
    mine = [torch.nn.Parameter(p.detach()[s].clone()) for p, s in zip(whole, part, strict=True)]
    named: dict[str, Any] = {"lr": 0.02, "ns_dtype": "float32", **settings}
    single = NorMuon(
        whole,
        blocks={whole[i]: b for i, b in BLOCKS.items()},
        columns={whole[i]: c for i, c in COLUMNS.items()},
        **named,
    )
    sharded = ShardedNorMuon(
        mine,
        shapes={m: w.shape for m, w in zip(mine, whole, strict=True)},
        ranks=ranks,
        blocks={mine[i]: b for i, b in BLOCKS.items()},
        columns={mine[i]: c for i, c in COLUMNS.items()},
        **named,
    )
    for step in range(6):
        for i, (w, m, s) in enumerate(zip(whole, mine, part, strict=True)):
            w.grad = None if (i, step) == (3, 2) else torch.randn(w.shape)
            if (i, step) == (4, 1):
                w.grad = torch.zeros_like(w)
            m.grad = None if w.grad is None else w.grad[s].clone()
        single.step()
        sharded.step()
    worst = 0.0
    for w, m, s in zip(whole, mine, part, strict=True):
        for ours, theirs in ((m, w[s]), (sharded.state[m]["second_moment"], single.state[w]["second_moment"][s])):
            if ours.numel():
                worst = max(worst, float((ours - theirs).detach().abs().max() / w.detach().abs().max()))
    return worst


def poisoned(ranks: Ranks, config: HyMoConfig) -> dict[str, Any]:
    """The gradient of one parameter is not finite on the last rank alone, in step 2 of 3."""
    events: list[Any] = []

    class Recorder:
        def on_metrics(self, record: Any) -> None: ...

        def on_event(self, kind: str, fields: Any) -> None:
            if kind == "skip":
                events.append(dict(fields))

    trainer = Trainer(config, uneven(3, config.training.seq_len), ranks=ranks, callbacks=[Recorder()])
    hashes = []
    for step in range(3):
        windows = trainer.next_windows()
        hook = None
        if step == 1 and ranks.rank == ranks.size - 1:
            a_log = dict(trainer.master.named_parameters())["layers.0.A_log"]
            hook = a_log.register_hook(lambda grad: torch.full_like(grad, math.nan))
        trainer.take_step(windows)
        if hook is not None:
            hook.remove()
        hashes.append(state_hash(trainer))
    return {"events": events, "changed": [a != b for a, b in zip(hashes, hashes[1:], strict=False)]}


def state_hash(trainer: Trainer, rng: bool = True) -> str:
    """This rank's part of weights, buffers, optimizer states and RNG, bit for bit."""
    digest = hashlib.sha256()

    def add(value: Any, path: str) -> None:
        if isinstance(value, dict):
            for key in sorted(value):
                add(value[key], f"{path}/{key}")
        else:
            digest.update(path.encode() + value.detach().cpu().contiguous().numpy().tobytes())

    state = trainer.state()
    add(state if rng else {k: v for k, v in state.items() if k != "rng"}, "")
    return digest.hexdigest()


def train(ranks: Ranks, config: HyMoConfig, until: int | None = None) -> dict[str, Any]:
    """Open the run, resumed if it is there, and train to the end or to a stop after `until`."""
    with open_run(config, ranks=ranks) as trainer:
        if until is not None:
            stop_after(trainer, until)
        result = trainer.train()
        final = {"hash": state_hash(trainer), "result": result, "replicated": replicated(trainer)}
    records = read_metrics(run_folder(config)) if ranks.first else []
    return {**final, "records": records}


def replicated(trainer: Trainer) -> bool:
    """Whether all that every rank holds whole is the same on each."""
    whole = {n: p.detach() for n, p in trainer.parameters.items() if n not in trainer.rows}
    whole |= {n: b for n, b in trainer.master.named_buffers()}
    digest = hashlib.sha256(b"".join(t.numpy().tobytes() for t in whole.values())).hexdigest()
    return len(set(trainer.ranks.everywhere(lambda: digest))) == 1


def do(rank: int, config: HyMoConfig, tasks: dict[str, tuple[str, dict[str, Any]]]) -> dict[str, Any]:
    """Several tasks in one group: results by name."""
    with open_ranks(config) as ranks:
        done = {name: globals()[function](ranks, **arguments) for name, (function, arguments) in tasks.items()}
        if ranks.size > 1:
            dist.barrier()
        return done if rank == 0 else {name: value for name, value in done.items() if name in ALL_RANKS}


ALL_RANKS = ("poisoned", "straight", "resumed", "normuon", "hsdp_normuon")
