"""The options that choose environments, in groups, and that decide how cells are run; and the request for a matrix.

A command that runs a matrix takes MatrixAxes. One that reads stored records takes KnownAxes, which filter environments.
A search takes SearchAxes, which fix all axes but one at a single value. --help must start fast, so imports that it does
not need are inside functions. The parser reads the types of fields, so this module must not import `annotations` from
`__future__`.
"""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from whichtorch.base.errors import UsageError
from whichtorch.base.option import OUTPUTS, Strings, after_dashes, argument, duration, group, megabytes, option, seconds
from whichtorch.environments import INSTALL_TIMEOUT
from whichtorch.environments.additions import Additions, Share, environment_option
from whichtorch.process.sandbox import Sandbox
from whichtorch.suite.chain import chain_variant

if TYPE_CHECKING:
    from whichtorch.environments.cache import EnvironmentCache
    from whichtorch.environments.matrix_file import MatrixFile
    from whichtorch.model import Scenario

running_option = partial(option, panel="How it runs")
sandbox_option = partial(
    running_option,
    "--sandbox",
    if_bare=Sandbox.BUBBLEWRAP,
    help="Run scripts without network, your files and your variables: bubblewrap or off.",
)
fresh_option = partial(running_option, "--fresh", default=False, help="Run again what earlier runs have answered.")
jobs_option = partial(
    option,
    "--jobs",
    panel="Budget",
    metavar="N",
    least=1,
    help="How many run at once. [default: by cores and memory; a search 1; of a cluster all slots]",
)

_CHOSEN = ("python", "build", "config", "patch", "hardware")  # axes that options name, beside torch
_single = partial(environment_option, default=(), metavar="NAME")
_names = partial(environment_option, default=(), metavar="NAME[,NAME]")
_torch = partial(environment_option, "--torch", default=(), metavar="SPEC[,SPEC]")
_python = partial(environment_option, "--python", default=(), metavar="3.11[,3.12]")
_patch = partial(environment_option, "--patch", default=(), metavar="FILE[,FILE]")


def _variables() -> str:
    from whichtorch.environments.configs import variables_digest

    return variables_digest()


CHAINED = ("runs", "vary")  # fields that make an attempt a chain of runs


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """How cells are run. The last four are not options of the command line."""

    timeout: float | None = running_option(
        metavar="TIME", parse=seconds, help="How long an attempt may take, instead of the test's own timeout."
    )
    memory: float | None = running_option(
        metavar="SIZE",
        parse=megabytes,
        help="Memory limit of an attempt, all of its processes together, such as 8GB. "
        "[default: memory_mb in the script's header, otherwise 4096MB]",
    )
    repeat: int = running_option(default=1, metavar="N", least=1, help="Attempts per cell.")
    runs: int | None = running_option(
        metavar="N",
        least=1,
        help="Runs per attempt, one after another: each finds the compiler caches of those before. [default: 1]",
    )
    vary: Strings = running_option(
        default=(), metavar="NAME=A,B", help="A variable that differs between the runs; threads=1,2. Repeatable."
    )
    fresh: bool = fresh_option()
    stall: bool = running_option(
        "--no-stall", default=True, help="Wait out every timeout, even on evidence of a deadlock."
    )
    fail_fast: bool = running_option(
        "-x --fail-fast", default=False, help="Stop after the first failure that no scenario expects."
    )
    cold: bool = running_option(
        default=False, help="Start each script in a fresh Python, even where torch could be imported once and shared."
    )
    sandbox: Sandbox = sandbox_option(default=Sandbox.OFF)
    until: frozenset[str] = frozenset()  # outcomes: after an attempt with one of these, no other is made
    provisional: bool = False  # a slow attempt does not get a longer look
    in_search: bool = False  # passes elsewhere are known: many times their duration counts as a hang
    variables: str = field(default_factory=_variables)  # digest of the shell variables that may change what torch does

    @property
    def chain(self) -> dict[str, str]:
        """What they add to a variant for a chain of runs. Raises UsageError for what can be none."""
        return chain_variant(self.runs, self.vary)


_UNSUPPORTED = {  # options of pytest that read results of its last run, or that need a person
    **dict.fromkeys(
        ("--lf", "--last-failed", "--ff", "--failed-first", "--nf", "--new-first", "--sw", "--stepwise"),
        "each environment starts from a fresh copy of the project, without results of earlier runs; "
        "whichtorch's own --last-failed selects cells",
    ),
    **dict.fromkeys(("--pdb", "--trace"), "standard input is empty"),
    **dict.fromkeys(("--looponfail", "-f"), "it never ends"),
}
_REPORTS = ("index.html", "report.md", "junit.xml", "result.json")  # what `report` writes by default
_command_option = partial(option, panel="Command after --")


def check_command(words: Strings | None) -> None:
    """Raise UsageError for no command, and for an option that it cannot have."""
    from whichtorch.model import pytest_place

    if words is None:
        return
    if not words:
        raise UsageError("-- without a command", hint="write it after --, as in `-- pytest tests`")
    if words[0].startswith("-"):
        hint = "a script that takes it stands before --: `repro.py -- --size 4`"
        raise UsageError(f"{words[0]} is not a command", hint=hint)
    if pytest_place(words) is not None:
        for word in words:
            if reason := _UNSUPPORTED.get(word.partition("=")[0]):
                raise UsageError(f"pytest's {word} cannot be used here: {reason}", hint="leave it out")


@dataclass(frozen=True, kw_only=True)
class CommandOptions:
    """How a command is run, and what its exit codes mean."""

    ok_exit: tuple[int, ...] = _command_option(
        default=(), metavar="CODE", least=0, most=255, help="An exit code that passes, beside 0. Repeatable."
    )
    skip_exit: tuple[int, ...] = _command_option(
        default=(), metavar="CODE", least=0, most=255, help="An exit code that skips, beside 125. Repeatable."
    )
    in_place: bool = _command_option(
        default=False, help="Run the command in the folder itself, one environment at a time, not in copies of it."
    )

    def scenario(self, words: Strings, home: Path) -> "Scenario":
        """Return the test that a command is; its project's files are kept below `home`.

        Raises UsageError for a project that is too large.
        """
        from whichtorch.model import COMMAND_MARK, ProjectCommand, Scenario, digest
        from whichtorch.suite.project import Project

        folder = Path.cwd()
        reports = {folder.resolve() / "output" / name for name in _REPORTS}
        project = Project.around(folder, OUTPUTS | reports)
        if not self.in_place:
            project.keep(home)
        command = ProjectCommand(
            words=words,
            project=project.digest,
            subfolder=project.subfolder,
            in_place=folder if self.in_place else None,
            ok_codes=self.ok_exit,
            skip_codes=self.skip_exit,
        )
        return Scenario(
            name=COMMAND_MARK + shlex.join(words),
            path=folder,
            source_hash=digest(command.model_dump(), 12),
            in_suite=False,
            command=command,
        )


def _python_of(text: str) -> Path:
    """Return the Python of an environment's folder, as of conda's; a path of anything else as it is."""
    path = Path(text)
    return path / "bin" / "python" if (path / "bin" / "python").exists() else path


interpreter_option = partial(
    environment_option,
    "--interpreter",
    metavar="PYTHON",
    parse=_python_of,
    help="The Python of an existing environment, or its folder, used as it is.",
)
known_environment = partial(
    environment_option, "--environment", metavar="ID|LABEL", help="An environment of an earlier run."
)
install_timeout_option = partial(
    duration,
    "--install-timeout",
    panel="Budget",
    help="How long a step of an install may take. [default: 30m; 4h for a build of `--git`]",
)
_file = partial(
    environment_option,
    "--matrix",
    metavar="FILE",
    parse=Path,
    help="Matrix file. [default: the nearest whichtorch.toml or pyproject.toml with a table for whichtorch]",
)


def commas(values: Strings) -> Strings:
    """Split values at commas: `--python 3.11,3.12` is the same as `--python 3.11 --python 3.12`."""
    return tuple(part.strip() for value in values for part in value.split(",") if part.strip())


def matrix_file(path: Path | None) -> "MatrixFile":
    """Read a matrix file. Without a path, read the one in the user's repository, or else the default one."""
    from whichtorch.environments.matrix_file import DEFAULT_FILE, own_file, read_matrix_file

    return read_matrix_file(path or own_file() or DEFAULT_FILE)


def torch_specs(torch: Sequence[str]) -> Strings:
    """Return the versions given; a specifier such as >=2.9,<2.13 is one of them."""
    from whichtorch.environments.index.releases import split_specs

    specs = tuple(split_specs(",".join(torch)))
    if len(specs) > 1 and all(spec.isdecimal() for spec in specs):
        raise UsageError(f"no torch release is {specs[0]}", hint=f"did you mean --torch {'.'.join(specs)}?")
    return specs


def _writer_named(text: str) -> str:
    """Return the environment that --cache names. Raises UsageError where it names none."""
    name = text.removeprefix("from=")
    if not name or name == text:
        raise UsageError(f"{text!r} names no environment", hint="write from=2.10.0")
    return name


@dataclass(frozen=True, kw_only=True)
class MatrixAxes:
    """The environments of a matrix file; options replace its axes."""

    torch: Strings = _torch(
        help="A version, a specifier such as '>=2.9,<2.13', recent:3, latest, nightly, "
        "nightly:2026-11-01..2026-11-20, or a wheel's path."
    )
    python: Strings = _python(help="Python versions.")
    build: Strings = _names(help="auto, pypi, cpu, cu128, rocm6.4, xpu, nightly-cpu, test-cpu, or of the file.")
    config: Strings = _names(
        help="default, single-thread, iomp, cpp-meta, dispatch-trace, no-compile-threads, or of the file."
    )
    patch: Strings = _patch(help="A diff of torch's Python files to try, none, or of the file. Repeatable.")
    hardware: Strings = _names(help="Kinds of machines, each a [hardware.NAME] of the file.")
    path: Path | None = _file()
    added: Additions = group(Additions)

    @cached_property
    def file(self) -> "MatrixFile":
        """The matrix file with these axes."""
        named = {axis: commas(getattr(self, axis)) or None for axis in _CHOSEN}
        file = matrix_file(self.path).with_axes(keep_rows=True, torch=torch_specs(self.torch) or None, **named)
        return file.with_additions(self.added)

    @property
    def found_note(self) -> Strings:
        """A note that names the matrix file if it was found, not given; empty for the default file."""
        return (f"matrix file {self.file.path}",) if self.file.path and not self.path else ()


@dataclass(frozen=True, kw_only=True)
class KnownAxes(MatrixAxes):
    """A filter on environments with stored records."""

    torch: Strings = _torch(help="Only these versions.")
    python: Strings = _python(help="Only these Pythons.")
    build: Strings = _names(help="Only these builds.")
    config: Strings = _names(help="Only these configs.")
    patch: Strings = _patch(help="Only these patches, none for without.")

    @property
    def is_narrowed(self) -> bool:
        """Whether the filter excludes any environment."""
        return any((self.torch, self.python, self.build, self.config, self.patch))


@dataclass(frozen=True, kw_only=True)
class SearchAxes:
    """What a search keeps constant: one build, Python, config, patch and kind of hardware."""

    python: Strings = _single(metavar="3.11", help="Python version.")
    build: Strings = _single(help="pypi, cpu, cu128, nightly-cpu, or of the file.")
    config: Strings = _single(help="default, or another config.")
    patch: Strings = _single(metavar="FILE", help="A diff of torch's Python files, applied to each value.")
    hardware: Strings = _single(help="A kind of machine, a [hardware.NAME] of the file.")
    path: Path | None = _file()
    added: Additions = group(Additions)

    def file(self, torch: Sequence[str], *, several: str = "") -> "MatrixFile":
        """Return the matrix file with these axes. Raises UsageError for several values on an axis but `several`."""
        from whichtorch.model import NO_PATCH

        named = {axis: commas(getattr(self, axis)) for axis in _CHOSEN}
        for axis, values in named.items():
            if axis != several and len(values) > 1:
                hint = "name one" + ("" if axis == "patch" else f", or have them told apart with --axis {axis}")
                raise UsageError(f"--{axis} names {len(values)} for a search along another axis", hint=hint)
        usual = {"build": ("auto",), "config": ("default",), "patch": (NO_PATCH,)}
        axes = {axis: values or usual.get(axis, values) for axis, values in named.items()}
        file = matrix_file(self.path).with_axes(keep_rows=True, torch=torch_specs(torch), **axes)
        file = file.with_additions(self.added)
        if len(file.override_choices) > 1:
            hint = "name one version of each package"
            raise UsageError(
                f"--override gives {len(file.override_choices)} combinations, and a search takes one", hint=hint
            )
        return file


@dataclass(frozen=True, kw_only=True)
class Storage:
    """Limits on the disk and the time that environments take."""

    disk_budget_mb: float | None = option(
        "--disk",
        panel="Budget",
        metavar="SIZE",
        parse=megabytes,
        help="Room for environments, e.g. 60GB. [default: 80 % of what is free]",
    )
    install_timeout: float | None = install_timeout_option()

    def cache(self, home: Path) -> "EnvironmentCache":
        """Return the environments of a state folder."""
        from whichtorch.environments.cache import EnvironmentCache

        timeout = self.install_timeout or INSTALL_TIMEOUT
        return EnvironmentCache(home, disk_budget_mb=self.disk_budget_mb, install_timeout=timeout)


@dataclass(frozen=True, kw_only=True)
class MatrixRequest(Storage, MatrixAxes):
    """What a user asks `matrix` for."""

    tests: Strings = argument("SCENARIO|SCRIPT...", "Names and patterns of scenarios, and scripts.", default=())
    home: Path = Path(".whichtorch")  # the state folder
    interpreters: tuple[Path, ...] = interpreter_option(default=())
    last_failed: bool = option(
        default=False,
        panel="Scenarios",
        help="Run again only what failed unexpectedly in the last `matrix`; all where nothing did.",
    )
    share: Share | None = environment_option(
        metavar="I/N", parse=Share.named, help="Run only this share of the environments: 2/4 is the second of four."
    )
    script_arguments: Strings | None = after_dashes("COMMAND")
    command: CommandOptions = group(CommandOptions)
    options: RunOptions = group(RunOptions)
    written: str | None = running_option(
        "--cache",
        metavar="from=TORCH",
        parse=_writer_named,
        help="Make the first run in another environment of the matrix, from=2.10.0.",
    )
    jobs: int | None = jobs_option()

    def __post_init__(self) -> None:
        """Raise UsageError where what follows `--` can be neither a script's arguments nor a command."""
        from whichtorch.base.version_parsing import parse_version

        if not self.tests:
            check_command(self.script_arguments)
        elif self.torch and (stray := [word for word in self.tests if parse_version(word)]):
            hint = f"did you mean --torch {','.join([*self.torch, *stray])}?"
            raise UsageError(f"{', '.join(stray)}: versions are separated by commas", hint=hint)

    @property
    def repeats_last(self) -> bool:
        """Whether it is the last matrix that is run again: nothing says what is to run."""
        return self.last_failed and not (self.tests or self.script_arguments)

    @property
    def chained(self) -> RunOptions:
        """How cells are run: with caches that another environment writes, in two runs at least."""
        if self.written is None or self.options.chain:
            return self.options
        if self.options.runs is not None:
            raise UsageError(
                f"--cache from={self.written}: a single run reads no caches of another", hint="add --runs 2"
            )
        return replace(self.options, runs=2)

    @property
    def product(self) -> bool:
        """Whether environments of the matrix are meant, not just the interpreters."""
        return bool(self.torch) or not self.interpreters
