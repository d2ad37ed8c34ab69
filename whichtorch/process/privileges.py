"""What the first process in a sandbox gives up: its privileges, and the system calls that no script needs."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import struct

_C = ctypes.CDLL(None, use_errno=True)
# linux/sched.h
NEW_NAMESPACES = 0x7E020000  # mount, cgroup, host name, IPC, user, processes, network
# linux/prctl.h
_DUMPABLE, _SECCOMP, _DROP_BOUND, _NO_NEW_PRIVILEGES, _AMBIENT, _CLEAR_AMBIENT = 4, 22, 24, 38, 47, 4
_CAPABILITIES = 0x20080522  # _LINUX_CAPABILITY_VERSION_3
# What a script may not call: keys, programs for the kernel, other mounts and namespaces, files by their handles. By
# machine: its number in linux/audit.h, then clone and ioctl, then socket and socketpair, then the others.
MACHINES = {
    "x86_64": (0xC000003E, 56, 16, (41, 53), (
        155, 161, 163, 165, 166, 169, 175, 176, 179, 246, 248, 249, 250, 272, 298, 303, 304, 308, 313, 320, 321, 323,
    )),
    "aarch64": (0xC00000B7, 220, 29, (198, 199), (
        41, 51, 89, 40, 39, 142, 105, 106, 60, 104, 217, 218, 219, 97, 241, 264, 265, 268, 273, 294, 280, 282,
    )),
}  # fmt: skip
_EVERYWHERE = (*range(425, 434), 442)  # io_uring and the new calls for mounts: the same numbers on all machines
_CLONE3, _X32, _TERMINAL_INPUT = 435, 0x40000000, (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX
# Kinds of sockets that a script may have: unix, IPv4, IPv6, netlink. Others, such as vsock to the host of a virtual
# machine, know no namespaces.
_FAMILIES = (1, 2, 10, 16)
_ALLOW, _NOT_PERMITTED, _NO_CALL = 0x7FFF0000, 0x50001, 0x50026  # SECCOMP_RET_ALLOW; ERRNO with EPERM, with ENOSYS
_NO_FAMILY = 0x50061  # ERRNO with EAFNOSUPPORT
_LOAD, _EQUAL, _LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06  # linux/bpf_common.h
_NUMBER, _MACHINE, _FIRST, _SECOND = 0, 4, 16, 24  # offsets in struct seccomp_data


def give_up_privileges(room_mb: int) -> None:
    """Give up all capabilities, the means to get any, the calls that no script needs, and files beyond a size.

    Raises OSError where the kernel refuses a step.
    """
    # the script could send signals to this process, which supervises it
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
    size = room_mb * 1_000_000
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("1000")  # it cannot do that later for the script alone
    _C.prctl(_DUMPABLE, 0, 0, 0, 0)  # nobody inside may read the memory of this process, or its variables
    capability = 0
    while _C.prctl(_DROP_BOUND, capability, 0, 0, 0) == 0:
        capability += 1
    _C.prctl(_AMBIENT, _CLEAR_AMBIENT, 0, 0, 0)
    _check(_C.capset(struct.pack("=Ii", _CAPABILITIES, 0), bytes(24)), "capset")
    _check(_C.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0), "no_new_privs")
    program = _call_filter()
    text = ctypes.create_string_buffer(program)
    header = struct.pack("@HP", len(program) // 8, ctypes.addressof(text))
    _check(_C.prctl(_SECCOMP, 2, header, 0, 0), "seccomp")


def _call_filter() -> bytes:
    """Return the filter of system calls, as the kernel takes it."""
    machine, clone, control, sockets, denied = MACHINES[os.uname().machine]
    steps = [(_LOAD, 0, 0, _MACHINE), (_EQUAL, 1, 0, machine), (_RETURN, 0, 0, _NO_CALL), (_LOAD, 0, 0, _NUMBER)]
    steps += [(_LEAST, 0, 1, _X32), (_RETURN, 0, 0, _NO_CALL)]
    steps += [(_EQUAL, 0, 1, _CLONE3), (_RETURN, 0, 0, _NO_CALL)]  # the C library takes clone then
    for number in (*denied, *_EVERYWHERE):
        steps += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _NOT_PERMITTED)]
    for number in sockets:  # the kernel takes the lower half of the argument, too
        steps += [(_EQUAL, 0, len(_FAMILIES) + 3, number), (_LOAD, 0, 0, _FIRST)]
        steps += [(_EQUAL, left, 0, family) for left, family in enumerate(reversed(_FAMILIES), 1)][::-1]
        steps += [(_RETURN, 0, 0, _NO_FAMILY), (_RETURN, 0, 0, _ALLOW)]
    steps += [(_EQUAL, 0, 4, clone), (_LOAD, 0, 0, _FIRST), (_ANY_BIT, 0, 1, NEW_NAMESPACES)]
    steps += [(_RETURN, 0, 0, _NOT_PERMITTED), (_RETURN, 0, 0, _ALLOW)]
    steps += [(_EQUAL, 0, 4, control), (_LOAD, 0, 0, _SECOND)]
    steps += [(_EQUAL, 1, 0, _TERMINAL_INPUT[0]), (_EQUAL, 0, 1, _TERMINAL_INPUT[1])]
    steps += [(_RETURN, 0, 0, _NOT_PERMITTED), (_RETURN, 0, 0, _ALLOW)]
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


def _check(result: int, what: str) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
