"""Note which functions of torch a script runs, once each, in the order in which they first run.

From the end of the first `import torch` on, in all threads and child processes. Each process appends to a file of its
own in the folder that WHICHTORCH_FUNCTIONS names, a line per function: its file from site-packages on, its first line
and its name. A module that was there before counts as `<module>`. Lines are written at once, so what a crash or a kill
ends has its lines, too. A process that ends by itself then notes each of their modules that it has imported, without a
line. Packages that are named behind the folder, after colons, are noted in torch's place.

Python 3.12 and newer tell each function once (sys.monitoring). Before, a profile function hears of every call, and a
script takes about twice as long.
"""
# importing pathlib would take longer than all else here
# ruff: noqa: PTH100, PTH118, PTH120

from __future__ import annotations

import atexit
import os
import sys
import threading

TYPE_CHECKING = False  # importing typing would slow every start
if TYPE_CHECKING:
    from types import CodeType, ModuleType
    from typing import Any, Callable

FOLDER = "WHICHTORCH_FUNCTIONS"
PACKAGES = ("torch", "torchgen", "functorch")


def install(after_import: Callable[[str, Callable[[ModuleType], object]], object]) -> None:
    """Start to note as soon as torch has been imported, or the first of the packages that are named."""
    folder, *named = os.environ.get(FOLDER, "").split(os.pathsep)
    packages = tuple(name.partition(".")[0] for name in named) or PACKAGES
    recorders = []  # type: list[FunctionRecorder]

    def start(module: ModuleType) -> None:
        if not recorders:
            recorders.append(FunctionRecorder(folder, module, packages))
            recorders[0].start()

    for package in (named or PACKAGES[:1]) if folder else ():
        after_import(package, start)


class FunctionRecorder:
    """Notes the functions of this process from `start` to its end."""

    def __init__(self, folder: str, module: ModuleType, packages: tuple[str, ...]) -> None:
        self.folder, self.packages = folder, packages
        site_packages = os.path.abspath(str(module.__file__))
        for _ in range(1 + module.__name__.count(".") + hasattr(module, "__path__")):  # it may be one file
            site_packages = os.path.dirname(site_packages)
        self.root = site_packages + os.sep
        self.inside = tuple(self.root + package + end for package in packages for end in (os.sep, ".py"))
        self.seen: dict[int, Any] = {}  # by id; holds each code object, so that no id is used twice
        self.file = -1
        self.pid = 0

    def start(self) -> None:
        """Note the modules that are there, and begin to listen."""
        self.note_modules(1)
        atexit.register(self.note_modules, "")
        if hasattr(sys, "monitoring"):
            self.monitor()
        else:
            self.unseen_by_dynamo(self.profile)
            threading.setprofile(self.profile)
            sys.setprofile(self.profile)

    def note_modules(self, line: object) -> None:
        """Note the modules that are imported by now, with this as their line number."""
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None)
            if name.partition(".")[0] in self.packages and isinstance(file, str) and file.startswith(self.root):
                self.write(file, line, "<module>")

    def monitor(self) -> None:
        """Hear of each function's first start."""
        monitoring = sys.monitoring  # type: ignore[attr-defined,unused-ignore]
        tool = next(number for number in (4, 3, 2) if monitoring.get_tool(number) is None)
        monitoring.use_tool_id(tool, "whichtorch")
        event = monitoring.events.PY_START
        disable = monitoring.DISABLE

        def started(code: CodeType, _offset: int) -> object:
            self.note(code)
            return disable

        self.unseen_by_dynamo(started)
        monitoring.register_callback(tool, event, started)
        monitoring.set_events(tool, event)

    def unseen_by_dynamo(self, function: Any) -> None:
        """Keep Dynamo from compiling what listens."""
        try:
            from torch._C._dynamo.eval_frame import skip_code

            for each in (function, self.note, self.write):
                skip_code(each.__code__)
        except Exception:  # noqa: BLE001, S110  # an older torch
            pass

    def profile(self, frame: Any, event: str, _argument: object) -> None:
        """Hear of a call."""
        if event == "call" and id(frame.f_code) not in self.seen:
            self.note(frame.f_code)

    def note(self, code: CodeType) -> None:
        """Note a function that has not been seen; what runs at exit is none of the script's doing."""
        self.seen[id(code)] = code
        if threading.main_thread().is_alive() and code.co_filename.startswith(self.inside):
            self.write(code.co_filename, code.co_firstlineno, getattr(code, "co_qualname", code.co_name))

    def write(self, file: str, line: object, name: str) -> None:
        """Append a line to this process's file."""
        pid = os.getpid()
        if pid != self.pid:  # a fork has a file of its own
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self.file = os.open(os.path.join(self.folder, str(pid) + ".txt"), flags, 0o666)
            self.pid = pid
        try:
            text = file[len(self.root) :] + "\t" + str(line) + "\t" + name + "\n"
            os.write(self.file, text.encode("utf-8", "replace"))
        except OSError:  # a script may close what it did not open
            self.pid = 0
