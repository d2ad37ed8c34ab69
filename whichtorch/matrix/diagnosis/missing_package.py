"""A module that was not found -> what to do about it, by the table of PyPI's packages that pyimport2pkg keeps."""

from __future__ import annotations

import re
import sqlite3
import sys
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

_NOT_FOUND = re.compile(r"No module named '(?P<module>(?P<top>\w+)[\w.]*)'$")
_PACKAGES = """
    select package_name from mappings join packages using (package_name) where module_name = ?
    order by download_count desc
"""


def missing_module(message: str) -> str:
    """Return the module that a script lacks, by the words of a ModuleNotFoundError; "" where it is a part of torch."""
    match = _NOT_FOUND.match(message)
    return match["module"] if match and match["top"] != "torch" else ""


def package_of(module: str) -> str:
    """Return the package that has a module, of several the one that most people use; "" where the table has none."""
    package = find_spec("pyimport2pkg")
    folder = next(iter(package.submodule_search_locations or ()), "") if package else ""
    file = Path(folder, "data", "mapping.db").as_uri()
    with closing(sqlite3.connect(f"{file}?mode=ro&immutable=1", uri=True)) as table:
        row = table.execute(_PACKAGES, (module,)).fetchone()
    return str(row[0]) if row else ""


def absence(module: str, folder: Path | None = None) -> str:
    """Return in words that a module is not there, and what to add; `folder` is where the user's own files are."""
    top = module.partition(".")[0]
    own = next((path for found in (f"{top}.py", f"{top}/", f"*/{top}.py") for path in _found(folder, found)), None)
    if own:
        return f"module {module!r} is {own} of yours, which is not beside the script: a config can set PYTHONPATH"
    if top != module:
        return f"the installed {top!r} has no {module!r}: add another version of it, --with '{top}==VERSION'"
    if top in sys.stdlib_module_names:
        return f"module {module!r} is none of this Python's: try an older --python"
    package = package_of(top)
    return f"module {module!r} is not installed: add --with {package or f'the package that has module {module!r}'}"


def _found(folder: Path | None, pattern: str) -> list[Path]:
    return [path.relative_to(folder) for path in sorted(folder.glob(pattern))] if folder else []
