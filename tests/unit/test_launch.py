"""Files that start a run: the same command in all, valid in every directive, no secret, and they do as told."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from hymo.cli import main
from hymo.core.errors import ConfigError, UsageError
from hymo.core.recipes import KINDS, Recipe, kubernetes, skypilot, slurm, torchrun

ROOT = Path(__file__).parents[2]
SHIPPED = {"torchrun": "nodes.sh", "slurm": "slurm.sh", "skypilot": "skypilot.yaml", "kubernetes": "jobset.yaml"}
FLAGSHIP = Recipe("hymo_750m", data="data", runs="runs", overrides=("run.track=[tensorboard, wandb]",))
TWO = Recipe(
    "hymo_750m",
    nodes=2,
    data="/mnt/hymo/it's data",
    runs="/mnt/hymo/runs",
    infra="aws",
    overrides=("run.alert=env:ALERT", "run.track=[trackio]", "training.micro_batch_size=2"),
    partition="gpu",
    account="lab",
    setup=". env/bin/activate",
)
RECIPES = pytest.mark.parametrize("recipe", [FLAGSHIP, TWO], ids=["one", "two"])
NAME, TIME = r"[A-Za-z0-9][A-Za-z0-9._-]*", r"\d+:\d\d:\d\d"
DIRECTIVES = {
    "job-name": NAME,
    "nodes": r"[1-9]\d*",
    "ntasks-per-node": "1",
    "gpus-per-node": r"[1-9]\d*",
    "cpus-per-task": r"[1-9]\d*",
    "time": TIME,
    "requeue": None,
    "open-mode": "append|truncate",
    "output": rf"{NAME}-%j\.log",
    "signal": r"(B:)?(TERM|INT|USR1)@\d+",
    "partition": NAME,
    "account": NAME,
}
"""Slurm's options that a recipe may use, with the form of their values; None takes none."""
TEXT, NUMBER = {"type": "string", "minLength": 1}, {"type": "integer", "minimum": 1}


def exactly(required: dict[str, Any], **optional: Any) -> dict[str, Any]:
    """An object with these keys and no other."""
    return {
        "type": "object",
        "required": list(required),
        "additionalProperties": False,
        "properties": {**required, **optional},
    }


TASK = exactly(
    {
        "name": {"type": "string", "pattern": "^[a-z0-9][a-z0-9-]*$"},
        "num_nodes": NUMBER,
        "workdir": TEXT,
        "resources": exactly(
            {
                "infra": {"type": "string", "pattern": "^[a-z0-9]+(/[a-z0-9*-]+){0,2}$"},
                "accelerators": {"type": "string", "pattern": r"^[A-Za-z0-9-]+:[1-9]\d*$"},
                "use_spot": {"type": "boolean"},
                "disk_size": NUMBER,
                "job_recovery": exactly(
                    {"strategy": {"enum": ["FAILOVER", "EAGER_NEXT_REGION"]}, "max_restarts_on_errors": NUMBER}
                ),
            }
        ),
        "volumes": {"type": "object", "minProperties": 1, "additionalProperties": TEXT},
        "setup": TEXT,
        "run": TEXT,
    },
    secrets={"type": "object", "additionalProperties": {"type": "null"}},  # named, never given
)
JOBSET = exactly(
    {
        "apiVersion": {"const": "jobset.x-k8s.io/v1alpha2"},
        "kind": {"const": "JobSet"},
        "metadata": exactly({"name": {"type": "string", "pattern": "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"}}),
        "spec": exactly(
            {
                "failurePolicy": exactly({"maxRestarts": NUMBER}),
                "replicatedJobs": {
                    "type": "array",
                    "minItems": 1,
                    "maxItems": 1,
                    "items": exactly(
                        {"name": TEXT, "replicas": {"const": 1}, "template": exactly({"spec": {"type": "object"}})}
                    ),
                },
            }
        ),
    }
)


def body(kind: str, recipe: Recipe) -> str:
    """What every machine runs."""
    text = KINDS[kind](recipe)
    if kind == "slurm":
        return text.split("<<'EVERY_MACHINE'\n")[1].split("EVERY_MACHINE\n")[0]
    if kind == "skypilot":
        return str(yaml.safe_load(text)["run"])
    if kind == "kubernetes":
        return str(pod(recipe)["containers"][0]["args"][0])
    return text


def pod(recipe: Recipe) -> dict[str, Any]:
    job = yaml.safe_load(kubernetes(recipe))["spec"]["replicatedJobs"][0]["template"]
    spec: dict[str, Any] = job["spec"]["template"]["spec"]
    return spec


@RECIPES
def test_all_kinds_carry_the_same_commands(recipe: Recipe) -> None:
    found = {}
    for kind in KINDS:
        lines = [line.strip() for line in body(kind, recipe).splitlines()]
        found[kind] = [line for line in lines if line.startswith("run ")]
    first = found["torchrun"]
    assert all(lines == first for lines in found.values())
    assert first == [f"run {recipe.preflight}", f"run {recipe.train}"]
    assert recipe.train.startswith("python3 -m hymo.training.torchrun ")
    assert f"--nnodes {recipe.nodes} --nproc-per-node 8 " in recipe.train
    assert " -m hymo train hymo_750m " in recipe.train
    assert " -m hymo doctor --preflight hymo_750m " in recipe.preflight


@RECIPES
def test_every_directive_of_the_slurm_job(recipe: Recipe) -> None:
    lines = slurm(recipe).splitlines()
    assert lines[0] == "#!/usr/bin/env bash"
    given = [line.removeprefix("#SBATCH --").partition("=") for line in lines if line.startswith("#SBATCH")]
    assert lines[1 : 1 + len(given)] == [f"#SBATCH --{n}{e}{v}" for n, e, v in given]  # before any command
    names = [name for name, _, _ in given]
    assert len(names) == len(set(names))
    assert set(DIRECTIVES) - {"partition", "account"} <= set(names)
    for name, _, value in given:
        pattern = DIRECTIVES[name]
        assert value == "" if pattern is None else re.fullmatch(pattern, value), (name, value)
    values = {n: v for n, _, v in given}
    assert values["nodes"] == str(recipe.nodes)
    assert int(values["cpus-per-task"]) == 8 * int(values["gpus-per-node"])
    assert f"srun --kill-on-bad-exit=1 --cpus-per-task={values['cpus-per-task']} bash -c" in slurm(recipe)


@RECIPES
def test_the_skypilot_task(recipe: Recipe) -> None:
    task = yaml.safe_load(skypilot(recipe))
    jsonschema.validate(task, TASK)
    assert task["resources"]["accelerators"] == "H100:8"
    assert set(task["secrets"]) == ({"WANDB_API_KEY"} if recipe is FLAGSHIP else {"HF_TOKEN", "ALERT"})


@RECIPES
def test_the_jobset_and_what_is_in_it(recipe: Recipe) -> None:
    jobset = yaml.safe_load(kubernetes(recipe))
    jsonschema.validate(jobset, JOBSET)
    template = jobset["spec"]["replicatedJobs"][0]["template"]
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": jobset["metadata"], **template}
    kubernetes_validate.validate(job, "1.33", strict=True)
    assert job["spec"]["completions"] == job["spec"]["parallelism"] == recipe.nodes
    assert pod(recipe)["containers"][0]["env"][0] == {"name": "HEAD", "value": "hymo-750m-workers-0-0.hymo-750m"}
    job["spec"]["template"]["spec"]["containers"][0]["imagee"] = "x"
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(job, "1.33", strict=True)


@RECIPES
@pytest.mark.parametrize("kind", KINDS)
def test_scripts_are_clean(kind: str, recipe: Recipe, tmp_path: Path) -> None:
    scripts = [body(kind, recipe), *([slurm(recipe)] if kind == "slurm" else [])]
    for number, text in enumerate(scripts):
        path = tmp_path / f"{number}.sh"
        path.write_text(text if text.startswith("#!") else f'#!/usr/bin/env bash\n: "${{HEAD:=x}}"\n{text}')
        lint(path)


def test_shipped_scripts_are_clean() -> None:
    for path in sorted((ROOT / "launch").glob("*.sh")):
        lint(path)


def lint(path: Path) -> None:
    shellcheck = Path(sys.executable).with_name("shellcheck")
    for words in (["bash", "-n", str(path)], [str(shellcheck), "--exclude=SC1091", str(path)]):
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("kind", KINDS)
def test_the_shipped_files_are_what_the_command_writes(kind: str, tmp_path: Path) -> None:
    out = tmp_path / "deep" / "file"
    words = ["launch", kind, "hymo_750m", "--data", "data", "--runs", "runs", "--out", str(out)]
    assert main(words) == 0
    assert out.read_text() == (ROOT / "launch" / SHIPPED[kind]).read_text()


@RECIPES
@pytest.mark.parametrize("kind", KINDS)
def test_no_file_holds_a_secret(kind: str, recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names of keys appear, values never: not from the environment of whoever renders, and in no literal form."""
    for name in ("WANDB_API_KEY", "HF_TOKEN", "ALERT"):
        monkeypatch.setenv(name, "s3cr3t-value-of-a-key")
    text = KINDS[kind](recipe)
    assert "s3cr3t" not in text
    for match in re.finditer(r"(?i)[\w-]*(?:key|token|secret|passw|credential)[\w-]*[:=][ \t]*(\S*)", text):
        assert match[1] in ("", "null", "WANDB_API_KEY", "HF_TOKEN", "ALERT"), match[0]
    assert not re.search(r"\b(sk-|hf_|AKIA|ghp_)\w+|https?://\S+@", text)


def test_what_cannot_start_is_refused() -> None:
    with pytest.raises(ConfigError, match="do not divide over 24 ranks"):
        torchrun(Recipe("hymo_750m", data="d", nodes=3))
    with pytest.raises(UsageError, match=r"run\.data: not set"):
        slurm(Recipe("hymo_750m"))
    with pytest.raises(UsageError, match=r"run\.alert=env:NAME"):
        kubernetes(Recipe("hymo_750m", data="d", overrides=("run.alert=https://example.org/hook",)))
    with pytest.raises(UsageError, match="one machine on RunPod"):
        skypilot(Recipe("hymo_750m", data="d", nodes=2))
    with pytest.raises(UsageError, match="too long for pods"):
        kubernetes(Recipe("hymo_750m", data="d", overrides=(f"run.name={'x' * 41}",)))
    with pytest.raises(UsageError, match="--nodes 0"):
        torchrun(Recipe("hymo_750m", data="d", nodes=0))


FAKE = """#!/usr/bin/env bash
name=$(basename "$0")
echo "$name ${*%%$'\\n'*}" >> "$LOG"
case "$name $*" in
    "srun"*) echo $$ > "$LOG.srun"; while [[ $1 == --* ]]; do shift; done; exec "$@" ;;
    *doctor*) exit "${DOCTOR:-0}" ;;
    *" train "*)
        trap 'echo TERM >> "$LOG"; exit 143' TERM
        touch "$LOG.started"
        for _ in $(seq 200); do [ -e "$LOG.end" ] && exit 7; sleep 0.02; done ;;
    "scontrol show"*) echo first; echo second ;;
    "scancel"*) kill -TERM "$(cat "$LOG.srun")" ;;
esac
"""


class Machine:
    """A folder of commands that a script finds instead of the real ones; what they were called with is kept."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.log = folder, folder / "log"
        for name in ("python3", "srun", "scontrol", "scancel"):
            (folder / name).write_text(FAKE)
            (folder / name).chmod(0o755)

    def run(self, script: str, stop: bool, **environment: str) -> tuple[int, list[str]]:
        """Exit code and calls of a script that is told to stop, or whose training ends with 7."""
        path = self.folder / "script.sh"
        path.write_text(script)
        for name in ("log", "log.started", "log.end"):
            (self.folder / name).unlink(missing_ok=True)
        variables = {**os.environ, "PATH": f"{self.folder}:{os.environ['PATH']}", "LOG": str(self.log), **environment}
        variables |= {"SLURM_JOB_ID": "5", "SLURM_JOB_NODELIST": "n[1-2]"}
        with subprocess.Popen(["bash", str(path)], cwd=self.folder, env=variables) as process:
            until = time.monotonic() + 20
            while process.poll() is None and not (self.folder / "log.started").exists():
                assert time.monotonic() < until
                time.sleep(0.01)
            if stop:
                process.send_signal(signal.SIGTERM)
            else:
                (self.folder / "log.end").touch()
            code = process.wait(20)
        return code, [line.partition(" --")[0] if "python3" not in line else line for line in self.log_lines()]

    def log_lines(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []


def test_every_machine_tries_first_then_trains_and_passes_a_signal_on_once(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    script = torchrun(FLAGSHIP)
    code, calls = machine.run(script, stop=False)
    assert code == 7  # torchrun's own
    assert [re.search(r"-m hymo (\w+)", call)[1] for call in calls] == ["doctor", "train"]  # type: ignore[index]
    assert "localhost:29500" in calls[1]
    code, calls = machine.run(script, stop=False, DOCTOR="1")
    assert (code, len(calls)) == (1, 1)  # nothing is trained
    (tmp_path / "runs" / "hymo_750m" / "checkpoints").mkdir(parents=True)
    code, calls = machine.run(script, stop=True)
    assert code == 143
    assert [" train " in calls[0], *calls[1:]] == [True, "TERM"]
    early = script.replace("\nrun python3", "\nkill -TERM $$\nrun python3")
    assert early.count("kill -TERM $$") == 1
    assert machine.run(f"{early}# told to stop before anything is started", stop=False) == (143, [])


def test_a_slurm_job_saves_and_queues_itself_again(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    (tmp_path / "runs" / "hymo_750m" / "checkpoints").mkdir(parents=True)
    code, calls = machine.run(slurm(FLAGSHIP), stop=True)
    assert code == 143
    assert calls[:2] == ["scontrol show hostnames n[1-2]", "srun"]
    assert "first:29500 -m hymo train" in calls[2]
    assert calls[3:] == ["scancel", "TERM", "scontrol requeue 5"]
    code, calls = machine.run(slurm(FLAGSHIP), stop=True, SLURM_RESTART_COUNT="10")
    assert "scontrol requeue 5" not in calls  # often enough
    code, calls = machine.run(slurm(FLAGSHIP), stop=False)
    assert (code, calls[-1].startswith("python3 -m hymo.training.torchrun ")) == (7, True)
