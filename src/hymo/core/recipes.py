"""Files that start a run on several machines: a script for torchrun, a Slurm job, a SkyPilot task, a Kubernetes JobSet.

All are rendered from one configuration and carry the same lines: a preflight on all ranks the first time, then
torchrun around `hymo train`, which goes on from the newest whole checkpoint whenever it is started again. They differ
in how machines are asked for, how the first one is called (`HEAD`), and who starts the job again. None holds a secret:
keys are named, and taken from the environment or the secret store of whoever starts the job.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import yaml

from hymo.core import yaml12
from hymo.core.config import HyMoConfig
from hymo.core.errors import UsageError
from hymo.core.launch import check_ranks
from hymo.core.load import CHECKPOINTS, load_config
from hymo.core.planner import plan

GRACE_SECONDS = 300
"""Time that a run has to finish its step and save when it is told to stop."""
_PORT, _PREFLIGHT_PORT = 29500, 29501
"""Where ranks meet on the first machine, and where those of a preflight do."""
_TORCHRUN = "python3 -m hymo.training.torchrun"
"""PyTorch's launcher, with time for ranks to save when they are told to stop."""
_KEYS = {"wandb": "WANDB_API_KEY", "trackio": "HF_TOKEN"}
"""Environment variable that a sink of metrics takes its key from."""
_BODY = "run"


@dataclass(frozen=True)
class Recipe:
    """What a job is asked for."""

    config: str
    """Preset or file, as every machine sees it."""
    overrides: tuple[str, ...] = ()
    data: str | None = None
    """Data set, as every machine sees it; the configuration's if None."""
    runs: str | None = None
    """Folder of run folders, as every machine sees it; the configuration's if None."""
    nodes: int = 1
    gpus: int = 8
    """Devices of each machine, one rank on each."""
    gpu: str = "H100"
    """Kind of device, by SkyPilot's name."""
    infra: str = "runpod"
    """Cloud, by SkyPilot's name."""
    spot: bool = True
    """Whether SkyPilot takes machines that may be taken back."""
    volume: str = "hymo"
    """SkyPilot volume, or Kubernetes claim, that holds data and runs."""
    mount: str = "/mnt/hymo"
    """Where it appears."""
    image: str = "hymo:latest"
    """Container image for Kubernetes, with hymo installed."""
    hours: int = 24
    """Time limit of one Slurm job; a run that needs more is queued again."""
    cpus: int = 8
    """CPU cores for each device, asked of Slurm, whose default may be one for all."""
    partition: str | None = None
    account: str | None = None
    setup: str | None = None
    """Shell line that makes `torchrun` and hymo available; SkyPilot runs it once on each machine."""
    restarts: int = 10
    """How often a job is started again after failures."""

    def resolved(self) -> HyMoConfig:
        """The configuration that the job will train."""
        return load_config(self.config, self.settings)

    @property
    def settings(self) -> tuple[str, ...]:
        """All overrides, as words of `--set`."""
        places = (("run.output_dir", self.runs), ("run.data", self.data))
        fixed = tuple(f"{name}={value}" for name, value in places if value is not None)
        return (*self.overrides, *fixed, "training.hang_abort=true")

    def command(self, *words: str, port: int = _PORT) -> str:
        """Torchrun around `hymo` with this run's configuration, the same on every machine and for every scheduler."""
        options = [f"--nnodes {self.nodes} --nproc-per-node {self.gpus} --max-restarts 3 --rdzv-backend c10d"]
        options.append(f'--rdzv-id {shlex.quote(self.resolved().run.name)} --rdzv-endpoint "$HEAD:{port}"')
        sets = [f"--set {shlex.quote(each)}" for each in self.settings]
        return " ".join([_TORCHRUN, *options, "-m hymo", *words, *sets])

    @property
    def train(self) -> str:
        """The command that trains."""
        return self.command("train", shlex.quote(self.config))

    @property
    def preflight(self) -> str:
        """The command that tries what the run needs."""
        return self.command("doctor --preflight", shlex.quote(self.config), port=_PREFLIGHT_PORT)


def _check(recipe: Recipe) -> HyMoConfig:
    for name, number in (
        ("nodes", recipe.nodes),
        ("gpus", recipe.gpus),
        ("hours", recipe.hours),
        ("cpus", recipe.cpus),
    ):
        if number < 1:
            raise UsageError(f"--{name} {number}: must be at least 1.")
    for override in recipe.overrides:
        key, _, value = override.partition("=")
        if key.strip() == "run.alert" and not value.strip().startswith("env:"):
            raise UsageError(
                "--set run.alert: an address may hold a secret, which no file should carry. Set run.alert=env:NAME, "
                "and NAME where the job is started."
            )
    config = recipe.resolved()
    if config.run.data is None:
        raise UsageError("run.data: not set. Pass --data DIR, as the machines of the job see it.")
    check_ranks(config, recipe.nodes * recipe.gpus)
    return config


def _body(recipe: Recipe, config: HyMoConfig) -> str:
    """What every machine runs once `HEAD` is set."""
    checkpoints = shlex.quote(f"{config.run.output_dir}/{config.run.name}/{CHECKPOINTS}")
    return f"""\
# Each start meets in a store of its own.
export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1
# torchrun gets a process group of its own: its ranks must hear a signal once, from it.
set -m
stopped=0
child=
code=0
trap 'stopped=143; [ -z "$child" ] || kill -TERM "$child" 2>/dev/null' TERM
{_BODY}() {{
    [ "$stopped" -eq 0 ] || exit "$stopped"
    "$@" &
    child=$!
    [ "$stopped" -eq 0 ] || kill -TERM "$child" 2>/dev/null # it came between the two lines above
    wait "$child"
    code=$?
    while kill -0 "$child" 2>/dev/null; do
        wait "$child"
        code=$?
    done
    child=
    [ "$stopped" -eq 0 ] || exit "$stopped"
}}
if [ ! -d {checkpoints} ]; then
    {_BODY} {recipe.preflight}
    [ "$code" -eq 0 ] || exit "$code"
fi
{_BODY} {recipe.train}
exit "$code"
"""


def torchrun(recipe: Recipe) -> str:
    """A script that is started on every machine: `HEAD=first-machine bash FILE`."""
    config = _check(recipe)
    head = ': "${HEAD:=localhost}"' if recipe.nodes == 1 else ': "${HEAD:?name of the first machine}"'
    title = f"# {config.run.name} on {_where(recipe)}: start this on every machine, HEAD=NAME of the first one."
    return "\n".join(["#!/usr/bin/env bash", title, "set -u", head, *_setup(recipe), _body(recipe, config)])


def slurm(recipe: Recipe) -> str:
    """A batch script for `sbatch`, which queues itself again when it is preempted or out of time."""
    config = _check(recipe)
    name, cores = config.run.name, recipe.cpus * recipe.gpus
    directives = [
        f"--job-name={name}",
        f"--nodes={recipe.nodes}",
        "--ntasks-per-node=1",
        f"--gpus-per-node={recipe.gpus}",
        f"--cpus-per-task={cores}",
        f"--time={recipe.hours}:00:00",
        "--requeue",
        "--open-mode=append",
        f"--output={name}-%j.log",
        f"--signal=B:TERM@{GRACE_SECONDS + 60}",
        *([f"--partition={recipe.partition}"] if recipe.partition else []),
        *([f"--account={recipe.account}"] if recipe.account else []),
    ]
    return f"""\
#!/usr/bin/env bash
{chr(10).join(f"#SBATCH {each}" for each in directives)}
# {name} on {_where(recipe)}. A checkpoint is saved before the time is up or the job preempted; then it is queued again.
set -u
HEAD=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export HEAD
{chr(10).join([*_setup(recipe), "body=$(cat <<'EVERY_MACHINE'"])}
set -u
{_body(recipe, config)}EVERY_MACHINE
)
stopped=0
trap 'stopped=1; scancel --signal=TERM "$SLURM_JOB_ID"' TERM
srun --kill-on-bad-exit=1 --cpus-per-task={cores} bash -c "$body" &
child=$!
wait "$child"
code=$?
while kill -0 "$child" 2>/dev/null; do
    wait "$child"
    code=$?
done
if [ "$stopped" -eq 1 ] && [ "${{SLURM_RESTART_COUNT:-0}}" -lt {recipe.restarts} ]; then
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
"""


def skypilot(recipe: Recipe) -> str:
    """A task for `sky jobs launch`, which starts it again elsewhere when a machine is lost."""
    config = _check(recipe)
    if recipe.infra.startswith("runpod") and recipe.nodes > 1:
        raise UsageError("--nodes: SkyPilot starts one machine on RunPod. Set --nodes 1, or another --infra.")
    task: dict[str, Any] = {
        "name": _dns(config.run.name),
        "num_nodes": recipe.nodes,
        "workdir": ".",
        "resources": {
            "infra": recipe.infra,
            "accelerators": f"{recipe.gpu}:{recipe.gpus}",
            "use_spot": recipe.spot,
            "disk_size": 100,
            "job_recovery": {"strategy": "EAGER_NEXT_REGION", "max_restarts_on_errors": recipe.restarts},
        },
        "volumes": {recipe.mount: recipe.volume},
    }
    if keys := _keys(config):
        task["secrets"] = dict.fromkeys(keys)  # `sky jobs launch --secret NAME` takes them from the environment
    task["setup"] = f"{recipe.setup or 'pip install .'}\n"
    head = 'HEAD=$(echo "$SKYPILOT_NODE_IPS" | head -n 1)\nexport HEAD'
    task["run"] = f"set -u\n{head}\n{_body(recipe, config)}"
    disk = plan(config, gpus=recipe.nodes * recipe.gpus).checkpoint_disk_bytes
    title = (
        f"# {config.run.name} on {_where(recipe)}: sky jobs launch FILE. Volume '{recipe.volume}' holds data and runs"
    )
    return f"{title}:\n# its checkpoints need {disk / 1e9:.0f} GB.\n{_yaml(task)}"


def kubernetes(recipe: Recipe) -> str:
    """A JobSet, one pod on each machine; all start again when one is lost."""
    config = _check(recipe)
    name = _dns(config.run.name)
    if len(name) > 40:  # pods are called NAME-workers-0-INDEX-SUFFIX, within 63 characters
        raise UsageError(f"run.name: '{config.run.name}' is too long for pods. Take 40 characters or fewer.")
    keys = [
        {"name": key, "valueFrom": {"secretKeyRef": {"name": "hymo", "key": key, "optional": True}}}
        for key in _keys(config)
    ]
    container: dict[str, Any] = {
        "name": "train",
        "image": recipe.image,
        "workingDir": recipe.mount,
        "command": ["bash", "-c"],
        "args": [f"set -u\n{_body(recipe, config)}"],
        "env": [{"name": "HEAD", "value": f"{name}-workers-0-0.{name}"}, *keys],
        "resources": {"limits": {"nvidia.com/gpu": recipe.gpus}},
        "volumeMounts": [{"name": "hymo", "mountPath": recipe.mount}, {"name": "memory", "mountPath": "/dev/shm"}],
    }
    pod = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": GRACE_SECONDS + 60,
        "containers": [container],
        "volumes": [
            {"name": "hymo", "persistentVolumeClaim": {"claimName": recipe.volume}},
            {"name": "memory", "emptyDir": {"medium": "Memory"}},
        ],
    }
    job = {
        "completionMode": "Indexed",
        "completions": recipe.nodes,
        "parallelism": recipe.nodes,
        "backoffLimit": 0,
        "template": {"spec": pod},
    }
    jobset = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": {"maxRestarts": recipe.restarts},
            "replicatedJobs": [{"name": "workers", "replicas": 1, "template": {"spec": job}}],
        },
    }
    title = (
        f"# {config.run.name} on {_where(recipe)}: kubectl apply -f FILE. Claim '{recipe.volume}' holds data and runs."
    )
    return f"{title}\n{_yaml(jobset)}"


KINDS: dict[str, Callable[[Recipe], str]] = {
    "torchrun": torchrun,
    "slurm": slurm,
    "skypilot": skypilot,
    "kubernetes": kubernetes,
}
"""What can be rendered, and by what."""


def _where(recipe: Recipe) -> str:
    machines = "one machine" if recipe.nodes == 1 else f"{recipe.nodes} machines"
    return f"{machines} with {recipe.gpus} GPUs{' each' if recipe.nodes > 1 else ''}"


def _setup(recipe: Recipe) -> list[str]:
    return [recipe.setup] if recipe.setup else []


def _keys(config: HyMoConfig) -> list[str]:
    """Environment variables that hold secrets of this run."""
    found = [_KEYS[name] for name in config.run.track if name in _KEYS]
    if config.run.alert is not None and config.run.alert.startswith("env:"):
        found.append(config.run.alert.removeprefix("env:"))
    return found


def _dns(name: str) -> str:
    """A name as Kubernetes takes it: small letters, digits and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


class _Dumper(yaml12.Dumper):
    """Scripts as blocks that one can read."""


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Dumper.add_representer(str, _text)
_Dumper.add_representer(
    list, lambda dumper, value: dumper.represent_sequence("tag:yaml.org,2002:seq", value, flow_style=False)
)


def _yaml(value: dict[str, Any]) -> str:
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, default_flow_style=False, width=1000)
