"""`whichtorch bisect`: which version, day, package or commit changed it."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from whichtorch.base.errors import UsageError
from whichtorch.base.option import Strings, group, json_output, markdown_output, option
from whichtorch.bisect.search_request import BUILD_TIMEOUT, AxisName, Budget, SearchRequest, Source, day_named
from whichtorch.cli import command
from whichtorch.cli.command import (
    ClusterAddress,
    Display,
    Exit,
    MeasureOptions,
    NamedTestOrCommand,
    failure_option,
    git_option,
)
from whichtorch.matrix.options import (
    CHAINED,
    RunOptions,
    SearchAxes,
    Storage,
    commas,
    fresh_option,
    interpreter_option,
    jobs_option,
)
from whichtorch.search.search_state import Find, SearchOptions

if TYPE_CHECKING:
    from whichtorch.bisect.bisection import Bisection

NAMED_AXES = tuple(str(axis) for axis in AxisName if not axis.row.options or axis is AxisName.COMMIT)
_CHAINS = ("--runs", "--vary")
_LOCKS = {".lock", ".toml", ".txt"}  # suffixes of lock files
_SIDES = set(AxisName.LOCK.row.options)
_PACKAGES = {
    "--with",
    "--requirements",
    "--project",
    "--group",
    "--constraint",
    "--override",
    "--resolution",
    "--install",
}
# a panel of --help each
_what = partial(option, panel="What is searched")
_day = partial(_what, metavar="DAY", parse=day_named)
_bound = partial(option, panel="Bounds", metavar="VALUE")
_sure = partial(option, panel="How sure")
_git = partial(option, panel="Git history")


@dataclass(frozen=True, kw_only=True)
class BisectOptions(NamedTestOrCommand):
    """The options of `bisect`."""

    axis: AxisName = _what(
        default=AxisName.VERSION, choices=NAMED_AXES, metavar=f"[{'|'.join(NAMED_AXES)}]", help="The axis."
    )
    torch: Strings = _what(
        default=(), metavar="SPEC[,SPEC]", help="The versions. [default: every release with a wheel]"
    )
    since: date | None = _day(help="With --axis date: the first day.")
    until: date | None = _day(help="With --axis date: the last day. [default: yesterday]")
    others: SearchAxes = group(SearchAxes)
    good: str | None = _bound(help="A value known to be good; of packages, a lock file or the Python that has them.")
    bad: str | None = _bound(help="A value known to be bad; likewise.")
    find: Find = _bound(
        default=Find.ANY, metavar=None, help="Which change; any: whichever the bounds show; all: every change."
    )
    failure: str = failure_option(panel="Bounds")
    flaky: bool = _sure(default=False, help="The failure comes and goes: search by probability.")
    confidence: float = _sure(default=0.95, metavar="P", least=0.5, most=0.9999, help="Blame nothing below this.")
    fresh: bool = fresh_option(panel="How sure")
    numbers: MeasureOptions = group(MeasureOptions)
    run_options: RunOptions = group(RunOptions, "timeout", "memory", "sandbox", *CHAINED)
    cluster: ClusterAddress = group(ClusterAddress)
    jobs: int | None = jobs_option()
    budget: Budget = group(Budget)
    storage: Storage = group(Storage)
    git: Path | None = git_option(panel="Git history")
    build_command: str | None = _git(
        metavar="CMD", help="With --git: builds a commit; exit 125 to skip it. [default: nothing is built]"
    )
    interpreter: Path | None = interpreter_option(panel="Git history")
    package: str | None = option(
        metavar="REQUIREMENT",
        panel="Packages",
        help="Search the releases of this package with one torch, such as numpy or 'transformers>=4.40'.",
    )
    json_file: Path | None = json_output()
    markdown_file: Path | None = markdown_output()
    display: Display = group(Display)

    @property
    def given(self) -> list[str]:
        """The names of the options that differ from their defaults."""
        values = vars(self) | vars(self.others) | vars(self.cluster) | {"measure": self.numbers.measure}
        values |= {name: getattr(self.run_options, name) for name in ("runs", "vary")}
        values |= {"axis": self.axis is not AxisName.VERSION}
        for name, bound in (("good", self.good), ("bad", self.bad)):
            packages = self._packages(bound)
            values |= {name: None if packages else bound, f"{name} FILE": packages}
        names = [f"--{name.replace('_', '-')}" for name, value in values.items() if value]
        return [*names, *dict.fromkeys(self.others.added.package_options[::2])]

    def _packages(self, bound: str | None) -> Path | None:
        """Return the lock file or the Python that a bound names; None for a value of an axis."""
        path = Path(bound or "")
        is_path = path.is_file() or "/" in str(bound) or path.suffix in _LOCKS
        return path if bound and is_path and not self.git else None

    @property
    def sides(self) -> tuple[Path, Path] | None:
        """The good and the bad set of packages, if packages are searched."""
        good, bad = self._packages(self.good), self._packages(self.bad)
        return (good, bad) if good and bad else None


def bisect(options: BisectOptions) -> Exit:
    """Find the release, day, package or commit that changed a test.

    By default the releases of torch are searched; with --package those of another package; with --axis date the days on
    which the same requirements were resolved; with lock files or Pythons as --good and --bad, the packages in which
    they differ; with --git the commits of a checkout, of torch or of the --package: each is the wheel of the nearest
    release with the commit's Python laid over it. With --build-command each is built, and --interpreter is the Python
    that sees the build, CHECKOUT/.venv/bin/python if none is named. --axis config, python or build compares the values
    that --config, --python or --build name. Both bounds are checked first. If the test is a command that runs pytest,
    as in `-- pytest tests`, all of its tests whose outcome differs between the bounds are searched at once. The same
    command goes on where it was interrupted, and what `matrix` has run counts. Exit code: 0 answered; 4 inconclusive; 2
    wrong usage; 3 an index or the machine is in the way; 130 interrupted.
    """
    from whichtorch.bisect.driver import search_axis

    axis, home = check_options(options.axis, options.given), command.state_folder()
    request = _search_request(options, axis, home)
    with command.resumable(request.budget.seconds):
        cache = options.storage.cache(home)
        with options.cluster.searching(cache, options.jobs) as (machines, jobs):
            request = replace(request, machines=machines, jobs=jobs)
            bisection = search_axis(request, cache, options.display.progress)
        _write_answer(bisection, options, home)
        if bisection.interrupted:
            raise KeyboardInterrupt
    return Exit.UNANSWERED if bisection.answer == "inconclusive" else Exit.GOOD


def _search_request(options: BisectOptions, axis: AxisName, home: Path) -> SearchRequest:
    """Return the request to search an axis."""
    from whichtorch.environments.index.releases import EVERY_RELEASE

    measures = options.numbers.measures
    if len(measures) > 1:
        names = " or ".join(measure.name for measure in measures)
        raise UsageError(f"bisect searches for the change of one number: {names}", hint="name one with --measure")
    torch = options.torch or ["latest" if options.package or axis.row.takes_one_torch else EVERY_RELEASE]
    file = options.others.file(torch, several=options.axis)
    scenario, variant = options.one(file, options.run_options)
    file = command.announced(file.for_script(scenario))
    until = options.until or datetime.now(UTC).date() - timedelta(days=1)
    limit = options.storage.install_timeout or BUILD_TIMEOUT
    source = Source(options.git, options.build_command, options.interpreter, limit) if options.git else None
    return SearchRequest(
        home=home,
        file=file,
        scenario=scenario,
        variant=variant,
        axis=axis,
        failure=command.failure_words(options.failure, (scenario, variant), home),
        any_failure=options.failure == command.ANY_FAILURE,
        good=None if axis is AxisName.LOCK else options.good,
        bad=None if axis is AxisName.LOCK else options.bad,
        goal=SearchOptions(find=options.find, confidence=options.confidence, flaky=options.flaky),
        run_options=options.run_options,
        budget=options.budget,
        jobs=options.jobs or 1,
        fresh=options.fresh,
        measure=measures[0] if measures else None,
        values=commas(getattr(options.others, options.axis, ())),
        days=(options.since, until) if options.since else None,
        sides=options.sides,
        source=source,
        package=options.package,
    )


def check_options(axis: AxisName, given: Collection[str]) -> AxisName:
    """Return the axis that the given options select. Raises UsageError that lists all conflicts between options."""
    selected = [name for name in AxisName if set(name.row.options) & set(given)]
    searched = selected[0] if selected else axis
    if axis is AxisName.COMMIT and "--git" not in given:
        raise UsageError("--axis commit needs a history", hint="name a checkout with --git")
    builds = "--build-command" in given
    if searched is AxisName.COMMIT and not builds:
        selected = [AxisName.COMMIT]
        if axis is AxisName.COMMIT:
            given = [name for name in given if name != "--axis"]
    if AxisName.PACKAGE in selected and (len(selected) > 1 or "--axis" in given):
        named = [name for name in given if name == "--axis" or any(name in each.row.options for each in selected)]
        raise UsageError(f"{' and '.join(named)} select different searches", hint="keep one of them")
    if searched is AxisName.COMMIT:
        others = {"--patch", "--axis", *_SIDES, *({"--python", "--build", *_PACKAGES} if builds else {"--interpreter"})}
        others |= set() if "--package" in given else {"--torch"}
        if foreign := [option for option in given if option in others]:
            raise UsageError(f"{' and '.join(foreign)} cannot go with --git", hint="leave out one or the other")
    elif lone := [option for option in given if option in {"--build-command", "--interpreter"}]:
        raise UsageError(f"{lone[0]} is for a git history", hint="name its checkout with --git")
    bounds, days = {"--good", "--bad"}.intersection(given), {"--since", "--until"}.intersection(given)
    wrong = []
    if searched is AxisName.LOCK and not _SIDES.issubset(given):
        wrong.append("two sides are compared: give a lock file or a Python as --good, and one as --bad")
    if searched is AxisName.LOCK and "--axis" in given:
        wrong.append("--axis says nothing about two lock files or environments")
    if searched is AxisName.LOCK and (added := [option for option in given if option in _PACKAGES]):
        wrong.append(f"{' and '.join(added)}: two lock files or environments name all packages already")
    if searched in {AxisName.DATE, AxisName.PACKAGE} and "--resolution" in given:
        wrong.append("--resolution cannot go with --axis date or --package: they install the highest versions that fit")
    if bounds and not searched.row.is_ordered:
        wrong.append(f"--good and --bad are the ends of a range, but --axis {axis} has no order")
    if searched is AxisName.DATE and "--since" not in days:
        wrong.append("--axis date needs --since, the first day to look at")
    if searched is not AxisName.DATE and days:
        wrong.append("--since and --until go with --axis date")
    if "--measure" in given:
        foreign = [name for name in given if name in {"--failure", "--flaky", "--executor", *_CHAINS}]
        if not searched.row.is_ordered or searched is AxisName.LOCK or (searched is AxisName.COMMIT and not builds):
            wrong.append("--measure searches releases, days or commits that are built, which have an order")
        wrong += [f"{' and '.join(foreign)} cannot go with --measure"] if foreign else []
    if "--executor" in given and not searched.row.runs_on_cluster:
        options = " and ".join(searched.row.options)
        wrong.append(f"--executor cannot go with {options}: the checkout and what is built in it are on this machine")
    if wrong:
        raise UsageError("\n".join(wrong))
    return searched


def _write_answer(bisection: "Bisection", options: BisectOptions, home: Path) -> None:
    """Print the answer, store it with the run for later reports, and write the requested files."""
    from whichtorch.reports.bisection_text import bisection_blocks, bisection_lines
    from whichtorch.reports.document import markdown

    bisection = bisection.model_copy(update={"command": command.repeated_call("bisect")})
    command.write_json(home / "runs" / bisection.run / "bisection.json", bisection)
    command.write_json(options.json_file, bisection)
    if options.markdown_file:
        command.write_lines(options.markdown_file, markdown(bisection_blocks(bisection, home.joinpath)))
    if bisection.probes or bisection.has_tests or not bisection.interrupted:
        print()
        options.display.say(bisection_lines(bisection, options.display.columns))
