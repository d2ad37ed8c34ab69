"""The commits of a git history as an axis, each of which is built, run and recorded here.

The way from the older to the newer bound is a line of first parents. Where a merge on it makes the difference, the
commits that it brought take their place in the line. The checkout is borrowed for the search, and the bounds say which
change is meant.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from whichtorch.base.errors import UsageError
from whichtorch.bisect.axes.git import Checkout, borrowed, refuse
from whichtorch.bisect.driver import bisected
from whichtorch.bisect.ledger import Ledger
from whichtorch.bisect.search_request import Axis, AxisName
from whichtorch.bisect.workbench import workbench
from whichtorch.environments.built_commits import BuiltCommits, CommitBuild
from whichtorch.environments.expansion import config_of
from whichtorch.matrix.site import ThisMachine
from whichtorch.search.search_state import AnswerKind, Change, Find

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from whichtorch.bisect.axes.git import Commit
    from whichtorch.bisect.bisection import Bisection
    from whichtorch.bisect.search_request import SearchRequest, Source
    from whichtorch.bisect.workbench import Workbench
    from whichtorch.environments.provider import Environments
    from whichtorch.model import Request
    from whichtorch.model.events import Show


def search(request: SearchRequest, _cache: Environments, show: Show) -> Bisection:
    """Search the commits between the request's two bounds.

    Raises UsageError if the bounds, the checkout or the interpreter cannot be used, PreventedError if git fails;
    KeyboardInterrupt passes through. The checkout is left as it was.
    """
    assert request.source is not None
    assert request.source.command is not None
    checkout = Checkout.at(request.source.checkout)
    bounds, change = _bounds(request, checkout)
    build = CommitBuild(
        folder=checkout.folder,
        command=request.source.command,
        interpreter=_interpreter(request.source, checkout),
        timeout=request.source.timeout,
    )
    config = config_of(request.file, request.file.axes.config[0])
    cache = BuiltCommits(request.home, build, config, checkout.go_to, fresh=request.fresh)
    refuse(checkout)
    machines = ThisMachine(environments=cache, jobs=request.jobs)
    with workbench(replace(request, machines=machines), cache, show) as bench, borrowed(checkout, request.home):
        line = checkout.line(*bounds)
        search_of_line = BuiltLine(request=request, bench=bench, checkout=checkout, built=cache.request, change=change)
        return search_of_line.run(line)  # it ends with no build running, because git resets the checkout next


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
        raise UsageError("one change is found in a history", hint="leave --find out, or search parts of the history")
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


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltLine:
    """A search for one change among commits that are built one at a time."""

    request: SearchRequest
    bench: Workbench
    checkout: Checkout
    built: Callable[[str], Request]  # what asks for a commit
    change: Change

    def run(self, line: Sequence[Commit]) -> Bisection:
        """Return the commit that makes the difference, else what is known.

        Both bounds are tried first: where they do not differ, nothing between them is built.
        """
        tried, is_final = [line[0], line[-1]], False
        while True:
            found = self._searched(tried, is_final=is_final)
            if between := self._between(found, tried, line):
                place = 1 + [commit.hash for commit in tried].index(found.boundaries[-1].from_)
                tried, is_final = [*tried[:place], *between, *tried[place:]], False
            elif is_final or self.bench.stopped:
                return found
            else:
                is_final = True

    def _searched(self, commits: Sequence[Commit], *, is_final: bool) -> Bisection:
        """Search some commits, from old to new; only of a final search the two sides are confirmed."""
        requests = tuple(self.built(commit.hash) for commit in commits)
        axis = Axis(
            name=AxisName.COMMIT,
            values=tuple(commit.hash for commit in commits),
            requests=requests,
            subjects={commit.hash: commit.subject for commit in commits},
            common={"checkout": str(self.checkout.folder), "config": requests[0].config.name},
        )
        goal = replace(self.request.goal, find=Find(self.change.value), low=0, high=None)
        if not (is_final or goal.flaky):
            goal = replace(goal, confirm_runs=1, pass_runs=1, confidence=0.0)
        bad = 0 if self.change is Change.FIX else len(commits) - 1
        ledger = Ledger(request=replace(self.request, jobs=1), bench=self.bench, axis=axis, goal=goal, named_bad=bad)
        found = bisected(ledger)
        boundaries = tuple(
            each.model_copy(update={"commits": self.checkout.compare_link(each.from_, each.to), "same_commit": False})
            for each in found.boundaries
        )
        parents = {commit.hash: commit.parents for commit in commits}
        notes = [
            f"{each.from_[:10]} makes the difference, and only the older bound has it"
            for each in boundaries
            if each.to in parents[each.from_]
        ]
        told = {"boundaries": boundaries, "reasons": (*notes, *found.reasons), "runs": self.bench.runs}
        return found.model_copy(update=told | {"question": self.request.goal.find})

    def _between(self, found: Bisection, tried: Sequence[Commit], line: Sequence[Commit]) -> list[Commit]:
        """Return the commits between the two sides of a change that were not among those tried."""
        if found.answer is not AnswerKind.BOUNDARY:
            return []
        if len(tried) < min(3, len(line)):
            return [*line[1:-1]]
        commits, newest = {commit.hash: commit for commit in tried}, found.boundaries[-1]
        parents = commits[newest.to].parents
        sides = [side for side in parents if side != newest.from_] if newest.from_ in parents else []
        brought = (self.checkout.ascent(self.checkout.merge_base(newest.from_, side), side) for side in sides)
        return [commit for way in brought for commit in way if commit.hash not in commits]
