"""`whichtorch bisect`: which version, day, package or commit changed it."""

import shlex
import shutil
import sys
from collections.abc import Collection
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from whichtorch.matrix.bisect.request import (
    BUILD_TIMEOUT,
    AxisName,
    Budget,
    PackageSet,
    SearchRequest,
    Source,
    day_named,
    search,
)
from whichtorch.matrix.bisect.strategy.evidence import Find, SearchOptions
from whichtorch.matrix.cli import command
from whichtorch.matrix.cli.cluster import Executor, TlsFolder, machines_at
from whichtorch.matrix.cli.command import (
    Exit,
    called,
    check_folders_of,
    going_on_later,
    progress_on,
    write_json,
    write_lines,
)
from whichtorch.matrix.environments.cache import EnvironmentCache
from whichtorch.matrix.environments.commander import INSTALL_TIMEOUT
from whichtorch.matrix.environments.index.version_specs import EVERY_RELEASE
from whichtorch.matrix.errors import UsageError
from whichtorch.matrix.plan.planning import RunOptions
from whichtorch.matrix.records import store

if TYPE_CHECKING:
    from whichtorch.matrix.bisect.bisection import Bisection

NAMED_AXES = {str(axis): axis for axis in AxisName if not axis.row.options}
_SIDES = {"--good-lock", "--good-env"}, {"--bad-lock", "--bad-env"}
Text = str | None
File = Path | None
# the options of each panel of --help
_What = partial(typer.Option, rich_help_panel="What is searched")
_Bound = partial(typer.Option, rich_help_panel="Bounds")
_Sure = partial(typer.Option, rich_help_panel="How sure")
_Cost = partial(typer.Option, rich_help_panel="Budget")
_Git = partial(typer.Option, rich_help_panel="Git history")
_Packages = partial(typer.Option, rich_help_panel="Packages")
_Output = partial(typer.Option, rich_help_panel="Output")


def axis_named(name: str) -> AxisName:
    """Return the axis that --axis names; other options choose the others."""
    if name not in NAMED_AXES:
        raise typer.BadParameter(f"{name!r} is not one of {', '.join(map(repr, NAMED_AXES))}.")
    return NAMED_AXES[name]


def bisect(  # one parameter per option
    test: command.Test,
    axis: Annotated[
        AxisName, _What(metavar=f"[{'|'.join(NAMED_AXES)}]", parser=axis_named, help="The axis.", show_default=True)
    ] = AxisName.VERSION,
    torch: Annotated[
        list[str] | None, _What(metavar="SPEC[,SPEC]", help="The versions. [default: every release with a wheel]")
    ] = None,
    since: Annotated[Text, _What(metavar="DAY", help="With --axis date: the first day.")] = None,
    until: Annotated[Text, _What(metavar="DAY", help="With --axis date: the last day. [default: yesterday]")] = None,
    extra: Annotated[
        list[str] | None,
        _What("--with", metavar="REQUIREMENT", help="With --axis date: resolved with torch. Repeatable."),
    ] = None,
    matrix_file: command.MatrixPath = None,
    python: command.OnePython = None,
    build: command.OneBuild = None,
    config_name: command.OneConfig = None,
    patch: command.OnePatch = None,
    hardware: command.OneHardware = None,
    good: Annotated[Text, _Bound(metavar="VALUE", help="A value known to be good.")] = None,
    bad: Annotated[Text, _Bound(metavar="VALUE", help="A value known to be bad.")] = None,
    find: Annotated[
        Find, _Bound(help="Which change; any: whichever the bounds show; all: every change.", show_default=True)
    ] = Find.ANY,
    failure: Annotated[
        str, _Bound(metavar="WORDS", help="Which failure: words of it, or RUN:ENVIRONMENT. [default: newest]")
    ] = "",
    any_failure: Annotated[
        bool, _Sure("--any-failure", help="Any failure counts as bad, not only the one that is asked about.")
    ] = False,
    flaky: Annotated[bool, _Sure("--flaky", help="The failure comes and goes: search by probability.")] = False,
    confidence: Annotated[float, _Sure(metavar="P", min=0.5, max=0.9999, help="Below it nothing is blamed.")] = 0.95,
    fresh: Annotated[bool, _Sure("--fresh", help="Run again what earlier runs have answered.")] = False,
    timeout: command.Timeout = None,
    look_longer: command.LookLonger = False,
    executor: Executor = None,
    tls: TlsFolder = None,
    jobs: Annotated[
        int | None,
        _Cost(metavar="N", min=1, help="Candidates installed and run at once. [default: 1; with --executor its slots]"),
    ] = None,
    max_time: Annotated[Text, _Cost(metavar="TIME", help="Stop after 90s, 30m, 2h, ..., with what is known.")] = None,
    max_installs: Annotated[int | None, _Cost(metavar="N", min=1, help="Install at most so many.")] = None,
    install_timeout: Annotated[
        float | None,
        _Cost(
            metavar="S",
            min=1,
            help=f"Seconds for an install step, or a build. [default: {INSTALL_TIMEOUT:g}; {BUILD_TIMEOUT:g}]",
        ),
    ] = None,
    disk: command.Disk = None,
    git: Annotated[File, _Git(metavar="CHECKOUT", help="Search the commits of a git checkout.")] = None,
    build_command: Annotated[
        Text, _Git(metavar="CMD", help="With --git: the command that builds a commit; exit 125 to skip it.")
    ] = None,
    interpreter: Annotated[
        File,
        _Git(metavar="PATH", help="With --git: the Python that sees the build. [default: CHECKOUT/.venv/bin/python]"),
    ] = None,
    good_lock: Annotated[File, _Packages(metavar="FILE", help="Search packages: pip freeze of the good side.")] = None,
    bad_lock: Annotated[File, _Packages(metavar="FILE", help="The same of the bad side.")] = None,
    good_env: Annotated[File, _Packages(metavar="PYTHON", help="Instead: the Python of the good side.")] = None,
    bad_env: Annotated[File, _Packages(metavar="PYTHON", help="Instead: the Python of the bad side.")] = None,
    json_file: Annotated[File, _Output("--json", metavar="FILE", help="Write the answer as JSON.")] = None,
    report_file: Annotated[
        File, _Output("--report", metavar="FILE", help="Write Markdown, ready for an issue.")
    ] = None,
) -> None:
    """Find the version, day, package or commit that fixed or broke a test, or say that none did.

    By default the releases of torch are searched; with --axis date the days on which the same requirements were
    resolved; with --good-lock and --bad-lock, or --good-env and --bad-env, the packages in which two environments
    differ; with --git the commits of a checkout. --axis config, python or build compares the values that --config,
    --python or --build name. Both bounds are checked first. The same command goes on where it was interrupted, and
    what `matrix` has run counts. Exit code: 0 answered; 4 inconclusive; 2 wrong usage; 3 an index or the machine is
    in the way; 130 interrupted.
    """
    check_folders_of(json_file, report_file)
    values: dict[str, object] = {"--torch": torch, "--python": python, "--build": build, "--patch": patch}
    values |= {"--axis": axis is not AxisName.VERSION, "--good": good, "--bad": bad, "--since": since, "--until": until}
    values |= {"--good-lock": good_lock, "--bad-lock": bad_lock, "--good-env": good_env, "--bad-env": bad_env}
    values |= {"--executor": executor, "--git": git, "--build-command": build_command, "--interpreter": interpreter}
    searched = check_options(axis, [option for option, value in values.items() if value])
    sides = _side(good_lock, good_env), _side(bad_lock, bad_env)
    source = None
    if git and build_command:
        limit = install_timeout or BUILD_TIMEOUT
        source = Source(checkout=git, command=build_command, interpreter=interpreter, timeout=limit)
    specs = torch or [EVERY_RELEASE if axis.row.is_ordered else "latest"]
    axes = {"python": python, "build": build, "config": config_name, "patch": patch, "hardware": hardware}
    file = command.read_search_matrix(matrix_file, specs, several=axis, **axes)
    scenario, variant = command.one_test(test)
    yesterday = datetime.now(UTC).date() - timedelta(days=1)
    home = store.state_folder()
    request = SearchRequest(
        home=home,
        file=file,
        scenario=scenario,
        variant=variant,
        axis=searched,
        good=good,
        bad=bad,
        goal=SearchOptions(find=find, confidence=confidence, flaky=flaky),
        failure=command.failure_words(failure, (scenario, variant), home),
        any_failure=any_failure,
        run_options=RunOptions(timeout=timeout, look_longer=look_longer),
        budget=Budget(seconds=command.seconds(max_time), installs=max_installs),
        jobs=jobs or 1,
        fresh=fresh,
        values=command.commas({"--config": config_name, "--python": python, "--build": build}.get(f"--{axis}")),
        days=(day_named(since), day_named(until) if until else yesterday) if since else None,
        requirements=tuple(extra or ()),
        sides=(sides[0], sides[1]) if sides[0] and sides[1] else None,
        source=source,
    )
    from whichtorch.matrix.run.site import ThisMachine  # here: other commands start without it

    disk_budget = command.megabytes(disk)
    cache = EnvironmentCache(home, disk_budget_mb=disk_budget, install_timeout=install_timeout or INSTALL_TIMEOUT)
    console = Console()
    with going_on_later(request.budget.seconds):
        with machines_at(executor, tls, ThisMachine(environments=cache, jobs=jobs or 1), jobs) as machines:
            request = replace(request, machines=machines, jobs=jobs or max(1, machines.slots))
            bisection = search(request, cache, progress_on(console))
        _hand_on(bisection, home, console, json_file, report_file)
        if bisection.interrupted:
            raise KeyboardInterrupt
    raise typer.Exit(Exit.UNANSWERED if bisection.answer == "inconclusive" else Exit.GOOD)


def check_options(axis: AxisName, given: Collection[str]) -> AxisName:
    """Return the axis that options choose, by their names; raise UsageError for all that do not go together."""
    searched = next((name for name in AxisName if set(name.row.options) & set(given)), axis)
    if searched is AxisName.COMMIT:
        others = {"--torch", "--python", "--build", "--patch", "--axis"}.union(*_SIDES)
        if foreign := [option for option in given if option in others]:
            raise UsageError(f"{' and '.join(foreign)} cannot go with --git", hint="leave out one or the other")
        if "--build-command" not in given:
            hint = "say how with --build-command, such as 'pip install -e .'"
            raise UsageError("a commit needs to be built", hint=hint)
    elif lone := [option for option in given if option in {"--build-command", "--interpreter"}]:
        raise UsageError(f"{lone[0]} is for a git history", hint="name its checkout with --git")
    bounds, days = {"--good", "--bad"}.intersection(given), {"--since", "--until"}.intersection(given)
    wrong = []
    if searched is AxisName.LOCK and not all(side.intersection(given) for side in _SIDES):
        wrong.append("two sides are compared: give --good-lock or --good-env, and --bad-lock or --bad-env")
    if searched is AxisName.LOCK and (bounds or "--axis" in given):
        wrong.append("--axis, --good and --bad say nothing about two lock files or environments")
    if bounds and not searched.row.is_ordered:
        wrong.append(f"--good and --bad are the ends of a range, but --axis {axis} has no order")
    if searched is AxisName.DATE and "--since" not in days:
        wrong.append("--axis date needs --since, the first day to look at")
    if searched is not AxisName.DATE and days:
        wrong.append("--since and --until go with --axis date")
    if "--executor" in given and not searched.row.may_travel:
        wrong.append(f"--executor cannot go with the axis {searched}: it needs what is on this machine")
    if wrong:
        raise UsageError("\n".join(wrong))
    return searched


def _side(lock: Path | None, python: Path | None) -> PackageSet | None:
    """Return the one side of a comparison that options name, None where they name none."""
    if lock is not None and python is not None:
        raise UsageError(f"{lock} and {python} name the same side", hint="give a lock file or a Python for each side")
    path = lock or python
    return PackageSet(path=path, is_lock=lock is not None) if path else None


def _hand_on(
    bisection: "Bisection", home: Path, console: Console, json_file: Path | None, report_file: Path | None
) -> None:
    """Print the answer, keep it with the run for later reports, and write the files that options name."""
    from whichtorch.reports.bisection_text import (  # here: other commands start without them
        bisection_lines,
        bisection_markdown,
    )

    bisection = bisection.model_copy(update={"command": f"{called('bisect')} {shlex.join(sys.argv[2:])}"})
    write_json(home / "runs" / bisection.run / "bisection.json", bisection)
    if json_file:
        write_json(json_file, bisection)
    if report_file:
        write_lines(report_file, bisection_markdown(bisection, home.joinpath))
    if bisection.probes or not bisection.interrupted:
        print()
        columns = console.width if console.is_terminal else shutil.get_terminal_size().columns
        print(*bisection_lines(bisection, columns), sep="\n")
