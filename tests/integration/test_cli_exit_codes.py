"""Exit code 2 for every wrong request, 1 for what went wrong on the way, one line of message each."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hymo.cli import main
from hymo.cli.app import COMMANDS
from hymo.core.load import derive_config, dump_config, load_config


@pytest.fixture(scope="module")
def there(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Names that the tables use, and what they stand for."""
    folder = tmp_path_factory.mktemp("there")
    run = Path(shutil.copytree(finished, folder / "run"))
    config = load_config(run / "config.yaml")
    assert config.run.data is not None

    def variant(name: str, run: dict[str, object] | None = None, **groups: dict[str, object]) -> str:
        path = folder / f"{name}.yaml"
        run = {"output_dir": str(folder), "name": name, **(run or {})}
        path.write_text(dump_config(derive_config(config, run=run, **groups)))
        return str(path)

    (folder / "empty").mkdir()
    (folder / "file").write_text("no folder")
    (folder / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    damaged = Path(shutil.copytree(finished, folder / "damaged"))
    for tensors in damaged.glob("checkpoints/*/*.distcp"):
        tensors.write_bytes(tensors.read_bytes()[:-1])
    bad = Path(shutil.copytree(config.run.data, folder / "bad"))
    (bad / "dataset.json").write_text("{")
    headless = Path(shutil.copytree(finished, folder / "headless"))
    (headless / "config.yaml").unlink()
    foreign = derive_config(config, run={"tokenizer": "tokenizer.json"})
    Path(shutil.copytree(finished, folder / "foreign") / "config.yaml").write_text(dump_config(foreign))
    for checkpoint in (folder / "foreign" / "checkpoints").iterdir():
        shutil.rmtree(checkpoint)
    return {
        "RUN": str(run),
        "STEP": str(run / "checkpoints" / "step-00000012"),
        "DATA": config.run.data,
        "MISSING": str(folder / "missing"),
        "EMPTY": str(folder / "empty"),
        "FILE": str(folder / "file"),
        "BINARY": str(folder / "binary.yaml"),
        "DAMAGED": str(damaged),
        "BAD_DATA": str(bad),
        "HEADLESS": str(headless),
        "FOREIGN_RUN": str(folder / "foreign"),
        "CONFIG": variant("new"),
        "FOREIGN": variant("tok", {"tokenizer": "tokenizer.json"}),
        "TOO_LONG": variant("long", scheduler={"total_steps": 10**6}),
        "TOO_BIG": variant("big", training={"micro_batch_size": 10**6}),
        "SMALL_VOCAB": variant("vocab", model={"vocab_size": 100}),
        "NO_DATA": variant("nodata", {"data": None}),
        "OUT": str(folder / "out"),
    }


WRONG = """
ablate
ablate Z --data DATA
ablate E --data DATA --preset MISSING
ablate E --data DATA --preset CONFIG --seeds 0
train
train CONFIG --resume RUN
train MISSING
train BINARY
train EMPTY
train NO_DATA
train CONFIG --data MISSING
train CONFIG --data EMPTY
train CONFIG --data FILE
train FOREIGN
train TOO_LONG
train TOO_BIG
train SMALL_VOCAB
train CONFIG --set training.spike_window=1
train CONFIG --set training.sede=3
train CONFIG --set training.seed
train CONFIG --set run.device=cuda
train CONFIG --set run.output_dir=FILE
train --resume MISSING
train --resume EMPTY
train --resume HEADLESS
train --resume FOREIGN_RUN
train --resume RUN --set model.dim=64
train --resume RUN --set scheduler.total_steps=3
train --nonsense
launch slurm CONFIG --nodes 0
launch slurm NO_DATA
launch nonsense CONFIG
doctor --ranks 2
eval
eval MISSING
eval EMPTY
eval FILE
eval RUN --data MISSING
eval RUN --data EMPTY
eval RUN --split test
eval RUN --split train
eval RUN --stride 0
eval RUN --stride 100000
eval RUN --batch-size 0
eval RUN --max-bytes 0
eval RUN --max-bytes x
eval RUN --device cuda
humaneval run
humaneval run MISSING
humaneval run RUN --problems MISSING
humaneval run RUN --samples 0
humaneval run RUN --workers 0
humaneval run RUN --k 2
humaneval run RUN --limit -1
humaneval run RUN --cpu-seconds 0
humaneval run RUN --memory-mib 0
humaneval run RUN --memory-mib 4
humaneval run RUN --max-new-tokens 0
humaneval verify --problems MISSING
humaneval verify --workers 0
recall positions MISSING
recall positions RUN --length 0
recall positions RUN --data MISSING
recall compare --task nonsense
recall compare --model nonsense
recall compare --seeds 0
generate
generate MISSING x
serve
serve MISSING --port 0
serve EMPTY --port 0
serve RUN --port 99999
serve RUN --port 0 --host nowhere.invalid
serve RUN --port 0 --slots 0
serve RUN --port 0 --token-budget 0
serve RUN --port 0 --max-waiting 0
serve RUN --port 0 --api-key=
serve RUN --port 0 --device cuda
bench decode
bench decode MISSING
bench decode RUN --batch 0
bench decode RUN --context 4000
generate EMPTY x
generate FILE x
generate STEP --max-new-tokens 0
generate STEP x --temperature -1
generate STEP x --top-p 2
generate STEP x --top-k -1
generate STEP x --min-p 3
generate STEP x --repetition-penalty 0
generate STEP x --max-new-tokens 100000
generate STEP x --device cuda
generate STEP x --seed one
generate STEP x --temperature inf
generate STEP x --temperature nan
generate STEP x --seed -99999999999999999999
export
export RUN
export MISSING --out OUT
export EMPTY --out OUT
export FILE --out OUT
export RUN --out EMPTY
export RUN --out FILE
export RUN --out FILE/x
export RUN --out OUT --tolerance 0
export RUN --out OUT --tolerance nan
export RUN --out OUT --max-shard-size big
import
import EMPTY
import MISSING --out OUT
import FILE --out OUT
import EMPTY --out OUT
import RUN --out OUT
import RUN --out FILE
plot
plot MISSING
plot EMPTY
plot FILE
plot RUN --metric train/los
plot RUN --out x.jpg
plot RUN --out FILE/x.png
plot RUN --smooth 0
replay
replay RUN
replay MISSING --step 1
replay EMPTY --step 1
replay HEADLESS --step 1
replay FOREIGN_RUN --step 1
replay RUN --step 0
replay RUN --step 13
replay RUN --step 1 --micro 9
replay RUN --step 1 --checkpoint MISSING
replay RUN --step 1 --checkpoint EMPTY
watch
watch MISSING
watch EMPTY
watch FILE
watch RUN --interval 0
watch RUN --interval nan
checkpoint list
checkpoint list MISSING
checkpoint list FILE
checkpoint verify EMPTY
checkpoint prune STEP
checkpoint prune MISSING
checkpoint prun RUN
data prepare
data prepare MISSING --out OUT
data prepare EMPTY --out OUT
data prepare FILE --out OUT
data prepare RUN/metrics.jsonl --out FILE
data prepare RUN/metrics.jsonl --out DATA
data prepare RUN/metrics.jsonl --out OUT --tokenizer nope
data prepare RUN/metrics.jsonl
tokenizer train
tokenizer train RUN/metrics.jsonl
tokenizer train MISSING --out OUT
tokenizer train EMPTY --out OUT
tokenizer train RUN/metrics.jsonl --out OUT --vocab-size 271
tokenizer train RUN/metrics.jsonl --out OUT --limit-bytes 0
tokenizer train RUN/metrics.jsonl --out OUT --weight 1 --weight 2
tokenizer train RUN/metrics.jsonl --out OUT --weight -1
tokenizer stats
tokenizer stats byte
tokenizer stats MISSING RUN/metrics.jsonl
tokenizer stats EMPTY RUN/metrics.jsonl
tokenizer stats byte MISSING
config show
config show MISSING
config show hymo_tiny --set model.dmi=3
config lst
bench nonsense
bench train
bench train MISSING
bench train hymo_tiny
bench train hymo_tiny --data MISSING
bench train hymo_tiny --data DATA --warmup 0
bench train hymo_tiny --data DATA --seconds 0
plan
plan MISSING
plan hymo_tiny --gpu nope
plan hymo_tiny --gpus 0
plan hymo_tiny --context 0
plan hymo_tiny --price -1
plan hymo_tiny --price nan
plan hymo_tiny --price inf
demo --out FILE
demo --shrt
doctor --what
nonsense
"""

FAILED = """
train CONFIG --data BAD_DATA
eval DAMAGED
eval RUN --data BAD_DATA
generate DAMAGED x
export DAMAGED --out OUT
replay DAMAGED --step 1 --per-token
checkpoint verify DAMAGED
"""


def words(line: str, names: dict[str, str]) -> list[str]:
    """The words of a command line, each name in them replaced by what it stands for, longest first."""
    out = []
    for word in line.split():
        for name in sorted(names, key=len, reverse=True):
            if name in word:
                word = word.replace(name, names[name])
                break
        out.append(word)
    return out


def check(line: str, names: dict[str, str], code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words(line, names)) == code, line
    shown = capsys.readouterr()
    assert shown.out == "", line
    said = [text for text in shown.err.splitlines() if not (code == 1 and text.startswith("warning: "))]
    assert all(text.startswith("error: ") for text in said), shown.err
    assert len(said) == (4 if line == "checkpoint verify DAMAGED" else 1), shown.err


@pytest.mark.parametrize("line", WRONG.strip().splitlines())
def test_a_wrong_request_is_2(line: str, there: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(Path(there["OUT"]).parent.iterdir())
    check(line, there, 2, capsys)
    assert sorted(Path(there["OUT"]).parent.iterdir()) == before  # and nothing was begun


@pytest.mark.parametrize("line", FAILED.strip().splitlines())
def test_what_goes_wrong_on_the_way_is_1(line: str, there: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    check(line, there, 1, capsys)


def test_a_prompt_of_any_bytes_is_continued(there: dict[str, str]) -> None:
    command = [
        sys.executable,
        "-m",
        "hymo",
        "generate",
        there["STEP"],
        b"\xff\xfeab",
        "--max-new-tokens",
        "3",
        "--json",
    ]
    done = subprocess.run(command, capture_output=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    said = json.loads(done.stdout)
    assert said["prompt"] == "\ufffd\ufffdab"
    assert 1 <= len(said["tokens"]) <= 3


def test_every_command_is_in_the_table() -> None:
    assert {line.split()[0] for line in WRONG.split("\n") if line} == {name for name, _, _ in COMMANDS} | {"nonsense"}


@pytest.mark.parametrize("line", ["config show hymo_tiny", "plan hymo_tiny --json", "doctor", "checkpoint list RUN"])
def test_a_full_disk_behind_stdout_is_told(line: str, there: dict[str, str]) -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "hymo", *words(line, there)]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert done.stderr == "error: No space left on device. Check space, path and permissions there.\n"


Break = Callable[[Path], object]
IN_THE_WAY: dict[str, Break] = {
    "config.yaml": lambda run: (run / "config.yaml").mkdir(),
    "env.json": lambda run: (run / "env.json").mkdir(),
    "metrics.jsonl": lambda run: (run / "metrics.jsonl").mkdir(),
    "events.jsonl": lambda run: (run / "events.jsonl").mkdir(),
    "run.lock": lambda run: (run / "run.lock").mkdir(),
    "checkpoints": lambda run: (run / "checkpoints").write_text(""),
}


@pytest.mark.parametrize("name", IN_THE_WAY)
def test_a_place_that_cannot_be_written_is_named(
    name: str, there: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "blocked"
    run.mkdir()
    IN_THE_WAY[name](run)
    code = main(["train", there["CONFIG"], f"--set=run.output_dir={tmp_path}", "--set=run.name=blocked"])
    message = capsys.readouterr().err
    assert code == 2
    assert message.count("\n") == 1
    assert str(run) in message
    assert "cannot be" in message
