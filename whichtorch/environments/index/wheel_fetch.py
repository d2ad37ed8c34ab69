"""A program that fetches wheels from an index into a folder, where each is whole or not at all."""

from __future__ import annotations

import json
import os
import sys
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pypi_simple
from packaging.version import Version

from whichtorch.environments.index.pages import INDEX_TIMEOUT, PageError, fetch, retried, session
from whichtorch.environments.index.releases import LinkedWheel, best_fit
from whichtorch.process.temporary_folders import remove_left_behind, temporary_folder

REQUEST = "WHICHTORCH_FETCH"  # variable that holds a FetchRequest as JSON: no argument shows an index's credentials
ROOT = str(Path(__file__).resolve().parents[3])  # the folder that holds the package `whichtorch`
PROGRAM = f"import sys; sys.path.insert(0, {ROOT!r}); from {__name__} import main; main()"


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
    remove_left_behind(folder)  # of fetches that were killed
    for project, version in request.wanted.items():
        try:
            retried(partial(_fetch_wheel, request, project, version))
        except PageError as error:
            sys.exit(f"error: {project} {version}: {error.problem}")


def _fetch_wheel(request: FetchRequest, project: str, version: str) -> None:
    """Fetch the best wheel of a version, if the index has one; check its length and digest. Raises PageError."""
    index, certificates = request.index_url, request.certificates
    listed = fetch(index, is_index=True, certificates=certificates, project=project)
    filename = best_fit((package.filename for package in listed), project, version, request.python)
    if filename is None:
        return
    package = next(package for package in listed if package.filename == filename)
    if request.contents not in {"", LinkedWheel.of(package).release(Version(version), index).contents}:
        problem = "the index has replaced this wheel since it was listed; give the command again"
        raise PageError(problem, may_pass=False)
    with session(certificates) as opened, temporary_folder(Path(request.folder)) as folder:
        client = pypi_simple.PyPISimple(index, session=opened)
        # an index need not publish digests; the length is checked in any case
        client.download_package(package, folder / filename, verify=bool(package.digests), timeout=INDEX_TIMEOUT)
        (folder / filename).replace(Path(request.folder, filename))
