"""Where the script of a case runs, here and in other releases, and what these tell of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from whichtorch.base.errors import UsageError
from whichtorch.bisect.driver import search_axis
from whichtorch.bisect.search_request import Budget, SearchRequest
from whichtorch.environments.expansion import expand
from whichtorch.environments.index.releases import EVERY_RELEASE
from whichtorch.failures.failure import Changed
from whichtorch.fix.commission import FixAnswer, FixRequest, fix_of
from whichtorch.matrix.lab import Runner, opened_lab
from whichtorch.matrix.planning import PlannedCell, RunOptions
from whichtorch.matrix.site import ThisMachine
from whichtorch.matrix.variation import Variation
from whichtorch.model import Outcome, Request, Scenario
from whichtorch.records.line_index import Records
from whichtorch.search.search_state import AnswerKind
from whichtorch.suite import selection
from whichtorch.triage.case import PATCH, Case, Newest

if TYPE_CHECKING:
    from whichtorch.bisect.bisection import Bisection
    from whichtorch.environments.cache import EnvironmentCache
    from whichtorch.environments.matrix_file import MatrixFile
    from whichtorch.matrix.work import Machines
    from whichtorch.model.events import Show

NEWEST = "latest"  # as `--torch` takes it
FIX_SECONDS = 300.0  # of trials: most patches are found within; the command `fix` takes as long as it is given


@dataclass(frozen=True, slots=True, kw_only=True)
class CasePlace:
    """Where a case's script is run."""

    home: Path  # the state folder
    file: MatrixFile  # with one environment
    interpreter: Path | None = None  # instead of it
    beside: Path  # the folder that the user is in
    machines: Machines | None = None  # None: this one
    jobs: int = 1  # smaller scripts, and runs in other releases, at once


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseTest:
    """What a case is about."""

    scenario: Scenario
    variant: dict[str, str]
    options: RunOptions


@dataclass(frozen=True, slots=True)
class OtherReleases:
    """Other releases than the one in which a script fails."""

    place: CasePlace
    cache: EnvironmentCache
    show: Show
    tell: Callable[[str], None] = print

    def searched(self, script: Path, test: CaseTest, bad: str, seconds: float | None) -> Bisection:
        """Bisect all releases for the failure of a script at one of them."""
        return search_axis(self._search(script, test, bad, seconds), self.cache, self.show)

    def fixed(self, script: Path, test: CaseTest, bad: str, good: str, seconds: float) -> FixAnswer:
        """Search what of a good release's Python cures a script in a bad one."""
        search = replace(self._search(script, test, bad, seconds), good=good)
        return fix_of(FixRequest(search=search, tell=self.tell), self.cache, self.show)

    def _search(self, script: Path, test: CaseTest, bad: str, seconds: float | None) -> SearchRequest:
        return SearchRequest(
            home=self.place.home,
            file=self.place.file.with_axes(torch=(EVERY_RELEASE,)),
            scenario=selection.with_arguments(selection.script(str(script)), test.scenario.arguments),
            variant=test.variant,
            bad=bad,
            budget=Budget(seconds=seconds),
            jobs=self.place.jobs,
            machines=self.place.machines,
        )

    def runs(self, release: str, test: CaseTest) -> AbstractContextManager[Runner]:
        """Give where a test runs in another release."""
        place = replace(self.place, file=self.place.file.with_axes(torch=(release,)))
        return opened_case(place, test, self.cache, self.show)


@contextmanager
def opened_case(place: CasePlace, test: CaseTest, cache: EnvironmentCache, show: Show) -> Iterator[Runner]:
    """Install the environment of a place, and give where a test runs in it; raises as `triage`."""
    request = _request(place)
    planned = PlannedCell(request=request, scenario=test.scenario, variant=test.variant, options=test.options)
    machines = place.machines or ThisMachine(environments=cache, jobs=2 * place.jobs)  # a candidate may be two runs
    with opened_lab(machines, Records(), show) as lab:
        with lab.shown():
            environment = lab.acquire(request)
        yield Runner(lab=lab, planned=planned, environment=environment, beside=place.beside)


def _request(place: CasePlace) -> Request:
    given = (place.interpreter,) if place.interpreter else ()
    cache, product = place.home / "cache", place.interpreter is None
    requests = expand(place.file, cache=cache, interpreters_given=given, product=product).requests
    if len(requests) != 1:
        names = ", ".join(request.label for request in requests[:4])
        raise UsageError(f"a case is of one environment, not of {len(requests)}: {names}", hint="name one")
    return requests[0]


def change_of(
    case: Case, folder: Path, other_releases: OtherReleases, test: CaseTest, seconds: float | None
) -> tuple[Bisection | None, str]:
    """Search all releases with the smallest script; return the answer, and the file of the script that gave it.

    If the smallest script passes nowhere, the whole one is used: its user made it pass in healthy releases.
    """
    assert case.environment is not None
    known, bisected = case.bisection, case.bisected
    for script in dict.fromkeys((case.smallest, case.script)):
        found = other_releases.searched(folder / script, test, case.environment.torch, seconds)
        if known is None or known.interrupted or found.answer is AnswerKind.BOUNDARY:
            known, bisected = found, script
        if found.interrupted or any(probe.outcome is Outcome.PASS for probe in found.probes):
            break
    return known, bisected


def newest_of(case: Case, folder: Path, other_releases: OtherReleases, test: CaseTest) -> Newest | None:
    """Return how the smallest script of a case ends in the newest release; None where that release cannot be used."""
    assert case.reproduction is not None
    source = (folder / case.smallest).read_text(encoding="utf-8")
    with other_releases.runs(NEWEST, test) as runs:
        environment = runs.environment
        if not environment.is_usable:
            other_releases.tell(f"{environment.label} cannot be used: {environment.reason or environment.outcome}")
            return None
        run = runs.run(case.reproduction.limit, Variation(source=source))
    record, failure = run.record, case.smallest_failure
    return Newest(
        torch=environment.torch,
        outcome=record.attempt.outcome,
        signature=record.signature or "",
        message=record.attempt.message,
        is_same=failure is not None and failure.compare(run.failure, Changed.SCRIPT_AND_RELEASE).is_same,
    )


def patch_for(
    case: Case, folder: Path, other_releases: OtherReleases, test: CaseTest, seconds: float | None
) -> FixAnswer | None:
    """Search the healthy release's Python for what cures the script; write the patch into the case's folder.

    Return None where such a search cannot help.
    """
    assert case.reproduction is not None
    if not case.healthy_release:
        return None
    if not (case.calls or case.reproduction.outcome is Outcome.FAIL):
        other_releases.tell("fix: left out, it fails in native code")
        return None
    script, seconds = folder / case.bisected, min(FIX_SECONDS, FIX_SECONDS if seconds is None else seconds)
    try:
        found = other_releases.fixed(script, test, case.failing_release, case.healthy_release, seconds)
    except UsageError as error:  # the failure may be another one on the bad side of the change
        other_releases.tell(f"fix: left out, {error}")
        return None
    if found.fix is not None and found.fix.patch:
        (folder / PATCH).write_text(found.fix.patch, encoding="utf-8", errors="surrogateescape")
    return found
