"""How large the program is, and how far a run goes through it: `python -m bench.house [--list]`.

Everything is found by walking the package and by giving its commands, so the same script measures the code before and
after its modules have moved. The product is every Python file of the package, but for the bundled scenarios.

A run is followed in the tool's own process, with stand-in wheels of torch: counted are the files in which a function is
called, and the hops from a caller's file to that of what it calls. Imports and other processes are left out. The
environments are installed before; the script is new.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import io
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import tokenize
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FrameType

import click

import whichtorch
from tests.wheels import build_companion, build_wheel, serve
from whichtorch.cli.app import app

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = Path(str(whichtorch.__file__)).resolve().parent
VERSIONS = {"2.11.0": "old", "2.12.0": "old", "2.13.0": "new", "2.14.0": "new"}  # what the default matrix asks for
SCRIPT = "import torch\nassert torch.behaviour == 'new', 'as it was'\n"
FOLLOWED = ("matrix", "bisect")
NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
STARTS = re.compile(r"AttemptRequest|Order|\w*(Executor|Scheduler|Pool)")  # classes that an attempt is started with
DEFINED = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """A file of Python."""

    path: Path
    text: str
    tree: ast.Module

    @property
    def name(self) -> str:
        """Return the name that it is imported by."""
        parts = (PACKAGE.name, *self.path.relative_to(PACKAGE).with_suffix("").parts)
        return ".".join(parts).removesuffix(".__init__")


def modules(paths: Iterable[Path]) -> list[Module]:
    """Read modules."""
    texts = ((path, path.read_text(encoding="utf-8")) for path in sorted(paths))
    return [Module(path=path, text=text, tree=ast.parse(text)) for path, text in texts]


def lines_of_code(module: Module) -> int:
    """Count the lines of a module that are neither blank nor comment nor docstring."""
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(module.text).readline):
        if token.type not in NO_CODE:
            code.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Module | DEFINED) and ast.get_docstring(node) is not None:
            code.difference_update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return len(code)


def ways(product: Iterable[Module]) -> Iterator[str]:
    """Yield the public functions and classes that make a request for an attempt, or what runs or schedules attempts."""
    trees = {module.name: module.tree for module in product}
    classes = {node.name for tree in trees.values() for node in tree.body if isinstance(node, ast.ClassDef)}
    starts = {name for name in classes if STARTS.fullmatch(name)}
    for name, tree in trees.items():
        for node in tree.body:
            if isinstance(node, DEFINED) and not node.name.startswith("_"):
                calls = [each for each in ast.walk(node) if isinstance(each, ast.Call)]
                used = [each for call in calls for each in (call.func, *call.args) if isinstance(each, ast.Name)]
                if names := {each.id for each in used} & starts:
                    yield f"{name}.{node.name}: {', '.join(sorted(names))}"


def imports(product: Iterable[Module]) -> dict[str, set[str]]:
    """Return the modules of the package that each module imports, types and late imports included."""
    names = {module.name for module in product}
    found: dict[str, set[str]] = {}
    for module in product:
        asked: set[str] = set()
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Import):
                asked |= {each.name for each in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                inside = {f"{node.module}.{each.name}" for each in node.names} & names
                asked |= inside or {node.module}
        found[module.name] = (asked & names) - {module.name}
    return found


def circles(arrows: dict[str, set[str]]) -> list[str]:
    """Return the groups of modules each of which imports itself through the others."""
    ahead: dict[str, set[str]] = {}
    for start in arrows:
        seen, left = ahead.setdefault(start, set()), [start]
        while left:
            new = arrows[left.pop()] - seen
            seen |= new
            left += new
    groups = {frozenset(other for other in found if name in ahead[other]) for name, found in ahead.items()}
    return sorted(", ".join(sorted(group)) for group in groups if group)


def upward(arrows: dict[str, set[str]], layers: list[str]) -> Iterator[str]:
    """Yield the imports of a later room by an earlier one."""

    def level(name: str) -> int:
        return next((at for at, layer in enumerate(layers) if f"{name}.".startswith(f"{layer}.")), -1)

    for name, others in arrows.items():
        yield from (f"{name} -> {other}" for other in others if -1 < level(other) < level(name))


def loose(product: Iterable[Module], layers: list[str]) -> list[str]:
    """Return the modules that stand beside rooms."""
    parents = {layer.rpartition(".")[0] for layer in layers}
    return [each.name for each in product if each.name.rpartition(".")[0] in parents and "__" not in each.path.name]


def called_one(code: Iterable[Module]) -> list[str]:
    """Return the places that bind the name `one`."""
    nodes = [(module.path.relative_to(ROOT), node) for module in code for node in ast.walk(module.tree)]
    arguments = [f"{path}:{node.lineno}" for path, node in nodes if isinstance(node, ast.arg) and node.arg == "one"]
    names = [(path, node) for path, node in nodes if isinstance(node, ast.Name) and node.id == "one"]
    return arguments + [f"{path}:{node.lineno}" for path, node in names if isinstance(node.ctx, ast.Store)]


def followed(command: str, index: str, folder: Path) -> dict[str, list[str]]:
    """Give a command with an edited script; return its files and hops."""
    environ = {name: text for name, text in os.environ.items() if not name.startswith(("UV_", "PIP_", "WHICHTORCH_"))}
    environ |= {"WHICHTORCH_HOME": str(folder / "state"), "HOME": str(folder), "PYTHONPATH": str(ROOT)}
    environ |= {"UV_DEFAULT_INDEX": index, "WHICHTORCH_PYTORCH_INDEX": "http://127.0.0.1:9/whl"}  # nobody answers there
    answer = folder / f"{command}.json"
    for edit in ("", f"# {command}\n"):  # the first time the environments are installed
        (folder / "x.py").write_text(SCRIPT + edit)
        words = [sys.executable, "-m", "bench.house", "--follow", str(answer), command, "x.py"]
        ended = subprocess.run(words, cwd=folder, env=environ, capture_output=True, text=True, timeout=300)
        if not re.search("4 cells|fixed in 2.13.0", ended.stdout):  # what ends early goes through few files
            raise SystemExit(f"{command}: exit code {ended.returncode}\n{ended.stdout}{ended.stderr}")
    return json.loads(answer.read_text())  # type: ignore[no-any-return]


def follow(answer: str, *words: str) -> None:
    """Give a command in this process, and write what it went through to a file; ends with its exit code."""
    from whichtorch.cli import main as tool

    sys.argv = ["whichtorch", *words]
    files, hops = set[str](), set[str]()

    @cache
    def place(filename: str) -> str:
        path = Path(filename)
        return str(path.relative_to(PACKAGE)) if path.is_relative_to(PACKAGE) else ""

    def is_importing(frame: FrameType | None) -> bool:
        while frame and not (frame.f_code.co_name == "<module>" and place(frame.f_code.co_filename)):
            frame = frame.f_back
        return frame is not None

    def note(frame: FrameType, event: str, _: object) -> None:
        is_function = frame.f_code.co_flags & inspect.CO_OPTIMIZED  # not the body of a module or class
        callee = place(frame.f_code.co_filename)
        if event == "call" and is_function and callee and not is_importing(frame):
            files.add(callee)
            caller = place(frame.f_back.f_code.co_filename) if frame.f_back else ""
            if caller not in {"", callee}:
                hops.add(f"{caller} -> {callee}")

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        tool()
    finally:
        sys.setprofile(None)
        Path(answer).write_text(json.dumps({"files": sorted(files), "hops": sorted(hops)}))


def measured() -> Iterator[tuple[str, int, list[str]]]:
    """Yield the lines of the table: what is counted, how many there are, and which."""
    product = modules(path for path in PACKAGE.rglob("*.py") if "scenarios" not in path.relative_to(PACKAGE).parts)
    others = modules(path for room in ("tests", "bench") for path in ROOT.glob(f"{room}/**/*.py"))
    sizes = {module.name: lines_of_code(module) for module in product}
    yield "lines of code", sum(sizes.values()), [f"{size} {name}" for name, size in sizes.items()]
    yield "modules", len(product), []
    yield "median lines of code a module", int(statistics.median(sizes.values())), []
    with tempfile.TemporaryDirectory() as name:
        wheels = Path(name, "wheels")
        build_companion(wheels, "numpy", "2.2.0")
        for version, behaviour in VERSIONS.items():
            build_wheel(wheels, version, behaviour=behaviour)
        with serve(wheels) as index:
            for command in FOLLOWED:
                for kind, items in followed(command, index.url, Path(name)).items():
                    yield f"{kind} on the way of {command}", len(items), items
    arrows = imports(product)
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    layers = next(contract["layers"] for contract in settings["contracts"] if contract["type"] == "layers")
    rows = {"ways to run a script": list(ways(product)), "circles of files": circles(arrows)}
    rows |= {"loose modules": loose(product, layers), "upward arrows": list(upward(arrows, layers))}
    rows |= {"`one`, product": called_one(product), "`one`, tests and bench": called_one(others)}
    for command in FOLLOWED:
        asked = app().commands[command]
        found = [each for each in asked.get_params(click.Context(asked)) if isinstance(each, click.Option)]
        rows[f"options of {command}"] = [
            each.opts[0] for each in found if not each.hidden and not each.opts[-1].startswith("--help")
        ]
    yield from ((what, len(items), items) for what, items in rows.items())
    for room in ("tests", "bench"):
        texts = [module.text for module in others if module.path.is_relative_to(ROOT / room)]
        yield f"lines of {room}", sum(text.count("\n") for text in texts), []
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/*.md"))]
    words = {page.name: len(re.findall(r"\S*\w\S*", page.read_text(encoding="utf-8"))) for page in pages}
    yield "words of docs", sum(words.values()), [f"{count} {name}" for name, count in words.items()]


def main() -> None:
    """Print the table, or follow a command for it."""
    parser = argparse.ArgumentParser(prog="python -m bench.house", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--list", action="store_true", help="print what was counted, too")
    parser.add_argument("--follow", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.follow:
        follow(*asked.follow)
    else:
        for what, number, items in measured():
            print(f"{what:<48} {number:>6}", flush=True)
            print("".join(f"    {item}\n" for item in items * asked.list), end="")


if __name__ == "__main__":
    main()
