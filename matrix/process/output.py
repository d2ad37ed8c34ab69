"""Keep head and tail of a file that a process writes to, however much it writes.

The process appends straight to the file, so nothing can hold it up. The middle is given back to the disk while
the process runs, and taken out when it has ended.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re

HEAD = 1_000_000  # bytes kept from the beginning: the first error is there
TAIL = 1_000_000  # bytes kept from the end: the last words are there
PUNCH_EVERY = 32_000_000  # bytes of growth after which the middle is given back to the disk
UNPUNCHED_LIMIT = 256_000_000  # bytes, where the filesystem cannot make holes: then the writer is stopped
BLOCK = 4096  # bytes; holes start and end at whole blocks
_KEEP_SIZE, _PUNCH_HOLE = 1, 2  # linux/falloc.h
# UTF-8: the first byte says how many of 0x80 to 0xBF follow.
_BEGINNING_OF_CHARACTER = re.compile(rb"(?:[\xC0-\xFF]|[\xE0-\xFF][\x80-\xBF]|[\xF0-\xFF][\x80-\xBF]{2})\Z")
_REST_OF_CHARACTER = re.compile(rb"\A[\x80-\xBF]{1,3}")


class KeptFile:
    """One output file of a task."""

    def __init__(self, path: str) -> None:
        """Create or empty the file; raise OSError where that fails."""
        self.path = path
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        self._punched = HEAD  # up to here the middle is gone
        self._can_punch = True

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return os.fstat(self._descriptor).st_size

    def trim(self) -> bool:
        """Give the middle back to the disk; return False if the filesystem cannot and the file is too large."""
        size = self.size
        if size - self._punched < PUNCH_EVERY + TAIL:
            return True
        if self._can_punch:
            start = -(-HEAD // BLOCK) * BLOCK
            end = (size - TAIL) // BLOCK * BLOCK
            self._can_punch = _punch(self._descriptor, start, end - start)
            self._punched = end
        return self._can_punch or size < UNPUNCHED_LIMIT

    def finish(self) -> int:
        """Reduce the file to head, a line that says how much is cut, and tail; return the bytes written."""
        size = self.size
        if size > HEAD + TAIL + BLOCK:
            head = whole_characters(os.pread(self._descriptor, HEAD, 0), at_end=True)
            tail = whole_characters(os.pread(self._descriptor, TAIL, size - TAIL), at_end=False)
            cut = size - len(head) - len(tail)
            os.ftruncate(self._descriptor, len(head))
            rest = b"\n[... %d bytes cut here ...]\n" % cut + tail
            with contextlib.suppress(OSError):  # a full disk costs the tail, not the ending
                while rest:
                    rest = rest[os.pwrite(self._descriptor, rest, self.size) :]
        os.close(self._descriptor)
        return size


def whole_characters(part: bytes, *, at_end: bool) -> bytes:
    """Drop the piece of a UTF-8 character that a cut left at the end or the beginning of `part`."""
    if at_end:
        return part[:-3] + _BEGINNING_OF_CHARACTER.sub(b"", part[-3:])
    return _REST_OF_CHARACTER.sub(b"", part)


def _punch(descriptor: int, start: int, length: int) -> bool:
    """Free a range of a file without changing its size; False where the filesystem cannot."""
    library = ctypes.CDLL(None, use_errno=True)
    # A libc whose off_t is 64 bits wide everywhere has no fallocate64; only Linux has either.
    fallocate = getattr(library, "fallocate64", None) or getattr(library, "fallocate", None)
    if fallocate is None:
        return False
    fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    return bool(fallocate(descriptor, _PUNCH_HOLE | _KEEP_SIZE, start, length) == 0)
