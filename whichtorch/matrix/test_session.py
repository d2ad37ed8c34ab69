"""What the pytest of a command told of its tests, by the plugin `inside/startup/whichtorch_tests.py`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePath

from pydantic import Field, ValidationError

from whichtorch.base.redaction import ESCAPES
from whichtorch.failures.failure import Signature, place_of
from whichtorch.failures.tracebacks import read_crash, read_frames
from whichtorch.failures.verdict import Verdict
from whichtorch.model import OpenModel, Outcome

FOLDER = "tests"  # of an attempt: what its pytest is told, and what it tells
EVENTS = "tests.jsonl"
VARIABLE = "WHICHTORCH_TESTS"
_OUTCOMES = {  # as the plugin calls them
    "pass": (Outcome.PASS, ""),
    "xfail": (Outcome.PASS, "expected to fail"),
    "xpass": (Outcome.PASS, "passes, though it is marked as expected to fail"),
    "skip": (Outcome.SKIP, ""),
    "fail": (Outcome.FAIL, ""),
}
COMPLETE = {0, 1}  # exit statuses of pytest: all that it was asked for has run
NOTHING_COLLECTED = 5  # exit status of pytest


class TestEvent(OpenModel):
    """A line of the plugin."""

    event: str = ""
    pid: int = 0
    id: str = ""
    at: float = 0
    ids: tuple[str, ...] = ()
    outcome: str = ""
    seconds: float = 0
    reason: str = ""
    traceback: str = ""
    stdout: str = ""
    stderr: str = ""
    workers: int = 0
    root: str = "."
    max_failures: int = Field(default=0, validation_alias="maxfail")
    code: int | None = None
    status: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedTest:
    """A test that has ended by itself."""

    id: str
    outcome: Outcome
    seconds: float
    note: str
    traceback: str  # below what the test wrote to stderr: a program that it started may have failed
    stdout: str
    stderr: str
    after: str  # id of the test that ended before it in the same process; "" for none


@dataclass(slots=True)
class TestSession:
    """One process of pytest, with its workers."""

    ids: tuple[str, ...] = ()  # what the command selects, in order
    ended: list[EndedTest] = field(default_factory=list)
    # processes and ids of tests that have not ended -> ids of those before them
    begun: dict[tuple[int, str], str] = field(default_factory=dict)
    unfinished: set[int] = field(default_factory=set)  # processes of pytest that have not come to their end
    exits: dict[int, TestEvent] = field(default_factory=dict)  # by process: who called `os._exit`
    last: dict[int, str] = field(default_factory=dict)  # by process: id of the test that ended last
    internal: str = ""  # the traceback of an error within pytest
    workers: int = 0
    root: str = ""  # what ids are relative to, from the folder where it was started; "" before it has begun
    max_failures: int = 0  # pytest stops after this many; 0: no limit
    code: int | None = None  # pytest's exit status; None if it was stopped

    @property
    def running(self) -> dict[str, str]:
        """Ids of the tests that have not ended, with the tests before them."""
        return {id_: after for (_, id_), after in self.begun.items()}

    def traceback_of(self, id_: str) -> str:
        """Return the traceback of a test. If it never started, or for "", return that of the first failure."""
        if id_ in self.running:
            return ""
        own = [test.traceback for test in self.ended if test.id == id_]
        return next(filter(None, own or (test.traceback for test in self.ended)), self.internal)

    @property
    def is_over(self) -> bool:
        """Whether it had as many failures as it may; a test that has not ended is one."""
        failed = sum(test.outcome is Outcome.FAIL for test in self.ended) + len(self.running)
        return 0 < self.max_failures <= failed

    def outcome_of(self, id_: str) -> Outcome | None:
        """Return the outcome of a test, a red one if it ran in several processes; None where it has not ended."""
        outcomes = [test.outcome for test in self.ended if test.id == id_]
        return next((outcome for outcome in outcomes if outcome.is_red), next(iter(outcomes), None))

    def lost(self, id_: str, exit_code: int | None, stderr: str) -> Verdict | None:
        """Return the verdict on a test, or on the whole command for "", that ended its process; None where none did.

        `exit_code` is that of the command. A test that did not end, and a pytest that did not, have no word of pytest.
        """
        tests = self.running.keys() & {id_} if id_ else self.running.keys()
        is_unheard = bool(id_) and exit_code == 0 and self.outcome_of(id_) is None
        if not (tests or self.unfinished or is_unheard):
            return None
        pids = [pid for pid, test in self.begun if test in tests] or self.unfinished
        told = next((self.exits[pid] for pid in pids if pid in self.exits), None)
        code = told.status if told else None if self.workers else exit_code
        frames = read_frames(told.traceback) if told else read_crash(stderr)
        places = [f", at {PurePath(frame.file).name}:{frame.line}" for frame in frames if frame.is_users]
        how = "" if code is None else f", exit code {code}"
        said = f"{'the test' if tests or id_ else 'something'} ended its process{how}{''.join(places[:1])}"
        signature = Signature(how[2:] or "ended its process", place_of(frames))
        return Verdict(outcome=Outcome.CRASH, signature=str(signature), note=said)

    def take(self, event: TestEvent) -> None:
        """Take in a line of the plugin."""
        if event.event == "session":
            self.workers, self.root, self.max_failures = event.workers, event.root, event.max_failures
        elif event.event == "begin":
            self.unfinished.add(event.pid)
        elif event.event == "exit":
            self.exits[event.pid] = event
        elif event.event == "internal":
            self.internal = self.internal or event.traceback
        elif event.event == "collected":
            self.ids = (*self.ids, *event.ids)
        elif event.event == "start":
            self.begun[event.pid, event.id] = self.last.get(event.pid, "")
        elif event.event in {"over", "finish"}:
            self.code = self.code if event.code is None else event.code
            self.unfinished.discard(event.pid)
        elif event.event in {"end", "uncollected"}:
            if event.event == "uncollected":
                self.ids = (*self.ids, event.id)
            self.begun.pop((event.pid, event.id), None)
            outcome, words = _OUTCOMES.get(event.outcome, (Outcome.ERROR, f"pytest says {event.outcome!r}"))
            ended = EndedTest(
                id=event.id,
                outcome=outcome,
                seconds=event.seconds,
                note=": ".join(filter(None, (words, ESCAPES.sub("", event.reason)))),
                traceback=event.traceback and f"{event.stderr}\n{event.traceback}",
                stdout=event.stdout,
                stderr=event.stderr,
                after=self.last.get(event.pid, ""),
            )
            self.ended.append(ended)
            if event.event == "end":
                self.last[event.pid] = event.id


def write_selection(folder: Path, *, only: Sequence[str] | None, skip: Sequence[str]) -> dict[str, str]:
    """Write which tests a command's pytest is to run; return the variable that makes it report them."""
    own = folder / FOLDER
    own.mkdir()
    selection = {"only": only if only is None else list(only), "skip": list(skip)}
    (own / "selection.json").write_text(json.dumps(selection), encoding="utf-8")
    return {VARIABLE: str(own)}


def read_session(folder: Path) -> TestSession | None:
    """Return what the pytest of an attempt told; None where no pytest told anything."""
    events = list(test_events(folder / FOLDER))
    session = TestSession()
    for event in events:
        session.take(event)
    return session if events else None


def test_events(folder: Path) -> Iterator[TestEvent]:
    """Yield what each pytest has written of its tests into a folder."""
    with suppress(FileNotFoundError), (folder / EVENTS).open(encoding="utf-8", errors="replace") as file:
        for line in file:
            with suppress(ValidationError):  # torn by a kill, or not yet whole
                yield TestEvent.model_validate_json(line)
