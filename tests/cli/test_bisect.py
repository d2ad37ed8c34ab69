"""`whichtorch bisect` on stand-in wheels, as a user gives it: answers, repairs, budgets, interrupts, kills."""

import fcntl
import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from contextlib import suppress
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.cli.shell import FAILS_IN_OLD, User, alive_in, no_torch, wait_for
from tests.patience import PATIENCE
from tests.wheels import Index, build_wheel, serve
from whichtorch.base.atomic_files import remove_tree

pytestmark = pytest.mark.thorough

NAMES = {"o": "old", "n": "new", "b": "other", "x": "fails to import"}
FAILS_IN_TWO_WAYS = """NOTE
import torch
if torch.behaviour == "other":
    raise ValueError("something else")
assert torch.behaviour == "new", "as it was"
"""


wheels = pytest.fixture(no_torch)


def releases(folder: Path, letters: str) -> list[str]:
    """Build releases from 9.0.0 on that behave as NAMES says of their letters; return their versions."""
    versions = [f"9.{minor}.0" for minor in range(len(letters))]
    for version, letter in zip(versions, letters, strict=True):
        build_wheel(folder, version, behaviour=NAMES[letter])
    return versions


def command(*arguments: str, build: str = "pypi") -> list[str]:
    return ["bisect", "repro.py", "--build", build, "--json", "answer.json", *arguments]


def bisect(user: User, *arguments: str, code: int = 0, build: str = "pypi") -> dict[str, Any]:
    """Give the command, check its exit code, and return its JSON with what it said under "said"."""
    ended = user.run(*command(*arguments, build=build))
    assert ended.returncode == code, ended.stdout + ended.stderr
    assert "Traceback" not in ended.stdout + ended.stderr
    return written(user) | {"said": ended.stdout}


def written(user: User) -> dict[str, Any]:
    return json.loads((user.folder / "answer.json").read_text())  # type: ignore[no-any-return]


def boundaries(answer: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(boundary["from"], boundary["to"], boundary["change"]) for boundary in answer["boundaries"]]


def outcomes(answer: dict[str, Any]) -> dict[str, str]:
    return {probe["value"]: probe["outcome"] for probe in answer["probes"]}


@pytest.fixture
def nightlies(tmp_path: Path, user: User) -> Iterator[tuple[Index, list[str]]]:
    """Serve 60 nightlies of 70 days, an old and a new kind, as the build `nights` of a matrix file."""
    days = [date(2026, 8, 1) + timedelta(days=day) for day in range(70) if day % 7 != 3]
    versions = [f"2.16.0.dev{day:%Y%m%d}+cpu" for day in days]
    for number, version in enumerate(versions):
        build_wheel(tmp_path / "nights", version, behaviour="old" if number < 37 else "new")
    with serve(tmp_path / "nights") as index:
        text = f'[axes]\ntorch = [">=0"]\n[build.nights]\nindex-url = "{index.url}"\nnightly = true\n'
        (user.folder / "matrix.toml").write_text(text)
        yield index, versions


def test_sixty_nightlies_with_holes(user: User, nightlies: tuple[Index, list[str]]) -> None:
    """The boundary is found in at most eight installs; asked again nothing runs; what vanished can still be had."""
    index, versions = nightlies
    user.script("repro.py", FAILS_IN_OLD)
    answer = bisect(user, "--matrix", "matrix.toml", build="nights")
    assert len(versions) == len(answer["values"]) == 60
    assert boundaries(answer) == [(versions[36], versions[37], "fix")]
    assert answer["installs"] <= 8
    assert answer["runs"] == user.runs("repro.py") == len(user.records())
    assert f"fixed in {versions[37]}, by torch itself: last that fails {versions[36]}" in answer["said"]

    for wheel in list(index.folder.glob("*.whl"))[10:]:
        wheel.unlink()
    shutil.rmtree(user.folder / ".whichtorch" / "cache")
    again = bisect(user, "--matrix", "matrix.toml", build="nights")
    assert (again["installs"], again["runs"], user.runs("repro.py")) == (0, 0, answer["runs"])
    assert boundaries(again) == boundaries(answer)
    assert set(again["values"]) >= set(outcomes(answer))

    for complete in (user.folder / ".whichtorch" / "envs").glob("*/complete"):  # evicted
        complete.unlink()
        remove_tree(complete.with_name("venv"))
    user.script("repro.py", FAILS_IN_OLD + "# another test\n")
    bounds = ("--bad", versions[36], "--good", versions[37])
    anew = bisect(user, "--matrix", "matrix.toml", *bounds, build="nights")
    assert boundaries(anew) == boundaries(answer)
    assert anew["installs"] == 2


def test_json_has_the_promised_form(user: User, wheels: Path) -> None:
    """What --json writes has the names and the kinds of values that other programs rely on."""
    releases(wheels, "on")
    user.script("repro.py", FAILS_IN_OLD)
    answer = bisect(user)
    assert list(answer)[:5] == ["schema", "scenario", "question", "axis", "values"]
    assert {name: answer[name] for name in ("schema", "scenario", "question", "axis", "answer")} == {
        "schema": 1,
        "scenario": "repro.py",
        "question": "any",
        "axis": "version",
        "answer": "boundary",
    }
    (boundary,) = answer["boundaries"]
    assert boundary["confidence"] > 0.95
    assert boundaries(answer) == [("9.0.0", "9.1.0", "fix")]
    assert boundary["untestable_between"] == []
    wanted = ("value", "outcome", "signature", "k", "n", "reused")
    assert [[probe[name] for name in wanted] for probe in answer["probes"]] == [
        ["9.0.0", "fail", 'AssertionError "as it was" in <module> (repro.py:3)', 3, 3, 0],
        ["9.1.0", "pass", None, 5, 5, 0],
    ]
    assert (answer["installs"], answer["runs"]) == (2, 8)
    assert answer["seconds"] > 0


def test_an_index_that_dies_half_way(user: User, wheels: Path, index: Index) -> None:
    """The search ends with its bracket and the index named; the same command goes on when it is back."""
    versions = releases(wheels, "ooooonnnn")
    user.environ["UV_HTTP_RETRIES"] = "0"
    user.script("repro.py", FAILS_IN_OLD)
    process = user.start(*command())
    wait_for(lambda: len(user.records()) == 4)  # both bounds
    index.failing = 10**6
    assert process.wait(PATIENCE) == 4, (user.folder / "output.txt").read_text()
    said = (user.folder / "output.txt").read_text()
    assert f"the index {index.url} cannot be read: it answers 503" in said
    assert "Traceback" not in said
    answer = written(user)
    assert answer["answer"] == "inconclusive"
    (bracket,) = answer["boundaries"]
    assert bracket["untestable_between"] == []
    assert versions.index(bracket["from"]) <= 4 < versions.index(bracket["to"])
    before = user.runs("repro.py")
    index.failing = 0
    answer = bisect(user)
    assert boundaries(answer) == [("9.4.0", "9.5.0", "fix")]
    assert answer["runs"] == user.runs("repro.py") - before


def test_a_dead_index_at_the_start(user: User) -> None:
    """Where not even the versions can be listed, the index is named and the exit code is 3."""
    user.script("repro.py", FAILS_IN_OLD)
    user.environ["UV_DEFAULT_INDEX"] = "http://127.0.0.1:9/simple"
    ended = user.run(*command())
    assert ended.returncode == 3, ended.stdout + ended.stderr
    assert "the index http://127.0.0.1:9/simple cannot be read" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_an_untestable_block(user: User, wheels: Path, index: Index) -> None:
    """Wheels that do not import and an install that hangs lie in the bracket, and each is told with its reason."""
    releases(wheels, "ooxxnn")
    build_wheel(wheels, "9.3.0", behaviour="new")
    index.held, index.at = threading.Event(), "torch-9.3.0"
    user.script("repro.py", FAILS_IN_OLD)
    answer = bisect(user, "--install-timeout", "6")
    index.held.set()
    assert boundaries(answer) == [("9.1.0", "9.4.0", "fix")]
    assert answer["boundaries"][0]["untestable_between"] == ["9.2.0", "9.3.0"]
    assert outcomes(answer) == {
        "9.0.0": "fail",
        "9.1.0": "fail",
        "9.2.0": "broken",
        "9.3.0": "unbuildable",
        "9.4.0": "pass",
        "9.5.0": "pass",
    }
    assert "9.3.0-pypi: unbuildable: resolving took longer than 6 s" in answer["said"]
    assert "fixed between 9.1.0 and 9.4.0" in answer["said"]


def test_two_boundaries_are_found_by_default(user: User, wheels: Path) -> None:
    """Good at both bounds, bad between: both changes are told."""
    releases(wheels, "nnoonn")
    user.script("repro.py", FAILS_IN_OLD)
    answer = bisect(user, "--jobs", "2")
    assert boundaries(answer) == [("9.1.0", "9.2.0", "regression"), ("9.3.0", "9.4.0", "fix")]
    assert "broken in 9.2.0" in answer["said"]
    assert "fixed in 9.4.0" in answer["said"]


def test_bounds_are_repaired_and_failures_told_apart(user: User, wheels: Path) -> None:
    """Wrong, swapped, missing and single bounds lead to the boundary, and what was done about them is said."""
    releases(wheels, "oobnn")
    user.script("repro.py", FAILS_IN_TWO_WAYS)
    newest = bisect(user)
    assert boundaries(newest) == [("9.2.0", "9.3.0", "fix")]
    assert "also: another failure, fail in 9.0.0: AssertionError: as it was, in <module> (repro.py:5)" in newest["said"]
    assert next(stretch["values"] for stretch in newest["timeline"]) == ["9.0.0"]
    answer = bisect(user, "--failure", "assertionerror")
    assert boundaries(answer) == [("9.1.0", "9.3.0", "fix")]
    assert answer["boundaries"][0]["different_between"] == ["9.2.0"]
    assert "fails in another way: 9.2.0" in answer["said"]
    user.run("matrix", "--torch", "9.0,9.2", "repro.py")
    assert boundaries(bisect(user, "--failure", "latest:torch-9.0.0-pypi")) == boundaries(answer)
    other = user.run(*command("--failure", "latest:torch-9.4.0-pypi"))
    assert (other.returncode, "no failure of repro.py in torch-9.4.0-pypi" in other.stderr) == (2, True)
    assert "no failure that was seen has the words 'nonsense'" in bisect(user, "--failure", "nonsense")["reasons"]
    assert boundaries(bisect(user, "--failure", "any")) == [("9.2.0", "9.3.0", "fix")]
    swapped = bisect(user, "--good", "9.0", "--bad", "9.4")
    assert boundaries(swapped) == boundaries(newest)
    assert "no regression was found; the bounds show a fix instead" in swapped["reasons"]
    assert (
        "not good: 9.0.0: fail, 3 of 3 runs: AssertionError: as it was, in <module> (repro.py:5)" in swapped["reasons"]
    )
    missing = bisect(user, "--bad", "9.0.0", "--good", "9.0.5")  # and wrong
    assert boundaries(missing) == boundaries(answer)
    assert "there is no 9.0.5: 9.1.0 is used instead" in missing["reasons"]
    assert "note: not good: 9.1.0: fail" in missing["said"]
    assert boundaries(bisect(user, "--bad", "9.1.0")) == boundaries(answer)


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_a_flaky_hang(user: User, wheels: Path) -> None:
    """A hang that shows in two of three runs is found with the confidence asked for, and its rate is told."""
    releases(wheels, "oon")
    hangs = "NOTE\nimport time, torch\nruns = len(open(__file__ + '.runs').readlines())\n"
    hangs += "if torch.behaviour == 'old' and runs % 3:\n    time.sleep(300)\n"
    user.script("repro.py", hangs)
    answer = bisect(user, "--timeout", "2")
    assert boundaries(answer) == [("9.1.0", "9.2.0", "fix")]
    assert answer["boundaries"][0]["confidence"] >= 0.95
    assert outcomes(answer) == {"9.0.0": "hang", "9.1.0": "hang", "9.2.0": "pass"}
    assert any(0 < probe["k"] < probe["n"] for probe in answer["probes"])


def test_an_interrupt_keeps_what_is_done(user: User, wheels: Path) -> None:
    """Ctrl-C tells what is known, ends with 130 and leaves nothing running; the same command goes on, two at a time."""
    releases(wheels, "oonn")
    endless = user.folder / "endless"
    endless.touch()
    waits = (
        f"import os, time\nwhile os.path.exists({str(endless)!r}) and torch.behaviour == 'new':\n    time.sleep(0.05)\n"
    )
    script = user.script("repro.py", FAILS_IN_OLD.replace("assert", f"{waits}assert"))
    process = user.start(*command())
    wait_for(lambda: len(user.records()) == 3 and user.runs(script) == 4)
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE) == 130, (user.folder / "output.txt").read_text()
    wait_for(lambda: not alive_in(user.folder))
    assert len(user.records()) == 3
    said = (user.folder / "output.txt").read_text()
    assert "interrupted: stopping what runs" in said
    assert "9.0.0 FAIL" in said
    assert said.endswith("interrupted: what is done is kept, and the same command goes on\n")
    partial = written(user)
    assert (partial["interrupted"], partial["answer"], partial["reasons"][0]) == (True, "inconclusive", "interrupted")
    assert [(probe["value"], probe["k"], probe["n"]) for probe in partial["probes"]] == [("9.0.0", 3, 3)]
    (run,) = (user.folder / ".whichtorch" / "runs").iterdir()
    assert json.loads((run / "bisection.json").read_text())["probes"] == partial["probes"]
    endless.unlink()
    answer = bisect(user, "--jobs", "2")
    assert boundaries(answer) == [("9.1.0", "9.2.0", "fix")]
    assert user.runs(script) - len(user.records()) in {
        1,
        2,
    }  # the interrupted one, and one ahead of need that was stopped


def test_kill_nine_at_ten_moments(user: User, wheels: Path, tmp_path: Path) -> None:
    """Killed while it resolves, installs, probes or runs, a search ends as if it had not been, at most a run a kill."""
    releases(wheels, "ooonnn")
    undisturbed = User(tmp_path / "undisturbed", user.environ)
    (undisturbed.folder / ".whichtorch").mkdir(parents=True)
    undisturbed.script("repro.py", FAILS_IN_OLD)
    expected = bisect(undisturbed)

    script = user.script("repro.py", FAILS_IN_OLD)
    kills = 0
    for moment in MOMENTS:
        records, runs = len(user.records()), user.runs(script)
        process = user.start(*command())
        wait_for(lambda: _has_come(user, moment, records, runs) or process.poll() is not None)  # noqa: B023
        kills += process.poll() is None
        process.kill()
        process.wait(PATIENCE)
    answer = bisect(user)
    assert kills == len(MOMENTS) == 10
    assert boundaries(answer) == boundaries(expected) == [("9.2.0", "9.3.0", "fix")]
    assert outcomes(answer) == outcomes(expected)
    assert len(user.records()) == len(undisturbed.records())
    assert user.runs(script) <= undisturbed.runs("repro.py") + kills
    wait_for(lambda: not alive_in(user.folder))


MOMENTS = (
    *("resolving", "started", "installing", "record", "probing"),
    *("started", "installing", "record", "started", "record"),
)


def _has_come(user: User, moment: str, records: int, runs: int) -> bool:
    """Return whether a moment has come: more records or runs than so many, or a stage of an environment."""
    if moment == "record":
        return len(user.records()) > records
    if moment == "started":
        return user.runs("repro.py") > runs
    return f": {moment}" in (user.folder / "output.txt").read_text()


STUCK_WITHIN = "NOTE\nimport time, torch\ndef stuck():\n    time.sleep(300)\nstuck()\n"


@pytest.mark.skipif(sys.platform != "linux", reason="needs py-spy")
def test_an_end_tells_where_it_was(user: User, wheels: Path) -> None:
    """SIGTERM, and the end of --max-time, tell the line of Python that a probe was at."""
    releases(wheels, "on")
    user.script("repro.py", STUCK_WITHIN)
    process = user.start(*command("--timeout", "50", "--max-time", "22"))
    assert process.wait(PATIENCE) == 4
    said = (user.folder / "output.txt").read_text()
    assert "the time limit of 22 s is over: stopping what runs" in said
    assert "  at stuck (repro.py:" in said
    assert not written(user)["interrupted"]
    process = user.start(*command("--timeout", "50"))
    wait_for(lambda: user.runs("repro.py") == 2)
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 130
    assert written(user)["interrupted"]


def test_an_interrupt_before_anything_was_seen(user: User, wheels: Path, index: Index) -> None:
    """During the first install, Ctrl-C gives one line, an answer without probes, and 130."""
    releases(wheels, "on")
    index.held, index.at = threading.Event(), "torch-9.0.0"
    user.script("repro.py", FAILS_IN_OLD)
    process = user.start(*command())
    wait_for(lambda: _has_come(user, "installing", 0, 0) or _has_come(user, "resolving", 0, 0))
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE) == 130, (user.folder / "output.txt").read_text()
    index.held.set()
    assert (written(user)["interrupted"], written(user)["probes"]) == (True, [])
    assert "inconclusive" not in (user.folder / "output.txt").read_text()


@pytest.mark.skipif(sys.platform != "linux", reason="needs terminals of Linux")
def test_a_lost_terminal_leaves_the_answer(user: User, wheels: Path) -> None:
    """Where the terminal goes away, what is known is in the file all the same, and nothing runs on."""
    releases(wheels, "on")
    script = user.script("repro.py", FAILS_IN_OLD + "import time\ntime.sleep(300)\n")
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        user.command(*command()),
        cwd=user.folder,
        env=user.environ,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.close(theirs)
    read = threading.Thread(target=_drain, args=(ours,))
    read.start()
    wait_for(lambda: user.runs(script) == 4)
    os.close(ours)
    assert process.wait(PATIENCE) == 130
    read.join()
    assert [probe["value"] for probe in written(user)["probes"]] == ["9.0.0"]
    wait_for(lambda: not alive_in(user.folder))


def _drain(terminal: int) -> None:
    with suppress(OSError):
        while os.read(terminal, 1024):
            pass


def test_a_search_says_nothing_of_an_index_that_it_does_not_need(user: User) -> None:
    """Which build `auto` is matters to those who plan an install; the environments' labels say it."""
    releases(user.folder.parent / "wheels", "on")
    user.script("repro.py", FAILS_IN_OLD)
    ended = user.run("bisect", "repro.py", "--torch", "9.0.0,9.1.0")
    assert (ended.returncode, "gave no answer" in ended.stdout) == (0, False), ended.stdout + ended.stderr
