"""Who uses which environment, how much disk they take together, and making usage.

Environments share files with uv's cache and with each other through hard links, so what they take is
the sum over different files, and evicting one frees only what nobody else links to.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import threading
import time
from collections import Counter
from collections.abc import Container, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from filelock import FileLock, Timeout

from whichtorch.base.atomic_files import remove_tree, write_atomic
from whichtorch.environments.commander import CancelledError, Commander, InstallError
from whichtorch.environments.installation import Installation, InstallFolder, UnpackedWheel, forget, stamps_of, unpacked
from whichtorch.environments.resolution import locked_versions
from whichtorch.process.marks import mark_for, owner_is_dead

if TYPE_CHECKING:
    from whichtorch.environments.provider import Stage

MEGABYTE = 10**6
SHARE_OF_FREE = 0.8  # of what is free or ours: the rest of the machine needs disk too
BYTECODE_SHARE = 1.03  # 135 MB of .pyc in a torch 2.11.0 environment of 4.5 GB, written as it is used
UNPACKED_RATIO = 3  # a torch wheel of 184 MB unpacks to 600 MB
UNKNOWN_SIZE_MB = 5000.0  # torch 2.11.0 with its CUDA libraries takes 4.5 GB
CUDA_LIBRARIES = 15  # that torch 2.11.0 brings: an unknown one is taken for such a part of the whole
ORPHAN_AGE = 3600  # seconds until what only uv's cache holds counts as left over from a killed install
RELEASE_CHECK = 0.5  # seconds between looks at what other processes have released
LOCK_CHECK = 0.05  # seconds between tries of a lock, and between looks at whether the user has interrupted


class NoRoomError(InstallError):
    """Nothing is in use that could make room, and it still does not fit."""


class DiskUsage(NamedTuple):
    """Bytes taken and left."""

    used: int  # by the environments that are there, and the wheels that are kept
    wheels: int  # of these bytes, by the kept wheels: only a user removes them
    reserved: int  # by installs in progress
    budget: int
    free: int  # on the disk


class Disk:
    """Marks, usage and eviction of the environments below `home`/envs, safe between threads and processes."""

    def __init__(self, home: Path, budget_mb: float | None = None, unknown_size_mb: float = UNKNOWN_SIZE_MB) -> None:
        self._home = home
        self.folder = home / "envs"
        self._marks = self.folder / ".marks"
        self._uv_cache = home / "cache" / "uv"
        self._trash = self.folder / ".trash"  # out of use, freed without the lock: gigabytes take many seconds
        self._budget_mb = budget_mb
        self._unknown_size = int(unknown_size_mb * MEGABYTE)
        self._held: dict[Path, int] = {}  # descriptors of what this object uses, by folder

    @contextmanager
    def locked(self, name: str = "all", cancelled: threading.Event | None = None) -> Iterator[None]:
        """Hold a lock between threads and processes, at most until this process dies. Raises CancelledError."""
        file = self.folder / ".locks" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        check = cancelled.is_set if cancelled else None
        try:
            held = FileLock(file, thread_local=False).acquire(poll_interval=LOCK_CHECK, cancel_check=check)
        except Timeout:
            raise CancelledError from None
        with held:
            yield

    def mark(self, key: str, reserved: int = 0) -> None:
        """Note that this process uses an environment, or installs it with so many bytes set aside."""
        mark = {"owner": mark_for(self._home, key), "reserved": reserved}
        write_atomic(self._marks / f"{key}.{os.getpid()}", json.dumps(mark))
        self.hold(self.folder / key)

    def hold(self, folder: Path) -> None:
        """Use an installation, wherever its folder is, until it is unmarked or this process ends.

        The lock is on a file, not on a path: it is the same one for every spelling of the path, in every container, and
        on every machine that shares the file system.
        """
        with suppress(OSError):  # no such folder, it is only for reading, or its file system has no locks
            held = os.open(InstallFolder(folder).used, os.O_RDWR | os.O_CREAT, 0o666)
            if self._held.setdefault(folder, held) == held:
                fcntl.flock(held, fcntl.LOCK_SH)
            else:  # it is held already
                os.close(held)

    def unmark(self, key: str) -> None:
        """Note that this process no longer uses an environment."""
        (self._marks / f"{key}.{os.getpid()}").unlink(missing_ok=True)
        if (held := self._held.pop(self.folder / key, None)) is not None:
            os.close(held)

    def in_use(self) -> set[str]:
        """Return the environments in use, whoever uses them: by a lock, or by a mark of another version's."""
        return {used.parent.name for used in self.folder.glob("*/used") if is_held(used)} | self.marks().keys()

    def marks(self) -> dict[str, int]:
        """Return the environments that are marked, with the bytes reserved for each.

        The process of a mark may live on another machine: it holds the environment then.
        """
        reserved: Counter[str] = Counter()
        for file in self._marks.glob("[!.]*.[0-9]*"):
            with suppress(OSError, ValueError, KeyError):
                mark = json.loads(file.read_text(encoding="utf-8"))
                key = file.name.rpartition(".")[0]
                if owner_is_dead(mark["owner"]) and not is_held(InstallFolder(self.folder / key).used):
                    file.unlink(missing_ok=True)
                else:
                    reserved[key] += int(mark["reserved"])
        return reserved

    def installations(self) -> Iterator[tuple[InstallFolder, Installation]]:
        """Yield what is known of each environment that was ever finished, evicted ones included."""
        for file in self.folder.glob("*/installation.json"):
            folder = InstallFolder(file.parent)
            if (installation := folder.installation()) is not None:
                yield folder, installation

    def kept_wheels(self) -> list[Path]:
        """Return the wheels that are kept because an index may drop them."""
        return sorted((self._home / "wheels").glob("*/*.whl"))

    def usage(self) -> DiskUsage:
        """Return what is taken and left."""
        sizes: dict[object, int] = {}  # of each different package, however many environments share it
        for folder, installation in self.installations():
            if folder.complete.exists():
                for package in installation.packages:
                    sizes[package.inode or (folder.path, package.name)] = int(package.size * BYTECODE_SHARE)
        wheels = sum(size for _, size, _ in stamps_of(self.kept_wheels()))
        used = sum(sizes.values()) + sum(wheel.size for wheel in self._left_over()) + wheels
        free = shutil.disk_usage(self.folder).free
        budget = SHARE_OF_FREE * (free + used) if self._budget_mb is None else self._budget_mb * MEGABYTE
        return DiskUsage(used=used, wheels=wheels, reserved=sum(self.marks().values()), budget=int(budget), free=free)

    def estimate(self, lock: str, build: str, wheel: int | None) -> int:
        """Return the bytes that installing a lock will take; `wheel` is the size of torch's own, if known.

        Installed packages are shared and take nothing. The size of another package is that of an earlier install
        of this version, or else of this name; for torch, of the same build.
        """
        by_pin: dict[tuple[str, str], int] = {}
        by_name: Counter[str] = Counter()
        present: set[tuple[str, str]] = set()
        for folder, installation in self.installations():
            sizes = {(package.name, package.version): package.size for package in installation.packages}
            by_pin |= sizes
            present |= sizes.keys() if folder.complete.exists() else set()
            for (name, _), size in sizes.items():
                if name != "torch" or installation.build == build:
                    by_name[name] = max(size, by_name[name])
        need = 0
        for name, version in locked_versions(lock).items() - present:
            if (name, version) in by_pin:
                need += by_pin[name, version]
            elif name == "torch" and wheel is not None:
                need += wheel * UNPACKED_RATIO
            elif name in by_name:
                need += by_name[name]
            elif name == "torch":
                return max(need, self._unknown_size)  # which is meant to hold all that comes with it
            elif name.startswith("nvidia-"):
                need += self._unknown_size // CUDA_LIBRARIES
        return int(need * BYTECODE_SHARE)

    def reserve(self, key: str, need: int, cancelled: threading.Event | None, stage: Stage) -> None:
        """Set disk aside for an environment and mark it in use, evicting and waiting as needed.

        First come, first served. Raises NoRoomError with the figures, CancelledError on an interrupt.
        """
        waiting = _waiting("waiting for disk", cancelled, stage)
        with self.locked("room", cancelled):
            self.empty_trash()
            while True:
                with self.locked():
                    usage = self.usage()
                    if usage.used + usage.reserved + need <= usage.budget and usage.reserved + need <= usage.free:
                        self.mark(key, reserved=need)
                        return
                    in_use = self.in_use() - {key}
                    is_discarded = self.discard_left_over()
                    if need > usage.budget and not is_discarded:
                        raise NoRoomError(self._figures(need, usage))  # evicting all would not help
                    victim = None if is_discarded else self._least_recently_used(in_use | {key})
                    if victim is not None:
                        stage("evicting")
                        self._evict(victim)
                if is_discarded or victim is not None:
                    self.empty_trash()
                elif in_use:
                    next(waiting)
                else:
                    raise NoRoomError(self._figures(need, usage))

    def _figures(self, need: int, usage: DiskUsage) -> str:
        sizes = (need, usage.used, usage.budget, usage.free)
        needed, used, budget, free = (f"{n / 1e9:.1f} GB" if n >= 1e8 else f"{n / 1e6:.1f} MB" for n in sizes)
        words = (
            f"no disk: about {needed} needed, the budget is {budget} of which {used} are in use, "
            f"and {free} are free in {self.folder}"
        )
        hint = "`whichtorch runs prune --wheels DAYS` removes old ones"
        return f"{words}; {usage.wheels / 1e9:.1f} GB are wheels of nightlies: {hint}" if usage.wheels else words

    def _least_recently_used(self, spared: set[str]) -> str | None:
        folders = [InstallFolder(path) for path in self.folder.glob("[!.]*") if path.name not in spared]
        idle = [(_time_of(folder.used), folder.path.name) for folder in folders if folder.venv.exists()]
        return min(idle)[1] if idle else None

    def clear(self, key: str, commander: Commander) -> None:
        """Remove what is there of an environment, once nobody uses it. Call it with the environment's own lock held.

        Raises CancelledError, and InstallError where somebody uses it for as long as an install may take.
        """
        folder = InstallFolder(self.folder / key)
        deadline = time.monotonic() + commander.timeout
        waiting = _waiting("waiting for another run that uses it", commander.cancelled, commander.stage)
        while True:
            with self.locked(cancelled=commander.cancelled):
                if not folder.venv.exists() or key not in self.in_use():
                    folder.complete.unlink(missing_ok=True)  # first: from here on it is half-made
                    break
            if time.monotonic() > deadline:
                raise InstallError("it has to be made again, but another run still uses it as it is")
            next(waiting)
        remove_tree(folder.venv)

    def _evict(self, key: str) -> None:
        """Move an environment's files aside; its lock and metadata stay, and with them its identity."""
        folder = InstallFolder(self.folder / key)
        folder.complete.unlink(missing_ok=True)  # first: from here on it is half-made
        inodes = {file.stat().st_ino for file in folder.venv.glob("lib*/python*/site-packages/*.dist-info/METADATA")}
        self._discard_paths([folder.venv])
        self.discard_left_over(inodes)

    def discard_left_over(self, evicted: Container[int] = ()) -> bool:
        """Move aside what only uv's cache holds; return whether there was any.

        Call it with the lock held, and then `empty_trash`.
        """
        left_over = self._left_over(evicted)
        # first uv must forget them: an install that begins now must not count on them
        forget(self._uv_cache, {wheel.path.name for wheel in left_over})
        # what uv was unpacking when it was killed, not what it unpacks now
        killed = [path for path in self._uv_cache.glob(".tmp*") if time.time() - _time_of(path) > ORPHAN_AGE]
        self._discard_paths([*killed, *(wheel.path for wheel in left_over)])
        return bool(left_over)

    def _discard_paths(self, paths: Iterable[Path]) -> None:
        self._trash.mkdir(exist_ok=True)
        for path in paths:
            with suppress(FileNotFoundError):
                path.rename(self._trash / f"{path.parent.name}-{path.name}-{os.getpid()}-{time.monotonic_ns()}")

    def empty_trash(self) -> None:
        """Free what was moved aside, also by an earlier run that ended meanwhile."""
        with suppress(FileNotFoundError):  # the whole state folder may be deleted meanwhile
            for path in self._trash.iterdir():
                shutil.rmtree(path, ignore_errors=True)

    def _left_over(self, evicted: Container[int] = ()) -> list[UnpackedWheel]:
        """Return the unpacked wheels in uv's cache that no environment links to; links of `evicted` do not count.

        Wheels in the lock of an install in progress are left out. If such an install has no lock, like that of
        side packages, all wheels that are young enough to be part of it are left out, too.
        """
        awaited: set[tuple[str, str]] = set()
        is_certain = True
        for key, reserved in self.marks().items():
            if reserved:
                try:
                    lock = InstallFolder(self.folder / key).lock.read_text(encoding="utf-8")
                    awaited |= set(locked_versions(lock).items())
                except OSError:
                    is_certain = False
        now = time.time()
        return [
            wheel
            for wheel in unpacked(self._uv_cache)
            if wheel.links <= (2 if wheel.inode in evicted else 1)
            and (wheel.name, wheel.version) not in awaited
            and (is_certain or now - wheel.changed > ORPHAN_AGE)
        ]


def is_held(file: Path) -> bool:
    """Return whether anybody holds a file, this process included; False where its file system has no locks."""
    with suppress(FileNotFoundError), file.open("r+b") as found:  # NFS locks only what is open for writing
        try:
            fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            return isinstance(error, BlockingIOError)
    return False


def _waiting(what: str, cancelled: threading.Event | None, stage: Stage) -> Iterator[None]:
    """Tell what is waited for, and wait a moment before each yield. Raises CancelledError."""
    stage(what)
    while not (cancelled or threading.Event()).wait(RELEASE_CHECK):
        yield
    raise CancelledError


def _time_of(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
