"""`whichtorch bisect`: which version, day, package or commit changed it."""

import shlex
import shutil
import sys
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from matrix.bisect.axes.locks import PackageSet
from matrix.bisect.strategy.evidence import Find
from matrix.cli import options, sources
from matrix.cli.session import (
    Exit,
    called,
    check_folders_of,
    going_on_later,
    progress_on,
    write_json,
    write_lines,
)
from matrix.environments.cache import EnvironmentCache
from matrix.environments.commander import INSTALL_TIMEOUT
from matrix.environments.index.version_specs import EVERY_RELEASE
from matrix.errors import UsageError
from matrix.model import Scenario, variant_suffix
from matrix.plan import planning
from matrix.records import store
from matrix.suite import selection


class AxisOption(StrEnum):
    """What is searched."""

    VERSION = "version"
    DATE = "date"
    CONFIG = "config"  # this one and the next two are told apart, not bisected
    PYTHON = "python"
    BUILD = "build"

    @property
    def is_unordered(self) -> bool:
        """True where every value is tried, because none lies between two others."""
        return self in {AxisOption.CONFIG, AxisOption.PYTHON, AxisOption.BUILD}


def bisect(  # one parameter per option
    test: options.Test,
    torch: Annotated[
        list[str] | None,
        typer.Option(metavar="SPEC[,SPEC]", help="Versions to search. [default: every release with a wheel]"),
    ] = None,
    good: Annotated[str | None, typer.Option(metavar="VALUE", help="A version known to be good: a bound.")] = None,
    bad: Annotated[str | None, typer.Option(metavar="VALUE", help="A version known to be bad: a bound.")] = None,
    find: Annotated[
        Find, typer.Option(help="What to find; any: whichever the bounds show; all: every change.", show_default=True)
    ] = Find.ANY,
    axis: Annotated[AxisOption, typer.Option(help="What is searched.", show_default=True)] = AxisOption.VERSION,
    since: Annotated[str | None, typer.Option(metavar="DAY", help="First day of --axis date.")] = None,
    until: Annotated[str | None, typer.Option(metavar="DAY", help="Its last day. [default: yesterday]")] = None,
    extra: Annotated[
        list[str] | None,
        typer.Option("--with", metavar="REQUIREMENT", help="Resolved with torch by --axis date. Repeatable."),
    ] = None,
    good_lock: Annotated[
        Path | None, typer.Option(metavar="FILE", help="pip freeze of where it is good: search the packages.")
    ] = None,
    bad_lock: Annotated[Path | None, typer.Option(metavar="FILE", help="pip freeze of where it is bad.")] = None,
    good_env: Annotated[
        Path | None, typer.Option(metavar="PYTHON", help="Python of an environment where it is good.")
    ] = None,
    bad_env: Annotated[
        Path | None, typer.Option(metavar="PYTHON", help="Python of an environment where it is bad.")
    ] = None,
    matrix_file: options.MatrixPath = None,
    python: options.OnePython = None,
    build: options.OneBuild = None,
    config_name: options.OneConfig = None,
    git: sources.Git = None,
    build_command: sources.BuildCommand = None,
    interpreter: sources.Interpreter = None,
    install_timeout: sources.InstallTimeout = None,
    any_failure: Annotated[
        bool, typer.Option("--any-failure", help="Any failure counts as bad, not only the one at the bad bound.")
    ] = False,
    flaky: Annotated[
        bool, typer.Option("--flaky", help="It fails only now and then: start with that in mind.")
    ] = False,
    two_sided: Annotated[bool, typer.Option("--two-sided", help="A good version, too, may fail now and then.")] = False,
    confidence: Annotated[
        float, typer.Option(metavar="P", min=0.5, max=0.9999, help="Below it no version is blamed.")
    ] = 0.95,
    timeout: options.Timeout = None,
    jobs: Annotated[int, typer.Option(metavar="N", min=1, help="Candidates installed and run at once.")] = 1,
    max_time: Annotated[
        str | None, typer.Option(metavar="TIME", help="Stop after so long, e.g. 90s, 30m, 2h, with what is known.")
    ] = None,
    max_installs: Annotated[int | None, typer.Option(metavar="N", min=1, help="Install at most so many.")] = None,
    disk: options.Disk = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Run again what earlier runs have answered.")] = False,
    json_file: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the answer as JSON.")] = None,
    report_file: Annotated[
        Path | None, typer.Option("--report", metavar="FILE", help="Write a report in Markdown, ready for an issue.")
    ] = None,
) -> None:
    """Find the version, day or package that fixed or broke a test, or say that none did.

    Searched are releases of torch; with --axis date the days on which the same requirements were resolved; with
    --good-lock and --bad-lock, or --good-env and --bad-env, the packages in which two environments differ; with
    --git the commits of a checkout. --axis config, python or build tells the values apart that --config, --python
    or --build name. Both bounds are checked first. The same command goes on where it was interrupted, and what
    `matrix` has run counts. Exit code: 0 answered; 4 inconclusive; 2 wrong usage; 3 an index or the machine is in
    the way; 130 interrupted.
    """
    # here: `matrix` starts without them
    from matrix.bisect.axes.commits import search_commits
    from matrix.bisect.axes.days import day_named
    from matrix.bisect.axes.packages import search_days, search_locks
    from matrix.bisect.axes.releases_axis import search_versions
    from matrix.bisect.axes.values import tell_apart
    from matrix.bisect.bisection import Searched
    from matrix.bisect.budget import Budget
    from matrix.bisect.question import SearchQuestion
    from matrix.bisect.strategy.evidence import SearchOptions
    from reports.bisection_markdown import bisection_markdown
    from reports.bisection_text import bisection_lines

    home = store.state_folder()
    console = Console()
    check_folders_of(json_file, report_file)
    source = sources.source_of(git, build_command, interpreter, install_timeout)
    others: dict[str, object] = {
        "--torch": torch,
        "--python": python,
        "--build": build,
        "--axis": axis is not AxisOption.VERSION,
    }
    others |= {"--good-lock": good_lock, "--bad-lock": bad_lock, "--good-env": good_env, "--bad-env": bad_env}
    sources.check_alone(source, others)
    torch = torch or ["latest" if axis.is_unordered else EVERY_RELEASE]
    file = options.read_search_matrix(matrix_file, torch, python, build, config_name, several=axis)
    sides = _sides(good_lock, good_env), _sides(bad_lock, bad_env)
    _check(axis, since, until, sides, good, bad)
    scenario, variant = _one_test(test)
    question = SearchQuestion(
        home=home,
        file=file,
        scenario=scenario,
        variant=variant,
        good=good,
        bad=bad,
        options=planning.RunOptions(timeout=timeout),
        asked=SearchOptions(find=find, confidence=confidence, flaky=flaky, two_sided=two_sided),
        any_failure=any_failure,
        budget=Budget(seconds=options.seconds(max_time), installs=max_installs),
        jobs=jobs,
        fresh=fresh,
    )
    cache = EnvironmentCache(
        home, disk_budget_mb=options.megabytes(disk), install_timeout=install_timeout or INSTALL_TIMEOUT
    )
    show = progress_on(console)
    with going_on_later():
        if all(sides):
            found = search_locks(question, *sides, cache, show)  # type: ignore[arg-type]
        elif source is not None:
            found = search_commits(question, source, show)
        elif axis.is_unordered:
            values = options.commas({"config": config_name, "python": python, "build": build}[axis])
            found = tell_apart(question, Searched(axis), values, cache, show)
        elif axis is AxisOption.DATE:
            yesterday = datetime.now(UTC).date() - timedelta(days=1)
            days = day_named(str(since)), day_named(until) if until else yesterday
            found = search_days(question, *days, tuple(extra or ()), cache, show)
        else:
            found = search_versions(question, cache, show)
    found = found.model_copy(update={"command": f"{called('bisect')} {shlex.join(sys.argv[2:])}"})
    write_json(home / "runs" / found.run / "bisection.json", found)  # for reports
    print()
    print(
        *bisection_lines(found, console.width if console.is_terminal else shutil.get_terminal_size().columns), sep="\n"
    )
    if json_file:
        write_json(json_file, found)
    if report_file:
        write_lines(report_file, bisection_markdown(found, home.joinpath))
    raise typer.Exit(Exit.UNANSWERED if found.answer == "inconclusive" else Exit.GOOD)


def _sides(lock: Path | None, python: Path | None) -> PackageSet | None:
    """Return the one side of a comparison that options name, None where they name none."""
    if lock is not None and python is not None:
        raise UsageError(f"{lock} and {python} name the same side", hint="give a lock file or a Python for each side")
    return PackageSet(lock=lock, python=python) if lock or python else None


def _check(
    axis: AxisOption,
    since: str | None,
    until: str | None,
    sides: tuple[PackageSet | None, PackageSet | None],
    good: str | None,
    bad: str | None,
) -> None:
    """Raise UsageError where options do not go together, naming all that is wrong."""
    wrong = []
    if any(sides) and not all(sides):
        wrong.append("two sides are compared: give --good-lock or --good-env, and --bad-lock or --bad-env")
    if any(sides) and (axis is not AxisOption.VERSION or good or bad):
        wrong.append("--axis, --good and --bad say nothing about two lock files or environments")
    if axis.is_unordered and (good or bad):
        wrong.append(f"--good and --bad are the ends of a range, but --axis {axis} has no order")
    if axis is AxisOption.DATE and since is None:
        wrong.append("--axis date needs --since, the first day to look at")
    if axis is not AxisOption.DATE and (since or until):
        wrong.append("--since and --until go with --axis date")
    if wrong:
        raise UsageError("\n".join(wrong))


def _one_test(test: str) -> tuple[Scenario, dict[str, str]]:
    """Return the one scenario and variant that a user names.

    Of a scenario with several variants and none named it is the first that the header expects to go wrong
    somewhere, else the first.
    """
    found = options.scenarios_of(test)
    if len(found) > 1:
        names = ", ".join(one.name for one in found[:4])
        raise UsageError(f"{test} names {len(found)} tests", hint=f"name one of {names}")
    (scenario,) = found
    variants = selection.variants_of(scenario)
    wrong = [
        variant
        for variant in variants
        if any(line.outcome.is_red and line.variant.items() <= variant.items() for line in scenario.expect)
    ]
    chosen = (wrong or variants)[0]
    if len(variants) > 1:
        others = ", ".join(variant_suffix(one) for one in variants if one != chosen)
        print(f"of {scenario.name}: {variant_suffix(chosen)}; others are {others}")
    return scenario, chosen
