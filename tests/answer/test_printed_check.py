"""Lines that make a wrong output, or an exception that is missing, a failure."""

import subprocess
import sys
from pathlib import Path

import pytest

from whichtorch.answer.claims import Claim
from whichtorch.answer.script_candidates import checked


def ended(source: str, claim: Claim, folder: Path) -> tuple[int, str]:
    script = folder / "repro.py"
    script.write_text(checked(source, claim)[0])
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


@pytest.mark.parametrize(("printed", "code"), [("count: 8", 1), ("count: 2", 0), ("count:  2", 0), ("count: 28", 1)])
def test_a_script_fails_unless_it_prints_what_is_expected(printed: str, code: int, tmp_path: Path) -> None:
    claim = Claim(expected="count: 2", seen="count: 8")

    assert ended(f"from __future__ import annotations\nprint({printed!r})\n", claim, tmp_path)[0] == code


@pytest.mark.parametrize(
    ("printed", "seen", "expected", "code"),
    [
        ("tensor([0.4311, 2.0000])", "tensor([0.4312, 2.0000])", "tensor([0.5000, 2.0000])", 1),  # the last digit
        ("tensor([0.5001, 2.0000])", "tensor([0.4312, 2.0000])", "tensor([0.5000, 2.0000])", 0),
        ("0.43121", "0.43122", "0.43121", 0),  # the report's own two values are as near as that
        ("step 1: 0.70 0.43", "0.43", "0.70", 1),
        ("1.0 2.0 2.1", "2.0 2.1", "", 1),
        ("3", "2", "", 0),  # whole numbers are exact
        ("tensor([3.])", "tensor([2.])", "", 0),
        ("-0.5", "0.5", "", 0),
        ("nan", "nan", "0.25", 1),
        ("1.0001e-05", "1.0002e-05", "3e-05", 1),
    ],
)
def test_numbers_count_up_to_their_last_digit(
    printed: str, seen: str, expected: str, code: int, tmp_path: Path
) -> None:
    """Another machine prints another last digit; what tells wrong from right is never taken for that."""
    assert ended(f"print({printed!r})\n", Claim(expected=expected, seen=seen), tmp_path)[0] == code


def test_the_failure_names_what_the_report_says_is_printed(tmp_path: Path) -> None:
    assert (
        "printed count: 8, expected count: 2"
        in ended("print('count: 8')", Claim(expected="count: 2", seen="count: 8"), tmp_path)[1]
    )


@pytest.mark.parametrize(("source", "code"), [("pass", 1), ("raise {}('x')", 0), ("raise KeyError('x')", 1)])
@pytest.mark.parametrize("name", ["ValueError", "AssertionError"])
def test_a_script_passes_if_it_raises_what_the_report_expects(
    source: str, code: int, name: str, tmp_path: Path
) -> None:
    claim = Claim(is_silent=True, exceptions=((name, ""),))

    assert ended(source.format(name), claim, tmp_path)[0] == code


@pytest.mark.parametrize("end", ["", "raise SystemExit", "import sys; sys.exit(0)", "exit()"])
def test_the_output_is_checked_however_the_script_ends(end: str, tmp_path: Path) -> None:
    """Many scripts end with a call of `sys.exit`."""
    claim = Claim(expected="4", seen="3")

    assert ended(f"print(3)\n{end}\n", claim, tmp_path)[0] == 1
    assert ended(f"print(4)\n{end}\n", claim, tmp_path)[0] == 0


def test_a_failure_of_the_script_itself_is_told_alone(tmp_path: Path) -> None:
    """What it printed before that is not checked."""
    code, stderr = ended("print(3)\n1 / 0\n", Claim(expected="4", seen="3"), tmp_path)

    assert (code, stderr.count("Traceback"), "ZeroDivisionError" in stderr) == (1, 1, True)


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_processes_that_the_script_starts_are_not_checked(start: str, tmp_path: Path) -> None:
    """They print another text than the script."""
    source = f"""
import multiprocessing

def work():
    print("busy")

if __name__ == "__main__":
    child = multiprocessing.get_context({start!r}).Process(target=work)
    child.start()
    child.join()
    print(child.exitcode + 4)
"""
    assert ended(source, Claim(expected="4", seen="3"), tmp_path)[0] == 0


def test_another_claim_changes_nothing() -> None:
    assert checked("print(1)\n", Claim()) == ("print(1)\n", ())
