"""The commits of a git history as an axis: `git bisect` chooses them, and they are built, run and recorded here.

git knows the shape of the history, and which commit to try next if one cannot be built. It takes every answer as
certain, so if runs disagree its bisection is begun again, with all that is known by then.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from whichtorch.matrix.bisect.axes.git import BAD_MERGE_BASE, Checkout, GitError, borrowed, refuse
from whichtorch.matrix.bisect.axes.suspects import Suspects
from whichtorch.matrix.bisect.ledger import SearchEndedError
from whichtorch.matrix.bisect.strategy.search_state import AnswerKind, Change, Find, ProbeRun, Purpose, SearchVerdict
from whichtorch.matrix.bisect.workbench import workbench
from whichtorch.matrix.environments import configs
from whichtorch.matrix.environments.built_commits import BuiltCommits, CommitBuild
from whichtorch.matrix.errors import UsageError
from whichtorch.matrix.model import judging_records
from whichtorch.matrix.run.site import ThisMachine

if TYPE_CHECKING:
    from pathlib import Path

    from whichtorch.matrix.bisect.bisection import Bisection
    from whichtorch.matrix.bisect.search_request import SearchRequest, Source
    from whichtorch.matrix.environments.provider import Environments
    from whichtorch.matrix.events import Show


def search(request: SearchRequest, _cache: Environments, show: Show) -> Bisection:
    """Search the commits between the request's two bounds.

    Raises UsageError if the bounds, the checkout or the interpreter cannot be used, PreventedError if git fails;
    KeyboardInterrupt passes through. The checkout is left as it was.
    """
    assert request.source is not None
    checkout = Checkout.at(request.source.checkout)
    bounds, change = _bounds(request, checkout)
    build = CommitBuild(
        folder=checkout.folder,
        command=request.source.command,
        interpreter=_interpreter(request.source, checkout),
        timeout=request.source.timeout,
    )
    config = configs.config_named(request.file.axes.config[0], request.file.config)
    cache = BuiltCommits(request.home, build, config, checkout.go_to, fresh=request.fresh)
    refuse(checkout)
    machines = ThisMachine(environments=cache, jobs=request.jobs)
    with workbench(replace(request, machines=machines), cache, show) as bench, borrowed(checkout, request.home):
        known = Suspects.between(
            bounds, change, checkout=checkout, make_request=cache.request, request=request, bench=bench
        )
        try:
            return CommitSearch(known=known).run()
        finally:
            bench.close()  # a build must end before git resets the checkout


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
    own = checkout.folder / ".venv" / "bin" / "python"
    path = (source.interpreter or own).absolute()
    if os.access(path, os.X_OK) and not path.is_dir():
        return path
    raise UsageError(f"there is no interpreter {path}", hint="name the Python that sees the build with --interpreter")


@dataclass(kw_only=True)
class CommitSearch:
    """One search of one test along one history: both bounds, what `git bisect` asks for, the final pair again.

    Call `run` once. It ends: the final pair is asked while each has less than MOST_RUNS_EACH runs, and the bisection
    begins anew only with new evidence.
    """

    known: Suspects
    _seen: tuple[ProbeRun, ...] | None = None  # when the bisection began last

    def run(self) -> Bisection:
        """Search to the end of the question or of the budget."""
        reasons: list[str] = []
        answer, suspects = AnswerKind.INCONCLUSIVE, list[str]()
        try:
            self._check_bounds()
            reasons += self._turned_round()
            while answer is AnswerKind.INCONCLUSIVE:
                suspects = self._narrow()
                if self._is_confirmed(suspects):
                    answer = AnswerKind.BOUNDARY
        except (SearchEndedError, KeyboardInterrupt) as end:
            reasons.append(self.known.ledger.stop(end))
            suspects = self._remaining()
        return self._bisection(answer, suspects, reasons)

    def _check_bounds(self) -> None:
        """Probe both bounds, the one that the user calls bad several times."""
        known, runs = self.known, self.known.ledger.goal.bound_runs
        bad, good = known.bounds if known.change is Change.FIX else known.bounds[::-1]
        self._probe(bad, runs, Purpose.BOUND, until=SearchVerdict.GOOD)
        self._probe(good, runs, Purpose.BOUND, until=SearchVerdict.GOOD)
        if known.label(good) is SearchVerdict.GOOD and known.label(bad) is SearchVerdict.GOOD:
            self._probe(bad, runs, Purpose.BOUND, until=SearchVerdict.BAD)  # a flaky failure had one run so far

    def _turned_round(self) -> list[str]:
        """Search the change that the bounds show, with a note if it is the other one; raise if they show none."""
        known, labels = self.known, self.known.bound_labels
        if labels == known.change.sides:
            return []
        if labels != known.change.sides[::-1]:
            raise SearchEndedError(_no_change(labels))
        missing = known.change
        known.turn_round()
        return [f"no {missing} was found; the bounds show a {known.change} instead"]

    def _narrow(self) -> list[str]:
        """Let git bisect find the suspects, oldest first: one commit, or several if some cannot be tested."""
        known, checkout = self.known, self.known.checkout
        if known.bound_labels != known.change.sides:
            raise SearchEndedError(_no_change(known.bound_labels))  # a bound that passed has failed since
        before, self._seen = self._seen, known.ledger.search().observations
        if before == self._seen:
            raise SearchEndedError("no commit is blamed: the runs contradict each other")
        terms = dict(zip(known.change.sides, ("old", "new"), strict=True))
        answered: set[str] = set(known.bounds)
        checkout.restart(*known.bounds)
        while True:
            suspects, newest = checkout.suspects, checkout.newest
            if all(commit in answered for commit in suspects if commit != newest):
                return suspects
            commit = checkout.head
            if commit in answered:
                raise SearchEndedError(f"git asks for {commit[:10]} again")
            if known.label(commit) is None:
                runs = self.known.ledger.goal.bound_runs if known.is_flaky else 1  # they cost less than the build
                self._probe(commit, runs, Purpose.NARROW, until=SearchVerdict.BAD, left=len(suspects) - 1)
            answered.add(commit)
            try:
                checkout.mark(terms.get(known.label(commit) or SearchVerdict.UNTESTABLE, "skip"), commit)
            except GitError as error:
                if error.code != BAD_MERGE_BASE:
                    raise
                what = "fixed" if known.change is Change.REGRESSION else "broken"
                raise SearchEndedError(
                    f"the bounds differ, but their merge base {commit[:10]} is like the newer one: "
                    f"it was {what} on the way from there to {known.bounds[0][:10]}"
                ) from None

    def _is_confirmed(self, suspects: list[str]) -> bool:
        """Run the final pair again until the answer is sure enough; return False if a commit changes its verdict."""
        known, ledger, goal = self.known, self.known.ledger, self.known.ledger.goal
        before, after = known.pair(suspects)
        parents = [parent for parent in known.parents(after) if parent != before and parent not in suspects]
        # the commit that is built now goes first: that saves a build
        pair = sorted((before, after), key=lambda commit: ledger.needs_install(known.position[commit]))
        for commit in (*pair, *parents):
            self._probe(commit, goal.confirm_runs, Purpose.CONFIRM, until=_other(known.label(commit)))
            is_telling = known.label(commit) in known.change.sides
            if is_telling and known.label(commit) is not known.change.sides[commit == after]:
                return False
        asked: set[tuple[str, int]] = set()  # commits, and how many runs they had
        while (confidence := known.confidence(suspects)) < goal.confidence:
            batch = known.next_batch(suspects)
            seen = ledger.evidence.get(known.position[batch[0]]) if batch else None
            done = len(seen.records) if seen else 0
            if batch is None or not done or (batch[0], done) in asked:
                raise SearchEndedError(f"no commit is blamed: the runs gave a confidence of {confidence:.2g}")
            commit, runs = batch
            asked.add((commit, done))
            label = known.label(commit)
            self._probe(commit, done + runs, Purpose.CONFIRM, until=_other(label))
            if known.label(commit) is not label:
                return False
        return True

    def _remaining(self) -> list[str]:
        """Return the suspects of a search that ended early; none if its bounds show no change."""
        known = self.known
        if known.bound_labels != known.change.sides:
            return []
        try:
            return known.checkout.suspects
        except GitError:
            history = list(known.commits)
            return history[history.index(known.bounds[0]) + 1 :]

    def _probe(
        self, commit: str, runs: int, purpose: Purpose, *, until: SearchVerdict | None = None, left: int = 0
    ) -> None:
        """Run a commit until it has so many runs in all, or one shows `until`; build it if needed."""
        ledger, position = self.known.ledger, self.known.position[commit]
        planned = ledger.planned(position, repeat=runs, until=until)
        records = ledger.recorded(planned)
        if any(record.attempt.outcome in planned.options.until for record in judging_records(records)):
            planned = ledger.planned(position)  # one run is enough, and it is recorded
        seen = ledger.evidence.get(position)
        if planned.is_settled(records):
            if seen is None:
                ledger.recall(position)
            return
        if seen is not None and not seen.environment.is_usable:
            return
        ledger.check_budget(wants_install=ledger.needs_install(position))
        ledger.start(position, planned, purpose, runs=runs, left=left)
        while not (probes := ledger.bench.wait(ledger.seconds_left)):
            ledger.check_budget()
        for probed in probes:
            ledger.take_in(probed)

    def _bisection(self, answer: AnswerKind, suspects: list[str], reasons: list[str]) -> Bisection:
        known, ledger = self.known, self.known.ledger
        boundaries = []
        if suspects:
            boundary = ledger.boundary(*known.bracket(suspects))
            link = known.checkout.compare_link(boundary.from_, boundary.to)
            boundaries = [boundary.model_copy(update={"commits": link, "same_commit": False})]
        else:
            reasons += ledger.shown(*(known.position[bound] for bound in known.bounds))
        bisection = ledger.bisection(answer, reasons, boundaries)
        values = tuple(probe.value for probe in bisection.probes)
        return bisection.model_copy(update={"question": ledger.request.goal.find, "values": values})


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
