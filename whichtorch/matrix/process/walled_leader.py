"""Start a task's program behind a wall, and read how it ended: the supervisor's side."""

from __future__ import annotations

import contextlib
import marshal
import os
import resource
import signal
import sys
from typing import TYPE_CHECKING

from whichtorch.matrix.process import namespace_init, namespaces, spawning
from whichtorch.matrix.process import sandbox_layout as layout

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, NoReturn

MB = 1_000_000  # bytes
INIT = "/init.py"  # inside


class WalledLeader:
    """The program of a task behind a wall, and the process outside that has built it."""

    def __init__(self, task: Mapping[str, Any]) -> None:
        """Start it; raise OSError where that fails."""
        self._status, theirs = os.pipe()
        self._text = b""
        with spawning.leader_settings():
            self.builder = os.fork()  # id of a process; its children are the wall's first process, and no other
        if not self.builder:
            _build(task, theirs)
        os.close(theirs)
        while b"\n" not in self._text and (part := os.read(self._status, 4096)):
            self._text += part
        first, is_whole, self._text = self._text.partition(b"\n")
        if first or not is_whole:
            os.close(self._status)
            raise OSError(first.decode(errors="replace") or _last_words(task["stderr"]))
        os.set_blocking(self._status, False)

    @property
    def descriptor(self) -> int:
        """What becomes readable when it has ended."""
        return self._status

    def status(self) -> int | None:
        """Return how it ended, as wait(2) gives it; None while it runs."""
        with contextlib.suppress(BlockingIOError):
            self._text += os.read(self._status, 4096)
        return int(self._text) if self._text.endswith(b"\n") else None


def _build(task: Mapping[str, Any], status: int) -> NoReturn:
    """Build the wall in this process, a fork of the supervisor, and have the program started behind it."""
    try:
        wall = task["wall"]
        os.setsid()
        signal.set_wakeup_fd(-1)
        for handled in (signal.SIGCHLD, *spawning.DEFAULTED):
            signal.signal(handled, signal.SIG_DFL)
        os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
        for number, path in ((1, task["stdout"]), (2, task["stderr"])):
            os.dup2(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666), number)
        os.closerange(3, status)
        os.closerange(status + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        room = wall["room_mb"] * MB
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
        places = layout.places(wall)
        order = task["argv"], task["env"], _folder_inside(task["cwd"], places), list(map(int, spawning.DEFAULTED))
        if wall["kind"] == "bubblewrap":
            _run_bubblewrap(order, places, room, status)
        namespaces.unshare()
        namespaces.end_with_parent()
        if first := os.fork():
            os.close(status)
            os.waitpid(first, 0)
            os._exit(0)
        namespaces.end_with_parent()
        namespaces.enter(places, wall["room_mb"])
        namespaces.give_up_privileges()
        namespace_init.attend(status, *order)
    except BaseException as error:  # noqa: BLE001  nothing of the supervisor's may go on in its fork
        os.write(status, " ".join(f"{error}".split()).encode(errors="replace") + b"\n")
    os._exit(127)


def _folder_inside(cwd: str, places: Mapping[str, object]) -> str:
    """Return the folder that a program is started in: /tmp where the wall hides its own."""
    return cwd if any(cwd == path or cwd.startswith(f"{path}/") for path in places) else "/tmp"  # noqa: S108


def _run_bubblewrap(order: tuple[Any, ...], places: Mapping[str, tuple[str, str]], room: int, status: int) -> NoReturn:
    words = ["bwrap", "--unshare-all", "--die-with-parent", "--as-pid-1", "--cap-drop", "ALL"]
    words += ["--uid", str(layout.USER), "--gid", str(layout.USER), "--hostname", layout.HOST]
    for path, (kind, source) in places.items():
        words += {
            layout.READ: ["--ro-bind", source, path],
            layout.WRITE: ["--bind", source, path],
            layout.LINK: ["--symlink", source, path],
            layout.TEXT: ["--ro-bind-data", str(_kept(source.encode())) if kind == layout.TEXT else "", path],
            layout.ROOM: ["--perms", "1777", "--size", str(room), "--tmpfs", path],
            layout.EMPTY: ["--size", "4096", "--tmpfs", path, "--remount-ro", path],
            layout.PROCESSES: ["--proc", path],
            layout.DEVICE_FOLDER: ["--dev", path],
        }[kind]
    words += ["--ro-bind", os.path.abspath(namespace_init.__file__), INIT, "--remount-ro", "/", "--chdir", "/"]
    if program := namespaces.call_filter():
        words += ["--seccomp", str(_kept(program))]
    os.set_inheritable(status, True)
    python = os.path.realpath(sys.executable)
    words += ["--", python, "-I", "-S", INIT, str(status), str(_kept(marshal.dumps(order)))]
    os.execvpe(words[0], words, {"PATH": os.environ.get("PATH", os.defpath)})  # noqa: S606


def _kept(content: bytes) -> int:
    """Return a descriptor that a program started from here reads a content from."""
    descriptor = os.memfd_create("kept", 0)
    os.write(descriptor, content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _last_words(stderr: str) -> str:
    with open(stderr, "rb") as file:
        return file.read(4096).decode(errors="replace").strip() or "the wall could not be built"
