"""A command after `--`: pytest, whose tests are cells each, and any other."""

import json
import shlex
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import junitparser
import pytest

from tests.cli.prepared import prepare
from tests.cli.shell import User, wait_for
from tests.patience import PATIENCE
from tests.test_schema import validator
from tests.wheels import build_pytest, build_wheel

BOTH = ("--torch", "9.1.0,9.2.0", "--with", "pytest")
NEW = ("--torch", "9.2.0", "--with", "pytest")
PYTEST = ("--", "pytest", "-q", "tests")
TESTS = """
import pathlib
import pytest, torch

@pytest.mark.parametrize("text", ["a b", "c/d", "e::f[1]", "\\u00f8"])
def test_text(text):
    pathlib.Path("left.txt").write_text(text)

class TestBehavior:
    def test_new(self):
        print("what it says")
        assert torch.behaviour == "new", "as it was"

@pytest.mark.skip(reason="\x1b[31mnot today\x1b[0m")
def test_skipped(): pass

@pytest.mark.xfail(reason="known")
def test_known(): assert False
"""
BEHAVIOR = "tests/test_it.py::TestBehavior::test_new"


@pytest.fixture
def project(user: User, wheels: Path, originals: Path) -> Path:
    """Return the folder of a project's tests."""
    build_pytest(wheels)
    prepare(user, wheels, originals, *BOTH)
    (user.folder / "tests").mkdir()
    return user.folder / "tests"


def cells_of(user: User, *words: str, code: int) -> dict[tuple[str, str], dict[str, Any]]:
    """Run a matrix; return its cells by torch and test."""
    ended = user.run("matrix", *words[: words.index("--")], "--json", "result.json", *words[words.index("--") :])
    assert ended.returncode == code, ended.stdout + ended.stderr
    result = json.loads((user.folder / "result.json").read_text())
    validator().validate(result)
    torch = {environment["id"]: environment["torch"] for environment in result["environments"]}
    (user.folder.parent / "output.txt").write_text(ended.stdout + ended.stderr)
    return {(torch[cell["environment"]], cell["scenario"]): cell for cell in result["cells"]}


def outcomes(cells: dict[tuple[str, str], dict[str, Any]], torch: str = "9.2.0") -> dict[str, str]:
    return {test.partition("::")[2]: cell["outcome"] for (where, test), cell in cells.items() if where == torch}


def rerun_line(user: User) -> str:
    """Return the line that runs the one red cell of the last matrix again."""
    shown = (user.folder.parent / "output.txt").read_text()
    (line,) = (line.rpartition("rerun: ")[2] for line in shown.splitlines() if "rerun: " in line)
    return line


def test_each_test_is_a_cell(user: User, project: Path) -> None:
    """It has its outcome, signature and output in each environment; the project is left alone, a second time known."""
    (project / "test_it.py").write_text(TESTS)
    cells = cells_of(user, *BOTH, *PYTEST, code=1)
    passing = {r"test_text[a b]": "pass", "test_text[c/d]": "pass", "test_text[e::f[1]]": "pass"}
    passing |= {"test_text[\\xf8]": "pass", "test_skipped": "skip", "test_known": "pass"}
    assert outcomes(cells) == passing | {"TestBehavior::test_new": "pass"}
    assert outcomes(cells, "9.1.0") == passing | {"TestBehavior::test_new": "fail"}
    assert cells["9.2.0", "tests/test_it.py::test_skipped"]["reason"] == "not today"
    red = cells["9.1.0", BEHAVIOR]
    assert red["signature"] == 'AssertionError "as it was" in test_new (test_it.py:12)'
    attempt = red["attempts"][-1]
    assert "as it was" in attempt["message"]
    assert not (user.folder / "left.txt").exists()
    assert sorted(path.name for path in project.iterdir()) == ["test_it.py"]
    shown = (user.folder.parent / "output.txt").read_text()
    assert "6 more tests as expected in every environment (5 pass, 1 skip); -v shows each" in shown
    before = len(user.records())
    assert cells_of(user, "-v", *BOTH, *PYTEST, code=1).keys() == cells.keys()
    assert len(user.records()) == before
    assert "more tests as expected" not in (user.folder.parent / "output.txt").read_text()


@pytest.mark.thorough
def test_a_test_is_run_again_by_the_line_that_says_so(user: User, project: Path) -> None:
    """The line runs only that test, and JUnit has its id."""
    (project / "test_it.py").write_text(TESTS)
    cells_of(user, "--junit", "junit.xml", *BOTH, *PYTEST, code=1)
    line = rerun_line(user)
    assert line.endswith(f"-- pytest -q {BEHAVIOR}")
    again = user.run(*shlex.split(line)[1:])
    assert again.returncode == 1
    assert "1 cell, 1 not as expected" in again.stdout
    suites = junitparser.JUnitXml.fromfile(str(user.folder / "junit.xml"))
    assert BEHAVIOR in {case.name for suite in suites for case in suite}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("place", "root", "named"), [(".", "tests", "tests/"), ("tests", ".", ""), ("tests", "..", "")]
)
def test_the_line_works_where_the_user_stands(user: User, project: Path, place: str, root: str, named: str) -> None:
    """Ids are relative to pytest's rootdir, which may lie above or below the user's folder."""
    subprocess.run(["git", "init", "--quiet", str(user.folder)], check=True)
    (project / "test_it.py").write_text("def test_a(): assert False\ndef test_b(): assert True\n")
    (user.folder / place / root / "pytest.ini").write_text("[pytest]\n")
    standing = replace(user, folder=user.folder / place)
    words = ("--", "python", "-m", "pytest", "-q", *([named] if named else []))
    cells_of(standing, *NEW, *words, code=1)
    line = rerun_line(standing)
    assert line.endswith(f"-- python -m pytest -q {named}test_it.py::test_a")
    again = standing.run(*shlex.split(line)[1:])
    assert again.returncode == 1, again.stdout + again.stderr
    assert "1 cell, 1 not as expected" in again.stdout


def test_the_line_of_any_command_has_its_options(user: User) -> None:
    """Exit codes, variables, and where it runs: the line does the same as the command before it."""
    source = "import os; raise SystemExit(int(os.environ['CODE']) + (0 if os.path.exists('.whichtorch') else 10))"
    options = ("--env", "CODE=3", "--ok-exit", "5", "--skip-exit", "7", "--skip-exit", "8", "--in-place")
    cells = cells_of(user, "--torch", "9.2.0", *options, "--", "python", "-c", source, code=1)
    line = rerun_line(user)
    assert f"{shlex.join(options[:2])} " in line
    assert f" {shlex.join(options[2:])} -- python -c " in line
    assert user.run(*shlex.split(line)[1:]).returncode == 1
    assert [record["signature"] for record in user.records()] == ["exit code 3"] * 2
    assert next(iter(cells.values()))["options"] == list(options[2:])


@pytest.mark.thorough
def test_a_hang_or_a_crash_takes_nothing_with_it(user: User, project: Path) -> None:
    """The test that hung or crashed has its line, and the others their outcomes; what passed is not run again."""
    source = "import os, threading\n"
    source += "\n".join(f"def test_{n}(): open({str(user.folder / 'ran')!r}, 'a').write('{n} ')" for n in range(5))
    (project / "test_a.py").write_text(source)
    (project / "test_b.py").write_text("import threading\ndef test_hang():\n    threading.Event().wait()\n")
    (project / "test_c.py").write_text("import os\ndef test_crash():\n    os.abort()\ndef test_after(): pass\n")
    cells = cells_of(user, *NEW, *PYTEST, code=1)
    expected = {f"test_{n}": "pass" for n in range(5)}
    assert outcomes(cells) == expected | {"test_hang": "hang", "test_crash": "crash", "test_after": "pass"}
    assert (user.folder / "ran").read_text() == "0 1 2 3 4 "
    assert "test_b.py:3" in cells["9.2.0", "tests/test_b.py::test_hang"]["attempts"][-1]["diagnosis"]["summary"]
    assert "test_c.py:3" in cells["9.2.0", "tests/test_c.py::test_crash"]["signature"]


@pytest.mark.thorough
def test_an_interrupted_command_goes_on(user: User, project: Path) -> None:
    """The tests that had ended are not run again."""
    ran, waiting = user.folder.parent / "ran", user.folder.parent / "waiting"
    source = f"import pathlib, time\ndef test_a(): open({str(ran)!r}, 'a').write('a')\n"
    source += f"def test_b():\n    while not pathlib.Path({str(waiting)!r}).exists(): time.sleep(0.01)\n"
    (project / "test_it.py").write_text(source)
    words = user.command("matrix", *NEW, *PYTEST)
    with (user.folder.parent / "output.txt").open("wb") as output:
        started = subprocess.Popen(words, cwd=user.folder, env=user.environ, stdout=output, stderr=output)
    wait_for(ran.exists)
    started.send_signal(signal.SIGINT)
    assert started.wait(PATIENCE) == 130
    waiting.touch()
    assert outcomes(cells_of(user, *NEW, *PYTEST, code=0)) == {"test_a": "pass", "test_b": "pass"}
    assert ran.read_text() == "a"


def test_a_command_is_repeated(user: User) -> None:
    """--repeat gives any command so many attempts."""
    cells = cells_of(user, "--torch", "9.2.0", "--repeat", "3", "--", "python", "-c", "pass", code=0)
    assert [len(cell["attempts"]) for cell in cells.values()] == [3]


def test_what_fails_only_after_others_passes_alone(user: User, project: Path) -> None:
    """Its cell passes, and says after which test it failed."""
    (project / "test_it.py").write_text("seen = []\ndef test_a(): seen.append(1)\ndef test_b(): assert not seen\n")
    cells = cells_of(user, *NEW, *PYTEST, code=0)
    cell = cells["9.2.0", "tests/test_it.py::test_b"]
    assert (cell["outcome"], cell["doubt"]) == ("pass", "order")
    assert cell["reason"] == "it passes alone; FAIL after tests/test_it.py::test_a in one process"


def test_a_file_that_cannot_be_imported_is_a_red_row(user: User, project: Path) -> None:
    """The tests of the other files have their outcomes."""
    (project / "test_a.py").write_text("import torch\nif torch.behaviour == 'old': import nowhere\ndef test_a(): pass")
    (project / "test_b.py").write_text("def test_b(): pass\n")
    cells = cells_of(user, *BOTH, *PYTEST, code=1)
    old = {test: cell["outcome"] for (torch, test), cell in cells.items() if torch == "9.1.0"}
    assert old == {"tests/test_a.py": "fail", "tests/test_b.py::test_b": "pass"}
    assert outcomes(cells) == {"test_a": "pass", "test_b": "pass"}
    assert (
        cells["9.1.0", "tests/test_a.py"]["signature"]
        == "ModuleNotFoundError \"No module named 'nowhere'\" in <module> (test_a.py:2)"
    )


@pytest.mark.parametrize(
    ("options", "code", "outcome"),
    [((), 0, "pass"), ((), 5, "fail"), (("--ok-exit", "5"), 5, "pass"), ((), 125, "skip")],
)
def test_exit_codes_of_any_command(user: User, options: tuple[str, ...], code: int, outcome: str) -> None:
    """0 passes and 125 skips; options say what others mean. The environment's own Python is the first on the PATH."""
    words = ("--torch", "9.2.0", *options, "--", "python", "-c", f"import torch; raise SystemExit({code})")
    cells = cells_of(user, *words, code=int(outcome == "fail"))
    assert [cell["outcome"] for cell in cells.values()] == [outcome]


def test_a_command_runs_in_a_copy_of_the_project(user: User) -> None:
    """It may write there, and what it wrote stays with its attempt; in place it runs in the folder itself."""
    (user.folder / "data.txt").write_text("1")
    words = ("--torch", "9.2.0", "--", "python", "-c", "open('new.txt', 'w').write(open('data.txt').read())")
    cells = cells_of(user, *words, code=0)
    (attempt,) = next(iter(cells.values()))["attempts"]
    folder = (user.folder / ".whichtorch" / attempt["stdout"]).parent
    assert attempt["evidence"]["written"] == ["new.txt"]
    assert (folder / "written" / "new.txt").read_text() == "1"
    assert not (user.folder / "new.txt").exists()
    cells_of(user, "--in-place", *words, code=0)
    assert (user.folder / "new.txt").read_text() == "1"
    (user.folder / "data.txt").write_text("2")  # another project: it runs again
    before = len(user.records())
    cells_of(user, *words, code=0)
    assert len(user.records()) == before + 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("nothing-here", "--x"), "nothing-here: there is no such command in torch-9.2.0-pypi"),
        (("pytest", "--lf"), "pytest's --lf cannot be used here"),
        (("python", "-c", "import os; os.get_terminal_size(0)"), "python needs a terminal: [Errno 25]"),
        (("true",), "{folder} has 20.0 GB of files, too much to copy for each environment"),
    ],
)
def test_what_cannot_be_run_is_said_in_one_line(user: User, words: tuple[str, ...], message: str) -> None:
    """The exit code is 2."""
    if words == ("true",):
        with (user.folder / "weights.bin").open("wb") as weights:
            weights.truncate(20_000_000_000)
    ended = user.run("matrix", "--torch", "9.2.0", "--build", "pypi", "--", *words)
    assert ended.returncode == 2, ended.stdout + ended.stderr
    assert f"error: {message.format(folder=user.folder)}" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_command_that_one_environment_lacks(user: User, project: Path, wheels: Path) -> None:
    """It could not be tried there, which the reason says; the other environments go on. No verdict is exit code 3."""
    build_wheel(wheels, "9.3.0", behaviour="new", requires=("pytest",))
    (project / "test_it.py").write_text("def test_a(): pass\n")
    cells = cells_of(user, "--torch", "9.1.0,9.3.0", *PYTEST, code=3)
    assert {key: cell["outcome"] for key, cell in cells.items()} == {
        ("9.1.0", "-- pytest -q tests"): "error",
        ("9.3.0", "tests/test_it.py::test_a"): "pass",
    }
    shown = (user.folder.parent / "output.txt").read_text()
    assert "pytest: there is no such command in torch-9.1.0-pypi" in shown


def test_a_script_of_another_python_is_not_the_command(user: User) -> None:
    """A pytest that only the user's PATH has would test another torch; a shell script that runs `python` is run."""
    for name, interpreter in {"tool": sys.executable, "task": "/bin/sh"}.items():
        (user.folder / name).write_text(f"#!{interpreter}\npython -c 'import torch'\n")
        (user.folder / name).chmod(0o755)
    path = {"PATH": f"{user.folder}:{user.environ['PATH']}"}
    ended = user.run("matrix", "--torch", "9.2.0", "--", "tool", environ=path)
    assert ended.returncode == 2
    belongs = f"torch-9.2.0-pypi; {user.folder / 'tool'} belongs to another Python"
    assert f"error: tool: there is no such command in {belongs}" in ended.stderr
    assert user.run("matrix", "--torch", "9.2.0", "--", "task", environ=path).returncode == 0


@pytest.mark.parametrize("words", [("matrix",), ("bisect",), ("explain", "--run"), ("fix",)])
def test_a_command_that_no_environment_has_is_a_mistake(user: User, words: tuple[str, ...]) -> None:
    """One line says so, and the exit code is 2."""
    ended = user.run(*words, "--torch", "9.1.0,9.2.0", "--build", "pypi", "--", "nothing-here")
    assert ended.returncode == 2, ended.stdout + ended.stderr
    message = "error: nothing-here: there is no such command in torch-9.1.0-pypi"
    assert message in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.thorough
@pytest.mark.parametrize("words", [("bisect",), ("explain", "--run"), ("fix", "--bad", "9.1.0", "--good", "9.2.0")])
def test_other_commands_take_a_command(user: User, words: tuple[str, ...]) -> None:
    """They say what they say of a script that does the same."""
    (user.folder / "check.py").write_text("import torch\nassert torch.behaviour == 'new', 'as it was'\n")
    command, *options = words
    ended = user.run(command, *options, "--torch", "9.1.0,9.2.0", "--build", "pypi", "--", "python", "-m", "check")
    said = {"bisect": "fixed in 9.2.0", "explain": "first that passes: 9.2.0", "fix": "cured by"}
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert said[command] in ended.stdout, ended.stdout


@pytest.mark.thorough
def test_explain_answers_for_each_test_that_fails(user: User, project: Path) -> None:
    """A command of many tests has an answer for each that is red somewhere, and none for the others."""
    (project / "test_it.py").write_text(TESTS)
    words = ("--run", *BOTH, "--build", "pypi", "--json", "why.json", *PYTEST)
    ended = user.run("explain", *words)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    answers = json.loads((user.folder / "why.json").read_text())["explanations"]
    assert [answer["test"] for answer in answers] == [BEHAVIOR]
    assert "first that passes: 9.2.0" in ended.stdout


def test_a_test_that_fails_in_a_later_round_is_seen(user: User, project: Path) -> None:
    """With --repeat, a failure after a pass counts: the cell is flaky."""
    count = user.folder.parent / "count"
    source = f"import pathlib\ncount = pathlib.Path({str(count)!r})\ndef test_a():\n"
    source += "    runs = len(count.read_text()) if count.exists() else 0\n"
    source += "    count.write_text('.' * (runs + 1))\n    assert runs != 1\n"
    (project / "test_it.py").write_text(source)
    (cell,) = cells_of(user, *NEW, "--repeat", "3", *PYTEST, code=1).values()
    assert sorted(attempt["outcome"] for attempt in cell["attempts"]) == ["fail", "pass", "pass"]
    before = len(user.records())
    cells_of(user, *NEW, "--repeat", "3", *PYTEST, code=1)
    assert len(user.records()) == before


@pytest.mark.thorough
def test_what_x_leaves_out_stays_out(user: User, project: Path) -> None:
    """The same command gives the same answer again; pytest that ends early by itself fails."""
    (project / "test_it.py").write_text("def test_a(): assert False\ndef test_b(): pass\n")
    words = (*NEW, "--", "pytest", "-x", "tests")
    first = cells_of(user, *words, code=1)
    assert outcomes(first) == {"test_a": "fail"}
    assert cells_of(user, *words, code=1).keys() == first.keys()
    (project / "test_it.py").write_text("import pytest\ndef test_a(): pytest.exit('enough')\ndef test_b(): pass\n")
    cells = cells_of(user, *NEW, *PYTEST, code=1)
    assert cells["9.2.0", "-- pytest -q tests"]["outcome"] == "fail"


LEAVING = """
import os, threading
import pytest

@pytest.fixture
def left():
    yield
    os._exit(0)

def test_before(): pass
def test_leaves():
    os._exit(0)
def test_in_fixture(left): pass
def test_in_thread():
    thread = threading.Thread(target=os._exit, args=(0,))
    thread.start()
    thread.join()
def test_becomes_another(): os.execv("/bin/true", ["true"])
def test_forks():
    if os.fork():
        os._exit(0)
def test_exits(): raise SystemExit(0)
def test_after(): pass
"""


@pytest.mark.thorough
@pytest.mark.parametrize("workers", [(), ("-n", "2")])
def test_a_test_that_ends_its_process_crashes(user: User, project: Path, workers: tuple[str, ...]) -> None:
    """An exit code of 0 is no pass without pytest's word. The other tests have their outcomes, with xdist, too."""
    (project / "test_it.py").write_text(LEAVING)
    cells = cells_of(user, *NEW, "--", "pytest", "-q", *workers, "tests", code=1)
    leaving = ("leaves", "in_fixture", "in_thread", "becomes_another", "forks")
    expected = dict.fromkeys((f"test_{name}" for name in leaving), "crash")
    assert outcomes(cells) == expected | {"test_before": "pass", "test_exits": "fail", "test_after": "pass"}
    told = cells["9.2.0", "tests/test_it.py::test_leaves"]
    assert told["signature"].startswith("exit code 0 in test_leaves (test_it.py:12)")
    assert told["attempts"][-1]["note"] == "the test ended its process, exit code 0, at test_it.py:12"


@pytest.mark.parametrize(
    ("name", "source", "outcome", "said"),
    [
        ("conftest.py", "import os\nos._exit(0)\n", "crash", "exit code 0 in <module> (conftest.py:2)"),
        ("test_a.py", "import os\nos._exit(0)\n", "crash", "exit code 0 in <module> (test_a.py:2)"),
        ("test_a.py", "raise SystemExit(0)\n", "fail", 'SystemExit "N" in <module> (test_a.py:1)'),
        ("test_a.py", "import pytest\npytest.exit('', returncode=0)\n", "fail", 'Exit "'),
        ("conftest.py", "import os\ndef pytest_sessionfinish(): os._exit(0)\n", "crash", "exit code 0 in pytest_"),
    ],
)
def test_a_session_that_is_ended_is_no_pass(
    user: User, project: Path, name: str, source: str, outcome: str, said: str
) -> None:
    """It says where, whoever ends it."""
    (project / "test_b.py").write_text("def test_b(): pass\n")
    (project / name).write_text(source)
    red = [cell for cell in cells_of(user, *NEW, *PYTEST, code=1).values() if cell["outcome"] != "pass"]
    assert [(cell["outcome"], cell["signature"][: len(said)]) for cell in red] == [(outcome, said)]


def test_what_ends_pytest_once_it_is_done_changes_nothing(user: User, project: Path) -> None:
    """At the end of the interpreter pytest has told all; an exit code that pytest did not give is told."""
    (project / "test_it.py").write_text("import atexit, os\ndef test_a(): atexit.register(os._exit, 0)\n")
    assert outcomes(cells_of(user, *NEW, *PYTEST, code=0)) == {"test_a": "pass"}
    (project / "test_it.py").write_text("import atexit, os\ndef test_a(): atexit.register(os._exit, 7)\n")
    cells = cells_of(user, *NEW, *PYTEST, code=1)
    assert cells["9.2.0", "-- pytest -q tests"]["signature"] == "exit code 7"


def test_unittest_that_is_ended_is_no_pass(user: User) -> None:
    """Its own last line is its word; a module that ends itself has none to give."""
    source = "import os, unittest\nclass It(unittest.TestCase):\n    def test_a(self): {}\n"
    for what, outcome in {"pass": "pass", "os._exit(0)": "crash"}.items():
        (user.folder / "test_it.py").write_text(source.format(what))
        words = ("--torch", "9.2.0", "--", "python", "-m", "unittest", "test_it")
        (cell,) = cells_of(user, *words, code=int(outcome == "crash")).values()
        assert cell["outcome"] == outcome
    (user.folder / "it.py").write_text("import os\nos._exit(0)\n")
    (cell,) = cells_of(user, "--torch", "9.2.0", "--", "python", "-m", "it", code=0).values()
    assert cell["outcome"] == "pass"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("pytest", "--tourch"), "pytest: error: unrecognized arguments: --tourch"),
        (("sh", "-c", "pytest tests --tourch"), "pytest: error: unrecognized arguments: --tourch"),
        (("pytest", "gone.py"), "ERROR: file or directory not found: gone.py"),
        (("python", "gone.py"), "can't open file"),
        (("python", "-m", "nothing_here"), "No module named nothing_here"),
        (("python", "-m", "json.tool", "--indent"), "error: argument --indent: expected one argument"),
        (("sh", "-c", "nothing-here"), "nothing-here: not found"),
        (("./nothing-here",), "nothing-here"),
    ],
)
def test_a_command_that_is_called_wrongly_is_no_evidence(
    user: User, project: Path, words: tuple[str, ...], said: str
) -> None:
    """The program's own line is told once as the error, and no record is left."""
    (project / "test_it.py").write_text("def test_a(): pass\n")
    ended = user.run("matrix", *NEW, "--", *words)
    assert ended.returncode == 2, ended.stdout + ended.stderr
    assert ended.stderr.count("error: ") - said.count("error: ") == 1
    assert said in ended.stderr
    assert user.records() == []


def test_nothing_to_run_is_skipped(user: User, project: Path) -> None:
    """Where no test is selected, or every file skips itself; --ok-exit makes the first a pass."""
    (project / "test_it.py").write_text("def test_a(): pass\n")
    words = ("--", "pytest", "-q", "tests", "-k", "nothing")
    assert [cell["outcome"] for cell in cells_of(user, *NEW, *words, code=0).values()] == ["skip"]
    cells = cells_of(user, *NEW, "--ok-exit", "5", *words, code=0)
    assert [cell["outcome"] for cell in cells.values()] == ["pass"]
    (project / "test_it.py").write_text("import pytest\npytest.skip('not here', allow_module_level=True)\n")
    assert {key: cell["outcome"] for key, cell in cells_of(user, *NEW, *PYTEST, code=0).items()} == {
        ("9.2.0", "tests/test_it.py"): "skip"
    }


def test_an_error_within_pytest_is_an_error_unless_it_is_torchs(user: User, project: Path) -> None:
    """The user's own hook says nothing about torch, but one that asks for what this release lacks does."""
    (project / "test_it.py").write_text("def test_a(): pass\n")
    for what, outcome, code in (("{}['key']", "error", 3), ("torch.nothing_here", "fail", 1)):
        conftest = f"import torch\ndef pytest_collection_modifyitems(): {what}\n"
        (project / "conftest.py").write_text(conftest)
        (cell,) = cells_of(user, *NEW, *PYTEST, code=code).values()
        assert cell["outcome"] == outcome
    (project / "conftest.py").write_text("import torch\ntorch.nothing_here\n")  # pytest calls it wrong usage
    assert [cell["outcome"] for cell in cells_of(user, *NEW, *PYTEST, code=1).values()] == ["fail"]


def test_last_failed_runs_the_tests_again_that_failed(user: User, project: Path) -> None:
    """Of the same command, or of the last one if none is named; a file that can be imported now has all its tests."""
    ran = user.folder.parent / "ran"
    source = f"def ran(n): open({str(ran)!r}, 'a').write(n)\n"
    source += "def test_a(): ran('a')\ndef test_b():\n    ran('b')\n    assert False\n"
    (project / "test_it.py").write_text(source)
    (project / "test_bad.py").write_text("import nothing_here")
    cells_of(user, *NEW, *PYTEST, code=1)
    ran.write_text("")
    again = cells_of(user, "--last-failed", *NEW, *PYTEST, code=1)
    assert {test for _, test in again} == {"tests/test_it.py::test_b", "tests/test_bad.py"}
    assert ran.read_text() == "b"
    assert "--last-failed: 2 of 3 cells, as of " in (user.folder.parent / "output.txt").read_text()
    user.script("good.py", "import torch\n")
    user.run("matrix", "--torch", "9.2.0", "good.py")
    (project / "test_bad.py").write_text("def test_c(): pass\ndef test_d(): pass\n")
    assert outcomes(cells_of(user, "--last-failed", *NEW, *PYTEST, code=1)) == dict.fromkeys(
        ("test_c", "test_d"), "pass"
    ) | {"test_b": "fail"}
    ran.write_text("")
    for _ in range(2):
        plain = user.run("matrix", "--last-failed")
        assert (plain.returncode, "1 cell, 1 not as expected" in plain.stdout) == (1, True), plain.stdout
    assert ran.read_text() == "bb"
