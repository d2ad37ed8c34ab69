"""Overlays: an environment with some of its files changed, beside the one it was made of, which stays as it is.

All files of an overlay are hard links to those of the environment, but for the changed ones: it takes as long and as
much disk as its folders do. Nothing in it is ever written through a link: a changed file is another file of that name,
and CPython renames each .pyc that it writes into place. It lives on when the environment it was made of is removed.
"""

from __future__ import annotations

import os
import threading
import zlib
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from whichtorch.base.atomic_files import remove_tree
from whichtorch.base.errors import PreventedError
from whichtorch.model import digest
from whichtorch.process.marks import new_temporary_folder, remove_left_behind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from whichtorch.model import Environment

_ENCODING = "utf-8", "surrogateescape"  # of sources as texts: bytes that are no UTF-8 stay what they are
_FIRST_SECOND, _SECONDS = 10**9, 10**8  # changed files seem to be of 2001 to 2004, before any release was installed


def site_packages(venv: Path) -> Path:
    """Return the folder of an environment's packages. Raises PreventedError where there is none."""
    found = next(venv.glob("lib/python3*/site-packages"), None)
    if found is None:
        raise PreventedError(f"{venv} is no environment: it has no lib/python3.*/site-packages")
    return found


def read_source(file: Path) -> str:
    """Return the text of a source file as `make_overlay` takes it: `encoded` gives back the same bytes."""
    return file.read_bytes().decode(*_ENCODING)


def encoded(text: str) -> bytes:
    """Return the bytes that `read_source` made a text of."""
    return text.encode(*_ENCODING)


def make_overlay(venv: Path, target: Path, files: Mapping[str, str | None]) -> None:
    """Make `target` a copy of the environment folder `venv` in which `files` have other texts.

    Names in `files` are relative to its site-packages, with slashes; None stands for a file that is not to be there.
    `target` is replaced as a whole, and is there whole or not at all, however this ends; nobody else may make the
    same `target` at the same time. What links or .pth files name outside of `venv` is shared. Raises PreventedError
    where files cannot be linked, as between file systems, and ValueError for a name that leads out of site-packages.
    """
    venv, target = venv.absolute(), target.absolute()
    half = target.with_name(f".{target.name}.half")
    remove_tree(half)  # of a process that was killed
    half.parent.mkdir(parents=True, exist_ok=True)
    try:
        _link_folder(venv, half, venv, target)
        for file in [half / "pyvenv.cfg", *half.glob("bin/*"), *site_packages(half).glob("*.pth")]:
            _rename_inside(file, os.fsencode(venv), os.fsencode(target))
        for name, text in files.items():
            _change(site_packages(half), PurePosixPath(name), text)
        remove_tree(target)
        half.rename(target)
    except BaseException:
        remove_tree(half)
        raise


def _link_folder(source: Path | str, copy: Path | str, venv: Path, target: Path) -> None:
    """Make `copy` a folder like `source`, all files linked; links into `venv` lead into `target`."""
    os.mkdir(copy)  # noqa: PTH102  an environment has 20,000 files: as Paths they take twice as long
    with os.scandir(source) as entries:
        for entry in entries:
            path = f"{copy}/{entry.name}"
            if entry.is_symlink():
                place = Path(entry.path).readlink()
                inside = place.is_absolute() and place.is_relative_to(venv)
                Path(path).symlink_to(target / place.relative_to(venv) if inside else place)
            elif entry.is_dir():
                _link_folder(entry.path, path, venv, target)
            else:
                try:
                    os.link(entry.path, path)
                except OSError as error:
                    hint = "the overlay must be on the file system of the environment, whose files must be yours"
                    raise PreventedError(f"cannot link {entry.path}: {error.strerror}", hint=hint) from None


def _rename_inside(file: Path, venv: bytes, target: bytes) -> None:
    """Let a text file, such as a script with its first line, name `target` where it names `venv`."""
    if file.is_symlink() or not file.is_file():
        return
    content, mode = file.read_bytes(), file.stat().st_mode
    if venv in content and b"\0" not in content:
        file.unlink()
        file.write_bytes(content.replace(venv, target))
        file.chmod(mode)


def _change(site: Path, name: PurePosixPath, text: str | None) -> None:
    """Give a file another text, or remove it; Python must not find the bytecode of the earlier one."""
    file = site / name
    if name.is_absolute() or ".." in name.parts or not file.parent.resolve().is_relative_to(site.resolve()):
        raise ValueError(f"{name} is not in the environment's site-packages")
    file.unlink(missing_ok=True)
    for bytecode in (*file.parent.glob(f"__pycache__/{file.stem}.*.pyc"), file.with_suffix(".pyc")):
        bytecode.unlink(missing_ok=True)
    if text is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        content = encoded(text)
        file.write_bytes(content)
        # Bytecode is taken for that of a source with the same size and second: each content has a second of its own.
        second = _FIRST_SECOND + zlib.crc32(content) % _SECONDS
        os.utime(file, (second, second))
    else:  # a package without files would still be a namespace
        with suppress(OSError):
            (file.parent / "__pycache__").rmdir()
        with suppress(OSError):
            os.removedirs(file.parent)


@dataclass(slots=True)
class Overlays:
    """The overlays that this process uses, in a folder that other processes use, too."""

    folder: Path  # on the environments' file system
    _laid: dict[str, tuple[Path, int]] = field(default_factory=dict)  # where an overlay is, and how many use it
    _guard: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def laid(self, environment: Environment, files: Mapping[str, str | None]) -> Iterator[Environment]:
        """Give an environment in which some files have other texts; runs side by side share its overlay."""
        assert environment.interpreter is not None
        venv, name = environment.interpreter.parent.parent, digest([environment.id, sorted(files.items())])
        with self._guard:
            self.folder.mkdir(parents=True, exist_ok=True)
            place, users = self._laid.get(name) or (new_temporary_folder(self.folder), 0)
            try:
                if not users:
                    make_overlay(venv, place / "venv", files)
            except BaseException:
                place.rmdir()
                raise
            self._laid[name] = place, users + 1
        interpreter = place / "venv" / environment.interpreter.relative_to(venv)
        changes = {"id": f"{environment.id}+{name}", "label": f"{environment.label}+{name[:6]}"}
        try:
            yield environment.model_copy(update=changes | {"interpreter": interpreter})
        finally:
            with self._guard:
                place, users = self._laid.pop(name)
                if users > 1:
                    self._laid[name] = place, users - 1
                else:
                    remove_tree(place)


@lru_cache
def overlays_below(home: Path) -> Overlays:
    """Return the overlays in a state folder, without those of processes that are gone; all threads share them."""
    below = home / "fix" / "in-use"
    remove_left_behind(below)
    return Overlays(below)
