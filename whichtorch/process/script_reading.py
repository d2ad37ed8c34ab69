"""Read from a script how much of what it imports may be imported before it starts.

Only a script that does nothing before `import torch` may start in a process that has imported torch: variables, paths,
filters, hooks and threads can change what an import does. A script that looks at something that differs in a forked
process, such as its stack or its imports, starts cold. Code that is not understood counts as doing something.
"""

from __future__ import annotations

import ast
import sys
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from whichtorch.source.syntax import Function, is_constant, is_docstring, parse_module

if TYPE_CHECKING:
    from pathlib import Path

TORCH, NUMPY = "torch", "numpy"
HARMLESS_BEFORE = sys.stdlib_module_names | {NUMPY, "typing_extensions"}  # may be imported before torch
COMPILERS = {"compile", "_dynamo", "dynamo", "export", "_export", "_inductor", "compiler", "_compile", "aot_compile"}
KERNELS = {"_inductor", "aot_compile", "aoti_compile_and_package"}  # these try which instructions the processor has
# These import most of the compilers' modules, too, as soon as they are used.
LAZY = {"optim", "assert_close", "make_fx", "_subclasses", "fake_tensor", "FakeTensorMode", "symbolic_shapes"}
# What differs between a process that was forked and one that was started.
FORK_REVEALING_MODULES = {
    *("gc", "resource", "tracemalloc", "faulthandler", "psutil", "memory_profiler", "memray", "objgraph"),
    *("trace", "bdb", "pdb", "profile", "cProfile", "coverage", "line_profiler", "pyinstrument", "viztracer", "yappi"),
    *("runpy", "imp", "zipimport", "modulefinder"),
}
FORK_REVEALING_NAMES = {
    *("print_stack", "format_stack", "extract_stack", "walk_stack", "currentframe", "getouterframes"),
    *("stack_info", "stacklevel", "RecursionError", "__import__", "reload"),
    *("process_time", "process_time_ns", "thread_time", "thread_time_ns", "times", "clock_gettime"),
}
FORK_REVEALING_CALLS = {"exec", "eval"}  # by their plain names: of what they run nothing is read
SAME_IN_FORK_SYS_NAMES = {
    *("argv", "orig_argv", "executable", "flags", "path", "prefix", "base_prefix", "warnoptions"),
    *("stdin", "stdout", "stderr", "__stdin__", "__stdout__", "__stderr__", "exit", "excepthook", "unraisablehook"),
    *("version", "version_info", "hexversion", "implementation", "platform", "byteorder", "maxsize", "float_info"),
    *("exc_info", "exception", "getdefaultencoding", "getsizeof", "intern", "stdlib_module_names"),
}
PROCESS_FILES = "/proc"
ENVIRON = {"environ", "environb"}
ENVIRON_CALLS = {"setdefault", "update", "pop", "popitem", "clear", "__setitem__", "__delitem__"}
# If a script uses any of these, the compilers are not preloaded: they could affect that import, or reveal it.
BLOCKS_PRELOADING = {
    *("set_default_device", "set_default_dtype", "set_default_tensor_type", "putenv", "unsetenv", "chdir"),
    *("setattr", "delattr", "patch", "filterwarnings", "simplefilter", "catch_warnings"),
    *("threading", "concurrent", "asyncio", "multiprocessing", "fork", "signal"),
    *("no_grad", "enable_grad", "inference_mode", "set_grad_enabled", "autocast", "__enter__", "enter_context"),
    *("time", "timeit", "datetime", "benchmark", "importlib", "pkgutil", "find_spec", "library", "_C", "*"),
}
HARMLESS_CONTEXTS = {"open", "suppress", "raises", "TemporaryDirectory"}
OPERATORS = "ops"  # a part of torch; only of torch's own operators is it known that the compilers change none
SET_BY_USERS = {"config", "backends"}  # parts of torch whose names are there to be set


@dataclass(frozen=True, slots=True)
class ScriptReading:
    """What the text of a script says of its imports."""

    level: str  # `torch`, optionally `numpy+` before it and `+compilers`, `+kernels` after it; "" for nothing
    cold_because: str = ""  # why nothing


def lower_level(level: str) -> str:
    """Return the level of imports that is made before another, "" where there is none."""
    lower, _, last = level.rpartition("+")
    return "" if last == TORCH else lower


class _Refusal(Exception):  # noqa: N818 - it is no error
    """Why a script is started as any other."""


def read_script(path: Path) -> ScriptReading:
    """Read a script and the modules beside it that it imports; never raises."""
    before = set[str]()
    try:
        trees = _trees(path)
        is_first = _reaches_torch(trees[path].body, path, trees, before)
    except _Refusal as refusal:
        return ScriptReading("", str(refusal))
    except (OSError, SyntaxError, ValueError, RecursionError) as error:
        return ScriptReading("", f"it cannot be read: {error}")
    if not is_first:
        return ScriptReading("", "it does not import torch at its beginning")
    nodes = [node for tree in trees.values() for node in ast.walk(tree)]
    if showing := sorted(filter(None, map(_reveals_fork, nodes))):
        return ScriptReading("", f"it uses {showing[0]}, which a fork may change")
    is_read = all(_is_read(path, name) for node in nodes for name in _imported(node))
    return ScriptReading("+".join([*sorted(before & {NUMPY}), TORCH, *(_preloadable(nodes) if is_read else ())]))


def _trees(path: Path) -> dict[Path, ast.Module]:
    """Return the syntax trees of a script and of the modules beside it that it imports, directly or not."""
    trees: dict[Path, ast.Module] = {}
    waiting = [path]
    for file in waiting:  # grows as it goes
        trees[file] = parse_module(file.read_bytes(), str(file))
        for node in ast.walk(trees[file]):
            waiting += {found for name in _imported(node) if (found := _beside(path, name))} - set(waiting)
    return trees


def _imported(node: ast.AST) -> list[str]:
    """Return the modules that a statement imports."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [node.module or "."] if not node.level else ["." + (node.module or "")]
    return []


def _beside(script: Path, name: str) -> Path | None:
    """Return the file of a module in the script's folder."""
    top = script.parent.joinpath(name.partition(".")[0])
    for file in (top.with_suffix(".py"), top / "__init__.py"):
        if name[:1] not in {"", "."} and file.is_file():
            return file
    return None


def _is_read(script: Path, name: str) -> bool:
    """Return whether it is known what a module does that a script imports: other packages are not read."""
    return name.partition(".")[0] in {TORCH, *HARMLESS_BEFORE} or _beside(script, name) is not None


def _reaches_torch(body: list[ast.stmt], script: Path, trees: dict[Path, ast.Module], before: set[str]) -> bool:
    """Return whether statements import torch before anything else happens, False where nothing happens at all.

    What they import before is added to `before`.
    """
    for statement in body:
        names = _imported(statement)
        for name in names:
            top, beside = name.partition(".")[0], _beside(script, name)
            if top == TORCH:
                return True
            before.add(top)
            if beside is None and top not in HARMLESS_BEFORE:
                raise _Refusal(f"it imports {name} before torch (line {statement.lineno})")
            if beside not in (None, script) and _reaches_torch(trees[beside].body, script, trees, before):
                return True
        if isinstance(statement, ast.Try) and _reaches_torch(statement.body, script, trees, before):
            return True
        if not names and not _is_harmless(statement):
            raise _Refusal(f"it does something before it imports torch (line {statement.lineno})")
    return False


def _is_harmless(statement: ast.stmt) -> bool:
    """Return whether a statement of a module only names things."""
    if isinstance(statement, Function):
        return not statement.decorator_list
    if isinstance(statement, ast.ClassDef):
        return not statement.decorator_list and not statement.keywords and all(map(_is_harmless, statement.body))
    if isinstance(statement, ast.Assign | ast.AnnAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        is_named = all(isinstance(target, ast.Name) for target in targets)
        return is_named and (statement.value is None or is_constant(statement.value))
    return isinstance(statement, ast.Pass) or is_docstring(statement)


def _reveals_fork(node: ast.AST) -> str:
    """Return what in a node looks at something that differs in a forked process, "" for nothing."""
    match node:
        case ast.Import() | ast.ImportFrom():
            tops = {name.partition(".")[0] for name in _imported(node)}
            names = {alias.name for alias in node.names} if isinstance(node, ast.ImportFrom) else set[str]()
            renamed = {alias.name for alias in node.names if alias.asname and isinstance(node, ast.Import)}
            showing = (tops & FORK_REVEALING_MODULES) | (names & FORK_REVEALING_NAMES) | (renamed & {"sys"})
            if tops == {"sys"}:
                showing |= {f"sys.{name}" for name in names - SAME_IN_FORK_SYS_NAMES}
            return min(showing, default="")
        case ast.Attribute(value=ast.Name(id="sys"), attr=name):
            return "" if name in SAME_IN_FORK_SYS_NAMES else f"sys.{name}"
        case ast.Attribute(value=ast.Name(id="inspect"), attr="stack" | "trace" as name):
            return f"inspect.{name}"
        case ast.Attribute(attr=name) | ast.Name(id=name) | ast.keyword(arg=str(name)) if name in FORK_REVEALING_NAMES:
            return name
        case ast.Call(func=ast.Name(id=name)) if name in FORK_REVEALING_CALLS:
            return name
        case ast.Call(args=[*_, ast.Name(id="sys")]) | ast.Call(args=[ast.Name(id="sys"), *_]):
            return "sys"
        case ast.Assign(value=ast.Name(id="sys")):
            return "sys"
        case ast.Constant(value=str(text)) if PROCESS_FILES in text:
            return PROCESS_FILES
        case ast.Constant(value=bytes(data)) if PROCESS_FILES.encode() in data:
            return PROCESS_FILES
    return ""


def _preloadable(nodes: list[ast.AST]) -> list[str]:
    """Return what may be imported before the script, beside torch."""
    words = set[str]()
    for node in nodes:
        if isinstance(node, ast.Attribute) and _origin(node) != "re":
            words.add(node.attr)
        elif isinstance(node, ast.Name):
            words |= {node.id} & BLOCKS_PRELOADING
        elif isinstance(node, ast.Import | ast.ImportFrom):
            modules = [*_imported(node), *(alias.name for alias in node.names)]
            words.update(part for module in modules for part in module.split("."))
    torch_names = _torch_names(nodes)
    acts = (_changes_environ, partial(_changes_torch, torch_names), _enters)
    steers = bool(words & BLOCKS_PRELOADING) or any(act(node) for node in nodes for act in acts)
    if OPERATORS in words:
        dotted = [_parts(node) for node in nodes if isinstance(node, ast.Attribute)]
        of_all, of_torch = dotted.count([TORCH, OPERATORS]), dotted.count([TORCH, OPERATORS, "aten"])
        steers = steers or of_torch == 0 or of_all != of_torch
    if steers or not words & (COMPILERS | LAZY):
        return []
    return ["compilers", *(["kernels"] if words & KERNELS or any(map(_compiles_to_kernels, nodes)) else [])]


def _compiles_to_kernels(node: ast.AST) -> bool:
    """Return whether a node compiles with Inductor, by its name or because no backend is named."""
    match node:
        case ast.Constant(value="inductor"):
            return True
        case ast.Call(func=ast.Attribute(attr="compile") | ast.Name(id="compile") as called, keywords=options):
            return _origin(called) != "re" and all(option.arg != "backend" for option in options)
        case ast.FunctionDef(decorator_list=decorators) | ast.ClassDef(decorator_list=decorators):
            return any(_name(each) == "compile" for each in decorators)
    return False


def _changes_environ(node: ast.AST) -> bool:
    """Return whether a node changes the process's variables: a compiler's modules read them later than torch does."""
    if isinstance(node, ast.Call):
        return _name(node.func) in ENVIRON_CALLS and _origin(node.func) in ENVIRON
    if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
        return _name(node.value) in ENVIRON
    return isinstance(node, ast.AugAssign) and _name(node.target) in ENVIRON


def _torch_names(nodes: list[ast.AST]) -> dict[str, str]:
    """Return the names that stand for torch or something of it, with what they stand for."""
    found = {TORCH: TORCH}
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            package = f"{_imported(node)[0]}." if isinstance(node, ast.ImportFrom) else ""
            names = {alias.asname or alias.name: package + alias.name for alias in node.names}
            found |= {name: whole for name, whole in names.items() if whole.partition(".")[0] == TORCH}
    return found


def _changes_torch(names: dict[str, str], node: ast.AST) -> bool:
    """Return whether a node sets a name of torch."""
    if not isinstance(node, ast.Attribute) or isinstance(node.ctx, ast.Load):
        return False
    first, *parts = _parts(node)
    return first in names and not SET_BY_USERS & {*names[first].split("."), *parts}


def _enters(node: ast.AST) -> bool:
    """Return whether a node is a `with`, which may enter a mode of torch that acts on what is imported in it."""
    if not isinstance(node, ast.With | ast.AsyncWith):
        return False
    return any(_name(getattr(item.context_expr, "func", item)) not in HARMLESS_CONTEXTS for item in node.items)


def _parts(node: ast.AST) -> list[str]:
    """Return the parts of a dotted name, "" for what is no name."""
    return [*_parts(node.value), node.attr] if isinstance(node, ast.Attribute) else [_name(node)]


def _name(node: ast.AST) -> str:
    """Return the last part of a dotted name, "" of anything else."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _origin(node: ast.AST) -> str:
    """Return what stands before the last dot, its last part only."""
    return _name(node.value) if isinstance(node, ast.Attribute) else ""
