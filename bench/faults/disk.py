"""A disk that is full, read-only, broken or slow: it costs what it has no room for, and no verdict."""

import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from bench.faults.fault import Fault, Moment, NotHereError, NotStruckError
from bench.faults.ground import ALL, SMALL, BrokenError, Fields, Ground
from bench.faults.shim import preloaded

MOST_CALLS = {"write": 60, "open": 120, "rename": 30, "fsync": 20}  # of a process, before one fails
ROOMY = "size=100g,nr_inodes=1000000"
LEFT_KB, LEFT_INODES = 400, 150  # at most, of what the command needs once its environments are there


def failing(call: str, number: int, fields: Fields, ground: Ground, moment: Moment) -> None:
    """Let calls on files of the state folder fail from a random one on, in every process; then no more."""
    calm = fields.calm(ALL)
    struck = ground.user.folder.parent / "struck"
    environ = preloaded(fields.folder) | {
        "FAULT_CALL": call,
        "FAULT_BELOW": str(ground.state),
        "FAULT_AFTER": str(moment.dice.randrange(MOST_CALLS[call])),
        "FAULT_ERRNO": str(number),
        "FAULT_STRUCK": str(struck),
    }
    ended = ground.give(ALL.words, environ)
    ground.check_line(ended)
    ground.check_verdicts(calm)
    ground.wait_until_quiet()
    ground.check_recovery(ALL, calm)
    if not struck.exists():
        raise NotStruckError("no process makes so many calls")


def slow(fields: Fields, ground: Ground, moment: Moment) -> None:
    """Let every write take 20 ms longer: the same is found."""
    calm = fields.calm(ALL)
    environ = preloaded(fields.folder) | {"FAULT_CALL": "write", "FAULT_BELOW": str(ground.state)}
    ended = ground.give(ALL.words, environ | {"FAULT_DELAY": "20000"})
    ground.check_line(ended, calm.code)
    ground.check_verdicts(calm)
    ground.check_recovery(ALL, calm)


@contextmanager
def mounted(folder: Path, options: str) -> Iterator[None]:
    if os.getuid() != 0:
        raise NotHereError("only root can mount")
    folder.mkdir(exist_ok=True)
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "faults", folder], check=False, capture_output=True)
    if made.returncode != 0:
        raise NotHereError(f"nothing can be mounted: {made.stderr.decode().strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def remount(folder: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", folder], check=True)


def full(what: str, fields: Fields, ground: Ground, moment: Moment) -> None:
    """Give the command on a disk that has room for the environments and a little more; make room, give it again."""
    calm = fields.calm(ALL)
    with mounted(ground.state, ROOMY):
        ground.give(SMALL.words)
        used = os.statvfs(ground.state)
        if what == "nr_inodes":
            limit = used.f_files - used.f_ffree + moment.dice.randrange(LEFT_INODES)
        else:
            limit = (used.f_blocks - used.f_bfree) * used.f_bsize + moment.dice.randrange(LEFT_KB) * 1024
        remount(ground.state, f"{what}={limit}")
        ended = ground.give(ALL.words)
        ground.check_line(ended)
        ground.check_verdicts(calm)
        ground.wait_until_quiet()
        remount(ground.state, ROOMY)
        ground.check_recovery(ALL, calm, mounted=True)
    ground.check_left()


def read_only(is_new: bool, fields: Fields, ground: Ground, moment: Moment) -> None:
    """Give the command on a read-only state folder, new or with all that is known; then once more."""
    calm = fields.calm(ALL)
    with mounted(ground.state, ROOMY):
        if not is_new:
            ground.give(ALL.words)
        remount(ground.state, "ro")
        for words in (ALL.words, ("runs",), ("report",)):
            ended = ground.give(words)
            ground.check_line(ended, 3)
            if "cannot write to" not in ended.output:
                raise BrokenError(f"said: {ended.output[-500:]}")
        remount(ground.state, "rw")
        ground.check_recovery(ALL, calm, mounted=True)


FAULTS = [
    *(
        Fault("disk", f"{call} fails with {name}", partial(failing, call, getattr(errno, name)), at_moments=True)
        for call, name in (
            ("write", "ENOSPC"),
            ("write", "EIO"),
            ("write", "EDQUOT"),
            ("open", "ENOSPC"),
            ("open", "EROFS"),
            ("open", "EMFILE"),
            ("open", "ENFILE"),
            ("rename", "ENOSPC"),
            ("rename", "EIO"),
            ("fsync", "EIO"),
        )
    ),
    Fault("disk", "a slow disk", slow),
    Fault("disk", "a full disk", partial(full, "size"), at_moments=True),
    Fault("disk", "no inodes left", partial(full, "nr_inodes"), at_moments=True),
    Fault("disk", "a read-only state folder that is new", partial(read_only, True)),
    Fault("disk", "a read-only state folder that knows all", partial(read_only, False)),
]
