"""What a script needs beside itself: modules of its own, and files that it names.

A script that is cut down runs in a folder of its own, so that whatever it writes there harms nobody, and one that a
worker of a cluster runs is on another machine. What it reads has to come along.
"""

from __future__ import annotations

import ast
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from whichtorch.matrix.process.sandbox import own_folder
from whichtorch.matrix.source.syntax import parse_module

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from whichtorch.matrix.model import Scenario

MOST_BYTES = 50_000_000  # of all that comes along: more is data that a case for a maintainer cannot have
LONGEST_NAME = 200  # characters of a text that may be a file's name


def companions(
    script: Path, beside: Path, most_bytes: int = MOST_BYTES, arguments: Sequence[str] = ()
) -> dict[str, Path]:
    """Return the files that a script needs, by their paths in the folder that it is to run in.

    These are the modules beside the script that it imports, and theirs, and files that its texts or `arguments` name,
    relative to the script or to `beside`, the folder that it was started in. What is too large is left out.
    """
    found: dict[str, Path] = {}
    given = dict(_files((word.rpartition("=")[2] for word in arguments), script.parent, beside))
    unread, room = [script], most_bytes
    while unread:
        file = unread.pop()
        try:
            tree = parse_module(file.read_bytes())
        except (OSError, ValueError, SyntaxError):
            continue
        modules = dict(_modules(tree, script.parent))
        for name, path in {**modules, **given, **dict(_files(_texts(tree), script.parent, beside))}.items():
            size = path.stat().st_size
            if name in found or path == script or size > room:
                continue
            found[name], room = path, room - size
            if name in modules:
                unread.append(path)
    return found


def torch_beside(script: Path) -> Path | None:
    """Return the file that a script would import as torch instead of its environment's, None where there is none."""
    hiding = (script.parent / "torch.py", script.parent / "torch" / "__init__.py")
    return next((path for path in hiding if path.is_file() and b"torch" in script.read_bytes()), None)


def local_modules(script: Path) -> dict[str, bytes]:
    """Return the texts of the modules beside a script that it imports, and of theirs, by their paths in its folder."""
    found: dict[str, bytes] = {}
    unread = [(script.name, script)]
    while unread:
        name, path = unread.pop()
        if name in found:
            continue
        try:
            found[name] = path.read_bytes()
            unread += _modules(parse_module(found[name]), script.parent)
        except (OSError, ValueError, SyntaxError):
            continue
    return {name: text for name, text in found.items() if name != script.name}


def companions_of(scenario: Scenario, beside: Path, most_bytes: int = MOST_BYTES) -> dict[str, Path]:
    """Return the companions of a scenario's script, which is started in `beside`.

    One in a sandbox, a stranger's, is given what it sees where it lies, and no other file that it may name: no link
    leads out of its folder, and nothing of a home comes along.
    """
    if not scenario.sandboxed:
        return companions(scenario.path, beside, most_bytes, scenario.arguments)
    own = own_folder(scenario.path)
    if own is None:
        return {}
    own = own.resolve()
    beside = beside if beside.resolve().is_relative_to(own) else scenario.path.parent
    found = companions(scenario.path, beside, most_bytes, scenario.arguments)
    return {name: path for name, path in found.items() if path.resolve().is_relative_to(own)}


def copy_companions(files: dict[str, Path], folder: Path) -> None:
    """Copy a script's companions into a folder."""
    for name, path in files.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)


def _modules(tree: ast.AST, folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the modules and packages of a folder that a module imports."""
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            below = f"{node.module}." if node.module else ""
            names = [node.module or "", *(below + alias.name for alias in node.names)]
        for name in names:
            top = folder / name.partition(".")[0]
            if name.partition(".")[0] in {"", "torch"}:  # environments have a torch
                continue
            if (top / "__init__.py").is_file():
                found = sorted(top.rglob("*.py"))
            else:  # a module, or one in a folder without __init__.py, which may hold a million other files
                found = [path for path in (top, folder / name.replace(".", "/")) if path.with_suffix(".py").is_file()]
            for path in found:
                yield str(path.relative_to(folder).with_suffix(".py")), path.with_suffix(".py")


def _texts(tree: ast.AST) -> Iterator[str]:
    """Yield the texts of a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _files(names: Iterable[str], *folders: Path) -> Iterator[tuple[str, Path]]:
    """Yield the files that texts name by relative paths."""
    for name in names:
        if not 0 < len(name) <= LONGEST_NAME or "\n" in name or "\0" in name or Path(name).is_absolute():
            continue
        for folder in folders:
            path = folder / name
            if path.is_file() and path.resolve().is_relative_to(folder.resolve()):
                yield name, path
                break
