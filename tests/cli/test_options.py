"""docs/options.md says what every option is: one name has one meaning in all commands, or a reason why not."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import click

from tests import contract
from tests.cli.test_help import commands
from whichtorch.cli.app import app

PAGE = Path(__file__).parent.parent.parent / "docs" / "options.md"
ALIKE = ("option", "value", "default", "commands", "meaning")
APART = (*ALIKE, "why it differs")
DEFAULT = re.compile(r"\s*\[default: (.*?)\]")


def row(option: click.Option) -> tuple[str, str, str, str]:
    """Return name, value, default and meaning of an option."""
    words = option.help or ""
    stated = DEFAULT.search(words)
    default = stated[1] if stated else str(option.default) if option.show_default else ""
    choices = "|".join(option.type.choices) if isinstance(option.type, click.Choice) else ""
    value = "" if option.is_flag else option.metavar or choices or "WORDS"
    value += ", repeatable" if option.multiple else ""
    return ", ".join(option.opts), value, default, DEFAULT.sub("", words)


def rows() -> Iterator[list[str]]:
    """Yield the rows of all options, a row for the commands in which one is the same."""
    found: dict[tuple[str, str, str, str], list[str]] = {}
    group = app()
    for words, command in [*commands(group), (("runs",), group.commands["runs"])]:
        for parameter in command.get_params(click.Context(command)):
            is_help = parameter.opts[-1].startswith("--help")
            if isinstance(parameter, click.Option) and not parameter.hidden and not is_help:
                found.setdefault(row(parameter), []).append(" ".join(words))
    for name, value, default, meaning in sorted(found, key=lambda each: each[0].lower()):
        cells = (name, value, default, ", ".join(found[name, value, default, meaning]), meaning)
        yield [cell.replace("|", "/").replace("`", "") for cell in cells]


def tables() -> tuple[list[list[str]], list[list[str]]]:
    """Return the rows of options that are the same everywhere, and of the others."""
    every = list(rows())
    names = [each[0] for each in every]
    return [each for each in every if names.count(each[0]) == 1], [each for each in every if names.count(each[0]) > 1]


def test_an_option_is_the_same_in_all_commands() -> None:
    """The page says of each its value, default, commands and meaning; `python -m tests.cli.test_options` writes it."""
    assert contract.table(*ALIKE, text=PAGE.read_text(encoding="utf-8")) == tables()[0]


def test_what_differs_has_a_reason() -> None:
    """An option that differs from command to command is in a table of its own, with a reason for each."""
    promised = contract.table(*APART, text=PAGE.read_text(encoding="utf-8"))
    assert [each[:-1] for each in promised] == tables()[1]
    assert all(each[-1] for each in promised)


def test_every_value_is_explained() -> None:
    """What stands for a value is said once."""
    explained = {each[0] for each in contract.table("value", "stands for", text=PAGE.read_text(encoding="utf-8"))}
    used = {each[1].removesuffix(", repeatable") for each in itertools.chain(*tables())}
    assert {value for value in used if value.isupper()} <= explained


def test_short_options_are_those_of_the_field() -> None:
    """-h, -q, -v and -x mean what they mean in pytest, -r what it means in pip."""
    short = {name for each in itertools.chain(*tables()) for name in each[0].split(", ") if not name.startswith("--")}
    assert short == {"-q", "-r", "-v", "-x"}


def written() -> str:
    """Return the page with the tables as they are now, and the reasons that it has."""
    text = PAGE.read_text(encoding="utf-8")
    reasons = {(each[0], each[3]): each[-1] for each in contract.table(*APART, text=text)}
    alike, apart = tables()
    for headers, body in ((ALIKE, alike), (APART, [[*each, reasons.get((each[0], each[3]), "")] for each in apart])):
        lines = [f"| {' | '.join(each)} |" for each in (headers, ["---"] * len(headers), *body)]
        before, _, after = text.partition(lines[0] + "\n")
        text = before + "\n".join([*lines, *itertools.dropwhile(lambda line: line.startswith("|"), after.split("\n"))])
    return text


if __name__ == "__main__":
    PAGE.write_text(written(), encoding="utf-8")
