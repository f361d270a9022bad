"""System calls that a sandboxed program is refused, and some that its launcher makes, by their numbers per machine.

Refused is what starts processes, so that the limits of one process are those of the whole tree; what makes memory that
no limit counts; what reaches other processes; and what is a frequent way out of a sandbox.
"""

from __future__ import annotations

ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""AUDIT_ARCH of the kernel's headers, by the machine's name."""
NUMBERS: dict[str, dict[str, int]] = {
    "x86_64": {
        "capset": 126, "pivot_root": 155, "mount_setattr": 442, "clone": 56, "clone3": 435, "fork": 57, "vfork": 58,
        "socket": 41, "ptrace": 101, "process_vm_readv": 310, "process_vm_writev": 311, "process_madvise": 440,
        "pidfd_getfd": 438, "memfd_create": 319, "memfd_secret": 447, "shmget": 29, "semget": 64, "msgget": 68,
        "mq_open": 240, "bpf": 321, "perf_event_open": 298, "io_uring_setup": 425, "io_uring_enter": 426,
        "io_uring_register": 427, "add_key": 248, "request_key": 249, "keyctl": 250, "userfaultfd": 323, "unshare": 272,
        "setns": 308, "mount": 165, "umount2": 166, "chroot": 161, "open_tree": 428, "move_mount": 429, "fsopen": 430,
        "fsconfig": 431, "fsmount": 432, "fspick": 433, "name_to_handle_at": 303, "open_by_handle_at": 304,
        "kexec_load": 246, "kexec_file_load": 320, "init_module": 175, "finit_module": 313, "delete_module": 176,
        "reboot": 169, "swapon": 167, "acct": 163, "quotactl": 179, "syslog": 103, "personality": 135,
        "fanotify_init": 300, "prlimit64": 302, "modify_ldt": 154, "iopl": 172, "ioperm": 173,
    },
    "aarch64": {
        "capset": 91, "pivot_root": 41, "mount_setattr": 442, "clone": 220, "clone3": 435, "socket": 198, "ptrace": 117,
        "process_vm_readv": 270, "process_vm_writev": 271, "process_madvise": 440, "pidfd_getfd": 438,
        "memfd_create": 279, "memfd_secret": 447, "shmget": 194, "semget": 190, "msgget": 186, "mq_open": 180,
        "bpf": 280, "perf_event_open": 241, "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427,
        "add_key": 217, "request_key": 218, "keyctl": 219, "userfaultfd": 282, "unshare": 97, "setns": 268, "mount": 40,
        "umount2": 39, "chroot": 51, "open_tree": 428, "move_mount": 429, "fsopen": 430, "fsconfig": 431,
        "fsmount": 432, "fspick": 433, "name_to_handle_at": 264, "open_by_handle_at": 265, "kexec_load": 104,
        "kexec_file_load": 294, "init_module": 105, "finit_module": 273, "delete_module": 106, "reboot": 142,
        "swapon": 224, "acct": 89, "quotactl": 60, "syslog": 116, "personality": 92, "fanotify_init": 262,
        "prlimit64": 261,
    },
}  # fmt: skip
"""Numbers of the kernel's system call tables (aarch64: the generic one)."""


def refused(machine: str) -> list[str]:
    """Names of the calls that a program is refused: all but `capset`, which can only give up more."""
    return sorted(NUMBERS.get(machine, {}).keys() - {"capset"})
