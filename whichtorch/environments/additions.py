"""What options say of environments: packages beside torch, variables for what is run, and which share of them is meant.

The parser reads the types of fields, so this module must not import `annotations` from `__future__`.
"""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Self, TypeVar

from whichtorch.base.errors import UsageError
from whichtorch.base.option import Strings, option

environment_option = partial(option, panel="Environments")

Item = TypeVar("Item")


def _words(given: Mapping[str, Iterable[object]]) -> Strings:
    """Return options with their values as the words of a command line."""
    return tuple(word for name, values in given.items() for value in values for word in (name, str(value)))


@dataclass(frozen=True, kw_only=True)
class Additions:
    """What is added to each environment: packages beside torch, and variables for what is run."""

    requirements: Strings = environment_option(
        "--with", default=(), metavar="REQUIREMENT", help="A package to install with torch, 'einops>=0.8'. Repeatable."
    )
    files: tuple[Path, ...] = environment_option(
        "--requirements -r", default=(), metavar="FILE", help="A file of such packages, as pip takes it. Repeatable."
    )
    project: str | None = environment_option(
        metavar="DIR",
        if_bare=".",
        help="Install what the project in DIR depends on, except torch; '.[test]' adds an extra. Without DIR: here.",
    )
    groups: Strings = environment_option(
        "--group", default=(), metavar="NAME", help="With --project: a dependency group of it, too. Repeatable."
    )
    constraints: tuple[Path, ...] = environment_option(
        "--constraint",
        default=(),
        metavar="FILE",
        help="A uv.lock, pylock.toml or file of constraints that pins versions of packages. Repeatable.",
    )
    resolution: str = environment_option(
        default="",
        metavar="lowest-direct",
        choices=("highest", "lowest", "lowest-direct"),
        parse=lambda word: word.replace("highest", ""),  # the default: named or not, the same environment
        help="Which of the versions that fit packages get, as uv says it. [default: highest]",
    )
    overrides: Strings = environment_option(
        "--override",
        default=(),
        metavar="REQUIREMENT",
        help="A version of a package to install even if torch's metadata does not allow it, 'sympy==1.12'. Repeatable; "
        "of several for one package, each is an environment.",
    )
    installs: tuple[Path, ...] = environment_option(
        "--install",
        default=(),
        metavar="DIR",
        help="Install the project in DIR, without its dependencies, from a copy of it. Repeatable.",
    )
    env: Strings = environment_option(
        default=(),
        metavar="NAME[=VALUE]",
        help="A variable for what is run; NAME alone has this shell's value. Repeatable.",
    )

    @property
    def package_options(self) -> Strings:
        """The options of the command line that ask for the packages."""
        given = {"--with": self.requirements, "--requirements": self.files, "--project": filter(None, [self.project])}
        limits = {"--constraint": self.constraints, "--override": self.overrides}
        limits["--resolution"] = tuple(filter(None, [self.resolution]))
        return _words({**given, "--group": self.groups, **limits, "--install": self.installs})

    @property
    def variable_options(self) -> Strings:
        """The options of the command line that ask for the variables."""
        return _words({"--env": self.env})

    @property
    def variables(self) -> dict[str, str]:
        """The variables by name. Raises UsageError for what is no variable, and for one that this shell lacks."""
        given = dict[str, str]()
        for text in self.env:
            name, mark, value = text.partition("=")
            if not re.fullmatch(r"[A-Za-z_]\w*", name):
                hint = "" if mark else "a known environment is named with --environment"
                raise UsageError(f"--env {text}: not NAME=VALUE, nor the name of a variable", hint=hint)
            if not mark and name not in os.environ:
                hint = "write NAME=VALUE, or export it first; a known environment is named with --environment"
                raise UsageError(f"--env {name}: this shell has no such variable", hint=hint)
            given[name] = value if mark else os.environ[name]
        return given


@dataclass(frozen=True, slots=True)
class Share:
    """One of several nearly equal parts of a sequence. Neighbors stay together, because they share downloads."""

    number: int
    count: int

    @classmethod
    def named(cls, text: str) -> Self:
        """Return the share that "2/4" names."""
        number, _, count = text.partition("/")
        if not (number.isdecimal() and count.isdecimal() and 0 < int(number) <= int(count)):
            raise UsageError(f"{text!r} is not a share", hint="write it as 2/4: the second of four")
        return cls(int(number), int(count))

    def of(self, items: Sequence[Item]) -> Sequence[Item]:
        """Return the items of this share; all shares together have each item once, in order."""
        return items[(self.number - 1) * len(items) // self.count : self.number * len(items) // self.count]

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"
