"""`hymo launch`: files that start a run under torchrun, Slurm, SkyPilot or Kubernetes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from hymo.cli.options import Overrides
from hymo.cli.output import log


def launch(
    kind: Literal["torchrun", "slurm", "skypilot", "kubernetes"],
    config: str,
    /,
    *,
    nodes: int = 1,
    gpus: int = 8,
    data: str | None = None,
    runs: str | None = None,
    overrides: Overrides = (),
    out: Path | None = None,
    setup: str | None = None,
    hours: int = 24,
    cpus: int = 8,
    partition: str | None = None,
    account: str | None = None,
    gpu: str = "H100",
    infra: str = "runpod",
    on_demand: Annotated[bool, Parameter(negative="")] = False,
    volume: str = "hymo",
    mount: str = "/mnt/hymo",
    image: str = "hymo:latest",
    restarts: int = 10,
) -> None:
    """Write the file that starts a run on one or more machines, and starts it again when one is lost.

    All kinds carry the same command: a preflight on all ranks the first time, then `hymo train` under torchrun. No file
    holds a secret. Paths and CONFIG are those that the machines of the job see.

    Args:
        kind: torchrun (a script for every machine), slurm (sbatch), skypilot (sky jobs launch) or kubernetes (JobSet).
        config: Preset or YAML file.
        nodes: Machines.
        gpus: GPUs of each machine.
        data: Folder written by `hymo data prepare`.
        runs: Folder of run folders; all machines must share it.
        overrides: Fields to override.
        out: File to write; stdout unless given.
        setup: Shell line that makes torchrun and hymo available, for example `. env/bin/activate`; with skypilot it is
            `pip install .` unless given.
        hours: Time limit of a job; one that needs longer queues itself again (slurm).
        cpus: CPU cores for each GPU (slurm).
        partition: Slurm partition.
        account: Slurm account.
        gpu: Kind of GPU, by SkyPilot's name.
        infra: Cloud, by SkyPilot's name.
        on_demand: Take machines that are not taken back (skypilot).
        volume: Volume (skypilot) or claim (kubernetes) with data and runs.
        mount: Where it appears.
        image: Container image with hymo (kubernetes).
        restarts: How often a job is started again after failures.
    """
    from hymo.core.files import write_text, writing
    from hymo.core.recipes import KINDS, Recipe

    recipe = Recipe(
        config=config,
        overrides=overrides,
        data=data,
        runs=runs,
        nodes=nodes,
        gpus=gpus,
        gpu=gpu,
        infra=infra,
        spot=not on_demand,
        volume=volume,
        mount=mount,
        image=image,
        hours=hours,
        cpus=cpus,
        partition=partition,
        account=account,
        setup=setup,
        restarts=restarts,
    )
    text = KINDS[kind](recipe)
    if out is None:
        print(text, end="")
        return
    with writing(out):
        out.parent.mkdir(parents=True, exist_ok=True)
    write_text(out, text)
    log(f"{out}: {kind}, {nodes * gpus} ranks")
