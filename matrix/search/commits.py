"""Search a git history for the change: `git bisect` chooses the commits, and they are built, run and recorded here.

git knows what its history looks like, and what to try next around what cannot be built. It takes every answer as
certain, so where runs turn out to disagree it is asked again from the start, with all that is known by then.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from matrix.environments import configs
from matrix.environments.built import BuiltCommits
from matrix.errors import UsageError
from matrix.events import ProbeChosen
from matrix.model import variant_suffix
from matrix.plan import PlannedCell
from matrix.search.batches import best_batch
from matrix.search.bisect import STOPS, UNMEASURED_GOOD
from matrix.search.bisection import Bisection, Boundary, Searched, changed_packages
from matrix.search.evidence import Change, Find, Kind, Purpose, Search, Verdict
from matrix.search.git import BAD_MERGE_BASE, Checkout, GitError, borrowed, refuse
from matrix.search.question import workbench
from matrix.search.results import probe_of, shown, sighting_of
from matrix.search.sightings import judging_records, observations_of, reference_of
from matrix.search.view import Step, View

if TYPE_CHECKING:
    from pathlib import Path

    from matrix.model import Cell, Environment
    from matrix.search.bisection import Probe
    from matrix.search.question import Question, Show, Workbench
    from matrix.search.sightings import Failure, Sighting

BUILD_TIMEOUT = 14400.0  # seconds: all of torch takes an hour on eight cores


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A history, and how a commit of it becomes something to run."""

    checkout: Path
    command: str  # for the shell, in the checkout's top folder
    interpreter: Path | None = None  # the Python that sees the build; None: the checkout's own .venv
    timeout: float = BUILD_TIMEOUT  # seconds, of one build


def search_commits(question: Question, source: Source, show: Show) -> Bisection:
    """Search the commits between the question's two bounds.

    Raises UsageError where the bounds, the checkout or the interpreter will not do, PreventedError where git
    fails; KeyboardInterrupt passes through. The checkout is given back as it was.
    """
    checkout = Checkout.at(source.checkout)
    bounds, change = _bounds(question, checkout)
    cache = BuiltCommits(
        question.home,
        folder=checkout.folder,
        command=source.command,
        interpreter=_interpreter(source, checkout),
        config=configs.config_named(question.file.axes.config[0], question.file.configs),
        go_to=checkout.go_to,
        timeout=source.timeout,
        fresh=question.fresh,
    )
    refuse(checkout)
    with workbench(question, cache, show) as bench, borrowed(checkout, question.home):
        search = _CommitSearch(
            question=question, checkout=checkout, cache=cache, bench=bench, bounds=bounds, change=change
        )
        try:
            return search.run()
        finally:
            bench.prober.close()  # a build must have ended before the checkout is given back


def _bounds(question: Question, checkout: Checkout) -> tuple[tuple[str, str], Change]:
    """Return the older and the newer bound, and which change lies between if they are what they are said to be."""
    if question.good is None or question.bad is None:
        missing = " and ".join(name for name in ("good", "bad") if getattr(question, name) is None)
        raise UsageError(f"a git history needs both bounds; missing is {missing}", hint="name commits or tags for them")
    good, bad = checkout.commit(question.good), checkout.commit(question.bad)
    if good == bad:
        raise UsageError(f"--good and --bad both mean {good[:10]}", hint="name two different commits")
    find = question.asked.find
    if find is Find.ALL:
        raise UsageError("git bisect finds one change", hint="leave --find out, or search parts of the history")
    is_fix = find is Find.FIX or (find is Find.ANY and checkout.is_ancestor(bad, good))
    old, new = (bad, good) if is_fix else (good, bad)
    change = Change.FIX if is_fix else Change.REGRESSION
    if checkout.is_ancestor(new, old):
        raise UsageError(f"{old[:10]} is newer than {new[:10]}: there can be no {change} between", hint="swap them")
    return (old, new), change


def _interpreter(source: Source, checkout: Checkout) -> Path:
    own = checkout.folder / ".venv" / "bin" / "python"
    path = (source.interpreter or own).absolute()
    if os.access(path, os.X_OK) and not path.is_dir():
        return path
    raise UsageError(f"there is no interpreter {path}", hint="name the Python that sees the build with --interpreter")


class _EnoughError(Exception):
    """There is an answer, or there will be none."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(kw_only=True)
class _CommitSearch:
    """One search of one test along one history. Call `run` once."""

    question: Question
    checkout: Checkout
    cache: BuiltCommits
    bench: Workbench
    bounds: tuple[str, str]  # older, newer
    change: Change
    _sightings: dict[str, Sighting] = field(default_factory=dict)  # in the order in which they were tried
    _purposes: dict[str, Purpose] = field(default_factory=dict)
    _started: float = field(default_factory=time.monotonic)

    def run(self) -> Bisection:
        """Search to the end of the question or of the budget."""
        reasons: list[str] = []
        answer, suspects = Kind.INCONCLUSIVE, list[str]()
        try:
            self._check_bounds()
            reasons += self._turned_round()
            while answer is Kind.INCONCLUSIVE:
                suspects = self._walk()
                if self._is_confirmed(suspects):
                    answer = Kind.BOUNDARY
        except _EnoughError as enough:
            reasons.append(enough.reason)
            suspects = self._bracket()
        return self._bisection(answer, suspects, reasons)

    # the search

    def _check_bounds(self) -> None:
        """Try both bounds, the one that is said to be bad several times."""
        runs = self.question.asked.bound_runs
        bad, good = self.bounds if self.change is Change.FIX else self.bounds[::-1]
        self._probe(bad, runs, Purpose.BOUND, until=Verdict.GOOD)
        self._probe(good, runs, Purpose.BOUND, until=Verdict.GOOD)
        if self._label(good) is Verdict.GOOD and self._label(bad) is Verdict.GOOD:
            self._probe(bad, runs, Purpose.BOUND, until=Verdict.BAD)  # a flaky failure had one chance so far

    def _turned_round(self) -> list[str]:
        """Let the bounds say which change it is; raise where they say nothing."""
        labels = tuple(self._label(bound) for bound in self.bounds)
        if labels == self.change.sides:
            return []
        if labels != self.change.sides[::-1]:
            raise _EnoughError(_no_change(labels))
        asked, self.change = self.change, Change.REGRESSION if self.change is Change.FIX else Change.FIX
        return [f"no {asked} was found; the bounds show a {self.change} instead"]

    def _walk(self) -> list[str]:
        """Have git bisect name the change, oldest suspect first: one commit, or several with untestable ones."""
        labels = tuple(self._label(bound) for bound in self.bounds)
        if labels != self.change.sides:
            raise _EnoughError(_no_change(labels))  # the one that passed has failed since
        old_label, new_label = self.change.sides
        terms = {old_label: "old", new_label: "new"}
        told: set[str] = set(self.bounds)
        self.checkout.restart(*self.bounds)
        while True:
            suspects, newest = self.checkout.suspects, self.checkout.newest
            if all(commit in told for commit in suspects if commit != newest):
                return suspects
            commit = self.checkout.head
            if commit in told:
                raise _EnoughError(f"git asks for {commit[:10]} again")
            if commit not in self._sightings:
                self._probe(commit, 1, Purpose.NARROW, left=len(suspects) - 1)
            told.add(commit)
            try:
                self.checkout.say(terms.get(self._label(commit) or Verdict.UNTESTABLE, "skip"), commit)
            except GitError as error:
                if error.code != BAD_MERGE_BASE:
                    raise
                what = "fixed" if self.change is Change.REGRESSION else "broken"
                raise _EnoughError(
                    f"the bounds differ, but their merge base {commit[:10]} is like the newer one: "
                    f"it was {what} on the way from there to {self.bounds[0][:10]}"
                ) from None

    def _is_confirmed(self, suspects: list[str]) -> bool:
        """Run the final pair again until the confidence asked for is met; False where one turns out otherwise."""
        asked = self.question.asked
        before, after = self._pair(suspects)
        parents = [one for one in self._parents(after) if one != before and one not in suspects]
        for commit in (after, before, *parents):
            self._probe(commit, asked.confirm_runs, Purpose.CONFIRM, until=_other(self._label(commit)))
            if self._label(commit) is not self.change.sides[commit == after] and self._is_telling(commit):
                return False
        while True:
            view, step = self._along(suspects)
            posterior = view.posterior(self.change, 0, view.search.size - 1, flaky=view.is_mixed)
            confidence = view.confidence(step, posterior)
            if confidence >= asked.confidence:
                return True
            pair = {
                view.mirror(position, self.change): commit
                for position, commit in zip((step.before, step.after), (before, after), strict=True)
            }
            closed = set(range(view.search.size)) - pair.keys()
            batch = best_batch(
                posterior, install=lambda _: 0.0, good=UNMEASURED_GOOD, bad=UNMEASURED_GOOD, closed=closed
            )
            commit = pair[batch.position] if batch else after
            done = len(self._sightings[commit].records)
            if batch is None or done + batch.runs > asked.max_runs:
                raise _EnoughError(f"no commit is blamed: {done} runs gave a confidence of {confidence:.2g}")
            label = self._label(commit)
            self._probe(commit, done + batch.runs, Purpose.CONFIRM, until=_other(label))
            if self._label(commit) is not label:
                return False

    def _is_telling(self, commit: str) -> bool:
        return self._label(commit) in {Verdict.GOOD, Verdict.BAD}

    def _pair(self, suspects: list[str]) -> tuple[str, str]:
        """Return the commits on the two sides: the last old one that is known, and the last suspect."""
        around = [one for commit in suspects for one in self._parents(commit) if one not in suspects]
        tried = [one for one in around if self._label(one) is self.change.sides[0]]
        return (tried or around or [self.bounds[0]])[0], suspects[-1]

    def _parents(self, commit: str) -> list[str]:
        """Return the parents of a commit that are searched; what is older than the older bound is not."""
        return [one for one in self.checkout.parents(commit) if one in self._position]

    def _bracket(self) -> list[str]:
        """Return the suspects when the search ended early; none where it had not begun."""
        if tuple(self._label(bound) for bound in self.bounds) != self.change.sides:
            return []
        try:
            return self.checkout.suspects
        except GitError:
            return self._history[self._history.index(self.bounds[0]) + 1 :]

    # probes

    def _planned(self, commit: str, **options: object) -> PlannedCell:
        return PlannedCell(
            request=self.cache.request(commit),
            scenario=self.question.scenario,
            variant=self.question.variant,
            options=replace(self.question.options, **options),  # type: ignore[arg-type]
        )

    def _probe(self, commit: str, runs: int, purpose: Purpose, *, until: Verdict | None = None, left: int = 0) -> None:
        """Have so many runs of a commit in all, or fewer where one ends as `until` says; build it if need be."""
        planned = self._planned(commit, repeat=runs, until=STOPS[until])
        known = self.cache.known(planned.request)
        records = self.bench.records.of(planned.key(known)) if known is not None else []
        if any(record.attempt.outcome in STOPS[until] for record in judging_records(records)):
            planned = self._planned(commit)  # it says enough; one run there is
        before = self._sightings.get(commit)
        reused = before.reused if before else len(judging_records(records))
        if known is not None and planned.is_settled(records):
            if before is None:
                self._see(commit, planned, known, reused=reused)
            return
        if before is not None and not before.environment.is_usable:
            return
        self._purposes.setdefault(commit, purpose)
        self._check_budget(planned)
        self.bench.emit(
            ProbeChosen(
                number=len(self._sightings) + (before is None),
                value=f"{commit[:10]} {self.checkout.subject(commit)}",
                purpose=purpose,
                runs=runs,
                between=(None, None),
                left=left,
            )
        )
        position = self._position[commit]
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
        self._sightings[commit] = sighting_of(
            self._position[commit], planned, environment, records, cell=cell, reused=reused
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

    # evidence

    @cached_property
    def _history(self) -> list[str]:
        return self.checkout.between(*self.bounds)

    @cached_property
    def _position(self) -> dict[str, int]:
        return {commit: position for position, commit in enumerate(self._history)}

    @property
    def _seen(self) -> list[Sighting]:
        return sorted(self._sightings.values(), key=lambda one: one.position)

    def _reference(self) -> Failure | None:
        ends = self._position[self.bounds[0]], self._position[self.bounds[1]]
        find = Find(self.change.value)
        return reference_of(self._seen, ends, find, any_failure=self.question.any_failure)

    def _label(self, commit: str) -> Verdict | None:
        """Return what is known of a commit; one that failed even once is bad."""
        position = self._position.get(commit)
        return None if position is None else self._view().label(position)

    def _view(self, order: dict[str, int] | None = None) -> View:
        """Return what was seen, along the history or another order of it."""
        position = order or self._position
        observations = tuple(
            replace(one, position=position[self._history[one.position]])
            for one in observations_of(self._seen, self._reference(), any_failure=self.question.any_failure)
        )
        return View.of(Search(size=len(position), observations=observations, options=self.question.asked))

    def _along(self, suspects: list[str]) -> tuple[View, Step]:
        """Return what was seen along the history, with the suspects between what is older and what is newer.

        Where branches were merged a commit next to another one in the list need not be its parent; in this order
        all that cannot have the change comes before all that may have it, so that it is one step of the list.
        """
        before, after = self._pair(suspects)
        newer = self.checkout.descendants(after, self.bounds[1]) | {after}
        suspected = set(suspects)
        older = [one for one in self._history if one not in newer and one not in suspected and one != before]
        order = [*older, before, *suspects, *(one for one in self._history if one in newer and one != after)]
        position = {commit: place for place, commit in enumerate(order)}
        return self._view(position), Step(before=position[before], after=position[after], change=self.change)

    # the answer

    def _bisection(self, answer: Kind, suspects: list[str], reasons: list[str]) -> Bisection:
        reference = self._reference()
        boundaries = [self._boundary(suspects)] if suspects else []
        probes = [self._shown(commit) for commit in self._history if commit in self._sightings]
        if not boundaries:
            reasons += [shown(probe) for probe in probes if probe.value in self.bounds]
        first = self.cache.request(self.bounds[0])
        return Bisection(
            scenario=self.question.scenario.name + variant_suffix(self.question.variant),
            question=self.question.asked.find,
            axis=Searched.COMMIT,
            values=tuple(probe.value for probe in probes),
            common={"checkout": str(self.checkout.folder), "config": first.config.name},
            reference=(reference.outcome, reference.signature) if reference else None,
            boundaries=tuple(boundaries),
            probes=tuple(probes),
            order=tuple(self._sightings),
            installs=self.bench.installs(),
            runs=sum(len(one.records) - one.reused for one in self._seen),
            seconds=round(self._seconds, 1),
            answer=answer,
            reasons=tuple(reasons),
        )

    def _shown(self, commit: str) -> Probe:
        one, title = self._sightings[commit], self.checkout.subject(commit)
        return probe_of(one, commit, self._label(commit), purpose=self._purposes.get(commit), title=title)

    def _boundary(self, suspects: list[str]) -> Boundary:
        before, after = self._pair(suspects)
        view, step = self._along(suspects)
        posterior = view.posterior(self.change, 0, view.search.size - 1, flaky=view.is_mixed)
        between: dict[Verdict | None, list[str]] = {}
        for commit in suspects[:-1]:
            between.setdefault(self._label(commit), []).append(commit)
        packages = {}
        if before in self._sightings and after in self._sightings:
            packages = changed_packages(self._sightings[before].environment, self._sightings[after].environment)
        return Boundary.model_validate(
            {
                "from": before,
                "to": after,
                "change": self.change,
                "confidence": round(view.confidence(step, posterior), 4),
                "untestable_between": tuple(between.get(Verdict.UNTESTABLE, ())),
                "different_between": tuple(between.get(Verdict.DIFFERENT, ())),
                "untried_between": tuple(between.get(None, ())),
                "commits": self.checkout.compare_link(before, after),
                "packages": {name: pair for name, pair in packages.items() if name != "torch"},
            }
        )


def _other(label: Verdict | None) -> Verdict | None:
    """Return the verdict that would contradict a label."""
    return {Verdict.GOOD: Verdict.BAD, Verdict.BAD: Verdict.GOOD}.get(label) if label else None


def _no_change(labels: tuple[Verdict | None, ...]) -> str:
    """Return what is wrong with the bounds, and the remedy."""
    if set(labels) == {Verdict.GOOD}:
        return "it passes at both bounds: name another commit for --bad"
    if set(labels) == {Verdict.BAD}:
        return "it fails at both bounds: name another commit for --good"
    return "a bound cannot be tested: name a neighbour of it"
