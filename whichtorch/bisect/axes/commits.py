"""The commits of a git history as an axis: `git bisect` chooses them, and they are built, run and recorded here.

The checkout is borrowed for the search, and the bounds say which change is meant: both are checked first, and the final
pair is run again. git knows the shape of the history, and which commit to try next if one cannot be built. It takes
every answer as certain, so if runs disagree, its bisection starts over with everything known by then.
"""

from __future__ import annotations

import os
from dataclasses import InitVar, dataclass, replace
from typing import TYPE_CHECKING

from whichtorch.base.errors import UsageError
from whichtorch.bisect.axes.git import BAD_MERGE_BASE, Checkout, GitError, borrowed, refuse
from whichtorch.bisect.ledger import STOPS, Ledger, SearchEndedError
from whichtorch.bisect.probe_oracle import ProbeOracle, driven
from whichtorch.bisect.search_request import Axis, AxisName, SearchRequest
from whichtorch.bisect.workbench import workbench
from whichtorch.environments.commit_environments import BuiltCommits
from whichtorch.environments.expansion import config_of
from whichtorch.matrix.site import ThisMachine
from whichtorch.search.search_state import AnswerKind, Change, Costs, Find, NextProbe, Posterior, Purpose, SearchVerdict

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from whichtorch.bisect.bisection import Bisection
    from whichtorch.bisect.probe_oracle import ProbeSearch
    from whichtorch.bisect.search_request import Source
    from whichtorch.bisect.workbench import Workbench
    from whichtorch.environments.provider import Environments
    from whichtorch.model import Request
    from whichtorch.model.events import Show
    from whichtorch.search.search_state import ProbeRun, SearchState


def search(request: SearchRequest, _cache: Environments, show: Show) -> Bisection:
    """Search the commits between the request's two bounds.

    Raises UsageError if the bounds, the checkout or the interpreter cannot be used, PreventedError if git fails;
    KeyboardInterrupt passes through. The checkout is left as it was.
    """
    assert request.source is not None
    assert request.source.command is not None
    checkout = Checkout.at(request.source.checkout)
    bounds, change = _bounds(request, checkout)
    cache = BuiltCommits(
        home=request.home,
        folder=checkout.folder,
        command=request.source.command,
        interpreter=_interpreter(request.source, checkout),
        timeout=request.source.timeout,
        config=config_of(request.file, request.file.axes.config[0]),
        go_to=checkout.go_to,
        fresh=request.fresh,
    )
    refuse(checkout)
    machines = ThisMachine(environments=cache, jobs=request.jobs)
    with workbench(replace(request, machines=machines), cache, show) as bench, borrowed(checkout, request.home):
        commits = CommitSearch(
            checkout=checkout, bounds=bounds, change=change, request=request, bench=bench, make_request=cache.request
        )
        return commits.run()  # it ends with no build running, because git resets the checkout next


def _bounds(request: SearchRequest, checkout: Checkout) -> tuple[tuple[str, str], Change]:
    """Return the older and the newer bound, and the change between them by what the user calls them."""
    if request.good is None or request.bad is None:
        missing = " and ".join(name for name in ("good", "bad") if getattr(request, name) is None)
        raise UsageError(f"a git history needs both bounds; missing is {missing}", hint="name commits or tags for them")
    good, bad = checkout.commit(request.good), checkout.commit(request.bad)
    if good == bad:
        raise UsageError(f"--good and --bad both mean {good[:10]}", hint="name two different commits")
    find = request.goal.find
    if find is Find.ALL:
        raise UsageError("git bisect finds one change", hint="leave --find out, or search parts of the history")
    is_fix = find is Find.FIX or (find is Find.ANY and checkout.is_ancestor(bad, good))
    old, new = (bad, good) if is_fix else (good, bad)
    change = Change.FIX if is_fix else Change.REGRESSION
    if checkout.is_ancestor(new, old):
        raise UsageError(f"{old[:10]} is newer than {new[:10]}: there can be no {change} between", hint="swap them")
    return (old, new), change


def _interpreter(source: Source, checkout: Checkout) -> Path:
    path = (source.interpreter or checkout.folder / ".venv" / "bin" / "python").absolute()
    if os.access(path, os.X_OK) and not path.is_dir():
        return path
    raise UsageError(f"there is no interpreter {path}", hint="name the Python that sees the build with --interpreter")


@dataclass(kw_only=True)
class CommitSearch:
    """One search of one test along one history. Call `run` once.

    It always ends: the final pair is run again only while each has fewer than MOST_RUNS_EACH runs, and the bisection
    starts over only with new evidence. The commits that git names last are the suspects: the first commit with the
    change is one of them, and the last suspect has it.
    """

    checkout: Checkout
    bounds: tuple[str, str]  # older, newer
    change: Change
    request: SearchRequest
    bench: InitVar[Workbench]
    make_request: InitVar[Callable[[str], Request]]  # for a commit's hash
    _seen: tuple[ProbeRun, ...] | None = None  # the observations when the bisection last started
    _notes: tuple[str, ...] = ()

    def __post_init__(self, bench: Workbench, make_request: Callable[[str], Request]) -> None:
        """List the commits; nothing is known of them yet."""
        self._commits = {commit.hash: commit for commit in self.checkout.between(*self.bounds)}
        self._position = {commit: position for position, commit in enumerate(self._commits)}
        requests = tuple(map(make_request, self._commits))
        axis = Axis(
            name=AxisName.COMMIT,
            values=tuple(self._commits),
            requests=requests,
            subjects={commit.hash: commit.subject for commit in self._commits.values()},
            common={"checkout": str(self.checkout.folder), "config": requests[0].config.name},
        )
        low, high = (self._position[bound] for bound in self.bounds)
        goal = replace(self.request.goal, find=Find(self.change.value), low=low, high=high)
        bad = low if self.change is Change.FIX else high
        self._ledger = Ledger(request=self.request, bench=bench, axis=axis, goal=goal, named_bad=bad)

    def run(self) -> Bisection:
        """Search to the end of the question or of the budget."""
        found, ended_by = driven(self._ledger, self._search(), ProbeOracle(self._ledger))
        if found is None:
            return self._bisection(AnswerKind.INCONCLUSIVE, self._remaining(), ended_by)
        return self._bisection(AnswerKind.BOUNDARY, found)

    def _search(self) -> ProbeSearch[list[str]]:
        """Return the suspects, once their two sides are confirmed."""
        yield from self._check_bounds()
        while True:
            suspects = yield from self._narrow()
            if (yield from self._is_confirmed(suspects)):
                return suspects

    def _label(self, commit: str) -> SearchVerdict | None:
        """Return the verdict of a commit: bad if it failed even once; None if it was not tried."""
        return self._ledger.search().label(self._position[commit])

    @property
    def _bound_labels(self) -> tuple[SearchVerdict | None, ...]:
        return tuple(map(self._label, self.bounds))

    def _check_bounds(self) -> ProbeSearch[None]:
        """Probe both bounds, the one that the user calls bad several times; search the change that they show."""
        ledger, runs = self._ledger, self._ledger.goal.bound_runs
        bad, good = self.bounds if self.change is Change.FIX else self.bounds[::-1]
        yield from self._probe(bad, runs, Purpose.BOUND, until=SearchVerdict.GOOD)
        yield from self._probe(good, runs, Purpose.BOUND, until=SearchVerdict.GOOD)
        if self._bound_labels == (SearchVerdict.GOOD, SearchVerdict.GOOD):
            # a single run may have missed a flaky failure
            yield from self._probe(bad, runs, Purpose.BOUND, until=SearchVerdict.BAD)
        if self._bound_labels == self.change.sides[::-1]:
            missing = self.change
            self.change = Change.REGRESSION if missing is Change.FIX else Change.FIX
            ledger.goal = replace(ledger.goal, find=Find(self.change.value))
            self._notes = (f"no {missing} was found; the bounds show a {self.change} instead",)

    def _narrow(self) -> ProbeSearch[list[str]]:
        """Let git bisect find the suspects, oldest first: one commit, or several if some cannot be tested."""
        checkout, search = self.checkout, self._ledger.search()
        if self._bound_labels != self.change.sides:
            raise SearchEndedError(_no_change(self._bound_labels))
        if self._seen == search.observations:
            raise SearchEndedError("no commit is blamed: the runs contradict each other")
        self._seen = search.observations
        terms: dict[SearchVerdict | None, str] = dict(zip(self.change.sides, ("old", "new"), strict=True))
        answered = set(self.bounds)
        checkout.restart(*self.bounds)
        while True:
            suspects, newest = checkout.suspects, checkout.newest
            if all(commit in answered for commit in suspects if commit != newest):
                return suspects
            commit = checkout.head
            if commit in answered:
                raise SearchEndedError(f"git asks for {commit[:10]} again")
            if self._label(commit) is None:
                # several runs of a flaky failure cost less than the build
                runs = self._ledger.goal.bound_runs if self._ledger.search().is_flaky else 1
                yield from self._probe(commit, runs, Purpose.NARROW, until=SearchVerdict.BAD)
            answered.add(commit)
            try:
                checkout.mark(terms.get(self._label(commit), "skip"), commit)
            except GitError as error:
                if error.code != BAD_MERGE_BASE:
                    raise
                what = "fixed" if self.change is Change.REGRESSION else "broken"
                raise SearchEndedError(
                    f"the bounds differ, but their merge base {commit[:10]} is like the newer one: "
                    f"the test was {what} on the way from there to {self.bounds[0][:10]}"
                ) from None

    def _is_confirmed(self, suspects: list[str]) -> ProbeSearch[bool]:
        """Run the final pair again until the answer is sure enough; return False if a commit changes its verdict."""
        ledger, goal = self._ledger, self._ledger.goal
        before, after = self._pair(suspects)
        parents = [parent for parent in self._parents(after) if parent != before and parent not in suspects]
        # the commit that is built now goes first: that saves a build
        pair = sorted((before, after), key=lambda commit: ledger.needs_install(self._position[commit]))
        for commit in (*pair, *parents):
            yield from self._confirm(commit, goal.confirm_runs)
            if self._label(commit) is self.change.sides[commit != after]:
                return False
        while True:
            search, posterior, sides = self._weighed(suspects)
            confidence = posterior.between(*sides)
            if confidence >= goal.confidence:
                return True
            batch = posterior.best_batch(Costs(), filter(search.is_open, sides))
            if batch is None:
                break
            commit, runs = search.names[batch[0]], batch[1]
            label, done = self._label(commit), self._runs(commit)
            yield from self._confirm(commit, done + runs)
            if self._label(commit) is not label:
                return False
            if self._runs(commit) == done:
                break
        raise SearchEndedError(f"no commit is blamed: the runs gave a confidence of {confidence:.2g}")

    def _runs(self, commit: str) -> int:
        seen = self._ledger.evidence.get(self._position[commit])
        return len(seen.records) if seen else 0

    def _confirm(self, commit: str, runs: int) -> ProbeSearch[None]:
        """Run a commit until it has `runs` runs in all, or its verdict is contradicted."""
        label = self._label(commit)
        yield from self._probe(commit, runs, Purpose.CONFIRM, until=label and label.opposite)

    def _probe(self, commit: str, runs: int, purpose: Purpose, *, until: SearchVerdict | None) -> ProbeSearch[None]:
        """Ask for a commit until it has `runs` runs in all, or one shows `until`; it is built if needed."""
        ledger, position = self._ledger, self._position[commit]
        if position not in ledger.evidence:
            ledger.recall(position)
        if seen := ledger.evidence.get(position):
            has_ended = any(record.attempt.outcome in STOPS[until] for record in seen.records)
            runs = 0 if has_ended or not seen.environment.is_usable else runs - len(seen.records)
        probe = NextProbe(position=position, runs=runs, until=until, purpose=purpose, firm=True)
        while runs > 0 and position not in (yield [probe]):
            pass

    def _remaining(self) -> list[str]:
        """Return the suspects of a search that ended early; none if its bounds show no change."""
        if self._bound_labels != self.change.sides:
            return []
        try:
            return self.checkout.suspects
        except GitError:
            return list(self._commits)[self._position[self.bounds[0]] + 1 :]

    def _parents(self, commit: str) -> list[str]:
        """Return the parents of a commit that are between the bounds."""
        return [parent for parent in self._commits[commit].parents if parent in self._commits]

    def _pair(self, suspects: list[str]) -> tuple[str, str]:
        """Return the commits on the two sides of the change: a parent of the suspects, and the last suspect."""
        search, inside = self._ledger.search(), set(suspects)
        around = [parent for commit in suspects for parent in self._parents(commit) if parent not in inside]
        labeled = [commit for commit in around if search.label(self._position[commit]) is self.change.sides[0]]
        return (labeled or around or [self.bounds[0]])[0], suspects[-1]

    def _weighed(self, suspects: list[str]) -> tuple[SearchState, Posterior, tuple[int, int]]:
        """Return the search in an order that makes the change a single step, its posterior, and the step's two sides.

        After a merge, neighbors in the history need not be parent and child. In this order all commits that cannot
        have the change come first, then the suspects, then all that have it.
        """
        before, after = self._pair(suspects)
        newer = self.checkout.descendants(after, self.bounds[1])
        neither = {before, *suspects}
        older = (commit for commit in self._commits if commit not in newer and commit not in neither)
        order = (*older, before, *suspects, *(commit for commit in self._commits if commit in newer))
        search, history = self._ledger.search(), self._ledger.axis.values
        observations = tuple(replace(run, position=order.index(history[run.position])) for run in search.observations)
        search = replace(search, observations=observations, names=order)
        posterior = Posterior.of(search, self.change, 0, search.size - 1, flaky=search.is_flaky)
        return search, posterior, (order.index(before), order.index(after))

    def _bisection(self, answer: AnswerKind, suspects: list[str], ended_by: tuple[str, ...] = ()) -> Bisection:
        ledger, boundaries, reasons = self._ledger, [], [*self._notes, *ended_by]
        if suspects:
            search, posterior, sides = self._weighed(suspects)
            boundary = ledger.boundary(search.bracket(posterior, *sides), search.names)
            link = self.checkout.compare_link(boundary.from_, boundary.to)
            boundaries = [boundary.model_copy(update={"commits": link, "same_commit": False})]
        else:
            reasons += ledger.shown(*(self._position[bound] for bound in self.bounds))
        bisection = ledger.bisection(answer, reasons, boundaries)
        values = tuple(probe.value for probe in bisection.probes)
        return bisection.model_copy(update={"question": self.request.goal.find, "values": values})


def _no_change(labels: tuple[SearchVerdict | None, ...]) -> str:
    """Return what is wrong with the bounds, and the remedy."""
    if set(labels) == {SearchVerdict.GOOD}:
        return "it passes at both bounds: name another commit for --bad"
    if set(labels) == {SearchVerdict.BAD}:
        return "it fails at both bounds: name another commit for --good"
    return "a bound cannot be tested: name a neighbor of it"
