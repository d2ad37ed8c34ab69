"""A command in an environment: run its pytest until each of its tests has an outcome of its own.

A test that hangs or crashes takes its process with it; the others go on in a new one. What went wrong after other tests
is run again alone, as any cell is, since what ran before it may be the cause.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock

from whichtorch.base.errors import NoCommandError
from whichtorch.base.grouping import counted
from whichtorch.base.redaction import ESCAPES
from whichtorch.failures.verdict import judge
from whichtorch.matrix.attempt import WITHIN_PYTEST, once_more, ran_in_changed, record_of, run_attempt
from whichtorch.matrix.judgement import counting, is_settled
from whichtorch.matrix.test_session import COMPLETE, FOLDER, EndedTest, TestSession, read_session
from whichtorch.matrix.variation import AttemptRequest
from whichtorch.matrix.work import CellEnd
from whichtorch.model import (
    NOT_TAKEN,
    Attempt,
    AttemptEvidence,
    Outcome,
    ProjectCommand,
    Record,
    SharedProcess,
    StoppedBy,
    digest,
    lasting_records,
)
from whichtorch.model.events import AttemptEnded, AttemptStarted
from whichtorch.process.supervision import Ending
from whichtorch.suite import project

_NEEDS_TERMINAL = re.compile(
    r"\bnot (?:from |to )?a (?:tty|terminal)\b|failed tty get|opening terminal|Inappropriate ioctl for device",
    re.IGNORECASE,
)
_AT_ONCE = 20.0  # seconds
_NOT_STARTED = re.compile(r"could not start: \[Errno (?:2|8|13)\]")  # no file, no program, or not to be run
_MISUSE = re.compile(  # what a program says of how it was called: argparse, in its own words, and Python
    r"(?:\S+ -m )?(\S+): error: (?:unrecognized arguments|the following arguments are required|ambiguous option"
    r"|argument \S+: (?:expected|invalid)).*|\S+: can't open file '(.+)': \[Errno 2\].*"
    r"|\S*python\S*: No module named (?!torch\b)(\S+)"
)
_PYTEST_MISUSE = re.compile(r"\S+: error: .+|ERROR: (?!usage: ).+")
_USAGE_CODE, _NOT_FOUND_CODE = 4, 127  # of pytest, and of a shell

if TYPE_CHECKING:
    from whichtorch.matrix.cell_runner import CellRunner, ReadyCell
    from whichtorch.matrix.planning import PlannedCell


@dataclass
class CommandCell:
    """A command that is run now."""

    site: CellRunner
    ready: ReadyCell
    command: ProjectCommand
    copy: Path  # of the project, or the user's own folder
    ids: dict[str, None] = field(default_factory=dict)  # of the tests that pytest has collected, in order
    tests: dict[str, list[Record]] = field(default_factory=dict)  # of each test, by its id
    to_rerun: dict[str, SharedProcess] = field(default_factory=dict)  # ids of tests that are to be run alone
    seen: dict[str, Record] = field(default_factory=dict)  # of these, in the process of the others, by id
    causes: dict[str | None, str] = field(default_factory=dict)  # signatures of failures -> a test that fails so alone

    @property
    def folder(self) -> Path:
        """Where it is started."""
        return self.copy if self.command.in_place else self.copy / self.command.subfolder

    @property
    def planned(self) -> PlannedCell:
        """The command as a cell."""
        return self.ready.planned

    def run(self) -> CellEnd | None:
        """Run it to its end; None if it was interrupted."""
        own = self._recall()
        for _ in range(self.planned.options.repeat):
            if own is not None and self._is_done():
                break
            own = once_more(self._round)
            if own is None:
                return None
            self.site.keep(own)  # before what is run alone, which may be interrupted
            if own.attempt.evidence.tests is None:  # no pytest: a cell as any, and its first attempt is made
                return self.site.run_cell(self.ready, made=(own,))
        for id_, shared in self.to_rerun.items():
            if self._fails_like_another(id_):
                continue
            test = replace(self.ready, planned=self.planned.of_test(id_), shared=shared)
            end = self.site.run_cell(test, made=self.tests.get(id_, ()))
            if end is None:
                return None
            self.tests[id_] = list(end.records)
            if id_ in self.seen and {record.signature for record in end.records} == {self.seen[id_].signature}:
                self.causes[self.seen[id_].signature] = id_
        assert own is not None
        tests = {id_: tuple(self.tests[id_]) for id_ in self._asked_for() if id_ in self.tests}
        return CellEnd(position=self.ready.position, records=(own,), tests=tests)

    def _fails_like_another(self, id_: str) -> bool:
        """Keep what came of a test among others, if one that failed like it there fails so alone, too.

        Of hundreds of tests that fail for one cause, such as a fixture, one is run again.
        """
        record = self.seen.get(id_)
        if record is None or record.attempt.outcome is not Outcome.FAIL or record.signature not in self.causes:
            return False
        note = f"fails like {self.causes[record.signature]}, which fails so alone, too"
        self.tests.setdefault(id_, []).append(_with_attempt(record, record.signature, note=note))
        self.site.keep(self.tests[id_][-1])
        return True

    def _asked_for(self) -> list[str]:
        """Return the ids of the tests that are to be run."""
        return list(filter(self.planned.scenario.asks_for, self.ids))

    def _is_settled(self, id_: str) -> bool:
        return is_settled(self.planned.of_test(id_), self.tests.get(id_, ()))

    def _is_done(self) -> bool:
        """Return whether nothing is left to run; a test that is to be run alone counts as done."""
        return all(id_ in self.to_rerun or self._is_settled(id_) for id_ in self._asked_for())

    def _recall(self) -> Record | None:
        """Take in what records know of the tests in this environment; return the command's own last record there."""
        planned, records, environment = self.planned, self.site.records, self.ready.environment
        if planned.options.fresh:
            return None
        own: Record | None = None
        for record in lasting_records(records.of(planned.key(environment))):
            if tests := record.attempt.evidence.tests:
                own, self.ids = record, self.ids | dict.fromkeys(tests)
        for scenario in records.tests_of(planned.scenario, planned.variant):
            test = replace(planned, scenario=scenario)
            if known := counting(test, records.of(test.key(environment)), environment):
                self.tests[test.scenario.name] = list(known)
        return own

    def _round(self) -> Record | None:
        """Run each test that is not settled once; return the record of the command, None if it was interrupted."""
        done = set(filter(self._is_settled, self.tests))
        while True:
            made = self._session(sorted(done))
            if made is None:
                return None
            record, session = made
            if not self.ids and not (session and session.ids):
                self._check_usage(record, session)
            if not self.ids and not (session and session.root):
                return _with_facts(record, written=self._written(record))
            session = session or TestSession()
            self.ids |= dict.fromkeys(session.ids)
            begun = {*(test.id for test in session.ended), *session.running} - done
            self._keep_results(session, record, begun)
            done |= begun
            left = [id_ for id_ in self._asked_for() if id_ not in done]
            has_ended = session.code is not None and not session.running
            if not (left and begun) or session.is_over or has_ended:
                return self._command_record(record, session, left)

    def _check_usage(self, record: Record, session: TestSession | None) -> None:
        """Raise NoCommandError where the command was not taken: its program, its script or its options are wrong."""
        stderr = (self.site.environments.home / record.attempt.stderr).read_text(encoding="utf-8", errors="replace")
        if said := misuse(self.command.words, record.attempt, stderr, runs_pytest=session is not None):
            raise NoCommandError(f"{said}{NOT_TAKEN}")

    def _session(self, skip: Sequence[str]) -> tuple[Record, TestSession | None] | None:
        """Run the command once, without some of its tests; None where it was interrupted."""
        planned, environment = self.planned, self.ready.environment
        site, folder = self.site, self.site.store.attempt_folder()

        def hung_before(signature: str) -> bool:
            """Return whether a test that runs now was shown to hang with this signature, in any environment."""
            session = read_session(folder)
            tests = map(planned.scenario.of_test, session.running if session else ())
            return any(site.records.has_hung_at(test, planned.variant, signature) for test in tests)

        order = AttemptRequest(
            limit=planned.limits.timeout,
            folder=self.folder,
            only=planned.scenario.only,
            skip=skip,
            hung_before=hung_before,
            cancelled=self.ready.cancelled,
        )
        label = environment.label
        self.site.emit(AttemptStarted(environment=label, cell=planned.name, limit=order.limit))
        home = site.environments.home
        record = run_attempt(planned, environment, order, folder, executor=site.executor, home=home, store=site.store)
        if record is None:
            self._keep_interrupted(folder, order.limit)
            return None
        self.site.emit(AttemptEnded(environment=label, cell=planned.name, attempt=record.attempt))
        return record, None if ran_in_changed(record) else read_session(self._attempt_folder(record))

    def _keep_interrupted(self, folder: Path, limit: float) -> None:
        """Keep what came of the tests that had ended when the user stopped the command: it goes on from there."""
        session, home = read_session(folder), self.site.environments.home
        if session is None or not session.ids:
            return
        stdout, stderr = (str((folder / name).relative_to(home)) for name in ("stdout.txt", "stderr.txt"))
        attempt = Attempt(
            outcome=Outcome.SLOW,  # it decides nothing
            seconds=0,
            stopped_by=StoppedBy.INTERRUPT,
            stdout=stdout,
            stderr=stderr,
            limit=limit,
            note="interrupted",
            evidence=AttemptEvidence(tests=session.ids),
        )
        record = record_of(self.planned, self.ready.environment, attempt, None)
        self.site.keep(record)
        session.begun.clear()
        self._keep_results(session, record, {test.id for test in session.ended})

    def _attempt_folder(self, record: Record) -> Path:
        return (self.site.environments.home / record.attempt.stdout).parent

    def _keep_results(self, session: TestSession, record: Record, begun: Collection[str]) -> None:
        """Keep what came of the tests that a process has begun."""
        for index, test in enumerate(session.ended):
            if test.id in begun:
                shared = SharedProcess(alone=not test.after, root=session.root)
                self._keep_or_rerun(self._record(test, record, index, shared), test.after)
        for id_, after in session.running.items():
            shared = SharedProcess(alone=not (after or session.workers), root=session.root)
            self._keep_or_rerun(self._stopped_record(id_, session, record, shared), after)

    def _keep_or_rerun(self, record: Record, after: str) -> None:
        """Keep the record of a test. Run the test alone if what ran before it may be the cause, or if it is slow."""
        id_, outcome = record.scenario, record.attempt.outcome
        is_kept = outcome is not Outcome.ERROR and (not outcome.is_red or self._is_known_alone(record))
        if is_kept:
            self.site.keep(record)
            self.tests.setdefault(id_, []).append(record)
        if not is_kept or outcome is Outcome.SLOW:
            shared = record.attempt.evidence.shared or SharedProcess()
            told = str(outcome) if after and outcome is not Outcome.ERROR else ""
            ended = {"alone": True, "after": after, "outcome": told}
            self.to_rerun[id_], self.seen[id_] = shared.model_copy(update=ended), record

    def _is_known_alone(self, record: Record) -> bool:
        """Return whether a test ran alone, or is known to end like this alone."""
        known = [record, *self.site.records.of_test(record.source_hash, record.variant)]
        return any(
            each.attempt.evidence.shared is not None
            and each.attempt.evidence.shared.alone
            and (each.attempt.outcome, each.signature) == (record.attempt.outcome, record.signature)
            for each in known
        )

    def _record(self, test: EndedTest, command: Record, index: int, shared: SharedProcess) -> Record:
        """Return the record of a test that has ended by itself."""
        planned = self.planned.of_test(test.id)
        attempt, redact = command.attempt, self.site.store.redactor.text
        files = {"stdout": attempt.stdout, "stderr": attempt.stderr}
        outcome, note, signature, message = test.outcome, redact(test.note), None, ""
        if outcome.is_red:
            ending = Ending(stopped_by=StoppedBy.EXIT, seconds=test.seconds, exit_code=1)
            verdict = judge(ending, redact(test.traceback), planned.limits.memory_mb, stdout=redact(test.stdout))
            signature, message = verdict.signature, verdict.message
            if Outcome.ERROR in {verdict.outcome, attempt.outcome} and not attempt.note.startswith(WITHIN_PYTEST):
                outcome, note = Outcome.ERROR, verdict.note or attempt.note
            folder = self._attempt_folder(command) / FOLDER / f"{index:05d}"
            folder.mkdir()
            for name, text in (("stdout", test.stdout), ("stderr", test.traceback or test.stderr)):
                (folder / f"{name}.txt").write_text(redact(text), encoding="utf-8")
                files[name] = str((folder / f"{name}.txt").relative_to(self.site.environments.home))
        made = Attempt(
            outcome=outcome,
            seconds=round(test.seconds, 3),
            stopped_by=StoppedBy.EXIT,
            stdout=files["stdout"],
            stderr=files["stderr"],
            limit=attempt.limit,
            started=datetime.now(UTC).isoformat(timespec="microseconds"),
            note=note,
            message=message,
            stdout_bytes=len(test.stdout),
            stderr_bytes=len(test.traceback or test.stderr),
            evidence=AttemptEvidence(start="cold", hardware=attempt.evidence.hardware, shared=shared),
        )
        return record_of(planned, self.ready.environment, made, signature)

    def _stopped_record(self, id_: str, session: TestSession, command: Record, shared: SharedProcess) -> Record:
        """Return the record of a test that ran when its process ended."""
        attempt, signature = command.attempt, command.signature
        facts = {"tests": None, "shared": shared}
        update: dict[str, object] = {"evidence": attempt.evidence.model_copy(update=facts)}
        lost = session.lost(id_, attempt.exit_code, "")
        if lost and attempt.outcome is Outcome.CRASH and attempt.signal is None:
            signature = lost.signature
            update |= {"outcome": lost.outcome, "message": "", "note": lost.note}
        made = attempt.model_copy(update=update)
        return record_of(self.planned.of_test(id_), self.ready.environment, made, signature)

    def _command_record(self, record: Record, session: TestSession, left: Sequence[str]) -> Record:
        """Return the record of the command: it passes if the outcomes of its tests say all that there is to say.

        Tests that `-x` left out are not asked for again. Other tests that are left make the command fail.
        """
        attempt = record.attempt
        missing = set(left)
        record = _with_facts(
            record, tests=tuple(id_ for id_ in self.ids if id_ not in missing), written=self._written(record)
        )
        has_ended = attempt.stopped_by is StoppedBy.EXIT and attempt.signal is None
        has_told = session.code in COMPLETE and bool(session.code or not attempt.outcome.is_red)
        has_told = (has_told or any(test.outcome.is_red for test in session.ended)) and not session.unfinished
        is_explained = bool(session.running) or (has_ended and has_told and bool(session.ids))
        if is_explained and (session.is_over or not left):
            return _with_attempt(record, None, outcome=Outcome.PASS, note="", message="", diagnosis=None, stacks="")
        if left and not (attempt.outcome.is_red or attempt.outcome.is_prevented):
            said = f"pytest ended before {counted(len(left), 'test')} had run"
            return _with_attempt(record, said, outcome=Outcome.FAIL, message=said)
        return record

    def _written(self, record: Record) -> tuple[str, ...]:
        """Keep the files that the command wrote into its copy of the project; return their names."""
        command, home = self.command, self.site.environments.home
        if command.in_place:
            return ()
        names = project.written_files(home, command.project, self.copy)
        project.keep_written(self.copy, names, self._attempt_folder(record) / "written")
        return tuple(name.encode("utf-8", "replace").decode() for name in names)


def misuse(words: Sequence[str], attempt: Attempt, stderr: str, *, runs_pytest: bool) -> str:
    """Return what a command said that failed at once because it was called wrongly; "" where torch may be the reason.

    No terminal is here, and standard input is empty.
    """
    if _NOT_STARTED.match(attempt.note):
        return attempt.note
    if attempt.outcome is not Outcome.FAIL or attempt.seconds > _AT_ONCE:
        return ""
    if _NEEDS_TERMINAL.search(attempt.message):
        return f"{words[0]} needs a terminal: {attempt.message}"
    lines = [line.strip() for line in reversed(ESCAPES.sub("", stderr).splitlines()) if line.strip()]
    if attempt.exit_code == _NOT_FOUND_CODE:
        return next(iter(lines), "")
    if runs_pytest and attempt.exit_code == _USAGE_CODE and "ImportError while loading conftest" not in stderr:
        return next(filter(_PYTEST_MISUSE.fullmatch, lines), "")
    names, matches = set(map(_last_name, words)), filter(None, map(_MISUSE.fullmatch, lines))
    return next((match[0] for match in matches if _last_name(match[match.lastindex or 0]) in names), "")


def _last_name(word: str) -> str:
    """Return what a file or a dotted module is called last: "run" of "torch.distributed.run" and of "/a/run.py"."""
    return re.split(r"[/.]", word.removesuffix(".py"))[-1]


def _with_facts(record: Record, **facts: object) -> Record:
    """Return a record with more evidence."""
    evidence = record.attempt.evidence.model_copy(update=facts)
    return _with_attempt(record, record.signature, evidence=evidence)


def _with_attempt(record: Record, signature: str | None, **fields: object) -> Record:
    """Return a record with other fields of its attempt."""
    return record.model_copy(update={"attempt": record.attempt.model_copy(update=fields), "signature": signature})


def run_command_cell(site: CellRunner, ready: ReadyCell) -> CellEnd | None:
    """Run a command in an environment, if it has that; None where it was interrupted."""
    try:
        return _run_in_folder(site, ready)
    except NoCommandError as error:
        return CellEnd(position=ready.position, problem=error.message)


def _run_in_folder(site: CellRunner, ready: ReadyCell) -> CellEnd | None:
    """Run a command in a copy of its project, or in the folder itself."""
    command, home = ready.planned.scenario.command, site.environments.home
    assert command is not None
    if command.in_place:  # what runs there could write over what another environment wrote
        (home / "cache").mkdir(exist_ok=True)
        with FileLock(home / "cache" / f"in-place-{digest(str(command.in_place))}.lock"):
            return CommandCell(site, ready, command, command.in_place).run()
    with tempfile.TemporaryDirectory(prefix="project-", dir=site.store.folder, ignore_cleanup_errors=True) as copy:
        project.lay_out(home, command.project, Path(copy))
        return CommandCell(site, ready, command, Path(copy)).run()
