"""An index of the lines of all stored runs, kept between commands in the state folder, and what it knows of tests.

The JSONL files remain the source of truth. The index has the columns that are asked for, and where each line is. Lines
are only ever appended, so a command reads what was appended since the last command. A file that changed otherwise is
read again. An index that does not fit is rebuilt, and one that cannot be written is built in memory. `Records` asks it
for the records of all runs, by key and by test.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Generic, TypeVar

from pydantic import ValidationError

from whichtorch.base.errors import PreventedError
from whichtorch.failures.deadline import Decider, reached_goal
from whichtorch.model import SCHEMA, Attempt, Model, Outcome, Record, Role, Scenario, digest

if TYPE_CHECKING:
    import sqlite3

Row = tuple[Any, ...]

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


Line = TypeVar("Line", bound=Model)
ADDED_CACHE_KIB = 2048  # memory for added lines: a line takes some 6 kB, and few are read again
CACHED = 2_000  # questions whose lines are kept in memory
BATCH = 10_000  # lines in one transaction: other commands can read between two
_TABLES = """
drop table if exists files;
drop table if exists lines;
create table files (id integer primary key, run text unique, size integer, changed integer, taken integer);
create table lines (
    id integer primary key autoincrement, file integer, start integer, checksum integer, line blob, {columns}
);
create index by_file on lines (file);
{indexes}
"""
_KNOWN = """
create temp view known as select lines.*, run from lines left join files on files.id = file where lines.id <= {last}
"""
_INSERT = "insert into lines values (null, ?, ?, ?, ?{more})"
_SELECT = "select {columns} from known where {condition}"
_OLDEST_FIRST = " order by run, start, id"
_LINE = "run, start, checksum, line"  # the columns that a line is read by
_LAST = "select start, checksum from lines where file = ? order by id desc limit 1"
_TAKEN = "update files set size = ?, changed = ?, taken = ? where id = ?"


@dataclass(frozen=True)
class LineKind(Generic[Line]):
    """The files of one name, what their lines hold, and what is indexed of a line."""

    name: str  # of the files and their index, without the endings
    model: type[Line]
    columns: dict[str, Callable[[Line], Any]]
    indexes: str

    @property
    def tables(self) -> str:
        """The SQL that creates the tables."""
        return _TABLES.format(columns=", ".join(self.columns), indexes=self.indexes)

    @property
    def form(self) -> int:
        """A number that changes with the tables and the release of the tool."""
        try:
            release = version("whichtorch")
        except PackageNotFoundError:
            release = ""
        return zlib.crc32(f"{release} {SCHEMA} {self.tables}".encode()) >> 1  # SQLite's number has a sign


class LineIndex(Generic[Line]):
    """The lines of one kind: those stored below `home` when it was made, and those added since by this process.

    Its methods may be called from several threads.
    """

    def __init__(self, kind: LineKind[Line], home: Path | None = None) -> None:
        self._kind = kind
        self._index = (home or Path()) / "index" / f"{kind.name}.sqlite"
        self._lock = threading.Lock()
        self._insert = _INSERT.format(more=", ?" * len(kind.columns))
        self._added = scratch_database(self, kind.tables, ADDED_CACHE_KIB)
        self._added.execute(_KNOWN.format(last=sys.maxsize))
        self._stored = self._opened() if home else None
        self._additions = 0
        self._found = lru_cache(CACHED)(self._look_up)  # a matrix asks twice: for its forecast, and as it runs
        self._path = lru_cache(CACHED)(self._file)  # a run has thousands of lines

    def add(self, line: Line) -> None:
        """Add a line that this process has made."""
        text = line.model_dump_json(by_alias=True).encode()
        with self._lock:
            self._added.execute(self._insert, (None, None, None, text, *self._values(line)))
            self._additions += 1  # answers from before are not given again

    def rows(self, columns: str, condition: str = "true", **values: str) -> list[Row]:
        """Return columns, in SQL, of the lines for which a condition is true: those stored, then those added."""
        import sqlite3

        question = _SELECT.format(columns=columns, condition=condition)
        with self._lock:
            try:
                stored = self._stored.execute(question, values).fetchall() if self._stored else []
            except sqlite3.Error as error:
                self._stored = self._instead(error)
                stored = self._stored.execute(question, values).fetchall()
            return stored + (self._added.execute(question, values).fetchall() if self._additions else [])

    def lines(self, condition: str, **values: str) -> list[Line]:
        """Return the lines for which a condition in SQL is true, oldest first."""
        return list(self._found(self._additions, condition, *values.items()))

    def _look_up(self, _additions: int, condition: str, *values: tuple[str, str]) -> list[Line]:
        rows = self.rows(_LINE, condition + _OLDEST_FIRST, **dict(values))
        return [line for row in rows if (line := self._parsed(*row)) is not None]

    def latest(self, column: str, condition: str = "true", **values: str) -> dict[str, Line]:
        """Return the last line for each value of a column, of the lines for which a condition is true."""
        last: dict[str, Row] = {}
        for value, *row in self.rows(f"{column}, {_LINE}", condition + _OLDEST_FIRST, **values):
            last.pop(value, None)
            last[value] = tuple(row)
        return {value: line for value, found in last.items() if (line := self._parsed(*found)) is not None}

    def _parsed(self, run: str, start: int, checksum: int, line: bytes | None) -> Line | None:
        """Return a line; None where another command has removed it."""
        with suppress(FileNotFoundError, ValidationError):
            if line is None:
                with self._path(run).open("rb") as file:
                    line = _line_at(file, start)
                if zlib.crc32(line) != checksum:
                    return None
            return self._kind.model.model_validate_json(line)
        return None

    def _file(self, run: str) -> Path:
        return self._index.parents[1] / "runs" / run / f"{self._kind.name}.jsonl"

    def _values(self, line: Line) -> tuple[Any, ...]:
        return tuple(value(line) for value in self._kind.columns.values())

    # the file of the index

    def _opened(self) -> sqlite3.Connection:
        """Return the index in its file, up to date."""
        import sqlite3

        try:
            self._index.parent.mkdir(exist_ok=True)
            return self._refreshed(open_database(self, self._index))
        except (OSError, sqlite3.Error) as error:
            return self._instead(error)

    def _instead(self, error: Exception) -> sqlite3.Connection:
        """Return an index in place of one that failed: in its file if that was damaged, otherwise in memory."""
        import sqlite3

        # an operational error: the file is read-only or locked, the disk is full, another release made other columns
        if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError):
            with suppress(OSError, sqlite3.Error):
                self._index.unlink()
                return self._refreshed(open_database(self, self._index))
        return self._refreshed(open_database(self))

    def _refreshed(self, database: sqlite3.Connection) -> sqlite3.Connection:
        """Have a database take in what was appended, and forget what was removed."""
        self._make_tables(database)
        states = {}
        for file in self._index.parents[1].glob(f"runs/*/{self._kind.name}.jsonl"):
            with suppress(FileNotFoundError):
                states[file.parent.name] = _state(file.stat())
        known = {run: state for run, *state in database.execute("select run, size, changed from files")}
        if gone := [(run,) for run in known.keys() - states.keys()]:
            with database:
                database.execute("begin immediate")
                database.executemany("delete from lines where file = (select id from files where run = ?)", gone)
                database.executemany("delete from files where run = ?", gone)
        for run in sorted(run for run, state in states.items() if known.get(run) != state):
            with suppress(FileNotFoundError):
                while not self._take_in(database, run):
                    pass
        # other commands add the lines of later runs, and those of this command's own run
        (last,) = database.execute("select coalesce(max(id), 0) from lines").fetchone()
        database.execute(_KNOWN.format(last=last))
        return database

    def _make_tables(self, database: sqlite3.Connection) -> None:
        form = self._kind.form
        if _form_of(database) == form:
            return
        with database:
            database.execute("begin immediate")
            if _form_of(database) != form:  # another command may have been faster
                for statement in self._kind.tables.split(";"):
                    database.execute(statement)
                database.execute(f"pragma user_version = {form}")

    def _take_in(self, database: sqlite3.Connection, run: str) -> bool:
        """Take in a batch of lines of a run; return whether these were the last.

        A torn last line waits until it is whole.
        """
        with database, self._file(run).open("rb") as file:
            database.execute("begin immediate")
            state = _state(os.fstat(file.fileno()))
            database.execute("insert or ignore into files values (null, ?, 0, 0, 0)", (run,))
            found = database.execute("select id, size, changed, taken from files where run = ?", (run,))
            number, size, changed, taken = found.fetchone()
            if [size, changed] == state:  # by another command
                return True
            last = database.execute(_LAST, (number,)).fetchone()
            if state[0] <= size or (
                last and zlib.crc32(_line_at(file, last[0])) != last[1]
            ):  # it was not just appended to
                database.execute("delete from lines where file = ?", (number,))
                taken = 0
            file.seek(taken)
            is_torn = False
            for line in islice(file, BATCH):
                try:
                    values = self._values(self._kind.model.model_validate_json(line))
                    database.execute(self._insert, (number, taken, zlib.crc32(line), None, *values))
                except ValidationError:
                    if is_torn := not line.endswith(b"\n"):
                        break
                taken += len(line)
            is_done = is_torn or taken >= state[0]
            database.execute(_TAKEN, (*(state if is_done else [taken, 0]), taken, number))
            return is_done


def _form_of(database: sqlite3.Connection) -> int:
    return int(database.execute("pragma user_version").fetchone()[0])


def _line_at(file: BinaryIO, start: int) -> bytes:
    file.seek(start)
    return file.readline()


def _state(file: os.stat_result) -> list[int]:
    return [file.st_size, file.st_mtime_ns]


# What decided that a busy test hangs, for a brief look elsewhere to confirm. A state that repeats needs no brief look:
# it proves itself anew within seconds.
_SHOWN = frozenset({Decider.LONGER_LOOK, Decider.SAME_PLACE})
# A record steers how its test is run on the same kind of machine where it judges and did not begin forked: a fork has
# no imports to do, so its time says nothing of a cold attempt.
_RECORDS = LineKind(
    "records",
    Record,
    {
        "key": lambda record: record.key,
        "test": lambda record: _test(record.source_hash, record.variant),
        "environment": lambda record: record.environment,
        "hardware": lambda record: record.attempt.evidence.hardware,
        "steers": lambda record: record.attempt.role is Role.JUDGE and not record.attempt.evidence.is_forked,
        "outcome": lambda record: str(record.attempt.outcome),
        "seconds": lambda record: record.attempt.seconds,
        "signature": lambda record: record.signature,
        "is_shown": lambda record: record.attempt.evidence.decided in _SHOWN,
    },
    """
    create index by_key on lines (key);
    create index by_environment on lines (test, environment);
    create index by_outcome on lines (test, hardware, outcome, seconds) where steers;
    """,
)
_ON_HARDWARE = "and hardware = :hardware"
_BEARING = """
id in (
    select id from known where test = :test and environment = :environment
    union all
    select max(id) from known where steers and test = :test and hardware = :hardware and outcome = 'hang'
    group by signature, is_shown
    union all
    select max(id) from known where steers and test = :test and hardware = :hardware and outcome in ('hang', 'slow')
    union all
    select id from (
        select id from known where steers and test = :test and hardware = :hardware and outcome = 'pass'
        order by seconds desc limit 1
    )
)
"""


def identity(record: Record) -> tuple[object, ...]:
    """Return what tells one record from all others, wherever its files lie and however its words were redacted."""
    return record.key, *attempt_identity(record.attempt)


def attempt_identity(attempt: Attempt) -> tuple[object, ...]:
    """Return what tells an attempt from the others of its test."""
    return attempt.role, attempt.outcome, attempt.started, attempt.seconds, attempt.cpu_seconds


class Records:
    """The records of all runs below `home`, and those added since. Its methods may be called from several threads."""

    def __init__(self, home: Path | None = None) -> None:
        self._lines = LineIndex(_RECORDS, home)

    def add(self, record: Record) -> None:
        """Add a record."""
        self._lines.add(record)

    def of(self, key: str) -> list[Record]:
        """Return the records of a key, oldest first."""
        return self._lines.lines("key = :key", key=key)

    def of_test(self, source_hash: str, variant: dict[str, str]) -> list[Record]:
        """Return the records of a test in every environment and under all limits, oldest first."""
        return self._lines.lines("test = :test", test=_test(source_hash, variant))

    def tests_of(self, scenario: Scenario, variant: dict[str, str]) -> list[Scenario]:
        """Return the tests that a command was seen to have, in any environment; none for any other scenario."""
        if scenario.command is None or scenario.command.test:
            return []
        own = self.of_test(scenario.source_hash, variant)
        ids = dict.fromkeys(id_ for record in own for id_ in record.attempt.evidence.tests or ())
        return list(map(scenario.of_test, ids))

    def of_tests(self, scenario: Scenario, variant: dict[str, str]) -> list[Record]:
        """Return the records of the tests that a command was seen to have; none for any other scenario."""
        return [each for test in self.tests_of(scenario, variant) for each in self.of_test(test.source_hash, variant)]

    def slowest_pass(self, scenario: Scenario, variant: dict[str, str], hardware: str = "") -> float | None:
        """Return the seconds of a test's slowest pass in any environment on a kind of machine, or None."""
        return self._longest("outcome = 'pass'", scenario, variant, hardware)

    def longest_run(self, scenario: Scenario, variant: dict[str, str], hardware: str = "") -> float:
        """Return the seconds of the longest run of a test that ended by itself, on a kind of machine; 0 for none."""
        return self._longest("outcome in ('pass', 'fail', 'crash')", scenario, variant, hardware) or 0.0

    def _longest(self, condition: str, scenario: Scenario, variant: dict[str, str], hardware: str) -> float | None:
        rows = self._steering("max(seconds)", f"{condition} {_ON_HARDWARE}", scenario, variant, hardware=hardware)
        return max((seconds for (seconds,) in rows if seconds is not None), default=None)

    def decisive(
        self, environment: str, scenario: Scenario, variant: dict[str, str], seconds: float, slow: Attempt
    ) -> Record | None:
        """Return a record that decides what a slow attempt left open, given `seconds` with a core; no `slow` one."""
        condition = "steers and test = :test and environment = :environment"
        test = _test(scenario.source_hash, variant)
        for record in self._lines.lines(condition, test=test, environment=environment):
            attempt = record.attempt
            is_enough = reached_goal(seconds, attempt.limit, attempt.evidence.headway) and attempt.outlasts(slow)
            if attempt.outcome is not Outcome.SLOW and is_enough:
                return record
        return None

    def has_run_out(self, scenario: Scenario, variant: dict[str, str], hardware: str = "") -> bool:
        """Return whether a test was not done in its time, in any environment on a kind of machine."""
        condition = f"outcome in ('hang', 'slow') {_ON_HARDWARE} limit 1"
        return bool(self._steering("1", condition, scenario, variant, hardware=hardware))

    def has_hung(self, scenario: Scenario, variant: dict[str, str]) -> bool:
        """Return whether a test has hung in any environment."""
        return bool(self._steering("1", "outcome = 'hang' limit 1", scenario, variant))

    def has_hung_at(self, scenario: Scenario, variant: dict[str, str], signature: str = "") -> bool:
        """Return whether a test was shown to hang, busy, with this signature or any, in any environment."""
        condition = "outcome = 'hang' and is_shown and :signature in ('', signature) limit 1"
        return bool(self._steering("1", condition, scenario, variant, signature=signature))

    def _steering(
        self, columns: str, condition: str, scenario: Scenario, variant: dict[str, str], **values: str
    ) -> list[tuple[Any, ...]]:
        """Return columns of the records that steer how a test is run, and for which a condition is true."""
        test = _test(scenario.source_hash, variant)
        return self._lines.rows(columns, f"steers and test = :test and {condition}", test=test, **values)

    def bearing_on(self, environment: str, scenario: Scenario, variant: dict[str, str], hardware: str) -> list[Record]:
        """Return what a run of a test elsewhere has to know: all of its environment, and of the others what steers.

        These are the slowest pass, a hang of each signature, and one that was not done in its time.
        """
        test = _test(scenario.source_hash, variant)
        return self._lines.lines(_BEARING, test=test, environment=environment, hardware=hardware)


def _test(source_hash: str, variant: dict[str, str]) -> str:
    """Return what stands for a script and a variant of it."""
    return digest([source_hash, variant], 16)
