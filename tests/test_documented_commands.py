"""The command line takes every command that the pages for users show."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from tests.test_docs_links import PAGES, ROOT
from whichtorch.matrix.cli.app import app

SHOWN = re.compile(r"^\$ whichtorch ((?:.*\\\n)*.*)$|`whichtorch ([^`…]+)`", re.MULTILINE)
STOPS = {"|", ">", "&&", ";", "#", "…"}
# what a sentence on a command leaves out, and what its help raises
LEFT_OUT = (click.MissingParameter, click.BadOptionUsage, click.exceptions.Exit, click.exceptions.NoArgsIsHelpError)


def refused(text: str) -> list[str]:
    """Return the commands in a page that the command line does not take, each with the reason."""
    found = []
    for match in SHOWN.finditer(text):
        said = match[1] or match[2]
        words = shlex.split(re.sub(r"\$\(.*?\)", "1", said.replace("\\\n", " ")))
        ends = [index for index, word in enumerate(words) if word in STOPS]
        command: click.Command = app()
        words = words[: min(ends, default=None)]
        while isinstance(command, click.Group) and words and words[0] in command.commands:
            command = command.commands[words.pop(0)]
        if command.name == "whichtorch":  # such as `whichtorch --version`
            continue
        try:
            command.make_context(command.name, words)
        except LEFT_OUT:
            continue
        except click.UsageError as mistake:
            found.append(f"{said}: {mistake.message}")
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_of_a_page_are_taken(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With their options and the kinds of values that these have."""
    assert refused(page.read_text(encoding="utf-8")) == []
    capsys.readouterr()  # of help that a page shows


def test_a_command_that_is_not_taken_is_found() -> None:
    """In a block or in a sentence; what it is piped into is not its own, and a sentence may leave out a value."""
    block = "$ whichtorch matrix a.py --no-such | jq --raw .\n"
    assert refused(block + "`whichtorch runs prune --keep x`, `whichtorch run --timeout`\n") == [
        "matrix a.py --no-such | jq --raw .: No such option '--no-such'.",
        "runs prune --keep x: 'x' is not a valid integer range.",
    ]
