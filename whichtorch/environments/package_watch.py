"""Whether files of an environment changed or went while something ran in it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from whichtorch.environments.installation import Stamp, is_unchanged, stamps_of
from whichtorch.environments.unpacked_wheels import brought


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
