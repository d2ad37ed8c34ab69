"""docs/contract.md, table by table."""

from functools import cache
from pathlib import Path

from tests.reports import reading

TEXT = (Path(__file__).parent.parent / "docs" / "contract.md").read_text(encoding="utf-8")


@cache
def tables(text: str) -> list[list[list[str]]]:
    """Return all tables of a text, which takes a twentieth of a CPU second to read."""
    return [*reading.tables(text)]


def table(*headers: str, text: str = TEXT) -> list[list[str]]:
    """Return the rows of the one table with these headers."""
    (found,) = [rows for rows in tables(text) if rows[0] == list(headers)]
    return found[1:]


def words(*headers: str) -> list[str]:
    """Return the first column of the one table with these headers."""
    return [row[0] for row in table(*headers)]


def fields(model: str) -> list[str]:
    """Return the fields that are told of a model."""
    below = TEXT.partition(f"\n### `{model}`\n")[2].partition("\n#")[0]
    return [row[0] for row in table("field", "meaning", text=below)]
