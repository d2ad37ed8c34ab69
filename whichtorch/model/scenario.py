"""A script, and what its header says of it."""

from __future__ import annotations

import itertools
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field

from whichtorch.model.base import Model, digest
from whichtorch.model.environment import Specifier
from whichtorch.model.outcome import Outcome

_TAKES_VALUE = ("-c", "-k", "-m", "-n", "-o", "-p", "-W", "--rootdir", "--confcutdir", "--ignore", "--deselect")
CONTROL = "control"  # tag of a scenario that needs no torch: it shows that the tool works
COMMAND_MARK = "-- "  # begins the name of a command
_WITH_ARGUMENTS = re.compile(r"(?P<script>.*?\.py(?:\[.*?\])?) -- (?P<own>.*)", re.DOTALL)


class Expectation(Model):
    """One line of a scenario's `expect`: where all that it names applies, this outcome is expected."""

    outcome: Outcome
    torch: Specifier = ""  # pre-releases count
    python: Specifier = ""
    build: str = ""  # a glob, as are the next
    config: str = ""
    variant: dict[str, str] = {}
    why: str = ""


class Condition(Model):
    """What must have happened for a result to mean anything. Observed by the tool, not the script.

    An operator that was dispatched, with all that is said of it true of one and the same call.
    """

    op: str  # "aten::mm"
    under: str | None = None  # an operator that encloses the call, at any depth
    keys: tuple[str, ...] = ()  # dispatch keys that its tensors have between them
    grad_mode: bool | None = None
    thread: Literal["main", "other"] | None = None
    python_key: bool | None = None  # a tensor subclass or a dispatch mode took part
    variant: dict[str, str] = {}  # asked of these variants only


class ConditionResult(Model):
    """Whether a condition was met, and what was seen."""

    condition: Condition
    met: bool | None  # None: what was looked at does not tell
    seen: str  # in words: that it happened, or what happened instead, or what is not known


def pytest_place(words: Sequence[str]) -> int | None:
    """Return at which word of a command pytest is named; None if it is not."""
    return next((place for place, word in enumerate(words) if Path(word).name in {"pytest", "py.test"}), None)


class ProjectCommand(Model):
    """A command that is run in a copy of the user's project, and what its exit codes mean."""

    words: tuple[str, ...]
    project: str  # digest of the project's files; their copy is in the state folder
    subfolder: str = "."  # of the project: where it is started
    in_place: Path | None = None  # the user's own folder, where it is started instead of in a copy
    ok_codes: tuple[int, ...] = ()  # exit codes that pass, beside 0
    skip_codes: tuple[int, ...] = ()  # exit codes that skip, beside 125
    test: str = ""  # id of the one test of the command that is meant; "" for the whole command

    @property
    def options(self) -> tuple[str, ...]:
        """The options of the command line that say how it is run."""
        codes = {"--ok-exit": self.ok_codes, "--skip-exit": self.skip_codes}
        given = (word for name, values in codes.items() for value in values for word in (name, str(value)))
        return (*given, *(["--in-place"] if self.in_place else []))

    def words_of_test(self, root: str, folder: Path) -> tuple[str, ...]:
        """Return the words that run just this test: those of pytest without its files and folders, and the id.

        Ids are relative to pytest's `root`, but the words are typed in the user's `folder`; `root` is relative to
        that. Another runner is given the whole command.
        """
        runner = pytest_place(self.words)
        if runner is None or not self.test:
            return self.words
        kept = [
            word
            for before, word in itertools.pairwise(self.words[runner:])
            if before.startswith(_TAKES_VALUE) or word.startswith("-") or not Path(word.partition("::")[0]).exists()
        ]
        file, mark, rest = self.test.partition("::")
        place = os.path.relpath(folder / root / file, folder)
        return (*self.words[: runner + 1], *kept, place + mark + rest)


class Scenario(Model):
    """A script and what its header says of it."""

    name: str  # "fake_tensor/add_meta"; a user's script is named by its path, with the arguments that the user gives it
    path: Path
    source_hash: str
    summary: str = ""
    tags: tuple[str, ...] = ()
    timeout: float = Field(default=60, gt=0, allow_inf_nan=False)  # seconds, wall clock
    has_timeout: bool = False  # its header names one, which is not looked beyond
    memory_mb: int = Field(default=4096, gt=0)  # resident, whole tree
    links: tuple[str, ...] = ()
    conditions: tuple[Condition, ...] = ()
    expect: tuple[Expectation, ...] = ()
    variants: dict[str, tuple[str, ...]] = {}
    in_suite: bool = True  # runs in a scratch folder; a user's script runs where the user is
    on_request: bool = False  # left out unless asked for by name: the controls
    one_factor: bool = False  # the first value of each variant is the base; the others differ from it in one
    native: tuple[str, ...] = ()  # C++ sources beside the script, built into one extension module
    folder: Path | None = Field(default=None, exclude=True)  # where a user's script runs; None: where the user is
    requirements: tuple[str, ...] = ()  # what it needs beside torch, by its header or its PEP 723 block
    requires_python: Specifier = ""  # by its PEP 723 block
    uncalled: tuple[str, ...] = ()  # tests that it defines, where it does nothing else
    arguments: tuple[str, ...] = ()  # that it is started with
    command: ProjectCommand | None = None  # what is run instead of a script; `path` is the user's folder then
    only: tuple[str, ...] | None = Field(default=None, exclude=True)  # ids of the command's tests that are to be run
    data: tuple[str, ...] = Field(default=(), exclude=True)  # files beside it that its scratch folder has, too
    sandboxed: bool = False  # it runs in a sandbox, where it may end otherwise: another test than the same script

    @property
    def text(self) -> str:
        """The text of the script; of a command, that of the files which its words name."""
        words = self.command.words if self.command else (str(self.path),)
        files = (self.path / word.partition("::")[0] for word in words)
        return "\n".join(file.read_text(encoding="utf-8", errors="replace") for file in files if file.is_file())

    @property
    def command_options(self) -> tuple[str, ...]:
        """The options of the command line that say how its command is run; none for a script."""
        return self.command.options if self.command else ()

    def asks_for(self, id_: str) -> bool:
        """Return whether a test of its command is to be run: it is named, or its file is."""
        return self.only is None or id_ in self.only or id_.partition("::")[0] in self.only

    def of_test(self, id_: str) -> Scenario:
        """Return one test of a command, as a scenario of its own."""
        assert self.command is not None
        command = self.command.model_copy(update={"test": id_})
        source = digest([self.source_hash, id_], 12)
        return self.model_copy(update={"name": id_, "source_hash": source, "command": command, "only": None})

    def in_sandbox(self) -> Scenario:
        """Return the same test in a sandbox."""
        source = digest([self.source_hash, "sandbox"], 12)
        return self if self.sandboxed else self.model_copy(update={"sandboxed": True, "source_hash": source})

    def declared(self, variant: Mapping[str, str]) -> tuple[Condition, ...]:
        """Return the conditions that it declares for a variant."""
        return tuple(condition for condition in self.conditions if condition.variant.items() <= variant.items())


class Limits(Model):
    """What an attempt may use. Part of its key: a pass within 60 s says nothing about 10 s."""

    timeout: float  # seconds
    memory_mb: int
    stall: bool = True  # may be stopped early on evidence


def variant_suffix(variant: dict[str, str]) -> str:
    """Return "[grad=off,op=mm]", or nothing for a scenario without variants."""
    return "[" + ",".join(f"{name}={value}" for name, value in variant.items()) + "]" if variant else ""


def name_of_test(scenario: str, variant: dict[str, str]) -> str:
    """Return what people call a scenario's variant: "repro.py[op=mm] -- --size 4"."""
    if not variant:
        return scenario
    script, own = split_test(scenario)
    return script + variant_suffix(variant) + own


def is_command(test: str) -> bool:
    """Return whether a test is given as a command, perhaps after options for it."""
    return test.startswith("--")


def split_test(name: str) -> tuple[str, str]:
    """Return the name of a test without its own arguments, and these as a shell takes them: " -- --size 4", or "".

    A command has no name but its words, perhaps after options for it: "-- pytest tests", "--ok-exit 5 -- make".
    """
    if is_command(name):
        return "", f" {name}"
    found = _WITH_ARGUMENTS.fullmatch(name)
    if found is None:
        return name, ""
    try:
        words = shlex.split(found["own"])
    except ValueError:  # the name was cut, or was not made here
        words = [found["own"]]
    return found["script"], f" -- {shlex.join(words)}"
