"""The distributed engine writes what the one-machine path writes; Slurm's files are right."""

import dataclasses
import hashlib
import json
import os
import random
import re
import shutil
import stat
import subprocess
import sys

import dill
import pytest

from hymo.cli.app import main
from hymo.core.errors import DataError, UsageError
from hymo.data import ByteTokenizer
from hymo.data.engine import Cluster, logs_of, run_on_engine
from hymo.data.mixture import Mixture
from hymo.data.prepare import make_job, run
from hymo.data.recipe import make_mixture_job

TOK = ByteTokenizer()


def files_of(directory):
    return {
        str(p.relative_to(directory)): hashlib.sha256(p.read_bytes()).hexdigest()
        for p in directory.rglob("*")
        if p.is_file() and not p.relative_to(directory).parts[0].startswith("logs-")
    }


def write_inputs(folder):
    rng = random.Random(0)
    texts = ["".join(rng.choices("abcdefgh ü\n", k=rng.randint(1, 600))) for _ in range(150)]
    for number in range(3):
        part = [*texts[number::3], *texts[:10]]
        lines = [*(json.dumps({"text": t}) for t in part), "broken"]
        (folder / f"{number}.jsonl").write_text("\n".join(lines) + "\n")
    return [folder / f"{number}.jsonl" for number in range(3)]


def make(inputs, out, **options):
    job = make_job(inputs, out, TOK, fractions=(0.8, 0.1, 0.1), shard_tokens=9_000, seed=5, **options)
    return dataclasses.replace(job, block_bytes=10_000)


def make_mixed(inputs, out):
    """Budgets over streams, with duplicates between sources: the plan has to read on."""
    sources = {
        "a": {"local": [str(inputs[0]), str(inputs[1])], "weight": 0.5, "licence": "CC0-1.0"},
        "b": {"local": str(inputs[2]), "weight": 0.5, "licence": "CC0-1.0"},
    }
    mixture = Mixture.model_validate({"sources": sources, "validation": "a"})
    return dataclasses.replace(make_mixture_job(mixture, out, TOK, train_tokens=14_000), block_bytes=2_000)


@pytest.mark.parametrize("kind", [make, make_mixed])
def test_two_local_workers_write_what_one_machine_writes(tmp_path, kind):
    inputs = write_inputs(tmp_path)
    expected = run(kind(inputs, tmp_path / "one"), TOK)
    job = kind(inputs, tmp_path / "many")
    assert run_on_engine(job, Cluster("local", tasks=3, workers=2)) == expected
    assert files_of(tmp_path / "many") == files_of(tmp_path / "one")
    assert len(files_of(tmp_path / "one")) >= 4
    done = {str(p.relative_to(logs_of(job))) for p in logs_of(job).rglob("completions/*")}
    assert done == {
        *(f"encode/completions/0000{i}" for i in range(3)),
        *(f"write/completions/0000{i}" for i in range(3)),
        "plan/completions/00000",
        "finish/completions/00000",
    }


def test_marks_of_an_earlier_preparation_skip_nothing(tmp_path):
    inputs = write_inputs(tmp_path)
    job = make(inputs, tmp_path / "out")
    first = run_on_engine(job, Cluster("local", tasks=1, workers=1))
    with pytest.raises(UsageError, match="already holds"):
        run_on_engine(job, Cluster("local", tasks=1, workers=1))
    assert run_on_engine(job, Cluster("local", tasks=1, workers=1), overwrite=True) == first
    changed = dataclasses.replace(job, seed=6)
    assert logs_of(changed) != logs_of(job)
    assert run_on_engine(changed, Cluster("local", tasks=1, workers=1), overwrite=True).fingerprint != first.fingerprint


def test_a_failed_task_is_an_error_and_the_same_command_goes_on(tmp_path, monkeypatch):
    inputs = write_inputs(tmp_path)
    expected = run(make(inputs, tmp_path / "one"), TOK)
    job = make(inputs, tmp_path / "out")
    original = type(job).write

    def fail(self, plan, split, index, tokenizer):
        if index == 1:
            raise RuntimeError("the node is gone")
        return original(self, plan, split, index, tokenizer)

    monkeypatch.setattr(type(job), "write", fail)
    with pytest.raises(DataError, match=r"the node is gone.*the same command goes on"):
        run_on_engine(job, Cluster("local", tasks=2, workers=1))
    monkeypatch.undo()
    assert run_on_engine(job, Cluster("local", tasks=2, workers=1)) == expected
    assert files_of(tmp_path / "out") == files_of(tmp_path / "one")
    blank = tmp_path / "blank.jsonl"
    blank.write_text("\n\n")
    with pytest.raises(DataError, match="no training document is left"):
        run_on_engine(make([blank], tmp_path / "blank"), Cluster("local", tasks=1, workers=1))


def test_slurm_files_of_a_dry_run(tmp_path, capsys):
    inputs = write_inputs(tmp_path)
    words = ["data", "prepare", *map(str, inputs), "--out", str(tmp_path / "out"), "--engine", "datatrove"]
    words += ["--executor", "slurm", "--tasks", "5", "--workers", "2", "--time", "03:00:00", "--memory-gb", "7"]
    assert main([*words, "--dry-run"]) == 2
    assert "--partition" in capsys.readouterr().err
    assert main([*words, "--partition", "cpu", "--dry-run"]) == 0
    submit = (tmp_path / capsys.readouterr().out.strip()).read_text()
    job = make_job(inputs, tmp_path / "out", TOK)
    logs = logs_of(job)
    lines = [line for line in submit.splitlines() if "sbatch" in line]
    assert [line.split("=$(")[0] for line in lines] == ["job3", "job4", "job5", "job6"]
    for line, step, before in zip(lines, ("encode", "plan", "write", "finish"), (None, 3, 4, 5), strict=True):
        assert line.endswith(f"{logs / step / 'launch_script.slurm'})")
        assert (f"--dependency=afterok:$job{before} " in line) == (before is not None)
    subprocess.run(["bash", "-n", logs / "submit.sh"], check=True)
    for step, tasks in (("encode", 5), ("plan", 1), ("write", 5), ("finish", 1)):
        script = (logs / step / "launch_script.slurm").read_text()
        subprocess.run(["bash", "-n", logs / step / "launch_script.slurm"], check=True)
        options = dict(re.findall(r"^#SBATCH --([\w-]+)=(.*)$", script, re.MULTILINE))
        assert options["array"] == f"0-{tasks - 1}%2"
        assert (options["partition"], options["time"], options["mem-per-cpu"]) == ("cpu", "03:00:00", "7G")
        assert (options["job-name"], options["cpus-per-task"]) == (f"hymo-{step}", "1")
        assert f"launch_pickled_pipeline {logs / step / 'executor.pik'}" in script
        assert os.path.dirname(sys.executable) in script
        with (logs / step / "executor.pik").open("rb") as file:
            executor = dill.load(file)
        assert executor.pipeline[0].name == step
        assert executor.pipeline[0].job.work == job.work
        assert json.loads((logs / step / "ranks_to_run.json").read_text()) == list(range(tasks))


def test_wrong_requests(tmp_path, capsys, monkeypatch):
    inputs = write_inputs(tmp_path)
    job = make(inputs, tmp_path / "out")
    for cluster, dry, says in (
        (Cluster("slurm", 2), True, "--partition"),
        (Cluster("slurm", 2, partition="cpu"), False, "sbatch was not found"),
        (Cluster("local", 2), True, "--executor slurm"),
        (Cluster("local", 0), False, "at least 1"),
    ):
        monkeypatch.setenv("PATH", "")
        with pytest.raises(UsageError, match=says):
            run_on_engine(job, cluster, dry_run=dry)
    for missing, kind in (("datatrove.executor", "local"), ("ray", "ray")):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, missing, None)
            with pytest.raises(UsageError, match="pip install"):
                run_on_engine(job, Cluster(kind, 2))
    assert not (tmp_path / "out").exists()
    assert main(["data", "prepare", str(inputs[0]), "--out", str(tmp_path / "x"), "--tasks", "3"]) == 2
    assert "--engine" in capsys.readouterr().err


SBATCH = """#!{python}
import os, re, subprocess, sys
script = sys.argv[-1]
text = open(script).read()
found = re.search(r"--array=0-(\\d+)", text)
if "merge_stats" not in text:
    for task in range(int(found.group(1)) + 1):
        own = {{"SLURM_ARRAY_TASK_ID": str(task), "SLURM_NODELIST": "here", "RUN_OFFSET": "0"}}
        subprocess.run(["bash", script], check=True, capture_output=True, env=os.environ | own)
print("Submitted batch job 7")
"""


@pytest.mark.heavy
def test_slurm_simulated_by_programs_of_its_names(tmp_path, monkeypatch):
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "sbatch").write_text(SBATCH.format(python=sys.executable))
    (programs / "srun").write_text('#!/bin/bash\nwhile [[ $1 == -* || $1 == 1 ]]; do shift; done\nexec "$@"\n')
    (programs / "scontrol").write_text("#!/bin/bash\necho here\n")
    for program in programs.iterdir():
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    inputs = write_inputs(tmp_path)
    run(make(inputs, tmp_path / "one"), TOK)
    assert shutil.which("sbatch") == str(programs / "sbatch")
    assert run_on_engine(make(inputs, tmp_path / "many"), Cluster("slurm", 2, partition="cpu")) is None
    assert files_of(tmp_path / "many") == files_of(tmp_path / "one")


@pytest.mark.heavy
def test_ray_started_on_this_machine(tmp_path):
    import ray  # no part of the dev extra: pip install ray

    inputs = write_inputs(tmp_path)
    expected = run(make(inputs, tmp_path / "one"), TOK)
    try:
        assert run_on_engine(make(inputs, tmp_path / "many"), Cluster("ray", 2, memory_gb=1)) == expected
    finally:
        ray.shutdown()
    assert files_of(tmp_path / "many") == files_of(tmp_path / "one")
