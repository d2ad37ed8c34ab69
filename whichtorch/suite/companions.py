"""What a script needs beside itself: modules of its own, and files that it names.

A script that is cut down runs in a folder of its own, so that whatever it writes there harms nobody, and one that a
worker of a cluster runs is on another machine. What it reads has to come along.
"""

from __future__ import annotations

import ast
import itertools
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from whichtorch.process.sandbox import own_folder
from whichtorch.source.syntax import parse_module, texts_in

if TYPE_CHECKING:
    from whichtorch.model import Scenario

MOST_BYTES = 50_000_000  # of all that comes along: more is data that a case for a maintainer cannot have
MOST_PARSED = 200  # modules: parsing takes some 10 ms each, at every command
LONGEST_NAME = 200  # characters of a text that may be a file's name
_PYTHON = re.compile(r"python[\d.]*t?")
_PYTHON_OPTIONS = re.compile(r"-([bBdEiIOPqRsSuvx]*)([cm]?)")  # those without a value, then what is run


def companions(
    script: Path, beside: Path, most_bytes: int = MOST_BYTES, arguments: Sequence[str] = ()
) -> dict[str, Path]:
    """Return the files that a script needs, by their paths in the folder that it is to run in.

    These are the modules beside the script that it imports, and theirs, and files that its texts or `arguments` name,
    relative to the script or to `beside`, the folder that it was started in. What is too large is left out.
    """
    found: dict[str, Path] = {}
    given = dict(_files((word.rpartition("=")[2] for word in arguments), script.parent, beside))
    walked: set[Path] = set()
    unread, room = [script], most_bytes
    while unread:
        file = unread.pop()
        try:
            tree = parse_module(file.read_bytes())
        except (OSError, ValueError, SyntaxError):
            continue
        modules = _modules(tree, file, script.parent, walked)
        for name, path in {**modules, **given, **dict(_files(texts_in(tree), script.parent, beside))}.items():
            size = path.stat().st_size
            if name in found or path == script or size > room:
                continue
            found[name], room = path, room - size
            if name in modules:
                unread.append(path)
    return found


def hiding_torch(scenario: Scenario) -> Path | None:
    """Return the file that a test would import as torch instead of its environment's, None where there is none.

    Python looks first in the script's folder, and with -m or -c in the working directory.
    """
    script = _started(scenario.command.words, scenario.path) if scenario.command else scenario.path
    if script is None:
        return None
    folder = script if script.is_dir() else script.resolve().parent
    hiding = [path for path in (folder / "torch.py", folder / "torch" / "__init__.py") if path.is_file()]
    is_reading = script.is_dir() or (script.is_file() and b"torch" in script.read_bytes())
    return hiding[0] if hiding and is_reading else None


def _started(words: Sequence[str], folder: Path) -> Path | None:
    """Return the script that a command in `folder` runs; for `python -m` and `-c`, the folder; None for neither.

    Python, pytest or torchrun may run the script: it is the first Python file of the command.
    """
    is_python = False
    for word in words:
        script = folder / word.partition("::")[0]
        if script.suffix == ".py" and len(word) <= LONGEST_NAME and script.is_file():
            return script
        if is_python and (options := _PYTHON_OPTIONS.match(word)):
            if {"I", "P"} & {*options[1]}:  # then, Python looks in neither folder
                return None
            if options[2]:
                return folder
        is_python = is_python or _PYTHON.fullmatch(Path(word).name) is not None
    return None


def local_modules(script: Path) -> dict[str, bytes]:
    """Return the texts of the modules beside a script that it imports, and of those that these import.

    They are named by their paths in the script's folder. Of more than MOST_PARSED, the imports are not followed.
    """
    script = script.resolve()
    found: dict[str, bytes] = {}
    walked: set[Path] = set()
    unread = {script.name: script}
    while unread:
        name, path = unread.popitem()
        try:
            found[name] = path.read_bytes()
            if len(found) <= MOST_PARSED:
                new = _modules(parse_module(found[name]), path, script.parent, walked)
                unread |= {each: file for each, file in new.items() if each not in found}
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


def _modules(tree: ast.AST, file: Path, folder: Path, walked: set[Path]) -> dict[str, Path]:
    """Return the modules of a folder that one of them, `file`, imports, by their paths in it.

    All modules of a package come, once: it is `walked` then. A folder without __init__.py may hold a million other
    files: there, a module is looked up by its name.
    """
    names: dict[str, None] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= dict.fromkeys(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = file.parents[node.level - 1] if node.level else folder
            inner = base.relative_to(folder).parts if base.is_relative_to(folder) else ()
            start = [*inner, *filter(None, [node.module])]
            names |= dict.fromkeys([".".join(start), *(".".join([*start, alias.name]) for alias in node.names)])
    found: dict[Path, None] = {}
    for name in names:
        first, *parts = name.split(".")
        top = folder / first
        if first in {"", "torch"} or top in walked:  # torch comes from the environment
            continue
        if (top / "__init__.py").is_file():
            walked.add(top)
            found |= dict.fromkeys(sorted(top.rglob("*.py")))
            continue
        for path in itertools.accumulate(parts, Path.joinpath, initial=top):
            found |= dict.fromkeys(each for each in (path.with_suffix(".py"), path / "__init__.py") if each.is_file())
    return {str(path.relative_to(folder)): path for path in found}


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
