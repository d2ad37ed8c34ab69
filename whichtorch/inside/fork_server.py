"""Import what scripts will import, then fork a process for each script that is asked for.

    python fork_server.py LEVEL DESCRIPTOR

The level is what is imported, in this order: `torch`, optionally `numpy+` before it and `+compilers` after it. With
`+kernels`, the C++ compiler is tried for the processor's instructions ahead, too, as Inductor does. The
descriptor is a socket. First a message tells that the imports are done. An order, a line of JSON, then comes with a
descriptor to wait on; the answer is the process id of a forked process, which is handed over to the caller: its parent
has ended. It has become what `python script.py` would be after its import of torch, and runs the script as soon as it
can read a byte.

Runs in the environments under test, under any Python that has torch wheels, with the standard library only. Nothing
here runs an operator or touches a GPU: threads and devices do not survive a fork.
"""
# importing pathlib would be seen by the script
# ruff: noqa: PTH109, PTH118, PTH119, PTH120, PTH123, PTH208

from __future__ import annotations

import array
import atexit
import builtins
import importlib
import json
import os
import socket
import sys
import types
from importlib.machinery import SourceFileLoader

TYPE_CHECKING = False  # the script is to see what it would see without us
if TYPE_CHECKING:
    from typing import Any

FOLDER = os.path.dirname(os.path.realpath(__file__))
BRIEF_EXIT = "WHICHTORCH_BRIEF_EXIT"  # torch and the interpreter are not taken apart at the end of a script
HOOKS = "WHICHTORCH_HOOKS"  # names, with commas between; a forked process applies those that the server lacks
COMPILERS, KERNELS = "compilers", "kernels"  # in a level: what is hidden until the script imports it
FOLDER_CACHES = ("cache_dir", "default_cache_dir", "cubin_cache_dir")  # functions of inductor that old releases cache
OUTPUT_KEPT = 1 << 20  # bytes that `import torch` may write to stdout, and to stderr


class Server:
    """The process that imports and forks."""

    def __init__(self, level: str, descriptor: int) -> None:
        os.set_inheritable(descriptor, False)
        self.channel = socket.socket(fileno=descriptor)
        self.parts = level.split("+")
        self.heard = b""
        self.said = (b"", b"")  # what `import torch` wrote to stdout and stderr
        self.folder = os.getcwd()  # torch notes it
        self.environ = {}  # type: dict[str, str]  # variables that Python's start and `import torch` have set

    def prepare(self) -> str:
        """Import everything; return why forking is not possible, usually ""."""
        if not getattr(sys.flags, "safe_path", False):
            del sys.path[0]  # this folder
        levels = self.levels = load_module("fork_levels.py")
        for name in self.parts:
            if name not in (COMPILERS, KERNELS):
                importlib.import_module(name)
        sys.stdout.flush()
        sys.stderr.flush()
        self.said = (os.pread(1, OUTPUT_KEPT, 0), os.pread(2, OUTPUT_KEPT, 0))
        with open("/proc/self/environ", "rb") as given:
            rows = set(given.read().split(b"\0"))
        self.environ = {name: text for name, text in os.environ.items() if os.fsencode(name + "=" + text) not in rows}
        levels.freeze_objects()
        problem = levels.import_compilers(KERNELS in self.parts) if COMPILERS in self.parts else ""
        return str(problem or levels.why_not_forkable())

    def send(self, message: dict[str, Any]) -> None:
        """Send a message."""
        self.channel.sendall(json.dumps(message).encode() + b"\n")

    def receive(self) -> tuple[dict[str, Any], int]:
        """Wait for an order; return it with the descriptor of its gate. End when nobody can send one any more."""
        gates = array.array("i")
        while b"\n" not in self.heard:
            part, ancillary, _, _ = self.channel.recvmsg(1 << 16, socket.CMSG_SPACE(gates.itemsize))
            if not part:
                os._exit(0)
            self.heard += part
            for _, _, content in ancillary:
                gates.frombytes(content[: gates.itemsize])
        line, _, self.heard = self.heard.partition(b"\n")
        return json.loads(line), gates[0]

    def serve(self) -> Script:
        """Fork for each order; return in the forked processes only, when their script is to run."""
        while True:
            order, gate = self.receive()
            readable, writable = os.pipe()
            between = os.fork()
            if not between:
                if os.fork():
                    os._exit(0)
                os.close(readable)
                return self.become(order, gate, writable)
            os.close(gate)
            os.close(writable)
            os.waitpid(between, 0)
            with os.fdopen(readable, "rb") as file:
                answer = file.readline()
            self.send(json.loads(answer) if answer else {"problem": "the forked process ended before it was ready"})

    def become(self, order: dict[str, Any], gate: int, answer: int) -> Script:
        """Make this forked process what the interpreter would be that was started for a script; wait at the gate."""
        try:
            self.channel.close()
            order["env"].update(self.environ)
            imported = {**sys.modules, **self.levels.PRELOADED.hidden}
            script = Script(order, self.said)
            script.check_beside(imported)
            reset_process_state(self.folder, imported)
            message = {"pid": os.getpid()}  # type: dict[str, Any]
        except BaseException as error:  # noqa: BLE001  # it is told, and another start is tried
            message = {"problem": "a fork failed: " + type(error).__name__ + ": " + str(error)}
        os.write(answer, json.dumps(message).encode() + b"\n")
        os.close(answer)
        if "problem" in message or not os.read(gate, 1):
            os._exit(1)
        os.close(gate)
        if "WHICHTORCH_STACKS" in os.environ:  # its file gets the descriptor that it has in a process that was started
            script.startup.register_stacks(os.environ["WHICHTORCH_STACKS"])
            script.startup.register_loop(os.path.join(FOLDER, "startup"), os.environ["WHICHTORCH_STACKS"])
            script.startup.note_signals(os.environ["WHICHTORCH_STACKS"])
        for name in script.hooks:
            script.startup.apply_hook(os.path.join(FOLDER, "startup"), name)
        self.levels.PRELOADED.begin()
        return script


class Script:
    """A script for this forked process, which gets the script's session, folder, environment, files and arguments."""

    def __init__(self, order: dict[str, Any], said: tuple[bytes, bytes]) -> None:
        os.setsid()
        os.chdir(order["cwd"])
        self.is_brief = bool(order["env"].pop(BRIEF_EXIT, ""))
        applied, asked = (
            [name.strip() for name in names.split(",") if name.strip()]
            for names in (os.environ.get(HOOKS, ""), order["env"].get(HOOKS, ""))
        )
        self.hooks = [name for name in asked if name not in applied]
        for name in set(os.environ) - set(order["env"]):
            del os.environ[name]
        os.environ.update(order["env"])
        for descriptor, path in ((1, order["stdout"]), (2, order["stderr"])):
            file = os.open(path, os.O_WRONLY | os.O_APPEND)
            os.dup2(file, descriptor)
            os.close(file)
            os.write(descriptor, said[descriptor - 1])
        sys.argv[:] = order["argv"][1:]
        if hasattr(sys, "orig_argv"):
            sys.orig_argv[:] = order["argv"]
        self.path = sys.argv[0]
        with open(self.path, "rb") as script:
            self.source = script.read()
        if not getattr(sys.flags, "safe_path", False):
            sys.path.insert(0, os.path.dirname(os.path.realpath(self.path)))
        main = types.ModuleType("__main__")
        main.__file__, main.__loader__ = self.path, SourceFileLoader("__main__", self.path)
        self.names = main.__dict__
        self.names["__builtins__"], self.names["__cached__"] = builtins, None
        if sys.version_info < (3, 14):
            self.names["__annotations__"] = {}
        sys.modules["__main__"] = main
        self.startup = load_module(os.path.join("startup", "sitecustomize.py"))

    def check_beside(self, imported: dict[str, Any]) -> None:
        """Raise if a file beside the script shadows an imported module."""
        names = {name.partition(".")[0] for name in os.listdir(os.path.dirname(os.path.realpath(self.path)))}
        if shadowing := sorted(names & {name.partition(".")[0] for name in imported} - {"__main__"}):
            raise ImportError(shadowing[0] + " beside the script shadows a module")

    def run(self) -> None:
        """Run it as the interpreter would."""
        try:
            exec(compile(self.source, self.path, "exec", dont_inherit=True), self.names)  # noqa: S102
        except SystemExit:
            raise
        except BaseException as error:  # the interpreter prints it
            hide_own_frames(error)
            raise

    def run_and_end(self) -> None:
        """Run it, wait for its threads and what it left for its end, and end without what the interpreter does then.

        That frees all that torch and the compilers have made, which takes longer than a small script.
        """
        code = 0
        try:
            self.run()
        except SystemExit as asked:
            code = exit_code_of(asked)
        except KeyboardInterrupt:  # the interpreter ends itself by the signal
            raise
        except BaseException:  # noqa: BLE001
            sys.last_type, sys.last_value, sys.last_traceback = sys.exc_info()  # as the interpreter does
            sys.excepthook(*sys.exc_info())
            code = 1
        threads = sys.modules.get("threading")
        if threads is not None:
            threads._shutdown()
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        os._exit(code)


def reset_process_state(folder: str, modules: dict[str, Any]) -> None:
    """Reset what belongs to the server's own folders, and seed the random generators again."""
    if "tempfile" in modules:
        modules["tempfile"].tempdir = None
    if "numpy.random" in modules:
        modules["numpy.random"].seed()
    if "multiprocessing.process" in modules:
        modules["multiprocessing.process"].ORIGINAL_DIR = os.getcwd()
    debugging = os.path.join(folder, "torch_compile_debug")
    dynamo = modules.get("torch._dynamo.config")  # type: Any
    inductor = modules.get("torch._inductor.config")  # type: Any
    if getattr(dynamo, "debug_dir_root", "") == debugging:
        dynamo.debug_dir_root = os.path.join(os.getcwd(), "torch_compile_debug")
    if hasattr(inductor, "decide_compile_threads"):
        inductor.compile_threads = inductor.decide_compile_threads()
    for module in [modules[name] for name in list(modules) if name.startswith("torch._inductor.")]:
        for function in FOLDER_CACHES:
            getattr(getattr(module, function, None), "cache_clear", bool)()


def load_module(name: str) -> types.ModuleType:
    """Return a file of this folder as a module that no script can see."""
    path = os.path.join(FOLDER, name)
    module = types.ModuleType("whichtorch_" + os.path.basename(name)[: -len(".py")])
    with open(path, encoding="utf-8") as file:
        exec(compile(file.read(), path, "exec", dont_inherit=True), module.__dict__)  # noqa: S102
    return module


def hide_own_frames(error: BaseException) -> None:
    """Let the interpreter print an exception of the script as it would without the frame below it."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    hook = sys.excepthook

    def show(kind: Any, value: BaseException, _: Any) -> None:
        sys.excepthook = hook
        sys.last_traceback = trace
        hook(kind, value.with_traceback(trace), trace)

    sys.excepthook = show


def exit_code_of(asked: SystemExit) -> int:
    """Return the exit code that a SystemExit asks for; what is no number is printed."""
    if asked.code is None or isinstance(asked.code, int):
        return (asked.code or 0) & 0xFF
    print(asked.code, file=sys.stderr)
    return 1


def start() -> Script:
    """Import, report that, and return in each forked process."""
    server = Server(sys.argv[1], int(sys.argv[2]))
    sys.argv[:] = [""]
    try:
        problem = server.prepare()
    except Exception as error:  # noqa: BLE001  # a cold start shows it as it is
        problem = type(error).__name__ + ": " + str(error)
    server.send({"problem": "the fork server is not fit: " + problem, "is_final": True} if problem else {"problem": ""})
    if problem:
        os._exit(1)
    return server.serve()


if __name__ == "__main__":
    script = start()
    if script.is_brief:
        script.run_and_end()
    script.run()
