"""How readable the structure of the code is, and how far a run goes through it: `python -m bench.house [--json]`.

Everything is found by walking the tree and by giving the command that pyproject.toml names, so that the same script
measures the code before and after its modules have moved. Product is what is shipped (of the scenarios only the
package, not the bundled scripts), noxfile.py and .ci; tests and bench are counted only where it says so.

A run is followed in the tool's own process, with stand-in wheels of torch from an index on this machine. Counted are
the files in which a function is called, and the hops from the file of a caller to the file of what it calls. What
modules do while they are imported is left out; uv, the supervisors and the scripts are processes of their own. Each
command is followed three times, with a script that fails in the two oldest of four versions: `installing` from
nothing; `running` an edited script in what is installed; `known`, with the answer in the records. A count made
earlier, with installs and processes faked, had 37 files and 69 hops for the matrix, 43 and 75 for the bisection. How
it faked is not known; `known` comes nearest to it.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import io
import json
import os
import pkgutil
import re
import subprocess
import sys
import tempfile
import textwrap
import threading
import tokenize
import tomllib
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from tests.wheels import build_companion, build_wheel, serve

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import FrameType

ROOT = Path(__file__).resolve().parent.parent
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PACKAGES = SETTINGS["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
LONGEST_FUNCTION, MOST_PARAMETERS, LONGEST_MODULE = 60, 6, 300
VERSIONS = {"2.11.0": "old", "2.12.0": "old", "2.13.0": "new", "2.14.0": "new"}  # what the default matrix asks for
SCRIPT = "import torch\nassert torch.behaviour == 'new', 'as it was'\n"
STATES = {"installing": SCRIPT, "running": f"{SCRIPT}#\n", "known": f"{SCRIPT}#\n"}  # the script at each time
COMMANDS = {"matrix": ("matrix", "x.py"), "bisection": ("bisect", "x.py")}
PATIENCE = 300  # seconds for one command
NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
Function = ast.FunctionDef | ast.AsyncFunctionDef
Node = TypeVar("Node", bound=ast.AST)


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """A line of the table."""

    what: str
    number: int
    items: tuple[str, ...] = ()  # what was counted, with its places
    listed: bool = True  # in the table, too; else only in the JSON


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """A file of Python."""

    path: str  # from the root of the repository
    text: str
    tree: ast.Module


def modules(*patterns: str) -> list[Module]:
    """Read the modules that glob patterns find below the root."""
    paths = sorted({path for pattern in patterns for path in ROOT.glob(pattern)})
    texts = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in paths}
    return [Module(path=path, text=text, tree=ast.parse(text)) for path, text in texts.items()]


def nodes(module: Module, kind: type[Node]) -> Iterator[Node]:
    """Yield all that is of a kind in a module's tree."""
    return (node for node in ast.walk(module.tree) if isinstance(node, kind))


def measured() -> Iterator[Count]:
    """Yield the lines of the table."""
    product = modules(
        "whichtorch/*.py", "whichtorch/matrix/**/*.py", "whichtorch/reports/**/*.py", "noxfile.py", ".ci/*.py"
    )
    bench, tests = modules("bench/**/*.py"), modules("tests/**/*.py")
    yield from names(product, bench)
    yield from called_one("product", product)
    yield from called_one("tests and bench", [*tests, *bench])
    loose = [module.path for module in product if re.fullmatch(r"whichtorch/matrix/(?!__init__)\w+\.py", module.path)]
    yield counted("loose modules in matrix/", loose)
    for where, code in (("product", product), ("tests", tests)):
        for what, pattern in (("type: ignore[arg-type]", r"ignore\[[^]]*arg-type"), ("type: ignore", "ignore")):
            found = Counter({module.path: len(re.findall(f"# type: {pattern}", module.text)) for module in code})
            yield tallied(f"{what}, {where}", found)
    subscripts = ((module.path, node) for module in product for node in nodes(module, ast.Subscript))
    untyped = Counter(path for path, node in subscripts if ast.unparse(node) == "dict[str, Any]")
    yield tallied("dict[str, Any], product", untyped)
    yield from sizes(product)
    yield Count(what="modules, product", number=len(product))
    yield Count(what="lines, product", number=sum(module.text.count("\n") for module in product))
    yield Count(what="lines of code, product", number=sum(map(lines_of_code, product)))
    yield from followed()


def counted(what: str, items: list[str], *, listed: bool = True) -> Count:
    """Return a count of items."""
    return Count(what=what, number=len(items), items=tuple(items), listed=listed)


def tallied(what: str, found: Counter[str], *, listed: bool = True) -> Count:
    """Return a count by file, the file with most first."""
    items = tuple(f"{path}: {number}" for path, number in found.most_common() if number)
    return Count(what=what, number=found.total(), items=items, listed=listed)


def names(product: list[Module], bench: list[Module]) -> Iterator[Count]:
    """Count public classes, and what several modules call the same: a class, or a file of which no command comes."""
    classes, files = defaultdict(list), defaultdict(list)
    for module in product:
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                classes[node.name].append(module.path)
    for module in [*product, *bench]:
        name = Path(module.path).name
        if "/cli/" not in module.path and name not in {"__init__.py", "__main__.py"}:
            files[name].append(module.path)
    yield Count(what="public classes, product", number=sum(map(len, classes.values())))
    for what, places in (("names of public classes, product", classes), ("file names, product and bench", files)):
        items = [f"{name}: {', '.join(found)}" for name, found in sorted(places.items()) if len(found) > 1]
        yield counted(f"in several modules: {what}", items)


def called_one(where: str, code: Iterable[Module]) -> Iterator[Count]:
    """Count the places that bind the name `one`, by file, and with them all that mention it."""
    bound, mentioned = Counter[str](), Counter[str]()
    for module in code:
        arguments = [node for node in nodes(module, ast.arg) if node.arg == "one"]
        variables = [node for node in nodes(module, ast.Name) if node.id == "one"]
        bound[module.path] = len(arguments) + sum(isinstance(node.ctx, ast.Store) for node in variables)
        mentioned[module.path] = len(arguments) + len(variables)
    yield tallied(f"`one` bound (arguments, targets), {where}", bound, listed=False)
    yield tallied(f"`one` mentioned (ast.Name, ast.arg), {where}", mentioned, listed=False)


def sizes(product: list[Module]) -> Iterator[Count]:
    """Count what is long: functions, lists of parameters, modules."""
    long, wide = [], []
    for module in product:
        for node in (node for node in ast.walk(module.tree) if isinstance(node, Function)):
            name = f"{module.path}:{node.lineno} {node.name}"
            length = (node.end_lineno or 0) - node.lineno + 1
            parameters = parameters_of(node)
            long += [f"{name}: {length} lines"] if length > LONGEST_FUNCTION else []
            wide += [f"{name}: {parameters}"] if parameters > MOST_PARAMETERS else []
    heights = {module.path: module.text.count("\n") for module in product}
    tall = [f"{path}: {height}" for path, height in heights.items() if height > LONGEST_MODULE]
    yield counted(f"functions over {LONGEST_FUNCTION} lines", long)
    yield counted(f"functions with over {MOST_PARAMETERS} parameters", wide)
    yield counted(f"modules over {LONGEST_MODULE} lines", tall)


def parameters_of(function: Function) -> int:
    """Count a function's parameters without self and cls."""
    given = function.args
    taken = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
    return sum(each is not None and each.arg not in {"self", "cls"} for each in taken)


def lines_of_code(module: Module) -> int:
    """Count the lines of a module that are neither blank nor comment nor docstring."""
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(module.text).readline):
        if token.type not in NO_CODE:
            code.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Module | ast.ClassDef | Function) and ast.get_docstring(node) is not None:
            code.difference_update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return len(code)


def followed() -> Iterator[Count]:
    """Count the files that commands go through, and the hops between them."""
    bystander = os.environ | {"WHICHTORCH_ATTEMPT": "of nobody"}  # else only a busy machine has one to be looked at
    with tempfile.TemporaryDirectory() as name, subprocess.Popen(["cat"], stdin=subprocess.PIPE, env=bystander):
        wheels = Path(name, "wheels")
        build_companion(wheels, "numpy", "2.2.0")
        for version, behaviour in VERSIONS.items():
            build_wheel(wheels, version, behaviour=behaviour)
        with serve(wheels) as index:
            for command, words in COMMANDS.items():
                for state, script in STATES.items():
                    found = follow_apart(Path(name, command), index.url, script, words)
                    for kind, items in found.items():
                        yield counted(f"{kind}, {command}, {state}", items, listed=False)


def follow_apart(folder: Path, index: str, script: str, words: Iterable[str]) -> dict[str, list[str]]:
    """Follow a command in a process of its own, in a folder with a script; return its files and hops."""
    (folder / "home").mkdir(parents=True, exist_ok=True)
    (folder / "x.py").write_text(script)
    answer = folder / "followed.json"
    environ = {name: text for name, text in os.environ.items() if not name.startswith(("UV_", "PIP_", "WHICHTORCH_"))}
    environ |= {"HOME": str(folder / "home"), "PYTHONPATH": str(ROOT), "UV_DEFAULT_INDEX": index, "COLUMNS": "160"}
    environ |= {"WHICHTORCH_PYTORCH_INDEX": "http://127.0.0.1:9/whl"}  # nobody answers there
    command = [sys.executable, "-m", "bench.house", "--follow", str(answer), *words]
    ended = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=PATIENCE)
    if ended.returncode not in (0, 1):  # 1: something fails
        raise SystemExit(f"{' '.join(words)}: exit code {ended.returncode}\n{ended.stdout}{ended.stderr}")
    return json.loads(answer.read_text())  # type: ignore[no-any-return]


def follow(answer: str, *words: str) -> None:
    """Give a command in this process, and write what it went through to a file; ends with its exit code."""
    tool = pkgutil.resolve_name(SETTINGS["project"]["scripts"]["whichtorch"])
    sys.argv = ["whichtorch", *words]
    files: set[str] = set()
    hops: set[str] = set()

    @cache
    def place(filename: str) -> str:
        """Return where in the product a file is, "" where it is not."""
        path = Path(filename)
        inside = path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in PACKAGES
        return str(path.relative_to(ROOT)) if inside else ""

    def note(frame: FrameType, event: str, _: object) -> None:
        is_function = frame.f_code.co_flags & inspect.CO_OPTIMIZED  # not the body of a module or class
        callee = place(frame.f_code.co_filename)
        if event == "call" and is_function and callee and not is_importing(frame):
            files.add(callee)
            caller = place(frame.f_back.f_code.co_filename) if frame.f_back else ""
            if caller not in {"", callee}:
                hops.add(f"{caller} -> {callee}")

    def is_importing(frame: FrameType | None) -> bool:
        while frame and not (frame.f_code.co_name == "<module>" and place(frame.f_code.co_filename)):
            frame = frame.f_back
        return frame is not None

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        tool()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
        Path(answer).write_text(json.dumps({"files": sorted(files), "hops": sorted(hops)}))


def main() -> None:
    """Print the table, or follow a command for it."""
    parser = argparse.ArgumentParser(prog="python -m bench.house", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="print everything, with files and hops, as JSON")
    parser.add_argument("--follow", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.follow:
        follow(*options.follow)
    elif options.json:
        print(
            json.dumps({count.what: {"number": count.number, "items": count.items} for count in measured()}, indent=1)
        )
    else:
        for count in measured():
            print(f"{count.what:<58} {count.number:>6}")
            for item in count.items if count.listed else ():
                print(textwrap.fill(item, 118, initial_indent="    ", subsequent_indent=" " * 8))


if __name__ == "__main__":
    main()
