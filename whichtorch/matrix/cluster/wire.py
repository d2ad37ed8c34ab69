"""What goes over the wire: a batch of cells to a worker, what happens there, and its delivery with the files."""

import base64
import hashlib
import io
import tarfile
import threading
from collections.abc import Callable, Iterable
from dataclasses import fields
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path, PurePosixPath
from typing import Any, Self

from pydantic import Field

from whichtorch.base.atomic_files import write_atomic
from whichtorch.base.errors import UsageError
from whichtorch.matrix.planning import RunOptions
from whichtorch.matrix.variation import Variation
from whichtorch.matrix.work import CellEnd, Machine
from whichtorch.model import (
    SCHEMA,
    Attempt,
    AttemptEvidence,
    Environment,
    Model,
    ProjectCommand,
    Record,
    Request,
    Scenario,
    digest,
)
from whichtorch.model.events import AttemptEnded, AttemptStarted, EnvironmentStage, Event
from whichtorch.records.store import RunStore, folder_of, with_folder, without_files
from whichtorch.suite import project
from whichtorch.suite.companions import companions_of

MOST_BYTES = 5_000_000  # of what comes with a script, or of a packed project: it travels with each batch
_PROJECT = "project.tar.gz"
WorkerEvent = dict[str, Any]  # an event, as JSON can hold it
# what an environment was resolved to on the first worker that made it, and notes on that; the others install the same
SharedLock = tuple[str, tuple[str, ...]]


class ScriptFiles(Model):
    """A scenario with the contents of its files, by their names.

    These are the script and its native sources; of a user's script the modules beside it that it imports, too, and
    files that it names. A command comes with an archive of its project.
    """

    scenario: Scenario
    files: dict[str, str]  # base64

    @classmethod
    def of(cls, scenario: Scenario, home: Path) -> Self:
        """Read the files of a scenario; raises UsageError for a command whose project cannot be sent."""
        if scenario.command is not None:
            packed = base64.b64encode(_packed_project(scenario.command, home)).decode()
            return cls(scenario=scenario, files={_PROJECT: packed})
        paths = {name: scenario.path.parent / name for name in (scenario.path.name, *scenario.native)}
        if not scenario.in_suite:
            paths |= companions_of(scenario, scenario.folder or Path.cwd(), MOST_BYTES)
        files = {name: base64.b64encode(path.read_bytes()).decode() for name, path in paths.items()}
        return cls(scenario=scenario, files=files)

    def laid(self, home: Path) -> Scenario:
        """Write the files into a state folder, and return the scenario with its script or project there."""
        if (command := self.scenario.command) is not None:
            project.keep_packed(home, command.project, base64.b64decode(self.files[_PROJECT]))
            return self.scenario.model_copy(update={"path": project.kept_copy(home, command.project)})
        own = home / "cluster" / "scripts" / digest(self.files, 20)  # the same script may come with another module
        for name, text in self.files.items():
            path = own / name
            if not path.exists():
                write_atomic(path, base64.b64decode(text))
        path, native = own / self.scenario.path.name, self.scenario.native
        data = tuple(name for name in self.files if not (name.endswith(".py") or name in native))
        # no user is here whose folder it could run in
        return self.scenario.model_copy(update={"path": path, "in_suite": True, "data": data})


def _packed_project(command: ProjectCommand, home: Path) -> bytes:
    """Return the files of a command's project as an archive. Raises UsageError for what cannot be sent."""
    if command.in_place:
        hint = "leave out --in-place: each worker runs the command in its own copy of the project"
        raise UsageError("--in-place does not work on a cluster", hint=hint)
    packed = project.pack_kept(home, command.project, MOST_BYTES)
    if packed is None:
        hint = "list what the command does not need in .gitignore, or leave out --executor"
        most = f"{MOST_BYTES / 1e6:.0f} MB"
        raise UsageError(f"the packed project is larger than {most}, the most that is sent to a worker", hint=hint)
    return packed


class OrderedCell(Model):
    """A cell of a batch."""

    position: int  # in the plan of the client's step
    source_hash: str  # of its script
    variant: dict[str, str]
    only: tuple[str, ...] | None = None  # ids of the command's tests that are to be run


class BatchRequest(Model):
    """An environment with some of its cells; without cells it is only to be made ready."""

    id: str  # of the batch
    run: str  # of the client
    request: Request
    options: RunOptions
    cells: tuple[OrderedCell, ...] = ()
    trial: Variation | None = None  # of its one cell; None: its cells get the attempts that they need
    fork_levels: tuple[str, ...] = ()  # as in `Batch`
    scripts: tuple[ScriptFiles, ...] = ()
    known: tuple[Record, ...] = ()  # of the client's, that bear on these cells
    lock: SharedLock | None = None


class Delivery(Model):
    """What came of a batch. Cells that are missing were not done: the worker was asked to stop."""

    environment: Environment | None  # None where the worker was asked to stop before it was there
    lock: SharedLock | None = None  # that the environment was made from
    requires: dict[str, tuple[str, ...]] = Field(default_factory=dict)  # by package; only if there are no cells
    ends: tuple[CellEnd, ...] = ()
    events: tuple[WorkerEvent, ...] = ()  # the last ones


class WorkerFacts(Model):
    """What a worker says of itself when it joins."""

    code: str  # `code_version`
    machine: Machine
    home: str  # its state folder
    slots: int
    ptrace: str = ""  # why the stacks of processes cannot be read there, "" where they can

    @property
    def host(self) -> str:
        """What two workers share that work on one state folder."""
        return f"{self.machine.host}:{self.home}"


@lru_cache(maxsize=1)
def code_version() -> str:
    """Return what client and worker must have in common: the release, the schema, and the code itself."""
    try:
        release = version("whichtorch")
    except PackageNotFoundError:
        release = "0"
    folder = Path(__file__).parents[2]
    contents = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        contents.update(str(path.relative_to(folder)).encode() + path.read_bytes())
    return f"{release}, schema {SCHEMA}, code {contents.hexdigest()[:8]}"


DELIVERY = "delivery.json"


def pack(delivery: str, records: Iterable[Record], home: Path) -> bytes:
    """Return a delivery and the folders of its records' attempts as one gzipped tar archive."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=1) as archive:
        text = delivery.encode()
        header = tarfile.TarInfo(DELIVERY)
        header.size = len(text)
        archive.addfile(header, io.BytesIO(text))
        packed: set[PurePosixPath] = set()  # the tests of a command have theirs in the command's
        for folder in map(PurePosixPath, dict.fromkeys(folder_of(record.attempt) for record in records)):
            if (home / folder).is_dir() and folder.name and packed.isdisjoint(folder.parents):
                archive.add(home / folder, arcname=str(folder), filter=_plain)
                packed.add(folder)
    return buffer.getvalue()


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Leave out all that is neither a file nor a folder, and who owned it."""
    if not (member.isfile() or member.isdir()):
        return None
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


class Parcel:
    """A packed delivery that has arrived."""

    def __init__(self, data: bytes) -> None:
        self._archive = tarfile.open(fileobj=io.BytesIO(data), mode="r:gz")  # noqa: SIM115  closed with the parcel
        self._folders: dict[str, str] = {}  # here, of the attempts whose files were moved, by those there
        file = self._archive.extractfile(DELIVERY)
        assert file is not None
        self.delivery = file.read()

    def close(self) -> None:
        """Forget the data."""
        self._archive.close()

    def moved(self, record: Record, store: RunStore) -> Record:
        """Return a record with the files of its attempt in a run; without them where they did not come."""
        attempt = record.attempt
        folder = self._moved_folder(folder_of(attempt), store)
        moved = with_folder(attempt, folder) if folder else without_files(attempt)
        return record.model_copy(update={"attempt": moved})

    def _moved_folder(self, old: str, store: RunStore) -> str:
        """Return the folder of an attempt in a run, "" where none came; the tests of a command share the command's."""
        for shared in map(str, (PurePosixPath(old), *PurePosixPath(old).parents)):
            if shared in self._folders:
                return self._folders[shared] + old.removeprefix(shared)
        members = [member for member in self._archive.getmembers() if member.name.startswith(f"{old}/")] if old else []
        if not members:
            return ""
        folder = store.attempt_folder()
        for member in members:
            inside = member.replace(name=member.name.removeprefix(f"{old}/"), deep=False)
            self._archive.extract(inside, folder, filter="data")
        store.redactor.tree(folder)
        self._folders[old] = store.path_of(folder)
        return self._folders[old]


GATHERED = 0.2  # seconds for which events wait for more: a message costs as much as a short cell
_SENT = {
    kind.__name__: kind for kind in (EnvironmentStage, AttemptStarted, AttemptEnded)
}  # the client makes the others


class EventSender:
    """Sends what happens in a batch, a few events at a time; what is left at the end goes with the delivery."""

    def __init__(self, send: Callable[[list[WorkerEvent]], None]) -> None:
        self._send = send
        self._lock = threading.Lock()  # of all below
        self._gathered: list[WorkerEvent] = []
        self._timer: threading.Timer | None = None

    def __call__(self, event: Event) -> None:
        """Take in an event, from any thread."""
        if type(event).__name__ not in _SENT:
            return
        with self._lock:
            self._gathered.append(encoded(event))
            if self._timer is None:
                self._timer = threading.Timer(GATHERED, self._flush)
                self._timer.daemon = True
                self._timer.start()

    def rest(self) -> tuple[WorkerEvent, ...]:
        """Return what was not sent, and send no more."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            left, self._gathered = tuple(self._gathered), []
            return left

    def _flush(self) -> None:
        with self._lock:
            gathered, self._gathered, self._timer = self._gathered, [], None
            if gathered:
                self._send(gathered)


def encoded(event: Event) -> WorkerEvent:
    """Return an event as JSON can hold it, without what is long and shown only at the end."""
    values = {field.name: getattr(event, field.name) for field in fields(event)}
    if isinstance(event, AttemptEnded):
        brief = event.attempt.model_copy(update={"diagnosis": None, "evidence": AttemptEvidence()})
        values["attempt"] = brief.model_dump_json(by_alias=True)
    return {"kind": type(event).__name__, **values}


def decoded(sent: WorkerEvent, host: str) -> Event:
    """Return the event that a worker on `host` sent."""
    kind, values = _SENT[sent["kind"]], {name: value for name, value in sent.items() if name != "kind"}
    if kind is AttemptEnded:
        return AttemptEnded(**values | {"attempt": Attempt.model_validate_json(values["attempt"])})
    return kind(**values | {"host": host})
