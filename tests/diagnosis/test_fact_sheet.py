"""A sheet of facts is read as far as it makes sense, and joins the picture that the stacks give."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whichtorch.matrix.diagnosis.hang.stack_folder import read_folder
from whichtorch.matrix.diagnosis.stack_readers import parse_facts
from whichtorch.matrix.diagnosis.stacks import Descriptor, Process, Thread
from whichtorch.matrix.privacy.redaction import TOKEN, Redactor

if TYPE_CHECKING:
    from pathlib import Path

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
