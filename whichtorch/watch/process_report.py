"""The work of `whichtorch stacks`: read processes that the tool did not start, here or on several machines."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from pydantic import Field, ValidationError

from whichtorch.base.errors import PreventedError, UsageError
from whichtorch.base.redaction import Redactor
from whichtorch.hangs import stack_folder
from whichtorch.hangs.hang_diagnosis import HangDiagnosis, diagnose
from whichtorch.hangs.library import ROWS, needs_class
from whichtorch.hangs.source_text import owner_class, read_site
from whichtorch.hangs.stacks import HOST_STEP, Frame, Process, SourceSite, Thread, Value
from whichtorch.hangs.thread_state import is_own, user_call
from whichtorch.model import Model
from whichtorch.process import kernel
from whichtorch.process.evidence import capture
from whichtorch.process.marks import temporary_folder

SCHEMA = 1
AGAIN = "write each with `whichtorch stacks PID --json host1.json` on its machine, into a file with its name"
COMMAND_SHOWN = 80  # characters
PROGRAMS_NAMED = 3

REMEDY = (
    "run it as root or as the process's own user; in a container, start that with --cap-add=SYS_PTRACE, and with "
    "--security-opt seccomp=unconfined where a seccomp filter forbids it; "
    "outside a container: echo 0 | sudo tee /proc/sys/kernel/yama/ptrace_scope"
)


class ProcessReport(Model):
    """The stacks of a process and its descendants, or of those of several machines, and what they show."""

    schema_: int = Field(default=SCHEMA, alias="schema")
    diagnosis: HangDiagnosis
    processes: tuple[Process, ...]
    notes: tuple[str, ...] = ()  # what could not be read, and why

    @property
    def lines(self) -> Iterator[str]:
        """The report for people, the stuck thread first; of many stacks the first, and the JSON has all."""
        return stack_folder.diagnosis_lines(self.diagnosis, self.processes, stack_folder.STACKS_KEPT)

    @property
    def json_text(self) -> str:
        """The report for programs, redacted; `merged` reads it on another machine."""
        processes = [portable(process).model_dump(mode="json", exclude_defaults=True) for process in self.processes]
        fields = self.model_dump(mode="json", by_alias=True) | {"processes": processes}
        return Redactor.of_this_machine().json_line(json.dumps(fields, indent=1))


def inspect_process(pid: int, tools: dict[str, str] | None = None) -> ProcessReport:
    """Report what a process and all its descendants are doing. Raises WhichtorchError where that cannot be read."""
    if not kernel.HAS_PROC:
        raise PreventedError("stacks can only be taken on Linux", hint=f"run py-spy dump --native --pid {pid}")
    process = kernel.process(pid)
    if process is None or not process.is_alive:
        raise UsageError(f"there is no process {pid}")
    if pid == os.getpid():
        raise UsageError("a process cannot take its own stacks")
    parents = {pid: process.parent}
    parents |= {member.pid: member.parent for member in kernel.Tree(pid).look(full=True) if member.is_alive}
    pids = list(parents)
    _check_program(pids, parents)
    tools = capture.find_tools() if tools is None else tools
    with temporary_folder() as folder:
        collection = capture.collect([member for member in pids if member != os.getpid()], folder, tools)
        processes = stack_folder.read_folder(folder)
    if not any(thread.frames for stacks in processes for thread in stacks.threads):
        if collection.is_refused:
            raise PreventedError(f"no permission to read the stacks of process {pid}", hint=REMEDY)
        if kernel.process(pid) is None:
            raise UsageError(f"process {pid} has ended")
    notes = collection.notes if tools else ["no collector is installed: py-spy, pystack or gdb"]
    return ProcessReport(diagnosis=diagnose(processes), processes=processes, notes=tuple(notes))


def _check_program(pids: Sequence[int], parents: Mapping[int, int]) -> None:
    """Raise UsageError for what keeps programs of others, as init or a terminal does: they are not to be paused.

    The first of `pids` is the keeper, and parents come before their children. What a Python starts belongs to its
    program. The ranks of a launcher may have sessions of their own: they have the same command line.
    """
    inside: set[int] = set()
    roots = []
    apart = set()
    for pid in pids:
        is_python = "python" in Path(kernel.link(f"/proc/{pid}/exe")).name
        if parents[pid] in inside:
            inside.add(pid)
            continue
        if is_python:
            inside.add(pid)
            roots.append(f"{pid} ({kernel.command_line(pid)[:COMMAND_SHOWN]})")
        with suppress(ProcessLookupError):
            if os.getsid(pid) != os.getsid(pids[0]):
                apart.add(kernel.command_line(pid))
    if len(apart) > 1 or (apart and pids[0] == 1):
        message = f"process {pids[0]} keeps programs that have nothing to do with each other; all would be paused"
        named = ", ".join(roots[:PROGRAMS_NAMED]) or "one of its descendants"
        raise UsageError(message, hint=f"give the process with which yours begins, such as {named}")


def merged(paths: Sequence[Path]) -> ProcessReport:
    """Return one report of what was seen on several machines; each is called as its file is, without the suffix.

    Raises UsageError that names every file that cannot be used.
    """
    problems: list[str] = []
    pictures: dict[str, tuple[Process, ...]] = {}
    notes: list[str] = []
    for path in paths:
        try:
            processes, own_notes = _read(path)
        except ValueError as error:
            problems.append(f"{path}: {error}")
            continue
        host = path.stem
        if host in pictures:
            problems.append(f"{path}: another file is called {host}, too, and the name tells the machines apart")
        elif twin := next((other for other, known in pictures.items() if known == processes), None):
            problems.append(f"{path}: it holds the same as that of {twin}")
        else:
            pictures[host] = processes
            notes += [f"{host}: {note}" for note in own_notes]
    if problems:
        raise UsageError("\n".join(problems), hint=AGAIN)
    processes = together(list(pictures.items()))
    return ProcessReport(diagnosis=diagnose(processes), processes=processes, notes=tuple(notes))


def _read(path: Path) -> tuple[tuple[Process, ...], list[str]]:
    """Return the processes and notes that a file holds. Raises ValueError that says what is wrong with it."""
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise ValueError(error.strerror or repr(error)) from None
    except (ValueError, RecursionError):
        raise ValueError("it is no JSON, or was cut off") from None
    if not isinstance(content, dict) or not isinstance(content.get("processes"), list):
        raise ValueError("it was not written by `whichtorch stacks`")  # noqa: TRY004 - as all that is wrong with a file
    schema = content.get("schema")
    if schema != SCHEMA:
        other = f"of form {schema}" if schema else "of an older whichtorch"
        raise ValueError(f"it is {other}, and this one reads form {SCHEMA}: use one version on all machines")
    try:
        # ignore fields that a newer version has added
        processes = tuple(Process.model_validate(row, extra="ignore") for row in content["processes"])
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"]))
        raise ValueError(f"it is damaged{f' at {where}' if where else ''}") from None
    if not processes:
        raise ValueError("it holds no processes")
    if any(process.host for process in processes):
        raise ValueError("it is of several machines already: merge the files that it was made from")
    notes = content.get("notes")
    return processes, [str(note) for note in notes] if isinstance(notes, list) else []


# Variables of libraries whose text says something of a hang; of all others, also of the user's, numbers are kept.
_TELLING = {name for row in ROWS for name in row.values}


def portable(process: Process) -> Process:
    """Return a process with what its source says, without the texts of variables that nobody asks for.

    The machine that reads it has neither the sources nor, perhaps, the same library.
    """
    environ = {name: text for name, text in process.environ.items() if text.isdigit()}  # an address is private
    threads = tuple(_portable_thread(thread) for thread in process.threads)
    return process.model_copy(update={"environ": environ, "threads": threads})


def _portable_thread(thread: Thread) -> Thread:
    user = user_call(thread.frames)
    frames = [
        _portable_frame(frame, user.site if frame is user.place else None) if frame.is_python else frame
        for frame in thread.frames
    ]
    return thread.model_copy(update={"frames": tuple(frames)})


def _portable_frame(frame: Frame, site: SourceSite | None) -> Frame:
    owner = owner_class(frame) if needs_class(frame) and "." not in frame.function else ""
    facts = {
        "function": f"{owner}.{frame.function}" if owner else frame.function,
        "values": tuple(_portable_value(value, is_library=not is_own(frame)) for value in frame.values),
        "site": site or (read_site(frame) if is_own(frame) else SourceSite()),
    }
    return frame.model_copy(update=facts)


def _portable_value(value: Value, *, is_library: bool) -> Value:
    """Keep which object it is; two frames that name the same one mean the same."""
    is_telling = (is_library and value.name in _TELLING) or value.text.isdigit()
    return value if is_telling else value.model_copy(update={"text": ""})


def together(pictures: Sequence[tuple[str, Sequence[Process]]]) -> tuple[Process, ...]:
    """Return one picture of several machines, each with its name: numbers of processes and threads do not collide."""
    return tuple(
        _moved(process, host, position * HOST_STEP)
        for position, (host, processes) in enumerate(pictures)
        for process in processes
    )


def _moved(process: Process, host: str, step: int) -> Process:
    rows = process.descriptors
    facts = {
        "pid": process.pid + step,
        "host": host,
        "parent": None if process.parent is None else process.parent + step,
        "descriptors": tuple(
            row.model_copy(update={"holders": tuple(pid + step for pid in row.holders)}) for row in rows
        ),
        "threads": tuple(_moved_thread(thread, step) for thread in process.threads),
    }
    return process.model_copy(update=facts)


def _moved_thread(thread: Thread, step: int) -> Thread:
    numbers = {name: getattr(thread, name) for name in ("tid", "joins", "owner")}
    return thread.model_copy(update={name: number and number + step for name, number in numbers.items()})
