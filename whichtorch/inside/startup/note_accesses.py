"""Note what a script in a sandbox tries to reach that is not there: other machines, files of the user, processes.

Each process appends to the file that WHICHTORCH_ACCESSES names, a line per thing, MOST lines at most. Only what goes
through Python is seen, and nothing is kept from happening: the sandbox does that. A script may forge lines.
"""
# importing pathlib would take longer than all else here
# ruff: noqa: PTH100, PTH109, PTH110, PTH120

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # importing typing would slow every start
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any, Callable

FILE = "WHICHTORCH_ACCESSES"
MOST = 20
LONGEST = 160  # characters of a line
HERE = ("127.", "::1", "localhost", "0.0.0.0", "::ffff:127.")  # noqa: S104  hosts that are the sandbox itself
# folders that are empty inside, or lack what is of the user or of the machine
PRIVATE = ("/boot/", "/etc/", "/home/", "/media/", "/mnt/", "/root/", "/run/", "/srv/", "/var/")


def install(after_import: Callable[[str, Callable[[ModuleType], object]], object]) -> None:
    """Start to listen."""
    file = os.environ.get(FILE)
    if file:
        notes = AccessNotes(file)
        sys.addaudithook(notes.hear)
        after_import("torch", lambda _torch: notes.unseen_by_dynamo())


class AccessNotes:
    """What this process has tried."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.home = os.environ.get("HOME", "/tmp")  # noqa: S108
        self.own = (sys.prefix, sys.base_prefix, os.getcwd())
        self.seen: set[str] = set()
        self.is_busy = False
        self.hearers: dict[str, Callable[..., str]] = {
            "open": self.opened,
            "os.listdir": self.listed,
            "os.scandir": self.listed,
            "os.kill": self.signalled,
            "socket.connect": self.connected,
            "socket.sendto": self.connected,
            "socket.getaddrinfo": self.looked_up,
            "socket.gethostbyname": self.looked_up,
        }

    def hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Take in an event of the interpreter; whatever is wrong with it, the script goes on."""
        hearer = self.hearers.get(event)
        if hearer is None or self.is_busy or len(self.seen) >= MOST:
            return
        self.is_busy = True
        try:
            text = hearer(*arguments)
            if text:
                self.note("".join(each if each.isprintable() else "?" for each in text)[:LONGEST])
        except Exception:  # noqa: BLE001, S110
            pass
        finally:
            self.is_busy = False

    def note(self, text: str) -> None:
        """Append a line that was not noted yet."""
        if text not in self.seen:
            self.seen.add(text)
            file = os.open(self.file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
            os.write(file, (text + "\n").encode("utf-8", "replace"))
            os.close(file)

    def opened(self, given: Any, _mode: object = None, flags: int = 0) -> str:
        """Return what is to be noted of a file that is about to be opened; "" for nothing."""
        if isinstance(given, int):
            return ""
        path: str = os.path.abspath(os.fsdecode(given))
        if flags & (os.O_WRONLY | os.O_RDWR):
            folder = os.path.dirname(path)
            is_refused = not os.access(path if os.path.lexists(path) else folder, os.W_OK)
            return "write " + self.shown(path) if is_refused and "__pycache__" not in path else ""
        return self.listed(path)

    def listed(self, given: Any = None) -> str:
        """Return the same of a path that is about to be read."""
        if given is None or isinstance(given, int):
            return ""
        path: str = os.path.abspath(os.fsdecode(given))
        parts = path.split("/")
        if parts[1] == "proc" and len(parts) > 2 and parts[2].isdigit() and int(parts[2]) != os.getpid():
            return "read " + path
        if path.startswith(self.own):
            return ""
        is_private = (path + "/").startswith(PRIVATE) or path.startswith(self.home + "/.")
        return "read " + self.shown(path) if is_private and not os.path.lexists(path) else ""

    def signalled(self, pid: int, _number: int) -> str:
        """Return the same of a signal."""
        return "signal process " + str(pid) if pid > 0 and not os.path.exists("/proc/" + str(pid)) else ""

    def connected(self, _socket: object, address: Any) -> str:
        """Return the same of an address that is about to be connected to."""
        if isinstance(address, tuple):
            host, port = str(address[0]), str(address[1])
            return "" if not host or host.startswith(HERE) else "connect to " + host + ":" + port
        path = os.fsdecode(address)
        is_own = path.startswith((self.home, "/tmp/", "/dev/shm/"))  # noqa: S108
        return "" if is_own or os.path.exists(path) else "connect to the socket " + path.replace("\0", "@")

    def looked_up(self, host: Any, *_more: object) -> str:
        """Return the same of a host's name."""
        host = str(os.fsdecode(host or ""))
        is_here = not host or host.startswith(HERE) or host == os.uname().nodename
        is_number = host.replace(".", "").isdigit() or ":" in host
        return "" if is_here or is_number else "look up " + host

    def shown(self, path: str) -> str:
        """Return a path with ~ for the home folder."""
        return "~" + path[len(self.home) :] if path.startswith(self.home + "/") else path

    def unseen_by_dynamo(self) -> None:
        """Keep Dynamo from compiling what listens."""
        try:
            from torch._C._dynamo.eval_frame import skip_code

            for each in (self.hear, self.note, self.shown, *self.hearers.values()):
                skip_code(each.__code__)  # type: ignore[attr-defined,unused-ignore]
        except Exception:  # noqa: BLE001, S110  # an older torch
            pass
