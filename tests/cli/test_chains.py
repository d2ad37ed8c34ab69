"""Runs that share caches, as a user asks for them, on stand-in wheels."""

import html
import json
import re
import shlex
from typing import Any

import pytest

from tests.cli import test_packages
from tests.cli.shell import User
from tests.test_schema import validator

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
    return test_packages.result_of(user, "--torch", "9.1.0,9.2.0", *words, code=code)


@pytest.mark.thorough
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


@pytest.mark.thorough
def test_every_report_says_which_run_and_cache(user: User) -> None:
    """So do the comparison with another run, Markdown, JUnit, the page, and a run of the last failures."""
    script = user.script("repro.py", STALE_IN_OLD.replace('== "new"', '== "new" or True'))
    result_of(user, script, "--runs", "2", code=0)
    user.script("repro.py", STALE_IN_OLD)
    result_of(user, script, "--runs", "2", "--markdown", "run.md", "--junit", "run.xml", "--html", "page", code=1)
    compared = user.run("compare", "latest~1", "latest").stdout
    assert f"(repro.py:9); run 2 of 2; run 1 passes; {CURE}" in compared
    for name in ("run.md", "run.xml", "page/index.html"):
        text = html.unescape((user.folder / name).read_text())
        assert f"run 2 of 2; run 1 passes; {CURE}" in text.replace("\\", ""), name
    again = result_of(user, script, "--runs", "2", "--last-failed", code=1)
    assert [cell["outcome"] for cell in again["cells"]] == ["fail"]
    assert f"run 2 of 2; run 1 passes; {CURE}" in again["said"]


def test_caches_that_another_release_has_written(user: User) -> None:
    """The row names who has written them; a cell is run again by its name alone."""
    script = user.script("repro.py", STALE_IN_OLD)
    result = result_of(user, script, "--cache", "from=9.2.0", code=1)
    assert [(cell["variant"], cell["outcome"]) for cell in result["cells"]] == [
        ({"runs": "2", "written-by": "9.2.0"}, "fail")
    ]
    assert "repro.py[runs=2,written-by=9.2.0]  FAIL!" in result["said"]
    assert "written by new" in result["said"]
    (command,) = (line.rpartition("rerun: ")[2] for line in result["said"].splitlines() if "rerun: " in line)
    again = user.run(*shlex.split(command)[1:])
    assert (again.returncode, "written by new" in again.stdout) == (1, True)
    known = user.run("matrix", script, "--torch", "9.1.0,9.2.0", "--cache", "from=9.2.0")
    assert "1 cell; 1 known" in known.stdout or "all known" in known.stdout
    assert not list(user.folder.rglob("*.written"))


@pytest.mark.thorough
def test_a_bisection_of_chains(user: User) -> None:
    """Each attempt of a probe is a chain, which makes no more runs than it has."""
    script = user.script("repro.py", STALE_IN_OLD)
    ended = user.run("bisect", script, "--runs", "2", "--build", "pypi", "--torch", "9.1.0,9.2.0")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "fixed in 9.2.0, by torch itself: last that fails 9.1.0" in ended.stdout
    assert user.runs("repro.py") == 16  # 8 attempts


@pytest.mark.thorough
def test_a_case_of_a_chain(user: User) -> None:
    """The smallest script fails in its second run, too; the case says how to see that, here and elsewhere."""
    script = user.script("repro.py", STALE_IN_OLD)
    ended = user.run("triage", script, "--torch", "9.1.0", "--build", "pypi", "--runs", "2", "--json", "case.json")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert f"in 3 of 3 attempts, after 0.1 s: run 2 of 2; run 1 passes; {CURE}" in re.sub(
        r"0\.\d s", "0.1 s", ended.stdout
    )
    case = json.loads((user.folder / "case.json").read_text())
    validator("triage").validate(case)
    assert "TORCHINDUCTOR_CACHE_DIR" in case["minimal"]["source"]
    assert case["minimal"]["healthy_in"] == case["unit_test"]["passes_in"] == "torch-9.2.0-pypi"
    assert case["unit_test"]["fails_in"] == "torch-9.1.0-pypi"
    assert case["fix"]["fix"]["patch"]
    folder = user.folder / "output" / "cases" / "repro"
    (command,) = re.findall(
        r": `whichtorch (matrix minimal.py .* --runs 2)`$", (folder / "CASE.md").read_text(), re.MULTILINE
    )
    (user.folder / "minimal.py").write_text((folder / "minimal.py").read_text())
    again = user.run(*shlex.split(command))
    assert (again.returncode, "run 2 of 2; run 1 passes" in again.stdout) == (1, True), again.stdout
    elsewhere = user.run("replay", str(folder / "case.zip"))
    assert "repro reproduces in torch-9.1.0-pypi: minimal.py[runs=2] was run" in elsewhere.stdout, elsewhere.stdout


@pytest.mark.thorough
def test_a_fix_of_a_chain(user: User) -> None:
    """Its trials are chains; the command that tries the patch makes one, too."""
    script = user.script("repro.py", STALE_IN_OLD)
    ended = user.run("fix", script, "--bad", "9.1.0", "--good", "9.2.0", "--build", "pypi", "--runs", "2")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "repro.py[runs=2], 9.1.0 (bad) and 9.2.0 (good): cured by 2 lines of Python" in ended.stdout
    (command,) = re.findall(r"to try it: whichtorch (matrix repro.py .* --runs 2)$", ended.stdout, re.MULTILINE)
    tried = user.run(*shlex.split(command))
    assert (tried.returncode, "[1/1] pass     repro.py[runs=2]" in tried.stdout) == (0, True), tried.stdout


@pytest.mark.thorough
def test_an_explanation_of_a_chain(user: User) -> None:
    """Each attempt of its experiment is a chain."""
    script = user.script("repro.py", STALE_IN_OLD)
    ended = user.run("explain", script, "--runs", "2", "--torch", "9.1.0,9.2.0", "--build", "pypi", "--run")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "repro.py[runs=2]" in ended.stdout
    assert "changing torch from 9.1.0 to 9.2.0 makes it pass" in ended.stdout


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--runs", "0"), 2, "--runs"),
        (("--vary", "threads"), 2, "--vary threads: not NAME=A,B"),
        (("--vary", "threads=1,x"), 2, "OMP_NUM_THREADS=1,x: not numbers of threads"),
        (("--vary", "TMPDIR=/a,/b"), 2, "all runs share the folder of TMPDIR"),
        (("--vary", "threads=1,2,3", "--runs", "2"), 2, "OMP_NUM_THREADS=1,2,3 has 3 values for 2 runs"),
        (("--runs", "3", "--vary", "threads=1,2"), 2, "OMP_NUM_THREADS=1,2 has 2 values for 3 runs"),
        (("--cache", "from=8.0.0"), 2, "no environment of the matrix is 8.0.0"),
        (("--cache", "from=9.1.0", "--runs", "2", "--vary", "TMPDIR=1,2"), 2, "all runs share the folder of TMPDIR"),
        (("--cache", "all"), 2, "'all' names no environment"),
        (("--runs", "1", "--cache", "from=9.1.0"), 2, "a single run reads no caches of another"),
        (("--cache", "from=9.1.0", "--executor", "tls://head:8786"), 2, "--cache cannot go with --executor"),
    ],
)
def test_what_cannot_be_asked_for(user: User, words: tuple[str, ...], code: int, said: str) -> None:
    """It is one line with the remedy, before anything is installed."""
    script = user.script("repro.py", STALE_IN_OLD)
    ended = user.run("matrix", script, "--torch", "9.1.0,9.2.0", *words)
    assert (ended.returncode, said in ended.stderr, "Traceback" in ended.stderr) == (code, True, False), ended.stderr
    assert user.runs("repro.py") == 0


def test_one_environment_has_no_other_caches(user: User) -> None:
    """A matrix without a cell is no success: the environment that would read is missing."""
    ended = user.run("matrix", user.script("repro.py", STALE_IN_OLD), "--torch", "9.1.0", "--cache", "from=9.1.0")
    said = "error: --cache from=9.1.0: the matrix has no environment but torch-9.1.0-pypi\n"
    assert (ended.returncode, said in ended.stderr) == (2, True), ended.stdout + ended.stderr
    assert user.runs("repro.py") == 0


@pytest.mark.thorough
def test_caches_of_an_environment_that_only_its_label_names(user: User) -> None:
    """The command that runs such a cell again asks for both environments; no command is proposed that cannot run it."""
    script = user.script("repro.py", STALE_IN_OLD)
    options = ("--build", "pypi", "--config", "default,single-thread", "--cache", "from=torch-9.2.0-pypi-single-thread")
    said = user.run("matrix", script, "--torch", "9.1.0,9.2.0", *options).stdout
    assert "repro.py[runs=2,written-by=torch-9.2.0-pypi-single-thread]  FAIL!" in said
    assert "next: whichtorch explain 'repro.py[runs=2,written-by=torch-9.2.0-pypi-single-thread]'" in said
    command = next(line.rpartition("rerun: ")[2] for line in said.splitlines() if "rerun: " in line)
    again = user.run(*shlex.split(command)[1:])
    assert (again.returncode, "torch-9.2.0-pypi-single-thread]  FAIL!" in again.stdout) == (1, True), again.stderr


@pytest.mark.parametrize("command", [("fix", "--bad", "9.1.0", "--good", "9.2.0"), ("triage", "--torch", "9.1.0")])
def test_caches_of_another_environment_are_for_some_commands(newcomer: User, command: tuple[str, ...]) -> None:
    """The others say so before anything is installed."""
    newcomer.script("repro.py", STALE_IN_OLD)
    ended = newcomer.run(*command, "repro.py[runs=2,written-by=9.2.0]")
    said = "error: only matrix and bisect can run a test with written-by\n"
    assert (ended.returncode, said in ended.stderr) == (2, True), ended.stderr
    assert not list((newcomer.folder / ".whichtorch").rglob("venv"))
