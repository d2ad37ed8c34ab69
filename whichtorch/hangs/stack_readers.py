"""Read what the collectors of `process.evidence.capture` write, as processes, threads and frames.

Whatever a collector wrote, also half of it or none, is read as far as it goes; no text raises. Each function takes the
text of a file, and the process that its name tells.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from whichtorch.hangs.stacks import (
    Descriptor,
    Frame,
    KernelWait,
    Language,
    LoopTask,
    Process,
    Thread,
    Value,
    looks_native,
    native,
    python,
)
from whichtorch.process.evidence.waiting import Waiting

if TYPE_CHECKING:
    from whichtorch.model import Model, ThreadWait


_FAULTHANDLER_THREAD = re.compile(
    r"^(?:(?:Current thread|Thread) 0x(?P<ident>[0-9a-f]+)(?: \[(?P<name>.*)\])?|Stack) \(most recent call first\):"
)
_FAULTHANDLER_FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+|\?\?\?) in (?P<function>.+)$')

_GDB_THREAD = re.compile(
    r'^Thread \d+ \((?:Thread (?P<ident>0x[0-9a-f]+) \()?LWP (?P<tid>\d+)\)?(?: "(?P<name>.*)")?\)?:'
)
_GDB_FRAME = re.compile(r"^#\d+\s+(?:0x[0-9a-f]+ in )?(?P<rest>.+)$")
_GDB_LIBRARY = re.compile(r"^(?P<call>.*) from (?P<library>.+)$")
_GDB_SOURCE = re.compile(r"^(?P<call>.*) at (?P<file>.+):(?P<line>\d+)$")
_GDB_EXPECTED = re.compile(r"\bexpected=(\d+)\b")
_GDB_JOIN = re.compile(r"pthread_\w*join")
_GDB_INNERMOST = 4  # frames among which glibc passes the number on

_KERNEL_PROCESS = re.compile(r"^pid (\d+)(?: parent=(?P<parent>\d+))?(?: (?P<command>.*))?$")
_KERNEL_THREAD = re.compile(r"^(\d+) state=(?P<state>[A-Za-z])(?: |$)(?P<rest>.*)$")
_KERNEL_WCHAN = re.compile(r"\bwchan=(\S+)")
_KERNEL_SYSCALL = re.compile(r"\bsyscall=(-?\d+(?: 0x[0-9a-f]+)*)")
_KERNEL_EXPECTED = 3  # where in (number, *arguments) the value is that a futex is expected to hold
_KERNEL_LONGEST = 12  # digits of a number that a kernel writes

_PYSTACK_THREAD = re.compile(r"^Traceback for thread (\d+) (?:\((?P<name>.*?)\) )?\[(?P<status>[^\]]*)\].*:\s*$")
_PYSTACK_FRAME = re.compile(r'^ {4}\((?P<kind>C|Python)\) File "(?P<file>.*?)", line (?P<line>\d+), in (?P<rest>.*)$')
_PYSTACK_NATIVE = re.compile(r"^(?P<function>.*?)(?: \(inlined\))? \((?P<library>[^()]*)\)$")


def parse_faulthandler(text: str, pid: int = 0) -> tuple[Process, ...]:
    """Read what faulthandler writes into a program's stderr: Python frames of every thread, innermost first.

    It names threads by pthread_self(), and no processes. Other output of the program is passed over; the last dump of
    each thread counts. Since Python 3.14 a thread has its name in brackets, and a C stack may follow.
    """
    stacks: dict[str | None, tuple[str, list[Frame]]] = {}
    frames: list[Frame] | None = None
    for line in text.splitlines():
        if header := _FAULTHANDLER_THREAD.match(line):
            frames = []
            stacks.pop(header["ident"], None)  # of an earlier dump
            stacks[header["ident"]] = header["name"] or "", frames
        elif frames is not None and (frame := _FAULTHANDLER_FRAME.match(line)):
            number = int(frame["line"]) if frame["line"].isdigit() else None
            frames.append(python(frame["function"], frame["file"], number))
        elif not line.startswith("  "):
            frames = None
    threads = tuple(
        Thread(ident=int(ident, 16) if ident else None, name=name, frames=tuple(frames))
        for ident, (name, frames) in stacks.items()
    )
    return (Process(pid=pid, threads=threads),) if threads else ()


def parse_gdb(text: str, pid: int = 0) -> tuple[Process, ...]:
    """Read what `gdb -batch -ex "thread apply all bt" -p PID` writes: native frames of every thread.

    Its arguments tell who waits for whom: glibc's join waits for a futex that holds the thread's number until it ends,
    `__futex_abstimed_wait_common64 (…, expected=26950, …)` below `__pthread_clockjoin_ex (threadid=1400817, …)`.
    """
    threads = []
    for header, matches in _stacks(text, _GDB_THREAD, _GDB_FRAME):
        calls = [match["rest"] for match in matches]
        tid = int(header["tid"])
        ident = int(header["ident"], 16) if header["ident"] else None
        inner, frames = calls[:_GDB_INNERMOST], tuple(map(_gdb_frame, calls))
        numbers = [match[1] for match in map(_GDB_EXPECTED.search, inner) if match]
        joins = int(numbers[0]) if numbers and any(map(_GDB_JOIN.search, inner)) else None
        threads.append(Thread(tid=tid, ident=ident, name=header["name"] or "", frames=frames, joins=joins))
    return (Process(pid=pid, threads=tuple(threads)),) if threads else ()


def _stacks(
    text: str, header: re.Pattern[str], frame: re.Pattern[str]
) -> list[tuple[re.Match[str], list[re.Match[str]]]]:
    """Return the header of each thread with the frames that follow it."""
    stacks: list[tuple[re.Match[str], list[re.Match[str]]]] = []
    for line in text.splitlines():
        if match := header.match(line):
            stacks.append((match, []))
        elif stacks and (match := frame.match(line)):
            stacks[-1][1].append(match)
    return stacks


def _gdb_frame(text: str) -> Frame:
    library = file = line = None
    if match := _GDB_SOURCE.match(text):
        text, file, line = match["call"], match["file"], int(match["line"])
    elif match := _GDB_LIBRARY.match(text):
        text, library = match["call"], match["library"]
    return native(_gdb_function(text), library=library, file=file, line=line)


def _gdb_function(call: str) -> str:
    """Return `name` of `name (arguments)`, where both may hold parentheses."""
    if not call.endswith(")"):
        return call
    depth = 0
    for position in range(len(call) - 1, -1, -1):
        depth += (call[position] == ")") - (call[position] == "(")
        if depth == 0:
            return call[:position].rstrip() or call
    return call.partition(" (")[0]  # a string among the arguments holds a parenthesis


def parse_kernel(text: str, _pid: int = 0) -> tuple[Process, ...]:
    """Read /proc/PID/task in text form.

        pid 27049 ENV/bin/python fork_omp.py
        27049 state=S cpu=246 wchan=do_wait syscall=61 0x69ae 0x7ffdf6cc8a5c …

    The last line of a thread counts. Two waits name their partner: glibc's join waits on a futex that holds the joined
    thread's number, and wait4 takes the child's.
    """
    processes: dict[int, Process] = {}
    threads: dict[int, dict[int, Thread]] = {}
    pid = 0
    for line in text.splitlines():
        if match := _KERNEL_PROCESS.match(line):
            pid = int(match[1][:_KERNEL_LONGEST])
            parent = int(match["parent"][:_KERNEL_LONGEST]) if match["parent"] else None
            processes[pid] = Process(pid=pid, parent=parent, command=(match["command"] or "").strip())
        elif match := _KERNEL_THREAD.match(line):
            tid = int(match[1][:_KERNEL_LONGEST])
            thread = Thread(tid=tid, state=match["state"], kernel=_kernel_wait(match["rest"]))
            threads.setdefault(pid, {})[tid] = thread
    return tuple(
        process.model_copy(update={"threads": _with_joins(threads.get(pid, {}))}) for pid, process in processes.items()
    )


def _kernel_wait(text: str) -> KernelWait:
    wchan, syscall = _KERNEL_WCHAN.search(text), _KERNEL_SYSCALL.search(text)
    words = syscall[1].split() if syscall else []
    numbers = tuple(int(word, 16 if word.startswith("0x") else 10) for word in words)
    return KernelWait(wchan=wchan[1] if wchan and wchan[1] != "0" else "", syscall=numbers)


def _with_joins(threads: dict[int, Thread]) -> tuple[Thread, ...]:
    """Add to each thread whose end it waits for: its futex is expected to hold that thread's number."""
    joining = []
    for tid, thread in threads.items():
        wait = thread.kernel or KernelWait()
        expected = wait.syscall[_KERNEL_EXPECTED] if wait.is_futex and len(wait.syscall) > _KERNEL_EXPECTED else 0
        joins = expected if expected != tid and expected in threads else None
        joining.append(thread.model_copy(update={"joins": joins}))
    return tuple(joining)


def from_stall(rows: Iterable[ThreadWait]) -> tuple[Process, ...]:
    """Return the processes of the supervisor's evidence of a stall: what each thread waits for, without frames."""
    members = []
    for row in rows:
        if row.pid and row.tid:
            wait = KernelWait(word=row.wait, detail=row.detail)
            wants_gil = True if wait.waiting is Waiting.GIL else None
            thread = Thread(tid=row.tid, name=row.name, state=row.state or None, wants_gil=wants_gil, kernel=wait)
            members.append((row.pid, thread))
    return _processes(members)


def _processes(members: Iterable[tuple[int, Thread]]) -> tuple[Process, ...]:
    """Return the processes of threads that come with the numbers of their processes."""
    threads: dict[int, list[Thread]] = {}
    for pid, thread in members:
        threads.setdefault(pid, []).append(thread)
    return tuple(Process(pid=pid, threads=tuple(own)) for pid, own in threads.items())


def parse_pyspy(text: str, _pid: int = 0) -> tuple[Process, ...]:
    """Read what `py-spy dump --native --locals --json` writes: threads, each with its pid, without command lines.

    It shows who has the GIL, of idle threads too (measured: the holder in a GIL cycle), but not who waits for it.
    What cannot be read is left out.
    """
    rows = dictionaries(read_json(text))
    return _processes((row["pid"], _pyspy_thread(row)) for row in rows if isinstance(row.get("pid"), int))


def _pyspy_thread(row: dict[str, Any]) -> Thread:
    return Thread(
        tid=_number(row.get("os_thread_id")) or 0,
        ident=_number(row.get("thread_id")),
        name=_text(row.get("thread_name")),
        frames=tuple(map(_pyspy_frame, dictionaries(row.get("frames")))),
        has_gil=True if row.get("owns_gil") is True else None,
        active=row["active"] if isinstance(row.get("active"), bool) else None,
    )


def _pyspy_frame(row: dict[str, Any]) -> Frame:
    name, module = _text(row.get("name")), _text(row.get("module"))
    file, line = _text(row.get("filename")), _number(row.get("line"))
    if not module and not looks_native(file):
        values = tuple(map(_pyspy_value, dictionaries(row.get("locals"))))
        return python(name, file or None, line or None).model_copy(update={"values": values})
    source = file if file != module else ""
    return native(name, library=module or None, file=source or None, line=line or None)


def _pyspy_value(row: dict[str, Any]) -> Value:
    return Value(name=_text(row.get("name")), text=_text(row.get("repr")), address=_number(row.get("addr")) or 0)


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def parse_pystack(text: str, pid: int = 0) -> tuple[Process, ...]:
    """Read what `pystack remote --native` writes: frames outermost first, and who has or wants the GIL.

        Traceback for thread 26950 (python) [Waiting for the GIL] (most recent call last):
            (C) File "Python/ceval_gil.h", line 231, in take_gil (…/libpython3.11.so.1.0)
            (Python) File "…/run_mm.py", line 5, in <module>
                print(m.run(a, b))

    A source line, of one or more lines, follows a Python frame. The status may name several things, and is empty for
    most: that is a "no" only where another thread is marked.
    """
    threads = tuple(
        Thread(
            tid=int(header[1]),
            name=header["name"] or "",
            has_gil=True if "Has the GIL" in header["status"] else None,
            wants_gil=True if "Waiting for the GIL" in header["status"] else None,
            frames=tuple(map(_pystack_frame, frames[::-1])),
        )
        for header, frames in _stacks(text, _PYSTACK_THREAD, _PYSTACK_FRAME)
    )
    return (Process(pid=pid, threads=threads),) if threads else ()


def _pystack_frame(match: re.Match[str]) -> Frame:
    file = match["file"] if match["file"] != "???" else None
    line = int(match["line"]) or None
    if match["kind"] == "Python":
        return python(match["rest"], file, line)
    parts = _PYSTACK_NATIVE.match(match["rest"])
    if parts is None:
        return native(match["rest"], file=file, line=line)
    library = parts["library"] or None
    return native(parts["function"], library=library, file=file if file != library else None, line=line)


def parse_tasks(text: str, pid: int = 0) -> tuple[Process, ...]:
    """Read the tasks that a process has written: `inside/startup/event_loop.py`.

        {"count": 1, "tasks": [
        {"name": "Task-2", "frames": [{"file": "/w/serve.py", "function": "drain", "line": 9}], "awaits": ["Task-3"]}
        ]}

    A task that cannot be read is left out.
    """
    content = read_json(text)
    content = content if isinstance(content, dict) else {}
    rows = [
        row | {"frames": [frame | {"language": Language.PYTHON} for frame in dictionaries(row.get("frames"))]}
        for row in dictionaries(content.get("tasks"))
    ]
    tasks = _read_all(LoopTask, rows)
    return (Process(pid=pid, tasks=tasks, task_count=_number(content.get("count")) or len(tasks)),) if tasks else ()


def read_json(text: str) -> Any:
    """Return the value of a JSON text; None where it cannot be read."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def dictionaries(value: object) -> list[dict[str, Any]]:
    """Return the dictionaries in a list; none where the value is no list."""
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def parse_facts(text: str, _pid: int = 0) -> tuple[Process, ...]:
    """Read the facts of a tree.

        {"processes": [
        {"pid": 7, "parent": 5, "command": "ENV/bin/python x.py", "environ": {"RANK": "0"},
         "descriptors": [{"number": 4, "link": "pipe:[123]", "holders": [7, 8]}],
         "threads": [{"tid": 7, "descriptor": 4}, {"tid": 9, "name": "pt_data_pin", "owner": 7}]},
        {"pid": 8, "parent": 7, "command": "python", "ended": "SIGKILL"}
        ]}

    A field that is missing is not known. A process, thread or descriptor that cannot be read is left out.
    """
    content = read_json(text)
    processes = []
    for row in dictionaries(content.get("processes") if isinstance(content, dict) else None):
        environ = row.get("environ")
        variables = environ.items() if isinstance(environ, dict) else ()
        parts = {
            "environ": {name: value for name, value in variables if isinstance(value, str)},
            "descriptors": _read_all(Descriptor, row.get("descriptors")),
            "threads": _read_all(Thread, row.get("threads")),
        }
        process = _read(Process, row | parts)
        if process and process.pid:
            processes.append(process)
    return tuple(processes)


def _read_all(kind: type[Model], value: object) -> tuple[Any, ...]:
    return tuple(filter(None, (_read(kind, row) for row in dictionaries(value))))


def _read(kind: type[Model], row: dict[str, Any]) -> Any:
    """Return a model of a row, None where the row is none."""
    try:
        return kind.model_validate({name: value for name, value in row.items() if name in kind.model_fields})
    except ValidationError:
        return None
