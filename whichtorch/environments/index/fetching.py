"""The program that fetches wheels from an index into a folder, in a process that can be ended at once."""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from filelock import FileLock, Timeout
from packaging.version import Version

from whichtorch.environments.index import pages
from whichtorch.environments.index.releases import LinkedWheel, best_fit

REQUEST = "WHICHTORCH_FETCH"  # variable that holds a FetchRequest as JSON: no argument shows an index's credentials
ROOT = str(Path(__file__).resolve().parents[3])  # the folder that holds the package `whichtorch`
PROGRAM = f"import sys; sys.path.insert(0, {ROOT!r}); from whichtorch.environments.index.fetching import main; main()"
PARTIAL = ".part-"  # begins the name of what is not whole yet


class FetchRequest(NamedTuple):
    """What the program `main` is to fetch."""

    index_url: str
    wanted: dict[str, str]  # versions by project
    python: str
    folder: str  # to put the wheels into
    certificates: str | None
    contents: str = ""  # of the wheel that is wanted; "": of whatever has the name


def main() -> None:
    """Fetch what the variable asks for; exit with 1 and a line where that fails."""
    request = FetchRequest(**json.loads(os.environ.pop(REQUEST)))
    folder = Path(request.folder)
    folder.mkdir(parents=True, exist_ok=True)
    remove_left_over(folder)
    for project, version in request.wanted.items():
        try:
            pages.retried(functools.partial(_fetch_wheel, request, project, version))
        except pages.PageError as error:
            sys.exit(f"error: {project} {version}: {error.problem}")


def _fetch_wheel(request: FetchRequest, project: str, version: str) -> None:
    """Fetch the best wheel of a version, if the index has one. Raises PageError."""
    listed = pages.fetch(request.index_url, is_index=True, certificates=request.certificates, project=project)
    filename = best_fit((package.filename for package in listed), project, version, request.python)
    if filename is not None:
        package = next(package for package in listed if package.filename == filename)
        release = LinkedWheel.of(package).release(Version(version), request.index_url)
        if request.contents not in {"", release.contents}:
            problem = "the index has replaced this wheel since it was listed; give the command again"
            raise pages.PageError(problem, may_pass=False)
        with partial(Path(request.folder), filename) as path:
            pages.download(package, path, request.index_url, request.certificates)
            path.replace(path.with_name(filename))


@contextmanager
def partial(folder: Path, filename: str) -> Iterator[Path]:
    """Give a name for a file until it is whole, locked while this process lives; remove what is left in the end."""
    path = folder / f"{PARTIAL}{os.getpid()}-{filename}"
    with FileLock(lock_of(path)):
        try:
            yield path
        finally:
            path.unlink(missing_ok=True)
            lock_of(path).unlink(missing_ok=True)


def lock_of(path: Path) -> Path:
    """Return the file whose lock says that a process still writes a partial file."""
    return path.with_name(f"{path.name}.lock")


def remove_left_over(folder: Path) -> None:
    """Remove what fetches that were killed have left half-way."""
    for lock in folder.glob(f"{PARTIAL}*.lock"):
        with suppress(OSError, Timeout), FileLock(lock, timeout=0):  # Timeout: its process lives
            lock.with_suffix("").unlink(missing_ok=True)
            lock.unlink()
