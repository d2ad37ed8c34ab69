"""The user's project: its files as they are now, kept once per content, and a copy of them for each run.

No run may write into the user's folder, and no run may see what another one wrote. The files are those that git tracks
or would add; without git all but caches, environments and hidden folders.
"""

from __future__ import annotations

import filecmp
import hashlib
import io
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

from whichtorch.base.errors import PreventedError, UsageError

MOST_BYTES = 2_000_000_000  # of a project: each environment gets a copy
MOST_KEPT = 20_000_000  # bytes of the files that a command wrote, which stay with its attempt
KEPT_PROJECTS = 20  # contents of projects that are kept, the latest ones
DAY = 86400.0  # seconds
_CACHES = {"__pycache__", "node_modules", "build", "dist"}  # folders that are made from other files
_MARKS = {"CACHEDIR.TAG", "pyvenv.cfg"}  # files that stand in a cache, or in a virtual environment
_PASSING = {".pytest_cache", "__pycache__"}  # folders that a run of Python leaves behind
_READ = 1 << 20  # bytes at once
_PYTEST_FILES = ("pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml")  # configure pytest even when empty
_SECTIONED_FILES = ("pyproject.toml", "tox.ini", "setup.cfg")
_PYTEST_SECTION = re.compile(r"^\s*\[(tool[.:])?pytest(\.ini_options)?\]", re.MULTILINE)
_ROOT_FILES = (*_PYTEST_FILES, *_SECTIONED_FILES, "setup.py")  # a folder with one of them may become pytest's rootdir


@dataclass(frozen=True)
class Project:
    """The files of a folder, by their paths in it."""

    root: Path
    files: tuple[str, ...]
    subfolder: str  # the folder that was asked about, in the root

    @classmethod
    def around(cls, folder: Path, outputs: Container[Path] = ()) -> Project:
        """Return the project that a folder belongs to: the whole repository, or else the folder itself.

        The `outputs` of this program are no part of it.
        """
        root = (_repository(folder) or folder).resolve()
        files = sorted(file for file in set(_files(root)) if root / file not in outputs)
        return cls(root, tuple(files), folder.resolve().relative_to(root).as_posix())

    @cached_property
    def digest(self) -> str:
        """The digest of the files' paths, contents and modes."""
        return _digest(self.root, self.files)

    def _check_copyable(self) -> None:
        """Raise UsageError for a project that is too large to be copied, or whose copy would lack the folder."""
        if self.subfolder != "." and not any(file.startswith(f"{self.subfolder}/") for file in self.files):
            folder = self.root / self.subfolder
            hint = "start the command in another folder, or in this one itself with --in-place"
            raise UsageError(f"git tracks and would add nothing in {folder}, so a copy does not have it", hint=hint)
        sizes = _sizes_of_folders(self.root, self.files)
        if (size := sum(sizes.values())) > MOST_BYTES:
            largest = max(sizes.items(), key=lambda pair: pair[1])
            raise UsageError(
                f"{self.root} has {size / 1e9:.1f} GB of files, too much to copy for each environment "
                f"({largest[1] / 1e9:.1f} GB of it in {largest[0]})",
                hint="list what the command does not need in .gitignore, or run it in the folder itself: --in-place",
            )

    def keep(self, home: Path) -> None:
        """Keep a copy of the files in the state folder, unless one is there.

        Raises UsageError for a project that is too large, PreventedError if it cannot be copied, or changes meanwhile.
        """
        self._check_copyable()
        try:
            _keep(kept_copy(home, self.digest), self._copy_into)
        except OSError as error:
            where = f"{self.root}: {error.filename}" if error.filename else str(self.root)
            raise PreventedError(f"cannot copy {where}: {error.strerror}") from error

    def _copy_into(self, folder: Path) -> None:
        for file in self.files:
            _copy(self.root, file, folder)
        if _digest(self.root, self.files) != self.digest:
            raise PreventedError(f"files of {self.root} changed while they were copied", hint="run it again")


def pack_kept(home: Path, digest: str, most: int) -> bytes | None:
    """Return the kept files of a project as an archive; None where it would have more than `most` bytes."""
    buffer, kept = io.BytesIO(), kept_copy(home, digest)
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for path in sorted(kept.rglob("*")):
            archive.add(path, arcname=path.relative_to(kept), recursive=False)
            if buffer.tell() > most:
                return None
    return buffer.getvalue()


def keep_packed(home: Path, digest: str, packed: bytes) -> None:
    """Keep the files of a project that come from another machine, unless they are there."""
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        _keep(kept_copy(home, digest), partial(archive.extractall, filter="tar"))


def _keep(kept: Path, fill: Callable[[Path], None]) -> None:
    """Fill a kept folder unless it exists; it is there only once it is complete."""
    if kept.is_dir():
        os.utime(kept)
        return
    kept.parent.mkdir(parents=True, exist_ok=True)
    _forget_old(kept.parent)
    with tempfile.TemporaryDirectory(prefix=".", dir=kept.parent, ignore_cleanup_errors=True) as folder:
        aside = Path(folder, "files")
        aside.mkdir()
        fill(aside)
        outer = (folder / name for folder in kept.resolve().parents for name in _ROOT_FILES)
        if not _configures_pytest(aside) and any(map(os.path.lexists, outer)):
            (aside / _PYTEST_FILES[0]).touch()  # otherwise the project around the state folder may become the rootdir
        try:
            aside.rename(kept)
        except OSError:
            if not kept.is_dir():  # else another process has kept it meanwhile
                raise


def _configures_pytest(folder: Path) -> bool:
    """Return whether a folder has a configuration of pytest, so that it is pytest's rootdir for the tests below it."""
    if any((folder / name).is_file() for name in _PYTEST_FILES):
        return True
    files = (folder / name for name in _SECTIONED_FILES)
    return any(_PYTEST_SECTION.search(file.read_text(errors="replace")) for file in files if file.is_file())


def _forget_old(folder: Path) -> None:
    """Remove kept projects that are neither among the latest nor of the last day, and what a killed copy left."""
    kept = {path: path.lstat().st_mtime for path in folder.iterdir() if path.is_dir()}
    latest = sorted((path for path in kept if not path.name.startswith(".")), key=kept.__getitem__)[-KEPT_PROJECTS:]
    for path, used in kept.items():
        if path not in latest and time.time() - used > DAY:
            shutil.rmtree(path, ignore_errors=True)


def kept_copy(home: Path, digest: str) -> Path:
    """Return where the files of a project are kept."""
    return home / "projects" / digest


def changed_files(home: Path | None, before: str, after: str) -> list[str] | None:
    """Return the files in which two contents of a project differ; None where one of them is not kept."""
    old, new = (kept_copy(home or Path(), digest) for digest in (before, after))
    if home is None or not (old.is_dir() and new.is_dir()):
        return None
    files = {path.relative_to(kept) for kept in (old, new) for path in kept.rglob("*") if not path.is_dir()}
    return sorted(file.as_posix() for file in files if not _is_equal(old / file, new / file))


def _is_equal(file: Path, other: Path) -> bool:
    is_there = file.is_file() and other.is_file() and file.stat().st_mode == other.stat().st_mode
    return is_there and filecmp.cmp(file, other, shallow=False)


def lay_out(home: Path, digest: str, target: Path) -> None:
    """Make a fresh copy of a kept project."""
    os.utime(kept_copy(home, digest))
    shutil.copytree(kept_copy(home, digest), target, symlinks=True, dirs_exist_ok=True)


def clone_history(repository: str, target: Path) -> None:
    """Make a folder a repository with the history of another one, which some builds ask for the version."""
    _git(Path("/"), "clone", "--quiet", "--shared", "--no-checkout", repository, str(target))
    _git(target, "reset", "--quiet")  # `git describe --dirty` would write into the index of the user's repository


def written_files(home: Path, digest: str, copy: Path) -> list[str]:
    """Return the files of a copy that are new, or differ from the kept ones; caches of Python are left out."""
    kept = kept_copy(home, digest)
    return sorted(
        name
        for path in copy.rglob("*")
        if path.is_file()
        and not path.is_symlink()
        and _PASSING.isdisjoint((name := path.relative_to(copy).as_posix()).split("/"))
        and not _is_same(path, kept / name)
    )


def keep_written(copy: Path, names: Iterable[str], folder: Path) -> None:
    """Copy the files that a command wrote into a folder, as long as there is room."""
    room = MOST_KEPT
    for name in names:
        size = (copy / name).stat().st_size
        if size <= room:
            room -= size
            _copy(copy, name, folder)


def _is_same(path: Path, kept: Path) -> bool:
    """Return whether a file is as it was copied: copies have the times of their originals."""
    try:
        now, then = path.stat(), kept.stat()
    except OSError:
        return False
    return (now.st_size, now.st_mtime_ns) == (then.st_size, then.st_mtime_ns)


def _copy(root: Path, name: str, target: Path) -> None:
    """Copy a file, or a link; one to a place in the same folder leads to that place in the copy."""
    source, copy = root / name, target / name
    copy.parent.mkdir(parents=True, exist_ok=True)
    if not source.is_symlink():
        shutil.copy2(source, copy)
        return
    led = source.resolve()
    inner = led.is_relative_to(root.resolve())
    copy.symlink_to(os.path.relpath(led, source.parent.resolve()) if inner else led)


def _digest(root: Path, files: Iterable[str]) -> str:
    """Return the digest of files. Raises UsageError for one that cannot be read."""
    total = hashlib.sha256()
    for name in files:
        path = root / name
        try:
            total.update(f"{name}\0{path.lstat().st_mode & 0o111:o}\0".encode("utf-8", "surrogateescape"))
            if path.is_symlink():
                total.update(str(path.readlink()).encode("utf-8", "surrogateescape"))
                continue
            with path.open("rb") as file:
                while part := file.read(_READ):
                    total.update(part)
        except OSError as error:
            hint = "list it in .gitignore if the command does not need it"
            raise UsageError(f"cannot read {path}: {error.strerror}", hint=hint) from None
        total.update(b"\0")
    return total.hexdigest()[:12]


def _repository(folder: Path) -> Path | None:
    """Return the top folder of the git work tree that a folder is in.

    Raises UsageError for a repository that git does not read.
    """
    top, said = _git(folder, "rev-parse", "--show-toplevel")
    if not top and any((parent / ".git").exists() for parent in (folder.resolve(), *folder.resolve().parents)):
        hint = "make git read it, because it knows which files belong to the project"
        raise UsageError(f"git does not read the repository of {folder}: {said or 'there is no git'}", hint=hint)
    return Path(top.rstrip("\n")) if top else None


def _git(folder: Path, *arguments: str) -> tuple[str, str]:
    """Return what git answers, "" where there is no git or no repository, and the first line that it complains with."""
    command = ["git", "-C", str(folder), *arguments]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}  # those of a hook
    try:
        done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, check=False, env=environ)
    except OSError:
        return "", ""
    complaint = os.fsdecode(done.stderr).partition("\n")[0]
    return os.fsdecode(done.stdout) if done.returncode == 0 else "", complaint


def _files(root: Path) -> Iterator[str]:
    """Yield the files of a folder, and of the repositories within it."""
    listed, _ = _git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    if not (listed or _repository(root) == root):
        yield from _walked(root)
        return
    for name in filter(None, listed.split("\0")):
        path = root / name
        if path.is_dir() and not path.is_symlink():  # a submodule, or a repository that is not added
            yield from (f"{name.rstrip('/')}/{inner}" for inner in _files(path))
        elif path.is_symlink() or path.is_file():
            yield name


def _walked(root: Path) -> Iterator[str]:
    """Yield the files of a folder without git."""
    for parent, folders, files in os.walk(root):
        folders[:] = [
            name
            for name in folders
            if not name.startswith(".")
            and name not in _CACHES
            and not any(Path(parent, name, mark).exists() for mark in _MARKS)
        ]
        for name in [*files, *(each for each in folders if Path(parent, each).is_symlink())]:
            path = Path(parent, name)
            if path.is_file() or path.is_symlink():
                yield path.relative_to(root).as_posix()


def _sizes_of_folders(root: Path, files: Iterable[str]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for name in files:
        top = name.partition("/")[0]
        sizes[top] = sizes.get(top, 0) + (root / name).lstat().st_size
    return sizes
