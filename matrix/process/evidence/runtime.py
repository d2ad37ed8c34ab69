"""Find the interpreter's runtime state in a process: a futex in it belongs to the GIL.

A thread in take_gil waits with a deadline of 5 ms, again and again, and looks like any other timed wait; only
the address of what it waits for tells. CPython keeps the GIL in the static `_PyRuntime` (3.7 and later; from
3.12 on inside its main interpreter), while the locks of `threading` are on the heap.
"""

# The supervisor must not pay for importing pathlib.
# ruff: noqa: PTH119

from __future__ import annotations

import os
import struct
from functools import lru_cache

from matrix.process import kernel

SYMBOL = b"_PyRuntime"
SYMBOLS_LIMIT = 1 << 26  # bytes of a symbol table: torch's are larger, a Python's is not
_DYNAMIC_SYMBOLS, _LOAD = 11, 1  # SHT_DYNSYM, PT_LOAD
_POSITION_FREE = 3  # ET_DYN


def runtime_ranges(pid: int) -> tuple[tuple[int, int], ...]:
    """Return the addresses [start, end) of all `_PyRuntime` in a process; empty where it may not be read."""
    try:
        lines = kernel.read(f"/proc/{pid}/maps", 1 << 24).split(b"\n")
    except OSError:
        return ()
    ranges = []
    for line in lines:
        fields = line.split(None, 5)
        if len(fields) < 6 or b"python" not in os.path.basename(fields[5]).lower() or int(fields[2], 16) != 0:
            continue
        start = int(fields[0].partition(b"-")[0], 16)
        # The mapped file itself, also where it has been deleted or is in another mount namespace.
        found = _symbol(f"/proc/{pid}/map_files/{fields[0].decode()}", fields[4], fields[3]) or _symbol(
            os.fsdecode(b"/proc/%d/root" % pid + fields[5]), fields[4], fields[3]
        )
        if found:
            offset, size, is_relative = found
            base = start if is_relative else 0
            ranges.append((base + offset, base + offset + size))
    return tuple(ranges)


@lru_cache(maxsize=64)
def _symbol(path: str, _inode: bytes, _device: bytes) -> tuple[int, int, bool] | None:
    """Return address, size and "relative to where the file is mapped" of SYMBOL in an ELF file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return find_symbol(descriptor)
    except (OSError, struct.error, IndexError):
        return None
    finally:
        os.close(descriptor)


def find_symbol(descriptor: int) -> tuple[int, int, bool] | None:
    """Look SYMBOL up in the dynamic symbols of a 64-bit little-endian ELF file (elf(5))."""
    header = os.pread(descriptor, 64, 0)
    if header[:6] != b"\x7fELF\x02\x01":
        return None
    kind = struct.unpack_from("<H", header, 16)[0]
    programs, sections = struct.unpack_from("<QQ", header, 32)
    program_size, program_count, section_size, section_count = struct.unpack_from("<HHHH", header, 54)
    table = os.pread(descriptor, section_size * section_count, sections)
    for index in range(section_count):
        fields = struct.unpack_from("<IIQQQQIIQQ", table, index * section_size)
        if fields[1] != _DYNAMIC_SYMBOLS or fields[5] > SYMBOLS_LIMIT:
            continue
        names_at, names_size = struct.unpack_from("<QQ", table, fields[6] * section_size + 24)
        if names_size > SYMBOLS_LIMIT:
            continue
        names = os.pread(descriptor, names_size, names_at)
        wanted = names.find(b"\0" + SYMBOL + b"\0") + 1
        if not wanted:
            continue
        for name, _info, _other, section, value, size in struct.iter_unpack(
            "<IBBHQQ", os.pread(descriptor, fields[5], fields[4])
        ):
            if name == wanted and section != 0 and size:
                relative = kind == _POSITION_FREE
                loads = os.pread(descriptor, program_size * program_count, programs)
                lowest = min(
                    struct.unpack_from("<Q", loads, at + 16)[0]
                    for at in range(0, len(loads), program_size)
                    if struct.unpack_from("<I", loads, at)[0] == _LOAD
                )
                return value - (lowest // kernel.PAGE * kernel.PAGE if relative else 0), size, relative
    return None
