"""Make an installation from its lock with uv; say what is there, what configs make of it, and what changed since.

Environments link to uv's unpacked wheels. Layout of its cache (0.13): archive-v0/ID is an unpacked wheel,
wheels-v7/…/VERSION-TAG is a symbolic link to it, with pointer files of the same stem beside it.
"""

from __future__ import annotations

import csv
import hashlib
import os
import re
import time
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from pydantic import BaseModel

from whichtorch import inside
from whichtorch.base.atomic_files import read_json, write_atomic
from whichtorch.environments.commander import Commander, InstallError
from whichtorch.environments.index.sources import local_folder
from whichtorch.environments.resolution import disagreements, is_same_version, locked_versions
from whichtorch.model import Config, Environment, Outcome, Request, digest

PROBE = inside.path("probe.py")
PROBE_DIGEST = digest(PROBE.read_text(encoding="utf-8"))  # what a probe asks
SITE = "lib/python*/site-packages"  # below a venv
Stamp = tuple[str, int, int]  # path, size in bytes (0 for a folder) and time of change (ns) of a file
_POINTERS = (".http", ".rev", ".msgpack", ".whl")  # beside the link to an unpacked wheel


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A distribution found in an environment."""

    name: str
    version: str
    size: int  # bytes, as its RECORD says
    inode: int  # of a file shared with uv's cache and with other environments: the same package there
    digest: str  # of the contents that RECORD names: two wheels of one version may differ
    requires: tuple[str, ...] = ()  # as its metadata says, markers and all


class Installation(BaseModel):
    """What was installed: `installation.json`, which stays when the installation is evicted."""

    label: str
    build: str
    python: str  # full version
    packages: tuple[Package, ...]
    notes: tuple[str, ...] = ()
    watched: tuple[Stamp, ...]  # the local wheels: a wheel that was built again is another installation
    seconds: float | None = None  # that the install took
    venv: str = ""  # where it was made: its programs name their interpreter
    damage: int = 0  # files that were not as RECORD says
    built_so: dict[str, int] = {}  # of these, by name and version of the wheel, those that fetching it again left so


class ProbedEnvironment(BaseModel):
    """What a config's probe found: `configs/<key>.json`."""

    environment: dict[str, Any]  # fields of an Environment, but for the names that a request gives it
    watched: tuple[Stamp, ...]
    asked: str = ""  # digest of the probe


class InstallFolder:
    """The files of one installation, in envs/<install key> of the state folder, and what they say."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.venv = path / "venv"
        self.python = self.venv / "bin" / "python"
        self.lock = path / "lock.txt"  # exact pins, as resolved
        self.installed = path / "installed.txt"  # the lock, with the kept wheels by their paths
        self.projects = path / "projects"  # copies of the user's own, while they are installed
        self.logs = path / "logs"
        self.complete = path / "complete"  # exists while `venv` is whole
        self.used = path / "used"  # changed at every use
        self.record = path / "installation.json"

    def installation(self) -> Installation | None:
        """Return what was installed, evicted since or not."""
        return read_json(self.record, Installation)

    def is_whole(self, installation: Installation) -> bool:
        """Return whether it is complete, with all files that were there after the install."""
        is_complete = self.complete.exists() and self.python.exists()
        made_in = Path(installation.venv or self.venv)  # the same folder, however its path is spelled
        is_complete = is_complete and made_in.exists() and made_in.samefile(self.venv)
        return is_complete and sum(damage(site).total() for site in self.venv.glob(SITE)) <= installation.damage

    def probed(self, config: Config) -> ProbedEnvironment | None:
        """Return what a config's probe found."""
        return read_json(self.probed_file(config), ProbedEnvironment)

    def known(self, request: Request) -> Environment | None:
        """Return what an earlier probe found, None where there was none or files have changed since."""
        probed = self.probed(request.config)
        # an environment of the user's must still be there; ours can be made again
        is_users = request.interpreter is not None
        if probed is None or not is_unchanged(probed.watched, missing_is_changed=is_users):
            return None
        if is_users and probed.asked != PROBE_DIGEST:  # which may have watched less
            return None
        return environment_of(request, probed.environment | ({} if is_users else {"interpreter": self.python}))

    def probed_file(self, config: Config) -> Path:
        """Return the file of the ProbedEnvironment that a config has made."""
        return self.path / "configs" / f"{config_key(config)}.json"


def config_key(config: Config) -> str:
    """Return what makes a config the same."""
    return digest(config.model_dump(mode="json", exclude={"summary"}))


def environment_of(request: Request, fields: dict[str, Any]) -> Environment:
    """Return an Environment with the names that this request gives it."""
    names = {"label": request.label, "build": request.build.name, "config": request.config.name}
    names |= {"patch": request.axes["patch"], "hardware": request.hardware_name}
    asked = {"options": request.options, "requirements": request.added, "overrides": request.overrides}
    return Environment(**fields | names | asked)


def environment_id(request: Request, python: str, packages: Sequence[Package], beside: Sequence[Package]) -> str:
    """Return the identity of an environment. Of torch the contents count, too: a wheel built again is another one."""
    parts = {
        "packages": {package.name: package.version for package in packages},
        "torch": [package.digest for package in packages if package.name == "torch"],
        "beside": {package.name: package.version for package in beside},
        "build": request.build.name,
        "python": python,
        "config": request.config.model_dump(mode="json", exclude={"summary"}),
    }
    parts |= {"hardware": request.hardware_name} if request.hardware else {}
    parts |= {"overrides": request.overrides} if request.overrides else {}
    asked = map(Requirement, (*request.added, *request.overrides))
    by_url: set[str] = {canonicalize_name(each.name) for each in asked if each.url}
    by_url |= {project.name for project in request.projects}
    parts |= {"contents": [package.digest for package in packages if package.name in by_url]} if by_url else {}
    return digest(parts if request.patch is None else parts | {"patch": request.patch.key})


def stamps_of(paths: Iterable[Path]) -> tuple[Stamp, ...]:
    """Return size and time of change of the files that are there."""
    stamps: list[Stamp] = []
    for path in paths:
        with suppress(OSError):
            status = path.stat()
            stamps.append((str(path), 0 if path.is_dir() else status.st_size, status.st_mtime_ns))
    return tuple(stamps)


def is_unchanged(stamps: Iterable[Stamp], *, missing_is_changed: bool = False) -> bool:
    """Return whether files are as they were. A missing wheel is unchanged: it is still what was installed."""
    for path, size, changed in stamps:
        try:
            status = os.stat(path)  # noqa: PTH116  a rerun looks at a thousand of these
        except OSError:
            if missing_is_changed:
                return False
            continue
        if status.st_mtime_ns != changed or (size and status.st_size != size):
            return False
    return True


@dataclass(frozen=True, slots=True)
class PackageWatch:
    """The packages of an environment, as they are when an attempt begins. What is new does not count, nor bytecode."""

    since: int  # ns, by the clock of the file system
    records: tuple[Stamp, ...]  # of each RECORD, which an install writes anew
    odd: frozenset[str]  # files that are not as RECORD says, such as those that a patch has changed

    @classmethod
    def of(cls, interpreter: Path, since: int) -> PackageWatch:
        """Begin to watch the packages of an interpreter."""
        records = stamps_of(interpreter.parent.parent.glob("lib/python3*/site-packages/*.dist-info/RECORD"))
        return cls(since, records, _odd(records))

    def changed(self, *, closely: bool) -> str:
        """Return a file that changed or went since, "" if none did: of each package RECORD, or `closely` all."""
        for stamp in self.records:
            if not is_unchanged([stamp], missing_is_changed=True):
                return stamp[0]
            for file, found, is_whole in brought(Path(stamp[0])) if closely else ():
                if (found and found.st_mtime_ns > self.since) or (not is_whole and file not in self.odd):
                    return file
        return ""


@lru_cache(maxsize=64)
def _odd(records: tuple[Stamp, ...]) -> frozenset[str]:
    """Return which files are not as RECORD says; an environment is looked through once, which takes 0.1 s."""
    return frozenset(file for path, *_ in records for file, _, is_whole in brought(Path(path)) if not is_whole)


def installed_packages(prefix: Path) -> list[Package]:
    """Return the packages below a prefix, sorted by name, without starting the interpreter."""
    folders = sorted(path for path in prefix.glob("lib*/python*/site-packages") if not path.parent.is_symlink())
    resolved = list(dict.fromkeys(str(path.resolve()) for path in folders))
    return sorted(map(_package, metadata.distributions(path=resolved)), key=lambda package: package.name)


def _package(distribution: metadata.Distribution) -> Package:
    rows = sorted(contents(distribution.read_text("RECORD") or ""))
    digests = hashlib.sha256("\n".join(f"{path} {digest}" for path, digest, _ in rows).encode()).hexdigest()
    # METADATA is a hard link into uv's cache; RECORD, which uv rewrites, is not
    file = Path(str(getattr(distribution, "_path", ""))) / "METADATA"
    return Package(
        name=canonicalize_name(distribution.metadata["Name"]),
        version=distribution.version,
        size=sum(size for _, _, size in rows),
        inode=file.stat().st_ino if file.exists() else 0,
        digest=digests[:16],
        requires=tuple(distribution.requires or ()),
    )


def install(
    request: Request,
    folder: InstallFolder,
    interpreter: Path,
    notes: tuple[str, ...],
    wheels: Iterable[Path],
    commander: Commander,
) -> None:
    """Create the folder's venv with exactly what `installed.txt` pins, and keep what is there. Raises InstallError.

    Bytecode is not compiled here: 5,500 files cost 5.6 s on two cores, while the probe's import writes
    what every cell needs (import torch 1.9 s before, 0.9 s after) for 0.1 s.
    """
    started = time.monotonic()
    commander.uv(
        *("venv", str(folder.venv), "--python", str(interpreter), "--no-project", "--clear", "--quiet"),
        log=commander.logs / "venv.log",
        what="creating the environment",
    )
    log = commander.logs / "install.log"
    arguments = ["pip", "sync", str(folder.installed), "--python", str(folder.python), "--quiet"]
    arguments += ["--torch-backend", request.build.backend] if request.build.backend else []
    # uv rebuilds a folder by itself only where its pyproject.toml has changed
    names = [each.name for each in map(Requirement, (*request.added, *request.overrides)) if each.url]
    own = [project.name for project in request.projects]
    arguments += [word for name in (*names, *own) for word in ("--refresh-package", name)]
    sync = partial(commander.uv, *arguments, log=log, what="installing", build=request.build)
    try:
        sync()
    except InstallError as error:
        # try once more if another process has evicted a wheel that uv was about to link
        if "archive-v" not in error.reason:
            raise
        forget(commander.home / "cache" / "uv")
        sync()
    (site,) = folder.venv.glob(SITE)
    damaged = damage(site)
    built_so = _built_so(folder.path.parent) if damaged else set()
    if found := damaged.items() - built_so:  # most likely what uv unpacked earlier is damaged, and linked here
        cache = commander.home / "cache" / "uv"
        forget(cache, {wheel.path.name for wheel in unpacked(cache) if damage(wheel.path).items() - built_so})
        # not all packages: uv fetches anew what it installs again
        sync(*(f"--reinstall-package={wheel.rpartition('-')[0]}" for wheel, _ in found))
        damaged = damage(site)
    packages = installed_packages(folder.venv)
    _check_installed(request, packages, folder.lock.read_text(encoding="utf-8"), log)
    # the interpreter need not be started to know its full version
    text = (folder.venv / "pyvenv.cfg").read_text(encoding="utf-8")
    version = re.search(r"^\s*version(?:_info)?\s*=\s*(\S+)", text, re.MULTILINE)
    versions = {package.name: package.version for package in packages}
    requires = [(f"{package.name} {package.version}", package.requires) for package in packages]
    installation = Installation(
        label=request.label,
        build=request.build.name,
        python=".".join(version[1].split(".")[:3]) + "t" * site.parent.name.endswith("t") if version else "",
        packages=tuple(packages),
        # an earlier install may have noted the same
        notes=tuple(dict.fromkeys((*notes, *disagreements(request, versions, requires)))),
        watched=stamps_of(wheels),
        seconds=round(time.monotonic() - started, 1),
        venv=str(folder.venv),
        damage=damaged.total(),
        built_so=damaged,
    )
    write_atomic(folder.record, installation.model_dump_json())


def _built_so(environments: Path) -> set[tuple[str, int]]:
    """Return the wheels of all installations that do not hold what their RECORD says, and in how many files."""
    folders = (InstallFolder(file.parent) for file in environments.glob("*/installation.json"))
    return {wheel for folder in folders if (made := folder.installation()) for wheel in made.built_so.items()}


def _check_installed(request: Request, packages: list[Package], lock: str, log: Path) -> None:
    """Raise InstallError where what is there is not what was asked for: never a silent substitute."""
    versions, locked = {package.name: package.version for package in packages}, locked_versions(lock)
    if (torch := versions.get("torch")) is None:
        raise InstallError("torch is not there after the install", log)
    if not is_same_version(request.torch, torch) and not is_same_version(locked["torch"], torch):
        raise InstallError(f"asked for torch {request.torch}, but {torch} was installed", log)
    for name, version in locked.items():
        is_own = any(name == project.name for project in request.projects)
        if name in versions and not is_own and not is_same_version(version, versions[name]):
            raise InstallError(f"{name} {version} was locked, but {versions[name]} installed", log)


def unbuildable(request: Request, reason: str, log: Path | None = None) -> Environment:
    """Return what stands for an environment that cannot be made."""
    hardware = [request.hardware_name] if request.hardware else []
    identity = digest(["not installed", request.install_key, config_key(request.config), *hardware])
    fields = {"id": identity, "torch": request.torch, "python": request.python, "interpreter": request.interpreter}
    return environment_of(request, fields | {"outcome": Outcome.UNBUILDABLE, "reason": reason, "log": log})


def local_wheels(request: Request) -> list[Path]:
    """Return the wheels on this machine that a request may be served from."""
    if request.torch.endswith(".whl"):
        return [Path(request.torch)]
    folder = local_folder(request.build.find_links) if request.build.find_links else None
    return sorted(folder.glob(f"torch-{request.torch}-*.whl")) if folder is not None else []


class UnpackedWheel(NamedTuple):
    """A wheel unpacked in uv's cache."""

    path: Path
    name: str
    version: str
    inode: int  # of its METADATA
    links: int  # to it: one here, and one in each environment that has it
    changed: float  # seconds since the epoch

    @property
    def size(self) -> int:
        """Bytes, as its RECORD says."""
        records = self.path.glob("*.dist-info/RECORD")
        return sum(size for record in records for _, _, size in contents(record.read_text(encoding="utf-8")))


def contents(record: str) -> Iterator[tuple[str, str, int]]:
    """Yield path, digest and size of the files that a wheel brought, leaving out what the installer wrote."""
    for row in csv.reader(record.splitlines()):
        path, digest, size = (*row, "", "", "")[:3]
        written = path.startswith("..") or path.endswith((".pyc", "/INSTALLER", "/REQUESTED", "/RECORD"))
        if path and not written and not path.endswith(("direct_url.json", "uv_cache.json")):
            yield path, digest, int(size) if size.isdigit() else 0


def brought(record: Path) -> Iterator[tuple[str, os.stat_result | None, bool]]:
    """Yield each file that a wheel brought: where it is, what it is now, and whether it is there with its size."""
    for path, _, size in contents(record.read_text(encoding="utf-8", errors="replace")):
        file = f"{record.parent.parent}/{path}"
        try:
            found = os.stat(file)  # noqa: PTH116  torch has ten thousand
        except OSError:
            yield file, None, False
        else:
            yield file, found, size in {0, found.st_size}


def damage(site: Path) -> Counter[str]:
    """Return how many files are missing or of another size, by the name and version of the wheel that brought them."""
    count: Counter[str] = Counter()
    for record in site.glob("*.dist-info/RECORD"):
        if damaged := sum(not is_whole for _, _, is_whole in brought(record)):
            count[record.parent.name.removesuffix(".dist-info")] = damaged
    return count


def unpacked(cache: Path) -> Iterator[UnpackedWheel]:
    """Yield the unpacked wheels of uv's cache."""
    for found in cache.glob("archive-v*/*/*.dist-info/METADATA"):
        with suppress(OSError):  # another process has just removed it
            name, _, version = found.parent.name.removesuffix(".dist-info").rpartition("-")
            path, status = found.parent.parent, found.stat()
            changed = path.stat().st_mtime
            yield UnpackedWheel(path, canonicalize_name(name), version, status.st_ino, status.st_nlink, changed)


def forget(cache: Path, gone: Container[str] = ()) -> None:
    """Make uv forget the unpacked wheels with the ids in `gone`, and those that are missing.

    uv notices that a wheel from a network index has gone, but not one from a folder: "failed to read directory"
    (measured with 0.13.8).
    """
    for root in (*cache.glob("wheels-v*"), *cache.glob("sdists-v*")):
        for parent, folders, files in os.walk(root):
            for link in (Path(parent, name) for name in (*folders, *files)):  # a broken link counts as a file
                if link.is_symlink() and (link.readlink().name in gone or not link.exists()):
                    for suffix in ("", *_POINTERS):
                        link.with_name(f"{link.name}{suffix}").unlink(missing_ok=True)
            folders[:] = [name for name in folders if name != "src"]  # sources of what uv has built
