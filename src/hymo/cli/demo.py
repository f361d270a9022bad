"""`hymo demo`: the whole road on the packaged text: prepare, train, evaluate, write."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from hymo.cli.options import Json
from hymo.cli.output import log, print_json, print_table

if TYPE_CHECKING:
    from hymo.inference import Engine, Generation

HELDOUT_BYTES = 46_000
"""Held-out text that is scored: without the tables of box-drawing characters at its very end."""
MARGIN = 0.1
"""Bits per byte by which the demo must beat gzip."""
SHORT_STEPS = 20
DRAFTED_TOKENS = 120
PROMPT = "The SQLite "
NEAR_TIE = 1e-4
"""Two logits closer than this may change places when tokens are read in other groups: rounding, not a wrong draft."""


def demo(
    *,
    out: Path = Path("runs"),
    short: Annotated[bool, Parameter(negative="")] = False,
    json: Json = False,
) -> int:
    """Train a small HyMo on the packaged text, compare it with compressors, and let it write. Offline, CPU, minutes.

    Args:
        out: Folder for runs; the demo's is `demo` below it (`demo-short` with --short) and is made anew.
        short: Only a few steps, to see that everything works; no verdict.
        json: Write the figures as JSON.
    """
    import shutil

    from hymo.core.errors import UsageError
    from hymo.core.load import CONFIG, derive_config, load_config
    from hymo.data import EvaluationWindows, load_tokenizer, open_split, prepare, sample_paths
    from hymo.evaluation import baselines
    from hymo.inference import Engine, Sampling
    from hymo.training.lock import claimed
    from hymo.training.plot import plot_runs
    from hymo.training.run import open_run, run_folder
    from hymo.training.view import RunView

    config = load_config("hymo_demo")
    name = "demo-short" if short else config.run.name
    if short:
        config = derive_config(config, scheduler={"total_steps": SHORT_STEPS}, training={"eval_interval": SHORT_STEPS})
    folder = out / name
    config = derive_config(
        config, run={"output_dir": str(out), "name": name, "data": str(folder / "data"), "device": "cpu"}
    )
    if folder.exists() and not (folder / CONFIG).is_file():
        raise UsageError(f"{folder}: exists and is no run. The demo would replace it; name another place with --out.")
    with claimed(folder, "Wait for it, or name another place with --out."):  # not under a demo that is running
        pass
    shutil.rmtree(folder, ignore_errors=True)

    log("1/4 preparing the packaged text (SQLite documentation, public domain)")
    paths, tokenizer = sample_paths(), load_tokenizer("byte")
    prepare([paths["train"]], folder / "data", tokenizer, validation_inputs=[paths["validation"]])
    heldout = open_split(folder / "data", "validation", tokenizer)

    length = config.training.seq_len
    windows = EvaluationWindows(heldout, length, stride=length // 2, max_bytes=HELDOUT_BYTES, tokenizer=tokenizer)
    steps, per_step = config.total_steps, config.training.tokens_per_step
    log(f"2/4 training {config.run.name}: {steps} steps of {per_step:,} tokens")
    with RunView(steps, "training") as view, open_run(config, [view], windows) as trainer:
        result = trainer.train()
        if result.exit_code:
            folder = run_folder(config)
            log(f"stopped at step {result.step}; go on with `hymo train --resume {folder}`. A new demo replaces it.")
            return result.exit_code
        log("3/4 evaluating")
        assert result.validation is not None
        ours = result.validation
        trained_on = baselines.join_documents(trainer.loader.documents(tokenizer, steps)) if trainer.loader else b""
    scored = baselines.join_documents(windows.documents(tokenizer))
    figures = {
        "hymo": ours.bits_per_byte,
        "gzip": baselines.gzip_bits_per_byte(scored),
        "xz": baselines.xz_bits_per_byte(scored),
        "order5": baselines.WittenBell(5).fit(trained_on).bits_per_byte(scored),
        "xz_given_training": baselines.xz_given_training(trained_on, scored),
    }
    plot = plot_runs([folder], folder / "plots" / "loss.png")

    log("4/4 writing")
    engine = Engine(trainer.master, tokenizer)
    text = engine.generate(PROMPT, 400, Sampling(temperature=0.7, top_p=0.95, seed=0)).text
    greedy = {
        name: _timed(partial(engine.generate, PROMPT, DRAFTED_TOKENS, Sampling(temperature=0), speculative=drafts))
        for name, drafts in (("plain", False), ("drafted", True))
    }
    drafts = greedy["drafted"][0].speculation
    acceptance = drafts.acceptance if drafts is not None else []
    gap = _gap(engine, greedy["plain"][0].tokens, greedy["drafted"][0].tokens)
    beats_gzip = figures["hymo"] <= figures["gzip"] - MARGIN
    beats_order5 = figures["hymo"] < figures["order5"]
    if json:
        speed = result.tokens / result.seconds
        print_json(
            {"run": str(folder), "bits_per_byte": figures, "tokens": result.tokens, "tok_per_s": speed}
            | {"seconds": result.seconds, "text": PROMPT + text, "plot": str(plot), "acceptance": acceptance}
            | {"acceptance_heldout": ours.acceptance, "heldout_bytes": len(scored), "greedy_gap": gap}
            | {f"greedy_{name}": PROMPT + generation.text for name, (generation, _) in greedy.items()}
        )
    else:
        rows = [
            ("HyMo, this run", f"{figures['hymo']:.3f}", ""),
            ("gzip -9", f"{figures['gzip']:.3f}", _verdict(beats_gzip, f"by {MARGIN} or more")),
            ("xz -9e", f"{figures['xz']:.3f}", _verdict(figures["hymo"] < figures["xz"])),
            ("order-5 byte model, same training text", f"{figures['order5']:.3f}", _verdict(beats_order5) + " (goal)"),
            ("xz -9e, given the training text", f"{figures['xz_given_training']:.3f}", "not expected to be beaten"),
        ]
        title = f"bits per byte of the first {len(scored):,} held-out bytes (less is better)"
        print_table(title, ("model", "bits", "HyMo below it?"), rows)
        print(f"\nA continuation, sampled:\n\n{PROMPT}{text}\n")
        print("The most likely continuation, one token a pass and with drafts of the prediction heads:\n")
        for name, (generation, seconds) in greedy.items():
            print(f"[{name}, {len(generation.tokens) / seconds:.0f} tokens/s] {PROMPT}{generation.text}\n")
        same = "yes" if gap is None else f"no, two logits were {gap:.1e} apart"
        print(f"same tokens: {same}; drafts accepted: {_rates(acceptance)}")
        print(f"drafts accepted over the held-out text: {_rates(ours.acceptance)}\n")
    log(f"{result.tokens:,} tokens in {result.seconds:.0f} s; run folder {folder}, loss plot {plot}")
    if gap is not None and gap >= NEAR_TIE:
        log(f"error: drafts changed the text where the likeliest tokens are {gap:.1e} apart: that is no rounding.")
        return 1
    if not beats_gzip and not short:
        log(f"error: {figures['hymo']:.3f} bits per byte is not {MARGIN} below gzip's {figures['gzip']:.3f}.")
        return 1
    return 0


def _gap(engine: Engine, plain: Sequence[int], drafted: Sequence[int]) -> float | None:
    """How far apart the logits of the two tokens are where two greedy texts part; None if they never do."""
    import torch

    place = next((i for i, (a, b) in enumerate(zip(plain, drafted, strict=False)) if a != b), None)
    if place is None:
        return None if len(plain) == len(drafted) else float("inf")
    tokenizer = engine.tokenizer
    ids = [tokenizer.bos_id, *tokenizer.encode(PROMPT).tolist(), *plain[:place]]
    with torch.no_grad():
        logits = engine.model(torch.tensor([ids]))[0, -1]
    return float((logits[plain[place]] - logits[drafted[place]]).abs())


def _rates(acceptance: Sequence[float]) -> str:
    return ", ".join(f"depth {depth} {rate:.0%}" for depth, rate in enumerate(acceptance, 1))


def _timed(generate: Callable[[], Generation]) -> tuple[Generation, float]:
    began = time.perf_counter()
    return generate(), time.perf_counter() - began


def _verdict(beaten: bool, how: str = "") -> str:
    return f"{'yes' if beaten else 'no'}{', ' + how if how and beaten else ''}"
