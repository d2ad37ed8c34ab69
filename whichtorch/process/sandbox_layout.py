"""What is where inside a sandbox: a table of places, from which the sandbox is built."""

from __future__ import annotations

import contextlib
import os
import stat

TYPE_CHECKING = False  # typing takes 3 ms to import, and a supervisor starts in 20
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any

USER = 1000  # id of the user inside, whoever it is outside
HOST = "sandbox"  # name of the machine inside
# below /, without anything of a user's; of nix not the socket of its daemon, which does more than a script may
SYSTEM = ("bin", "lib", "lib32", "lib64", "libx32", "nix/store", "sbin", "usr")
SETTINGS = ("alternatives", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime")  # below /etc
OWN_SETTINGS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "sandbox_etc")  # likewise, made up
EMPTY_BYTES = 4096
SECTOR = 512  # bytes in a unit of st_blocks
# kinds of places
READ, WRITE, LINK, ROOM, EMPTY, PROCESSES, DEVICE_FOLDER = (
    "read", "write", "link", "room", "empty", "processes", "devices",
)  # fmt: skip


def places(spec: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Return by path inside what is there: its kind, and the path outside or a link's target.

    A folder comes before what is below it. Nothing is mounted below a writable folder: a script may have put links
    there, and a mount through them would lead out of it.
    """
    rows: dict[str, tuple[str, str]] = {"/proc": (PROCESSES, ""), "/dev": (DEVICE_FOLDER, "")}
    rows |= dict.fromkeys(("/tmp", "/dev/shm"), (ROOM, "")) | {"/var/tmp": (LINK, "/tmp")}  # noqa: S108
    for path in map("/".__add__, SYSTEM):
        if os.path.islink(path):
            rows[path] = (LINK, os.readlink(path))
        elif os.path.isdir(path):
            rows[path] = (READ, path)
    rows |= {f"/etc/{name}": (READ, os.path.realpath(f"/etc/{name}")) for name in SETTINGS}
    rows |= {f"/etc/{name}": (READ, f"{OWN_SETTINGS}/{name}") for name in os.listdir(OWN_SETTINGS)}
    rows |= {path: (READ, path) for path in _kernel_files()}
    rows["/sys/devices/system"] = (READ, "/sys/devices/system")  # cores and nodes, which torch counts
    rows |= dict.fromkeys(spec["hidden"], (EMPTY, ""))
    rows |= {path: (READ, os.path.realpath(path)) for path in spec["readable"]}
    rows |= {path: (WRITE, os.path.realpath(outside)) for path, outside in spec["writable"].items()}
    kept: dict[str, tuple[str, str]] = {}
    for path, (kind, source) in sorted(rows.items()):
        above = next((each for each in reversed(kept) if path.startswith(f"{each}/")), "")
        is_there = kept.get(above, ("",))[0] == WRITE or (kind, kept.get(above)) == (READ, (READ, above))
        if not is_there and (kind not in (READ, WRITE) or os.path.exists(source)):
            kept[path] = (kind, source)
    return kept


def _kernel_files() -> Iterator[str]:
    """Yield what below /proc is of the kernel and may be written by who is root outside, whatever the namespaces."""
    with os.scandir("/proc") as entries:
        for entry in entries:
            if not entry.name.isdigit() and not entry.is_symlink():
                mode = entry.stat().st_mode
                if stat.S_ISDIR(mode) or mode & 0o222:
                    yield entry.path


def holds_more(folders: Iterable[str], most_files: int, most_bytes: int, pids: Iterable[int] = ()) -> bool:
    """Return whether folders hold more files, or more on the disk, than given numbers.

    What cannot be read counts as more: a script may have made it so. Files that processes have open although they are
    in no folder any more count, too.
    """
    unread = list(folders)
    try:
        sizes = [*_unlinked_sizes(pids, tuple(f"{folder}/" for folder in unread))]
        files, size = len(sizes), sum(sizes)
        for folder in unread:  # grows as it goes
            for status, path in _entries(folder):
                files, size = files + 1, size + status.st_blocks * SECTOR
                if stat.S_ISDIR(status.st_mode):
                    unread.append(path)
                if files > most_files or size > most_bytes:
                    return True
    except OSError:
        return True
    return files > most_files or size > most_bytes


def _entries(folder: str) -> Iterator[tuple[os.stat_result, str]]:
    """Yield what is in a folder, without what goes meanwhile; raise OSError for what cannot be read."""
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):
                yield entry.stat(follow_symlinks=False), entry.path


def _unlinked_sizes(pids: Iterable[int], beginnings: tuple[str, ...]) -> Iterator[int]:
    """Yield the sizes on the disk of files that processes have open and that were removed from folders."""
    seen = set()
    for pid in pids:
        with contextlib.suppress(OSError), os.scandir(f"/proc/{pid}/fd") as entries:  # a process may not be readable
            for entry in entries:
                with contextlib.suppress(OSError):  # it was closed meanwhile
                    status = entry.stat()
                    file = (status.st_dev, status.st_ino)
                    if status.st_nlink or not stat.S_ISREG(status.st_mode) or file in seen:
                        continue
                    if os.readlink(entry.path).startswith(beginnings):  # not one of /tmp, which has a size of its own
                        seen.add(file)
                        yield status.st_blocks * SECTOR
