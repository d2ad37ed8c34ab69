"""What --help says first, and what a value that begins with ~ means."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from typer.core import TyperCommand, TyperGroup

from tests.cli.shell import User
from whichtorch.matrix.cli.app import app


def commands(group: TyperGroup, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], TyperCommand]]:
    """Yield every command with the words that call it."""
    for name, command in group.commands.items():
        if isinstance(command, TyperGroup):
            yield from commands(command, (*words, name))
        elif isinstance(command, TyperCommand):
            yield (*words, name), command


def root() -> TyperGroup:
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    return group


def examples(text: str) -> list[list[str]]:
    """Return the words of the commands that a help begins with."""
    heading, *lines = text.removeprefix("\b\n").partition("\n\n")[0].splitlines()
    assert heading == "Examples:"
    return [shlex.split(line) for line in lines]


def test_help_begins_with_two_examples_that_are_commands() -> None:
    """Each example has options and arguments that its command takes."""
    for words, command in commands(root()):
        shown = examples(command.help or "")
        assert len(shown) == 2, words
        for example in shown:
            assert tuple(example[: 1 + len(words)]) == ("whichtorch", *words)
            command.make_context(words[-1], example[1 + len(words) :])
    assert len(examples(root().help or "")) == 2


def test_options_of_matrix_stand_by_panel(user: User) -> None:
    """The help keeps examples in their lines, and tells options apart by what they are about."""
    lines = user.run("matrix", "--help", environ={"COLUMNS": "80"}).stdout.splitlines()
    assert "    whichtorch matrix --script repro.py --torch '>=2.9'" in lines[:5]
    sections = [line for line in lines if line.endswith(":") and not line.startswith(" ")]
    assert sections == ["Environments:", "Scenarios:", "How it runs:", "Output:", "Options:"]


def test_tilde_is_the_users_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Within quotes no shell expands it, so each value and each element of a list is expanded here."""
    monkeypatch.setenv("HOME", "/somewhere")
    command = dict(commands(root()))[("matrix",)]
    words = ["--script", "~/a.py", "--script=~/b.py", "--json", "~/c", "--torch", "~d"]
    given = command.make_context("matrix", words).params
    assert list(given["script"]) == ["/somewhere/a.py", "/somewhere/b.py"]
    assert Path(given["json_file"]) == Path("/somewhere/c")
    assert list(given["torch"]) == ["~d"]
