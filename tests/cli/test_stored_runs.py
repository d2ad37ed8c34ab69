"""compare, merge, history and runs, on runs that were really made, with stand-in wheels."""

import json
import os
import shutil

import pytest

from tests.cli.shell import FAILS_IN_OLD, User
from tests.test_schema import validator

pytestmark = pytest.mark.thorough

HANGS = """
import threading, torch
lock = threading.Lock()
lock.acquire(torch.behaviour == 'new')
lock.acquire(torch.behaviour == 'new')
"""
PASSES = "import torch\n"
FAILS = "import torch\nraise ValueError('planted')\n"


def matrix(user: User, *options: str) -> int:
    return user.run("matrix", "--torch", "9.1.0,9.2.0", *options).returncode


def failing_later(user: User) -> str:
    """Return a script that fails once there is a file `worse`: it is the same script before and after."""
    return f"import os, torch\nif os.path.exists({str(user.folder / 'worse')!r}): raise KeyError('planted')\n"


def scripts(user: User, **sources: str) -> list[str]:
    """Write scripts, and return the options that run them."""
    return [user.script(f"{name}.py", source) for name, source in sources.items()]


@pytest.fixture
def two_nights(user: User) -> User:
    """Run a matrix twice; in the second night one script regresses, one is fixed, one hangs instead of failing."""
    worse = failing_later(user)
    other = FAILS + "# as better\n"
    matrix(user, *scripts(user, same=PASSES, worse=worse, better=FAILS, other=other, gone=PASSES, edited=PASSES))
    (user.folder / "worse").touch()
    night = scripts(user, same=PASSES, worse=worse, better=PASSES, other=HANGS, new=PASSES, edited=FAILS)
    matrix(user, *night, "--fresh")
    return user


def test_compare_finds_exactly_what_was_planted(two_nights: User) -> None:
    """Per cell its kind, the counts, the environment, the commands that go on, the JSON, and exit code 1."""
    ended = two_nights.run("compare", "latest~1", "latest", "--json", "c.json")
    assert ended.returncode == 1, ended.stdout + ended.stderr
    found = json.loads((two_nights.folder / "c.json").read_text())
    validator("compare").validate(found)
    kinds = {
        (cell["name"], (cell["new"] or cell["old"])["environment"][6:11]): cell["change"] for cell in found["cells"]
    }
    both = ("9.1.0", "9.2.0")
    assert kinds == (
        {("same.py", torch): "still passing" for torch in both}
        | {("worse.py", torch): "regression" for torch in both}
        | {("edited.py", torch): "regression" for torch in both}
        | {("better.py", torch): "fixed" for torch in both}
        | {("gone.py", torch): "disappeared" for torch in both}
        | {("new.py", torch): "appeared" for torch in both}
        | {("other.py", "9.1.0"): "fixed", ("other.py", "9.2.0"): "different failure"}
    )
    assert "    4  regression         passed, and does not any more" in ended.stdout
    shown = "KeyError \"'planted'\" in <module> (worse.py:2)"
    assert f"regression  pass -> FAIL!  worse.py  torch-9.1.0-pypi: {shown}" in ended.stdout
    assert "different failure  FAIL! -> HANG!  other.py  torch-9.2.0-pypi" in ended.stdout
    assert ended.stdout.count("the test itself changed: the script, or a module beside it\n") == 6  # of each item
    assert "rerun: whichtorch matrix worse.py --torch 9.1.0 --build pypi --fresh" in ended.stdout
    itself = two_nights.run("compare", "latest", "latest")
    assert itself.returncode == 0  # what still fails is no news
    assert "regression" not in itself.stdout


def test_a_matrix_is_red_only_for_what_got_worse(user: User) -> None:
    """With a baseline a known failure ends with 0, a new one with 1, and a night that could not run with 3."""
    known = scripts(user, known=FAILS_IN_OLD)
    assert matrix(user, *known) == 1
    assert matrix(user, *known, "--baseline", "latest") == 0
    later = scripts(user, later=failing_later(user))
    assert matrix(user, *known, *later) == 1
    (user.folder / "worse").touch()
    assert matrix(user, *known, *later, "--fresh", "--baseline", "latest") == 1
    assert (
        matrix(user, *scripts(user, known=FAILS), "--baseline", "latest") == 1
    )  # the script changed, and passed before
    gone = ["--torch", "9.2.0", *known, "--install-timeout", "1"]
    shutil.rmtree(user.folder / ".whichtorch" / "envs")
    ended = user.run(
        "matrix", *gone, "--fresh", "--baseline", "latest", environ={"UV_DEFAULT_INDEX": "http://127.0.0.1:9"}
    )
    assert ended.returncode == 3, ended.stdout + ended.stderr


def test_a_baseline_that_is_not_there_is_told_before_anything_runs(user: User) -> None:
    """Hours of work do not end in a typing mistake."""
    script = user.script("script.py", "NOTE\n")
    ended = user.run("matrix", "--torch", "9.1.0", script, "--baseline", "last-week")
    assert ended.returncode == 2
    assert "no run is called last-week" in ended.stderr
    assert user.runs("script.py") == 0


def test_jobs_become_one_run(user: User) -> None:
    """Runs of single environments, as artifacts from two machines, merge into what one machine would have made."""
    script = user.script("repro.py", FAILS_IN_OLD)
    for torch in ("9.1.0", "9.2.0"):
        user.run("matrix", "--torch", torch, script)
        shutil.move(user.folder / ".whichtorch" / "runs", user.folder / "artifacts" / torch / "runs")
    ended = user.run("merge", "artifacts", "artifacts/9.1.0")
    assert ended.returncode == 0, ended.stderr
    assert "2 environments, 2 cells, 2 records" in ended.stdout
    shutil.rmtree(user.folder / "artifacts")
    listed = user.run("history", "repro.py")
    assert [line.split()[3:5] for line in listed.stdout.splitlines()[1:3]] == [
        ["torch-9.1.0-pypi", "FAIL!"],
        ["torch-9.2.0-pypi", "pass"],
    ]


def test_runs_are_told_listed_named_and_removed(two_nights: User) -> None:
    """A line per night and environment; a name stands for a run and spares it; the others go, with what they took."""
    ended = two_nights.run("history", "worse.py", "--json", "h.json")
    assert ended.returncode == 0
    assert [line.split()[4] for line in ended.stdout.splitlines()[1:5]] == ["pass", "pass", "FAIL!", "FAIL!"]
    assert ended.stdout.count("regression") == 2
    assert len(json.loads((two_nights.folder / "h.json").read_text())["histories"]["worse.py"]) == 4
    assert two_nights.run("history", "nobody.py").returncode == 2
    first = two_nights.run("runs").stdout.splitlines()[2].split()[0]
    assert two_nights.run("runs", "name", "latest~1", "before").stdout == f"{first} is called before\n"
    assert two_nights.run("compare", "before", "latest").returncode == 1
    assert two_nights.run("runs", "name", "latest", "before").returncode == 2
    assert two_nights.run("runs", "name", "latest", "latest").returncode == 2
    matrix(two_nights, *scripts(two_nights, same=PASSES))
    dry = two_nights.run("runs", "prune", "--keep", "1", "--dry-run").stdout.split()
    assert dry[:2] == ["would", "remove"]
    wheels = [two_nights.folder / ".whichtorch" / "wheels" / "nightly" / f"torch-{name}.whl" for name in ("old", "new")]
    wheels[0].parent.mkdir(parents=True)
    for wheel in wheels:
        wheel.touch()
    os.utime(wheels[0], (0, 0))
    assert "torch-old.whl" in two_nights.run("runs", "prune", "--keep", "9", "--wheels", "30", "--dry-run").stdout
    two_nights.run("runs", "prune", "--keep", "9", "--wheels", "30")
    assert [wheel.exists() for wheel in wheels] == [False, True]
    pruned = two_nights.run("runs", "prune", "--keep", "1")
    assert pruned.returncode == 0, pruned.stderr
    assert f"removed {dry[2]}" in pruned.stdout
    left = [line.split()[0] for line in two_nights.run("runs").stdout.splitlines()[2:]]
    assert first in left
    assert dry[2] not in left
    assert len(left) == 2


def test_nothing_stored_is_told(user: User) -> None:
    """A new user is told what makes a run."""
    assert "no runs are stored; `whichtorch matrix` makes one" in user.run("runs").stdout
    ended = user.run("compare", "latest~1", "latest")
    assert ended.returncode == 2
    assert "run `whichtorch matrix` first" in ended.stderr
