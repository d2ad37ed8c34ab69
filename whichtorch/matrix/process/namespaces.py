"""A sandbox without a program of its own: namespaces, mounts and a filter of system calls that a process makes itself.

Every step is a call of the C library: a sandbox is made for each run, and starting a program for it would take longer.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import struct
from typing import TYPE_CHECKING

from whichtorch.matrix.process import sandbox_layout as layout

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_C = ctypes.CDLL(None, use_errno=True)
# linux/sched.h
NEW_NAMESPACES = 0x7E020000  # mount, cgroup, host name, IPC, user, processes, network
# linux/prctl.h
_DEATH_SIGNAL, _DUMPABLE, _SECCOMP, _DROP_BOUND, _NO_NEW_PRIVILEGES, _AMBIENT, _CLEAR_AMBIENT = 1, 4, 22, 24, 38, 47, 4
# linux/mount.h
_NO_SUID, _NO_DEVICES, _NO_EXEC, _BIND_PRIVATE, _DETACH = 2, 4, 8, 0x44000, 2
_READ_ONLY, _ATTRIBUTES = 1, 0x1 | 0x2 | 0x4  # MOUNT_ATTR_RDONLY, NOSUID, NODEV
_HERE, _CLONE_TREE, _FROM_DESCRIPTOR, _EMPTY_PATH, _RECURSIVE = -100, 0x80001, 4, 0x1000, 0x8000
_OPEN_TREE, _MOVE_MOUNT, _SET_ATTRIBUTES = 428, 429, 442  # the same numbers on all architectures
_CAPABILITIES = 0x20080522  # _LINUX_CAPABILITY_VERSION_3
_INTERFACE_FLAGS, _UP = 0x8914, 1  # SIOCSIFFLAGS, IFF_UP
INODES = 200_000  # files in a room
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
_EVERYWHERE = (*range(425, 434), _SET_ATTRIBUTES)  # io_uring and the new calls for mounts
_CLONE3, _X32, _TERMINAL_INPUT = 435, 0x40000000, (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX
# Kinds of sockets that a script may have: unix, IPv4, IPv6, netlink. Others, such as vsock to the host of a virtual
# machine, know no namespaces.
_FAMILIES = (1, 2, 10, 16)
_ALLOW, _NOT_PERMITTED, _NO_CALL = 0x7FFF0000, 0x50001, 0x50026  # SECCOMP_RET_ALLOW; ERRNO with EPERM, with ENOSYS
_NO_FAMILY = 0x50061  # ERRNO with EAFNOSUPPORT
_LOAD, _EQUAL, _LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06  # linux/bpf_common.h
_NUMBER, _MACHINE, _FIRST, _SECOND = 0, 4, 16, 24  # offsets in struct seccomp_data


def enter_sandbox(spec: Mapping[str, Any]) -> None:
    """Put this process in a sandbox, as the first one there, and give up what could lead back out of it.

    Where bubblewrap has made the sandbox, it is in there already. Otherwise, it goes on as a fork of itself, and its
    parent waits for its end. Raises OSError where the kernel refuses a step.
    """
    # the script could send signals to this process, which supervises it
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
    if spec["kind"] == "unshare":
        places = layout.places(spec)
        _unshare()
        if first := os.fork():
            null = os.open("/dev/null", os.O_RDWR)
            os.dup2(null, 0)
            os.dup2(null, 1)
            os.waitpid(first, 0)
            os._exit(0)
        _C.prctl(_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
        _enter(places, spec["room_mb"])
    size = spec["room_mb"] * 1_000_000
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("1000")  # it cannot do that later for the script alone
    _give_up_privileges()


def _unshare() -> None:
    """Leave this machine's namespaces; the next child of this process is the first one of the new ones."""
    user, group = os.geteuid(), os.getegid()
    with contextlib.suppress(OSError):
        os.setgroups([])
    _check(_C.unshare(NEW_NAMESPACES), "user namespaces")
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{layout.USER} {user} 1"),
        ("gid_map", f"{layout.USER} {group} 1"),
    ):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)


def _enter(places: Mapping[str, tuple[str, str]], room_mb: int) -> None:
    """Put a root of such places in the place of this one; raise OSError where the kernel refuses a step."""
    _C.sethostname(layout.HOST.encode(), len(layout.HOST))
    _raise_loopback()
    _mount("none", "/", "", _BIND_PRIVATE)
    devices = {f"/dev/{name}": _tree(f"/dev/{name}", 0) for name in layout.DEVICES}
    trees = {
        path: _tree(source, _ATTRIBUTES if kind == layout.READ else _ATTRIBUTES & ~_READ_ONLY)
        for path, (kind, source) in places.items()
        if kind in (layout.READ, layout.WRITE)
    }
    _mount("tmpfs", "/tmp", "mode=755", _NO_SUID | _NO_DEVICES)  # noqa: S108  the new root, which hides /tmp in this namespace only
    os.chdir("/tmp")  # noqa: S108
    for path, (kind, source) in places.items():
        place = path[1:]
        if kind in (layout.READ, layout.WRITE):
            _attach(trees[path], place)
        elif kind == layout.LINK:
            os.makedirs(os.path.dirname(place) or ".", exist_ok=True)
            os.symlink(source, place)
        else:
            os.makedirs(place, exist_ok=True)
            if kind == layout.ROOM:
                options = f"mode=1777,size={room_mb}m,nr_inodes={INODES}"
                _mount("tmpfs", place, options, _NO_SUID | _NO_DEVICES)
            elif kind == layout.EMPTY:
                _mount("tmpfs", place, f"mode=755,size={layout.EMPTY_BYTES}", _NO_SUID | _NO_DEVICES)
            elif kind == layout.PROCESSES:
                _mount("proc", place, "", _NO_SUID | _NO_DEVICES | _NO_EXEC)
            else:
                _fill_devices(place, devices)
    _check(_C.pivot_root(b".", b"."), "pivot_root")
    _check(_C.umount2(b".", _DETACH), "umount")
    os.chdir("/")
    _set_attributes(os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC), _ATTRIBUTES, recursive=False)


def _give_up_privileges() -> None:
    """Give up all capabilities, the means to get any, and the calls that no script needs."""
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
    """Return the filter of system calls, as the kernel takes it; raise OSError where their numbers are not known."""
    if os.uname().machine not in MACHINES:
        known = " and ".join(MACHINES)
        raise OSError(f"the numbers of system calls are known for {known} only, not for {os.uname().machine}")
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


def _fill_devices(place: str, devices: Mapping[str, int]) -> None:
    for path, tree in devices.items():
        _attach(tree, path[1:], is_file=True)
    os.makedirs(f"{place}/pts")
    _mount("devpts", f"{place}/pts", "newinstance,ptmxmode=0666,mode=620", _NO_SUID | _NO_EXEC)
    links = {"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}
    for name, target in links.items():
        os.symlink(target, f"{place}/{name}")


def _tree(source: str, attributes: int) -> int:
    """Return a descriptor of a mount that is not yet anywhere: a file or a folder with all that is below it."""
    flags = _CLONE_TREE | _RECURSIVE
    tree = _check(_C.syscall(_OPEN_TREE, _HERE, source.encode(errors="surrogateescape"), flags), source)
    _set_attributes(tree, attributes, recursive=True)
    return tree


def _set_attributes(tree: int, attributes: int, *, recursive: bool) -> None:
    if attributes:
        flags = _EMPTY_PATH | (_RECURSIVE if recursive else 0)
        wanted = struct.pack("=QQQQ", attributes, 0, 0, 0)
        _check(_C.syscall(_SET_ATTRIBUTES, tree, b"", flags, wanted, len(wanted)), "mount_setattr (Linux 5.12)")


def _attach(tree: int, place: str, *, is_file: bool | None = None) -> None:
    """Put a mount in a place, which is made where it is not there."""
    if not os.path.lexists(place):
        if is_file or not _is_folder(tree):
            os.makedirs(os.path.dirname(place) or ".", exist_ok=True)
            os.close(os.open(place, os.O_CREAT | os.O_WRONLY, 0o644))
        else:
            os.makedirs(place)
    place_bytes = place.encode(errors="surrogateescape")
    _check(_C.syscall(_MOVE_MOUNT, tree, b"", _HERE, place_bytes, _FROM_DESCRIPTOR), place)
    os.close(tree)


def _is_folder(tree: int) -> bool:
    return os.fstat(tree).st_mode & 0o170000 == 0o040000


def _mount(source: str, place: str, options: str, flags: int) -> None:
    kind = source.encode()
    _check(
        _C.mount(kind, place.encode(errors="surrogateescape"), kind, flags, options.encode()), f"{source} at {place}"
    )


def _raise_loopback() -> None:
    import _socket  # importing socket would take longer
    import fcntl

    with contextlib.suppress(OSError):
        lo = _socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM)
        fcntl.ioctl(lo.fileno(), _INTERFACE_FLAGS, struct.pack("16sh14x", b"lo", _UP))
        lo.close()


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result
