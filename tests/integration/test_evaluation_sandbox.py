"""Hostile programs end within their limits, reach nothing, and leave nothing; without its walls the sandbox refuses."""

from __future__ import annotations

import errno
import json
import os
import platform
import signal
import socket
import subprocess
import sys
import time
import uuid
from dataclasses import replace
from pathlib import Path

import pytest

from hymo.evaluation import sandbox
from hymo.evaluation.sandbox import Limits, Outcome, SandboxError, require_sandbox, run, start
from sandbox_helpers import SOURCES, as_nobody, without

SHORT = Limits(cpu_seconds=1, wall_seconds=20, memory_bytes=256 << 20, output_bytes=1 << 16)


def outlived(name: str) -> list[str]:
    """Command lines of processes that run a program of this name, anywhere on the machine, and own children."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
            parent = (folder / "stat").read_text().rsplit(")", 1)[1].split()[1]
        except OSError:
            continue
        if any(name in word for word in words) or (
            "sandbox_launcher" in " ".join(words) and int(parent) == os.getpid()
        ):
            found.append(" ".join(words))
    return found


def contained(program: str, limits: Limits = SHORT) -> Outcome:
    """Run a program, and check that it ended in time and left no process."""
    name = f"{uuid.uuid4().hex}.py"
    began = time.monotonic()
    outcome = start({name: program}, name, limits).wait()
    assert time.monotonic() - began < limits.wall_seconds + 5
    assert outlived(name) == []
    return outcome


def test_an_honest_program_runs() -> None:
    require_sandbox()
    outcome = contained(
        "import hashlib, math, sqlite3, ssl, threading\n"
        "thread = threading.Thread(target=print, args=('thread',)); thread.start(); thread.join()\n"
        "open('/tmp/x', 'w').write('y' * 1000); print(len(open('x').read()), '\\u00e9')"
    )
    assert (outcome.reason, outcome.code, outcome.stdout) == ("exit", 0, "thread\n1000 \u00e9\n")
    assert 0 < outcome.cpu_seconds < 1
    assert 1 << 20 < outcome.peak_bytes < 256 << 20


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("while True: pass", "cpu time"),
        ("import time\ntime.sleep(60)", "wall time"),
        (
            "import hashlib, signal, threading\n"
            "for number in set(signal.valid_signals()) - {9, 19, 32, 33}: signal.signal(number, lambda *_: None)\n"
            "signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)\n"
            "def burn():\n    while True: hashlib.sha256(bytes(1 << 20))\n"
            "for _ in range(8): threading.Thread(target=burn).start()",
            "cpu time",
        ),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)", "wall time"),
        ("while True: print('x' * 1000)", "output"),
    ],
    ids=["loop", "sleep", "threads and signals", "stopped", "output"],
)
def test_limits_end_a_program(program: str, reason: str) -> None:
    outcome = contained(program, replace(SHORT, wall_seconds=0.5) if reason == "wall time" else SHORT)
    assert (outcome.reason, outcome.ok) == (reason, False)
    assert len(outcome.stdout) <= SHORT.output_bytes


@pytest.mark.parametrize(
    "program",
    [
        "kept = []\nwhile True: kept.append(bytearray(1 << 20))",
        "import mmap\nkept = [mmap.mmap(-1, 1 << 24) for _ in range(100)]",
        "import sys\nsys.setrecursionlimit(1 << 30)\nx = []\nfor _ in range(10**6): x = [x]\nrepr(x)",
        "for i in range(1000): open(f'/box/{i}', 'wb').write(bytes(1 << 20))",
        "for i in range(10000): open(f'/box/{i}', 'w')",
        "kept = [open('/dev/null') for _ in range(1000)]",
        "import threading, time\nfor _ in range(100): threading.Thread(target=time.sleep, args=(0.2,)).start()",
    ],
    ids=["memory", "shared memory", "recursion", "disk", "files", "descriptors", "threads"],
)
def test_hogs_fail(program: str) -> None:
    assert not contained(program, replace(SHORT, memory_bytes=128 << 20)).ok


FORBIDDEN = {
    "fork": "os.fork() or os._exit(0)",
    "spawn": "os.posix_spawn(sys.executable, ['x', '-c', ''], {})",
    "subprocess": "__import__('subprocess').run([sys.executable, '-c', ''])",
    "multiprocessing": "__import__('multiprocessing').get_context('fork').Process(target=print).start()",
    "raw clone": "syscall(56, 17, 0, 0, 0, 0)",
    "raw clone3": "syscall(435, ctypes.create_string_buffer(88), 88)",
    "new user namespace": "check(libc.unshare(0x10000000))",
    "new user": "os.setuid(0)",
    "mount": "check(libc.mount(b'none', b'/box', b'tmpfs', 0, None))",
    "chroot": "os.chroot('/box')",
    "trace init": "check(libc.ptrace(16, 1, None, None))",
    "read init's memory": "syscall(310, 1, None, 0, None, 0, 0)",
    "anonymous file": "os.memfd_create('x')",
    "system V memory": "check(libc.shmget(0, 1 << 20, 0o600 | 0o1000))",
    "io_uring": "syscall(425, 1, ctypes.create_string_buffer(256))",
    "ipv4": "socket.create_connection(('127.0.0.1', port4), 1)",
    "ipv6": "socket.create_connection(('::1', port6), 1)",
    "abstract unix": "socket.socket(socket.AF_UNIX).connect('\\0' + abstract)",
    "named unix": "socket.socket(socket.AF_UNIX).connect(named)",
    "netlink": "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)",
    "name lookup": "socket.getaddrinfo('example.com', 80)",
    "secret file": "open(secret).read()",
    "user list": "open('/etc/passwd').read()",
    "processes": "os.listdir('/proc')",
    "home": "os.listdir(home)",
    "inherited descriptor": "os.read(descriptor, 1)",
    "write into the root": "open('/x', 'w')",
    "write into the library": "open(os.__file__, 'r+')",
    "write into the code": "open(__file__, 'r+')",
    "write outside": "open(outside, 'w')",
    "remount": "check(libc.mount(None, b'/', None, 32 | 4096, None))",
    "device": "os.mknod('/box/sda', 0o60600, os.makedev(8, 0))",
    "more memory": "resource.setrlimit(resource.RLIMIT_AS, (1 << 40, 1 << 40))",
    "limits of init": "resource.prlimit(1, resource.RLIMIT_CPU, (0, 0))",
    "kill init": "os.kill(1, 9) or time.sleep(0.05)",  # no error, and no effect
    "kill all others": "os.kill(-1, 9)",
}
PRELUDE = """
import ctypes, json, os, resource, socket, sys, time
libc = ctypes.CDLL(None, use_errno=True)
def check(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), "refused")
def syscall(*words):
    check(libc.syscall(*words))
def attempt(action):
    try:
        action()
    except (OSError, ValueError) as error:
        return type(error).__name__
    return "done"
"""


def test_nothing_outside_is_reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYMO_SECRET", "8d1f0c")
    secret = tmp_path / "secret"
    secret.write_text("8d1f0c")
    readable, writable = os.pipe()
    os.set_inheritable(readable, True)
    families = {"port4": (socket.AF_INET, ("127.0.0.1", 0)), "port6": (socket.AF_INET6, ("::1", 0))}
    servers = {name: socket.create_server(address, family=family) for name, (family, address) in families.items()}
    names = {"abstract": f"\0hymo-{uuid.uuid4().hex}", "named": str(tmp_path / "socket")}
    for name, address in names.items():
        servers[name] = socket.socket(socket.AF_UNIX)
        servers[name].bind(address)
        servers[name].listen()
    facts = {name: servers[name].getsockname()[1] for name in families} | {
        "abstract": names["abstract"][1:],
        "named": names["named"],
        "secret": str(secret),
        "outside": str(tmp_path / "outside"),
        "home": "/home",
        "descriptor": readable,
    }
    tried = ", ".join(f"{name!r}: attempt(lambda: {code})" for name, code in FORBIDDEN.items())
    lines = [f"{name} = {value!r}" for name, value in facts.items()]
    program = "\n".join([PRELUDE, *lines, f"print(json.dumps({{{tried}}}))", "print(os.environ, os.getppid())"])
    before = sorted(tmp_path.iterdir())
    try:
        outcome = contained(program, Limits(cpu_seconds=5, wall_seconds=10))
        assert outcome.ok, outcome
        assert "8d1f0c" not in outcome.stdout
        results = json.loads(outcome.stdout.splitlines()[0])
        assert results.pop("kill init") == "done"
        assert {name: how for name, how in results.items() if how == "done"} == {}
        for server in servers.values():
            server.setblocking(False)
            with pytest.raises(BlockingIOError):
                server.accept()
        assert sorted(tmp_path.iterdir()) == before
        assert secret.read_text() == "8d1f0c"
    finally:
        for server in servers.values():
            server.close()
        os.close(readable)
        os.close(writable)


def test_the_caller_can_stop_it_and_its_death_does_too() -> None:
    running = start({"main.py": "import time\ntime.sleep(60)"}, "main.py")
    began = time.monotonic()
    running.stop()
    assert running.wait().reason == "stopped"
    assert time.monotonic() - began < 5

    name = f"{uuid.uuid4().hex}.py"
    code = (
        f"import sys; sys.path.insert(0, {str(SOURCES)!r})\nfrom hymo.evaluation.sandbox import start, Limits\n"
        f"start({{{name!r}: 'import time; print(1); time.sleep(60)'}}, {name!r}, Limits(wall_seconds=60)).wait()"
    )
    caller = subprocess.Popen([sys.executable, "-I", "-S", "-c", code])
    try:
        _until(lambda: any(f"/code/{name}" in words for words in outlived(f"/code/{name}")))
        caller.send_signal(signal.SIGKILL)
        caller.wait()
        _until(lambda: outlived(f"/code/{name}") == [])
    finally:
        caller.kill()


def _until(condition: object) -> None:
    assert callable(condition)
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, "it never came to that"
        time.sleep(0.02)


def test_it_refuses_where_something_is_missing() -> None:
    flags = {"user": 28, "mount": 17, "process": 29, "network": 30, "ipc": 27, "host name": 26, "cgroup": 25}
    cases = [(f"{name} namespace", "unshare", 1 << bit, errno.EPERM) for name, bit in flags.items()]
    cases += [
        ("mounts of its own", "mount", None, errno.EPERM),
        ("view of the interpreter", "mount_setattr", None, errno.ENOSYS),
        ("root of its own", "pivot_root", None, errno.EPERM),
        ("limit of CPU time", "prlimit64", None, errno.EPERM),
        ("loss of capabilities", "capset", None, errno.EPERM),
        ("no_new_privs", "prctl", 38, errno.EINVAL),
        ("system call filter", "prctl", 22, errno.EINVAL),
        ("care of orphans", "prctl", 36, errno.EINVAL),
    ]
    if os.geteuid() == 0:
        cases.append(("change of user", "setresuid", None, errno.EPERM))
    said = without(cases)
    assert len(said) == len(cases)
    for name, text in said.items():
        assert text.startswith(f"sandbox: {name} is missing ("), (name, text)
        assert "does not run without it" in text


def test_it_refuses_walls_that_do_not_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    require_sandbox.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(sandbox, "refused", lambda machine: ["clone3", "clone", "prlimit64"])
        with pytest.raises(SandboxError, match=r"system call filter is missing .it lets a socket be made"):
            run("print(1)")
    with monkeypatch.context() as patch:
        view = sandbox._view
        patch.setattr(sandbox, "_view", lambda interpreter: [*view(interpreter), "/home"])
        with pytest.raises(SandboxError, match="seeing the system's files is possible inside"):
            require_sandbox()
    with monkeypatch.context() as patch:
        patch.setattr(platform, "machine", lambda: "vax")
        with pytest.raises(SandboxError, match=r"system call filter is missing .no table of system calls for"):
            require_sandbox()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "platform", "darwin")
        with pytest.raises(SandboxError, match="Linux is missing"):
            require_sandbox()
    require_sandbox()


def test_it_works_without_any_right() -> None:
    shown = as_nobody(
        "import os; from hymo.evaluation.sandbox import require_sandbox, run\n"
        "require_sandbox(); print(os.getuid(), run('import os; print(os.getuid(), os.getpid())').stdout)"
    )
    inside = 65534 if os.geteuid() == 0 else os.getuid()
    assert shown.split()[:2] == [str(inside)] * 2


def test_limits_are_above_zero() -> None:
    with pytest.raises(ValueError, match="limit threads"):
        Limits(threads=0)
