"""`hymo checkpoint`: list, verify and prune."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from hymo.cli.options import Json
from hymo.cli.output import log, print_json, print_table, size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hymo.training.inventory import CheckpointInfo

app = App(name="checkpoint", help="List, verify and prune checkpoints.", result_action="return_value")


@app.command(name="list")
def list_all(path: Path, /, *, json: Json = False) -> None:
    """List checkpoints, newest first, with what is wrong with damaged ones. Reads every byte.

    Args:
        path: Run folder, or one checkpoint folder.
        json: Write JSON.
    """
    from hymo.training.inventory import inspect_checkpoints

    infos = inspect_checkpoints(path)
    if json:
        print_json([info.to_dict() for info in infos])
        return
    _print(str(path), infos)


@app.command
def verify(path: Path, /, *, json: Json = False) -> int:
    """Check every file of every checkpoint against its manifest; exit code 1 if any is damaged.

    Args:
        path: Run folder, or one checkpoint folder.
        json: Write JSON.
    """
    from hymo.training.inventory import inspect_checkpoints

    infos = inspect_checkpoints(path)
    damaged = [info for info in infos if info.damage]
    if json:
        print_json([info.to_dict() for info in infos])
    else:
        for info in infos:
            if not info.damage:
                print(f"{info.path}: whole, {size(info.bytes)}")
    for info in damaged:
        log(f"error: {info.damage}")
    return 1 if damaged else 0


@app.command
def prune(run: Path, /, *, dry_run: Annotated[bool, Parameter(negative="")] = False, json: Json = False) -> None:
    """Delete the checkpoints that the run's retention does not keep: training.keep_last, keep_every and the best.

    Only checkpoints that verify are counted or deleted.

    Args:
        run: Run folder.
        dry_run: Only say what would be deleted.
        json: Write JSON.
    """
    from hymo.training.inventory import prune_checkpoints

    result = prune_checkpoints(run, dry_run)
    freed = sum(info.bytes for info in result.removed)
    if json:
        groups = {"removed": result.removed, "kept": result.kept, "damaged": result.damaged}
        lists = {name: [info.to_dict() for info in infos] for name, infos in groups.items()}
        print_json({**lists, "bytes": freed, "dry_run": dry_run})
        return
    for info in result.removed:
        print(f"{'would delete' if dry_run else 'deleted'} {info.path}")
    steps = ", ".join(str(info.step) for info in result.kept) or "none"
    print(f"{size(freed)} {'to free' if dry_run else 'freed'}; whole checkpoints kept: {steps}")
    for info in result.damaged:
        log(f"warning: left alone: {info.damage}")


def _print(title: str, infos: Sequence[CheckpointInfo]) -> None:
    rows = [
        (
            str(info.step),
            "-" if info.tokens is None else f"{info.tokens:,}",
            "-" if info.val_loss is None else f"{info.val_loss:.4f}",
            size(info.bytes),
            info.damage or ("whole, best" if info.best else "whole"),
        )
        for info in infos
    ]
    print_table(title, ("step", "tokens", "val loss", "size", "state"), rows, left=(0, 4))
