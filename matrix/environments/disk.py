"""How much disk all environments take together, and making room.

Environments share files with uv's cache and with each other through hard links, so what they take is
the sum over different files, and evicting one frees only what nobody else links to.
"""

from __future__ import annotations

import shutil
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from matrix.environments.commander import CancelledError, InstallError
from matrix.environments.installation import InstallFolder
from matrix.environments.resolution import locked_versions
from matrix.environments.use_marks import UseMarks
from matrix.environments.uv_cache import UnpackedWheel, forget, partial_downloads, unpacked
from matrix.environments.whole_files import Trash

if TYPE_CHECKING:
    import threading
    from collections.abc import Container, Iterator
    from pathlib import Path

    from matrix.environments.installation import Installation
    from matrix.environments.provider import Stage

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """Bytes taken and left."""

    used: int  # by the environments that are there
    reserved: int  # by installs in progress
    budget: int
    free: int  # on the disk

    def fits(self, need: int) -> bool:
        """Return whether `need` more bytes are within budget and disk."""
        return self.within_budget(need) and self.reserved + need <= self.free

    def within_budget(self, need: int) -> bool:
        """Return whether `need` more bytes are within budget, whatever is still being freed."""
        return self.used + self.reserved + need <= self.budget


class Disk:
    """Usage and eviction of the environments below `home`/envs, safe between threads and processes."""

    def __init__(self, home: Path, budget_mb: float | None = None, unknown_size_mb: float = UNKNOWN_SIZE_MB) -> None:
        self.folder = home / "envs"
        self.marks = UseMarks(home)
        self._uv_cache = home / "cache" / "uv"
        self._trash = Trash(self.folder / ".trash")
        self._budget_mb = budget_mb
        self._unknown_size = int(unknown_size_mb * MEGABYTE)

    def install_folder(self, key: str) -> InstallFolder:
        """Return the files of an installation."""
        return InstallFolder(self.folder / key)

    @contextmanager
    def locked(self, name: str = "all", cancelled: threading.Event | None = None) -> Iterator[None]:
        """Hold a lock between threads and processes; the kernel drops it with the process that held it.

        Raises CancelledError.
        """
        file = self.folder / ".locks" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(file, timeout=0, thread_local=False)
        while not _is_acquired(lock):
            if cancelled is None:
                time.sleep(LOCK_CHECK)
            elif cancelled.wait(LOCK_CHECK):
                raise CancelledError
        try:
            yield
        finally:
            lock.release()

    # usage

    def installations(self) -> dict[str, Installation]:
        """Return what is known of each environment that was ever finished, evicted ones included."""
        keys = [file.parent.name for file in self.folder.glob("*/installation.json")]
        read = ((key, self.install_folder(key).installation()) for key in keys)
        return {key: installation for key, installation in read if installation is not None}

    def is_complete(self, key: str) -> bool:
        """Return whether the environment is there, whole."""
        return self.install_folder(key).complete.exists()

    def room(self) -> Room:
        """Return what is taken and left."""
        sizes: dict[object, int] = {}  # of each different package, however many environments share it
        for key, installation in self.installations().items():
            if self.is_complete(key):
                for package in installation.packages:
                    sizes[package.inode or (key, package.name)] = int(package.size * BYTECODE_SHARE)
        used = sum(sizes.values()) + sum(wheel.size for wheel in self._left_over())
        free = shutil.disk_usage(self.folder).free
        budget = SHARE_OF_FREE * (free + used) if self._budget_mb is None else self._budget_mb * MEGABYTE
        return Room(used=used, reserved=sum(self.marks.reserved().values()), budget=int(budget), free=free)

    def estimate(self, lock: str, build: str, wheel: int | None) -> int:
        """Return the bytes that installing a lock will take; `wheel` is the size of torch's own, if known.

        Packages that are installed already are shared and take nothing. Sizes of others are those of
        earlier installs, of that version or else of that name; torch's of the same build.
        """
        by_pin: dict[tuple[str, str], int] = {}
        by_name: dict[str, int] = {}
        present: set[tuple[str, str]] = set()
        for key, installation in self.installations().items():
            is_complete = self.is_complete(key)
            for package in installation.packages:
                pin = (package.name, package.version)
                by_pin[pin] = package.size
                if package.name != "torch" or installation.build == build:
                    by_name[package.name] = max(package.size, by_name.get(package.name, 0))
                if is_complete:
                    present.add(pin)
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

    # making room

    def reserve(self, key: str, need: int, cancelled: threading.Event | None, stage: Stage) -> None:
        """Set disk aside for an environment and mark it in use, evicting and waiting as needed.

        First come, first served. Raises NoRoomError with the figures, CancelledError on an interrupt.
        """
        is_announced = False
        freed: set[str] = set()
        with self.locked("room", cancelled):
            while True:
                removals = self.marks.removals
                with self.locked():
                    room = self.room()
                    if room.fits(need):
                        self.marks.add(key, reserved=need)
                        return
                    in_use = self.marks.reserved().keys() - {key}
                    if self._discard_left_over():
                        continue
                    # a share of what is free is only known when all is freed
                    unfreed = self._trash.names() - freed
                    is_freeing = unfreed and (self._budget_mb is None or room.within_budget(need))
                    if not is_freeing:
                        if need > room.budget:
                            raise NoRoomError(self._figures(need, room))  # evicting all would not help
                        victim = self._least_recently_used(in_use | {key})
                        if victim is not None:
                            stage("evicting")
                            self._evict(victim)
                            continue
                if is_freeing:
                    self._trash.empty()
                    freed |= unfreed  # what could not be removed is not waited for again
                    continue
                if not in_use:
                    raise NoRoomError(self._figures(need, room))
                if not is_announced:
                    stage("waiting for disk")
                    is_announced = True
                self.marks.wait(removals, RELEASE_CHECK)
                if cancelled is not None and cancelled.is_set():
                    raise CancelledError

    def _figures(self, need: int, room: Room) -> str:
        needed, used, budget, free = (
            f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e6:.1f} MB"
            for size in (need, room.used, room.budget, room.free)
        )
        return (
            f"no disk: about {needed} needed, the budget is {budget} of which {used} are in use, "
            f"and {free} are free in {self.folder}"
        )

    def _least_recently_used(self, spared: set[str]) -> str | None:
        folders = [InstallFolder(path) for path in self.folder.glob("[!.]*") if path.name not in spared]
        idle = {folder.path.name: _time_of(folder.used) for folder in folders if folder.venv.exists()}
        return min(idle, key=lambda key: idle[key], default=None)

    def discard(self, key: str) -> None:
        """Evict an environment whose wheel has changed. Call it with the environment's own lock held."""
        with self.locked():
            if key in self.marks.reserved():
                raise InstallError("its wheel has changed, but another run still uses the earlier one")
            self._evict(key)

    def clear_left_over(self) -> None:
        """Remove what a failed install has left in uv's cache."""
        with self.locked():
            self._discard_left_over()

    def _evict(self, key: str) -> None:
        """Move an environment's files aside; its lock and metadata stay, and with them its identity."""
        folder = self.install_folder(key)
        folder.complete.unlink(missing_ok=True)  # first: from here on it is half-made
        metadata = folder.venv.glob("lib*/python*/site-packages/*.dist-info/METADATA")
        inodes = {file.stat().st_ino for file in metadata}
        self._trash.add([folder.venv])
        self._discard_left_over(inodes)

    def _discard_left_over(self, evicted: Container[int] = ()) -> bool:
        """Move aside what only uv's cache holds; return whether there was any."""
        left_over = self._left_over(evicted)
        # first uv must forget them: an install that begins now must not count on them
        forget(self._uv_cache, {wheel.path.name for wheel in left_over})
        now = time.time()
        killed = [path for path in partial_downloads(self._uv_cache) if now - _time_of(path) > ORPHAN_AGE]
        self._trash.add([*killed, *(wheel.path for wheel in left_over)])
        return bool(left_over)

    def _left_over(self, evicted: Container[int] = ()) -> list[UnpackedWheel]:
        """Return the unpacked wheels in uv's cache that no environment links to, but for evicted inodes.

        Wheels in the lock of an install in progress are left out. Where such an install has no lock, like that
        of side packages, so are all that are young enough to be part of it.
        """
        awaited: set[tuple[str, str]] = set()
        is_certain = True
        for key, reserved in self.marks.reserved().items():
            if reserved:
                try:
                    lock = self.install_folder(key).lock.read_text(encoding="utf-8")
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


def _is_acquired(lock: FileLock) -> bool:
    with suppress(Timeout):
        lock.acquire()
        return True
    return False


def _time_of(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
