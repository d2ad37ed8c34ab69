"""One search through a history: both bounds, then what `git bisect` asks for, then the final pair again.

git takes every answer as certain, so where runs turn out to disagree it is asked again from the start, with all
that is known by then.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from matrix.bisect.axes.git import BAD_MERGE_BASE, Checkout, GitError
from matrix.bisect.bisection import Bisection, Searched
from matrix.bisect.driver import STOPS
from matrix.bisect.results import shown, sighting_of
from matrix.bisect.strategy.evidence import AnswerKind, Change, Purpose, SearchVerdict
from matrix.events import ProbeChosen
from matrix.model import judging_records, variant_suffix

if TYPE_CHECKING:
    from matrix.bisect.axes.tried_commits import TriedCommits
    from matrix.bisect.question import SearchQuestion, Workbench
    from matrix.environments.built_commits import BuiltCommits
    from matrix.model import Cell, Environment
    from matrix.plan.planning import PlannedCell


class _EnoughError(Exception):
    """There is an answer, or there will be none."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(kw_only=True)
class CommitSearch:
    """One search of one test along one history. Call `run` once."""

    question: SearchQuestion
    cache: BuiltCommits
    bench: Workbench
    tried: TriedCommits
    _started: float = field(default_factory=time.monotonic)

    def run(self) -> Bisection:
        """Search to the end of the question or of the budget."""
        reasons: list[str] = []
        answer, suspects = AnswerKind.INCONCLUSIVE, list[str]()
        try:
            self._check_bounds()
            reasons += self._turned_round()
            while answer is AnswerKind.INCONCLUSIVE:
                suspects = self._walk()
                if self._is_confirmed(suspects):
                    answer = AnswerKind.BOUNDARY
        except _EnoughError as enough:
            reasons.append(enough.reason)
            suspects = self._bracket()
        return self._bisection(answer, suspects, reasons)

    @property
    def _checkout(self) -> Checkout:
        return self.tried.checkout

    # the search

    def _check_bounds(self) -> None:
        """Try both bounds, the one that is said to be bad several times."""
        tried, runs = self.tried, self.question.asked.bound_runs
        bad, good = tried.bounds if tried.change is Change.FIX else tried.bounds[::-1]
        self._probe(bad, runs, Purpose.BOUND, until=SearchVerdict.GOOD)
        self._probe(good, runs, Purpose.BOUND, until=SearchVerdict.GOOD)
        if tried.label(good) is SearchVerdict.GOOD and tried.label(bad) is SearchVerdict.GOOD:
            self._probe(bad, runs, Purpose.BOUND, until=SearchVerdict.BAD)  # a flaky failure had one chance so far

    def _turned_round(self) -> list[str]:
        """Let the bounds say which change it is; raise where they say nothing."""
        tried, labels = self.tried, self.tried.bound_labels
        if labels == tried.change.sides:
            return []
        if labels != tried.change.sides[::-1]:
            raise _EnoughError(_no_change(labels))
        asked, tried.change = tried.change, Change.REGRESSION if tried.change is Change.FIX else Change.FIX
        return [f"no {asked} was found; the bounds show a {tried.change} instead"]

    def _walk(self) -> list[str]:
        """Have git bisect name the change, oldest suspect first: one commit, or several with untestable ones."""
        tried, checkout = self.tried, self._checkout
        if tried.bound_labels != tried.change.sides:
            raise _EnoughError(_no_change(tried.bound_labels))  # the one that passed has failed since
        terms = dict(zip(tried.change.sides, ("old", "new"), strict=True))
        told: set[str] = set(tried.bounds)
        checkout.restart(*tried.bounds)
        while True:
            suspects, newest = checkout.suspects, checkout.newest
            if all(commit in told for commit in suspects if commit != newest):
                return suspects
            commit = checkout.head
            if commit in told:
                raise _EnoughError(f"git asks for {commit[:10]} again")
            if tried.label(commit) is None:
                runs = self.question.asked.bound_runs if tried.is_flaky else 1  # the build costs more than these
                self._probe(commit, runs, Purpose.NARROW, until=SearchVerdict.BAD, left=len(suspects) - 1)
            told.add(commit)
            try:
                checkout.say(terms.get(tried.label(commit) or SearchVerdict.UNTESTABLE, "skip"), commit)
            except GitError as error:
                if error.code != BAD_MERGE_BASE:
                    raise
                what = "fixed" if tried.change is Change.REGRESSION else "broken"
                raise _EnoughError(
                    f"the bounds differ, but their merge base {commit[:10]} is like the newer one: "
                    f"it was {what} on the way from there to {tried.bounds[0][:10]}"
                ) from None

    def _is_confirmed(self, suspects: list[str]) -> bool:
        """Run the final pair again until the confidence asked for is met; False where one turns out otherwise."""
        tried, asked = self.tried, self.question.asked
        before, after = tried.pair(suspects)
        parents = [one for one in tried.parents(after) if one != before and one not in suspects]
        # what is built now goes first: that saves a build
        pair = sorted((before, after), key=lambda commit: not self.cache.is_installed(self.cache.request(commit)))
        for commit in (*pair, *parents):
            self._probe(commit, asked.confirm_runs, Purpose.CONFIRM, until=_other(tried.label(commit)))
            if tried.is_telling(commit) and tried.label(commit) is not tried.change.sides[commit == after]:
                return False
        while (confidence := tried.confidence(suspects)) < asked.confidence:
            batch = tried.next_batch(suspects)
            done = len(tried.sightings[batch[0]].records) if batch and batch[0] in tried.sightings else 0
            if batch is None or not done or done + batch[1] > asked.max_runs:
                raise _EnoughError(f"no commit is blamed: the runs gave a confidence of {confidence:.2g}")
            commit, runs = batch
            label = tried.label(commit)
            self._probe(commit, done + runs, Purpose.CONFIRM, until=_other(label))
            if tried.label(commit) is not label:
                return False
        return True

    def _bracket(self) -> list[str]:
        """Return the suspects when the search ended early; none where it had not begun."""
        tried = self.tried
        if tried.bound_labels != tried.change.sides:
            return []
        try:
            return self._checkout.suspects
        except GitError:
            return tried.history[tried.history.index(tried.bounds[0]) + 1 :]

    # probes

    def _probe(
        self, commit: str, runs: int, purpose: Purpose, *, until: SearchVerdict | None = None, left: int = 0
    ) -> None:
        """Have so many runs of a commit in all, or fewer where one ends as `until` says; build it if need be."""
        request = self.cache.request(commit)
        planned = self.question.planned(request, repeat=runs, until=STOPS[until])
        known = self.cache.known(planned.request)
        records = self.bench.records.of(planned.key(known)) if known is not None else []
        if any(record.attempt.outcome in STOPS[until] for record in judging_records(records)):
            planned = self.question.planned(request)  # it says enough; one run there is
        before = self.tried.sightings.get(commit)
        reused = before.reused if before else len(judging_records(records))
        if known is not None and planned.is_settled(records):
            if before is None:
                self._see(commit, planned, known, reused=reused)
            return
        if before is not None and not before.environment.is_usable:
            return
        self.tried.purposes.setdefault(commit, purpose)
        self._check_budget(planned)
        self.bench.emit(
            ProbeChosen(
                number=len(self.tried.sightings) + (before is None),
                value=f"{commit[:10]} {self.tried.commits[commit].subject}",
                purpose=purpose,
                runs=runs,
                between=(None, None),
                left=left,
            )
        )
        position = self.tried.position[commit]
        self.bench.prober.start(position, planned)
        ended = self.bench.prober.wait(self._seconds_left)
        for probed in ended:
            if probed.environment is not None and probed.cell is not None:
                self._see(commit, planned, probed.environment, cell=probed.cell, reused=reused)
        if not ended:
            raise _EnoughError(self._over or "it was cancelled")

    def _see(
        self, commit: str, planned: PlannedCell, environment: Environment, *, reused: int, cell: Cell | None = None
    ) -> None:
        """Take in all that is recorded of a commit."""
        records = self.bench.records.of(planned.key(environment)) if environment.is_usable else []
        self.tried.sightings[commit] = sighting_of(
            self.tried.position[commit], planned, environment, records, cell=cell, reused=reused
        )

    def _check_budget(self, planned: PlannedCell) -> None:
        wants_install = not self.cache.is_installed(planned.request)
        if over := self.question.budget.used_up(self._seconds, self.bench.installs(), wants_install=wants_install):
            raise _EnoughError(over)

    @property
    def _over(self) -> str | None:
        """What the end of the time that it may take is called; None before."""
        return self.question.budget.used_up(self._seconds, 0, wants_install=False)

    @property
    def _seconds(self) -> float:
        return time.monotonic() - self._started

    @property
    def _seconds_left(self) -> float | None:
        seconds = self.question.budget.seconds
        return None if seconds is None else max(0.0, seconds - self._seconds)

    # the answer

    def _bisection(self, answer: AnswerKind, suspects: list[str], reasons: list[str]) -> Bisection:
        tried = self.tried
        reference = tried.reference
        probes = tried.probes
        if not suspects:
            reasons += [shown(probe) for probe in probes if probe.value in tried.bounds]
        return Bisection(
            scenario=self.question.scenario.name + variant_suffix(self.question.variant),
            question=self.question.asked.find,
            axis=Searched.COMMIT,
            values=tuple(probe.value for probe in probes),
            common={"checkout": str(self._checkout.folder), "config": self.cache.config.name},
            reference=(reference.outcome, reference.signature) if reference else None,
            boundaries=(tried.boundary(suspects),) if suspects else (),
            probes=tuple(probes),
            order=tuple(tried.sightings),
            installs=self.bench.installs(),
            run=self.bench.prober.run_id,
            runs=sum(len(one.records) - one.reused for one in tried.sightings.values()),
            seconds=round(self._seconds, 1),
            answer=answer,
            reasons=tuple(reasons),
        )


def _other(label: SearchVerdict | None) -> SearchVerdict | None:
    """Return the verdict that would contradict a label."""
    return {SearchVerdict.GOOD: SearchVerdict.BAD, SearchVerdict.BAD: SearchVerdict.GOOD}.get(label) if label else None


def _no_change(labels: tuple[SearchVerdict | None, ...]) -> str:
    """Return what is wrong with the bounds, and the remedy."""
    if set(labels) == {SearchVerdict.GOOD}:
        return "it passes at both bounds: name another commit for --bad"
    if set(labels) == {SearchVerdict.BAD}:
        return "it fails at both bounds: name another commit for --good"
    return "a bound cannot be tested: name a neighbour of it"
