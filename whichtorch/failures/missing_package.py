"""What was not found -> the package that lacks it, or that is to be added, by pyimport2pkg's table of PyPI."""

from __future__ import annotations

import re
import sqlite3
import sys
from contextlib import closing
from importlib.resources import files
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from packaging.utils import canonicalize_name

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

_NOT_FOUND = re.compile(r"No module named '(?P<module>(?P<top>\w+)[\w.]*)'$")
_PART = re.compile(
    r"(?:No module named|cannot import name '\w+' from|(?<!initialized )module(?= '[\w.]+' has no attribute))"
    r" '(?P<top>\w+)"
)
_PACKAGES = "select package_name from mappings natural join packages where module_name = ? order by download_count desc"


class Absence(NamedTuple):
    """What is missing."""

    words: str
    options: tuple[str, ...] = ()  # that bring it; none where none helps

    def __str__(self) -> str:
        """Return it as a sentence with its remedy."""
        return f"{self.words}; add {' '.join(self.options)}" if self.options else self.words


def missing_module(signature: str | None, message: str) -> str:
    """Return the module that a script lacks; "" if it is part of torch, or the failure is another one."""
    match = _NOT_FOUND.match(message) if (signature or "").startswith(ModuleNotFoundError.__name__) else None
    return match["module"] if match and match["top"] != "torch" else ""


def needs_package(signature: str | None, message: str, installed: Container[str]) -> bool:
    """Return whether a script lacks a package, rather than a part of an installed one, which another release may have.

    A module that no package is known to have may be such a part.
    """
    module = missing_module(signature, message)
    return module.isidentifier() and bool(package_of(module)) and not lacking_package(message, installed)


def lacking_package(message: str, installed: Container[str]) -> str:
    """Return which of the installed packages lacks what was not found; "" where that is not known."""
    part = _PART.search(message)
    names = (canonicalize_name(part["top"]), package_of(part["top"])) if part else ()
    return next((name for name in names if name in installed), "")


def missing_in_all(failures: Iterable[tuple[str | None, str]]) -> list[str]:
    """Return a sentence on what is missing if all that was tried, by signature and message, lacks the same module."""
    modules = {missing_module(*failure) for failure in failures}
    return [f"fails wherever it was tried: {absence(module)}" for module in modules if module and len(modules) == 1]


def package_of(module: str) -> str:
    """Return the most downloaded package that has a module; "" if the table has none."""
    table = Path(str(files("pyimport2pkg")), "data", "mapping.db").as_uri()
    with closing(sqlite3.connect(f"{table}?immutable=1", uri=True)) as mapping:
        row = mapping.execute(_PACKAGES, (module,)).fetchone()
    return str(row[0]) if row else ""


def absence(module: str) -> Absence:
    """Return what is missing where a module was not found."""
    top, folder = module.partition(".")[0], Path.cwd()
    names = (f"{place}{top}{kind}" for place in ("", "*/") for kind in (".py", "/__init__.py"))
    if own := next(chain.from_iterable(map(folder.glob, names)), None):
        here = own.relative_to(folder)
        place = next(parent for parent in here.parents if not (parent / "__init__.py").exists())
        is_project = place.name and any((folder / name).exists() for name in ("pyproject.toml", "setup.py"))
        options = ("--install", ".") if is_project else ("--env", f"PYTHONPATH={place}")
        return Absence(f"module {module!r} is your {here}, which is not beside the script", options)
    if top != module:
        return Absence(f"the installed {top!r} has no {module!r}: bisect --package {top} searches its releases")
    if top in sys.stdlib_module_names:
        return Absence(f"module {module!r} is not in this Python's standard library: an older --python has it")
    return Absence(f"module {module!r} is not installed", ("--with", package_of(top) or "PACKAGE"))
