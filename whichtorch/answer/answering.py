"""Answer a bug report: run its script in the release that it names and in the newest one, and find the change between.

Which script it is, is decided by what the candidates show: the first that shows the failure that the report tells of.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.version import Version

from whichtorch.answer import needs
from whichtorch.answer.answer import (
    FLAKY_RUNS,
    ReleaseResult,
    ReportAnswer,
    ReportBoundary,
    ReportVerdict,
    ShownOutcome,
    answer_if_not_runnable,
    answer_without_run,
    as_far_as_taken_over,
    judged,
    more_telling,
    no_evidence,
    shown_failure,
    with_boundary,
)
from whichtorch.answer.claims import Claims, claims_of, listed, other_packages, shows
from whichtorch.answer.script_candidates import Candidate, candidates_in, checked
from whichtorch.base.atomic_files import text_of
from whichtorch.base.errors import PreventedError, TimeOverError, UsageError
from whichtorch.base.version_parsing import parse_version
from whichtorch.bisect.driver import search_axis
from whichtorch.bisect.search_request import Budget, SearchRequest
from whichtorch.environments.additions import Additions
from whichtorch.environments.expansion import expand
from whichtorch.environments.index.releases import EVERY_RELEASE
from whichtorch.environments.interpreters import DEFAULT_PYTHON, found_python
from whichtorch.failures.deadline import BESIDE_PASS, LONGER
from whichtorch.failures.tracebacks import read_chain
from whichtorch.matrix.forecast import Forecast
from whichtorch.matrix.lab import opened_lab
from whichtorch.matrix.options import RunOptions, SearchAxes
from whichtorch.matrix.planning import plan
from whichtorch.matrix.site import ThisMachine
from whichtorch.model import Cell, Environment, Outcome, Scenario, digest
from whichtorch.model.events import Show, StatusShown
from whichtorch.records.line_index import Records
from whichtorch.source.syntax import parse_module

if TYPE_CHECKING:
    from whichtorch.answer.report import Report
    from whichtorch.environments.cache import EnvironmentCache

WRAP_UP = 5.0  # seconds that an answer needs after its last run
SHOWN_OUTPUT = 3000  # characters of what a script wrote last


@dataclass(frozen=True, kw_only=True)
class AnswerRequest:
    """What is asked of a report."""

    report: Report
    home: Path
    newest: str = "latest"
    max_seconds: float | None = None
    options: RunOptions = field(default_factory=RunOptions)
    jobs: int | None = None


@dataclass(kw_only=True)
class Answering:
    """The work on one report."""

    request: AnswerRequest
    cache: EnvironmentCache
    show: Show
    began: float = field(default_factory=time.monotonic)
    known: ReportAnswer | None = None  # as far as it is known, for when the time is over

    def answer(self) -> ReportAnswer:
        """Return the answer; where the time is over, what is known by then."""
        try:
            answer = self._answer()
        except TimeOverError:
            if self.known is None:
                raise
            answer = self.known
            if not answer.seen:
                answer = answer.model_copy(update={"why": "the time limit was reached before the script had run"})
        return answer.model_copy(update={"seconds": round(time.monotonic() - self.began, 1)})

    def _answer(self) -> ReportAnswer:
        report, claims = self.request.report, claims_of(self.request.report)
        base = ReportAnswer(
            verdict=ReportVerdict.UNKNOWN,
            why="nothing was run",
            title=report.title,
            claimed_version=claims.torch,
            claimed=claims.claim.words,
        )
        candidates = candidates_in(report)
        if (refused := answer_without_run(base, candidates, report)) is not None:
            return refused
        useful = [each for each in candidates if needs.uses_torch(each.tree)]
        fallback: ReportAnswer | None = None
        for number, candidate in enumerate(useful, 1):
            asks = answer_if_not_runnable(base, candidate, report)
            fallback = fallback or asks
            if asks is None:
                self._tell(f"script {number} of up to {len(useful)}")
                answer = self._tried(base, candidate, claims)
                if answer.verdict in {ReportVerdict.REPRODUCES, ReportVerdict.FIXED}:
                    return answer
                # started otherwise than the report says it can show the failure, but deny nothing
                is_first = all(each.source != candidate.source for each in useful[:number][:-1])
                if is_first or answer.verdict is ReportVerdict.UNKNOWN:
                    self.known = fallback = more_telling(fallback, answer)
        assert fallback is not None
        return fallback

    def _tried(self, base: ReportAnswer, candidate: Candidate, claims: Claims) -> ReportAnswer:
        """Return what a candidate tells."""
        source, added = checked(candidate.source, claims.claim)
        call = candidate.call
        if claims.claim.is_warning:
            strict = ("PYTHONWARNINGS", f"error:{re.split('[,:]', claims.claim.exceptions[0][1])[0]}")
            call = replace(call, variables=(strict, *call.variables))
        place = self.request.home / "reports" / digest([source, *call.arguments], 16)
        place.mkdir(parents=True, exist_ok=True)
        own = [name for name, _ in candidate.files]
        script = place / ("repro.py" if "repro.py" not in own else "calls_repro.py")
        for name, text in ((script.name, source), *candidate.files):
            (place / name).write_text(text, encoding="utf-8")
        trees = [candidate.tree, *(parse_module(text) for _, text in candidate.files)]
        packages = tuple(dict.fromkeys(each for tree in trees for each in needs.packages(tree, claims.packages, own)))
        trial = self._trial(script, replace(candidate, call=call), claims, packages)
        base = base.model_copy(
            update={
                "script": source,
                "added": (*candidate.added, *added),
                "arguments": call.arguments,
                "variables": dict(call.variables),
                "python": trial.python,
                "run_version": trial.claimed,
            }
        )
        self.known = self.known or base
        trial, here, newest = self._ends(trial, claims)
        differences = [*trial.differences, *(f"it ran without {words}" for words in call.omitted)]
        if unlike := other_packages(claims, here.environment):
            reported = listed(f"{name} {version}" if version else f"no {name}" for name, (version, _) in unlike.items())
            ran = listed(there or "none" for _, there in unlike.values())
            differences.append(f"the report has {reported}, this ran with {ran}")
        base = base.model_copy(
            update={
                "outcome": None if here.outcome is ShownOutcome.OTHER else here.outcome,
                "failure": here.failure,
                "newest": newest,
                "seen": (here, newest),
                "blocked": tuple(dict.fromkeys((*here.blocked, *newest.blocked))),
                "packages": (*trial.axes.added.requirements, *trial.axes.added.overrides),
                "notes": (*trial.notes, *differences),
                "differences": tuple(differences),
            }
        )
        answer = judged(base, here, newest, claims)
        is_elsewhere = claims.has_accelerator and needs.may_use_accelerator(candidate.tree)
        if answer.verdict is ReportVerdict.NOT_SEEN and is_elsewhere:
            why = f"{answer.why} on the CPU; the report was made with an accelerator, which the script uses"
            answer = answer.said(ReportVerdict.HARDWARE, why, "a run on such a machine")
        answer = as_far_as_taken_over(answer, is_started_so=not call.omitted)
        if answer.verdict in {ReportVerdict.REPRODUCES, ReportVerdict.FIXED}:
            self.known = answer
            try:
                answer = answer.model_copy(update={"boundary": self._boundary(trial, claims, here, newest)})
            except PreventedError as error:  # what was seen stays true
                notes = (*answer.notes, f"since when is not known: {error.message}")
                answer = answer.model_copy(update={"notes": notes})
        return with_boundary(answer)

    def _tell(self, what: str, *lines: str) -> None:
        with self.show(None) as emit:
            emit(StatusShown(why=what, lines=lines))

    @property
    def _is_over(self) -> bool:
        most = self.request.max_seconds
        return most is not None and time.monotonic() - self.began >= most

    def _trial(self, script: Path, candidate: Candidate, claims: Claims, packages: tuple[str, ...]) -> ReportTrial:
        """Return where a script runs: the releases, the Python, the packages. Raises UsageError, PreventedError."""
        notes, call = list[str](), candidate.call
        differences = [f"the report has {claims.system}, this ran on Linux"] if claims.system else []
        python = claims.python if claims.python and found_python(claims.python) else DEFAULT_PYTHON
        if claims.python and python != claims.python:
            differences.append(f"Python {python} instead of {claims.python}, which this machine does not have")
        variables = tuple(f"{name}={value}" for name, value in call.variables)
        axes = SearchAxes(python=(python,), added=Additions(requirements=packages, env=variables))
        releases = self._releases(axes)
        if python != DEFAULT_PYTHON and claims.torch and not _became(claims.torch, releases):
            differences.append(f"Python {DEFAULT_PYTHON}, not {python}, for which torch {claims.torch} has no wheel")
            axes, python = replace(axes, python=(DEFAULT_PYTHON,)), DEFAULT_PYTHON
            releases = self._releases(axes)
        newest = releases[-1]
        if self.request.newest != "latest":
            asked = parse_version(self.request.newest)
            newest = next((each for each in releases if Version(each) == asked), "")
            if not newest:
                hint = f"Python {python} has {releases[0]} to {releases[-1]}; write it as {releases[-1]}"
                raise UsageError(f"--newest {self.request.newest}: no such release", hint=hint)
        claimed = newest
        if not claims.torch:
            notes.append(f"the report names no release of torch: {newest} stands for it")
        else:
            claimed = _nearest(claims.torch, releases)
            if Version(claimed) > Version(newest):
                raise UsageError(f"--newest {newest} is older than {claimed}, which the report names")
            if Version(claimed) != Version(Version(claims.torch).public):
                differences.append(f"torch {claimed} stands for {claims.torch}, of which there is no wheel")
        scenario = axes.file([claimed]).script(str(script), call.arguments).model_copy(update={"folder": script.parent})
        return ReportTrial(
            scenario=scenario,
            axes=axes,
            python=python,
            oldest=releases[0],
            claimed=claimed,
            newest=newest,
            notes=tuple(notes),
            differences=tuple(differences),
        )

    def _releases(self, axes: SearchAxes, spec: str = EVERY_RELEASE) -> list[str]:
        """Return the releases of torch that a Python has wheels for, oldest first."""
        expansion = expand(axes.file([spec]), cache=self.request.home / "cache")
        usable = [Version(each.torch).public for each in expansion.requests if each.problem is None]
        if not usable:
            problems = [each.problem for each in expansion.requests if each.problem]
            raise PreventedError(problems[0] if problems else "no release of torch is known")
        return usable

    def _ends(self, trial: ReportTrial, claims: Claims) -> tuple[ReportTrial, ReleaseResult, ReleaseResult]:
        """Run the script at both ends; where that does not show the failure, with all packages that the report lists.

        Versions that cannot be installed are dropped.
        """
        here, newest = self._both_ends(trial, claims)
        if not (here.is_usable and newest.is_usable):
            trial = trial.beside(each.partition("==")[0] for each in trial.axes.added.requirements)
            here, newest = self._both_ends(trial, claims)
        seen = here.is_as_claimed or newest.is_as_claimed
        unlike = {name: both for name, both in other_packages(claims, here.environment).items() if both[0] and not seen}
        while unlike:
            versions = [f"{name}=={version}" for name, (version, _) in unlike.items()]
            self._tell(f"as the report lists: {listed(versions)}")
            missing = (name for name, (_, there) in unlike.items() if not there)
            as_listed = trial.beside((*trial.axes.added.requirements, *missing), versions)
            own, last = self._both_ends(as_listed, claims)
            if own.is_usable:
                note = f"with {listed(versions)}, as the report lists; with others it {here.words}"
                as_listed = replace(as_listed, notes=(*trial.notes, note))
                return as_listed, own, last if last.is_as_claimed or last.outcome is ShownOutcome.PASS else newest
            blamed = {name for name in unlike if re.search(rf"(?<![\w-]){name}==\S+ is an override", own.failure)}
            unlike = {name: both for name, both in unlike.items() if name not in (blamed or unlike)}
        return trial, here, newest

    def _both_ends(self, trial: ReportTrial, claims: Claims) -> tuple[ReleaseResult, ReleaseResult]:
        """Run the script in the claimed release and in the newest one.

        Of a hang the newest is first: if it passes there, many times as long is as good as a hang.
        """
        if claims.claim.outcome is not Outcome.HANG or trial.claimed == trial.newest:
            results = self._results(trial, claims, trial.claimed, trial.newest)
            return results[0], results[-1]
        (newest,) = self._results(trial, claims, trial.newest)
        times = BESIDE_PASS.times
        longer = {"timeout": max(trial.scenario.timeout, times * newest.seconds / LONGER)}
        patient = replace(trial, scenario=trial.scenario.model_copy(update=longer))
        (here,) = self._results(patient, claims, trial.claimed)
        is_longer = here.seconds >= times * newest.seconds or here.cpu_seconds >= times * newest.cpu_seconds
        if here.is_slow and newest.outcome is ShownOutcome.PASS and is_longer:
            words = f"still running after {here.seconds:.0f} s; {newest.version} takes {newest.seconds:.0f} s"
            update = {"outcome": ShownOutcome.HANG, "failure": words, "is_as_claimed": True, "why": ""}
            here = here.model_copy(update=update)
        return here, newest

    def _results(self, trial: ReportTrial, claims: Claims, *versions: str) -> list[ReleaseResult]:
        """Run the script in some releases, and return what each shows."""
        home, options = self.request.home, self.request.options
        if claims.is_flaky:
            red = frozenset({Outcome.FAIL, Outcome.HANG, Outcome.CRASH})
            options = replace(options, repeat=max(options.repeat, FLAKY_RUNS), until=red)
        options = replace(options, in_search=claims.claim.outcome is Outcome.HANG)
        machines = ThisMachine.of(self.cache, self.request.jobs)
        file = trial.axes.file(list(dict.fromkeys(versions)))
        records = Records(home)
        planned = plan(expand(file, cache=home / "cache").requests, [trial.scenario], options)
        self._tell(f"torch {listed(dict.fromkeys(versions))}", *Forecast.of(planned, machines, records).lines())
        with opened_lab(machines, records, self.show, len(planned)) as run_cells:
            environments, cells = run_cells(planned)
        by_id = {each.id: each for each in environments}
        found = {Version(by_id[cell.environment].torch).public: cell for cell in cells}
        by_version = {version: found[Version(version).public] for version in versions}
        return [self._result(version, cell, by_id[cell.environment], claims) for version, cell in by_version.items()]

    def _result(self, version: str, cell: Cell, environment: Environment, claims: Claims) -> ReleaseResult:
        last = next((each for each in reversed(cell.attempts) if each.outcome is cell.outcome), None)
        stderr = text_of(self.request.home / last.stderr) if last and last.stderr else ""
        chain = read_chain(stderr) if cell.outcome is Outcome.FAIL else ()
        is_claimed, why = shows(claims.claim, cell, chain) if cell.outcome.is_red else (False, "")
        if cell.outcome is Outcome.FAIL and not is_claimed:
            why = no_evidence(cell, stderr, chain[0].name if chain else "") or why
        return ReleaseResult(
            version=version,
            outcome=ShownOutcome.of(cell.outcome),
            failure=shown_failure(cell, chain),
            is_as_claimed=is_claimed,
            why=why,
            hang=cell.what or "" if cell.outcome is Outcome.HANG else "",
            stderr=stderr[-SHOWN_OUTPUT:] if cell.outcome.is_red else "",
            seconds=cell.seconds,
            cpu_seconds=last.cpu_seconds if last else 0,
            is_slow=cell.outcome is Outcome.SLOW,
            blocked=tuple(dict.fromkeys(each for attempt in cell.attempts for each in attempt.evidence.tried)),
            environment=environment,
        )

    def _boundary(
        self, trial: ReportTrial, claims: Claims, here: ReleaseResult, newest: ReleaseResult
    ) -> ReportBoundary | None:
        """Find the releases between which the failure went, or, if it is still there, since which it is there."""
        if here.environment and newest.environment and here.environment.overrides != newest.environment.overrides:
            return None  # what decides is not torch alone
        bad, oldest = (here if here.is_as_claimed else newest).version, trial.oldest
        good: str | None
        if here.version != newest.version and ShownOutcome.PASS in {here.outcome, newest.outcome}:
            spec = f">={here.version},<={newest.version}"
            good = here.version if bad == newest.version else newest.version
        elif Version(oldest) >= Version(bad):
            return None
        else:
            (first,) = self._results(trial, claims, oldest)
            if first.is_as_claimed:  # it always was there
                return None
            spec, good = f">={oldest},<={bad}", oldest if first.outcome is ShownOutcome.PASS else None
        self._tell(f"searching {spec}, in about {len(self._releases(trial.axes, spec)).bit_length()} more releases")
        left = self.request.max_seconds and self.request.max_seconds - (time.monotonic() - self.began) - WRAP_UP
        if left is not None and left < WRAP_UP:
            return None
        request = SearchRequest(
            home=self.request.home,
            file=trial.axes.file([spec]),
            scenario=trial.scenario,
            variant={},
            bad=bad,
            good=good,
            run_options=self.request.options,
            budget=Budget(seconds=left),
            attribute=False,
        )
        try:
            found = search_axis(request, self.cache, self.show)
        except UsageError:  # there is nothing older
            return None
        if found.interrupted and not self._is_over:
            raise KeyboardInterrupt
        if found.answer != "boundary" or not found.boundaries:
            return None
        edge = found.boundaries[-1]
        return ReportBoundary(
            bad=Version(edge.bad).public,
            good=Version(edge.good).public,
            confidence=edge.confidence,
            commits=edge.commits,
            untested_between=(*edge.untestable_between, *edge.different_between, *edge.untried_between),
        )


@dataclass(frozen=True, kw_only=True)
class ReportTrial:
    """A script, and the releases that it runs in."""

    scenario: Scenario
    axes: SearchAxes
    python: str
    oldest: str  # releases
    claimed: str
    newest: str
    notes: tuple[str, ...]
    differences: tuple[str, ...]  # from what the report says

    def beside(self, requirements: Iterable[str], overrides: Iterable[str] = ()) -> ReportTrial:
        """Return the same with other packages beside torch."""
        added = replace(self.axes.added, requirements=tuple(requirements), overrides=tuple(overrides))
        return replace(self, axes=replace(self.axes, added=added))


def _nearest(version: str, releases: Sequence[str]) -> str:
    """Return the release that stands for a version: of a nightly or a source build, the one that it became."""
    older = [each for each in releases if Version(each).release < Version(version).release]
    return _became(version, releases) or (older[-1:] or releases[:1])[0]


def _became(version: str, releases: Sequence[str]) -> str:
    """Return the release with the numbers of a version, "" for none."""
    numbers = (*Version(version).release, 0, 0)[:3]
    return next((each for each in releases if Version(each).release == numbers), "")
