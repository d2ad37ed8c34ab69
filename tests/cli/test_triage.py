"""`triage` and `replay` at the shell: from a script to a case, and the case elsewhere."""

import json
import re
import signal
import subprocess
import zipfile
from pathlib import Path

import pytest

from tests.cli.shell import FAILS_IN_OLD, User, alive_in, wait_for
from tests.patience import PATIENCE
from tests.test_schema import validator
from tests.wheels import build_wheel
from whichtorch.matrix.signals import LOOK_FIRST

pytestmark = pytest.mark.thorough

PASSES = "NOTE\nimport torch\nassert torch.behaviour\n"
COMPILES = """NOTE
import torch

settings = {"rate": 1, "shape": 7, "name": "run"}


class Model:
    def __init__(self, factor):
        self.factor = factor
        self.history = []

    def forward(self, shape):
        self.history.append(shape)
        return shape * self.factor * settings["rate"]


model = Model(2)
for epoch in range(2):
    print(settings["name"], epoch, model.forward(3))
step = torch.compile(model.forward)
print(step(3))
print(step(settings["shape"]))
"""
WRITES = "NOTE\nimport os, torch\nopen('here.txt', 'a').write('1')\nopen(os.path.expanduser('~/home.txt'), 'a')\n"


def case_of(user: User, name: str) -> dict[str, object]:
    """Return what a case's folder holds."""
    case = json.loads((user.folder / "output" / "cases" / name / "case.json").read_text())
    assert isinstance(case, dict)
    return case


def test_a_script_becomes_a_case(user: User) -> None:
    """All steps are taken, the test is shown to fail and to pass, and nothing is left running."""
    script = user.script("repro.py", FAILS_IN_OLD)
    ended = user.run("triage", script, "--torch", "9.1.0", "--json", "case.json")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    case = case_of(user, "repro")
    validator("triage").validate(case)
    assert case == json.loads((user.folder / "case.json").read_text())
    assert case["reproduction"]["failing"] == case["reproduction"]["runs"] == 3  # type: ignore[index]
    assert case["classification"]["category"] == "script-check"  # type: ignore[index]
    assert [(each["from"], each["to"]) for each in case["bisection"]["boundaries"]] == [("9.1.0", "9.2.0")]  # type: ignore[index]
    assert case["minimal"]["healthy_in"] == "torch-9.2.0-pypi"  # type: ignore[index]
    test = case["unit_test"]
    assert (test["fails_in"], test["passes_in"]) == ("torch-9.1.0-pypi", "torch-9.2.0-pypi")  # type: ignore[index]
    text = (user.folder / "output" / "cases" / "repro" / "CASE.md").read_text()
    parts = (
        "# FAIL: `AssertionError: as it was`",
        "## Script",
        "fixed in 9.2.0",
        "## Unit test",
        "torch: 9.1.0",
        "## Fix",
    )
    for part in parts:
        assert part in text
    assert (case["newest"]["torch"], case["newest"]["outcome"]) == ("9.2.0", "pass")  # type: ignore[index]
    patch = (user.folder / "output" / "cases" / "repro" / "fix.patch").read_text()
    assert patch == case["fix"]["fix"]["patch"]  # type: ignore[index]
    assert "+behaviour = 'new'" in patch
    assert not alive_in(user.folder)


def test_a_failing_compiler_is_told_from_the_script(newcomer: User, wheels: Path) -> None:
    """The first layer that fails is named, and what is left of the script passes with nothing compiled.

    Several candidates at once lead to the same script, and none that was answered is run again.
    """
    for version, behaviour in (("9.1.0", "cannot compile"), ("9.2.0", "can compile")):
        build_wheel(wheels, version, behaviour=behaviour)
    script = newcomer.script("repro.py", COMPILES)
    cases = []
    for options in (("--jobs", "1"), ("--jobs", "3", "--fresh"), ()):
        ended = newcomer.run("triage", script, "--torch", "9.1.0", "--until", "minimise", *options)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        cases.append(case_of(newcomer, "repro"))
        unfinished = json.dumps(cases[-1] | {"minimal": None})
        (newcomer.folder / "output" / "cases" / "repro" / "case.json").write_text(unfinished)
    ladder, minimal, classification = (cases[0][name] for name in ("ladder", "minimal", "classification"))
    assert [(rung["name"], rung["outcome"]) for rung in ladder["rungs"]][:2] == [("off", "pass"), ("eager", "pass")]  # type: ignore[index]
    assert "it shows first at the layer Inductor" in classification["evidence"]  # type: ignore[index]
    assert minimal["healthy_in"] == "the same environment with nothing compiled"  # type: ignore[index]
    assert minimal["lines"] < minimal["lines_before"] / 3  # type: ignore[index]
    assert [case["minimal"]["source"] for case in cases[1:]] == [minimal["source"]] * 2  # type: ignore[index]
    assert (minimal["runs"] > 0, cases[2]["minimal"]["runs"]) == (True, 0)  # type: ignore[index]


def test_a_case_is_run_elsewhere(user: User, tmp_path: Path) -> None:
    """From the archive alone, in an empty folder, it reproduces where the fault is, and not where it is gone."""
    (user.folder / "helper.py").write_text("wanted = 'new'\n")
    source = "NOTE\nimport torch, helper\nassert torch.behaviour == helper.wanted, 'as it was'\n"
    script = user.script("repro.py", source)
    assert user.run("triage", script, "--torch", "9.1.0", "--until", "reproduce").returncode == 0
    archive = tmp_path / "case.zip"
    archive.write_bytes((user.folder / "output" / "cases" / "repro" / "case.zip").read_bytes())
    assert "helper.py" in zipfile.ZipFile(archive).namelist()
    (user.folder / "helper.py").unlink()
    old = user.run("replay", str(archive), "--json", "replayed.json")  # in the release that the case names
    assert (old.returncode, "repro reproduces in torch-9.1.0-pypi" in old.stdout) == (0, True), old.stdout + old.stderr
    validator("replay").validate(json.loads((user.folder / "replayed.json").read_text()))
    new = user.run("replay", str(archive), "--torch", "9.2.0")
    assert (new.returncode, "does not reproduce in torch-9.2.0-pypi" in new.stdout) == (1, True), new.stdout


def test_the_smallest_script_is_run_elsewhere(user: User, tmp_path: Path) -> None:
    """It fails in another frame of its own than the whole script did, and that is the same failure."""
    source = "NOTE\nimport torch\ndef total(rows):\n    return rows.matmul(None)\ntotal(torch.ones(1, 1))\n"
    script = user.script("repro.py", source)
    assert user.run("triage", script, "--torch", "9.1.0", "--until", "minimise").returncode == 0
    assert "def total" not in case_of(user, "repro")["minimal"]["source"]  # type: ignore[index]
    archive = tmp_path / "case.zip"
    archive.write_bytes((user.folder / "output" / "cases" / "repro" / "case.zip").read_bytes())
    for options in ((), ("--whole",), ("--torch", "9.2.0")):
        ended = user.run("replay", str(archive), *options)
        assert (ended.returncode, "repro reproduces in torch-9." in ended.stdout) == (0, True), ended.stdout


def test_the_page_of_a_run_shows_its_cases(user: User) -> None:
    """A cell that is red and was triaged has its case on the page, with the smallest script."""
    script = user.script("repro.py", FAILS_IN_OLD)
    assert user.run("matrix", "--torch", "9.1.0", script).returncode == 1
    assert user.run("triage", script, "--torch", "9.1.0", "--until", "minimise").returncode == 0
    assert user.run("report", "--html", "page").returncode == 0
    page = (user.folder / "page" / "index.html").read_text()
    assert "repro: FAIL: AssertionError: as it was" in page
    assert re.search(r"it fails in 3 of 3 runs, after [\d.]+ s in torch 9\.1\.0", page)


def test_a_step_that_is_done_is_not_taken_again(user: User) -> None:
    """The same command goes on with the case that it finds; another script, or --fresh, begins anew."""
    script = user.script("repro.py", FAILS_IN_OLD)
    command = ("triage", script, "--torch", "9.1.0", "--until", "minimise")
    assert user.run(*command).returncode == 0
    runs = user.runs("repro.py")
    assert user.run(*command).returncode == 0
    assert user.runs("repro.py") == runs
    assert user.run(*command, "--fresh").returncode == 0
    assert user.runs("repro.py") > runs


def test_a_step_is_taken_alone(user: User) -> None:
    """With --only, the step and what it needs are taken, and nothing else."""
    script = user.script("repro.py", FAILS_IN_OLD)
    ended = user.run("triage", script, "--torch", "9.1.0", "--only", "bisect")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert list(case_of(user, "repro")["seconds"]) == ["environment", "reproduce", "bisect"]  # type: ignore[call-overload]


def test_an_interrupt_loses_nothing(user: User) -> None:
    """What was done before it is kept, nothing runs on, and the same command goes on."""
    script = user.script("repro.py", "NOTE\nimport time, torch\ntime.sleep(2)\nraise ValueError('late')\n")
    started = user.start("triage", script, "--torch", "9.1.0", "--until", "classify")
    wait_for(lambda: user.runs("repro.py") >= 1)
    started.send_signal(signal.SIGINT)
    assert started.wait(PATIENCE) == 130
    assert not alive_in(user.folder)
    ended = user.run("triage", script, "--torch", "9.1.0", "--until", "classify")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert case_of(user, "repro")["classification"]


STUCK_AT = "NOTE\nimport time, torch\ndef stuck():\n    time.sleep(300)\n"


def test_an_interrupted_first_run_says_where_it_was(user: User) -> None:
    """The case is titled by how long the script had run and the line it was at, and is written in all its forms."""
    script = user.script("repro.py", f"{STUCK_AT}stuck()\n")
    command = ("triage", script, "--torch", "9.1.0", "--until", "classify", "--timeout", "50", "--json", "case.json")
    started = user.start(*command)
    wait_for(lambda: user.runs("repro.py") == 1)
    with pytest.raises(subprocess.TimeoutExpired):
        started.wait(LOOK_FIRST + 4)  # until its line has been read
    started.send_signal(signal.SIGHUP)
    assert started.wait(PATIENCE) == 130
    text = (user.folder / "output" / "cases" / "repro" / "CASE.md").read_text()
    assert re.match(
        r"# interrupted during the reproduce step: `the script had run for \d+ s, at stuck \(repro.py:\d\)`\n", text
    )
    case = json.loads((user.folder / "case.json").read_text())
    assert (case["stopped"]["why"], case["stopped"]["step"]) == ("interrupted", "reproduce")
    validator("triage").validate(case)
    assert (user.folder / "output" / "cases" / "repro" / "case.zip").exists()
    (run,) = (user.folder / ".whichtorch" / "runs").glob("*/run.json")
    assert json.loads(run.read_text())["interrupted"]


@pytest.mark.parametrize("is_over", [True, False])
def test_the_runs_before_the_end_count(user: User, is_over: bool) -> None:
    """Stopped in the second run, by Ctrl-C or --max-time, the case says what the first showed."""
    once = f"import os, sys\nif len(open({str(user.folder / 'repro.py.runs')!r}).readlines()) == 2:\n    stuck()\n"
    script = user.script("repro.py", f"{STUCK_AT}{once}raise ValueError('late')\n")
    command = ("triage", script, "--torch", "9.1.0", "--until", "classify", "--json", "case.json", "--timeout", "50")
    started = user.start(*command, *(("--max-time", "8") if is_over else ()))
    wait_for(lambda: user.runs("repro.py") == 2)
    if not is_over:
        started.send_signal(signal.SIGINT)
    assert started.wait(PATIENCE) == (0 if is_over else 130)
    text = (user.folder / "output" / "cases" / "repro" / "CASE.md").read_text()
    assert text.startswith("# FAIL: `ValueError: late`")
    assert ("- the time limit of 8 s is over during the" if is_over else "- interrupted during the") in text
    assert json.loads((user.folder / "case.json").read_text())["reproduction"]["runs"] == 1
    assert user.run(*command).returncode == 0
    case = case_of(user, "repro")
    assert (case["reproduction"]["runs"], case["stopped"]) == (3, None)  # type: ignore[index]


def test_an_interrupted_search_of_a_case_goes_on(user: User) -> None:
    """Ctrl-C while the releases are searched keeps what is known of them, and the same command searches on."""
    stuck = f"if torch.behaviour == 'new' and not os.path.exists({str(user.folder / 'gate')!r}):\n    stuck()\n"
    script = user.script("repro.py", f"{STUCK_AT}import os\n{stuck}{FAILS_IN_OLD.partition(chr(10))[2]}")
    command = ("triage", script, "--torch", "9.1.0", "--only", "bisect")
    started = user.start(*command)
    wait_for(lambda: "probe 2: 9.2.0" in (user.folder / "output.txt").read_text())
    started.send_signal(signal.SIGINT)
    assert started.wait(PATIENCE) == 130, (user.folder / "output.txt").read_text()
    case = case_of(user, "repro")
    assert case["bisection"]["interrupted"]  # type: ignore[index]
    assert [probe["value"] for probe in case["bisection"]["probes"]] == ["9.1.0"]  # type: ignore[index]
    (user.folder / "gate").touch()
    assert user.run(*command).returncode == 0
    assert case_of(user, "repro")["bisection"]["answer"] == "boundary"  # type: ignore[index]


def test_candidates_run_away_from_what_is_the_users(user: User) -> None:
    """While it is cut down, a script that writes files writes them in a scratch folder and home."""
    script = user.script("repro.py", WRITES + "{'new': 1}[torch.behaviour]\n")
    (user.folder.parent / "empty").mkdir()
    assert user.run("triage", script, "--torch", "9.1.0", "--until", "gather").returncode == 0
    written = (user.folder / "here.txt").read_text()
    (user.folder.parent / "empty" / "home.txt").unlink()
    assert user.run("triage", script, "--torch", "9.1.0", "--until", "minimise").returncode == 0
    assert (user.folder / "here.txt").read_text() == written
    assert not (user.folder.parent / "empty" / "home.txt").exists()


def test_the_smallest_script_passes_where_the_whole_one_does(user: User) -> None:
    """What fails in every release is no smaller script of a failure that a release has mended."""
    source = "NOTE\nimport torch\nother = torch.ones(1, 1) if torch.behaviour == 'new' else None\n"
    script = user.script("repro.py", source + "unused = 1\ntorch.ones(1, 1).matmul(other)\n")
    ended = user.run("triage", script, "--torch", "9.1.0", "--until", "unit-test")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "the smallest script passes in no release, the whole one in 9.2.0" in ended.stdout
    case = case_of(user, "repro")
    assert case["minimal"]["healthy_in"] == "torch-9.2.0-pypi"  # type: ignore[index]
    assert "behaviour" in case["minimal"]["source"]  # type: ignore[index]
    assert "unused" not in case["minimal"]["source"]  # type: ignore[index]
    assert case["unit_test"]["passes_in"] == "torch-9.2.0-pypi"  # type: ignore[index]


def test_it_does_not_slip_to_another_failure(user: User) -> None:
    """Of a script with two faults, the one that it fails by is left, however much shorter the other would be."""
    source = "NOTE\nimport torch\nrows = torch.ones(2, 1)\nrows.matmul(None)\ntorch.ones(1, 1).sum().shape[3]\n"
    ended = user.run("triage", user.script("repro.py", source), "--torch", "9.1.0", "--until", "minimise")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    minimal = case_of(user, "repro")["minimal"]
    assert "matmul(None)" in minimal["source"]  # type: ignore[index]
    assert "shape[3]" not in minimal["source"]  # type: ignore[index]


def test_what_passes_is_said_to_pass(user: User) -> None:
    """There is nothing to cut down and no release to blame."""
    ended = user.run("triage", user.script("repro.py", PASSES), "--torch", "9.1.0")
    assert ended.returncode == 4, ended.stdout + ended.stderr
    assert "it passes: 3 of 3 runs" in ended.stdout
    case = case_of(user, "repro")
    assert (case["minimal"], case["bisection"], case["unit_test"]) == (None, None, None)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("triage", "absent.py"), 2, "no such script: absent.py"),
        (("triage", "repro.py", "--until", "nowhere"), 2, "no step is called 'nowhere'"),
        (("triage", "repro.py", "--only", "nothing"), 2, "no step is called 'nothing'"),
        (("triage", "repro.py", "--torch", "9.1.0,9.2.0"), 2, "a case is of one environment, not of 2"),
        (("triage", "repro.py", "--torch", "9.9.9"), 2, "9.9.9"),
        (("replay", "absent.zip"), 2, "absent.zip cannot be read as a case"),
        (("replay", "repro.py"), 2, "repro.py cannot be read as a case"),
    ],
)
def test_mistakes_are_told_in_words(user: User, arguments: tuple[str, ...], code: int, said: str) -> None:
    """A mistake of the user ends in a message with its exit code, never in a traceback."""
    user.script("repro.py", PASSES)
    ended = user.run(*arguments)
    assert (ended.returncode, said in ended.stderr) == (code, True), ended.stdout + ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("steps", [(), ("--until", "reproduce")])
def test_a_script_that_passes_is_no_case(user: User, steps: tuple[str, ...]) -> None:
    """Whichever steps are taken, a failure that was not seen ends with 4."""
    ended = user.run("triage", user.script("fine.py", "import torch\n"), "--torch", "9.2.0", *steps)
    assert (ended.returncode, "it passes" in ended.stdout) == (4, True), ended.stdout + ended.stderr
