"""What a user is told who gives a command wrongly."""

from __future__ import annotations

import errno
import os
import sqlite3
from typing import TYPE_CHECKING

import pytest

from tests.cli.shell import User
from whichtorch.cli import app
from whichtorch.records.line_index import scratch_database

if TYPE_CHECKING:
    from collections.abc import Callable


class Owner:
    """Owns a table."""


def failing(number: int) -> Callable[[], None]:
    def write() -> None:
        raise OSError(number, os.strerror(number), "records.jsonl")

    return write


def read_only() -> None:
    connection = sqlite3.connect("file:/?mode=ro", uri=True)
    connection.execute("create table words (word text)")


def insert() -> None:
    owner = Owner()
    database = scratch_database(owner, "create table words (word text); pragma max_page_count = 3;")
    for _ in range(10):
        database.execute("insert into words values (?)", ("word" * 1000,))


@pytest.mark.parametrize(
    ("command", "what_to_do"),
    [
        (failing(errno.ENOSPC), "make room"),
        (failing(errno.EDQUOT), "make room"),
        (insert, "make room"),
        (failing(errno.EIO), "check the disk"),
        (failing(errno.EROFS), "make that path writable"),
        (read_only, "make that path writable"),
        (failing(errno.ENOENT), "restore the missing file or folder"),
        (failing(errno.EMFILE), "close other programs, or raise the limit (ulimit)"),
    ],
)
def test_a_disk_that_fails_ends_with_one_line(
    command: Callable[[], None], what_to_do: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is no verdict on torch, and what was written before is kept."""
    monkeypatch.setattr(app, "app", command)
    with pytest.raises(SystemExit) as ended:
        app.main()
    assert ended.value.code == 3
    assert capsys.readouterr().err.splitlines()[1:] == [
        f"hint: {what_to_do}; what is done is kept, and the same command goes on"
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["matrix", "--torch", "9.9.9"], "9.2.0"),
        (["matrix", "--torch", "two"], "'two' names no torch version"),
        (["matrix", "fake_tensr/*"], "fake_tensor/*"),
        (["matrix", "fake_tensor/add_meta[level=none]"], "level = "),
        (["matrix", "nowhere.py"], "no such script: nowhere.py"),
        (["matrix", "--matrix", "nowhere.toml"], "no such matrix file"),
        (["matrix", "--config", "singel-thread"], "single-thread"),
        (["matrix", "--build", "pipy"], "pypi"),
        (["matrix", "--python", "eleven"], "eleven"),
        (["matrix", "--disk", "much"], "is not a size"),
        (["matrix", "--json", "nowhere/result.json"], "no folder nowhere"),
        (["matrix", "--torhc", "9.2.0"], "--torhc"),
        (["bisect", "control/pass", "--json", "nowhere/answer.json"], "no folder nowhere"),
        (["bisect", "control/pass", "--report", "nowhere/report.md"], "no folder nowhere"),
        (["explain", "control/pass", "--json", "nowhere/answers.json"], "no folder nowhere"),
        (["explain", "nowhere.py"], "no such script: nowhere.py"),
        (["explain", "control/pass", "--environment", "torch-0"], "no known environment has the label or id 'torch-0'"),
        (["explain", "control/pass", "--here", "p", "--environment", "q"], "name one environment each"),
        (["explain", "control/pass", "--here", "nowhere/python"], "--here takes the path of a Python"),
        (["dispatch", "aten::mm", "torch-0"], "no known environment has the label or id 'torch-0'"),
        (["dispatch", "aten::mm", "a", "b", "c"], "3 environments cannot be compared"),
        (["matrix", "--torch", "9.1.0", "9.2.0", "ok.py"], "did you mean --torch 9.1.0,9.2.0?"),
        (["bisect", "--torch", "9.1.0", "9.2.0", "ok.py"], "did you mean --torch 9.1.0,9.2.0?"),
        (["matrix", "--torch", "9,1", "ok.py"], "did you mean --torch 9.1?"),
        (["matrix", "--torch", "9.1.0..9.2.0", "ok.py"], "did you mean '>=9.1.0,<=9.2.0'?"),
        (["matrix", "--torch", "9.1.0 9.2.0", "ok.py"], "did you mean 9.1.0,9.2.0?"),
        (["matrix", "--torch", "torch==9.1.0", "ok.py"], "did you mean 9.1.0?"),
        (["matrix", "--torch", "stable", "ok.py"], "did you mean latest?"),
        (["matrix", "--torch", "last:3", "ok.py"], "did you mean recent:3?"),
        (["matrix", "--python", "3.11.7"], "did you mean 3.11?"),
        (["matrix", "--python", ".venv/bin/python"], "--interpreter takes the path of one"),
        (["matrix", "--torch", "9.1.0", "pytest", "tests/x.py"], "did you mean `-- pytest tests/x.py`?"),
        (["bisect", "pytest", "tests", "-k", "half"], "did you mean `-- pytest tests -k half`?"),
        (["matrix", "-k", "half"], "options of your own script or command stand after `--`"),
        (["pytest", "tests"], "did you mean `whichtorch matrix -- pytest tests`?"),
        (["watch", "pytest"], "did you mean `whichtorch run pytest`?"),
        (["help", "matrix"], "did you mean `whichtorch matrix --help`?"),
        (["stacks", "train.py"], "`pgrep -f train.py` finds it"),
        (["compare"], "no"),
    ],
)
def test_mistake_gives_one_clear_message(user: User, arguments: list[str], message: str) -> None:
    """A user's mistake ends with exit code 2 and what to write instead, never with a traceback."""
    ended = user.run(*arguments)
    assert ended.returncode == 2, ended.stdout + ended.stderr
    assert message in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_script_is_no_command(user: User) -> None:
    """What runs it is said, by every command that takes a program instead."""
    user.script("ok.py", "")
    assert "did you mean `whichtorch matrix ok.py`?" in user.run("ok.py").stderr
    assert "as in python ok.py" in user.run("run", "ok.py").stderr
    ended = user.run("matrix", "--torch", "9.2.0", "--", "ok.py")
    assert "hint: it is a file: -- python ok.py" in ended.stderr
    assert "next:" not in ended.stdout


@pytest.mark.parametrize("command", ["matrix", "bisect"])
def test_a_script_in_a_checkout_of_torch_is_refused(user: User, command: str) -> None:
    """It would import the checkout everywhere. An environment of the user's may be a build of just that checkout."""
    user.script("repro.py", "NOTE\nimport torch\n")
    (user.folder / "torch").mkdir()
    (user.folder / "torch" / "__init__.py").write_text("")
    ended = user.run(command, "repro.py", "--torch", "9.1.0,9.2.0", "--build", "pypi")
    assert ended.returncode == 2
    assert "torch/__init__.py would be imported instead of the torch of each environment" in ended.stderr
    assert "hint: move the script to another folder" in ended.stderr
    assert user.runs("repro.py") == 0
    ended = user.run(command, "--torch", "9.1.0,9.2.0", "--build", "pypi", "--", "python", "-m", "repro")
    assert ended.returncode == 2
    assert "hint: run the command from another folder" in ended.stderr
    ended = user.run("matrix", "repro.py", "--interpreter", "no/bin/python")
    assert "would be imported" not in ended.stderr
