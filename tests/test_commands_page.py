"""The reference of the commands is what their help says, but for options, kept in docs/; a shell completes them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from whichtorch.cli.app import app
from whichtorch.cli.parser import WHOLE

PAGE = Path(__file__).parent.parent / "docs" / "commands.md"
HEAD = """# Commands

What every command does, and its exit codes. `whichtorch COMMAND -h` shows the options that matter most, `--help-all`
all of them and this text; [options.md](options.md) says what each means and which commands take it.
`nox -s COMMAND -- OPTIONS` runs the same command from a checkout.
"""


def helps(command: click.Command, above: click.Context | None, name: str) -> Iterator[tuple[str, str]]:
    """Yield the words that call a command and its help without the options, then those of its subcommands."""
    context = click.Context(command, parent=above, info_name=name, terminal_width=96, **command.context_settings)
    context.meta[WHOLE] = True
    formatter = context.make_formatter()
    command.format_usage(context, formatter)
    command.format_help_text(context, formatter)
    yield context.command_path, formatter.getvalue().rstrip("\n")
    if isinstance(command, click.Group):
        for below, inner in command.commands.items():
            yield from helps(inner, context, below)


def generated() -> str:
    """Return the page."""
    parts = [f"\n## {path}\n\n```text\n{text}\n```\n" for path, text in helps(app(), None, "whichtorch")]
    return "".join([HEAD, *parts])


def test_page_is_what_the_help_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/commands.md has the help of each command; `python -m tests.test_commands_page` writes it anew."""
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
