"""Machines that lack what the sandbox needs, simulated by a system call filter, and users without rights."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

SOURCES = Path(__file__).parents[1] / "src"

LACKING = """
import ctypes, errno, json, os, struct, sys
sys.path.insert(0, sys.argv[1])
from hymo.evaluation import sandbox
from hymo.evaluation.sandbox_calls import NUMBERS
libc = ctypes.CDLL(None, use_errno=True)
others = {"x86_64": {"prctl": 157, "setresuid": 117}, "aarch64": {"prctl": 167, "setresuid": 147}}
numbers = NUMBERS[os.uname().machine] | others[os.uname().machine]

def deny(name, first, error):
    "Let a system call fail, if its first argument is the one given (or whatever it is)."
    line = lambda code, value, yes=0, no=0: struct.pack("=HBBI", code, yes, no, value)
    code = line(0x20, 0) + line(0x15, numbers[name], 0, 1 if first is None else 3)
    if first is not None:
        code += line(0x20, 16) + line(0x15, first, 0, 1)
    code += line(6, 0x50000 | error) + line(6, 0x7FFF0000)
    text = ctypes.create_string_buffer(code, len(code))
    head = ctypes.create_string_buffer(struct.pack("=HxxxxxxQ", len(code) // 8, ctypes.addressof(text)))
    if os.geteuid():
        assert libc.prctl(38, 1, 0, 0, 0) == 0
    assert libc.prctl(22, 2, ctypes.c_ulong(ctypes.addressof(head)), 0, 0) == 0

for name, call, first, error in json.loads(sys.argv[2]):
    if os.fork() == 0:
        deny(call, first, error)
        try:
            print(json.dumps([name, sandbox.run("print(1)").stdout]), flush=True)
        except sandbox.SandboxError as refused:
            print(json.dumps([name, str(refused)]), flush=True)
        os._exit(0)
    os.wait()
"""


def without(cases: list[tuple[str, str, int | None, int]]) -> dict[str, str]:
    """What `sandbox.run` says where one system call fails: by name of the case, the refusal or the program's output."""
    words = [sys.executable, "-I", "-S", "-c", LACKING, str(SOURCES), json.dumps(cases)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=True)
    return dict(json.loads(line) for line in done.stdout.splitlines())


def as_nobody(program: str) -> str:
    """Output of a program that a user without any right runs, by the interpreter that runs the tests.

    Root's own folders are opened for it in a mount namespace of its own: an interpreter may lie in one.
    """
    interpreter = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
    words = [interpreter, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(SOURCES)!r})\n{program}"]
    if os.geteuid() == 0:
        steps = ["mount -t tmpfs none /mnt"]
        shown = {"a": sys.base_prefix, "b": str(SOURCES)}
        steps += [f"mkdir /mnt/{name} && mount --bind '{path}' /mnt/{name}" for name, path in shown.items()]
        closed = {p for path in shown.values() for p in Path(path).parents if not p.stat().st_mode & 1}
        outer = [p for p in sorted(closed) if not set(p.parents) & closed]
        steps += [f"mount -t tmpfs -o mode=755 none '{p}'" for p in outer]
        steps += [f"mkdir -p '{path}' && mount --bind /mnt/{name} '{path}'" for name, path in shown.items()]
        drop = 'exec setpriv --reuid=65534 --regid=65534 --clear-groups -- "$@"'
        words = ["unshare", "--mount", "sh", "-ec", "; ".join([*steps, drop]), "sh", *words]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False, cwd="/")
    assert done.returncode == 0, done.stderr
    return done.stdout
