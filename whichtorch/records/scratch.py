"""Databases of SQLite: tables of one process on disk, for what a run knows of millions of cells."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from whichtorch.base.errors import PreventedError

if TYPE_CHECKING:
    import sqlite3
    from pathlib import Path

CACHE_KIB = 32 * 1024  # pages of a database that stay in memory
BUSY = 60.0  # seconds that another process may keep a database locked


def open_database(owner: object, file: Path | None = None, cache_kib: int = CACHE_KIB) -> sqlite3.Connection:
    """Open the database in a file, until its owner ends; without a file, one that nobody else sees.

    The latter is in memory while it is small, and then in a temporary file that has no name
    (sqlite.org/inmemorydb.html). It may be used from several threads, one at a time. Raises PreventedError for a Python
    that was built without SQLite.
    """
    try:
        import sqlite3
    except ImportError as error:
        hint = "install whichtorch with another Python: those of Debian, conda and uv have it"
        raise PreventedError(f"this Python was built without the module sqlite3: {error}", hint=hint) from error
    database = sqlite3.connect(file or "", check_same_thread=False, isolation_level=None, timeout=BUSY)
    weakref.finalize(owner, database.close)
    database.execute(f"pragma cache_size = -{cache_kib}")
    return database


def scratch_database(owner: object, tables: str, cache_kib: int = CACHE_KIB) -> sqlite3.Connection:
    """Return a database with some tables that nobody else sees, and that ends with its owner.

    At most `cache_kib` KiB of its pages are kept in memory.

    All is one transaction, which is never committed: with one for each insert, two hundred thousand rows take four
    times as long (measured).
    """
    database = open_database(owner, cache_kib=cache_kib)
    database.executescript(f"pragma journal_mode = off; pragma synchronous = off; {tables} begin;")
    return database
