"""The plugin that pytest is given: what it writes of a session, and what it leaves alone; pytest is the real one."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE
from whichtorch.inside.startup import FOLDER

KINDS = """
import sys, unittest
import pytest

def helper():
    raise ValueError("inner")

@pytest.fixture
def bad():
    raise KeyError("fixture")

@pytest.fixture
def bad_end():
    yield
    raise KeyError("end")

def test_pass():
    print("out")
    print("err", file=sys.stderr)

def test_fail():
    try:
        helper()
    except ValueError as error:
        raise RuntimeError("outer") from error

@pytest.mark.skip(reason="why")
def test_skip(): pass

@pytest.mark.xfail(reason="known")
def test_xfail(): assert 0

@pytest.mark.xfail(reason="known")
def test_xpass(): pass

@pytest.mark.xfail(reason="known", strict=True)
def test_strict(): pass

def test_fixture(bad): pass
def test_fixture_end(bad_end): pass

class TestUnit(unittest.TestCase):
    def test_equal(self):
        self.assertEqual(1, 2)

    def test_subtests(self):
        for number in range(3):
            with self.subTest(number=number):
                self.assertNotEqual(number, 1)
"""
OUTCOMES = {
    "test_pass": "pass",
    "test_fail": "fail",
    "test_skip": "skip",
    "test_xfail": "xfail",
    "test_xpass": "xpass",
    "test_strict": "fail",
    "test_fixture": "fail",
    "test_fixture_end": "fail",
    "TestUnit::test_equal": "fail",
    "TestUnit::test_subtests": "fail",
}
FIVE = "import pytest\n\n@pytest.mark.parametrize('n', range(5))\ndef test(n): pass\n"
NESTED = """
import os, subprocess, sys
import pytest

def test_in_this_process(tmp_path):
    (tmp_path / "test_in.py").write_text("def test_in(): pass")
    assert pytest.main(["-q", "-p", "no:cacheprovider", str(tmp_path)]) == 0

def test_in_another(tmp_path):
    (tmp_path / "test_out.py").write_text("def test_out(): pass")
    subprocess.run([sys.executable, "-m", "pytest", str(tmp_path)], check=True)

def test_environment():
    assert "WHICHTORCH_TESTS" not in os.environ
    assert os.environ.get("PYTEST_PLUGINS") == "theirs"

def test_fork():
    if pid := os.fork():
        assert os.waitpid(pid, 0)[1] == 0
    else:
        pytest.exit("the fork runs on in pytest's code", 0)
"""
NAMES = ["a b", "x/y", "[q]", "A::b", "ünï", "-k", "\\n", "..", ""]


class Session:
    """A session of pytest in a folder of its own, and what the plugin wrote of it."""

    def __init__(self, folder: Path, files: dict[str, str]) -> None:
        self.project, self.folder = folder / "project", folder / "seen"
        self.folder.mkdir(parents=True)
        for name, text in files.items():
            path = self.project / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def run(self, *arguments: str, **variables: str) -> list[dict[str, Any]]:
        """Return the events of a session, without those of its processes."""
        return [
            event for event in self.whole(*arguments, **variables) if event["event"] not in {"begin", "over", "exit"}
        ]

    def whole(self, *arguments: str, **variables: str) -> list[dict[str, Any]]:
        """Return all events of a session."""
        (self.folder / "tests.jsonl").unlink(missing_ok=True)
        environ = os.environ | {"PYTHONPATH": str(FOLDER), "WHICHTORCH_TESTS": str(self.folder)} | variables
        call = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
        self.ended = subprocess.run(
            call, cwd=self.project, env=environ, capture_output=True, text=True, timeout=PATIENCE
        )
        if not (self.folder / "tests.jsonl").exists():
            return []
        return [json.loads(line) for line in (self.folder / "tests.jsonl").read_text().splitlines()]

    def select(self, **selection: list[str] | None) -> None:
        """Say which tests are to run."""
        (self.folder / "selection.json").write_text(json.dumps(selection))


def of(events: list[dict[str, Any]], kind: str) -> dict[str, dict[str, Any]]:
    """Return the events of a kind by test."""
    return {event["id"]: event for event in events if event["event"] == kind}


def outcomes(events: list[dict[str, Any]]) -> dict[str, str]:
    """Return how each test ended."""
    return {name: event["outcome"] for name, event in of(events, "end").items()}


@pytest.mark.thorough
@pytest.mark.parametrize("workers", [0, 2])
def test_each_way_to_end_has_its_outcome(tmp_path: Path, workers: int) -> None:
    """Skips, expected failures, fixtures, unittest and subtests are told apart, with xdist as without."""
    session = Session(tmp_path, {"test_kinds.py": KINDS})
    events = session.run("-n", str(workers))
    assert outcomes(events) == {f"test_kinds.py::{name}": outcome for name, outcome in OUTCOMES.items()}
    assert events[0] == events[0] | {"event": "session", "workers": workers, "maxfail": 0}
    assert [event["ids"] for event in events if event["event"] == "collected"] == [list(outcomes(session.run()))]
    assert events[-1] == events[-1] | {"event": "finish", "code": 1}


def test_an_end_has_reason_traceback_and_output(tmp_path: Path) -> None:
    """Tracebacks are Python's own, causes included, without a frame of pytest or unittest."""
    ends = of(Session(tmp_path, {"test_kinds.py": KINDS}).run(), "end")
    kinds = {name.partition("::")[2]: end for name, end in ends.items()}
    assert (kinds["test_pass"]["stdout"], kinds["test_pass"]["stderr"]) == ("out\n", "err\n")
    assert [kinds[name]["reason"] for name in ("test_skip", "test_xfail", "test_xpass")] == ["why", "known", "known"]
    assert kinds["test_strict"]["reason"] == "[XPASS(strict)] known"
    assert kinds["test_strict"]["traceback"] == kinds["test_pass"]["traceback"] == kinds["test_skip"]["traceback"] == ""
    chained = kinds["test_fail"]["traceback"]
    assert chained.startswith("Traceback (most recent call last):\n")
    assert "ValueError: inner\n\nThe above exception was the direct cause" in chained
    assert chained.endswith("RuntimeError: outer\n")
    assert kinds["TestUnit::test_subtests"]["traceback"].endswith("AssertionError: 1 == 1\n")
    assert "KeyError: 'end'" in kinds["test_fixture_end"]["traceback"]
    files = [line for end in ends.values() for line in end["traceback"].splitlines() if line.startswith("  File ")]
    assert files
    assert all("test_kinds.py" in line for line in files)


def test_ids_are_as_pytest_writes_them(tmp_path: Path) -> None:
    """Brackets, blanks, slashes, colons and other letters pass through, and can be selected again."""
    source = f"import pytest\n\n@pytest.mark.parametrize('name', {NAMES!r})\ndef test(name): assert name != '[q]'\n"
    session = Session(tmp_path, {"a folder/test_names.py": source})
    events = session.run()
    ids = next(event["ids"] for event in events if event["event"] == "collected")
    assert "a folder/test_names.py::test[[q]]" in ids
    assert len(ids) == len(NAMES)
    assert list(outcomes(events)) == ids
    session.select(only=ids[1:5], skip=ids[1:2])
    assert list(outcomes(session.run())) == ids[2:5]


@pytest.mark.thorough
@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_selection_narrows_what_the_command_selects(tmp_path: Path, workers: str) -> None:
    """`collected` has what the command's own -k leaves; an id that no longer exists does no harm."""
    session = Session(tmp_path, {"test_five.py": FIVE})
    ids = [f"test_five.py::test[{number}]" for number in range(5)]
    session.select(only=[*ids[:4], "gone"], skip=[ids[1]])
    events = session.run("-k", "not 0", "-n", workers)
    assert [event["ids"] for event in events if event["event"] == "collected"] == [ids[1:]]
    assert set(outcomes(events)) == set(ids[2:4])
    session.select(only=None, skip=ids[:2])
    assert set(outcomes(session.run("-n", workers))) == set(ids[2:])


def test_a_file_that_cannot_be_imported_is_one_event(tmp_path: Path) -> None:
    """It ends the session as in plain pytest, unless the tool has a selection: then the others run."""
    files = {
        "test_five.py": FIVE,
        "test_import.py": "import nothing_there",
        "test_raise.py": "raise RuntimeError('here')",
        "test_skip.py": "import pytest\npytest.importorskip('nothing_there')",
        "test_syntax.py": "def f(:",
    }
    session = Session(tmp_path, files)
    events = session.run()
    assert outcomes(events) == {}
    assert events[-1]["code"] == 2
    gone = of(events, "uncollected")
    assert [(name, event["outcome"]) for name, event in gone.items()] == [
        ("test_import.py", "fail"),
        ("test_raise.py", "fail"),
        ("test_skip.py", "skip"),
        ("test_syntax.py", "fail"),
    ]
    assert gone["test_import.py"]["traceback"].splitlines()[1:] == [
        f'  File "{session.project}/test_import.py", line 1, in <module>',
        "    import nothing_there",
        "ModuleNotFoundError: No module named 'nothing_there'",
    ]
    assert gone["test_syntax.py"]["traceback"].count('  File "') == 1
    assert "nothing_there" in gone["test_skip.py"]["reason"]
    session.select(only=None, skip=[])
    events = session.run()
    assert len(outcomes(events)) == 5
    assert of(events, "uncollected").keys() == gone.keys()


def test_a_crash_leaves_a_start_without_an_end(tmp_path: Path) -> None:
    """Each line is on disk before the next thing happens."""
    source = "import os, signal\ndef test_a(): pass\ndef test_b(): os.kill(os.getpid(), signal.SIGKILL)\n"
    events = Session(tmp_path, {"test_crash.py": source}).run()
    assert [(event["event"], event.get("id")) for event in events[2:]] == [
        ("start", "test_crash.py::test_a"),
        ("end", "test_crash.py::test_a"),
        ("start", "test_crash.py::test_b"),
    ]


LEAVES = "import os\ndef test_a(): pass\ndef test_b():\n    os._exit(0)\n"


@pytest.mark.parametrize(
    ("files", "place"),
    [
        ({"test_it.py": LEAVES}, 'test_it.py", line 4, in test_b'),
        ({"test_it.py": "import os\nos._exit(0)\n"}, 'test_it.py", line 2, in <module>'),
        ({"conftest.py": "import os\nos._exit(0)\n", "test_it.py": ""}, 'conftest.py", line 2, in <module>'),
    ],
)
def test_a_pytest_that_is_left_says_where(tmp_path: Path, files: dict[str, str], place: str) -> None:
    """`begin` has no `over`, and the last line tells the status and the frames of the user's, innermost last."""
    events = Session(tmp_path, files).whole()
    assert "over" not in {event["event"] for event in events}
    left = events[-1]
    assert (left["event"], left["status"]) == ("exit", 0)
    assert place in left["traceback"].splitlines()[-2]
    assert "pytest" not in left["traceback"].splitlines()[1].rpartition("/")[2]


@pytest.mark.parametrize("words", [("--help",), ("--no-such-option",), ("gone.py",), ("-k", "nothing")])
def test_a_pytest_that_ends_has_a_last_word(tmp_path: Path, words: tuple[str, ...]) -> None:
    """Whatever it was asked for, and whether or not there was a session."""
    events = Session(tmp_path, {"test_five.py": FIVE}).whole(*words)
    assert [event["event"] for event in (events[0], events[-1])] == ["begin", "over"]


@pytest.mark.parametrize("how", ["raise SystemExit(0)", "import pytest; pytest.exit('enough', returncode=0)"])
def test_a_file_that_ends_the_session_is_one_event(tmp_path: Path, how: str) -> None:
    """The file did not let its tests be collected: it fails where it did that."""
    events = Session(tmp_path, {"test_it.py": how}).run()
    (gone,) = of(events, "uncollected").values()
    assert (gone["id"], gone["outcome"]) == ("test_it.py", "fail")
    assert 'test_it.py", line 1, in <module>' in gone["traceback"]


def test_an_error_within_pytest_is_told(tmp_path: Path) -> None:
    """With the frames of the user's hook."""
    conftest = "def pytest_collection_modifyitems(): raise KeyError('hook')\n"
    events = Session(tmp_path, {"conftest.py": conftest, "test_five.py": FIVE}).run()
    (told,) = (event for event in events if event["event"] == "internal")
    assert 'conftest.py", line 1' in told["traceback"]
    assert told["traceback"].endswith("KeyError: 'hook'\n")


def test_a_file_is_selected_as_its_tests_are(tmp_path: Path) -> None:
    """A file that could not be imported, and can be now, is asked for by its own id."""
    session = Session(tmp_path, {"test_five.py": FIVE, "test_other.py": "def test_a(): pass"})
    session.select(only=["test_five.py"])
    assert len(outcomes(session.run())) == 5


def test_what_tests_start_writes_nothing(tmp_path: Path) -> None:
    """A pytest within a test, a fork that comes back, and the variables that a test sees are as without the plugin."""
    session = Session(tmp_path, {"test_nested.py": NESTED, "theirs.py": ""})
    events = session.run(PYTEST_PLUGINS="theirs")
    assert set(outcomes(events).values()) == {"pass"}, session.ended.stdout
    assert len([event for event in events if event["event"] in {"session", "finish"}]) == 2
    assert all("test_nested.py" in name for name in of(events, "start"))


def test_a_pytest_out_of_reach_runs_as_ever(tmp_path: Path) -> None:
    """Where a command sets a PYTHONPATH of its own, or none counts, nothing is written and nothing fails."""
    session = Session(tmp_path, {"test_five.py": FIVE})
    assert session.run(PYTHONPATH=str(session.project)) == []
    assert session.ended.returncode == 0


def test_no_warning_comes_of_it(tmp_path: Path) -> None:
    """A project that makes errors of warnings passes."""
    session = Session(tmp_path, {"test_five.py": FIVE, "pytest.ini": "[pytest]\nfilterwarnings = error\n"})
    assert set(outcomes(session.run("-W", "error")).values()) == {"pass"}
    assert session.ended.returncode == 0


def test_the_last_attempt_of_a_rerun_counts(tmp_path: Path) -> None:
    """A plugin that runs a test again within the protocol of one test gives one start and one end."""
    conftest = """
from _pytest.runner import runtestprotocol

def pytest_runtest_protocol(item, nextitem):
    for attempt in range(2):
        for report in runtestprotocol(item, nextitem=nextitem, log=False):
            item.ihook.pytest_runtest_logreport(report=report)
    return True
"""
    source = "seen = []\ndef test_later():\n    seen.append(1)\n    assert len(seen) > 1\n"
    events = Session(tmp_path, {"conftest.py": conftest, "test_later.py": source}).run()
    assert outcomes(events) == {"test_later.py::test_later": "pass"}
    assert len([event for event in events if event["event"] == "start"]) == 1
