"""The reference of the commands is what their help says they do, kept in docs/; a shell completes them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from whichtorch.cli.app import app

PAGE = Path(__file__).parent.parent / "docs" / "commands.md"
HEAD = """# Commands

What every command does, and its exit codes. `whichtorch COMMAND -h` shows examples and the options that matter most,
`--help-all` all of them; [options.md](options.md) says what each means and which commands take it.
`nox -s COMMAND -- OPTIONS` runs the same command from a checkout.
"""


def texts(command: click.Command, path: str) -> Iterator[tuple[str, str]]:
    """Yield the words that call a command and what its help says after the examples, then those of its subcommands."""
    yield path, (command.help or "").partition("\n\n")[2]
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from texts(inner, f"{path} {name}")


def generated() -> str:
    """Return the page."""
    parts = [f"\n## {path}\n\n{text}\n" for path, text in texts(app(), "whichtorch")]
    return "".join([HEAD, *parts])


def test_page_is_what_the_help_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/commands.md has what each command does; `python -m tests.test_commands_page` writes it anew."""
    monkeypatch.delenv("WHICHTORCH_COMMAND", raising=False)
    assert PAGE.read_text(encoding="utf-8") == generated()


def completed(*words: str) -> set[str]:
    """Return what bash is offered after these words."""
    asked = {"COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1), "_WHICHTORCH_COMPLETE": "bash_complete"}
    command = [sys.executable, "-m", "whichtorch"]
    ended = subprocess.run(command, env=os.environ | asked, capture_output=True, text=True, check=True)
    return set(ended.stdout.split())


def test_a_shell_completes() -> None:
    """Commands and options are completed by name, and whatever may be a script by the files that are there."""
    assert completed("whichtorch", "rep") == {"plain,report", "plain,replay"}
    assert "plain,--torch" in completed("whichtorch", "matrix", "--to")
    assert completed("whichtorch", "bisect", "rep") == {"file,rep"}
    assert completed("whichtorch", "matrix", "rep") == {"file,rep"}


if __name__ == "__main__":
    PAGE.write_text(generated(), encoding="utf-8")
