"""A module that was not found -> what to do about it, by the table of PyPI's packages that pyimport2pkg keeps."""

from __future__ import annotations

import re
import sqlite3
import sys
from contextlib import closing
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

_NOT_FOUND = re.compile(r"No module named '(?P<module>(?P<top>\w+)[\w.]*)'$")
_PACKAGES = """
    select package_name from mappings join packages using (package_name) where module_name = ?
    order by download_count desc
"""


PLACEHOLDER = "PACKAGE"  # stands for a name that is not known


class Absence(NamedTuple):
    """What is missing."""

    words: str
    package: str = ""  # for --with; "" where none helps

    def __str__(self) -> str:
        """Return it as a sentence with its remedy."""
        if not self.package:
            return self.words
        which = ", the package that has it" if self.package == PLACEHOLDER else ""
        return f"{self.words}; add --with {self.package}{which}"


def missing_module(signature: str | None, message: str) -> str:
    """Return the module that a script lacks; "" where it is a part of torch, or where it fails in another way."""
    match = _NOT_FOUND.match(message) if (signature or "").startswith(ModuleNotFoundError.__name__) else None
    return match["module"] if match and match["top"] != "torch" else ""


def missing_everywhere(failures: Iterable[tuple[str | None, str]]) -> str:
    """Return what is missing if all runs, by signature and message, lack the same module, else ""."""
    modules = {missing_module(*failure) for failure in failures}
    module = modules.pop() if len(modules) == 1 else ""
    return f"fails the same way everywhere: {absence(module)}" if module else ""


def package_of(module: str) -> str:
    """Return the package that has a module, of several the one that most people use; "" where the table has none."""
    package = find_spec("pyimport2pkg")
    folder = next(iter(package.submodule_search_locations or ()), "") if package else ""
    file = Path(folder, "data", "mapping.db").as_uri()
    with closing(sqlite3.connect(f"{file}?mode=ro&immutable=1", uri=True)) as table:
        row = table.execute(_PACKAGES, (module,)).fetchone()
    return str(row[0]) if row else ""


def absence(module: str) -> Absence:
    """Return what is missing where a module was not found."""
    top, folder = module.partition(".")[0], Path.cwd()
    if own := next(chain(folder.glob(f"{top}.py"), folder.glob(f"{top}/"), folder.glob(f"*/{top}.py")), None):
        here = own.relative_to(folder)
        return Absence(f"module {module!r} is your {here}, which is not beside the script: a config can set PYTHONPATH")
    if top != module:
        return Absence(f"the installed {top!r} has no {module!r}", f"{top}==VERSION")
    if top in sys.stdlib_module_names:
        return Absence(f"module {module!r} is none of this Python's: an older --python has it")
    return Absence(f"module {module!r} is not installed", package_of(top) or PLACEHOLDER)
