"""One run of a comparison in a process of its own: what `hymo train` does, and what the process took for it."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path

import torch

from hymo.ablations.rows import FACTS
from hymo.core.config import HyMoConfig
from hymo.core.errors import HymoError, TrainingError
from hymo.core.files import write_text
from hymo.models import Window
from hymo.training.batches import to_window
from hymo.training.lock import holder
from hymo.training.run import open_run, run_folder
from hymo.training.trainer import Trainer

_WAIT_SECONDS = 60.0
"""How long to wait for a process of an earlier call that still saves in the run's folder."""


def work(config: HyMoConfig, gpu: str | None, threads: int | None, compilers: int, complaint: Connection) -> None:
    """Train one run to its end, or until SIGTERM; exits with the trainer's code, or 1 after sending what went wrong.

    Args:
        config: of the run, its name and folder included.
        gpu: the one GPU that the process may see, as CUDA_VISIBLE_DEVICES names it; None leaves all.
        threads: of torch; None leaves the default.
        compilers: processes that torch.compile may use, unless the environment says.
        complaint: takes the message of an error.
    """
    os.setpgrp()  # Ctrl-C at the terminal reaches the parent alone, which asks this process to save and end
    if gpu is not None:  # CUDA reads it when it is first used, which is later
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", str(compilers))
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if threads is not None:
        torch.set_num_threads(threads)
    folder = run_folder(config)
    try:
        _wait_until_free(folder)
        began = time.monotonic()
        with open_run(config) as trainer:
            resumed = trainer.step
            result = trainer.train()
            device = trainer.device
            if result.exit_code:
                sys.exit(result.exit_code)
            took = time.monotonic() - began
            peak = _peak_bytes(device)
            heads = heads_gradient(trainer)
        facts = {
            "wall_seconds": None if resumed else round(took, 3),
            "resumed_at": resumed or None,
            "peak_gib": round(peak / 2**30, 4),
            "memory": "device" if device.type == "cuda" else "process",
            "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
            "threads": torch.get_num_threads(),
            "heads_gradient": heads,
        }
        write_text(folder / FACTS, json.dumps(facts, indent=1))
    except HymoError as error:
        complaint.send(str(error))
        sys.exit(1)
    except Exception as error:  # one variant that fails must not end the others
        complaint.send(f"{type(error).__name__}: {error}")
        sys.exit(1)


def heads_gradient(trainer: Trainer) -> float | None:
    """How much the prediction heads pull at the backbone: the norm of their gradient over that of the main loss.

    On the first micro-batch of the training text, over all parameters outside the heads, with the configured weights
    (not the annealed ones). Under a fifth a head counts as starved. None without heads.
    """
    model, cfg = trainer.copy.model, trainer.config
    if not cfg.model.mtp_depth or trainer.loader is None:
        return None
    n_micro = cfg.training.sequences_per_step // cfg.training.micro_batch_size
    batch = trainer.loader.batch_at(0, rank=0, world=1, micro=0, n_micro=n_micro)
    window = to_window(batch, cfg.model.vocab_size, "the first batch")
    counts = model.target_counts(window)
    moved = Window(window.inputs.to(trainer.device), window.targets.to(trainer.device), window.cu_seqlens)
    backbone = [p for name, p in model.named_parameters() if not name.startswith("mtp.")]

    def norm(weights: dict[str, float]) -> float:
        sums = model.loss_sums(moved)
        loss = torch.stack([weight * sums[name] / max(1, counts[name]) for name, weight in weights.items()]).sum()
        gradients = torch.autograd.grad(loss, backbone, allow_unused=True)
        return float(torch.stack([g.float().norm() for g in gradients if g is not None]).norm())

    heads = {f"mtp_{depth}": weight for depth, weight in enumerate(cfg.model.mtp_loss_weights, 1)}
    main = norm({"main": 1.0})
    return norm(heads) / main if main else None


def _end_with_parent() -> None:
    """Ask this process to save and end once the one that started it is gone, however that ended."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)


def _wait_until_free(folder: Path) -> None:
    until = time.monotonic() + _WAIT_SECONDS
    while (other := holder(folder)) is not None and other.held and other.here:
        if time.monotonic() > until:
            raise TrainingError(f"{folder}: process {other.pid} trains there. Stop it, then repeat the command.")
        time.sleep(0.2)


def _peak_bytes(device: torch.device) -> int:
    """Most memory at once: of tensors on a CUDA device, else resident in this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
