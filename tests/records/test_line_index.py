"""The index of stored lines is read instead of the lines, and made again where it does not fit them."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.records.test_store import record
from tests.records.test_stored_runs import merged, with_output
from tests.results import FAIL, PASS, cell, environment, result, stored
from whichtorch.model import Outcome, Record
from whichtorch.records import line_index
from whichtorch.records.line_index import LineIndex, Records, open_database
from whichtorch.records.store import CELLS, CellLine, new_run, read_environments
from whichtorch.records.stored_runs import all_runs, prune

KEY = record().key
COMMAND = """
import sys
from pathlib import Path
from whichtorch.records.line_index import Records
print(len(Records(Path(sys.argv[1])).of(sys.argv[2])))
"""


def store_run(home: Path, *seconds: float) -> Path:
    """Store a run with a record for each number of seconds; return the file of the records."""
    with new_run(home, ()) as store:
        for each in seconds:
            store.add_record(record(seconds=each))
    runs = home / "runs"
    return store.folder.rename(runs / f"{len(list(runs.iterdir())):03d}") / "records.jsonl"  # in the order of the calls


def known(home: Path) -> list[float]:
    """Return the seconds of the records that a new command knows, oldest first."""
    return [each.attempt.seconds for each in Records(home).of(KEY)]


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the lines that are taken into an index from now on."""
    lines: list[str] = []
    values = line_index.LineIndex._values

    def noted(self: line_index.LineIndex[Record], line: Record) -> tuple[object, ...]:
        lines.append(f"{line.attempt.seconds:g}")
        return values(self, line)

    monkeypatch.setattr(line_index.LineIndex, "_values", noted)
    return lines


def test_a_command_reads_only_lines_that_no_earlier_one_has_read(tmp_path: Path, parsed: list[str]) -> None:
    """The first reads all, the second nothing, the third what was appended to a file and a new file."""
    file = store_run(tmp_path, 1, 2)
    assert (known(tmp_path), parsed) == ([1, 2], ["1", "2"])
    assert (known(tmp_path), parsed) == ([1, 2], ["1", "2"])
    with file.open("a") as appended:
        appended.write(record(seconds=3).model_dump_json(by_alias=True) + "\n")
    store_run(tmp_path, 4)
    assert sorted(known(tmp_path)) == [1, 2, 3, 4]
    assert parsed[2:] == ["3", "4"]


@pytest.mark.parametrize("batch", [1, 2, 3, 5])
def test_long_files_are_taken_in_by_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: int) -> None:
    """Each line is there once, however many fit a batch."""
    monkeypatch.setattr(line_index, "BATCH", batch)
    store_run(tmp_path, 1, 2, 3, 4)
    assert known(tmp_path) == known(tmp_path) == [1, 2, 3, 4]


def test_a_torn_last_line_is_taken_in_once_it_is_whole(tmp_path: Path) -> None:
    """Another command may be about to write the rest of it."""
    file = store_run(tmp_path, 1)
    line = record(seconds=2).model_dump_json(by_alias=True) + "\n"
    with file.open("a") as appended:
        appended.write(line[:50])
        appended.flush()
        assert known(tmp_path) == known(tmp_path) == [1]
        appended.write(line[50:])
    assert known(tmp_path) == [1, 2]


def test_records_come_in_the_order_of_their_runs(tmp_path: Path) -> None:
    """A run that began earlier comes first, even if its last lines were taken in later."""
    first = store_run(tmp_path, 1).parent
    second = store_run(tmp_path, 2).parent
    assert known(tmp_path)
    second.rename(first.with_name(f"0{first.name}"))
    assert known(tmp_path) == [2, 1]


def same_length(file: Path) -> None:
    """Change a line, and no length."""
    file.write_text(file.read_text().replace('"seconds":1.0', '"seconds":7.0'))


def longer(file: Path) -> None:
    """Put other lines in place of these, and more of them."""
    text = file.read_text().replace('"seconds":2.0', '"seconds":8.0')
    file.with_name("new").write_text(text + text)
    file.with_name("new").rename(file)


def shorter(file: Path) -> None:
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:-1]))


@pytest.mark.parametrize(
    ("change", "expected"), [(shorter, [1]), (same_length, [7, 2]), (longer, [1, 8, 1, 8]), (Path.unlink, [])]
)
def test_a_file_that_was_not_just_appended_to_is_read_again(
    tmp_path: Path, change: Callable[[Path], None], expected: list[float]
) -> None:
    """What the index had of it counts no more; other files are not read again."""
    file = store_run(tmp_path, 1, 2)
    store_run(tmp_path, 5)
    assert known(tmp_path) == [1, 2, 5]
    change(file)
    if file.exists():
        os.utime(file, (1, 1))  # a clock that is too coarse to tell
    assert known(tmp_path) == [*expected, 5]


def test_a_line_that_changes_while_a_command_runs_is_not_taken_for_another(tmp_path: Path) -> None:
    """`runs prune` may leave other records where one was."""
    file = store_run(tmp_path, 1, 2)
    records, others = Records(tmp_path), Records(tmp_path)
    same_length(file)
    assert [each.attempt.seconds for each in records.of(KEY)] == [2]
    file.unlink()
    assert others.of(KEY) == []


def other_form(index: Path) -> None:
    """Leave an index as another release may have made it."""
    index.unlink()
    database = sqlite3.connect(index)
    database.executescript("create table files (name); create table lines (text); pragma user_version = 1;")
    database.close()


@pytest.mark.parametrize(
    "damage",
    [
        other_form,
        lambda index: index.write_bytes(index.read_bytes()[:5000]),
        lambda index: index.write_bytes(b"no database at all" * 1000),
        lambda index: index.write_bytes(b""),
    ],
)
def test_an_index_that_does_not_fit_is_made_again(
    tmp_path: Path, parsed: list[str], damage: Callable[[Path], object]
) -> None:
    """The command that finds it so answers as ever, and the next one need not make it."""
    store_run(tmp_path, 1, 2)
    assert known(tmp_path)
    damage(tmp_path / "index" / "records.sqlite")
    assert known(tmp_path) == [1, 2]
    parsed.clear()
    assert known(tmp_path) == [1, 2]
    assert parsed == []


def test_an_index_damaged_while_a_command_runs_costs_that_command_nothing(tmp_path: Path) -> None:
    """It reads the lines instead."""
    store_run(tmp_path, *range(1, 500))
    records = Records(tmp_path)
    (tmp_path / "index" / "records.sqlite").write_bytes(b"no database at all" * 10_000)
    assert len(records.of(KEY)) == 499


def test_another_release_makes_the_index_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parsed: list[str]
) -> None:
    """It may understand more lines, or see other things in them."""
    store_run(tmp_path, 1)
    assert known(tmp_path)
    parsed.clear()
    monkeypatch.setattr(line_index, "version", lambda _name: "another")
    assert (known(tmp_path), parsed) == ([1], ["1"])


def test_where_no_index_can_be_written_a_command_does_without(tmp_path: Path) -> None:
    """A read-only or full state folder keeps nobody from reading."""
    store_run(tmp_path, 1)
    (tmp_path / "index").write_text("a file, not a folder")
    assert known(tmp_path) == [1]


def test_a_full_disk_does_not_break_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it needs to know is then in memory."""
    store_run(tmp_path, *range(1, 500))

    def full(owner: object, file: Path | None = None, **options: int) -> sqlite3.Connection:
        database = open_database(owner, file, **options)
        if file is not None:
            database.execute("pragma max_page_count = 12")
        return database

    monkeypatch.setattr("whichtorch.records.line_index.open_database", full)
    assert len(known(tmp_path)) == 499


@pytest.mark.thorough
def test_several_commands_at_once_make_one_index(tmp_path: Path) -> None:
    """Each knows every record once."""
    for _ in range(3):
        store_run(tmp_path, *range(300))
    words = [sys.executable, "-c", COMMAND, str(tmp_path), KEY]
    commands = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    assert [command.communicate()[0] for command in commands] == ["900\n"] * 4
    assert len(known(tmp_path)) == 900


def test_a_command_does_not_see_what_others_store_after_it_began(tmp_path: Path) -> None:
    """Otherwise it would know its own records twice, once they are in the index."""
    store_run(tmp_path, 1)
    records = Records(tmp_path)
    records.add(record(seconds=2))
    store_run(tmp_path, 2)
    assert known(tmp_path) == [1, 2]
    assert [each.attempt.seconds for each in records.of(KEY)] == [1, 2]


def test_merged_and_pruned_runs_are_known_as_they_are(tmp_path: Path) -> None:
    """A merge adds its records to the index; what a removed run found out is known no more."""
    old = environment("2.11.0")
    parts = [with_output(tmp_path / name, cell(old, FAIL), "text", started=name) for name in ("a", "b")]
    home = tmp_path / "home"
    first = with_output(home, cell(old, FAIL), "text", started="c")
    assert len(Records(home).of("key")) == 1
    merged(home, *parts)
    assert len(Records(home).of("key")) == 3
    prune(home, [first], [])
    assert len(Records(home).of("key")) == 2


def test_cells_and_environments_are_as_the_latest_run_has_them(tmp_path: Path) -> None:
    """Of two runs, the later one counts, and what neither has run again stays; what was added since counts most."""
    old, new = environment("2.11.0"), environment("2.12.0")
    first = stored(tmp_path, result([old, new], [cell(old, FAIL), cell(new, FAIL)])).folder
    first.rename(first.with_name(f"0{first.name}"))  # both may have begun in the same second
    again = old.model_copy(update={"label": "again"})
    stored(tmp_path, result([again], [cell(old, PASS)]))
    cells = LineIndex(CELLS, tmp_path)

    def outcomes() -> dict[str, Outcome]:
        lines = cells.latest("environment", "name = 'family/case'")
        return {id_: line.cell.outcome for id_, line in lines.items()}

    assert outcomes() == {old.id: PASS, new.id: FAIL}
    other = cell(new, PASS).model_copy(update={"scenario": "family/other"})
    for added in (cell(old, Outcome.HANG), cell(old, Outcome.CRASH), other):
        cells.add(CellLine(place=0, records=(), cell=added))
    assert outcomes() == {old.id: Outcome.CRASH, new.id: FAIL}
    assert list(read_environments(tmp_path).values()) == [new, again]
    assert len(all_runs(tmp_path)) == 2
