"""Tables of one process on disk, for what a run knows of millions of cells."""

from __future__ import annotations

import sqlite3
import weakref

CACHE_KIB = 32 * 1024  # pages of a database that stay in memory


def scratch_database(owner: object, tables: str) -> sqlite3.Connection:
    """Return a database with some tables that nobody else sees, and that ends with its owner.

    It is in memory while it is small, and then in a temporary file that has no name (sqlite.org/inmemorydb.html).
    It may be used from several threads, one at a time. All is one transaction, which is never committed: with one for
    each insert, a hundred thousand rows take four times as long (measured).
    """
    database = sqlite3.connect("", check_same_thread=False, isolation_level=None)
    weakref.finalize(owner, database.close)
    database.executescript(
        f"pragma journal_mode = off; pragma synchronous = off; pragma cache_size = -{CACHE_KIB}; {tables} begin;"
    )
    return database
