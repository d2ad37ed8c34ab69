"""bisect over days and over lock files, on stand-in wheels from an index that tells when they came."""

import json
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.cli.shell import User, two_stacks, wait_for
from tests.patience import PATIENCE
from tests.wheels import Index

pytestmark = pytest.mark.thorough

# what breaks it is numpy 2.3, or cublas 13 together with torch 9.2
SCRIPT = """\
NOTE
import numpy, torch
assert not numpy.__version__.startswith("2.3"), "numpy is too new"
"""
DAYS = {
    "torch-9.1.0": "2026-03-01",
    "numpy-2.2.6": "2026-03-01",
    "numpy-2.3.0": "2026-03-12",
    "setuptools-80.0.0": "2026-03-01",
    "setuptools-80.1.0": "2026-03-05",
    "setuptools-80.2.0": "2026-03-12",
    "filelock-3.0": "2026-03-01",
    "filelock-3.1": "2026-03-20",
}


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    return two_stacks(tmp_path / "wheels")


def bisect(user: User, *arguments: str) -> dict[str, Any]:
    ended = user.run("bisect", "repro.py", "--build", "pypi", "--json", "answer.json", *arguments)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    (user.folder / "said.txt").write_text(ended.stdout)
    return json.loads((user.folder / "answer.json").read_text())  # type: ignore[no-any-return]


def test_the_day_and_the_package_that_broke_it_are_found(user: User, index: Index) -> None:
    """Of the two packages released that day the one that matters is told, and asked again nothing runs."""
    for wheel in index.folder.glob("*.whl"):
        day = DAYS.get("-".join(wheel.name.split("-")[:2]), "2026-03-01")
        index.uploaded[wheel.name] = f"{day}T12:00:00Z"
    user.script("repro.py", SCRIPT)
    arguments = ("--axis", "date", "--since", "2026-03-02", "--until", "2026-03-25", "--torch", "9.1.0")
    answer = bisect(user, *arguments)
    assert [(boundary["from"], boundary["to"], boundary["change"]) for boundary in answer["boundaries"]] == [
        ("2026-03-11", "2026-03-12", "regression")
    ]
    assert answer["changes"] == ["numpy 2.2.6 -> 2.3.0"]
    assert answer["differing"] == 2
    said = (user.folder / "said.txt").read_text()
    assert "it takes numpy 2.2.6 -> 2.3.0; one other change does not matter" in said
    runs = user.runs("repro.py")
    again = bisect(user, *arguments)
    assert (again["installs"], again["runs"], user.runs("repro.py")) == (0, 0, runs)
    assert again["changes"] == answer["changes"]


def test_an_index_that_tells_no_days_is_named_as_the_reason(user: User) -> None:
    """Where the index publishes no upload times the answer is inconclusive, and says why."""
    user.script("repro.py", SCRIPT)
    arguments = ("--axis", "date", "--since", "2026-03-02", "--until", "2026-03-25", "--torch", "9.1.0")
    ended = user.run("bisect", "repro.py", "--build", "pypi", *arguments)
    assert ended.returncode == 4, ended.stdout + ended.stderr
    assert "inconclusive" in ended.stdout
    assert "as of 2026-03-02, resolving failed" in ended.stdout


GOOD = "torch==9.1.0\ncublas==12.1\nnumpy==2.2.6\nfilelock==3.0\nidna==3.6\nsetuptools==80.0.0\n"
BAD = "torch==9.2.0\ncublas==13.1\nnumpy==2.3.0\nfilelock==3.1\nidna==3.7\nsetuptools==80.0.0\nsympy==1.13\n"


def locks(user: User) -> tuple[str, ...]:
    (user.folder / "good.txt").write_text(GOOD)
    (user.folder / "bad.txt").write_text(BAD)
    return ("--good", "good.txt", "--bad", "bad.txt")


def test_the_one_package_of_many_that_matters_is_found(user: User) -> None:
    """Six packages differ, one decides; a second time nothing is installed and nothing runs."""
    user.script("repro.py", SCRIPT)
    answer = bisect(user, *locks(user))
    assert (answer["answer"], answer["changes"], answer["along"]) == ("boundary", ["numpy 2.2.6 -> 2.3.0"], [])
    assert answer["differing"] == 6
    runs = user.runs("repro.py")
    again = bisect(user, *locks(user))
    assert (again["installs"], again["runs"], user.runs("repro.py")) == (0, 0, runs)


def test_packages_that_pin_each_other_are_changed_together(user: User) -> None:
    """Torch decides, and takes along the library that it pins."""
    user.script("repro.py", "NOTE\nimport torch\nassert torch.__version__ == '9.1.0'\n")
    answer = bisect(user, *locks(user))
    assert (answer["changes"], answer["along"]) == (["torch 9.1.0 -> 9.2.0"], ["cublas 12.1 -> 13.1"])
    assert "which cannot be installed without cublas 12.1 -> 13.1" in (user.folder / "said.txt").read_text()


def test_two_packages_that_only_break_it_together_are_both_told(user: User) -> None:
    """Neither change alone breaks it."""
    user.script(
        "repro.py",
        "NOTE\nimport numpy, idna\nassert not (numpy.__version__ == '2.3.0' and idna.__version__ == '3.7')\n",
    )
    answer = bisect(user, *locks(user))
    assert answer["changes"] == ["idna 3.6 -> 3.7", "numpy 2.2.6 -> 2.3.0"]


def test_locks_that_do_not_differ_in_outcome_have_no_culprit(user: User) -> None:
    """Where both pass, the packages are not it, and only the two locks were tried."""
    user.script("repro.py", "NOTE\n")
    answer = bisect(user, *locks(user))
    assert (answer["answer"], answer["changes"], len(answer["probes"])) == ("none", [], 2)


def test_the_environment_of_a_python_is_one_side(user: User, tmp_path: Path) -> None:
    """An environment that exists is compared with a lock file, by what it holds."""
    user.script("repro.py", SCRIPT)
    bisect(user, *locks(user))
    good = next((user.folder / ".whichtorch" / "envs").glob("*/venv/bin/python"))
    versions = {path.name.split("-")[1] for path in good.parent.parent.glob("lib/*/site-packages/numpy-*.dist-info")}
    sides = ("--good", str(good), "--bad", "bad.txt")
    if any(name.startswith("2.3") for name in versions):
        sides = ("--good", "good.txt", "--bad", str(good))
    answer = bisect(user, *sides)
    assert answer["changes"] == ["numpy 2.2.6 -> 2.3.0"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--axis", "date"], "--axis date needs --since"),
        (["--since", "2026-01-01"], "go with --axis date"),
        (["--axis", "date", "--since", "spring"], "'spring' is no day"),
        (["--axis", "date", "--since", "2026-03-03", "--until", "2026-03-02"], "is not before"),
        (["--axis", "date", "--since", "2026-03-03", "--until", "9999-01-01"], "is yet to come"),
        (["--good", "good.txt"], "two sides are compared"),
        (["--good", "good.txt", "--bad", "9.1.0"], "two sides are compared"),
        (["--good", "none.txt", "--bad", "nor.txt"], "none.txt: No such file or directory\ncannot read"),
        (["--max-time", "soon"], "'soon' is not a duration"),
    ],
)
def test_mistake_gives_one_clear_message(user: User, arguments: list[str], message: str) -> None:
    """Options that do not go together end with exit code 2 and a word on what would."""
    user.script("repro.py", SCRIPT)
    ended = user.run("bisect", "repro.py", "--build", "pypi", "--torch", "9.1.0", *arguments)
    assert ended.returncode == 2, ended.stdout + ended.stderr
    assert message in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(("probes", "kept"), [(2, 1), (3, 2)])
def test_interrupted_packages_are_told(user: User, probes: int, kept: int) -> None:
    """Ctrl-C while both locks are compared, or some of their changes, tells what was seen by then."""
    waits = f"import os, time\nwhile os.path.exists({str(user.folder / 'gate')!r}):\n    time.sleep(0.05)\n"
    user.script("repro.py", SCRIPT.replace("assert", f"{waits}assert"))
    process = user.start("bisect", "repro.py", "--build", "pypi", "--json", "answer.json", *locks(user))
    said = user.folder / "output.txt"
    wait_for(lambda: f"probe {min(probes, 2)}: " in said.read_text() and said.read_text().count("probe ") >= probes)
    (user.folder / "gate").touch()
    runs = user.runs("repro.py")
    wait_for(lambda: user.runs("repro.py") > runs)
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE) == 130, said.read_text()
    answer = json.loads((user.folder / "answer.json").read_text())
    assert (answer["interrupted"], answer["answer"]) == (True, "inconclusive")
    assert len(answer["probes"]) >= kept


@pytest.mark.parametrize("is_over", [True, False])
def test_an_index_that_hangs_is_left(user: User, index: Index, is_over: bool) -> None:
    """Ctrl-C and the end of --max-time end a search that resolves a day, too, and write the file that was asked for."""
    for wheel in index.folder.glob("*.whl"):
        index.uploaded[wheel.name] = "2026-03-01T12:00:00Z"
    user.script("repro.py", SCRIPT)
    asked = ("bisect", "repro.py", "--build", "pypi", "--json", "answer.json", "--axis", "date", "--torch", "9.1.0")
    index.held, index.at = threading.Event(), "numpy"
    bounded = ("--max-time", "3") if is_over else ()
    process = user.start(*asked, "--since", "2026-03-02", "--until", "2026-03-25", *bounded)
    wait_for(lambda: any("numpy" in path for path in index.paths))
    if not is_over:
        process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == (4 if is_over else 130), (user.folder / "output.txt").read_text()
    index.held.set()
    answer = json.loads((user.folder / "answer.json").read_text())
    assert (answer["interrupted"], answer["probes"], len(answer["values"])) == (not is_over, [], 24)
