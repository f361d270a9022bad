"""The command line: exit codes, messages, streams, and what help must not import."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from cyclopts import App

import hymo
from hymo.cli.app import COMMANDS, _take_debug, build_app, main
from hymo.core.errors import DataError, TrainingError
from hymo.core.load import load_config, preset_names

ROOT = Path(__file__).parents[2]
HEAVY_MODULES = ("torch", "numpy", "matplotlib", "triton")


def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hymo", *words],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, **environment},
    )


def every_command(app: App, *words: str) -> Iterator[list[str]]:
    """The words of the application, of each command and of each of its subcommands."""
    yield list(words)
    for name in app:
        if not name.startswith("-"):
            yield from every_command(app[name], *words, name)


ALL_COMMANDS = list(every_command(build_app()))


def test_all_commands_are_found() -> None:
    assert {words[0] for words in ALL_COMMANDS if words} == {name for name, _, _ in COMMANDS}
    for words in ("config show", "data prepare", "checkpoint prune", "bench train", "tokenizer train"):
        assert words.split() in ALL_COMMANDS


@pytest.mark.parametrize("words", ALL_COMMANDS, ids=" ".join)
def test_help_imports_nothing_heavy(words: list[str]) -> None:
    code = (
        "import sys; from hymo.cli import main; "
        f"code = main({[*words, '--help']!r}); "
        f"print('HEAVY', [m for m in {HEAVY_MODULES} if m in sys.modules]); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "Usage: hymo" in done.stdout
    assert done.stdout.splitlines()[-1] == "HEAVY []"


def test_every_registered_command_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(f" {name} " in shown for name, _, _ in COMMANDS)


def test_core_imports_no_torch() -> None:
    code = (
        "import sys, pkgutil, importlib, hymo.core\n"
        "for m in pkgutil.iter_modules(hymo.core.__path__): importlib.import_module('hymo.core.' + m.name)\n"
        f"print([m for m in {HEAVY_MODULES} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "[]"


def test_using_a_model_imports_no_trainer() -> None:
    modules = ("hymo.training.device", "hymo.inference", "hymo.evaluation.perplexity", "hymo.data.of_run")
    code = f"import sys, {', '.join(modules)}; print('hymo.training.trainer' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "False"


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == hymo.__version__
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == hymo.__version__


def test_plan_json() -> None:
    done = run("plan", "hymo_750m", "--json", "--context", "32768")
    assert (done.returncode, done.stderr.count("warning")) == (0, 0)
    plan = json.loads(done.stdout)
    assert plan["parameters"]["stored"] == 1_128_090_624
    assert plan["parameters"]["active"] == 434_457_600
    assert plan["cache_bytes"] == 134_217_728


def test_plan_as_text_keeps_streams_apart() -> None:
    done = run("plan", "hymo_750m", "--gpu", "h200", "--gpus", "3", "--price", "2.5")
    assert done.returncode == 0
    assert "1,128,090,624" in done.stdout
    assert "carried over to: 3 ranks" in done.stdout
    assert "warning: 128 sequences per step do not divide" in done.stderr
    assert "warning" not in done.stdout


@pytest.mark.parametrize("words", [["plan", "hymo_tiny", "--gpu", "h100"], ["config", "list"], ["--help"], ["nope"]])
def test_no_control_characters_without_a_terminal(words: list[str]) -> None:
    done = run(*words, NO_COLOR="1")
    assert all(c == "\n" or c.isprintable() for c in done.stdout + done.stderr)


def test_config_list_and_show(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["config", "list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert {row["name"] for row in listed} == set(preset_names())
    assert [row["stored"] for row in listed] == sorted(row["stored"] for row in listed)

    assert main(["config", "show", "hymo_tiny", "--set", "training.seed=5"]) == 0
    path = tmp_path / "shown.yaml"
    path.write_text(capsys.readouterr().out, encoding="utf-8")
    assert load_config(path) == load_config("hymo_tiny", ["training.seed=5"])
    assert main(["config", "show", "hymo_tiny", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["model"]["dim"] == 96


def test_data_prepare(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = tmp_path / "a.jsonl"
    text.write_text("".join(json.dumps({"text": f"document {i}"}) + "\n" for i in (1, 2, 2)))
    held_out = tmp_path / "b.jsonl"
    held_out.write_text(json.dumps({"text": "held out"}) + "\n")
    words = ["data", "prepare", str(text), "--out", str(tmp_path / "set"), "--validation", str(held_out)]
    assert main([*words, "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["splits"]["train"]["documents"] == 2
    assert summary["splits"]["validation"]["bytes"] == len("held out")
    assert summary["duplicates"] == 1
    assert main(words) == 2
    assert "already holds a data set" in capsys.readouterr().err
    assert main([*words, "--overwrite"]) == 0
    assert "train" in capsys.readouterr().out


BAD_CONFIG = "base: hymo_tiny\nmodel:\n  {}\n"
WRONG: list[tuple[list[str], str, list[str]]] = [
    (["plan", "FILE"], "n_layres: 3", ["run.yaml:3", "model.n_layres", "did you mean 'n_layers'?"]),
    (["plan", "FILE"], "dim: true", ["run.yaml:3", "model.dim", "integer", "True"]),
    (["plan", "FILE"], 'dim: "16"', ["run.yaml:3", "model.dim", "integer", "'16'"]),
    (["plan", "FILE"], "dim: 96\n  dim: 96", ["run.yaml:4", "duplicate key 'model.dim'", "line 3"]),
    (["plan", "FILE"], "n_kv_groups: 3", ["run.yaml:3", "model.n_kv_groups", "3 does not divide n_heads (4)"]),
    (["plan", "FILE"], "gdn_d_inner: 100", ["run.yaml:3", "model.gdn_d_inner", "multiple of gdn_headdim (32)"]),
    (["config", "show", "FILE"], "dmi: 3", ["run.yaml:3", "did you mean 'dim'?"]),
    (["plan", "configs/hymo_75m.yaml"], "", ["configs/hymo_75m.yaml", "no such file", "did you mean 'hymo_750m'?"]),
    (["plan", "hymo_tiny", "--set", "model.dmi=1"], "", ["--set model.dmi=1", "did you mean 'dim'?"]),
    (["plan", "hymo_tiny", "--gpu", "h20"], "", ["--gpu h20", "did you mean 'h200'?"]),
    (["plan", "hymo_tiny", "--gpus", "two"], "", ["--gpus", "two"]),
    (["plan", "hymo_tiny", "--gups", "2"], "", ["--gups", "--gpus"]),
    (["plan"], "", ["CONFIG"]),
    (["pla", "hymo_tiny"], "", ["pla", 'Did you mean "plan"']),
    (["plan", "hymo_900m", "--gpu", "rtx4090"], "", ["does not fit", "GiB"]),
    (["data", "prepare", "missing.txt", "--out", "OUT"], "", ["missing.txt", "no such file"]),
]


@pytest.mark.parametrize(("words", "line", "says"), WRONG)
def test_wrong_requests_exit_2_with_one_message(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, words: list[str], line: str, says: list[str]
) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(BAD_CONFIG.format(line))
    names = {"FILE": str(path), "OUT": str(tmp_path / "out")}
    assert main([names.get(word, word) for word in words]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("error: ")
    assert shown.err.count("\n") == 1
    for part in says:
        assert part in shown.err


def test_empty_text_exits_1(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.touch()
    assert main(["data", "prepare", str(empty), "--out", str(tmp_path / "out")]) == 1
    assert "empty.jsonl: the file is empty" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code"), [(DataError("bad shard"), 1), (TrainingError("stopped"), 1), (KeyboardInterrupt(), 130)]
)
def test_errors_of_a_run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("hymo.core.load.load_config", fail)
    assert main(["plan", "hymo_tiny"]) == code
    message = capsys.readouterr().err
    assert "Traceback" not in message
    assert str(error) in message


def test_debug_shows_the_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--debug", "plan", "nope"], ["plan", "nope", "--debug"]):
        assert main(words) == 2
        assert "Traceback" in capsys.readouterr().err


def test_debug_behind_the_separator_is_text() -> None:
    assert _take_debug(["generate", "--debug", "--", "--debug"]) == (["generate", "--", "--debug"], True)
    assert _take_debug(["generate", "--", "--debug"]) == (["generate", "--", "--debug"], False)


def test_streams_that_are_closed_or_cannot_show_a_character() -> None:
    hymo = f"{sys.executable} -m hymo"
    for command, code, out in (
        (f"{hymo} config list >&-", 0, ""),
        (f"{hymo} config show nope 2>&-", 2, ""),
        (f"{hymo} config list --json <&- >&- 2>&-", 0, ""),
        (f"PYTHONIOENCODING=ascii {hymo} config show é 2>&1", 2, "error: \\xe9: no such file or preset"),
    ):
        done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=120, check=False)
        assert (done.returncode, done.stderr) == (code, ""), command
        assert done.stdout.startswith(out), command
        assert bool(done.stdout) == bool(out), command


def test_a_closed_pipe_is_quiet() -> None:
    command = f"{sys.executable} -m hymo config show hymo_750m | true"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=120, check=False)
    assert done.stderr == ""
