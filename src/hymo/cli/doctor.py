"""`hymo doctor`: what is installed, which fast paths are on, and whether a run can start."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from hymo.cli.options import Json, Overrides
from hymo.cli.output import print_json, print_table

if TYPE_CHECKING:
    from hymo.training.preflight import Check

_WORDS = {True: "ok", False: "FAIL", None: "-"}


def doctor(
    *,
    preflight: str | None = None,
    overrides: Overrides = (),
    data: Path | None = None,
    ranks: int | None = None,
    quick: Annotated[bool, Parameter(negative="")] = False,
    json: Json = False,
) -> int:
    """Say what is installed, which fast paths are on, and why the others are not; or whether a run can start.

    `--preflight CONFIG` tries what the run will need: ranks and an all-reduce, devices, packages, memory, disk, data,
    one step, a checkpoint written and read. One line each, with the cure; exit code 1 if one fails. Under torchrun it
    does so on all ranks: `torchrun --nproc-per-node N -m hymo doctor --preflight CONFIG`.

    Args:
        preflight: Preset or YAML file of the run to try.
        overrides: Fields of that run to override.
        data: Its data set, as `hymo train --data`.
        ranks: Ranks that it shall be trained on; those that are here unless given.
        quick: Leave out the step and the checkpoint, which take long where the model is large.
        json: Write JSON.
    """
    if preflight is not None:
        return _preflight(preflight, overrides, data, ranks, quick, json)
    from hymo.core.errors import UsageError
    from hymo.training.doctor import diagnose

    if overrides or data is not None or ranks is not None or quick:
        raise UsageError("doctor: --set, --data, --ranks and --quick need --preflight CONFIG.")
    found = diagnose()
    if json:
        print_json(found.to_dict())
        return 0
    facts = [*found.versions.items(), *(tuple(device.split(": ", 1)) for device in found.devices)]
    facts += [(f"{name} threads" if name != "cpus" else name, str(n)) for name, n in found.threads.items()]
    sections = (
        ("here", facts),
        ("fast paths", [(p.name, f"{'on' if p.on else 'off'}: {p.reason}") for p in found.fast_paths]),
        ("optional packages", [(e.name, f"{e.version or 'not installed'}: {e.enables}") for e in found.extras]),
    )
    for title, rows in sections:
        print_table(title, ("item", "state"), rows, left=(0, 1))
    return 0


def _preflight(
    config: str, overrides: tuple[str, ...], data: Path | None, ranks: int | None, quick: bool, json: bool
) -> int:
    import os
    from dataclasses import asdict

    from hymo.core.errors import UsageError
    from hymo.core.launch import launched_rank, launched_ranks
    from hymo.core.load import load_config

    if launched_ranks() > 1:
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    if ranks is not None and ranks < 1:
        raise UsageError(f"--ranks {ranks}: must be at least 1.")
    resolved = load_config(config, overrides)

    from hymo.training.preflight import preflight, with_data

    def show(check: Check) -> None:
        if not json:
            print(f"{_WORDS[check.ok]:4}  {check.name:10}  {check.text}", flush=True)

    checks = preflight(with_data(resolved, data), ranks, show, quick)
    if launched_rank():  # the first one speaks for all, and torchrun ends the others once one has failed
        return 0
    if json:
        print_json([asdict(check) for check in checks])
    return int(any(check.ok is not True for check in checks))
