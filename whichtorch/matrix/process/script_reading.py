"""Read from a script how much of what it imports may be imported before it starts.

Only a script that does nothing before `import torch` may start in a process that has imported torch: variables, paths,
filters, hooks and threads can change what an import does. Code that is not understood counts as doing something.
"""

from __future__ import annotations

import ast
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from whichtorch.matrix.source.syntax import Function, is_constant, is_docstring

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

TORCH = "torch"
HARMLESS_BEFORE = sys.stdlib_module_names | {"numpy", "typing_extensions"}  # may be imported before torch
COMPILERS = {"compile", "_dynamo", "dynamo", "export", "_export", "_inductor", "compiler", "_compile", "aot_compile"}
LAZY = {"optim"}  # imports most of the compilers' modules, too, as soon as it is used
INDUCTOR = "_inductor"
OTHER_BACKENDS = {"eager", "aot_eager", "aot_eager_decomp_partition", "eager_debug", "aot_ts", "ts", "cudagraphs"}
WATCHES_IMPORTS = {"meta_path", "path_hooks", "path_importer_cache", "reload", "__import__"}  # and sys.modules
ENVIRON = {"environ", "environb"}
ENVIRON_CALLS = {"setdefault", "update", "pop", "popitem", "clear", "__setitem__", "__delitem__"}
ENVIRON_FUNCTIONS = {"putenv", "unsetenv"}
# Calls that change how the compilers' modules are imported.
STEERS_IMPORTS = {"set_default_device", "set_default_dtype", "set_default_tensor_type"}


@dataclass(frozen=True, slots=True)
class ScriptReading:
    """What the text of a script says of its imports."""

    level: str  # what it may find imported: torch, dynamo, inductor; "" for nothing
    cold_because: str = ""  # why nothing


class _Refusal(Exception):  # noqa: N818 - it is no error
    """Why a script is started as any other."""


def read_script(path: Path) -> ScriptReading:
    """Read a script and the modules beside it that it imports; never raises."""
    try:
        trees = _trees(path)
        is_first = _reaches_torch(trees[path].body, path, trees)
    except _Refusal as refusal:
        return ScriptReading("", str(refusal))
    except (OSError, SyntaxError, ValueError, RecursionError) as error:
        return ScriptReading("", f"it cannot be read: {error}")
    if not is_first:
        return ScriptReading("", "it does not import torch at its beginning")
    if watching := sorted(filter(None, map(_watches_imports, trees.values()))):
        return ScriptReading("", f"it uses {watching[0]}")
    return ScriptReading(_level(trees.values()))


def _trees(path: Path) -> dict[Path, ast.Module]:
    """Return the syntax trees of a script and of the modules beside it that it imports, directly or not."""
    trees: dict[Path, ast.Module] = {}
    waiting = [path]
    for file in waiting:  # grows as it goes
        trees[file] = ast.parse(file.read_bytes(), str(file))
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


def _reaches_torch(body: list[ast.stmt], script: Path, trees: dict[Path, ast.Module]) -> bool:
    """Return whether statements import torch before anything else happens, False where nothing happens at all."""
    for statement in body:
        names = _imported(statement)
        for name in names:
            top, beside = name.partition(".")[0], _beside(script, name)
            if top == TORCH:
                return True
            if beside is None and top not in HARMLESS_BEFORE:
                raise _Refusal(f"it imports {name} before torch (line {statement.lineno})")
            if beside not in (None, script) and _reaches_torch(trees[beside].body, script, trees):
                return True
        if isinstance(statement, ast.Try) and _reaches_torch(statement.body, script, trees):
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


def _watches_imports(tree: ast.Module) -> str:
    """Return what in a module looks at imports, "" where nothing does."""
    for node in ast.walk(tree):
        names = {alias.name for alias in node.names} if isinstance(node, ast.ImportFrom) else {_name(node)}
        if watching := WATCHES_IMPORTS & names:
            return min(watching)
        origin = node.module if isinstance(node, ast.ImportFrom) else _origin(node)
        if origin == "sys" and "modules" in names:
            return "sys.modules"
    return ""


def _level(trees: Iterable[ast.Module]) -> str:
    """Return how much may be imported before the script."""
    nodes = [node for tree in trees for node in ast.walk(tree)]
    words = set[str]()
    for node in nodes:
        if isinstance(node, ast.Attribute) and _origin(node) != "re":
            words.add(node.attr)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            modules = [*_imported(node), *(alias.name for alias in node.names)]
            words.update(part for module in modules for part in module.split("."))
    if not words & (COMPILERS | LAZY) or words & STEERS_IMPORTS or any(map(_changes_environ, nodes)):
        return "torch"
    return "inductor" if INDUCTOR in words or any(map(_compiles_with_inductor, nodes)) else "dynamo"


def _changes_environ(node: ast.AST) -> bool:
    """Return whether a node changes the process's variables: a compiler's modules read them later than torch does."""
    if isinstance(node, ast.Call):
        name = _name(node.func)
        return name in ENVIRON_FUNCTIONS or (name in ENVIRON_CALLS and _origin(node.func) in ENVIRON)
    if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
        return _name(node.value) in ENVIRON
    return isinstance(node, ast.AugAssign) and _name(node.target) in ENVIRON


def _compiles_with_inductor(node: ast.AST) -> bool:
    """Return whether a node is a `torch.compile` that names no other backend, called or as a decorator."""
    if isinstance(node, ast.FunctionDef):
        return any(_name(decorator) == "compile" for decorator in node.decorator_list)
    if not isinstance(node, ast.Call) or _name(node.func) != "compile" or _origin(node.func) == "re":
        return False
    backends = [word.value for word in node.keywords if word.arg == "backend"]
    return not (backends and isinstance(backends[0], ast.Constant) and backends[0].value in OTHER_BACKENDS)


def _name(node: ast.AST) -> str:
    """Return the last part of a dotted name, "" of anything else."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _origin(node: ast.AST) -> str:
    """Return what stands before the last dot, its last part only."""
    return _name(node.value) if isinstance(node, ast.Attribute) else ""
