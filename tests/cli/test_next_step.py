"""The next step that `matrix` names, as a user meets it: real scripts, in environments of stand-in wheels."""

import signal
from pathlib import Path

import pytest

from tests.cli.shell import User, wait_for
from tests.patience import PATIENCE

NEEDS = "import torch\nimport cv2\n"
UNREADABLE = "import torch\nprint('a'\n"
ARGUMENTS = "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--size', required=True)\n"
ARGUMENTS += "parser.parse_args()\n"
SAYS = "import warnings\nwarnings.warn('slow')\nprint('FAILED: 3 mismatches')\nraise SystemExit(1)\n"
COPIED_LOCK = """
import os, threading
lock, held = threading.Lock(), threading.Event()
def work():
    with lock:
        held.set()
        threading.Event().wait()
threading.Thread(target=work, daemon=True).start()
held.wait()
if pid := os.fork():
    os.waitpid(pid, 0)
lock.acquire()
"""
BOTH = ("matrix", "--torch", "9.1.0,9.2.0")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("source", "words", "step"),
    [
        (NEEDS, "ModuleNotFoundError: No module named 'cv2', in <module> (repro.py:2)", " --with opencv-python"),
        (
            UNREADABLE,
            "SyntaxError: '(' was never closed, in <module> (repro.py:2)",
            "cannot read it; look at repro.py:2",
        ),
        (ARGUMENTS, "the following arguments are required: --size", " -- ARGUMENTS"),
        (SAYS, "exit code 1: FAILED: 3 mismatches", "it is not the release; it says: FAILED: 3 mismatches"),
        (COPIED_LOCK, "the lock `lock`", "next: Start children with `spawn` or `forkserver`, or fork before"),
    ],
    ids=["package", "syntax", "arguments", "says", "lock"],
)
def test_what_is_wrong_with_the_script_is_told(user: User, source: str, words: str, step: str) -> None:
    """Both environments share one line with the words that decide, and the step does not blame the release."""
    ended = user.run(*BOTH, user.script("repro.py", source))
    assert ended.returncode == 1, ended.stdout + ended.stderr
    (line,) = (line for line in ended.stdout.splitlines() if "rerun: " in line)
    assert "torch-9.1.0-pypi, torch-9.2.0-pypi: " in line
    assert words in line
    (first, *_) = (line for line in ended.stdout.splitlines() if line.startswith("next: "))
    assert step in first
    assert "bisect" not in first


def test_a_missing_package_is_told_by_every_command(user: User) -> None:
    """`bisect`, `explain` and `triage` name it, rather than a release."""
    script = user.script("repro.py", NEEDS)
    says = "module 'cv2' is not installed; add --with opencv-python"
    assert f"fails wherever it was tried: {says}" in user.run("bisect", script).stdout
    explained = user.run("explain", script).stdout
    assert f"fails wherever it was tried: {says}" in explained
    assert "no version tried fixes it" not in explained
    triaged = user.run("triage", script, "--torch", "9.2.0", "--until", "classify").stdout
    assert f"missing-package: {says}" in triaged


def test_the_page_has_the_same_step(user: User) -> None:
    """What the terminal says comes next, "what to do" on the page says, too."""
    ended = user.run(*BOTH, user.script("repro.py", COPIED_LOCK), "--html", "page")
    (first, *_) = (line for line in ended.stdout.splitlines() if line.startswith("next: "))
    page = (user.folder / "page" / "index.html").read_text(encoding="utf-8")
    assert f"<p>Next: {first.removeprefix('next: ')}</p>" in page


def test_an_interrupted_matrix_says_how_to_go_on(user: User) -> None:
    """It does not look as if all were as expected."""
    process = user.start(
        "matrix", "--torch", "9.2.0", user.script("endless.py", "NOTE\nimport time\ntime.sleep(300)\n")
    )
    wait_for(lambda: user.runs("endless.py") == 1)
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE) == 130
    output = Path(user.folder, "output.txt").read_text(encoding="utf-8")
    assert "interrupted after 0 cells, 1 of 1 not run\n" in output
    assert output.rstrip().endswith("next: what is done is kept, and the same command goes on")
