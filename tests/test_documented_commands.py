"""The command line takes the commands that the pages for users show after a `$`, or in a sentence."""

import re
import shlex
from pathlib import Path

import click
import pytest

from tests.test_docs_links import PAGES, ROOT
from whichtorch.cli.app import app

SHOWN = re.compile(r"^\$ whichtorch ((?:.*\\\n)*.*)$|`whichtorch ([^`…]+)`", re.MULTILINE)
STOPS = {"|", ">", "&&", ";", "#", "…"}
HELP = (click.exceptions.Exit, click.exceptions.NoArgsIsHelpError)
LEFT_OUT = (click.MissingParameter, click.BadOptionUsage)  # an argument or a value, in a sentence on a command


def refused(text: str) -> list[str]:
    """Return the commands in a page that the command line rejects, each with the reason."""
    found = []
    for match in SHOWN.finditer(text):
        shown = match[1] or match[2]
        words = shlex.split(re.sub(r"\$\(.*?\)", "1", shown.replace("\\\n", " ")))
        ends = [index for index, word in enumerate(words) if word in STOPS]
        command: click.Command = app()
        words = words[: min(ends, default=None)]
        while isinstance(command, click.Group) and words and words[0] in command.commands:
            command = command.commands[words.pop(0)]
        if words[:1] == ["COMMAND"]:  # of any of them
            continue
        try:
            if isinstance(command, click.Group):
                command.resolve_command(command.make_context(command.name, words), words)
            command.make_context(command.name, words)
        except HELP:
            continue
        except click.UsageError as mistake:
            if match[1] or not isinstance(mistake, LEFT_OUT):
                found.append(f"{shown}: {mistake.message}")
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_of_a_page_are_taken(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Names of options and choices are checked; what a parser of our own reads is not."""
    assert refused(page.read_text(encoding="utf-8")) == []
    capsys.readouterr()  # of help that a page shows


def test_a_command_that_is_not_taken_is_found() -> None:
    """In a block or in a sentence; a command after a pipe is ignored, and a sentence may leave out a value."""
    block = "$ whichtorch matrix a.py --no-such | jq --raw .\n$ whichtorch matirx a.py\n$ whichtorch run --timeout\n"
    assert refused(block + "`whichtorch runs prune --keep x`, `whichtorch run --timeout`\n") == [
        "matrix a.py --no-such | jq --raw .: No such option '--no-such'.",
        "matirx a.py: No such command 'matirx'.",
        "run --timeout: Option '--timeout' requires an argument.",
        "runs prune --keep x: 'x' is not a valid integer range.",
    ]
