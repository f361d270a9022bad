"""`hymo replay`: what a step was trained on."""

from __future__ import annotations

import json as jsonlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from hymo.cli.options import Json
from hymo.cli.output import log, print_json

if TYPE_CHECKING:
    from hymo.training.replay import Replay, Sample, TokenLosses


def replay(
    run: Path,
    /,
    *,
    step: int,
    micro: int | None = None,
    per_token: Annotated[bool, Parameter(negative="")] = False,
    checkpoint: Path | None = None,
    json: Json = False,
) -> int:
    """Rebuild the batch of a step from configuration, data and step, and compare it with what was trained on.

    Steps count from 1, as in metrics.jsonl. The hash covers the whole step; the run records it for the steps that it
    logs. Exit code 1 if it differs.

    Args:
        run: Run folder.
        step: Step whose batch to rebuild.
        micro: Show only this micro-batch, from 0.
        per_token: Show the loss of every token, under the newest checkpoint from before the step.
        checkpoint: Checkpoint for the losses; implies --per-token.
        json: Write JSON.
    """
    from hymo.core.errors import UsageError
    from hymo.training.replay import replay as rebuild
    from hymo.training.replay import token_losses

    result = rebuild(run, step)
    if micro is not None and not 0 <= micro < len(result.batches):
        raise UsageError(f"--micro {micro}: step {step} has micro-batches 0 to {len(result.batches) - 1}.")
    losses = token_losses(result, run, checkpoint, micro) if per_token or checkpoint is not None else None
    samples = [sample for sample in result.samples if micro in (None, sample.micro)]
    if json:
        _print_json(run, result, samples, losses)
    else:
        _print_text(run, result, samples, losses)
    if result.equal is False:
        log(
            f"error: step {step} was trained on another batch ({result.recorded}) than the one rebuilt here "
            f"({result.hash}). The data set, or the version of HyMo, is not that of the run."
        )
        return 1
    return 0


def _print_json(run: Path, result: Replay, samples: list[Sample], losses: TokenLosses | None) -> None:
    from hymo.training.replay import span_dict

    rows: list[dict[str, Any]] = []
    for sample in samples:
        row: dict[str, Any] = {
            "micro": sample.micro,
            "row": sample.row,
            "epoch": sample.epoch,
            "sample": sample.sample,
            "tokens": sample.tokens.tolist(),
            "spans": [span_dict(piece) for piece in sample.pieces],
        }
        if losses is not None:
            values = losses.losses[sample.micro][sample.row].tolist()
            row["losses"] = [None if value != value else value for value in values]
        rows.append(row)
    facts = {"run": str(run), "step": result.step, "hash": result.hash, "recorded": result.recorded}
    scored = {} if losses is None else {"checkpoint": str(losses.checkpoint), "loss": losses.mean}
    print_json({**facts, "equal": result.equal, **scored, "samples": rows})


def _print_text(run: Path, result: Replay, samples: list[Sample], losses: TokenLosses | None) -> None:
    from hymo.data import tokenizer_of_run
    from hymo.training.follow import printable

    tokenizer = tokenizer_of_run(result.config.run.tokenizer, run)
    verdict = {None: "not recorded for this step", True: "equal to the recorded one", False: "DIFFERENT"}[result.equal]
    print(f"{run}, step {result.step}: hash {result.hash}, {verdict}")
    if losses is not None:
        print(f"loss {losses.mean:.4f} nats per token under {losses.checkpoint.name}")
    for sample in samples:
        print(f"\nmicro-batch {sample.micro}, row {sample.row}: sample {sample.sample} of epoch {sample.epoch}")
        for piece in sample.pieces:
            span = piece.span
            place = f"tokens {span.document_offset} to {span.document_offset + span.length - 1}"
            print(printable(f"  {span.source}: {span.document_id} (document {span.document}), {place}"))
            if losses is None:
                for line in piece.text.splitlines():
                    print(f"    {printable(line)}")
                continue
            row = losses.losses[sample.micro][sample.row]
            for i in range(span.window_offset, span.window_offset + span.length):
                # The loss of token i is that of predicting it, so it stands at target i - 1.
                loss = f"{row[i - 1]:9.4f}" if i and row[i - 1] == row[i - 1] else "        -"
                token = tokenizer.decode(sample.tokens[i : i + 1])
                print(f"    {loss}  {int(sample.tokens[i]):6d}  {printable(jsonlib.dumps(token, ensure_ascii=False))}")
