"""Apply a config's hooks before a cell's script starts, in its process and in its children.

With WHICHTORCH_STACKS, the supervisor can also ask each of these processes for its Python stacks, by a signal.

This folder stands first on PYTHONPATH, so Python's `site` imports this file at start-up. Then the folder is taken
off sys.path, and a `sitecustomize` that this file hid is imported: the script sees what it would see without us.

Runs in the environments under test, under any Python that has torch wheels, with the standard library only. It runs
before every script, so it must stay fast.
"""
# importing pathlib would take longer than all else here
# ruff: noqa: PTH118, PTH120, PTH123

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # importing typing would take longer, too
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any, Callable, NoReturn

HOOKS = "WHICHTORCH_HOOKS"  # names of the files beside this one, separated by commas
STACKS = "WHICHTORCH_STACKS"  # folder that faulthandler writes to, one file per process
STACKS_SIGNAL = 59  # SIGRTMAX - 5 of Linux: no library is known to use it (see whichtorch/process/evidence/capture.py)
LOOP_SIGNAL = 58  # likewise (see whichtorch/process/evidence/loop_watch.py)
SENT = "sent.txt"  # in that folder: signals that were sent, one a line (see whichtorch/process/supervisor.py)
NOTED = (1, 9, 15)  # SIGHUP, SIGKILL, SIGTERM: others do not end a process from outside, or say more themselves
TESTS = "WHICHTORCH_TESTS"  # folder that each pytest writes its tests to
NOT_APPLICABLE = 125


def apply_hook(folder: str, name: str) -> None:
    """Run a hook's `install`, which can ask for an action after the import of a module by `after_import`."""
    path = os.path.join(folder, name + ".py")
    try:
        # not an import: a script may have a module of the same name
        with open(path, encoding="utf-8") as file:
            code = compile(file.read(), path, "exec")
        hook: dict[str, Any] = {"__name__": "whichtorch_" + name, "__file__": path}
        exec(code, hook)  # noqa: S102

        def after_import(module: str, action: Callable[[ModuleType], object]) -> None:
            if module in sys.modules:  # this process was forked after the import
                action(sys.modules[module])
            else:
                sys.meta_path.insert(0, AfterImport(module, action, name))

        hook["install"](after_import)
    except FileNotFoundError:
        refuse(name, "there is no hook of that name")
    except Exception as error:  # noqa: BLE001  # whatever it is, it must be loud
        refuse(name, error)


class AfterImport:
    """An import finder that wraps the loader of one module, so that a hook's `action` runs after the import."""

    def __init__(self, module: str, action: Callable[[ModuleType], object], hook: str) -> None:
        self.module, self.action, self.hook = module, action, hook

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Return the spec that the later finders give for the module, with its loader wrapped."""
        if name != self.module:
            return None
        for finder in sys.meta_path[sys.meta_path.index(self) + 1 :]:
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find else None
            if spec is not None:
                self.wrap(spec.loader)
                return spec
        return None

    def wrap(self, loader: Any) -> None:
        """Replace `exec_module` of this loader, for this one call."""
        try:
            execute = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                vars(loader).pop("exec_module", None)  # gone already where two hooks wait for one module
                execute(module)
                try:
                    self.action(module)
                except Exception as error:  # noqa: BLE001
                    refuse(self.hook, error)

            loader.exec_module = exec_module
        except Exception as error:  # noqa: BLE001
            refuse(self.hook, error)


def refuse(name: str, reason: object) -> NoReturn:
    """End the process at once, so that nothing can catch it: a result without its config would be a lie."""
    if isinstance(reason, BaseException):
        reason = f"{type(reason).__name__}: {reason}"
    message = f"whichtorch: hook {name} could not be applied: {reason}\n"
    os.write(2, message.encode("utf-8", "replace"))
    os._exit(NOT_APPLICABLE)


def register_stacks(folder: str) -> None:
    """Let STACKS_SIGNAL write the Python stacks of this process into a file, and those of each fork into another.

    This works while native code holds the GIL, and needs no thread. Where it cannot work, nothing changes.
    """
    try:
        import faulthandler

        mine = (-1, 0)  # descriptor, and the inode behind it: a script may have closed it and opened another

        def register() -> None:
            nonlocal mine
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            try:
                file = os.open(os.path.join(folder, str(os.getpid()) + ".faulthandler.txt"), flags, 0o666)
                faulthandler.register(STACKS_SIGNAL, file=file, all_threads=True, chain=False)
                before, mine = mine, (file, os.fstat(file).st_ino)
                if before[0] >= 0 and os.fstat(before[0]).st_ino == before[1]:
                    os.close(before[0])  # the parent's
            except (OSError, RuntimeError, ValueError):
                return

        register()
        if mine[0] >= 0:
            os.register_at_fork(after_in_child=register)
    except Exception:  # noqa: BLE001, S110  # without stacks a result is as good
        pass


def register_loop(here: str, folder: str) -> None:
    """Let LOOP_SIGNAL write where the main thread is, and the state of its loop, by `loop_state.py` beside this file.

    An empty `PID.tasks.json` in the folder asks for asyncio's tasks, which `event_loop.py` then writes. What these two
    import is imported when it is first asked for. Where it cannot work, nothing changes.
    """
    try:
        import _signal  # type: ignore[import-not-found]  # importing signal would take longer
        import atexit

        def answer(_number: int, frame: Any) -> None:
            own = os.path.join(folder, str(os.getpid()))
            answers, tasks = own + ".loop.jsonl", own + ".tasks.json"
            # None: no line of Python runs, as when an exception is printed; and an import cannot take another one
            if frame is None or frame.f_code.co_filename.startswith("<frozen importlib"):
                write_unknown(answers)
                return
            try:
                if os.access(tasks, os.F_OK) and not os.stat(tasks).st_size:  # noqa: PTH116
                    load("event_loop.py")["write_tasks"](tasks)
                else:
                    # it lives until this handler returns
                    held = load("loop_state.py")["report_after_handler"](answers, _signal, write_unknown)  # noqa: F841
            except Exception:  # noqa: BLE001  # a module that it needs may be half imported
                write_unknown(answers)

        def load(name: str) -> dict[str, Any]:
            if name not in modules:
                path = os.path.join(here, name)
                module: dict[str, Any] = {"__name__": "whichtorch_" + name[:-3]}
                with open(path, encoding="utf-8") as file:
                    exec(compile(file.read(), path, "exec"), module)  # noqa: S102
                modules[name] = module
            return modules[name]

        modules: dict[str, dict[str, Any]] = {}
        _signal.signal(LOOP_SIGNAL, answer)
        _signal.siginterrupt(LOOP_SIGNAL, False)
        # an interpreter that ends gives back what has a handler, and the signal would kill it then
        atexit.register(_signal.signal, LOOP_SIGNAL, _signal.SIG_IGN)
    except Exception:  # noqa: BLE001, S110
        pass


def note_signals(folder: str) -> None:
    """Note the signals that Python code of this process and of its forks sends: the kernel tells nobody who sent one.

    Until the first is sent, no code of Python listens to the interpreter's events: that would take time, and Dynamo
    would compile it. They are only looked up in a table, whose keys are compared with nothing but their like.
    """

    def hear(event: str, arguments: tuple[Any, ...]) -> None:
        if event.startswith("os.kill") and arguments[1] in NOTED:
            append(os.path.join(folder, SENT), b"%d %d\n" % (arguments[1], abs(arguments[0])))

    class Sender(str):  # noqa: SLOT000  # a few of them
        __hash__ = str.__hash__

        def __eq__(self, _event: object) -> bool:
            table.clear()
            sys.addaudithook(hear)  # it is asked for this event already
            return True

    table = dict.fromkeys(map(Sender, ("os.kill", "os.killpg")))
    getattr(sys, "addaudithook", bool)(table.get)  # Python 3.7 has none


def write_unknown(path: str) -> None:
    """Answer LOOP_SIGNAL that nothing could be seen, so that the process is asked again."""
    append(path, b'{"frames": [], "place": 0, "state": null, "hidden": "the process could not answer"}\n')


def append(path: str, line: bytes) -> None:
    """Append a line to a file at once, if that is possible."""
    try:
        with open(path, "ab", buffering=0) as file:
            file.write(line)
    except OSError:
        pass


class Lookout:
    """An import finder that notes an import of torch, and has pytest load the plugin `whichtorch_tests.py` beside it.

    The variable is set where pytest is imported, not for all processes: in one whose PYTHONPATH is another, pytest
    would not find the plugin.
    """

    NAME = "whichtorch_tests"

    def __init__(self, folder: str) -> None:
        self.path = os.path.join(folder, self.NAME + ".py")

    def find_spec(self, name: str, _path: Any = None, _target: Any = None) -> Any:
        """Return the spec of the plugin; name it to pytest when that is about to be imported."""
        if name == "torch" and os.environ.get(STACKS):
            try:  # noqa: SIM105  # contextlib would take longer
                open(os.path.join(os.environ[STACKS], name), "a").close()
            except OSError:
                pass
        if name == "_pytest.config" and os.environ.get(TESTS):
            asked = os.environ.get("PYTEST_PLUGINS", "").split(",")
            os.environ["PYTEST_PLUGINS"] = ",".join(filter(None, [*asked, self.NAME]))
        if name != self.NAME:
            return None
        from importlib.util import spec_from_file_location

        return spec_from_file_location(name, self.path)


def leave(folder: str) -> None:
    """Take `folder` off sys.path and import the sitecustomize that it hid."""
    sys.path[:] = [entry for entry in sys.path if not entry or os.path.realpath(entry) != folder]
    own = sys.modules.pop(__name__)
    try:
        import sitecustomize  # type: ignore[import-not-found]  # noqa: F401  # another one
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
        sys.modules[__name__] = own  # the import under way looks for it


if __name__ == "sitecustomize":
    _folder = os.path.dirname(os.path.realpath(__file__))
    if os.environ.get(STACKS) and sys.platform == "linux":
        register_stacks(os.environ[STACKS])
        register_loop(_folder, os.environ[STACKS])
        note_signals(os.environ[STACKS])
    if os.environ.get(STACKS) or os.environ.get(TESTS):
        sys.meta_path.insert(0, Lookout(_folder))
    for _name in os.environ.get(HOOKS, "").split(","):
        if _name.strip():
            apply_hook(_folder, _name.strip())
    leave(_folder)
