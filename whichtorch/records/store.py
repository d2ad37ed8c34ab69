"""Records on disk: append-only JSON Lines, one folder per run.

    runs/<run id>/run.json        the call: command, start, end, exit code
    runs/<run id>/scenarios.jsonl, environments.jsonl, cells.jsonl, records.jsonl
    runs/<run id>/bisection.json  the answer of a search
    runs/<run id>/attempts/<n>/   what each attempt wrote

The run that makes an attempt writes its record once; later runs find the record by its key. The cells of a run hold
the attempts they rest on, whichever run made them, so a report needs no other folder. Each line is flushed at once:
`kill -9` costs at most the line being written, and a reader leaves that line out. What else a killed tool has left of a
run is removed before the next one.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path, PurePosixPath
from typing import Self, TypeVar

from platformdirs import user_cache_path
from pydantic import ValidationError

from whichtorch.base.atomic_files import remove_partial, write_atomic
from whichtorch.base.errors import PreventedError
from whichtorch.base.redaction import Redactor
from whichtorch.environments.matrix_file import own_file, read_matrix_file
from whichtorch.model import Attempt, Cell, Environment, Model, Outcome, Record, Result, Run, Scenario
from whichtorch.process.marks import mark_for, owner_is_dead, remove_left_behind, sweep_left_behind
from whichtorch.records.line_index import LineIndex, LineKind, scratch_database

Item = TypeVar("Item", bound=Model)

# A merged run may hold two versions of a script. Those of a bisection are stored again and again.
_CELLS = """
create table cells (
    environment text, name text, source text, outcome text, expected integer, failed integer,
    simply_passed integer,
    primary key (environment, name, source)
) without rowid;
"""
_TESTS_TO_SHOW = """
select name, count(*) from cells group by name having not min(simply_passed) order by sum(not expected) desc, name
"""
MOST_SHOWN = 100_000  # cells that a command reads to show them: some 6 kB of memory each
_PATHS = ("stdout", "stderr", "stacks")  # of an attempt, each below its folder
OPEN = ".open"  # the file of a run that has its writer's mark in it, until the writer ends
_FILES = ("records", "cells", "environments", "scenarios")  # the .jsonl files of a run
_MARKS = {  # what keeps a new state folder out of backups and of git
    "CACHEDIR.TAG": "Signature: 8a477f597d28d172789f06886806bc55\n# made by whichtorch; see https://bford.info/cachedir/\n",
    ".gitignore": "*\n",
}
_ELSEWHERE = "set WHICHTORCH_HOME to a folder on a disk with room that you may write to"


def state_folder(tell: Callable[[str], object] = lambda _: None) -> Path:
    """Make and return the state folder; `tell` is called with a sentence if it is new.

    It is $WHICHTORCH_HOME, else `state` of the user's own matrix file, else the .whichtorch of this folder or of the
    nearest parent that has one, else the user's cache folder. Another user's .whichtorch does not count, because its
    interpreters would be run. Raises PreventedError if it is unwritable.
    """
    here = Path.cwd()
    named, kept = os.environ.get("WHICHTORCH_HOME"), (folder / ".whichtorch" for folder in (here, *here.parents))
    home = named or _own_state() or next(filter(_is_own, kept), None) or user_cache_path("whichtorch")
    home = Path(home).absolute()
    try:
        home.mkdir(parents=True, exist_ok=True)
        if not any(home.iterdir()):
            for name, text in _MARKS.items():
                (home / name).write_text(text, encoding="utf-8")
            tell(f"environments and runs are kept in {home}; WHICHTORCH_HOME names another folder")
        with tempfile.TemporaryFile(dir=home):
            pass
    except OSError as error:
        raise PreventedError(f"cannot write to {home}: {error.strerror}", hint=_ELSEWHERE) from error
    return home


def _own_state() -> Path | None:
    state = read_matrix_file(path).state if (path := own_file()) else None
    return state.resolve() if state else None


def _is_own(path: Path) -> bool:
    with suppress(OSError):
        return path.stat().st_uid == os.getuid()
    return False


class CellLine(Model):
    """A line of cells.jsonl."""

    place: int  # the cell's index in the plan
    records: tuple[str, ...]  # keys of the records it rests on
    cell: Cell


LEFT_OUT = {"samples", "machine"}  # of a number, in the index


def _numbers_text(cell: Cell) -> str | None:
    """Return the numbers of a cell in JSON, without their samples: a year of nights is read at once."""
    return json.dumps([number.model_dump(exclude=LEFT_OUT) for number in cell.numbers]) if cell.numbers else None


CELLS = LineKind(
    "cells",
    CellLine,
    {
        "environment": lambda line: line.cell.environment,
        "name": lambda line: line.cell.name,
        "source": lambda line: line.cell.source_hash,
        "outcome": lambda line: line.cell.outcome.name,
        "numbers": lambda line: _numbers_text(line.cell),
    },
    "create index by_name on lines (name, file);",
)
ENVIRONMENTS = LineKind(
    "environments",
    Environment,
    {
        "environment": lambda environment: environment.id,
        "label": lambda environment: environment.label,
        "torch": lambda environment: environment.torch,
    },
    "create index by_environment on lines (environment);",
)


class RunStore:
    """The folder of one run. Everything it writes is redacted."""

    def __init__(self, folder: Path, run: Run) -> None:
        self.folder = folder
        self.run = run
        self.redactor = Redactor.of_this_machine()
        self._lock = threading.Lock()
        self._attempts = 0
        self._scenarios: set[str] = set()  # source hashes of those written
        self._cells = scratch_database(self, _CELLS)
        try:
            (folder / "attempts").mkdir(parents=True)
            self._files = {name: (folder / f"{name}.jsonl").open("a", encoding="utf-8") for name in _FILES}
            with suppress(OSError):  # a file system without locks
                fcntl.flock(self._files["records"], fcntl.LOCK_EX | fcntl.LOCK_NB)  # it is freed with this process
            write_run(folder, run, self.redactor)
            (folder / OPEN).write_text(mark_for(folder, ""), encoding="utf-8")
        except OSError as error:
            raise PreventedError(f"cannot write to {folder}: {error.strerror}", hint=_ELSEWHERE) from error

    def attempt_folder(self) -> Path:
        """Make and return the folder of the next attempt."""
        with self._lock:
            self._attempts += 1
            folder = self.folder / "attempts" / f"{self._attempts:05d}"
        folder.mkdir()
        return folder

    def path_of(self, folder: Path) -> str:
        """Return the path of an attempt's folder, relative to the state folder."""
        return f"runs/{self.run.id}/attempts/{folder.name}"

    def add_record(self, record: Record) -> None:
        """Append a record."""
        self._append("records", record)

    def add_cell(self, cell: Cell, keys: list[str], index: int = 0) -> None:
        """Append a cell with the keys of the records it rests on and its index in the plan."""
        simply_passed = cell.outcome is Outcome.PASS and cell.expected and cell.doubt is None
        told = cell.outcome.name, cell.expected, cell.has_failed, simply_passed
        row = cell.environment, cell.name, cell.source_hash, *told
        with self._lock:
            self._cells.execute("insert or replace into cells values (?, ?, ?, ?, ?, ?, ?)", row)
        self._append("cells", CellLine(place=index, records=tuple(keys), cell=cell))

    def has(self, attempt: Attempt) -> bool:
        """Return whether an attempt was made in this run."""
        return attempt.stdout.startswith(f"runs/{self.run.id}/")

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

    def stored(self) -> StoredRun:
        """Return what is stored of the run by now."""
        return RunFolder(folder=self.folder, run=self.run).read()

    def shown(self) -> StoredRun:
        """Return what a command shows of the run: of more than MOST_SHOWN cells, those of tests that do not just pass.

        The tests with the most unexpected cells are taken first, and no more than have MOST_SHOWN cells.
        """
        tally = Counter(self.tally)
        if tally.total() <= MOST_SHOWN:
            return self.stored()
        with self._lock:
            tests = self._cells.execute(_TESTS_TO_SHOW).fetchall()
        totals = accumulate(count for _, count in tests)
        names = {
            self.redactor.text(name) for (name, _), total in zip(tests, totals, strict=True) if total <= MOST_SHOWN
        }
        shown = RunFolder(folder=self.folder, run=self.run).read(names)
        tally.subtract((cell.outcome, cell.expected) for cell in shown.result.cells)
        return replace(shown, left_out=dict(+tally))

    @property
    def tally(self) -> dict[tuple[Outcome, bool], int]:
        """How many cells have each outcome, expected or not, as they were stored last."""
        with self._lock:
            rows = self._cells.execute("select outcome, expected, count(*) from cells group by outcome, expected")
            return {(Outcome[outcome], bool(expected)): count for outcome, expected, count in rows}

    @property
    def failed(self) -> bool:
        """Whether some cell is red, and no scenario expects it."""
        with self._lock:
            return bool(self._cells.execute("select 1 from cells where failed limit 1").fetchone())

    def finish(self, run: Run) -> None:
        """Write how the run ended."""
        outcomes: Counter[Outcome] = Counter()
        unexpected = 0
        for (outcome, is_expected), count in self.tally.items():
            outcomes[outcome] += count
            unexpected += 0 if is_expected else count
        self.run = run.model_copy(update={"ended": True, "outcomes": dict(outcomes), "unexpected": unexpected})
        write_run(self.folder, self.run, self.redactor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        for file in self._files.values():
            file.close()
        if error is None:  # otherwise attempts may not have ended
            (self.folder / OPEN).unlink(missing_ok=True)

    def _append(self, name: str, item: Model) -> None:
        redacted = self.redactor.json_line(item.model_dump_json(by_alias=True))
        with self._lock:
            self._files[name].write(redacted + "\n")
            self._files[name].flush()


def write_run(folder: Path, run: Run, redactor: Redactor) -> None:
    """Write run.json, redacted: completely or not at all."""
    write_atomic(folder / "run.json", redactor.json_line(run.model_dump_json(indent=1)) + "\n")


def new_run(home: Path, command: tuple[str, ...], planned: int = 0) -> RunStore:
    """Make the folder of a new run with `planned` cells. Run ids sort by the time of their start."""
    started = datetime.now(UTC)
    id_ = f"{started:%Y%m%d-%H%M%S}-{started.microsecond:05x}{secrets.randbelow(16):x}"  # five hex digits are a million
    run = Run(id=id_, started=started.isoformat(timespec="seconds"), home=str(home), command=command, planned=planned)
    return RunStore(home / "runs" / id_, run)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRun:
    """A whole run, stored here or on another machine."""

    folder: Path
    result: Result
    left_out: Mapping[tuple[Outcome, bool], int] = field(default_factory=dict)  # cells that the result lacks

    def file(self, path: str) -> Path | None:
        """Return where an attempt's file lies: in this run's folder, wherever that is now, or in a run beside it.

        None where that leads out of these folders, by its path or by a link: a run from elsewhere may say anything.
        """
        own, home = f"runs/{self.result.run.id}/", self.folder.parent.parent
        file = self.folder / path.removeprefix(own) if path.startswith(own) else home / path
        return file if path and _is_plain(file, self.folder, home / "runs") else None

    def log(self, environment: Environment) -> Path | None:
        """Return the log of an environment that could not be made; None where it is not in the run's state folder."""
        log, home = environment.log and environment.log.expanduser(), self.folder.parent.parent
        return log if log and _is_plain(log, home / "envs", home / "cache") else None


def _is_plain(file: Path, *folders: Path) -> bool:
    """Return whether a path stays within the given folders, and is a regular file, a folder, or missing."""
    try:
        place = file.resolve()
        is_within = any(place.is_relative_to(folder.resolve()) for folder in folders)
        return is_within and (place.is_file() or place.is_dir() or not place.exists())
    except (OSError, ValueError, RuntimeError):  # a loop of links, a null in a name
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFolder:
    """A run's folder and its run.json, without its cells."""

    folder: Path
    run: Run

    @property
    def is_running(self) -> bool:
        """Whether a process has the run open."""
        return is_open(self.folder)

    def read(self, names: Collection[str] | None = None) -> StoredRun:
        """Return the run in the order of the plan, each cell as it was stored last: all, or only those with a name."""
        folder = self.folder
        scenarios = {scenario.source_hash: scenario for scenario in read_lines(folder / "scenarios.jsonl", Scenario)}
        known = {environment.id: environment for environment in read_lines(folder / "environments.jsonl", Environment)}
        # by source hash, too: a merged run may hold two versions of a script
        cells: dict[tuple[str, str, str], tuple[int, Cell]] = {}
        for line in read_lines(folder / "cells.jsonl", CellLine):
            if names is None or line.cell.name in names:
                cells[line.cell.environment, line.cell.name, line.cell.source_hash] = line.place, line.cell
        ordered = [cell for _, cell in sorted(cells.values(), key=lambda pair: pair[0])]
        environments = {cell.environment: unknown_environment(cell.environment) for cell in ordered} | known
        result = Result(
            run=self.run,
            scenarios=tuple(scenarios.values()),
            environments=tuple(environments.values()),
            cells=tuple(ordered),
        )
        return StoredRun(folder=folder, result=result)


def is_open(folder: Path) -> bool:
    """Return whether a process writes a run; False where its file system, or a copy of the folder, has no locks."""
    with suppress(FileNotFoundError), (folder / "records.jsonl").open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:
            return isinstance(error, BlockingIOError)
    return False


def unknown_environment(id_: str) -> Environment:
    """Return a stand-in for an environment that was not written because the tool was killed, so its cells are shown."""
    return Environment(id=id_, label=id_, torch="unknown", python="unknown", build="unknown", config="unknown")


def read_environments(home: Path) -> dict[str, Environment]:
    """Return the environments of all runs below `home` by id, each as the latest run describes it, latest last."""
    return LineIndex(ENVIRONMENTS, home).latest("environment")


def read_lines(path: Path, kind: type[Item]) -> Iterator[Item]:
    """Yield the readable lines of a file; none where the file is missing.

    A line torn by a kill and a line of a later schema are left out.
    """
    with suppress(FileNotFoundError), path.open("rb") as file:
        for line in file:
            with suppress(ValidationError):
                yield kind.model_validate_json(line)


def folder_of(attempt: Attempt) -> str:
    """Return the folder that an attempt's files lie in, relative to a state folder; "" where it has none."""
    return str(PurePosixPath(attempt.stdout).parent) if attempt.stdout else ""


def with_folder(attempt: Attempt, new: str) -> Attempt:
    """Return an attempt with its files in another folder, which is relative to a state folder, too."""
    old = folder_of(attempt)
    paths = {name: getattr(attempt, name) for name in _PATHS}
    moved = {name: path.replace(old, new, 1) for name, path in paths.items() if path.startswith(f"{old}/")}
    return attempt.model_copy(update=moved)


def without_files(attempt: Attempt) -> Attempt:
    """Return an attempt without its files."""
    return attempt.model_copy(update=dict.fromkeys(_PATHS, ""))


def clear_left_behind(home: Path) -> None:
    """End and remove what killed tools with this state folder have left."""
    sweep_left_behind(home)
    remove_left_behind()
    remove_partial(home)
    for mark in home.glob(f"runs/*/{OPEN}"):
        with suppress(OSError):
            if owner_is_dead(mark.read_text(encoding="utf-8")) and not is_open(mark.parent):
                _remove_unfinished(mark.parent)
                mark.unlink()


def _remove_unfinished(run: Path) -> None:
    """Remove a run's unrecorded attempts, whose files may not be redacted, and its copies of a project."""
    folders = (PurePosixPath(folder_of(record.attempt)) for record in read_lines(run / "records.jsonl", Record))
    recorded = {part for folder in folders for part in folder.parts[3:4]}  # runs/ID/attempts/ATTEMPT, and what is in it
    for attempt in run.glob("attempts/*"):
        for folder in (attempt / "tmp", attempt / "project") if attempt.name in recorded else (attempt,):
            shutil.rmtree(folder, ignore_errors=True)
    for copy in run.glob("project-*"):
        shutil.rmtree(copy, ignore_errors=True)
