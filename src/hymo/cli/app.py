"""The `hymo` command: its subcommands, loaded when called, and the mapping of errors to messages and exit codes."""

from __future__ import annotations

import io
import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from typing import TextIO

from cyclopts import App, CycloptsError

from hymo import __version__
from hymo.core.errors import HymoError, RankError, UsageError
from hymo.core.launch import launched_rank, launched_ranks

OK, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130
"""Exit codes: success, a run that failed, a wrong request, Ctrl-C."""

COMMANDS = (
    ("demo", "hymo.cli.demo:demo", "Train, evaluate and sample a small model on the packaged text, on a CPU."),
    ("train", "hymo.cli.train:train", "Train a model, or resume a run."),
    ("watch", "hymo.cli.watch:watch", "Show a run as it goes."),
    ("plot", "hymo.cli.plot:plot", "Draw curves of runs."),
    ("replay", "hymo.cli.replay:replay", "Rebuild what a step was trained on."),
    ("checkpoint", "hymo.cli.checkpoint:app", "List, verify and prune checkpoints."),
    ("eval", "hymo.cli.eval:evaluate", "Measure a checkpoint on held-out text, benchmark tasks and suites."),
    ("humaneval", "hymo.cli.humaneval:app", "Let a checkpoint write functions, and test them in a sandbox."),
    ("ablate", "hymo.cli.ablate:ablate", "Train variants of a configuration side by side, and compare them."),
    ("recall", "hymo.cli.recall:app", "Tell what models recall, and how far back."),
    ("generate", "hymo.cli.generate:generate", "Continue a prompt."),
    ("serve", "hymo.cli.serve:serve", "Serve a checkpoint: completions API and playground page."),
    ("export", "hymo.cli.export:export", "Write a checkpoint for transformers."),
    ("import", "hymo.cli.export:import_export", "Turn an export back into a checkpoint."),
    ("bench", "hymo.cli.bench:app", "Measure speed on this machine."),
    ("plan", "hymo.cli.plan:plan", "Tell memory, time and cost of a run before it starts."),
    ("doctor", "hymo.cli.doctor:doctor", "Say what is installed, which fast paths are on, and why not."),
    ("launch", "hymo.cli.launch:launch", "Write the file that starts a run on several machines."),
    ("config", "hymo.cli.config:app", "List presets and show resolved configurations."),
    ("data", "hymo.cli.data:app", "Turn text into training shards."),
    ("tokenizer", "hymo.cli.tokenizer:app", "Train a tokenizer, and tell how it fits a text."),
)
"""Name, import path and one line of help; the path is imported when the command is called or asked for its help."""

_DEBUG = "--debug"


def build_app() -> App:
    """Return the application with its commands registered by import path."""
    app = App(
        name="hymo",
        help="HyMo: hybrid language models from raw text to generation.",
        help_epilogue="`--debug` before or after any command shows the traceback of an error.",
        version=__version__,
        version_flags=["--version"],
        result_action="return_value",
        suppress_keyboard_interrupt=False,
    )
    for name, path, summary in COMMANDS:
        app.command(path, name=name, help=summary)
    return app


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    Args:
        arguments: words after `hymo`; those of the process if None.

    Returns:
        0 ok, 1 run failed, 2 wrong usage, 130 interrupted, or the code that the command returned.
    """
    _prepare_streams()
    words, debug = _take_debug(list(sys.argv[1:] if arguments is None else arguments))
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            code = build_app()(words, exit_on_error=False, print_error=False)
        sys.stdout.flush()
    except CycloptsError as error:
        return _fail(str(error), USAGE, debug)
    except RankError as error:
        return _fail(f"ended after {error}", USAGE if error.usage else FAILED, debug)
    except HymoError as error:
        return _fail(str(error), USAGE if isinstance(error, UsageError) else FAILED, debug)
    except KeyboardInterrupt:
        return _fail("interrupted.", INTERRUPTED, debug)
    except BrokenPipeError:
        # The reader of a pipe (`| head`) has left. Python would complain again while it flushes at exit.
        _drop_output()
        return FAILED
    except OSError as error:
        place = "" if error.filename is None else f"{error.filename}: "
        code = _fail(f"{place}{error.strerror or error}. Check space, path and permissions there.", FAILED, debug)
        _drop_output()
    return code if isinstance(code, int) else OK


def _prepare_streams() -> None:
    """Make stdout and stderr take any text, and give a process that was started without them something to write to."""
    for descriptor, name in ((0, "stdin"), (1, "stdout"), (2, "stderr")):
        try:
            os.fstat(descriptor)
        except OSError:  # else the next file opened would get this number, and what is printed would land in it
            os.open(os.devnull, os.O_RDWR)
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(descriptor, "r" if descriptor == 0 else "w", closefd=False))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper) and descriptor:
            stream.reconfigure(errors="backslashreplace")


def _drop_output() -> None:
    """Send what is still to be written to stdout nowhere, if it cannot be written where it should go."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _take_debug(words: list[str]) -> tuple[list[str], bool]:
    """Take `--debug` out of the words, but leave what stands behind `--` alone."""
    end = words.index("--") if "--" in words else len(words)
    options = [word for word in words[:end] if word != _DEBUG]
    return options + words[end:], len(options) < end


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """One line for a person, without the source line that Python would add."""
    print(f"warning: {message}", file=sys.stderr)


def _fail(message: str, code: int, debug: bool) -> int:
    if debug:
        traceback.print_exc()
    where = f"rank {launched_rank()}: " if launched_ranks() > 1 else ""
    print(f"error: {where}{message}", file=sys.stderr)
    return code
