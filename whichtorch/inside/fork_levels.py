"""What a fork server imports ahead at each level, and whether it may be forked afterwards.

Runs in the environments under test, under any Python that has torch wheels, with the standard library only.
"""
# ruff: noqa: PTH109, PTH206, PTH208

from __future__ import annotations

import builtins
import copy
import gc
import importlib.util
import os
import sys
import time

TYPE_CHECKING = False  # the script is to see what it would see without us
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any, Callable

_bootstrap = importlib._bootstrap  # type: Any
TORCH = (  # what eager code imports when it compares, fakes or traces
    "sympy",
    "torch.fx.experimental.symbolic_shapes",
    "torch._subclasses.fake_tensor",
    "torch.testing",
    "torch.nested._internal.nested_tensor",  # these three by assert_close
    "torch.distributed.tensor",
    "torch.fx.experimental._constant_symnode",
)
BACKENDS = ("debugging", "common", "cudagraphs", "distributed", "inductor", "onnxrt", "tensorrt", "torchxla", "tvm")
DYNAMO = (
    "networkx",
    "torch._dynamo",
    "torch._dynamo.convert_frame",
    *("torch._dynamo.backends." + part for part in BACKENDS),
    "torch._functorch.aot_autograd",
    "torch.export",
    "torch.optim",
)
INDUCTOR_PARTS = (
    *("compile_fx", "codecache", "async_compile", "graph", "scheduler"),
    *("codegen.cpp", "codegen.cpp_wrapper_cpu", "codegen.wrapper"),
    *("fx_passes.joint_graph", "fx_passes.post_grad", "fx_passes.fuse_attention", "fx_passes.serialized_patterns"),
)
# What is worked out once per process, without an operator: module, function.
TABLES = (
    ("torch._dynamo.trace_rules", "get_torch_obj_rule_map"),
    ("torch._inductor.codegen.common", "init_backend_registration"),
)
KERNEL_TABLES = (  # they start C++ compilers, which takes seconds
    ("torch._inductor.cpu_vec_isa", "pick_vec_isa"),
    ("torch._inductor.codecache", "pick_vec_isa"),  # its place before 2.5
)
COMPILERS = TORCH + DYNAMO + tuple("torch._inductor." + part for part in INDUCTOR_PARTS)
OPERATOR_KEYS = ("CPU", "Meta", "CompositeImplicitAutograd", "CompositeExplicitAutograd", "AutogradCPU", "Autograd")
C_STATE = "__pybind11"  # names in builtins, that extension modules share
DEVICE_COUNTS, UNTOLD = ("_cuda_getDeviceCount", "_xpu_getDeviceCount"), 255
DEVICES = ("cuda", "xpu", "mtia", "hpu")
PACKAGE_FOLDERS = {"site-packages", "dist-packages"}
TORCH_OWN = ("_TORCH", "CUDA_MODULE_LOADING")  # variables that torch itself sets, as it compiles
LADDER, BISECTED = "WHICHTORCH_LADDER", "TORCH_BISECT_"  # with the first, our hook sets what begins with the second
BRIEF_EXIT = "WHICHTORCH_BRIEF_EXIT"
COMPILE_THREADS = "TORCHINDUCTOR_COMPILE_THREADS"
CHANGED = (
    b"whichtorch: the script changed its environment before it imported a preloaded module; it is run again cold\n"
)
SETTLING = 2.0  # seconds for threads that have been joined to be gone


class PreloadedModules:
    """Modules that were imported ahead of a script, which sees none of them before it imports them.

    While they are imported, each is noted with what it asks for itself. The import of one of them then brings into
    sight what it would bring. A module that prints meanwhile is forgotten: its import runs again.
    """

    def __init__(self) -> None:
        self.requested_by = {}  # type: dict[str, set[str]]  # names, by the module that asks for them
        self.importing = []  # type: list[str]  # the innermost last
        self.printed_bytes = {}  # type: dict[str, int]  # by the module that prints
        self.hidden = {}  # type: dict[str, ModuleType]  # in the order of their imports
        self.unbound = set()  # type: set[str]  # of these, what their packages had under their names
        self.changes = []  # type: list[tuple[dict[str, Any], str, Any, Any]]  # names of other modules: before, after
        self.import_state = []  # type: list[Any]  # when the script began
        self.specs = {}  # type: dict[int, ModuleSpec | None]  # of modules that are about to be seen, by their ids

    def prepare(self, names: tuple[str, ...], functions: tuple[tuple[str, str], ...]) -> str:
        """Import modules, call functions, and hide all that is new; return what cannot be hidden."""
        before = {name: dict(vars(module)) for name, module in modules().items()}
        operators, said = registered_operators(), output_size()
        load, import_, import_module = _bootstrap._load_unlocked, builtins.__import__, importlib.import_module

        def noting_import(name: str, names: Any = None, local: Any = None, asked: Any = (), level: int = 0) -> Any:
            module = import_(name, names, local, asked, level)
            if self.importing:
                base = _bootstrap._resolve_name(name, _bootstrap._calc___package__(names), level) if level else name
                self.requested_by[self.importing[-1]].update([base, *(base + "." + str(each) for each in asked or ())])
            return module

        def noting_import_module(name: str, package: str | None = None) -> Any:
            if self.importing:
                self.requested_by[self.importing[-1]].add(importlib.util.resolve_name(name, package))
            return import_module(name, package)

        core = sys.modules.get("torch._C")
        counts = {name: vars(core)[name] for name in DEVICE_COUNTS if hasattr(core, name)}
        for name, count in counts.items():
            setattr(core, name, counted_in_child(count))
        _bootstrap._load_unlocked = lambda spec: self.note(spec.name, lambda: load(spec))
        builtins.__import__, importlib.import_module = noting_import, noting_import_module  # type: ignore[assignment]
        try:
            for name in names:
                try_import(name)
                freeze_objects()
            for name, function in functions:
                self.note("", lambda name=name, function=function: try_import(name, function))  # type: ignore[misc]
        finally:
            _bootstrap._load_unlocked = load
            builtins.__import__, importlib.import_module = import_, import_module
            for name, count in counts.items():
                setattr(core, name, count)
        if output_size() - said != sum(self.printed_bytes.values()):
            return "what the imports print cannot be told apart"
        self.hide(before)
        return "" if registered_operators() == operators else "the imports change torch's own operators"

    def note(self, name: str, load: Callable[[], Any]) -> Any:
        """Load a module, or work something out for none, and note what that imports, and whether it prints."""
        asked, imported = self.requested_by.setdefault(name, set()), set(sys.modules)
        self.importing.append(name)
        size, printed = output_size(), sum(self.printed_bytes.values())
        try:
            return load()
        finally:
            self.importing.pop()
            asked.update(set(sys.modules) - imported)
            if own := output_size() - size - (sum(self.printed_bytes.values()) - printed):
                self.printed_bytes[name] = self.printed_bytes.get(name, 0) + own

    def hide(self, before: dict[str, dict[str, Any]]) -> None:
        """Take what is new out of sight: modules, and names of the modules that were there before."""
        self.hidden = {name: module for name, module in modules().items() if name not in before}
        for name, module in self.hidden.items():
            del sys.modules[name]
            names, child = self.names_around(name)
            if names.get(child) is module:
                self.unbound.add(name)
                del names[child]
        for name in self.printed_bytes:
            self.hidden.pop(name, None)
        for module_name, old in before.items():
            names = vars(sys.modules[module_name])
            for name, value in list(names.items()):
                if old.get(name, self) is not value and not name.startswith(C_STATE):
                    self.changes.append((names, name, old.get(name, self), value))
        for names, name, old_value, _ in self.changes:
            if old_value is self:
                del names[name]
            else:
                names[name] = old_value
        sys.meta_path.insert(0, self)

    def names_around(self, name: str) -> tuple[dict[str, Any], str]:
        """Return the names of the package that a module is in, and the module's own name there."""
        package, _, child = name.rpartition(".")
        around = self.hidden.get(package) or sys.modules.get(package)
        return (vars(around) if around else {}), child

    def revealed_by_import(self, name: str) -> set[str]:
        """Return what the import of a module brings into sight."""
        found, waiting = set(), [name]  # type: set[str], list[str]
        while waiting:
            each = waiting.pop()
            if each not in found and (each in self.hidden or each in self.printed_bytes):
                found.add(each)
                waiting += [each.rpartition(".")[0], *self.requested_by.get(each, ())]
        return found

    def find_spec(self, name: str, _path: Any = None, _target: Any = None) -> ModuleSpec | None:
        """Return the spec of a hidden module, as a finder of imports."""
        if name not in self.hidden:
            return None
        spec = copy.copy(vars(self.hidden[name]).get("__spec__")) or _bootstrap.ModuleSpec(name, None)
        spec.loader = self
        return spec  # type: ignore[no-any-return]

    def begin(self) -> None:
        """Remember the state in which the script starts."""
        if self.hidden:
            self.import_state = import_state()

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return a hidden module, and bring what its import brings.

        Where the script has changed what may act on the import, this process cannot go on: it fails, and the script is
        started again without it.
        """
        if import_state() != self.import_state:
            os.write(2, CHANGED)
            os._exit(1)
        for names, name, _, value in self.changes:
            names[name] = value
        self.changes = []
        module = self.hidden[spec.name]
        self.specs[id(module)] = vars(module).get("__spec__")
        found = self.revealed_by_import(spec.name)
        shown = {name: each for name, each in self.hidden.items() if name in found}
        sys.modules.update(shown)
        for name in self.unbound & set(shown):
            names, child = self.names_around(name)
            names[child] = shown[name]
        for name in shown:
            del self.hidden[name]
        for name in sorted(found & set(self.printed_bytes)):
            try_import(name)
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Give a module its own spec back; it has run already."""
        vars(module)["__spec__"] = self.specs.pop(id(module))


PRELOADED = PreloadedModules()


def modules() -> dict[str, ModuleType]:
    """Return what is imported; what is no module stays as it is."""
    return {name: module for name, module in list(sys.modules.items()) if isinstance(module, type(sys))}


def registered_operators() -> list[set[str]]:
    """Return torch's own operators by the keys that they have kernels for.

    Operators of other libraries are ignored.
    """
    listed = getattr(sys.modules["torch"], "_C", None)
    ask = getattr(listed, "_dispatch_get_registrations_for_dispatch_key", lambda _key: ())
    return [{name for name in ask(key) if name.startswith("aten::")} for key in OPERATOR_KEYS]


def counted_in_child(count: Callable[[], int]) -> Callable[[], int]:
    """Return a function that counts devices in a forked child.

    A process that has counted them cannot use them after a fork.
    """

    def ask() -> int:
        number = told_by_child(count)
        if number == UNTOLD:
            raise RuntimeError("the devices cannot be counted")
        return number

    return ask


def told_by_child(ask: Callable[[], int]) -> int:
    """Return the small number that a forked child finds out; UNTOLD where it fails."""
    pid = os.fork()
    if not pid:
        try:
            os._exit(ask())
        finally:
            os._exit(UNTOLD)
    status = os.waitpid(pid, 0)[1]
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else UNTOLD


def import_state() -> list[Any]:
    """Return what a script may have changed, as it is now, and what acts on an import."""
    own = TORCH_OWN + ((BISECTED,) if LADDER in os.environ else ())
    environ = {name: text for name, text in os.environ.items() if not name.startswith(own)}
    threading = sys.modules.get("threading")
    is_main = threading is None or threading.current_thread() is threading.main_thread()
    return [environ, paths_before_vendored(), os.getcwd(), is_main]


def paths_before_vendored() -> list[str]:
    """Return where imports look, without folders at the end that are in packages.

    Packages add these themselves, as setuptools does with its `_vendor` when Inductor imports it. What was found before
    is not looked for there.
    """
    paths = list(sys.path)
    while paths and PACKAGE_FOLDERS.intersection(paths[-1].split(os.sep)[-3:-2]):
        del paths[-1]
    return paths


def output_size() -> int:
    """Return how many bytes this process has written, to files."""
    sys.stdout.flush()
    sys.stderr.flush()
    return os.fstat(1).st_size + os.fstat(2).st_size


def import_compilers(with_kernels: bool) -> str:
    """Preload what scripts that compile, fake or trace need besides torch, and perhaps what Inductor's kernels need.

    Return why the process must not be forked, or "".
    """
    before = os.environ.get(COMPILE_THREADS)
    os.environ[COMPILE_THREADS] = "1"  # else importing inductor starts a pool of processes
    problem = PRELOADED.prepare(COMPILERS, TABLES + (KERNEL_TABLES if with_kernels else ()))
    del os.environ[COMPILE_THREADS]
    if before is not None:
        os.environ[COMPILE_THREADS] = before
    freeze_objects()
    return problem


def freeze_objects() -> None:
    """Hide the objects that exist from the garbage collector: memory that it writes to is copied in each fork.

    Not where nanobind has bound modules, unless the interpreter is not taken apart at the end: nanobind then warns of
    objects that are left.
    """
    if os.environ.get(BRIEF_EXIT) or not binds_with_nanobind():
        gc.collect()
        gc.freeze()


def binds_with_nanobind() -> bool:
    """Return whether a module is bound to C++ by nanobind."""
    held = (getattr(module, "__dict__", {}) for module in list(sys.modules.values()))  # not all are modules
    return any(type(value).__name__ == "nb_func" for values in held for value in list(values.values()))


def try_import(module: str, function: str = "") -> None:
    """Import a module, or call its function; what fails here fails again where the script asks for it."""
    try:
        imported = importlib.import_module(module)
        if function:
            getattr(imported, function)()
    except Exception:  # noqa: BLE001, S110
        pass


def why_not_forkable() -> str:
    """Return why this process must not be forked, "" where it may be."""
    torch = sys.modules["torch"]
    if getattr(getattr(torch, "cuda", None), "is_initialized", bool)():
        return "CUDA is initialized after the imports"
    if sys.gettrace() or sys.getprofile():
        return "a trace or profile function is set by the imports"
    # what libraries do before a fork is to end their threads: OpenBLAS starts some when it is loaded
    if told_by_child(lambda: any(getattr(getattr(torch, name, None), "_is_in_bad_fork", bool)() for name in DEVICES)):
        return "the imports may have asked for a device, which a fork could not use"
    end = time.monotonic() + SETTLING
    while (threads := len(os.listdir("/proc/self/task"))) > 1:
        if time.monotonic() > end:
            return str(threads) + " threads are left after the imports"
        time.sleep(0.01)
    return ""
