"""What all commands have in common: where output goes, how much there is of it, and when a run stops."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.cli.shell import FAILS_IN_OLD, User
from tests.patience import PATIENCE
from tests.test_schema import validator

if TYPE_CHECKING:
    from pathlib import Path

BOTH = ("--torch", "9.1.0,9.2.0")
NEW = ("--torch", "9.2.0")


def test_scripts_and_scenarios_are_arguments(user: User) -> None:
    """A path is a script, all else selects scenarios; the options that name them may be given as well."""
    first, second = user.script("first.py", "NOTE\n"), user.script("second.py", "NOTE\n")
    ended = user.run("matrix", first, "control/pass", second, "--torch", "9.2.0", "--json", "-")
    assert ended.returncode == 0, ended.stderr
    assert [cell["scenario"] for cell in json.loads(ended.stdout)["cells"]] == ["control/pass", "first.py", "second.py"]
    missing = user.run("matrix", "nowhere.py", "--torch", "9.2.0")
    assert (missing.returncode, missing.stderr) == (2, "error: no such script: nowhere.py\n")


@pytest.mark.parametrize(("option", "begins"), [("--json", "{"), ("--junit", "<?xml"), ("--html", "<!doctype html")])
def test_a_dash_is_standard_output_and_people_read_on_standard_error(user: User, option: str, begins: str) -> None:
    """Standard output has the answer alone; no file is called so."""
    ended = user.run("matrix", user.script("repro.py", FAILS_IN_OLD), *BOTH, option, "-")
    assert ended.returncode == 1
    assert ended.stdout.lower().startswith(begins)
    assert "repro.py    FAIL!    pass" in ended.stderr
    assert not (user.folder / "-").exists()


def test_only_one_answer_goes_to_standard_output(user: User) -> None:
    """Two would be mixed. A patch needs a file."""
    assert (
        "--json and --events cannot both go to standard output"
        in user.run("matrix", "control/pass", "--json", "-", "--events", "-").stderr
    )
    assert "the patch needs a file" in user.run("fix", "control/pass", "--output", "-").stderr
    assert "belongs to the command" in user.run("run", "--json", "-", "--", "true").stderr


def test_matrix_writes_the_reports_that_report_writes(user: User) -> None:
    """Each format at its place, said in a line."""
    files = ("--json", "a.json", "--markdown", "a.md", "--junit", "a.xml", "--html", ".")
    ended = user.run("matrix", user.script("repro.py", FAILS_IN_OLD), *BOTH, *files)
    written = ["index.html", "a.md", "a.xml", "a.json"]
    assert [line for line in ended.stdout.splitlines() if line.startswith("wrote")] == [f"wrote {x}" for x in written]
    user.run("report", "--junit", "b.xml", "--markdown", "b.md")
    for kind in ("xml", "md"):
        assert (user.folder / f"a.{kind}").read_text() == (user.folder / f"b.{kind}").read_text()


def test_memory_limits_an_attempt(user: User) -> None:
    """A script that uses more is `oom`; with a higher limit it is run again."""
    script = user.script("large.py", "NOTE\nimport time\nkept = b'x' * 300_000_000\ntime.sleep(1)\n")
    small, large = (user.run("matrix", script, *NEW, "--memory", size) for size in ("100MB", "1GB"))
    assert "OOM!  " in small.stdout, small.stdout
    assert (small.returncode, large.returncode, user.runs("large.py")) == (1, 0, 2)


def test_fail_fast_stops_at_the_first_failure(user: User) -> None:
    """Nothing more is started, what was to run is counted, and the exit code is that of a failure."""
    user.script("a.py", "NOTE\nassert False\n")
    others = [user.script(f"{name}.py", "NOTE\nimport time; time.sleep(60)\n") for name in "bcd"]
    ended = user.run("matrix", "-x", "--jobs", "2", "a.py", *others, "--torch", "9.2.0")
    assert ended.returncode == 1, ended.stdout
    assert "a.py in torch-9.2.0-pypi failed, and --fail-fast ends the run" in ended.stdout
    assert "3 of 4 not run" in ended.stdout
    again = user.run("matrix", "-x", "a.py", *others, "--torch", "9.2.0", "--baseline", "latest")
    assert again.returncode == 1
    assert user.runs("a.py") == 1
    assert user.runs("d.py") == 0


def test_last_failed_runs_what_failed(user: User) -> None:
    """Only cells that were red and unexpected in the last matrix; all where there is none, which is said."""
    bad, good = user.script("bad.py", FAILS_IN_OLD), user.script("good.py", "NOTE\n")
    first = user.run("matrix", bad, good, *BOTH, "--last-failed")
    assert "there is no earlier run, so all cells are run" in first.stdout
    second = user.run("matrix", bad, good, *BOTH, "--last-failed", "--fresh")
    assert "--last-failed: 1 of 4 cells, as of " in second.stdout
    assert (user.runs("bad.py"), user.runs("good.py")) == (3, 2)
    user.script("bad.py", "NOTE\n")
    assert user.run("matrix", bad, good, *BOTH, "--last-failed").returncode == 0
    last = user.run("matrix", bad, good, *BOTH, "--last-failed")
    assert "none of these cells failed in" in last.stdout
    assert "2 environments, 4 cells" in last.stdout


def test_quiet_and_verbose(newcomer: User) -> None:
    """-q prints failures and the summary; -v also known cells, logs, and the commands of installs."""
    script = newcomer.script("repro.py", FAILS_IN_OLD)
    lines = newcomer.run("matrix", script, *BOTH, "-v").stdout.splitlines()
    installs = [line for line in lines if line.startswith("torch-9.1.0-pypi: $ ")]
    assert any("pip" in line and "  log " in line for line in installs)
    assert any(re.search(r"FAIL! .*repro.py .*  log .*stderr.txt", line) for line in lines)
    assert any("(known)" in line for line in newcomer.run("matrix", script, *BOTH, "-v").stdout.splitlines())
    quiet = [line for line in newcomer.run("matrix", script, *BOTH, "-q").stdout.splitlines() if line]
    assert quiet[0].startswith("FAIL!  repro.py")
    assert quiet[-1].startswith("next: ")


@pytest.mark.parametrize(
    ("environ", "colored"),
    [
        ({}, False),
        ({"NO_COLOR": "1"}, False),
        ({"FORCE_COLOR": "1"}, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
    ],
)
def test_color(user: User, environ: dict[str, str], colored: bool) -> None:
    """Failures are colored as the variables say; no cursor is moved in a pipe."""
    script = user.script("repro.py", FAILS_IN_OLD)
    shown = user.run("matrix", script, *BOTH, environ=environ).stdout
    assert ("\x1b[31mFAIL!\x1b[0m" in shown) is colored
    assert "\x1b[?25l" not in shown


def test_events_are_json_lines(user: User) -> None:
    """Each fulfils the schema; the last cell of a run is among them, and standard output has nothing else."""
    ended = user.run("matrix", user.script("repro.py", FAILS_IN_OLD), *BOTH, "--events", "-")
    lines = [json.loads(line) for line in ended.stdout.splitlines()]
    for line in lines:
        validator("events").validate(line)
    cells = [line for line in lines if line["event"] == "cell"]
    assert sorted((line["cell"], line["outcome"]) for line in cells) == [("repro.py", "fail"), ("repro.py", "pass")]
    assert {"stage", "environment", "attempt-started", "attempt-ended", "cell"} == {line["event"] for line in lines}
    assert "repro.py    FAIL!    pass" in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "error", "hint"),
    [
        (("matrix", "--shar", "9"), "no such option '--shar'", "did you mean --share?"),
        (
            ("bisect", "x.py", "--html", "out"),
            "no such option '--html'",
            "options of your own script or command stand after `--`; it is an option of matrix, report",
        ),
        (("matrix", "x.py", "--lr", "3"), "no such option '--lr'", "options of your own script or command stand after"),
        (("matirx",), "no such command 'matirx'", "did you mean matrix?"),
        (("triage",), "missing argument 'SCENARIO|SCRIPT'", "see `whichtorch triage --help`"),
        (("bisect",), "no test is named", "name a scenario or a script, or write a command after --"),
        (("bisect", "a.py", "--axis", "days"), "invalid value for '--axis': 'days' is not one of", "see `whichtorch"),
        (("matrix", "--timeout", "soon"), "--timeout: 'soon' is not a duration", "write it as 90s, 30m, 2h or 1h30m"),
    ],
)
def test_mistakes_are_told_in_one_style(user: User, arguments: tuple[str, ...], error: str, hint: str) -> None:
    """A line with the error, one with the hint, and exit code 2, whoever finds the mistake."""
    ended = user.run(*arguments)
    lines = ended.stderr.splitlines()
    assert (ended.returncode, ended.stdout, len(lines)) == (2, "", 2)
    assert lines[0].startswith(f"error: {error}")
    assert lines[1].startswith(f"hint: {hint}")


def test_a_file_that_cannot_be_written_is_told_first(user: User, tmp_path: Path) -> None:
    """An events file that cannot be opened is told before anything runs."""
    ended = user.run("matrix", user.script("repro.py", "NOTE\n"), *BOTH, "--events", str(tmp_path / "no" / "e.jsonl"))
    assert ended.returncode == 2
    assert user.runs("repro.py") == 0


def test_an_interrupt_in_a_callback_is_not_lost() -> None:
    """Python would print Ctrl-C in a finalizer as an ignored exception, and go on."""
    source = """
import signal, sys
from whichtorch.cli import app
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background shell has it ignored
class Finalized:
    def __del__(self): raise KeyboardInterrupt
class Other:
    def __del__(self): raise ValueError("shown")
def group():
    Other()
    try:
        Finalized()
        while True: pass
    except KeyboardInterrupt:
        sys.exit(7)
app.app = group
app.main()
"""
    ended = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert ended.returncode == 7
    assert "KeyboardInterrupt" not in ended.stderr
    assert "ValueError: shown" in ended.stderr


def test_an_interrupt_during_the_imports_ends_quietly(tmp_path: Path) -> None:
    """Ctrl-C in the first tenths of a second, while the program still imports, ends it with 130 and no traceback."""
    (tmp_path / "click.py").write_text("raise KeyboardInterrupt\n")  # stands in for Ctrl-C during an import
    command, environ = [sys.executable, "-m", "whichtorch"], {**os.environ, "PYTHONPATH": str(tmp_path)}
    ended = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")
