"""One attempt: a planned cell and a limit -> a record."""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whichtorch.base.atomic_files import is_regular, read_json
from whichtorch.base.errors import NoCommandError
from whichtorch.base.redaction import ESCAPES
from whichtorch.environments.configs import side_packages_folder
from whichtorch.environments.installation import PackageWatch
from whichtorch.failures.deadline import StoppedLook
from whichtorch.failures.tracebacks import read_exception, shortened
from whichtorch.failures.verdict import DISK_FAILED, NOT_APPLICABLE, SENT_SIGNALS, Verdict, judge
from whichtorch.hangs import stack_folder
from whichtorch.hangs.busy_loop import busy_loop
from whichtorch.hangs.conditions import stuck_calls
from whichtorch.hangs.hang_diagnosis import RUNNING, HangDiagnosis, agreeing
from whichtorch.inside.startup import FOLDER
from whichtorch.matrix import test_session
from whichtorch.matrix.cached_files import copy_folder
from whichtorch.matrix.native_modules import VARIABLE as NATIVE_VARIABLE
from whichtorch.matrix.test_session import TestSession
from whichtorch.model import (
    AGAIN,
    NO_COMMAND,
    Attempt,
    BusyLoop,
    DispatchedCalls,
    Environment,
    Outcome,
    ProjectCommand,
    Record,
    Role,
    StoppedBy,
)
from whichtorch.process import sandbox_layout as layout
from whichtorch.process.marks import mark_for
from whichtorch.process.sandbox import Sandbox, interpreter_folders, own_folder, sandbox_spec
from whichtorch.process.supervision import Ending, SandboxSpec, Task
from whichtorch.suite import project
from whichtorch.suite.companions import copy_companions

if TYPE_CHECKING:
    from whichtorch.hangs.stacks import Process
    from whichtorch.matrix.planning import PlannedCell
    from whichtorch.matrix.variation import AttemptRequest
    from whichtorch.process.executor import Executor
    from whichtorch.records.store import RunStore

STACKS = "stacks"  # folder of an attempt, for what `process.evidence.capture` takes
_PROJECT = "project"  # the same, for a copy of the user's project: "tmp" is the name of what nobody wrote
TORCH_MARK = "torch"  # an empty file among the stacks, by `sitecustomize.py`: a process has asked for torch
_UNITTEST_END = re.compile(r"^Ran \d+ tests? in ", re.MULTILINE)  # what unittest writes once all have run
_OBSERVATION = "observed.json"  # in an observing attempt's folder
SURVIVOR_LENGTH = 300  # characters of a process and its command line: the rest is mostly a script within it
HEAD_READ = 256  # bytes of a program, with the line that names its interpreter: a long path is on the second line
ACCESSES = "accesses.txt"  # of an attempt in a sandbox, by the hook `note_accesses`
ACCESSES_VARIABLE = "WHICHTORCH_ACCESSES"
ACCESS_WORDS = ("connect to ", "look up ", "read ", "signal process ", "write ")  # what a line begins with
ACCESSES_READ, ACCESSES_KEPT, ACCESS_LENGTH = 20_000, 20, 160  # characters, lines, characters of a line
OWN_FILES, OWN_BYTES = 1000, 50_000_000  # of a script's own folder, of which each attempt in a sandbox gets a copy
WITHIN_PYTEST = "an error within pytest"  # begins the note of an error that is not the machine's
CHANGED = "its environment was changed while it ran"  # begins the note of an error that is no evidence
ROOM = 2**20  # bytes that must be left on the disk for a failure to be the script's own
STDERR_READ = 64 * 2**10  # characters of the end of stderr in which a traceback is looked for


def run_attempt(
    planned: PlannedCell,
    environment: Environment,
    order: AttemptRequest,
    folder: Path | None = None,
    *,
    executor: Executor,
    home: Path,
    store: RunStore,
) -> Record | None:
    """Run a script once, in an attempt's `folder` or a new one; return None where it was interrupted.

    Redact what the script and the collectors wrote before anything is read from it, so that the record shows no
    more than the files do. What ran while its environment was changed is an error.
    """
    started = datetime.now(UTC).isoformat(timespec="microseconds")
    folder = folder or store.attempt_folder()
    redactor = store.redactor.knowing(planned.request.config.env)
    try:
        task = _task(planned, environment, order, home, folder)
        assert environment.interpreter is not None
        watch = PackageWatch.of(environment.interpreter, folder.stat().st_mtime_ns)
        ending = executor.run(task, order.cancelled)
        if ending is not None and ending.stopped_by != StoppedBy.INTERRUPT:
            if file := watch.changed(closely=ending.exit_code != 0):
                ending = replace(ending, problem=f"{CHANGED}: {file}", stopped_by=StoppedBy.EXIT)
            elif ending.exit_code != 0:
                ending = replace(ending, problem=ending.problem or _disk_problem(folder))
    finally:
        _remove(folder / "tmp")
        _remove(folder / _PROJECT)
        _remove_irregular(folder)
        redactor.tree(folder)
    if ending is None or ending.stopped_by == StoppedBy.INTERRUPT:
        return None
    command = planned.scenario.command
    session = test_session.read_session(folder) if command else None
    told = session.traceback_of(command.test) if session and command else ""
    stderr = told or _end_of(Path(task.stderr))
    is_unused = command is None and ending.start == "cold" and _never_imported_torch(folder / STACKS)
    diagnosis, problem = _diagnosis(ending, environment, folder / STACKS, stderr)
    loop = _busy(ending, diagnosis[0] if diagnosis else None)
    if loop:
        ending = replace(ending, evidence=ending.evidence.model_copy(update={"loop": loop}))
    stdout = _end_of(Path(task.stdout)) if ending.exit_code else ""
    look = _look(order, ending, diagnosis, loop)
    verdict = judge(
        _with_mapped_exit_code(ending, command, session), stderr, planned.limits.memory_mb, look, stdout=stdout
    )
    if command:
        verdict = _heard(verdict, ending, command, session or TestSession(), stderr)
    if diagnosis:
        verdict, diagnosis = _agreed(verdict, *diagnosis, folder / STACKS, loop)
    facts = _facts(ending, verdict, order) | {"hardware": planned.request.hardware_name, "unused": is_unused}
    if task.sandbox:
        facts |= {"sandbox": Sandbox.BUBBLEWRAP, **_accesses(folder / ACCESSES)}
    if session and session.root and not (command and command.test):
        facts["tests"] = session.ids
    if order.role is Role.OBSERVE:
        facts["observed"] = read_json(folder / _OBSERVATION, DispatchedCalls)
    elif diagnosis and verdict.outcome is Outcome.HANG and planned.scenario.declared(planned.variant):
        facts["observed"] = stuck_calls(diagnosis[0])
    evidence = ending.evidence.model_copy(update=facts)
    attempt = Attempt(
        role=order.role,
        outcome=verdict.outcome,
        seconds=round(ending.seconds, 3),
        stopped_by=StoppedBy(ending.stopped_by),
        exit_code=ending.exit_code,
        signal=ending.signal,
        peak_rss_mb=round(ending.peak_rss_mb, 1),
        cpu_seconds=round(ending.cpu_seconds, 2),
        stdout_bytes=ending.stdout_bytes,
        stderr_bytes=ending.stderr_bytes,
        survivors=tuple(redactor.text(survivor)[:SURVIVOR_LENGTH] for survivor in ending.survivors),
        stdout=str(Path(task.stdout).relative_to(home)),
        stderr=str(Path(task.stderr).relative_to(home)),
        limit=order.limit if ending.limit is None else ending.limit,
        started=started,
        stacks=str((folder / STACKS).relative_to(home)) if (folder / STACKS).exists() else "",
        diagnosis=stack_folder.stored(*diagnosis, ending.diagnosis_seconds) if diagnosis else None,
        note="; ".join(filter(None, (verdict.note, problem, evidence.blocked))),
        message=verdict.message,
        evidence=evidence,
    )
    record = record_of(planned, environment, attempt, verdict.signature)
    return Record.model_validate_json(redactor.json_line(record.model_dump_json(by_alias=True)))


def once_more(make: Callable[[], Record | None]) -> Record | None:
    """Return what an attempt comes to; an error is made once more, because what the machine did may be over."""
    first = make()
    if first is None or first.attempt.outcome is not Outcome.ERROR:
        return first
    record = make()
    if record is None or record.attempt.note == first.attempt.note:
        return record
    note = "; ".join(filter(None, (record.attempt.note, f"{AGAIN} {first.attempt.note}")))
    return record.model_copy(update={"attempt": record.attempt.model_copy(update={"note": note})})


def ran_in_changed(record: Record) -> bool:
    """Return whether files of the environment changed or went during an attempt, which says nothing for that reason."""
    return record.attempt.outcome is Outcome.ERROR and record.attempt.note.startswith(CHANGED)


def _disk_problem(folder: Path) -> str:
    """Return why nothing can be written any more where an attempt writes, "" where something can."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(ROOM))
    except OSError as error:
        return f"{DISK_FAILED}: {error.strerror}"
    return ""


def _busy(ending: Ending, diagnosis: HangDiagnosis | None) -> BusyLoop | None:
    """Return where the user's code was busy when an attempt was stopped: in a loop, or at a line.

    Where the tree had long been idle by then, it was busy in no loop but one that goes on meanwhile.
    """
    headway = ending.evidence.headway
    is_idle = headway is not None and not headway.makes_headway
    since = ending.seconds - headway.paused if headway and is_idle else 0.0
    loop = busy_loop(ending.loop, ending.seconds, since) if ending.loop else None
    if is_idle and loop and not (loop.moves or loop.repeats):
        return None
    is_busy = diagnosis is not None and diagnosis.kind in RUNNING and diagnosis.places
    if (loop and (loop.repeats or diagnosis is None or is_busy)) or not is_busy:
        return loop if loop and (loop.repeats or ending.stopped_by == StoppedBy.TIMEOUT) else None
    assert diagnosis is not None
    place = diagnosis.places[0]
    return BusyLoop(place=place, words=f"busy at {place}")


def _look(
    order: AttemptRequest,
    ending: Ending,
    diagnosis: tuple[HangDiagnosis, tuple[Process, ...]] | None,
    loop: BusyLoop | None,
) -> StoppedLook:
    """Return what is known of an attempt that was stopped, for the verdict."""
    ended = {process.ended for process in diagnosis[1]} if diagnosis else set[str]()
    return StoppedLook(
        kind=diagnosis[0].kind if diagnosis else None,
        is_proven=diagnosis is not None and diagnosis[0].proven,
        killed=min(ended & SENT_SIGNALS - {*ending.sent}, default=""),
        place=loop.place if loop else "",
        goal=order.goal,
        is_brief=order.is_brief,
        is_again=order.is_again,
        hung_before=order.hung_before,
    )


def _with_mapped_exit_code(ending: Ending, command: ProjectCommand | None, session: TestSession | None) -> Ending:
    """Return how a command ended, with the exit code that every command has for a pass, a skip or a failure."""
    if command is None or ending.exit_code is None:
        return ending
    meaning = dict.fromkeys(command.skip_codes, NOT_APPLICABLE) | dict.fromkeys(command.ok_codes, 0)
    code = meaning.get(ending.exit_code, ending.exit_code)
    ended = session.outcome_of(command.test) if session and command.test else None
    if ended is not None:
        code = {Outcome.PASS: 0, Outcome.SKIP: NOT_APPLICABLE}.get(ended, 1)
    elif code == test_session.NOTHING_COLLECTED and session and session.code == code:
        code = NOT_APPLICABLE
    return replace(ending, exit_code=code)


def _heard(verdict: Verdict, ending: Ending, command: ProjectCommand, session: TestSession, stderr: str) -> Verdict:
    """Return the verdict on a command by the word of its test runner: an exit code without it says nothing."""
    if ending.stopped_by != StoppedBy.EXIT or ending.signal or ending.problem:
        return verdict
    if ("-m", "unittest") in pairwise(command.words) and ending.exit_code == 0 and not _UNITTEST_END.search(stderr):
        session.unfinished.add(0)
    lost = session.lost(command.test, ending.exit_code, stderr)
    raised = read_exception(session.internal) if verdict.outcome is Outcome.FAIL and not lost else None
    if raised and "'torch" not in raised.message and not any(each.path.startswith("torch/") for each in raised.frames):
        return Verdict(outcome=Outcome.ERROR, note=f"{WITHIN_PYTEST}: {raised.name}: {raised.first_line}")
    return lost or verdict


def _never_imported_torch(stacks: Path) -> bool:
    """Return whether the start-up hook ran in a script's processes, and none of them asked for torch."""
    names = {path.name for path in stacks.iterdir()}
    return TORCH_MARK not in names and any(name.endswith(".faulthandler.txt") for name in names)


def _facts(ending: Ending, verdict: Verdict, order: AttemptRequest) -> dict[str, Any]:
    """Return the fields of an attempt's evidence that its ending, its verdict and its order decide."""
    facts: dict[str, Any] = {"decided": verdict.decided, "process": verdict.process}
    if order.shared:
        facts["shared"] = order.shared
    if ending.start != "cold" or ending.cold_because or order.cold_because:
        facts |= {"start": ending.start, "cold_because": ending.cold_because or order.cold_because}
    return facts


def record_of(planned: PlannedCell, environment: Environment, attempt: Attempt, signature: str | None) -> Record:
    """Return what is stored of an attempt of a cell."""
    return Record(
        key=planned.key(environment),
        environment=environment.id,
        scenario=planned.scenario.name,
        source_hash=planned.scenario.source_hash,
        variant=planned.variant,
        limits=planned.limits,
        attempt=attempt,
        signature=signature,
    )


def _diagnosis(
    ending: Ending, environment: Environment, folder: Path, stderr: str
) -> tuple[tuple[HangDiagnosis, tuple[Process, ...]] | None, str]:
    """Return what the stacks of a stopped attempt show, and what kept it from being known."""
    if ending.stopped_by not in {StoppedBy.STALL, StoppedBy.TIMEOUT}:
        _remove(folder)
        return None, ""
    try:
        tables = stack_folder.tables_of(environment)
        return stack_folder.diagnose_folder(folder, tables, stderr, ending.evidence.stall), ""
    except Exception as error:  # noqa: BLE001 - without a diagnosis there is a verdict all the same
        return None, f"diagnosis failed: {error!r}"


def _agreed(
    verdict: Verdict, diagnosis: HangDiagnosis, processes: tuple[Process, ...], folder: Path, loop: BusyLoop | None
) -> tuple[Verdict, tuple[HangDiagnosis, tuple[Process, ...]]]:
    """Return the verdict with the place for a signature, and a diagnosis that does not contradict it."""
    agreed = agreeing(diagnosis, verdict.outcome, loop)
    if agreed is not diagnosis:
        stack_folder.write_readable(folder, agreed, processes)
    signature = agreed.signature if verdict.outcome is Outcome.HANG else None
    return replace(verdict, signature=signature or verdict.signature), (agreed, processes)


def _task(planned: PlannedCell, environment: Environment, order: AttemptRequest, home: Path, folder: Path) -> Task:
    scratch, scenario = order.scratch or folder / "tmp", planned.scenario
    scratch.mkdir(exist_ok=True)
    copy_companions({name: scenario.path.parent / name for name in scenario.data}, scratch)
    stacks = folder / STACKS
    stacks.mkdir()
    # unless it is asked for, every attempt compiles anew, and leaves nothing behind for the next
    caches = order.caches or scratch
    environ = planned.environ(environment, home) | {
        "TMPDIR": str(scratch),
        "TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor"),
        "TRITON_CACHE_DIR": str(caches / "triton"),
        "TORCH_EXTENSIONS_DIR": str(caches / "extensions"),  # a build that is killed leaves its lock there
        "WHICHTORCH_STACKS": str(stacks),
    }
    environ |= {NATIVE_VARIABLE: str(order.native)} if order.native else {}
    if scenario.sandboxed:
        hooks = ",".join(filter(None, (environ.get("WHICHTORCH_HOOKS"), "note_accesses")))
        own = {"HOME": str(scratch), "USER": "user", "LOGNAME": "user", ACCESSES_VARIABLE: str(folder / ACCESSES)}
        environ = own | environ | {"WHICHTORCH_HOOKS": hooks}
    if order.role is Role.OBSERVE:
        environ |= _observing(environ, folder)
    argv = (str(environment.interpreter), str(scenario.path), *(order.arguments or scenario.arguments))
    cwd = order.folder or (scratch if scenario.in_suite else scenario.folder or Path.cwd())
    if command := scenario.command:
        only = (command.test,) if command.test else order.only
        environ |= test_session.write_selection(folder, only=only, skip=order.skip)
        argv, cwd = _resolved_argv(command, environ, environment), order.folder or command.in_place or folder / _PROJECT
        if cwd == folder / _PROJECT:
            project.lay_out(home, command.project, cwd)
            cwd /= command.subfolder
    if scenario.sandboxed and not (command or order.folder or scenario.in_suite):
        inside = own_folder(scenario.path) or scratch
        cwd = cwd if cwd.is_relative_to(inside) else inside
    return Task(
        argv=argv,
        cwd=str(cwd),
        env=environ,
        stdout=str(folder / "stdout.txt"),
        stderr=str(folder / "stderr.txt"),
        timeout=order.limit,
        is_hard=not planned.looks_longer,
        clock=str(folder / test_session.FOLDER / test_session.EVENTS) if scenario.command else None,
        goal=order.goal,
        memory_mb=planned.limits.memory_mb,
        stall=planned.limits.stall and sys.platform == "linux",
        idle_limit=order.idle_limit,
        sample=True,
        is_measured="note_numbers" in planned.request.config.hooks,
        mark=mark_for(home, f"{folder.parent.name}/{folder.name}"),
        stacks=str(stacks),
        sandbox=_sandbox(planned, environment, order, home, folder) if scenario.sandboxed else None,
        fork_level=order.fork_level,
        name=f"{planned.name}  {environment.label}",
    )


def _sandbox(
    planned: PlannedCell, environment: Environment, order: AttemptRequest, home: Path, folder: Path
) -> SandboxSpec:
    """Return the sandbox of an attempt: it sees its environment, and writes its own files.

    It also writes into a copy of its script's own folder, or only reads that folder if it is large.
    """
    scenario, command, script = planned.scenario, planned.scenario.command, planned.scenario.path
    assert environment.interpreter is not None
    shown = [*interpreter_folders(environment.interpreter), FOLDER]
    shown += filter(None, (side_packages_folder(planned.request.config, environment.python, home), order.native))
    written = {each: each for each in (folder, order.scratch, order.caches, order.notes, order.folder) if each}
    own = own_folder(script)
    is_home_below = own is not None and home.is_relative_to(own)
    if command:
        shown += [command.in_place] if command.in_place else []
    elif own is None:
        shown.append(script)
    elif order.folder or scenario.in_suite or is_home_below or layout.holds_more([str(own)], OWN_FILES, OWN_BYTES):
        shown.append(own)
    else:
        written[own] = folder / _PROJECT
        copy_folder(own, folder / _PROJECT)
    return sandbox_spec(shown, written, [home] if is_home_below else [])


def _resolved_argv(command: ProjectCommand, environ: Mapping[str, str], environment: Environment) -> tuple[str, ...]:
    """Return the words of a command, with the program that an environment has for the first of them.

    A script of another Python, which the user's PATH may have, would say nothing about the environment.
    """
    program, *rest = command.words
    if "/" in program:
        return command.words
    found = shutil.which(program, path=environ["PATH"])
    if found is None or _is_of_another_python(Path(found), environment):
        more = f"; {found} belongs to another Python" if found else ""
        raise NoCommandError(f"{program}: {NO_COMMAND} {environment.label}{more}")
    return (found, *rest)


def _is_of_another_python(program: Path, environment: Environment) -> bool:
    """Return whether a program outside an environment is a script that Python runs, or that chooses a Python."""
    if environment.interpreter and program.parent == environment.interpreter.parent:
        return False
    try:
        with program.open("rb") as file:
            head = file.read(HEAD_READ).lower()
    except OSError:  # it may be run, but not read
        return False
    is_script, line = head.startswith(b"#!"), head.partition(b"\n")[0]
    # pip writes an `exec` where the path of its Python is too long for the first line; pyenv puts shims in its place
    return is_script and (b"python" in line or any(name in head for name in (b"'exec'", b"pyenv")))


def _observing(environ: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Return the variables that make a task an observed one; the config's hooks stay the first."""
    hooks = [name for name in environ.get("WHICHTORCH_HOOKS", "").split(",") if name]
    return {"WHICHTORCH_HOOKS": ",".join([*hooks, "observe"]), "WHICHTORCH_OBSERVE": str(folder / _OBSERVATION)}


def _accesses(file: Path) -> dict[str, tuple[str, ...]]:
    """Return what a script in a sandbox tried to reach, as it was noted: the script may have written there itself."""
    try:
        with file.open(encoding="utf-8", errors="replace") as lines:
            text = ESCAPES.sub("", lines.read(ACCESSES_READ))
    except OSError:
        return {}
    shown = ("".join(filter(str.isprintable, line))[:ACCESS_LENGTH] for line in text.splitlines())
    return {"tried": tuple(dict.fromkeys(line for line in shown if line.startswith(ACCESS_WORDS)))[:ACCESSES_KEPT]}


def _end_of(path: Path) -> str:
    """Return the end of what a script wrote, whatever bytes it holds, with its last exception."""
    try:
        return shortened(path.read_text(encoding="utf-8", errors="replace"), STDERR_READ)
    except FileNotFoundError:
        return ""


def _remove_irregular(folder: Path) -> None:
    """Remove what a script has put in place of its output: nobody is to follow a link or to wait for a pipe."""
    for path in folder.rglob("*"):
        if not is_regular(path):
            with suppress(OSError):  # what can be redacted still is
                path.unlink(missing_ok=True)


def _remove(folder: Path) -> None:
    """Remove a folder, most often an empty one: looking into it costs ten times as much."""
    try:
        folder.rmdir()
    except OSError:
        shutil.rmtree(folder, ignore_errors=True)
