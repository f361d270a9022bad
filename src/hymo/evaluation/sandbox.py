"""One untrusted Python program at a time, behind walls that are all there or the program does not start.

What a program gets: the interpreter and the system's libraries read-only, one small folder in memory to write
(`/box`), no network, no other process in sight, no variable of the caller's environment, no descriptor but those it is
given. Linux namespaces (user, mount, process, network, ipc, host name, cgroup) make the view; resource limits, the loss
of all capabilities, no_new_privs and a system call filter keep it. Root runs programs as nobody.

The filter refuses new processes, so that the limits of one process (CPU time, memory, threads) are those of the whole
tree. `hymo.evaluation.sandbox_launcher` does the work; this module only asks. Not defended: faults of the kernel
itself, and what shared hardware gives away (timing). Memory that the kernel holds for a program (pipes, page tables) is
bounded by the number of its descriptors and threads, not by `memory_bytes`.
"""

from __future__ import annotations

import functools
import json
import os
import platform
import struct
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from hymo.core.errors import HymoError
from hymo.evaluation.sandbox_calls import ARCHITECTURES, NUMBERS, refused

_LAUNCHER = Path(__file__).with_name("sandbox_launcher.py")
_GRACE = 15.0
"""Seconds that the launcher may take beyond the wall time of its program before it is given up."""

Reason = Literal["exit", "signal", "cpu time", "wall time", "output", "stopped"]


class SandboxError(HymoError):
    """The sandbox cannot be built here, so nothing untrusted is run."""


@dataclass(frozen=True)
class Limits:
    """What one program may use, all its threads together."""

    cpu_seconds: int = 5
    """CPU time in whole seconds."""
    wall_seconds: float = 10.0
    """Time in seconds from the start to the end."""
    memory_bytes: int = 512 << 20
    """Address space in bytes."""
    threads: int = 16
    """Threads; other processes are refused altogether."""
    disk_bytes: int = 16 << 20
    """Bytes in the folder that can be written, and of one file."""
    files: int = 256
    """Files and folders there."""
    open_files: int = 64
    """Descriptors."""
    output_bytes: int = 1 << 20
    """Bytes of stdout and stderr together; the program ends when it writes more."""

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if value <= 0:
                raise ValueError(f"limit {name}: must be above 0, not {value}")


@dataclass(frozen=True)
class Outcome:
    """How a program ended."""

    reason: Reason
    """`exit` and `signal` are the program's own end; else the limit that ended it, or `stopped` for the caller."""
    code: int
    """Exit code or number of the signal; -1 where the program was ended."""
    stdout: str
    """What it wrote, up to the limit; bytes that are no UTF-8 are replaced."""
    stderr: str
    """Likewise."""
    seconds: float
    """Time from start to end, the building of the sandbox included."""
    cpu_seconds: float = 0.0
    """CPU time of the program; 0 where it was ended."""
    peak_bytes: int = 0
    """Largest resident size; 0 where it was ended."""

    @property
    def ok(self) -> bool:
        """Whether it ended with exit code 0. The program decides that, so it proves nothing about its answers."""
        return self.reason == "exit" and self.code == 0


class Running:
    """A program at work. `wait` must be called once; leaving it to the garbage collector ends the program."""

    def __init__(self, process: subprocess.Popen[bytes], limits: Limits) -> None:
        self._process, self._limits = process, limits

    def stop(self) -> None:
        """End the program and all that it started; `wait` tells how it went."""
        if self._process.stdin is not None:
            self._process.stdin.close()

    def wait(self) -> Outcome:
        """Wait for the end: no process of the program is left then.

        Raises:
            SandboxError: the sandbox could not be built; names what is missing.
        """
        process = self._process
        assert process.stdout is not None
        assert process.stdin is not None
        with process, _Alarm(process, self._limits.wall_seconds + _GRACE):
            answer = process.stdout.read()
        try:
            facts = json.loads(answer)
        except ValueError:
            raise SandboxError("sandbox: its launcher died. See whether memory is short, then try again.") from None
        if "missing" in facts:
            raise SandboxError(_refused(facts["missing"], facts["why"]))
        return _outcome(facts, self._limits)


class _Alarm:
    """Kills a launcher that outlives a time; the kernel then ends what it started."""

    def __init__(self, process: subprocess.Popen[bytes], seconds: float) -> None:
        import threading

        self._timer = threading.Timer(seconds, process.kill)
        self._timer.daemon = True

    def __enter__(self) -> None:
        self._timer.start()

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()


def start(
    files: Mapping[str, str],
    main: str,
    limits: Limits | None = None,
    descriptors: Mapping[int, int] | None = None,
) -> Running:
    """Start a program.

    Args:
        files: name -> text of the files in the read-only folder `/code`.
        main: which of them to run.
        limits: what it may use.
        descriptors: number inside (3 and up, without gaps) -> descriptor of this process. They stay open here.

    Raises:
        SandboxError: no Linux, or no process to be had. What else is missing, `wait` tells.
    """
    if sys.platform != "linux":
        raise SandboxError(_refused("Linux", f"this is {sys.platform}"))
    limits = Limits() if limits is None else limits
    descriptors = {} if descriptors is None else descriptors
    interpreter = os.path.realpath(getattr(sys, "_base_executable", "") or sys.executable)
    machine = platform.machine()
    request = {
        "python": interpreter,
        "arguments": ["-I", "-S", "-B", "-X", "utf8", f"/code/{main}"],
        "environment": {"HOME": "/box", "TMPDIR": "/box", "LANG": "C.UTF-8"},
        "view": _view(interpreter),
        "hidden": _hidden(),
        "files": dict(files),
        "limits": asdict(limits),
        "calls": NUMBERS.get(machine),
        "architecture": ARCHITECTURES.get(machine),
        "refused": refused(machine),
        "descriptors": {str(inside): here for inside, here in descriptors.items()},
    }
    body = json.dumps(request).encode()
    try:
        process = subprocess.Popen(
            [interpreter, "-I", "-S", str(_LAUNCHER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={"LANG": "C.UTF-8"},
            pass_fds=tuple(descriptors.values()),
            start_new_session=True,
        )
    except OSError as error:
        raise SandboxError(_refused("a process", error.strerror or str(error))) from None
    assert process.stdin is not None
    try:
        process.stdin.write(struct.pack("!Q", len(body)) + body)
        process.stdin.flush()
    except BrokenPipeError:  # it died; `wait` says so
        pass
    return Running(process, limits)


def run(program: str, limits: Limits | None = None) -> Outcome:
    """Run the text of a program to its end.

    Raises:
        SandboxError: the sandbox cannot be built here; nothing was run.
    """
    return start({"main.py": program}, "main.py", limits).wait()


@functools.cache
def require_sandbox() -> None:
    """Build a sandbox once and try its walls from within.

    Raises:
        SandboxError: it cannot be built, or a wall does not hold; names which.
    """
    found = run(_PROBE)
    if not found.ok or found.stdout.strip() != "held":
        what = found.stdout.strip() or f"{found.reason} {found.code}: {found.stderr.strip()[-300:]}"
        raise SandboxError(_refused("a wall", what))


_PROBE = """
import os, socket
def tries(name, action):
    try:
        action()
    except OSError:
        return
    print(name, "is possible inside")
    raise SystemExit(1)
tries("starting a process", lambda: os.fork() or os._exit(0))
tries("a socket", lambda: socket.socket())
tries("writing outside", lambda: open("/code/x", "w"))
tries("writing outside", lambda: open(os.__file__, "a"))
tries("seeing processes", lambda: os.listdir("/proc"))
tries("seeing the system's files", lambda: os.listdir("/home"))
open("/box/x", "w").close()
print("held")
"""


def _view(interpreter: str) -> list[str]:
    """What of the system a program sees: the interpreter, its library, the system's libraries."""
    wanted = [interpreter, "/lib", "/lib64", "/usr/lib", "/usr/lib64", "/etc/ld.so.cache"]
    wanted += [os.path.dirname(sysconfig.get_path(name, vars=_BASE)) for name in ("stdlib", "platstdlib")]
    found: list[str] = []
    for path in wanted:
        inside = any(path == other or path.startswith(other + "/") for other in found)
        if os.path.exists(path) and not inside:
            found.append(path)
    return found


_BASE = {"base": sys.base_prefix, "platbase": sys.base_exec_prefix}


def _hidden() -> list[str]:
    """Folders of installed packages: programs see the standard library alone, the same on every machine."""
    library = sysconfig.get_path("stdlib", vars=_BASE)
    return [f"{library}/site-packages", f"{library}/dist-packages", "/usr/lib/python3/dist-packages"]


def _outcome(facts: dict[str, Any], limits: Limits) -> Outcome:
    stdout, stderr = (facts[name].encode("latin-1").decode("utf-8", "replace") for name in ("stdout", "stderr"))
    ended: Reason = facts["reason"]
    if ended or "wait" not in facts:
        return Outcome(ended or "signal", -1, stdout, stderr, facts["seconds"])
    code = os.waitstatus_to_exitcode(facts["wait"])
    reason: Reason = "exit" if code >= 0 else "signal"
    if code == -9 and facts["cpu_seconds"] >= limits.cpu_seconds / 2:  # the kernel's two accounts of it differ
        reason = "cpu time"
    return Outcome(reason, abs(code), stdout, stderr, facts["seconds"], facts["cpu_seconds"], facts["peak_bytes"])


_CURES = {
    "user namespace": "Allow them (sysctl user.max_user_namespaces above 0; kernel.unprivileged_userns_clone=1 or "
    "kernel.apparmor_restrict_unprivileged_userns=0 where those exist; in Docker --security-opt seccomp=unconfined)",
    "limit": "Raise the caller's hard limit (ulimit -H)",
}


def _refused(what: str, why: str) -> str:
    cure = next(
        (text for start, text in _CURES.items() if what.startswith(start)),
        "Use Linux 5.14 or newer, outside a container that forbids it",
    )
    return f"sandbox: {what} is missing ({why}). Untrusted code does not run without it. {cure}."
