"""Records on disk: append-only JSON Lines, one folder per run.

    runs/<run id>/run.json        the call: command, start, end, exit code
    runs/<run id>/scenarios.jsonl, environments.jsonl, cells.jsonl, records.jsonl
    runs/<run id>/bisection.json  of a search: its answer
    runs/<run id>/attempts/<n>/   what each attempt wrote

A record is written once, by the run that made it; later runs rest on it by its key. A run's cells hold the
attempts they rest on, whichever run made them: a report needs no other folder. Each line is flushed at
once: `kill -9` costs at most the line being written, which reading then leaves out.
"""

from __future__ import annotations

import json
import os
import secrets
import tempfile
import threading
from collections import Counter, defaultdict
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeVar

from pydantic import ValidationError

from matrix.errors import PreventedError
from matrix.model import Cell, Environment, Model, Outcome, Record, Role, Run
from matrix.privacy.redaction import Redactor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matrix.model import Scenario

    Item = TypeVar("Item", bound=Model)


def state_folder() -> Path:
    """Make and return the folder where state lives: $WHICHTORCH_HOME, or .whichtorch in the current one.

    Raises PreventedError where nothing can be written there.
    """
    home = Path(os.environ.get("WHICHTORCH_HOME") or ".whichtorch").absolute()
    try:
        home.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=home):
            pass
    except OSError as error:
        raise _cannot_write(home, error) from error
    return home


def _cannot_write(folder: Path, error: OSError) -> PreventedError:
    return PreventedError(
        f"cannot write to {folder}: {error.strerror}",
        hint="set WHICHTORCH_HOME to a folder on a disk with room that you may write to",
    )


class CellLine(Model):
    """A line of cells.jsonl."""

    place: int  # in the plan
    records: tuple[str, ...]  # keys of those it rests on
    cell: Cell


class Records:
    """All records of all runs, by key and by test."""

    def __init__(self) -> None:
        self._by_key: dict[str, list[Record]] = defaultdict(list)
        self._by_test: dict[str, list[Record]] = defaultdict(list)
        self._lock = threading.Lock()

    def add(self, record: Record) -> None:
        """Take in a record."""
        with self._lock:
            self._by_key[record.key].append(record)
            self._by_test[_test(record.source_hash, record.variant)].append(record)

    def of(self, key: str) -> list[Record]:
        """Return the records of a key, oldest first."""
        with self._lock:
            return list(self._by_key.get(key, ()))

    def of_test(self, source_hash: str, variant: dict[str, str]) -> list[Record]:
        """Return the records of a test in every environment and under all limits, oldest first."""
        with self._lock:
            return list(self._by_test.get(_test(source_hash, variant), ()))

    def slowest_pass(self, scenario: Scenario, variant: dict[str, str]) -> float | None:
        """Return the seconds of a test's slowest pass in any environment, or None."""
        passes = [record.attempt for record in self._judging(scenario, variant)]
        return max((attempt.seconds for attempt in passes if attempt.outcome is Outcome.PASS), default=None)

    def looked_at_for(
        self, environment: str, scenario: Scenario, variant: dict[str, str], seconds: float
    ) -> Record | None:
        """Return a record of a test in an environment that decided it and was given `seconds` or more."""
        for record in self._judging(scenario, variant):
            attempt = record.attempt
            if record.environment == environment and attempt.limit >= seconds and attempt.outcome is not Outcome.SLOW:
                return record
        return None

    def _judging(self, scenario: Scenario, variant: dict[str, str]) -> list[Record]:
        """Return the records of a test in any environment, without the observing attempts."""
        with self._lock:
            found = self._by_test.get(_test(scenario.source_hash, variant), ())
            return [record for record in found if record.attempt.role is Role.JUDGE]


def _test(source_hash: str, variant: dict[str, str]) -> str:
    return source_hash + json.dumps(variant, sort_keys=True)


class RunStore:
    """One run's folder. What it writes is redacted."""

    def __init__(self, folder: Path, run: Run) -> None:
        self.folder = folder
        self.run = run
        self.redactor = Redactor.of_this_machine()
        self._lock = threading.Lock()
        self._attempts = 0
        self._scenarios: set[str] = set()
        self._outcomes: dict[tuple[str, str], tuple[Outcome, bool]] = {}
        try:
            (folder / "attempts").mkdir(parents=True)
            self._files = {
                name: (folder / f"{name}.jsonl").open("a", encoding="utf-8")
                for name in ("records", "cells", "environments", "scenarios")
            }
            self._write_run()
        except OSError as error:
            raise _cannot_write(folder, error) from error

    def attempt_folder(self) -> Path:
        """Make and return the folder of the next attempt."""
        with self._lock:
            self._attempts += 1
            folder = self.folder / "attempts" / f"{self._attempts:05d}"
        folder.mkdir()
        return folder

    def add_record(self, record: Record) -> None:
        """Append a record."""
        self._append("records", record)

    def add_cell(self, cell: Cell, keys: list[str], place: int = 0) -> None:
        """Append a cell, its place in the plan, and the keys of the records it rests on."""
        self._outcomes[cell.environment, cell.name] = cell.outcome, cell.expected
        self._append("cells", CellLine(place=place, records=tuple(keys), cell=cell))

    def add_environment(self, environment: Environment) -> None:
        """Append an environment."""
        self._append("environments", environment)

    def add_scenario(self, scenario: Scenario) -> None:
        """Append a scenario, once."""
        with self._lock:
            is_new = scenario.source_hash not in self._scenarios
            self._scenarios.add(scenario.source_hash)
        if is_new:
            self._append("scenarios", scenario)

    def finish(self, run: Run) -> None:
        """Write how the run ended."""
        outcomes = Counter(outcome for outcome, _ in self._outcomes.values())
        unexpected = sum(not is_expected for _, is_expected in self._outcomes.values())
        self.run = run.model_copy(update={"ended": True, "outcomes": dict(outcomes), "unexpected": unexpected})
        self._write_run()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            file.close()

    def _append(self, name: str, item: Model) -> None:
        self._write(name, item.model_dump_json(by_alias=True))

    def _write(self, name: str, line: str) -> None:
        redacted = self.redactor.json_line(line)
        with self._lock:
            self._files[name].write(redacted + "\n")
            self._files[name].flush()

    def _write_run(self) -> None:
        write_run(self.folder, self.run, self.redactor)


def write_run(folder: Path, run: Run, redactor: Redactor) -> None:
    """Write what a run was called with and how it ended, at once or not at all."""
    temporary = folder / "run.json.new"
    temporary.write_text(redactor.json_line(run.model_dump_json(indent=1)) + "\n", encoding="utf-8")
    temporary.replace(folder / "run.json")


def new_run(home: Path, command: tuple[str, ...], planned: int = 0) -> RunStore:
    """Make the folder of a new run of so many cells; ids sort by time."""
    started = datetime.now(UTC)
    run = Run(
        id=f"{started:%Y%m%d-%H%M%S}-{secrets.token_hex(3)}",
        started=started.isoformat(timespec="seconds"),
        home=str(home),
        command=command,
        planned=planned,
    )
    return RunStore(home / "runs" / run.id, run)


def read_records(home: Path) -> Records:
    """Return all records of all runs below `home`, oldest run first."""
    records = Records()
    for record in _items(home, "records", Record):
        records.add(record)
    return records


def read_environments(home: Path) -> dict[str, Environment]:
    """Return the environments of all runs below `home` by id, as the latest run names them."""
    found: dict[str, Environment] = {}
    for environment in _items(home, "environments", Environment):
        found.pop(environment.id, None)  # the latest comes last
        found[environment.id] = environment
    return found


def read_cells(home: Path) -> Iterator[CellLine]:
    """Yield the cells of all runs below `home`, oldest run first."""
    return _items(home, "cells", CellLine)


def _items(home: Path, name: str, kind: type[Item]) -> Iterator[Item]:
    """Yield the lines of one file of each run, oldest run first."""
    for path in sorted((home / "runs").glob(f"*/{name}.jsonl")):
        yield from items_of(path, kind)


def items_of(path: Path, kind: type[Item]) -> Iterator[Item]:
    """Yield the lines of a file that can be read, none where it is not there.

    Left out are a line torn by a kill, and those of a later schema.
    """
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return
    for line in lines:
        with suppress(ValidationError):
            yield kind.model_validate_json(line)
