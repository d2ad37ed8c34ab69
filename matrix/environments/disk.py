"""Who uses which environment, how much disk they take together, and making room.

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
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from matrix.environments.commander import CancelledError, InstallError
from matrix.environments.resolution import locked_versions
from matrix.environments.uv_cache import Unpacked, forget, partial_downloads, unpacked
from matrix.process.marks import mark_for, owner_is_dead

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator
    from pathlib import Path

MEGABYTE = 10**6
SHARE_OF_FREE = 0.8  # of what is free or ours: the rest of the machine needs disk too
BYTECODE_SHARE = 1.03  # 135 MB of .pyc in a torch 2.11.0 environment of 4.5 GB, written as it is used
UNPACKED_RATIO = 3  # a torch wheel of 184 MB unpacks to 600 MB
UNKNOWN_SIZE_MB = 5000.0  # torch 2.11.0 with its CUDA libraries takes 4.5 GB
CUDA_LIBRARIES = 15  # that torch 2.11.0 brings: one never seen is taken for such a part of the whole
ORPHAN_AGE = 3600  # seconds until what only uv's cache holds counts as left over from a killed install
WAIT_CHECK = 0.5  # seconds between looks at what other processes have released
LOCK_CHECK = 0.05  # seconds between tries of a lock that another process holds


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
    """Marks, usage and eviction of the environments below `home`/envs, safe between processes."""

    def __init__(self, home: Path, budget_mb: float | None, unknown_size_mb: float) -> None:
        self.home = home
        self.folder = home / "envs"
        self._uv_cache = home / "cache" / "uv"
        self._budget_mb = budget_mb
        self._unknown_size = int(unknown_size_mb * MEGABYTE)
        self._released = threading.Condition()
        self._generation = 0

    @contextmanager
    def locked(self, name: str = "all", cancelled: threading.Event | None = None) -> Iterator[None]:
        """Hold a lock between threads and processes; the kernel drops it with the process that held it."""
        file = self.folder / ".locks" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a") as handle:
            while True:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    pass
                if cancelled is None:
                    fcntl.flock(handle, fcntl.LOCK_EX)
                    break
                if cancelled.wait(LOCK_CHECK):
                    raise CancelledError
            yield

    # marks: who uses what

    def mark(self, key: str, reserved: int = 0) -> None:
        """Note that this process uses an environment, or installs it with so many bytes set aside."""
        owner = mark_for(self.home, key)
        file = self._mark_file(key)
        file.parent.mkdir(parents=True, exist_ok=True)
        partial = file.with_name(f".{file.name}.part")
        partial.write_text(json.dumps({"owner": owner, "reserved": reserved}), encoding="utf-8")
        partial.replace(file)

    def unmark(self, key: str) -> None:
        """Note that this process uses it no more; whoever waits for disk looks again."""
        self._mark_file(key).unlink(missing_ok=True)
        with self._released:
            self._generation += 1
            self._released.notify_all()

    def _mark_file(self, key: str) -> Path:
        return self.folder / ".marks" / f"{key}.{os.getpid()}"

    def marks(self) -> dict[str, int]:
        """Return the environments in use, by living processes, with the bytes reserved for each."""
        found: dict[str, int] = {}
        for file in (self.folder / ".marks").glob("[!.]*.[0-9]*"):
            try:
                mark = json.loads(file.read_text(encoding="utf-8"))
                dead = owner_is_dead(mark["owner"])
            except (OSError, ValueError, KeyError):
                continue
            if dead:
                file.unlink(missing_ok=True)
            else:
                key = file.name.rpartition(".")[0]
                found[key] = found.get(key, 0) + int(mark["reserved"])
        return found

    # usage

    def installations(self) -> dict[str, dict[str, Any]]:
        """Return what is known of each environment that was ever finished, evicted ones included."""
        found = {}
        for file in self.folder.glob("*/installation.json"):
            try:
                found[file.parent.name] = json.loads(file.read_text(encoding="utf-8"))
            except (OSError, ValueError):
                continue
        return found

    def is_complete(self, key: str) -> bool:
        """Return whether the environment is there, whole."""
        return (self.folder / key / "complete").exists()

    def room(self) -> Room:
        """Return what is taken and left."""
        left_over = sum(wheel.size for wheel in self._left_over())
        used = sum(self._present().values()) + left_over
        free = shutil.disk_usage(self.folder).free
        budget = SHARE_OF_FREE * (free + used) if self._budget_mb is None else self._budget_mb * MEGABYTE
        return Room(used=used, reserved=sum(self.marks().values()), budget=int(budget), free=free)

    def _present(self) -> dict[object, int]:
        """Return the bytes of each different package, however many environments share it."""
        sizes: dict[object, int] = {}
        for key, installation in self.installations().items():
            if self.is_complete(key):
                for package in installation["packages"]:
                    place = package["inode"] or (key, package["name"])
                    sizes[place] = int(package["size"] * BYTECODE_SHARE)
        return sizes

    def estimate(self, lock: str, build: str, wheel: int | None) -> int:
        """Return the bytes that installing a lock will take; `wheel` is the size of torch's own, if known.

        Packages that are installed already are shared and take nothing. Sizes of others are those of
        earlier installs, of that version or else of that name; torch's of the same build.
        """
        by_pin: dict[tuple[str, str], int] = {}
        by_name: dict[str, int] = {}
        present: set[tuple[str, str]] = set()
        for key, installation in self.installations().items():
            for package in installation["packages"]:
                name, pin, size = package["name"], (package["name"], package["version"]), int(package["size"])
                by_pin[pin] = size
                if name != "torch" or installation["build"] == build:
                    by_name[name] = max(size, by_name.get(name, 0))
                if self.is_complete(key):
                    present.add(pin)
        absent = locked_versions(lock).items() - present
        need = 0
        for name, version in absent:
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

    def reserve(self, key: str, need: int, cancelled: threading.Event | None, stage: Callable[[str], None]) -> None:
        """Set disk aside for an environment and mark it in use, evicting and waiting as needed.

        First come, first served. Raises NoRoomError with the figures, CancelledError on an interrupt.
        """
        told = False
        freed: set[str] = set()
        with self.locked("room", cancelled):
            while True:
                with self._released:
                    generation = self._generation
                with self.locked():
                    room = self.room()
                    if room.fits(need):
                        self.mark(key, reserved=need)
                        return
                    in_use = self.marks().keys() - {key}
                    if self._trash_left_over():
                        continue
                    # a share of what is free is only known when all is freed
                    trash = {path.name for path in (self.folder / ".trash").glob("*")} - freed
                    is_freeing = trash and (self._budget_mb is None or room.within_budget(need))
                    if not is_freeing:
                        if need > room.budget:
                            raise NoRoomError(self._figures(need, room))  # evicting all would not help
                        victim = self._least_recently_used(in_use | {key})
                        if victim is not None:
                            stage("evicting")
                            self._trash(victim)
                            continue
                if is_freeing:
                    self.empty_trash()
                    freed |= trash  # what could not be removed is not waited for again
                    continue
                if not in_use:
                    raise NoRoomError(self._figures(need, room))
                if not told:
                    stage("waiting for disk")
                    told = True
                with self._released:
                    if self._generation == generation:
                        self._released.wait(WAIT_CHECK)
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
        idle = {
            folder.name: _time_of(folder / "used")
            for folder in self.folder.glob("[!.]*")
            if folder.name not in spared and (folder / "venv").exists()
        }
        return min(idle, key=lambda key: idle[key], default=None)

    def discard(self, key: str) -> None:
        """Evict an environment. Call it with the environment's own lock held."""
        with self.locked():
            if self.marks().keys() & {key}:
                raise InstallError("its wheel has changed, but another run still uses the earlier one")
            self._trash(key)

    def clear_left_over(self) -> None:
        """Remove what a failed install has left in uv's cache."""
        with self.locked():
            self._trash_left_over()

    def _trash(self, key: str) -> None:
        """Move an environment's files aside; its lock and metadata stay, and with them its identity."""
        folder = self.folder / key
        (folder / "complete").unlink(missing_ok=True)  # first: from here on it is half-made
        metadata = (folder / "venv").glob("lib*/python*/site-packages/*.dist-info/METADATA")
        inodes = {file.stat().st_ino for file in metadata}
        self._move_to_trash([folder / "venv"])
        self._trash_left_over(inodes)

    def _trash_left_over(self, evicted: Container[int] = ()) -> bool:
        """Move aside what only uv's cache holds; return whether there was any."""
        left_over = self._left_over(evicted)
        # first uv must forget them: an install that begins now must not count on them
        forget(self._uv_cache, {wheel.path.name for wheel in left_over})
        self._move_to_trash([wheel.path for wheel in left_over])
        return bool(left_over)

    def _left_over(self, evicted: Container[int] = ()) -> list[Unpacked]:
        """Return the unpacked wheels in uv's cache that no environment links to, but for evicted inodes.

        Not those that an install in progress has in its lock; where an install has none, like those
        beside an environment, only those too old to be part of it.
        """
        awaited: set[tuple[str, str]] = set()
        is_certain = True
        for key, reserved in self.marks().items():
            if reserved:
                try:
                    lock = (self.folder / key / "lock.txt").read_text(encoding="utf-8")
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

    def _move_to_trash(self, paths: list[Path]) -> None:
        """Take folders out of use at once, and free them in the background: gigabytes take many seconds."""
        trash = self.folder / ".trash"
        trash.mkdir(exist_ok=True)
        for path in paths:
            with suppress(FileNotFoundError):
                path.rename(trash / f"{path.parent.name}-{path.name}-{os.getpid()}-{time.monotonic_ns()}")
        threading.Thread(target=self.empty_trash, daemon=True).start()

    def empty_trash(self) -> None:
        """Free what was moved aside, also by a run that ended over it."""
        now = time.time()
        killed = [path for path in partial_downloads(self._uv_cache) if now - _time_of(path) > ORPHAN_AGE]
        for path in [*killed, *(self.folder / ".trash").glob("*")]:
            shutil.rmtree(path, ignore_errors=True)


def remove_tree(path: Path) -> None:
    """Remove a folder whatever it holds; moved aside first, so that a killed removal leaves no half."""
    if not path.exists() and not path.is_symlink():
        return
    aside = path.with_name(f".removed-{path.name}-{os.getpid()}-{time.monotonic_ns()}")
    path.rename(aside)
    shutil.rmtree(aside, ignore_errors=True)


def _time_of(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
