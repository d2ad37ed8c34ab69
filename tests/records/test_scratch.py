"""Tables that end with who owns them."""

import gc
import sqlite3
import sys

import pytest

from whichtorch.base.errors import PreventedError
from whichtorch.records.line_index import scratch_database


class Owner:
    """Owns a table."""


def test_a_table_ends_with_its_owner() -> None:
    """Its file is closed then, and so is gone."""
    owner = Owner()
    database = scratch_database(owner, "create table words (word text);")
    database.execute("insert into words values ('a')")
    assert database.execute("select word from words").fetchall() == [("a",)]
    del owner
    gc.collect()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        database.execute("select word from words")


def test_a_python_without_sqlite_is_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python may be built without it."""
    monkeypatch.setitem(sys.modules, "sqlite3", None)
    with pytest.raises(PreventedError, match="sqlite3") as caught:
        scratch_database(Owner(), "")
    assert "another Python" in caught.value.hint
