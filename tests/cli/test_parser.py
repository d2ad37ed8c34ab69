"""Requests whose fields are options, as a command line fills them."""

import itertools
import subprocess
import sys
from dataclasses import MISSING, dataclass
from enum import StrEnum
from inspect import signature
from pathlib import Path
from typing import Any

import click
import pytest

from tests.patience import PATIENCE
from whichtorch.base.errors import UsageError
from whichtorch.base.option import argument, group, megabytes, option, output_path, seconds
from whichtorch.cli import app
from whichtorch.cli.parser import command_of, request_of

HEAVY = ("pydantic", "rich", "psutil", "requests", "jinja2", "packaging", "whichtorch.model")


class Fruit(StrEnum):
    APPLE = "apple"
    PLUM = "plum"


@dataclass(frozen=True, kw_only=True)
class Inner:
    """Options that several requests share."""

    limit: float | None = option(metavar="S", parse=seconds, panel="Limits", help="For so long.")
    left_out: int = option(default=7, help="Not offered everywhere.")


@dataclass(frozen=True, kw_only=True)
class Outer:
    """A request with one of each kind."""

    name: str = argument("NAME", "What it is about.")
    fruit: Fruit = option(default=Fruit.PLUM, if_bare=Fruit.APPLE, help="Which.")
    words: tuple[str, ...] = option("--word", default=(), help="Repeatable.")
    size: str | None = option(choices=("small", "-1"), help="One of a few texts.")
    quick: bool = option("--no-quick", default=True, help="Take your time.")
    count: int = option(default=MISSING, least=1, most=9, help="How many.")
    path: Path = option(default=Path("there"), help="Where.")
    inner: Inner = group(Inner, "limit")


def work(request: Outer) -> int:
    """Work."""
    return request.count


COMMAND = command_of(work, "work", is_group=False)


def given(*words: str) -> Any:
    return request_of(Outer, COMMAND.make_context("work", list(words)))


def test_what_is_not_given_has_the_default_of_its_field() -> None:
    """Defaults are those of the request; a group is filled likewise."""
    assert given("x", "--count", "3") == Outer(name="x", count=3)


@pytest.mark.parametrize("words", [("--count", "3", "--fruit"), ("--fruit", "--count", "3")])
def test_a_value_that_may_be_left_out(words: tuple[str, ...]) -> None:
    """At the end, and before another option."""
    assert given("x", *words).fruit is Fruit.APPLE


def test_values_are_read_by_the_types_of_fields() -> None:
    """Enums, paths, lists, flags that turn something off, and what has a parser of its own."""
    words = [
        "--word",
        "a",
        "--word",
        "b",
        "--no-quick",
        "--count",
        "9",
        "--fruit",
        "apple",
        "--path",
        "here",
        "--limit",
        "2m",
    ]
    request = given("x", *words)
    assert request == Outer(
        name="x", fruit=Fruit.APPLE, words=("a", "b"), quick=False, count=9, path=Path("here"), inner=Inner(limit=120)
    )


@pytest.mark.parametrize("words", [("--size", "-1"), ("--size=-1",)])
def test_a_value_may_begin_with_a_dash(words: tuple[str, ...]) -> None:
    """It is no other option, whose name would then be unknown."""
    assert given("x", "--count", "3", *words).size == "-1"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["x"], "Missing option '--count'"),
        (["--count", "1"], "Missing argument 'NAME'"),
        (["x", "--count", "10"], "10 is not in the range 1<=x<=9"),
        (["x", "--count", "1", "--fruit", "pear"], "'pear' is not one of 'apple', 'plum'"),
        (["x", "--count", "1", "--left-out", "1"], "No such option"),
        (["x", "--count", "1", "--size", "large"], "'large' is not one of 'small', '-1'"),
        (["x", "--count", "1", "--word"], "Option '--word' requires an argument"),
    ],
)
def test_a_mistake_is_told_with_its_place(words: list[str], message: str) -> None:
    """It ends with exit code 2; an option that a group leaves out does not exist."""
    with pytest.raises(click.UsageError) as mistake:
        given(*words)
    assert message in mistake.value.format_message()
    assert mistake.value.exit_code == 2


def test_help_shows_options_by_panel() -> None:
    """With metavar, default and range; a group may have a panel of its own in a command."""
    lines = COMMAND.get_help(click.Context(COMMAND, info_name="work")).splitlines()
    assert "  NAME  What it is about." in lines
    assert "  --fruit [apple|plum]   Which.  [default: plum]" in lines
    assert lines[lines.index("Limits:") + 1] == "  --limit S  For so long."


def test_exit_code_is_what_the_function_returns() -> None:
    """None is 0."""
    with pytest.raises(click.exceptions.Exit) as ended:
        COMMAND.invoke(COMMAND.make_context("work", ["x", "--count", "4"]))
    assert ended.value.exit_code == 4


@pytest.mark.parametrize(("text", "read"), [("90s", 90), ("1.5m", 90), ("2h", 7200), ("3", 3)])
def test_times(text: str, read: float) -> None:
    """A unit is one letter; without one it is seconds."""
    assert seconds(text) == read


@pytest.mark.parametrize(("text", "read"), [("60GB", 60000), ("800mb", 800), ("1.5T", 1_500_000), ("2", 2000)])
def test_sizes(text: str, read: float) -> None:
    """Without a unit it is gigabytes."""
    assert megabytes(text) == read


@pytest.mark.parametrize("text", ["0", "-5", "nan", "inf", "much"])
def test_invalid_sizes(text: str) -> None:
    """A size is a positive, finite number, perhaps with a unit."""
    with pytest.raises(UsageError, match="is not a size"):
        megabytes(text)


def test_a_file_needs_a_folder(tmp_path: Path) -> None:
    """What could not be written is told before anything runs."""
    assert output_path(str(tmp_path / "a.json")) == tmp_path / "a.json"
    with pytest.raises(UsageError, match=r"no folder .*/nowhere to write a.json into"):
        output_path(str(tmp_path / "nowhere" / "a.json"))


def test_every_command_takes_one_request() -> None:
    """An option is a field of it, and nothing else."""
    functions = [*itertools.chain(*app._COMMANDS.values()), *app._RUNS_COMMANDS]
    assert all(len(signature(function).parameters) == 1 for function in functions)


def test_help_starts_without_the_rest() -> None:
    """All commands with their options are built without what only runs need, so that --help comes at once."""
    code = f"import sys\nfrom whichtorch.cli.app import app\napp()\nprint({HEAVY} & sys.modules.keys())"
    code = code.replace(str(HEAVY), f"set({HEAVY})")
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=PATIENCE)
    assert ended.stdout == "set()\n"
