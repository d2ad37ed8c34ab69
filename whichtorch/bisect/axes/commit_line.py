"""The commits of a history as an axis on which nothing is built: each is a wheel with its Python laid over.

The way from the older to the newer bound is a line, of first parents. Its older part is laid over the wheel that is
nearest to the older bound, the rest over that of the newer one, and where the two meet, one commit is over both. So
neighbors differ in a commit or in the wheel, never in both, and a change at the wheel is native code's. Where the two
wheels have no native code that differs, the older one alone can tell, and the newer one is not installed.

What a commit changes in no file that the script reads cannot matter to Python: it is not run. That is checked, since
the commit that is found is compared with the one right before it.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_left
from contextlib import closing
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from whichtorch.base.errors import PreventedError, UsageError
from whichtorch.base.grouping import counted
from whichtorch.bisect.axes import package_releases, versions
from whichtorch.bisect.axes.commit_wheels import Wheel, Wheels, WheelTree, native_among
from whichtorch.bisect.axes.git import Checkout, pull_request_of
from whichtorch.bisect.axes.relatives import relatives
from whichtorch.bisect.bisection import Cause, Culprit, timeline_of, unjudged_in
from whichtorch.bisect.driver import bisected
from whichtorch.bisect.ledger import Ledger
from whichtorch.bisect.search_request import Axis, AxisName, common
from whichtorch.bisect.workbench import workbench
from whichtorch.environments.commit_environments import LaidCommits
from whichtorch.environments.overlay import site_packages
from whichtorch.environments.patches import listed
from whichtorch.matrix.lab import Runner
from whichtorch.matrix.planning import PlannedCell
from whichtorch.matrix.site import ThisMachine
from whichtorch.matrix.variation import NOTES, Variation
from whichtorch.search.search_state import AnswerKind, Find, SearchVerdict

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from whichtorch.bisect.axes.git import Commit
    from whichtorch.bisect.bisection import Bisection, Boundary, Probe
    from whichtorch.bisect.search_request import SearchRequest
    from whichtorch.bisect.workbench import Workbench
    from whichtorch.environments.cache import EnvironmentCache
    from whichtorch.model import Request
    from whichtorch.model.events import Show

PASS_RUNS = 3  # of the commit that passes beside the one that does not: others beyond it pass as well
_UNJUDGED = "no commit is blamed: none inside the bracket could be judged over any wheel that was tried"
_UNREAD = "which files the script reads is not known, so no commit is left out"
_IMPORTED = re.compile(r"(.*?)(?:/__init__)?\.py\t\t<module>$")
_HASH = re.compile(r"\b([0-9a-f]{10})[0-9a-f]{30}\b")


def search(request: SearchRequest, cache: EnvironmentCache, show: Show) -> Bisection:
    """Search the commits between two bounds, by default those of the two releases between which it changed.

    Raises UsageError for what is no checkout of the package, or has no history between the bounds; PreventedError if
    git fails. KeyboardInterrupt passes through. The checkout is only read.
    """
    assert request.source is not None
    if request.goal.find is Find.ALL:
        raise UsageError("one change is found in a history", hint="leave --find out, or search parts of the history")
    checkout = Checkout.at(request.source.checkout)
    wheels = Wheels.of(request, checkout, cache)
    good, bad, found = request.good, request.bad, None
    if good is None or bad is None:
        if good or bad:
            raise UsageError("a git history needs both bounds, or none", hint="name commits or tags for both")
        search_releases = package_releases.search if request.package else versions.search
        found = search_releases(request, cache, show)
        boundary = found.boundaries[-1] if found.answer is AnswerKind.BOUNDARY else None
        if (
            boundary is None
            or not {boundary.good, boundary.bad} <= wheels.tagged.keys()
            or _ends_at_releases(found, boundary)
        ):
            return found
        good, bad = wheels.tagged[boundary.good], wheels.tagged[boundary.bad]
    old, new = _older_first(checkout, checkout.commit(good), checkout.commit(bad))
    laid = LaidCommits(cache, wheels.files, fresh=request.fresh)
    named = SearchVerdict.BAD if checkout.commit(bad) == old else SearchVerdict.GOOD
    machines = ThisMachine(environments=laid, jobs=request.jobs)
    with closing(laid), workbench(replace(request, machines=machines), cache, show) as bench:
        search = LineSearch(request, bench, wheels, checkout.line(old, new), named)
        if found:
            search.take_in(found)
        return search.run()


def _ends_at_releases(found: Bisection, boundary: Boundary) -> bool:
    """Return whether the search ends with the releases: the user interrupted it, or another package is the cause."""
    return found.interrupted or (boundary.attribution is not None and boundary.attribution.cause is Cause.COMPANION)


def _older_first(checkout: Checkout, commit: str, other: str) -> tuple[str, str]:
    """Return two commits, first the commit with fewer commits since they parted: a release branch gets few."""
    if commit == other:
        raise UsageError(f"--good and --bad both mean {commit[:10]}", hint="name two different commits")
    base = checkout.merge_base(commit, other)
    counts = [int(checkout.git("rev-list", "--count", f"{base}..{each}")) for each in (commit, other)]
    return (commit, other) if counts[0] <= counts[1] else (other, commit)


def _module(file: str) -> str:
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


class Spot(NamedTuple):
    """A commit over a wheel."""

    commit: str
    wheel: Wheel


class LineSearch:
    """One search of one test along one line. Call `run` once."""

    def __init__(
        self, request: SearchRequest, bench: Workbench, wheels: Wheels, line: Sequence[Commit], oldest: SearchVerdict
    ) -> None:
        """Choose the wheels; `oldest` is what the user says of the older bound."""
        self.request, self.bench, self.wheels, self.checkout = request, bench, wheels, wheels.checkout
        self.commits = {commit.hash: commit for commit in line}
        self.line = tuple(self.commits)
        self._is_old_bad = oldest is SearchVerdict.BAD
        left, right = wheels.nearest(self.line[0]), wheels.nearest(self.line[-1])
        self.ends = Spot(self.line[0], left), Spot(self.line[-1], right)
        self._order = list(self.line)  # of all commits that are tried
        self._probes: dict[Spot, Probe] = {}
        self._notes: list[str] = []
        self._over: dict[str, Wheel] = {}  # by commit: the wheel that it was tried over first

    def take_in(self, found: Bisection) -> None:
        """Take in the search of the releases: what it found, and what it has cost."""
        last = found.boundaries[-1]
        self.bench.count_in(found.installs, found.runs, found.seconds)
        self._notes.append(f"the releases were searched first: {last.good} passes, and its neighbor {last.bad} fails")

    def run(self) -> Bisection:
        """Find out whether a commit or the wheel matters, then which commit."""
        first, last = self.ends
        if not native_among(self.checkout.changes([first.wheel.commit, last.wheel.commit])[1]):
            self.ends = first, Spot(last.commit, first.wheel)
            rough = self._asked([])
            if first.wheel == last.wheel or self._sides(rough):
                return self._found(rough, [first.wheel])
            self.ends = first, last  # it needs what else came with the newer wheel
            self._over[last.commit] = last.wheel
        rough = self._asked([])
        if self._sides(rough):
            middle = self._middle()
            rough = self._asked([Spot(middle, wheel) for wheel in (first.wheel, last.wheel)])
            if (self._sides(rough) or self.ends)[0].commit == middle:
                return self._found(rough, [last.wheel, first.wheel])
        return self._found(rough, [first.wheel, last.wheel])

    def _middle(self) -> str:
        """Return the first commit that is nearer to the newer wheel."""
        (_, left), (_, right) = self.ends
        distance = self.wheels.distance

        def is_newer(commit: str) -> bool:
            return distance(right.commit, commit) < distance(left.commit, commit)

        return self.line[min(bisect_left(self.line, True, key=is_newer), len(self.line) - 1)]

    # what is asked

    def _asked(
        self,
        middle: Sequence[Spot],
        ends: tuple[Spot, Spot] | None = None,
        *,
        dead_side: int = 0,
        is_final: bool = False,
    ) -> Bisection:
        """Search between two ends, with some spots between them, whose order has the change as a single step."""
        ends = ends or self.ends
        spots = [ends[0], *(spot for spot in middle if spot not in ends), ends[1]]
        axis = Axis(
            name=AxisName.COMMIT,
            values=tuple(map(self._value, spots)),
            requests=tuple(map(self._asking, spots)),
            subjects={self._value(spot): self.commits[spot.commit].subject for spot in spots},
            package=self.wheels.package,
            common={"checkout": str(self.checkout.folder)} | common(spots[0].wheel.request),
        )
        goal = replace(self.request.goal, low=0, high=None, bound_runs=1, pass_runs=PASS_RUNS, dead_side=dead_side)
        if not (is_final or goal.flaky or any(0 < probe.k < probe.n for probe in self._probes.values())):
            goal = replace(goal, confirm_runs=1, pass_runs=1, confidence=0.0)
        named_bad = 0 if self._is_old_bad else len(spots) - 1
        ledger = Ledger(request=self.request, bench=self.bench, axis=axis, goal=goal, named_bad=named_bad)
        found = bisected(ledger, {SearchVerdict.BAD: named_bad})
        shown = {probe.value: probe for probe in found.probes}
        for spot in spots:
            if probe := shown.get(self._value(spot)):  # what this search itself has run was not known before
                first = self._probes.get(spot, probe)
                self._probes[spot] = probe.model_copy(update={"reused": first.reused})
        return found

    def _asking(self, spot: Spot) -> Request:
        """Return the request for a spot: without a commit if the wheel alone is that commit, as far as is known."""
        is_wheel = spot.commit == spot.wheel.commit and not self.wheels.is_astray(spot.wheel.request)
        asked = {"commit": spot.commit, "imported": self._imported if spot not in self.ends else ()}
        return spot.wheel.request.model_copy(update={} if is_wheel else asked)

    def _value(self, spot: Spot) -> str:
        """Return the name of a spot: the commit, with the wheel where it is tried over another one, too."""
        usual = self._over.setdefault(spot.commit, spot.wheel)
        return spot.commit if usual == spot.wheel else f"{spot.commit} over {spot.wheel.version}"

    def _sides(self, found: Bisection) -> tuple[Spot, Spot] | None:
        """Return the two spots between which the newest change was found."""
        if found.answer is not AnswerKind.BOUNDARY or not found.boundaries:
            return None
        spots = {self._value(spot): spot for spot in self._probes}
        return spots[found.boundaries[-1].from_], spots[found.boundaries[-1].to]

    def _found(self, best: Bisection, wheels: Sequence[Wheel]) -> Bisection:
        """Return the commit that matters, else what is known: those between are searched over each wheel in turn."""
        for wheel in wheels:
            if sides := self._sides(best):  # both over this wheel first: the wheel alone may make the difference
                found = self._asked([Spot(side.commit, wheel) for side in sides], sides)
                best = found if self._sides(found) else best
            sides = self._sides(best)
            if sides is None or sides[0].commit == sides[1].commit or self.bench.stopped:
                break
            first, last = (self.line.index(side.commit) for side in sides)
            found, pair = self._narrowed(self.line[first : last + 1], wheel, sides)
            if pair is not None:
                return self._checked(found, pair, [other for other in wheels if other != wheel])
            best = found if self._sides(found) else best
        if (sides := self._sides(best)) is None:
            if not self.bench.stopped and self.bench.lab.acquire(self.ends[0].wheel.request).is_usable:
                _ = self._tree  # for a checkout of something else it raises PreventedError
            self._notes += self._native_changes() if len(wheels) == 1 else ()
            return self._completed(best)
        if sides[0].commit == sides[1].commit:
            self._notes[:0] = [f"native code decides, not Python: {self._shown(sides)}", *self._native_changes()]
            return self._undecided(best, from_=self.line[0], to=self.line[-1], commits=None, packages={})
        self._notes[:0] = [] if self.bench.stopped else [_UNJUDGED]
        return self._undecided(best)

    def _narrowed(
        self, part: Sequence[str], wheel: Wheel, ends: tuple[Spot, Spot]
    ) -> tuple[Bisection, tuple[Spot, Spot] | None]:
        """Search a part over one wheel; return the commit that matters after the one before it, if both were told."""
        kept: Sequence[str] = self._reading(part)
        # the farther from its wheel, the likelier a commit is broken
        dead_side = (ends[0].wheel == wheel) - (ends[1].wheel == wheel)
        while True:
            spots = [Spot(commit, wheel) for commit in kept]
            found = self._asked(spots, ends, dead_side=dead_side)
            before, after = self._sides(found) or ends
            place = part.index(after.commit) if after.wheel == wheel and after.commit in part else 0
            if self._sides(found) is None or place == 0 or self.bench.stopped:
                return found, None
            parent = Spot(part[place - 1], wheel)
            if self._sides(self._asked([parent, after], ends)) == (parent, after):  # before it costs all runs
                pair = self._asked([parent, after], ends, is_final=True)
                if self._sides(pair) == (parent, after):
                    return pair, (parent, after)
            first = part.index(before.commit) + 1 if before.commit in part else 0
            is_over = self._verdict(parent) is not self._verdict(after) or list(part[first:place]) == list(kept)
            if is_over:
                spots = sorted({*spots, parent}, key=lambda spot: part.index(spot.commit))
                return self._asked(spots, ends, dead_side=dead_side), None
            # what the script reads in between is more than it reads at both ends
            part, kept = part[:place], part[first:place]

    def _reading(self, part: Sequence[str]) -> list[str]:
        """Return the commits of a part that change a file which the script reads, and both ends of the part."""
        tree = self._tree
        changed = self.checkout.changes(part)

        def matters(path: str) -> bool:
            return tree.place(path) in self._read or (path in tree.own and not path.endswith(".py"))

        kept = [commit for commit, paths in zip(part[1:-1], changed[1:-1], strict=True) if any(map(matters, paths))]
        if not self._read:
            return list(part)
        if left := len(part) - 2 - len(kept):
            whole = f"{counted(len(part), 'commit')} from {part[0][:10]} to {part[-1][:10]}"
            self._notes.append(
                f"{left} of {whole} change no file of {self.wheels.package} that the script reads at either bound: "
                "they were not run, which is right for Python only"
            )
        return [*part[:1], *kept, *part[1:][-1:]]

    @cached_property
    def _tree(self) -> WheelTree:
        first = self.ends[0]
        environment = self.bench.lab.acquire(first.wheel.request)
        assert environment.interpreter is not None
        tree = self.wheels.tree(first.wheel.request, site_packages(environment.interpreter.parent.parent))
        tree.follow(self.line[-1])
        return tree

    @cached_property
    def _noted(self) -> tuple[tuple[str, ...], ...]:
        """What the script runs at each of the two ends, a line per function; nothing where that is not known."""
        found = []
        files = () if self.wheels.package == "torch" else self._tree.anchors.values()
        packages = "".join(os.pathsep + _module(file) for file in files)
        try:
            for asked in map(self._asking, self.ends):
                request, environment = self.request, self.bench.lab.acquire(asked)
                planned = PlannedCell(
                    request=asked, scenario=request.scenario, variant=request.variant, options=request.run_options
                )
                runner = Runner(lab=self.bench.lab, planned=planned, environment=environment)
                noted = runner.run(planned.limits.timeout, Variation(hooks={"note_functions": NOTES + packages}))
                found.append(tuple(line for text in noted.notes.values() for line in text.splitlines()))
        except PreventedError as error:
            self._notes.append(f"{_UNREAD}: {error.message}")
            return ()
        self._notes += [] if any(found) else [_UNREAD]
        return tuple(found)

    @cached_property
    def _read(self) -> frozenset[str]:
        """The files that the script reads at the two ends, as the wheel names them; none where that is not known."""
        return frozenset(line.partition("\t")[0] for lines in self._noted for line in lines)

    @cached_property
    def _imported(self) -> tuple[str, ...]:
        """The modules that are imported at both ends, in the order of the first one; none if an end has no list."""
        matches = ([match for line in lines if (match := _IMPORTED.match(line))] for lines in self._noted)
        ends = [dict.fromkeys(match[1].replace("/", ".") for match in found) for found in matches]
        return tuple(name for name in ends[0] if name in ends[-1]) if ends else ()

    # what is found

    def _checked(self, found: Bisection, pair: tuple[Spot, Spot], others: Sequence[Wheel]) -> Bisection:
        """Return the answer, with the commit inside a merge, if the other wheels do not contradict it."""
        change, checked = found.boundaries[-1].change, []
        for wheel in others:
            spots = [Spot(spot.commit, wheel) for spot in pair]
            again = self._asked(spots)
            verdicts = list(filter(None, map(self._verdict, spots)))
            where = f"over the wheel of {wheel.version}"
            if self._sides(again) == tuple(spots):
                checked.append(f"{where} it makes the same difference")
            elif any(verdict not in change.sides for verdict in verdicts):
                checked.append(f"{where} it cannot be told: {self._shown(spots)}")
            else:
                self._notes.append(
                    f"no commit is blamed: {pair[1].commit[:10]} makes the difference over the wheel of "
                    f"{pair[1].wheel.version}, but not {where}: {self._shown(spots)}; native code has a part in it"
                )
                return self._undecided(found, from_=self.line[0], to=self.line[-1])
        checked += [] if others else self._native_changes()
        merges: list[str] = []
        while inner := self._merged(pair):
            # a merge brought the change only if its first parent did not have it
            merges += [pair[1].commit] if self.commits[pair[1].commit].parents[0] == pair[0].commit else []
            found, pair = inner
        culprit = self._culprit(pair, merges, checked)
        link = self.checkout.compare_link(pair[0].commit, pair[1].commit)
        boundary = found.boundaries[-1].model_copy(update={"culprit": culprit, "commits": link, "same_commit": False})
        return self._completed(found.model_copy(update={"boundaries": (boundary,)}))

    def _merged(self, pair: tuple[Spot, Spot]) -> tuple[Bisection, tuple[Spot, Spot]] | None:
        """Return what was found among the commits that a merge brought; None for what is no merge, or shows nothing."""
        before, merge = pair
        parents = self.commits[merge.commit].parents
        for side in parents if before.commit in parents and not self.bench.stopped else ():
            if side != before.commit:
                way = self.checkout.ascent(self.checkout.merge_base(before.commit, side), side)
                new = [commit.hash for commit in way if commit.hash not in self.commits]
                place = self._order.index(merge.commit)
                self._order[place:place] = new
                self.commits |= {commit.hash: commit for commit in way}
                part = [*(commit.hash for commit in way), merge.commit]
                found, inner = self._narrowed(part, merge.wheel, self.ends)
                if inner and inner[1] != merge:
                    return found, inner
                if inner is None and not self.bench.stopped:
                    judged = self._shown(self._sides(found) or pair)
                    self._notes.append(f"which commit of the merge {merge.commit} it was is not known, only: {judged}")
        return None

    def _culprit(self, pair: tuple[Spot, Spot], merges: Sequence[str], checked: Sequence[str]) -> Culprit:
        """Return what is told of the commit that one of two neighbors has and the other has not."""
        before, after = (spot.commit for spot in pair)
        taken_back = after in self.commits[before].parents
        commit = before if taken_back else after
        asked = ("--no-walk", "--date=format-local:%Y-%m-%d", "--format=%ad%n%s%n%b", commit)
        date, subject, body = self.checkout.read("log", *asked).split("\n", 2)
        places = {self._tree.place(path): path for path in self.checkout.changes([before, after])[1]}
        return Culprit(
            commit=commit,
            subject=subject,
            date=date,
            pull_request=pull_request_of(subject, body),
            taken_back=taken_back,
            merges=tuple(merges),
            paths=tuple(path for place, path in places.items() if place in self._read),
            relatives=tuple(relatives(self.checkout, commit, merges)),
            checked=tuple(checked),
        )

    def _native_changes(self) -> Iterator[str]:
        """Yield which commits touch native code, if some do."""
        changed = zip(self.line, self.checkout.changes(self.line), strict=True)
        if native := [commit[:10] for commit, paths in changed if native_among(paths)]:
            some = f"{len(native)} of {counted(len(self.line), 'commit')} between the bounds touch native code"
            yield f"{some}, which only --build-command tries: {listed(native)}"

    def _verdict(self, spot: Spot) -> SearchVerdict | None:
        return self._probes[spot].verdict if spot in self._probes else None

    def _shown(self, spots: Sequence[Spot]) -> str:
        """Return what some spots showed, in words."""
        tried = {f"{spot.commit[:10]} over {spot.wheel.version}": self._probes.get(spot) for spot in spots}
        another = {SearchVerdict.DIFFERENT: " in another way"}
        words = {name: probe.outcome + another.get(probe.verdict, "") for name, probe in tried.items() if probe}
        return ", ".join(f"{name}: {shown}" for name, shown in words.items())

    def _linked(self, boundary: Boundary) -> Boundary:
        """Return a boundary with a link to the commits between its sides, and not to those between their wheels."""
        old, new = (side.partition(" over ")[0] for side in (boundary.from_, boundary.to))
        return boundary.model_copy(update={"commits": boundary.commits and self.checkout.compare_link(old, new)})

    def _undecided(self, found: Bisection, **changes: object) -> Bisection:
        """Return an answer that blames no commit, with what holds the change."""
        bracket = found.boundaries[-1].model_copy(update=changes)
        undecided: dict[str, object] = {"answer": AnswerKind.INCONCLUSIVE, "boundaries": (bracket,)}
        return self._completed(found.model_copy(update=undecided))

    def _completed(self, last: Bisection) -> Bisection:
        """Return the last search as the answer to the whole question, with all that was tried."""
        order = {commit: place for place, commit in enumerate(self._order)}
        spots = sorted(self._probes, key=lambda spot: (order[spot.commit], spot.wheel != self._over[spot.commit]))
        probes = tuple(self._probes[spot].model_copy(update={"value": self._value(spot)}) for spot in spots)
        return last.model_copy(
            update={
                "boundaries": tuple(map(self._linked, last.boundaries)),
                "values": tuple(self._order),
                "probes": probes,
                "timeline": timeline_of(probe for probe in probes if " over " not in probe.value),
                "order": tuple(probe.value for probe in probes),
                "unjudged": unjudged_in(probes),
                "reasons": tuple(_HASH.sub(r"\1", each) for each in (*dict.fromkeys(self._notes), *last.reasons)),
                "installs": self.bench.installs,
                "runs": self.bench.runs,
                "seconds": round(self.bench.seconds, 1),
                "interrupted": self.bench.is_interrupted,
            }
        )
