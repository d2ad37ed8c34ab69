"""Tables of one process on disk, for what a run knows of millions of cells."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from whichtorch.matrix.errors import PreventedError

if TYPE_CHECKING:
    import sqlite3

CACHE_KIB = 32 * 1024  # pages of a database that stay in memory


def scratch_database(owner: object, tables: str) -> sqlite3.Connection:
    """Return a database with some tables that nobody else sees, and that ends with its owner.

    It is in memory while it is small, and then in a temporary file that has no name (sqlite.org/inmemorydb.html).
    It may be used from several threads, one at a time. All is one transaction, which is never committed: with one for
    each insert, two hundred thousand rows take four times as long (measured). Raises PreventedError for a Python that
    was built without SQLite.
    """
    try:
        import sqlite3
    except ImportError as error:
        hint = "install whichtorch with another Python: those of Debian, conda and uv have it"
        raise PreventedError(f"this Python was built without the module sqlite3: {error}", hint=hint) from error
    database = sqlite3.connect("", check_same_thread=False, isolation_level=None)
    weakref.finalize(owner, database.close)
    database.executescript(
        f"pragma journal_mode = off; pragma synchronous = off; pragma cache_size = -{CACHE_KIB}; {tables} begin;"
    )
    return database
