"""What --help says first, and what a value that begins with ~ means."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tests.cli.shell import User
from whichtorch.cli import parser
from whichtorch.cli.app import app
from whichtorch.cli.matrix import MatrixOptions


def commands(group: click.Group, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield every command with the words that call it."""
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, (*words, name))
        else:
            yield (*words, name), command


def examples(text: str) -> list[list[str]]:
    """Return the words of the commands that a help begins with."""
    heading, *lines = text.removeprefix("\b\n").partition("\n\n")[0].splitlines()
    assert heading == "Examples:"
    return [shlex.split(line) for line in lines]


def test_help_begins_with_examples_that_are_commands() -> None:
    """Each example has options and arguments that its command takes."""
    for words, command in commands(app()):
        shown = examples(command.help or "")
        assert 2 <= len(shown) <= 4, words
        for example in shown:
            assert tuple(example[: 1 + len(words)]) == ("whichtorch", *words)
            command.make_context(words[-1], example[1 + len(words) :])
    assert len(examples(app().help or "")) == 2


def test_help_fits_a_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    """40 lines of 80 columns: the commands by what one wants, and of each command examples and its first options."""
    monkeypatch.delenv("WHICHTORCH_COMMAND", raising=False)
    group = app()
    every = [*commands(group), (("runs",), group.commands["runs"]), ((), group)]
    for words, command in every:
        context = click.Context(command, info_name=f"whichtorch {' '.join(words)}".strip(), terminal_width=80)
        lines = command.get_help(context).splitlines()
        assert len(lines) <= 40, words
        assert max(map(len, lines)) <= 80, words
        first = getattr(command, "first", ())
        assert len(first) in {0, 10}
        assert {*first} <= {name for parameter in command.params for name in parameter.opts}
    assert isinstance(group, parser.PanelGroup)
    assert [name for names in group.sections.values() for name in names] == list(group.commands)


def test_all_options_of_matrix_stand_by_panel(user: User) -> None:
    """--help shows ten options, --help-all each of them below what it is about, the releases first."""
    few = user.run("matrix", "--help", environ={"COLUMNS": "80"}).stdout
    assert few.startswith("Usage: whichtorch matrix [OPTIONS] [SCENARIO|SCRIPT...] [-- COMMAND]\n")
    assert ("--help-all" in few, "--cold" in few, "Exit code" in few) == (True, False, False)
    lines = user.run("matrix", "--help-all", environ={"COLUMNS": "80"}).stdout.splitlines()
    assert "    whichtorch matrix repro.py --torch 2.11.0,2.15.0" in lines[:5]
    assert lines[lines.index("Environments:") + 1].startswith("  --torch ")
    sections = [line for line in lines if line.endswith(":") and not line.startswith(" ")]
    panels = ["Positional arguments:", "Environments:", "Budget:", "Scenarios:", "Command after --:", "How it runs:"]
    assert sections == [*panels, "Output:", "Numbers:", "Options:"]


def test_tilde_is_the_users_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Within quotes no shell expands it, so each value and each element of a list is expanded here."""
    monkeypatch.setenv("HOME", str(tmp_path))
    command = dict(commands(app()))[("matrix",)]
    words = ["~/a.py", "--matrix=~/b.toml", "--json", "~/c", "--torch", "~d"]
    given = parser.request_of(MatrixOptions, command.make_context("matrix", words))
    assert (given.tests, given.path) == ((f"{tmp_path}/a.py",), tmp_path / "b.toml")
    assert given.files.json == tmp_path / "c"
    assert given.torch == ("~d",)
