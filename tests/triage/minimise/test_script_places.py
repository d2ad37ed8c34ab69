"""Which lines of a script run."""

import subprocess
import sys
from pathlib import Path

import pytest

from whichtorch.triage.minimise.script_places import instrumented

SCRIPT = '''\
"""Of some use."""
from __future__ import annotations


def used(x):
    if x:
        return 1
    return 2


def unused():
    return 3


class Thing:
    size = 2

    def method(self):
        for _ in range(2):
            pass
        else:
            size = 3


Thing().method()
used(True)
raise ValueError
used(False)
'''


def lines_run(tmp_path: Path, source: str) -> set[int]:
    """Run a script, and return the lines that it noted."""
    notes = tmp_path / "lines.txt"
    script = instrumented(source, str(notes))
    assert script is not None
    subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    return {int(line) for line in notes.read_text().split()}


def test_statements_that_run_are_noted_once(tmp_path: Path) -> None:
    """Bodies that are entered, up to the line that raises; definitions are statements, their bodies may not run."""
    lines = lines_run(tmp_path, SCRIPT)
    assert lines == {5, 6, 7, 11, 15, 16, 18, 19, 20, 22, 25, 26, 27}


@pytest.mark.parametrize("source", ["if x", "\0", ")"])
def test_what_python_cannot_read_is_not_instrumented(source: str) -> None:
    """There is nothing to run."""
    assert instrumented(source, "lines.txt") is None


@pytest.mark.thorough
def test_a_long_script_is_instrumented_too() -> None:
    """A graph of a large model is written out in thousands of lines."""
    source = "".join(f"t{number} = [t{number - 1}, f(t0, t1, t2)]\n" for number in range(1, 6000))
    assert (instrumented(source, "lines.txt") or "").count("t5999 = ") == 1
