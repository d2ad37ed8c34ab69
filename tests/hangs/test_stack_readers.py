"""What each collector writes, read into one model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.hangs import pyspy_text
from tests.hangs.pictures import PARSERS, SAMPLES, Parser, files, parse, picture, thread
from whichtorch.base.redaction import TOKEN, Redactor
from whichtorch.hangs import stack_readers
from whichtorch.hangs.stack_folder import read_folder
from whichtorch.hangs.stack_readers import parse_facts
from whichtorch.hangs.stacks import Descriptor, Language, Process, Thread
from whichtorch.model import ThreadWait

if TYPE_CHECKING:
    from pathlib import Path


HEADERS = [
    'Thread 3 (Thread 0x7f6753d146c0 (LWP 26950) "python"):',
    "#0  take_gil (tstate=0x1) at Python/ceval_gil.h:231",
    "#1  0x00007f in f(int) () from lib(c).so",
    "Traceback for thread 26950 (python) [Has the GIL] (most recent call last):",
    '    (C) File "???", line 0, in f() (lib.so)',
    '    (Python) File "a.py", line 5, in <module>',
    'Thread 27054 (idle): "MainThread"',
    "    sin (libtorch_cpu.so)",
    "Process 1: python a.py",
    "Current thread 0x00007fce3dad36c0 (most recent call first):",
    '  File "a.py", line ??? in f',
    "pid 12",
    "12 state=S wchan=futex_do_wait syscall=202 0x1 0x89 0x3",
    '[{"pid": 1, "frames": [{}, 3], "os_thread_id": "x"}, 4]',
    "  ...",
    "",
]


def test_every_sample_parses() -> None:
    """Every real dump gives at least one process with threads, whose frames are named where symbols exist."""
    assert files()
    for path in files():
        processes = parse(path)
        assert processes, path
        assert all(process.threads for process in processes if process.pid not in {12036, 12037, 7418}), path
        frames = [frame for process in processes for member in process.threads for frame in member.frames]
        assert frames or path.name.endswith("proc.txt"), path
        assert not any(frame.function.startswith("0x") for frame in frames), path


@pytest.mark.thorough
@pytest.mark.parametrize("parser", [*PARSERS.values(), stack_readers.parse_pyspy], ids=lambda parser: parser.__name__)
@given(text=st.one_of(st.text(max_size=200), st.lists(st.sampled_from(HEADERS), max_size=8).map("\n".join)))
def test_no_text_is_too_strange(parser: Parser, text: str) -> None:
    """Whatever a collector writes, also half of it or none, is read as far as it goes and never raises."""
    assert all(isinstance(process, Process) for process in parser(text, 1))


@pytest.mark.parametrize("parser", PARSERS.values(), ids=lambda parser: parser.__name__)
def test_nothing_is_nothing(parser: Parser) -> None:
    """A failed collector's empty output, or its error message, is no process."""
    assert parser("", 1) == ()
    assert parser("Error: Failed to find python version from target process\n", 1) == ()


def test_pyspy_forms_agree() -> None:
    """The JSON and the text form of one dump give the same functions; JSON adds pthread ids and whole paths."""
    json, text = picture("gil_deadlock", "pyspy-native.json"), picture("gil_deadlock", "pyspy-native.txt")
    for tid in (26947, 26950):
        names = [[frame.function for frame in thread(form, tid).frames] for form in (json, text)]
        assert names[0] == names[1]
        assert thread(json, tid).active is thread(text, tid).active is False
    assert thread(json, 26950).ident == 0x7F6753D146C0
    assert text[0].command == "ENV/bin/python run_mm.py matmul"


def test_pyspy_active_and_gil() -> None:
    """The mark of the holder is read; the text form's missing mark of an idle thread is not a "no"."""
    (process,) = pyspy_text.parse("Process 1: python a.py\nPython v3.11\n\nThread 1 (active+gil)\n    f (a.py:3)\n")
    assert (process.threads[0].active, process.threads[0].has_gil) == (True, True)
    assert thread(picture("gil_deadlock", "pyspy-native.json"), 26947).has_gil is True
    assert thread(picture("gil_deadlock", "pyspy-native.txt"), 26947).has_gil is None


def test_pystack_marks_and_order() -> None:
    """The GIL marks of pystack are read, its frames turned innermost first, source lines and `(inlined)` left out."""
    found = picture("gil_deadlock", "pystack-native.txt")
    assert [process.pid for process in found] == [26947]
    waiter, holder = thread(found, 26950), thread(found, 26947)
    assert (waiter.wants_gil, waiter.has_gil, holder.has_gil, holder.wants_gil) == (True, None, True, None)
    assert [frame.function for frame in waiter.frames[4:7]] == [
        "PyCOND_TIMEDWAIT",
        "take_gil",
        "pybind11::gil_scoped_acquire::gil_scoped_acquire",
    ]
    python = [frame for frame in holder.frames if frame.is_python]
    assert [(frame.function, frame.file, frame.line) for frame in python] == [("<module>", "ENV/gil/run_mm.py", 5)]
    assert holder.frames[3].library == "/usr/lib/x86_64-linux-gnu/libstdc++.so.6.0.30"


def test_pystack_source_of_several_lines() -> None:
    """A source excerpt of several lines, also one that looks like a call, is not a frame."""
    text = (
        "Traceback for thread 7 (a (b)) [] (most recent call last):\n"
        '    (Python) File "a.py", line 1, in f\n        g(\n            "(C) x",\n        )\n'
        '    (Python) File "a.py", line 9, in g\n        return 1\n'
    )
    (process,) = stack_readers.parse_pystack(text)
    assert [frame.words for frame in process.threads[0].frames] == ["g (a.py:9)", "f (a.py:1)"]
    assert process.threads[0].name == "a (b)"


def test_gdb_names_who_is_joined() -> None:
    """The arguments that gdb shows tell which thread a join waits for."""
    (process,) = picture("gil_deadlock", "gdb.txt")
    assert process.pid == 26947
    assert {member.tid: member.joins for member in process.threads} == {26950: None, 26949: None, 26947: 26950}
    frame = thread((process,), 26950).frames[6]
    assert (frame.function, frame.file, frame.line) == ("take_gil", "Python/ceval_gil.h", 231)
    assert thread((process,), 26950).frames[9].library == "ENV/libtorch_python.so"


def test_gdb_arguments_with_parentheses() -> None:
    """An unbalanced parenthesis within a string argument does not hide the function."""
    text = 'Thread 1 (LWP 5 "a"):\n#0  0x1 in f (name=0x2 "x) y") at a.c:3\n#1  <signal handler called>\n'
    (process,) = stack_readers.parse_gdb(text)
    assert process.threads[0].frames[0].function == "f"


def test_faulthandler_last_dump_of_each_thread_counts() -> None:
    """Around and between dumps a program writes what it likes; the last stack of each thread is taken."""
    first = 'Thread 0x1 [worker] (most recent call first):\n  File "a.py", line 1 in f\n\nsome warning\n'
    last = 'Current thread 0x1 (most recent call first):\n  File "a.py", line ??? in g\n  ...\nmore words\n'
    (process,) = stack_readers.parse_faulthandler(
        "noise\n" + first + last + '  File "b.py", line 2 in not_a_frame\n', pid=9
    )
    assert [[frame.words for frame in member.frames] for member in process.threads] == [["g (a.py)"]]
    assert process.threads[0].frames[0].language is Language.PYTHON


def test_kernel_waits_name_partners() -> None:
    """A join's futex holds the joined thread's number; other futexes name nobody."""
    found = picture("gil_deadlock", "proc.txt")
    assert {member.tid: member.joins for member in found[0].threads} == {26947: 26950, 26949: None, 26950: None}
    assert {member.state for member in found[0].threads} == {"S"}
    assert [process.pid for process in picture("fork_openmp", "proc.txt")] == [27049, 27054]


def test_stall_rows() -> None:
    """The supervisor's evidence of a stall becomes threads without frames; a broken row is left out."""
    rows = [
        ThreadWait(pid=1, tid=2, name="python", state="S", wait="gil"),
        ThreadWait(pid=1, tid=1, name="python", state="S", wait="child", detail="pid 7"),
        ThreadWait(tid=3),
    ]
    (process,) = stack_readers.from_stall(rows)
    assert [(member.tid, member.wants_gil) for member in process.threads] == [(2, True), (1, None)]


def test_samples_name_no_machine() -> None:
    """The samples hold no path of the machine that they were taken on."""
    for path in SAMPLES.iterdir():
        assert "/tmp/" not in path.read_text()
        assert "/root/" not in path.read_text()


ROWS = [
    {
        "pid": 7, "parent": 5, "command": "python x.py", "environ": {"RANK": "0"},
        "descriptors": [{"number": 4, "link": "pipe:[123]", "holders": [7, 8]}],
        "threads": [{"tid": 7, "descriptor": 4}, {"tid": 9, "name": "worker", "owner": 7}],
    },
    {"pid": 8, "parent": 7, "command": "python", "ended": "SIGKILL"},
]  # fmt: skip
PROCESSES = (
    Process(
        pid=7, parent=5, command="python x.py", environ={"RANK": "0"},
        descriptors=(Descriptor(number=4, link="pipe:[123]", holders=(7, 8)),),
        threads=(Thread(tid=7, descriptor=4), Thread(tid=9, name="worker", owner=7)),
    ),
    Process(pid=8, parent=7, command="python", ended="SIGKILL"),
)  # fmt: skip


def sheet(*rows: object) -> str:
    """Return the text of a sheet."""
    return json.dumps({"processes": rows})


def test_everything_is_read() -> None:
    """Each field of the sheet is the field of the same name."""
    assert parse_facts(sheet(*ROWS)) == PROCESSES


@pytest.mark.parametrize(
    "row",
    [
        {"pid": 7, "threads": [{"tid": "x"}, {"tid": 7, "moon": 1}], "descriptors": [{"number": 1}, 3]},
        {"pid": 7, "threads": [{"tid": 7}], "environ": {"RANK": 3}, "moon": "full"},
        {"pid": 7, "threads": [{"tid": 7}], "descriptors": 5, "environ": []},
    ],
)
def test_what_makes_no_sense_is_left_out(row: dict[str, object]) -> None:
    """A broken thread, descriptor or variable costs only itself, and a field of another release nothing."""
    assert parse_facts(sheet(row, {"parent": 3}, "x")) == (Process(pid=7, threads=(Thread(tid=7),)),)


@given(st.text() | st.lists(st.none() | st.integers() | st.text()).map(json.dumps))
def test_no_text_raises(text: str) -> None:
    """Whatever a file holds is no reason to fail."""
    assert parse_facts(text) == ()


def test_every_cut_of_a_sheet_is_read() -> None:
    """Half a sheet tells nothing, and does not fail."""
    text = sheet(*ROWS)
    assert {parse_facts(text[:length]) for length in range(len(text))} == {()}


def test_facts_join_the_stacks(tmp_path: Path) -> None:
    """States come from the kernel's file, owners and descriptors from the sheet: one picture."""
    (tmp_path / "kernel.txt").write_text("pid 7 parent=5 python x.py\n7 state=S wchan=pipe_read\n9 state=S\n")
    (tmp_path / "facts.json").write_text(sheet(*ROWS))
    parent, ended = read_folder(tmp_path)
    assert [(thread.tid, thread.state, thread.descriptor, thread.owner) for thread in parent.threads] == [
        (7, "S", 4, None),
        (9, "S", None, 7),
    ]
    assert (parent.descriptors, parent.environ) == (PROCESSES[0].descriptors, {"RANK": "0"})
    assert ended == PROCESSES[1]


def test_a_redacted_sheet_is_read(tmp_path: Path) -> None:
    """A secret in a command is replaced, and the rest of the sheet is as before."""
    private = 'pass"word\\of-mine'
    (tmp_path / "facts.json").write_text(sheet({"pid": 7, "command": f"x --key={private}", "parent": 5}))
    Redactor(secrets=(private,)).tree(tmp_path)
    (process,) = parse_facts((tmp_path / "facts.json").read_text())
    assert (process.pid, process.command, process.parent) == (7, f"x --key={TOKEN}", 5)
