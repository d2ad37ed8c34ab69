"""A word that names no test -> what it is, and what was probably meant."""

from __future__ import annotations

import difflib
import os
import re
import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from whichtorch.base.version_parsing import parse_version

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_PROGRAMS = {"pytest", "python", "python3", "torchrun", "accelerate", "deepspeed", "mpirun", "tox", "unittest", "uv"}
_TEST_FILES = ("conftest.py", "test_*.py", "*_test.py", "*/test_*.py", "*/*_test.py")
SYNONYMS = {  # of commands
    **dict.fromkeys(("test", "check", "try"), "matrix"),
    **dict.fromkeys(("watch", "exec"), "run"),
    **dict.fromkeys(("dump", "py-spy", "hang"), "stacks"),
    **dict.fromkeys(("show", "page", "html"), "report"),
    **dict.fromkeys(("list", "ls"), "runs"),
    "diff": "compare",
    "why": "explain",
    "patch": "fix",
    "minimize": "triage",
    "help": "--help",
}
_SHELL = re.compile(r".+\.(?:sh|bash)")
_TORCH = re.compile(r"(?:py)?torch(?:[=~-]=?)(\d.*)")
_REQUIREMENT = re.compile(r"[\w.-]+(?:\[.*\])?[=<>~!]=?[\w.*,<>=!]+")
_LIST = re.compile(r"req.*\.txt")


class _Kind(NamedTuple):
    """What a word may be. `{word}` stands for it, `{words}` for it and what was typed after it."""

    what: str
    arguments: str  # what was meant
    command: str  # the command that takes them; "" for the one that was given
    is_it: Callable[[str, Path], object]


def _ends(*suffixes: str) -> Callable[[str, Path], object]:
    return lambda _word, path: path.suffix in suffixes and path.is_file()


def is_program(word: str) -> bool:
    """Return whether a word is the name of a program, not of a file here."""
    return word in _PROGRAMS or ("/" not in word and not Path(word).exists() and bool(shutil.which(word)))


_KINDS = (  # the first that applies counts
    _Kind("a process", "{word}", "stacks", lambda word, _: word.isdecimal() and Path("/proc", word).exists()),
    _Kind("a version", "--torch FIRST,{word}", "", lambda word, _: parse_version(word)),
    _Kind("a version", "--torch {version}", "", lambda word, _: _TORCH.fullmatch(word)),
    _Kind("a package", "--with {word}", "", lambda word, _: _REQUIREMENT.fullmatch(word)),
    _Kind("a whole command", "-- {word}", "", lambda word, _: is_program(word.partition(" ")[0]) and " " in word),
    _Kind("the address of a page", "report.md", "answer", lambda word, _: re.match(r"https?://", word)),
    _Kind("a test of pytest", "-- pytest {words}", "", lambda word, _: ".py::" in word),
    _Kind("a script", "{words}", "matrix", _ends(".py")),
    _Kind("a notebook", "--with nbclient --with ipykernel -- jupyter execute {word}", "", _ends(".ipynb")),
    _Kind("a bug report", "{word}", "answer", _ends(".md")),
    _Kind("a case", "{word}", "replay", _ends(".zip")),
    _Kind("a wheel", "--torch {word}", "", _ends(".whl")),
    _Kind("a lock file", "--constraint {word}", "", _ends(".lock")),
    _Kind("a matrix file", "--matrix {word}", "", _ends(".toml")),
    _Kind("a file of requirements", "-r {word}", "", lambda _, path: _LIST.fullmatch(path.name) and path.is_file()),
    _Kind("a program", "-- {place}", "", lambda _, path: path.is_file() and os.access(path, os.X_OK)),
    _Kind("a shell script", "-- sh {words}", "", lambda _, path: path.is_file() and _SHELL.fullmatch(path.name)),
    _Kind("a file whose name does not end in .py", "-- python {words}", "", lambda _, path: path.is_file()),
    _Kind("an environment", "--interpreter {word}/bin/python", "", lambda _, path: (path / "bin" / "python").exists()),
    _Kind("a package that runs", "-- python -m {module}", "", lambda _, path: (path / "__main__.py").is_file()),
    _Kind(
        "a folder of tests", "--with pytest -- pytest {words}", "",
        lambda _, path: any(any(path.glob(pattern)) for pattern in _TEST_FILES),
    ),
    _Kind("a folder of scripts", "{folder}/*.py", "", lambda _, path: any(path.glob("*.py"))),
    _Kind("a folder", "-- COMMAND", "", lambda _, path: path.is_dir()),
    _Kind("a script without its .py", "{word}.py", "", lambda word, _: Path(f"{word}.py").is_file()),
    _Kind("a module", "-- python -m {words}", "", lambda word, _: Path(f"{word.replace('.', '/')}.py").is_file()),
    _Kind("a program", "-- {words}", "", lambda word, _: is_program(word)),
)  # fmt: skip


def probably_meant(words: Sequence[str], command: str = "") -> tuple[str, str]:
    """Return what the first of these words is, and what was meant instead of them; ("", "") where that is not known.

    `command` is the one that was to be given where none was.
    """
    word, path = words[0], Path(words[0])
    kind = next((kind for kind in _KINDS if kind.is_it(word, path)), None)
    if kind is None:
        return "", ""
    shown = kind.arguments.format(
        word=shlex.quote(word) if kind.what != "a whole command" else word,
        words=shlex.join(words),
        version=_TORCH.sub(r"\1", word),
        place=shlex.join([word if "/" in word else f"./{word}", *words[1:]]),
        folder=word.rstrip("/"),
        module=" ".join([".".join(path.parts), *map(shlex.quote, words[1:])]),
    )
    name = kind.command or command
    return kind.what, f"`whichtorch {name} {shown}`" if name else f"`{shown}`"


def near_script(name: str) -> str:
    """Return the script below the current folder that a name was probably meant to be; "" for none."""
    scripts = {path.as_posix(): path for pattern in ("*.py", "*/*.py", "*/*/*.py") for path in Path().glob(pattern)}
    same = [shown for shown, path in scripts.items() if path.name == Path(name).name]
    return next(iter(same or difflib.get_close_matches(name, scripts, n=1)), "")
