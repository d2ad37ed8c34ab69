"""Runs that share caches, as a user asks for them, on stand-in wheels."""

from __future__ import annotations

import json
import shlex
from typing import Any

import jsonschema
import pytest

from tests.cli.shell import User
from tests.test_schema import generated

STALE_IN_OLD = """NOTE
import os, torch
from pathlib import Path

path = Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]) / "fxgraph" / "entry"
path.parent.mkdir(parents=True, exist_ok=True)
found = path.read_text() if path.exists() else ""
found or path.write_text(torch.behaviour)
assert not found or torch.behaviour == "new", "written by " + found
"""
CURE = "it passes if Inductor's FX graph cache is emptied"


def result_of(user: User, *words: str, code: int) -> dict[str, Any]:
    ended = user.run("matrix", "--torch", "9.1.0,9.2.0", "--json", "result.json", *words)
    assert ended.returncode == code, ended.stdout + ended.stderr
    result = json.loads((user.folder / "result.json").read_text())
    jsonschema.validate(result, json.loads(generated()))
    return {**result, "said": ended.stdout}


def test_the_second_run_fails(user: User) -> None:
    """The table names the chain, the line says which run and cache; the command below it runs just this again."""
    script = user.script("repro.py", STALE_IN_OLD)
    said = result_of(user, script, "--runs", "2", code=1)["said"]
    assert "repro.py[runs=2]  FAIL!    pass" in said
    assert f"; run 2 of 2; run 1 passes; {CURE}; log " in said
    (command,) = (line.rpartition("rerun: ")[2] for line in said.splitlines() if "rerun: " in line)
    again = user.run(*shlex.split(command)[1:])
    assert (again.returncode, CURE in again.stdout) == (1, True)
    assert result_of(user, script, code=0)["cells"][0]["variant"] == {}


def test_caches_that_another_release_has_written(user: User) -> None:
    """Each pair is a cell; a cell is run again by its name alone."""
    script = user.script("repro.py", STALE_IN_OLD)
    result = result_of(user, script, "--cache", "pairs", code=1)
    assert [(cell["variant"], cell["outcome"]) for cell in result["cells"]] == [
        ({"runs": "2", "written-by": "9.2.0"}, "fail"),
        ({"runs": "2", "written-by": "9.1.0"}, "pass"),
    ]
    assert "repro.py[runs=2,written-by=9.2.0]  FAIL!    -" in result["said"]
    assert "written by new" in result["said"]
    (command,) = (line.rpartition("rerun: ")[2] for line in result["said"].splitlines() if "rerun: " in line)
    again = user.run(*shlex.split(command)[1:])
    assert (again.returncode, "written by new" in again.stdout) == (1, True)
    known = user.run("matrix", script, "--torch", "9.1.0,9.2.0", "--cache", "from=9.2.0")
    assert "1 cell; 1 known" in known.stdout or "all known" in known.stdout
    assert not list(user.folder.rglob("*.written"))


@pytest.mark.shell
def test_a_bisection_of_chains(user: User) -> None:
    """Each attempt of a probe is a chain, which makes no more runs than it has."""
    script = user.script("repro.py", STALE_IN_OLD)
    ended = user.run("bisect", script, "--runs", "2", "--build", "pypi", "--torch", "9.1.0,9.2.0")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "fixed in 9.2.0, by torch itself: last that fails 9.1.0" in ended.stdout
    assert user.runs("repro.py") == 16  # 8 attempts


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--runs", "0"), 2, "--runs"),
        (("--vary", "threads"), 2, "--vary threads: not NAME=A,B"),
        (("--runs", "3", "--vary", "threads=1,2"), 2, "OMP_NUM_THREADS=1,2 has 2 values for 3 runs"),
        (("--cache", "from=8.0.0"), 2, "no environment of the matrix is 8.0.0"),
        (("--cache", "all"), 2, "'all' names no environments"),
        (("--runs", "1", "--cache", "pairs"), 2, "a single run reads no caches of another"),
        (("--cache", "pairs", "--executor", "tls://head:8786"), 2, "--cache cannot go with --executor"),
        (("--cache-dir", "TMPDIR", "--runs", "2"), 2, "TMPDIR is shared by the runs anyway"),
    ],
)
def test_what_cannot_be_asked_for(user: User, words: tuple[str, ...], code: int, said: str) -> None:
    """It is one line with the remedy, before anything is installed."""
    script = user.script("repro.py", STALE_IN_OLD)
    ended = user.run("matrix", script, "--torch", "9.1.0,9.2.0", *words)
    assert (ended.returncode, said in ended.stderr, "Traceback" in ended.stderr) == (code, True, False), ended.stderr
    assert user.runs("repro.py") == 0
