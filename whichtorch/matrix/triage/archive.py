"""A case as one file, and that file run elsewhere."""

from __future__ import annotations

import zipfile
from contextlib import contextmanager
from pathlib import PurePath
from typing import TYPE_CHECKING

from pydantic import ValidationError

from whichtorch.matrix.errors import UsageError
from whichtorch.matrix.triage.case import FILE, Case

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from whichtorch.matrix.privacy.redaction import Redactor

ARCHIVE = "case.zip"
MOST_BYTES = 20_000_000  # of a file in it
MOST_UNPACKED = 100_000_000  # bytes of all files


def pack(folder: Path, redactor: Redactor) -> Path:
    """Write all files of a case's folder into its archive, redacted, and return that; what is too large is left out."""
    archive = folder / ARCHIVE
    part = folder / f".{ARCHIVE}.part"
    with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as file:
        for path in _files(folder):
            file.writestr(str(path.relative_to(folder)), redactor.data(path.read_bytes()))
    part.replace(archive)
    return archive


def _files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        is_own = path.is_file() and not path.is_symlink() and path.name != ARCHIVE
        is_kept = is_own and "__pycache__" not in path.parts and not path.name.startswith(".")
        if is_kept and path.stat().st_size <= MOST_BYTES:
            yield path


def packed_case(archive: Path) -> Case:
    """Return the case that an archive holds; raises UsageError for what is no case."""
    with _opened(archive) as file:
        return _read(archive, file)


def unpack(archive: Path, folder: Path) -> Case:
    """Unpack a case into an empty folder and return it; raises as `packed_case`.

    `zipfile` keeps what it writes within the folder, whatever names an archive holds.
    """
    with _opened(archive) as file:
        case = _read(archive, file)
        file.extractall(folder)
        return case


@contextmanager
def _opened(archive: Path) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(archive) as file:
            if sum(info.file_size for info in file.infolist()) > MOST_UNPACKED:
                raise UsageError(f"{archive} unpacks to more than {MOST_UNPACKED // 10**6} MB", hint="it is no case")
            yield file
    except (OSError, zipfile.BadZipFile, RuntimeError) as error:  # RuntimeError: it wants a password
        raise UsageError(f"{archive} cannot be read as a case: {error}") from None


def _read(archive: Path, file: zipfile.ZipFile) -> Case:
    if FILE not in file.namelist():
        raise UsageError(f"{archive} cannot be read as a case: it holds no {FILE}")
    try:
        case = Case.model_validate_json(file.read(FILE))
    except ValidationError as error:
        mistakes = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        raise UsageError(f"{archive} holds no case of this form: {mistakes}") from None
    if PurePath(case.script).name != case.script:  # a stranger's case may name a script of the user's
        raise UsageError(f"{archive} holds no case of this form: script: {case.script!r} is no name of a file in it")
    return case
