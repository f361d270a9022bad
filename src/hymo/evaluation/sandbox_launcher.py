"""The inside of `hymo.evaluation.sandbox`: a stand-alone program that builds the walls and starts one Python in them.

It runs as `python -I -S sandbox_launcher.py`, reads one request on stdin (eight bytes of length, then JSON) and writes
one JSON answer on stdout. It imports the standard library alone and starts with one thread, so that it may fork.

    launcher            outside; watches the clock, the output and its own stdin (end of file: the caller is gone)
      builder           new namespaces, drops root, builds the view; its death kills init
        init            process 1 of the new process namespace; its death kills everything in there
          program       limits, no capabilities, no new privileges, system call filter, then the interpreter

Every step either holds or ends with the name of what is missing: there is no weaker form of the sandbox.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import platform
import resource
import select
import signal
import socket
import struct
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

BOX = "/box"
"""The only folder that can be written inside."""
CODE = "/code"
"""Folder of the request's files inside, read-only."""
_NOBODY = 65534
_OWN_TASKS = 2
"""Builder and init count as processes of the namespace's user."""
_LIBC = ctypes.CDLL(None, use_errno=True)

_NAMESPACES = (  # the user namespace comes first: it gives the right to make the others
    ("user", 0x10000000),
    ("mount", 0x00020000),
    ("process", 0x20000000),
    ("network", 0x40000000),
    ("ipc", 0x08000000),
    ("host name", 0x04000000),
    ("cgroup", 0x02000000),
)
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REMOUNT = 1, 2, 4, 8, 32
_MS_BIND, _MS_REC, _MS_PRIVATE, _MNT_DETACH = 4096, 16384, 1 << 18, 2
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_GET_SECCOMP, _PR_SET_SECCOMP = 1, 4, 21, 22
_PR_CAPBSET_DROP, _PR_SET_CHILD_SUBREAPER, _PR_CAP_AMBIENT, _AMBIENT_CLEAR_ALL = 24, 36, 47, 4
_PR_SET_NO_NEW_PRIVS, _PR_GET_NO_NEW_PRIVS = 38, 39
_SECCOMP_MODE_FILTER = 2
_CLONE_THREAD = 0x10000

_numbers: dict[str, int] = {}
"""System call numbers of this machine, from the request; see `hymo.evaluation.sandbox_calls`."""


class MissingError(Exception):
    """Something that the sandbox needs cannot be had: what, and why."""


def require(what: str, action: Callable[[], Any]) -> Any:
    """Return what `action` gives; name `what` if the system refuses it."""
    try:
        return action()
    except OSError as error:
        raise MissingError(what, error.strerror or str(error)) from None
    except ValueError as error:  # limits above the hard one
        raise MissingError(what, str(error)) from None


def _unshare(flag: int) -> int:
    return _checked(_LIBC.unshare(ctypes.c_int(flag)))


def _checked(result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def _prctl(option: int, *values: int) -> int:
    padded = [ctypes.c_ulong(v) for v in (*values, 0, 0, 0, 0)[:4]]
    return _checked(_LIBC.prctl(ctypes.c_int(option), *padded))


def _syscall(name: str, *values: Any) -> int:
    return _checked(_LIBC.syscall(ctypes.c_long(_numbers[name]), *values))


def _mount(source: str, target: str, kind: str | None, flags: int, data: str = "") -> None:
    _checked(
        _LIBC.mount(
            source.encode(),
            os.fsencode(target),
            kind.encode() if kind else None,
            ctypes.c_ulong(flags),
            data.encode() or None,
        )
    )


def _protect(target: str, flags: int) -> None:
    """Add mount attributes to everything at and below a mount; those it has stay."""
    attributes = struct.pack("=QQQQ", flags, 0, 0, 0)
    _syscall(
        "mount_setattr",
        ctypes.c_int(_AT_FDCWD),
        os.fsencode(target),
        ctypes.c_uint(_AT_RECURSIVE),
        attributes,
        ctypes.c_size_t(len(attributes)),
    )


def _die_with_parent(parent: int) -> None:
    """Be killed when the parent goes, also if it is gone already; to be called again after a change of user."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


# ---- launcher --------------------------------------------------------------------------------------------------------


def main() -> None:
    """Serve one request."""
    size = struct.unpack("!Q", _read_exactly(0, 8))[0]
    request = json.loads(_read_exactly(0, size))
    answer = json.dumps(_launch(request)).encode()
    with contextlib.suppress(BrokenPipeError):
        while answer:
            answer = answer[os.write(1, answer) :]


def _read_exactly(descriptor: int, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = os.read(descriptor, size - len(data))
        if not piece:
            raise SystemExit(1)
        data += piece
    return bytes(data)


def _launch(request: dict[str, Any]) -> dict[str, Any]:
    """Start the builder, give it its user, watch what it started."""
    try:
        if not request["calls"]:
            raise MissingError("system call filter", f"no table of system calls for {platform.machine()}")
        _numbers.update(request["calls"])
        require("care of orphans", lambda: _prctl(_PR_SET_CHILD_SUBREAPER, 1))
    except MissingError as missing:
        return _refusal(*missing.args)
    out, err, status, asked, mapped = (os.pipe() for _ in range(5))
    launcher = os.getpid()
    builder = os.fork()
    if builder == 0:
        _guarded(lambda: _build(request, launcher, out[1], err[1], status[1], asked[1], mapped[0]), status[1])
    began = time.monotonic()
    passed = [int(number) for number in request["descriptors"].values()]
    for descriptor in (out[1], err[1], status[1], asked[1], mapped[0], *passed):
        os.close(descriptor)
    refused = None
    try:
        if os.read(asked[0], 1):
            require("user namespace", lambda: _map_user(builder))
            os.write(mapped[1], b"1")
    except MissingError as missing:
        refused = _refusal(*missing.args)
    os.close(mapped[1])
    watched = _watch(builder, {out[0]: "stdout", err[0]: "stderr", status[0]: "status"}, request["limits"], began)
    return refused or watched


def _map_user(builder: int) -> None:
    """Give the builder's namespace one user: nobody if root asks, else the caller."""
    root = os.geteuid() == 0
    user, group = (_NOBODY, _NOBODY) if root else (os.geteuid(), os.getegid())
    if not root:
        Path(f"/proc/{builder}/setgroups").write_text("deny")
    Path(f"/proc/{builder}/uid_map").write_text(f"{user} {user} 1")
    Path(f"/proc/{builder}/gid_map").write_text(f"{group} {group} 1")


def _watch(builder: int, streams: dict[int, str], limits: dict[str, Any], began: float) -> dict[str, Any]:
    """Read the program's output until all is over, and end it at its wall time, its output limit or the caller's."""
    kept = {name: bytearray() for name in streams.values()}
    handle = os.pidfd_open(builder)
    poll = select.poll()
    for descriptor in (0, handle, *streams):
        poll.register(descriptor, select.POLLIN)
    reason, alive = "", True

    def end(why: str) -> None:
        nonlocal reason, alive
        if alive:
            reason, alive = reason or why, False
            with contextlib.suppress(ProcessLookupError):
                os.kill(builder, signal.SIGKILL)

    while streams or alive:
        left = began + limits["wall_seconds"] - time.monotonic()
        if left <= 0:
            end("wall time")
        for descriptor, _ in poll.poll(max(left, 0) * 1000 if alive else None):
            if descriptor == handle:
                alive = False
                poll.unregister(handle)
            elif descriptor == 0:
                poll.unregister(0)
                end("stopped")
            else:
                piece = os.read(descriptor, 1 << 16)
                kept[streams[descriptor]] += piece
                if not piece:
                    poll.unregister(descriptor)
                    del streams[descriptor]
                if sum(len(kept[name]) for name in ("stdout", "stderr")) > limits["output_bytes"]:
                    end("output")
    _reap()
    seconds = time.monotonic() - began
    shown = {name: kept[name][: limits["output_bytes"]].decode("latin-1") for name in ("stdout", "stderr")}
    told: dict[str, Any] = {}
    for line in kept["status"].splitlines():  # a refusal; or that the program began, and then how it ended
        told |= json.loads(line)
    if not told and not reason:
        told = {"missing": "a sandbox that stays", "why": "its first process ended without a word"}
    return {**shown, "reason": reason, "seconds": seconds, **told}


def _reap() -> None:
    """Wait until no process is left: those of a namespace whose init was killed come to this one to be buried."""
    while True:
        try:
            os.wait()
        except ChildProcessError:
            return


def _refusal(what: str, why: str) -> dict[str, Any]:
    return {"missing": what, "why": why}


def _tell(status: int, facts: dict[str, Any]) -> None:
    os.write(status, json.dumps(facts).encode() + b"\n")


def _guarded(work: Callable[[], None], status: int) -> NoReturn:
    """Run one process of the tree; whatever fails in it is told on the status pipe."""
    try:
        work()
        os._exit(0)
    except MissingError as missing:
        _tell(status, _refusal(*missing.args))
    except BaseException as error:
        _tell(status, _refusal("a sandbox", f"{type(error).__name__}: {error}"))
    os._exit(1)


# ---- builder ---------------------------------------------------------------------------------------------------------


def _build(request: dict[str, Any], launcher: int, out: int, err: int, status: int, asked: int, mapped: int) -> None:
    """Make the namespaces and the view, and start init in them."""
    os.setsid()
    _die_with_parent(launcher)
    root = os.geteuid() == 0
    for name, flag in _NAMESPACES:
        require(f"{name} namespace", partial(_unshare, flag))
        if name == "user":
            os.write(asked, b"1")
            if not os.read(mapped, 1):
                os._exit(1)
    os.close(asked)
    sources = [(path, _open_source(path)) for path in request["view"]]
    if root:
        require("change of user", _become_nobody)
        _die_with_parent(launcher)
    _build_view(request, sources)
    if [name for _, name in socket.if_nameindex()] not in ([], ["lo"]):
        raise MissingError("network namespace", "it has interfaces")
    builder = os.getpid()
    init = os.fork()
    if init == 0:
        _guarded(lambda: _init(request, builder, out, err, status), status)
    os.closerange(3, 1 << 16)
    os.waitpid(init, 0)


def _become_nobody() -> None:
    os.setgroups([])
    os.setresgid(_NOBODY, _NOBODY, _NOBODY)
    os.setresuid(_NOBODY, _NOBODY, _NOBODY)


def _open_source(path: str) -> int | str:
    """A descriptor for a file or folder, as who called may reach it; of a symbolic link where it points."""
    if os.path.islink(path):
        return os.readlink(path)
    return int(require("view of the interpreter", lambda: os.open(path, os.O_PATH | os.O_CLOEXEC)))


def _build_view(request: dict[str, Any], sources: list[tuple[str, int | str]]) -> None:
    """A new root in memory: the interpreter and its libraries read-only, the code, and one small folder to write."""
    limits = request["limits"]
    quiet = _MS_NOSUID | _MS_NODEV | _MS_NOEXEC
    require("mounts of its own", lambda: _mount("none", "/", None, _MS_REC | _MS_PRIVATE))
    require("file system in memory", lambda: _mount("tmpfs", "/tmp", "tmpfs", _MS_NOSUID, "mode=755,size=64m"))
    os.chdir("/tmp")
    for path, source in sources:
        require("view of the interpreter", partial(_show, path, source))
    for path in request["hidden"]:
        if os.path.isdir(path[1:]):
            require("view of the interpreter", partial(_mount, "tmpfs", path[1:], "tmpfs", quiet | _MS_RDONLY))
    for name, text in request["files"].items():
        file = Path(CODE[1:], name)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode("utf-8", "surrogatepass"))
    os.makedirs("dev", exist_ok=True)
    Path("dev/null").touch()
    require("/dev/null", lambda: _mount("/dev/null", "dev/null", None, _MS_BIND))
    os.mkdir(BOX[1:])
    size = f"mode=700,size={limits['disk_bytes']},nr_inodes={limits['files']}"
    require("folder to write", lambda: _mount("tmpfs", BOX[1:], "tmpfs", quiet, size))
    if not os.path.lexists("tmp"):
        os.symlink(BOX, "tmp")
    require("root of its own", lambda: _syscall("pivot_root", b".", b"."))
    require("root of its own", lambda: _checked(_LIBC.umount2(b".", ctypes.c_int(_MNT_DETACH))))
    os.chdir("/")
    require("read-only root", lambda: _mount("none", "/", None, _MS_BIND | _MS_REMOUNT | _MS_RDONLY | quiet))


def _show(path: str, source: int | str) -> None:
    """Let the new root, which is the working folder, show a file or folder of the old one, read-only."""
    inside = path[1:]
    if os.path.lexists(inside):
        return
    os.makedirs(os.path.dirname(inside) or ".", exist_ok=True)
    if isinstance(source, str):
        os.symlink(source, inside)
        return
    link = f"/proc/self/fd/{source}"
    if os.path.isdir(link):
        os.mkdir(inside)
    else:
        Path(inside).touch()
    _mount(link, inside, None, _MS_BIND | _MS_REC)
    _protect(inside, _MS_RDONLY | _MS_NOSUID | _MS_NODEV)
    os.close(source)


# ---- init and program ------------------------------------------------------------------------------------------------


def _init(request: dict[str, Any], builder: int, out: int, err: int, status: int) -> None:
    """Start the program and tell how it ended; leaving ends whatever it left behind."""
    if os.getpid() != 1:
        raise MissingError("process namespace", "init is not process 1")
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # the parent is outside: getppid() is 0 while it lives
    _prctl(_PR_SET_DUMPABLE, 0)
    for number in (signal.SIGINT, signal.SIGPIPE):  # process 1 gets no signal that it does not handle
        signal.signal(number, signal.SIG_DFL)
    program = os.fork()
    if program == 0:
        _guarded(lambda: _become_program(request, out, err, status), status)
    keep = status
    os.closerange(3, keep)
    os.closerange(keep + 1, 1 << 16)
    while True:
        found, how = os.waitpid(-1, 0)
        if found == program:
            break
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = used.ru_utime + used.ru_stime
    _tell(status, {"wait": how, "cpu_seconds": spent, "peak_bytes": used.ru_maxrss * 1024})


def _become_program(request: dict[str, Any], out: int, err: int, status: int) -> None:
    """Give up everything, then become the interpreter."""
    os.setsid()
    wanted = {1: out, 2: err, **{int(to): at for to, at in request["descriptors"].items()}}
    nothing = os.open("/dev/null", os.O_RDONLY)
    copies = {0: fcntl.fcntl(nothing, fcntl.F_DUPFD, 512)}
    copies |= {to: fcntl.fcntl(at, fcntl.F_DUPFD, 512) for to, at in wanted.items()}
    told = fcntl.fcntl(status, fcntl.F_DUPFD_CLOEXEC, 512)
    for to, at in copies.items():
        os.dup2(at, to)
    os.closerange(max(copies) + 1, 512)
    for at in copies.values():
        os.close(at)
    try:
        os.chdir(BOX)
        _limit(request["limits"])
        _give_up_rights()
        _filter_calls(request["architecture"], request["refused"])
        _tell(told, {"began": True})
        os.execve(request["python"], [request["python"], *request["arguments"]], request["environment"])
    except MissingError as missing:
        _tell(told, _refusal(*missing.args))
    except OSError as error:
        _tell(told, _refusal("view of the interpreter", f"{request['python']}: {error}"))
    os._exit(1)


def _limit(limits: dict[str, Any]) -> None:
    """Set every limit, hard and soft, and see that it holds; a stricter one of the caller stays."""
    values = {
        "CPU time": (resource.RLIMIT_CPU, limits["cpu_seconds"]),
        "memory": (resource.RLIMIT_AS, limits["memory_bytes"]),
        "processes and threads": (resource.RLIMIT_NPROC, limits["threads"] + _OWN_TASKS),
        "file size": (resource.RLIMIT_FSIZE, limits["disk_bytes"]),
        "open files": (resource.RLIMIT_NOFILE, limits["open_files"]),
        "core files": (resource.RLIMIT_CORE, 0),
        "locked memory": (resource.RLIMIT_MEMLOCK, 0),
        "message queues": (resource.RLIMIT_MSGQUEUE, 0),
        "pending signals and timers": (resource.RLIMIT_SIGPENDING, 256),
    }
    for name, (kind, value) in values.items():
        hard = require(f"limit of {name}", partial(resource.getrlimit, kind))[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        require(f"limit of {name}", partial(resource.setrlimit, kind, (value, value)))
        if resource.getrlimit(kind) != (value, value):
            raise MissingError(f"limit of {name}", "it was set and does not show")


def _give_up_rights() -> None:
    """Drop every capability for good."""
    for capability in range(64):
        try:
            _prctl(_PR_CAPBSET_DROP, capability)
        except OSError as error:
            if error.errno == errno.EINVAL and capability > 20:  # above the last one that this kernel has
                break
            raise MissingError("loss of capabilities", error.strerror) from None
    require("loss of capabilities", lambda: _prctl(_PR_CAP_AMBIENT, _AMBIENT_CLEAR_ALL))
    header, data = struct.pack("=Ii", 0x20080522, 0), bytes(24)
    require("loss of capabilities", lambda: _syscall("capset", header, data))
    require("no_new_privs", lambda: _prctl(_PR_SET_NO_NEW_PRIVS, 1))
    if _prctl(_PR_GET_NO_NEW_PRIVS) != 1:
        raise MissingError("no_new_privs", "it was set and does not show")


def _filter_calls(architecture: int, refused: list[str]) -> None:
    """Refuse calls with EPERM, and see that the two that matter most are refused."""
    program = _filter_program(architecture, {name: _numbers[name] for name in refused})
    code = ctypes.create_string_buffer(program, len(program))
    header = ctypes.create_string_buffer(struct.pack("=HxxxxxxQ", len(program) // 8, ctypes.addressof(code)))
    require("system call filter", lambda: _prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.addressof(header)))
    if _prctl(_PR_GET_SECCOMP) != _SECCOMP_MODE_FILTER:
        raise MissingError("system call filter", "it was set and does not show")
    with contextlib.suppress(PermissionError):
        if os.fork() == 0:
            os._exit(0)
        raise MissingError("system call filter", "it lets a process be started")
    with contextlib.suppress(PermissionError):
        socket.socket(socket.AF_UNIX).close()
        raise MissingError("system call filter", "it lets a socket be made")


def _filter_program(architecture: int, calls: dict[str, int]) -> bytes:
    """Classic BPF over struct seccomp_data: number at 0, architecture at 4, low half of the first argument at 16."""
    load, equal, above, test, give = 0x20, 0x15, 0x35, 0x45, 0x06
    kill, refuse, unknown, allow = 0x80000000, 0x00050000 | errno.EPERM, 0x00050000 | errno.ENOSYS, 0x7FFF0000

    def line(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
        return struct.pack("=HBBI", code, yes, no, value)

    program = line(load, 4) + line(equal, architecture, 1) + line(give, kill)
    program += line(load, 0) + line(above, 0x40000000, 0, 1) + line(give, kill)  # x32 numbers
    program += line(equal, calls.pop("clone3"), 0, 1) + line(give, unknown)  # the C library then uses clone
    clone = calls.pop("clone")
    program += line(equal, clone, 0, 4) + line(load, 16) + line(test, _CLONE_THREAD, 0, 1) + line(give, allow)
    program += line(give, refuse)
    # Limits of another process could be lowered until the kernel kills it.
    program += line(equal, calls.pop("prlimit64"), 0, 4) + line(load, 16) + line(equal, 0, 0, 1) + line(give, allow)
    program += line(give, refuse)
    for number in sorted(calls.values()):
        program += line(equal, number, 0, 1) + line(give, refuse)
    return program + line(give, allow)


if __name__ == "__main__":
    main()
