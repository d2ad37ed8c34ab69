"""Lines that make a wrong output, or an exception that is missing, a failure."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from whichtorch.matrix.answer.claims import Claim
from whichtorch.matrix.answer.printed_check import checked


def ended(source: str, claim: Claim, folder: Path) -> tuple[int, str]:
    script = folder / "repro.py"
    script.write_text(checked(source, claim)[0])
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


@pytest.mark.parametrize(("printed", "code"), [("count: 8", 1), ("count: 2", 0), ("count:  2", 0), ("count: 28", 1)])
def test_a_script_fails_unless_it_prints_what_is_expected(printed: str, code: int, tmp_path: Path) -> None:
    claim = Claim(expected="count: 2", seen="count: 8")

    assert ended(f"from __future__ import annotations\nprint({printed!r})\n", claim, tmp_path)[0] == code


def test_the_failure_names_what_the_report_says_is_printed(tmp_path: Path) -> None:
    assert (
        "printed count: 8, expected count: 2"
        in ended("print('count: 8')", Claim(expected="count: 2", seen="count: 8"), tmp_path)[1]
    )


@pytest.mark.parametrize(("source", "code"), [("pass", 1), ("raise ValueError('x')", 0), ("raise KeyError('x')", 1)])
def test_a_script_passes_if_it_raises_what_the_report_expects(source: str, code: int, tmp_path: Path) -> None:
    assert ended(source, Claim(is_silent=True, exceptions=(("ValueError", ""),)), tmp_path)[0] == code


def test_another_claim_changes_nothing() -> None:
    assert checked("print(1)\n", Claim()) == ("print(1)\n", ())
