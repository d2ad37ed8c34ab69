"""Find where a variable of a library lies in the memory of a process: ELF files, and how they are mapped (elf(5))."""

from __future__ import annotations

import os
import re
import struct
from typing import TYPE_CHECKING

from whichtorch.matrix.process import kernel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SYMBOLS_LIMIT = 1 << 26  # bytes of a symbol table: torch's are larger, that of a Python or a libc is not
_DYNAMIC_SYMBOLS, _LOAD = 11, b"\1\0\0\0"  # SHT_DYNSYM, PT_LOAD
_POSITION_FREE = 3  # ET_DYN

_known: dict[tuple[int, int, int, bytes], tuple[int, int, bool] | None] = {}  # device, inode, time, symbol


def symbol_ranges(pid: int, is_wanted: Callable[[bytes], bool], *symbols: bytes) -> Iterator[tuple[int, int]]:
    """Yield the addresses [start, end) of variables in the mapped files of a process whose paths are wanted."""
    for start, _, fields in kernel.mappings(pid):
        if len(fields) < 6 or int(fields[2], 16) or not is_wanted(fields[5]):
            continue  # not the first page of a file
        # The mapped file itself, also where it has been deleted or is in another mount namespace.
        paths = (f"/proc/{pid}/map_files/{fields[0].decode()}", os.fsdecode(b"/proc/%d/root" % pid + fields[5]))
        for symbol in symbols:
            if found := _symbol(paths[0], symbol) or _symbol(paths[1], symbol):
                address, size, is_relative = found
                first = start + address if is_relative else address
                yield first, first + size


def _symbol(path: str, symbol: bytes) -> tuple[int, int, bool] | None:
    """Return what `find_symbol` says of the file at `path`, None where it cannot be read."""
    try:
        with open(path, "rb", buffering=0) as file:
            status = os.fstat(file.fileno())
            key = (status.st_dev, status.st_ino, status.st_mtime_ns, symbol)
            if key not in _known:
                _known[key] = None
                _known[key] = find_symbol(file.fileno(), symbol)
            return _known[key]
    except (OSError, struct.error, IndexError, ValueError):
        return None


def find_symbol(descriptor: int, symbol: bytes) -> tuple[int, int, bool] | None:
    """Find a variable in the dynamic symbols of a 64-bit little-endian ELF file.

    Return its address, its size, and whether the address is relative to where the file is mapped.
    """
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
        # A linker keeps `environ` as the end of `__environ`.
        wanted = {match.start() for match in re.finditer(re.escape(symbol) + b"\0", names)}
        if not wanted:
            continue
        symbols = os.pread(descriptor, fields[5], fields[4])
        for name, _info, _other, section, value, size in struct.iter_unpack("<IBBHQQ", symbols):
            if name in wanted and section != 0 and size:
                is_relative = kind == _POSITION_FREE
                table = os.pread(descriptor, program_size * program_count, programs)
                loads = [table[at : at + program_size] for at in range(0, len(table), program_size)]
                lowest = min(struct.unpack_from("<Q", load, 16)[0] for load in loads if load[:4] == _LOAD)
                return value - (lowest // kernel.PAGE * kernel.PAGE if is_relative else 0), size, is_relative
    return None
