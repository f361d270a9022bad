"""`hymo eval`: bits per byte on held-out text, benchmark tasks, and suites of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from hymo.cli.eval_output import keep
from hymo.cli.options import Json
from hymo.cli.output import print_json, print_table
from hymo.core.errors import UsageError

_HF = "hf:"
Flag = Annotated[bool, Parameter(negative="")]


def evaluate(
    checkpoint: str,
    /,
    *,
    data: Path | None = None,
    split: Literal["validation", "test"] = "validation",
    stride: int | None = None,
    max_bytes: int | None = None,
    tasks: str | None = None,
    suite: str | None = None,
    skip: str | None = None,
    include_path: Path | None = None,
    mirror: Path | None = None,
    download: Flag = False,
    limit: int | None = None,
    num_fewshot: int | None = None,
    seed: int | None = None,
    compare: tuple[Path, ...] = (),
    out: Path | None = None,
    trust_remote_code: Flag = False,
    batch_size: int = 8,
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto",
    json: Json = False,
) -> None:
    """Measure a checkpoint: bits per byte of held-out text, or benchmark tasks, or a suite of them.

    The figures of a run's checkpoint are kept in its folder: eval/step-N-SPLIT.json, step-N-tasks-NAMES.json or
    step-N-suite-NAME.json and .md, with the other options in the name where they are given.

    Args:
        checkpoint: Checkpoint folder, or a run folder (its newest whole checkpoint), or hf:NAME, a folder or name of a
            model in the Hugging Face format.
        data: Data set; the run's own unless given.
        split: Part of the data set.
        stride: Tokens between window starts in long documents; the training length (no overlap) unless given.
        max_bytes: Score only the first so many bytes.
        tasks: Tasks of the lm-evaluation-harness, separated by commas.
        suite: A suite: `design`, or a YAML file.
        skip: Tasks of the suite to leave out, separated by commas; their targets count as not met.
        include_path: Folder with task definitions of your own.
        mirror: Folder with copies of the tasks' data sets, OWNER/NAME each.
        download: Let missing data and models be fetched from the Hugging Face Hub.
        limit: First so many items of each task: for trials.
        num_fewshot: Examples in the prompt, instead of the definition's number.
        seed: Seed of drawn examples and texts; 1234 unless given.
        compare: Results of the suite for other models, files or folders, for columns of their own. May be repeated.
        out: Folder for the result files instead of the run's eval/.
        trust_remote_code: Run the Python files of an hf: model.
        batch_size: Rows per forward pass; changes speed, not results.
        device: Where to run.
        json: Write JSON.
    """
    _check({"--tasks": tasks, "--suite": suite}, "give one of them")
    benchmark = tasks if suite is None else suite
    of_benchmarks = {"--include-path": include_path, "--mirror": mirror, "--limit": limit}
    _check(of_benchmarks, "belongs to --tasks or --suite", most=None if benchmark else 0)
    _check({"--num-fewshot": num_fewshot, "--seed": seed}, "belongs to --tasks", most=None if tasks else 0)
    _check({"--skip": skip, "--compare": compare or None}, "belongs to --suite", most=None if suite else 0)
    held_out = {"--data": data, "--stride": stride, "--max-bytes": max_bytes}
    _check(held_out, "belongs to held-out text, not to --tasks", most=0 if tasks else None)
    foreign = checkpoint.startswith(_HF)
    _check({"--trust-remote-code": trust_remote_code or None}, "belongs to hf: models", most=None if foreign else 0)
    _check({"--stride": stride}, "does not apply to hf: models", most=0 if foreign else None)
    _check(
        {"--download": download or None}, "belongs to tasks and hf: models", most=None if benchmark or foreign else 0
    )
    if benchmark is None and not foreign:
        _held_out(Path(checkpoint), data, split, stride, max_bytes, batch_size, device, out, json)
        return
    from hymo.cli.eval_tasks import Request, evaluate_held_out, evaluate_suite, evaluate_tasks

    request = Request(
        checkpoint=checkpoint,
        data=data,
        split=split,
        stride=stride,
        max_bytes=max_bytes,
        include_path=include_path,
        mirror=mirror,
        download=download,
        limit=limit,
        out=out,
        trust_remote_code=trust_remote_code,
        batch_size=batch_size,
        device=device,
        json=json,
    )
    if tasks is not None:
        evaluate_tasks(request, _names(tasks), num_fewshot, seed)
    elif suite is not None:
        evaluate_suite(request, suite, _names(skip or ""), compare)
    else:
        evaluate_held_out(request)


def _check(options: Mapping[str, object], why: str, most: int | None = 1) -> None:
    """Refuse options that do not go together; None refuses nothing."""
    given = [name for name, value in options.items() if value is not None]
    if most is not None and len(given) > most:
        raise UsageError(f"{' and '.join(given)}: {why}.")


def _names(text: str) -> list[str]:
    return [name for part in text.split(",") if (name := part.strip())]


def _held_out(
    checkpoint: Path,
    data: Path | None,
    split: str,
    stride: int | None,
    max_bytes: int | None,
    batch_size: int,
    device: str,
    out: Path | None,
    json: bool,
) -> None:
    from hymo.data import EvaluationWindows, open_split
    from hymo.data.of_run import data_of_run, tokenizer_of_checkpoint
    from hymo.evaluation.hashes import weights_hash
    from hymo.evaluation.perplexity import evaluate as run
    from hymo.models.checkpoint import load_model
    from hymo.training.device import resolve_device

    model, config, manifest = load_model(checkpoint, resolve_device(device))
    source = str(data) if data is not None else data_of_run(config.run.data, checkpoint)
    tokenizer = tokenizer_of_checkpoint(config.run.tokenizer, manifest.tokenizer, checkpoint)
    text = open_split(source, split, tokenizer)
    windows = EvaluationWindows(text, config.training.seq_len, stride=stride, max_bytes=max_bytes, tokenizer=tokenizer)
    result = run(model, windows, batch_size, acceptance=True)
    options = {"stride": stride, "max_bytes": max_bytes}
    facts = {
        "checkpoint": str(checkpoint),
        "step": manifest.step,
        "checkpoint_hash": weights_hash(model),
        "config_hash": manifest.config_hash,
        "tokenizer": manifest.tokenizer,
        "data": source,
        "data_fingerprint": text.fingerprint,
        "split": split,
        **options,
        **result.to_dict(),
    }
    named = {**options, "data": None if data is None else text.fingerprint[:8]}
    keep(checkpoint, out, f"step-{manifest.step:08d}-{split}", named, facts)
    if json:
        print_json(facts)
        return
    rows = [
        ("bits per byte", f"{result.bits_per_byte:.4f}"),
        ("byte perplexity", f"{result.byte_perplexity:.4f}"),
        ("token perplexity", f"{result.token_perplexity:.4f}"),
        ("nats per token", f"{result.loss:.4f}"),
        *((f"drafts of head {depth} that agree", f"{rate:.1%}") for depth, rate in enumerate(result.acceptance, 1)),
        ("text", f"{result.bytes:,} bytes, {result.tokens:,} tokens"),
    ]
    print_table(f"{checkpoint}, step {manifest.step}, {split} of {source}", ("measure", "value"), rows)
