"""What ranks do in `test_ranks_*.py`: functions that a rank's process can import. Each returns plain values."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import itertools
import math
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import torch.distributed as dist

from hymo.core.config import HyMoConfig
from hymo.core.errors import CheckpointError, HymoError, UsageError
from hymo.core.load import derive_config, load_config
from hymo.models.checkpoint import Manifest, list_checkpoints, verified
from hymo.models.moe import DeepSeekMoE
from hymo.training import checkpointer, optimizers
from hymo.training.checkpointer import Checkpointer
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
            "mtp_depth": 1,
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


def curve(ranks: Ranks, config: HyMoConfig, steps: int = STEPS) -> dict[str, Any]:
    """Steps on uneven batches: what was recorded, the weights, and the routing of every micro-batch."""
    optimizers._COPIED = 500  # a measured step in several parts, cut alike on every rank
    with routes() as seen:
        trainer = Trainer(config, uneven(STEPS, config.training.seq_len), ranks=ranks)
        first = whole(trainer)
        records = [trainer.take_step(trainer.next_windows(), telemetry=i % 6 == 0)[0] for i in range(steps)]
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
    return {"events": events, "changed": [a != b for a, b in itertools.pairwise(hashes)]}


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
    """Whether all that every rank holds whole is the same on each, and a slice the same in each replica."""
    whole = {n: p.detach() for n, p in trainer.parameters.items() if n not in trainer.rows}
    whole |= dict(trainer.master.named_buffers())
    slices = [p.detach() for n, p in trainer.parameters.items() if n in trainer.rows]
    digests = [
        hashlib.sha256(b"".join(t.numpy().tobytes() for t in tensors)).hexdigest()
        for tensors in (whole.values(), slices)
    ]
    found = trainer.ranks.everywhere(lambda: (trainer.ranks.shard, *digests))
    return len({each[1] for each in found}) == 1 and len({each[::2] for each in found}) == trainer.ranks.shards


def saves(ranks: Ranks, folder: Path) -> list[str]:
    """Checkpoints 1, 2 and 3 of tensors of which each rank holds some rows; the errors, if any."""
    saver = Checkpointer(folder, "model: {}\n", 10, ranks=ranks, rows={"w": 50})
    errors = []
    for step in (1, 2, 3):
        saver.start(slices(ranks, step), manifest(step, ranks.size))
        errors += [result.error for result in saver.finished(wait=True)]
    return errors


def slices(ranks: Ranks, step: int) -> dict[str, Any]:
    w = torch.full((50, 3), float(step))[slice_of(50, ranks.shard, ranks.shards)]
    return {"model": {"w": w, "b": torch.arange(step)}, "optimizer": {}}


def manifest(step: int, world: int) -> Manifest:
    return Manifest(1, "0", "0", "hash", "tok", "data", step, step * 10, None, world)


def troubled_saves(ranks: Ranks, folder: Path) -> dict[str, Any]:
    """Saves where the first rank sees the other's file late, never, where the other's disk is full, and a long one."""
    saver = Checkpointer(folder, "model: {}\n", 10, ranks=ranks, rows={"w": 50})
    told: dict[str, Any] = {}
    real_size, real_flush, real_wait = checkpointer._size, checkpointer.flush, checkpointer._VISIBLE_SECONDS
    real_verify = checkpointer.verify
    began = time.monotonic()

    def hidden(seconds: float) -> Callable[[Path], int]:
        shown = time.monotonic() + seconds
        return lambda path: -1 if "__1_" in path.name and time.monotonic() < shown else real_size(path)

    def full(path: Path) -> None:
        raise OSError(28, "No space left on device")

    def slow(*arguments: Any) -> Manifest:
        time.sleep(1.5)
        return real_verify(*arguments)

    for step, kind in enumerate(("fine", "late", "never", "full", "again", "long"), 1):
        if kind == "long":  # reading it back takes longer than a rank may be late in a step
            ranks.limit_waits(0.01)
            checkpointer.verify = slow
        checkpointer._size = hidden({"late": 0.6, "never": 60.0}.get(kind, 0.0))
        checkpointer._VISIBLE_SECONDS = 0.3 if kind == "never" else real_wait
        checkpointer.flush = full if kind == "full" and ranks.rank == 1 else real_flush
        began = time.monotonic()
        saver.start(slices(ranks, step), manifest(step, ranks.size))
        (result,) = saver.finished(wait=True)
        told[kind] = (result.error, time.monotonic() - began)
    ranks.limit_waits(0.5)
    checkpointer.verify = real_verify
    checkpointer._size, checkpointer.flush, checkpointer._VISIBLE_SECONDS = real_size, real_flush, real_wait
    return told


def boundaries(ranks: Ranks, folder: Path) -> list[tuple[int, int, str, int]]:
    """Saves in which the n-th write operation of one rank fails, whatever it is, until none is left to fail.

    Returns (rank, n, error, step of the newest whole checkpoint) of each save; its own step is its place, from 1.
    """
    saver = Checkpointer(folder, "model: {}\n", 1000, ranks=ranks, rows={"w": 50})
    owners = [(os, "fsync"), (Path, "write_text"), (Path, "rename"), (Path, "mkdir")]
    originals = [getattr(owner, name) for owner, name in owners]
    left = {"until": 0}

    def guard(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            left["until"] -= 1
            if left["until"] == -1:
                raise OSError(28, "No space left on device")
            return original(*args, **kwargs)

        return call

    told: list[tuple[int, int, str, int]] = []
    for victim in range(ranks.size):
        for place in range(100):
            left["until"] = place if ranks.rank == victim else 10**9
            for (owner, name), original in zip(owners, originals, strict=True):
                setattr(owner, name, guard(original))
            saver.start(slices(ranks, len(told) + 1), manifest(len(told) + 1, ranks.size))
            (result,) = saver.finished(wait=True)
            for (owner, name), original in zip(owners, originals, strict=True):
                setattr(owner, name, original)
            whole = ranks.on_first(lambda: next((m.step for _, m in verified(list_checkpoints(folder), print)), 0))
            leftovers = ranks.on_first(lambda: [path.name for path in folder.glob(".tmp-*")])
            assert not leftovers, leftovers
            told.append((victim, place, result.error, whole))
            if result.error == "":
                break
    return told


def memory(ranks: Ranks, config: HyMoConfig, folder: Path) -> list[int]:
    """Resident bytes of this rank after each of 20 saves made while training goes on."""
    sizes = []
    trainer = Trainer(config, uneven(STEPS, config.training.seq_len), ranks=ranks)
    ballast = torch.zeros(1 << 20)  # 4 MiB: a copy kept per save would show
    saver = Checkpointer(folder, "", 2, ranks=ranks, rows=trainer.rows)
    for step in range(1, 21):
        state = trainer.state()
        state["model"]["ballast"] = ballast
        saver.start(state, manifest(step, ranks.size))
        trainer.take_step(trainer.next_windows())
        assert all(result.error == "" for result in saver.finished())
        gc.collect()
        with open("/proc/self/statm") as file:
            sizes.append(int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE"))
    assert all(result.error == "" for result in saver.finished(wait=True))
    return sizes


def agreement(ranks: Ranks) -> dict[str, Any]:
    """What ranks are told when one of them fails in work that all wait for."""
    told: dict[str, Any] = {}

    def refuse() -> None:
        raise UsageError("no")

    def on_last() -> int:
        if ranks.rank == ranks.size - 1:
            raise CheckpointError("gone")
        return ranks.rank

    for name, call in (("first", lambda: ranks.on_first(refuse)), ("everywhere", lambda: ranks.everywhere(on_last))):
        try:
            call()
        except HymoError as error:
            told[name] = (type(error).__name__, str(error), getattr(error, "usage", None))
    told["sum"] = ranks.exchange([ranks.rank, 2**40])
    return told


def compiled(ranks: Ranks, config: HyMoConfig) -> dict[str, Any]:
    """Losses of two steps of attention blocks as written and compiled, with each mode of recomputation, and graphs.

    Those with compiled blocks are observed too, in passes apart as on a GPU.
    """
    found: dict[str, Any] = {"graphs": {}}
    config = derive_config(config, model={"mla_layers": [0, 1]})
    for mode, compiles in itertools.product(("none", "selective", "full"), (False, True)):
        changed = derive_config(config, training={"activation_checkpointing": mode})
        # Rows of one document: those of several are not compiled on a CPU.
        batches = ({"tokens": batch["tokens"]} for batch in uneven(2, config.training.seq_len))
        trainer, graphs = Trainer(changed, batches, ranks=ranks), list[str]()

        def backend(graph: torch.fx.GraphModule, _: Any, names: list[str] = graphs) -> Callable[..., Any]:
            names.append(" ".join(str(node.target) for node in graph.graph.nodes))
            return graph.forward

        torch.compiler.reset()
        if compiles:
            trainer.master.compile_units(backend=backend)
            found["graphs"][mode] = graphs
            trainer.passes.observes_apart = True
        records = [trainer.take_step(trainer.next_windows(), telemetry=compiles)[0] for _ in range(2)]
        assert compiles == any(name.startswith("mla/logit_absmax") for name in records[-1])
        found[f"{mode}{', compiled' if compiles else ''}"] = [record["train/loss"] for record in records]
    return found


def sums(ranks: Ranks, config: HyMoConfig) -> dict[str, int]:
    """How often a step sums gradients over ranks, by layout."""
    found = {}
    # FSDP calls the former from torch 2.13 on.
    call = next(name for name in ("reduce_scatter_single", "reduce_scatter_tensor") if hasattr(dist, name))
    layouts: dict[str, dict[str, Any]] = {
        "once": {},
        "dropped": {"reshard_after_forward": True},
        "rounded": {"reduce_dtype": "bfloat16"},
    }
    for name, changes in layouts.items():
        changed = derive_config(config, training=changes)
        trainer = Trainer(changed, uneven(1, config.training.seq_len), ranks=ranks)
        with patch.object(dist, call, wraps=getattr(dist, call)) as seen:
            trainer.take_step(trainer.next_windows())
        found[name] = seen.call_count
    return found


def precise(ranks: Ranks, config: HyMoConfig) -> dict[str, Any]:
    """Six steps in bf16: losses, and the dtypes of what is kept."""
    changed = derive_config(config, training={"param_dtype": "bfloat16"})
    trainer = Trainer(changed, uneven(6, config.training.seq_len), ranks=ranks)
    losses = [trainer.take_step(trainer.next_windows())[0]["train/loss"] for _ in range(6)]
    return {"losses": losses, "dtypes": sorted({str(p.dtype) for p in trainer.parameters.values()})}


def do(rank: int, groups: list[tuple[HyMoConfig, dict[str, tuple[str, dict[str, Any]]]]]) -> dict[str, Any]:
    """Several tasks, grouped by the configuration that the ranks meet under: results by name."""
    found = {}
    for config, tasks in groups:
        with open_ranks(config) as ranks:
            done = {name: globals()[function](ranks, **arguments) for name, (function, arguments) in tasks.items()}
            if ranks.size > 1:
                dist.barrier()
        os.environ["MASTER_PORT"] = str(int(os.environ.get("MASTER_PORT", "0")) + 1)  # the next group meets elsewhere
        found.update(done if rank == 0 else {name: value for name, value in done.items() if name in ALL_RANKS})
    return found


ALL_RANKS = {
    "agreement",
    "boundaries",
    "curve",
    "hsdp_normuon",
    "memory",
    "normuon",
    "poisoned",
    "resumed",
    "saves",
    "straight",
    "troubled",
}
"""Tasks of which every rank's result is kept."""
