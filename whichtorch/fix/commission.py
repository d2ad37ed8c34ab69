"""What a user asks for -> the two releases that it is about, installed -> the fix between them.

Where a release is not named, a bisection finds the two: the neighbors between which the newest failure came or went.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from whichtorch.base.errors import INTERRUPTED, PreventedError, UsageError, why_stopped
from whichtorch.bisect.axes.git import Checkout
from whichtorch.bisect.bisection import Bisection  # noqa: TC001  pydantic reads it
from whichtorch.bisect.driver import search_axis
from whichtorch.environments.expansion import expand
from whichtorch.fix.cure_runs import CureRuns
from whichtorch.fix.fixing import CureRequest, Fix, fix
from whichtorch.fix.origins import Origins, ReleaseSpan
from whichtorch.matrix.lab import Lab, Runner, opened_lab
from whichtorch.matrix.planning import PlannedCell
from whichtorch.matrix.site import ThisMachine
from whichtorch.model import Environment, Model, Request, name_of_test
from whichtorch.process.marks import temporary_folder
from whichtorch.records.line_index import Records
from whichtorch.search.search_state import AnswerKind

if TYPE_CHECKING:
    from whichtorch.bisect.search_request import SearchRequest
    from whichtorch.environments.cache import EnvironmentCache
    from whichtorch.model.events import Show

SCHEMA = 1
MOST_TRIALS, MOST_SECONDS = 60, 600.0  # of the search for the patch, where the user limits neither
UNTAGGED = "which commits brought the patch is not known: one of the two is no release, so that it has no tag in git"


@dataclass(frozen=True, slots=True, kw_only=True)
class FixRequest:
    """Which test is to be cured, where, and at what cost."""

    search: SearchRequest  # the test; its `good` and `bad` are the two releases, where both are named
    max_trials: int | None = None
    checkout: Path | None = None  # of PyTorch: the commits are named that the patch goes back to
    tell: Callable[[str], None] = print  # progress of the trials, a line each


class FixAnswer(Model):
    """What `fix --json` writes."""

    schema_: int = Field(default=SCHEMA, alias="schema")
    scenario: str
    bad: str = ""  # release, "" where no two releases could be told apart
    good: str = ""
    bisection: Bisection | None = None  # that found them; None where both were named
    fix: Fix | None = None
    interrupted: bool = False  # by Ctrl-C or a signal: the same command goes on
    command: str = ""  # that repeats it


def fix_of(order: FixRequest, cache: EnvironmentCache, show: Show) -> FixAnswer:
    """Find the two releases, install them, and search for the fix.

    Raises UsageError for what does not fail and pass there, or for a checkout without the two, PreventedError where
    a release cannot be had. Interrupted, it returns what is known, and the same order goes on from its journal and
    records; KeyboardInterrupt passes through before the two releases are known.
    """
    search, started = order.search, time.monotonic()
    checkout = Checkout.at(order.checkout) if order.checkout else None
    answer = FixAnswer(scenario=name_of_test(search.scenario.name, search.variant))
    bad, good = search.bad, search.good
    if bad is None or good is None:
        bisection = search_axis(search, cache, show)
        answer = answer.model_copy(update={"bisection": bisection, "interrupted": bisection.interrupted})
        if bisection.interrupted or bisection.answer is not AnswerKind.BOUNDARY or not bisection.boundaries:
            return answer
        newest = bisection.boundaries[-1]
        bad, good = newest.bad, newest.good
    requests = [_request(search, version) for version in (bad, good)]
    span = ReleaseSpan.between(checkout, requests[0].torch, requests[1].torch) if checkout else None
    limit = search.budget.seconds
    left = None if limit is None else max(0.0, limit - (time.monotonic() - started))
    if limit is None and order.max_trials is None:
        order, left = replace(order, max_trials=MOST_TRIALS), MOST_SECONDS
    try:
        found = _fixed(order, requests, left, cache, show)
    except KeyboardInterrupt as interrupt:
        found = Fix(stopped=why_stopped(interrupt))
    if checkout and found.patch and not found.stopped:
        order.tell(f"looking up the patch's commits in {checkout.folder}")
        origins = span.origins(found.patch) if span else Origins(notes=(UNTAGGED,))
        found = replace(found, origins=origins.commits, notes=(*found.notes, *origins.notes))
    is_interrupted = found.stopped == INTERRUPTED
    return answer.model_copy(update={"bad": bad, "good": good, "fix": found, "interrupted": is_interrupted})


def _fixed(
    order: FixRequest, requests: Sequence[Request], seconds: float | None, cache: EnvironmentCache, show: Show
) -> Fix:
    """Install the bad and the good release, and search for the fix in so many seconds."""
    search = order.search
    planned = PlannedCell(
        request=requests[0], scenario=search.scenario, variant=search.variant, options=search.run_options
    )
    machines = search.machines or ThisMachine(environments=cache, jobs=max(2, search.jobs))
    with opened_lab(machines, Records(), show) as lab, temporary_folder() as trees:
        pair = usable(lab, requests)
        runner = Runner(lab=lab, planned=planned, environment=pair[0], tell=order.tell)
        asked = CureRequest(
            bad=pair[0],
            good=pair[1],
            failure=search.failure,
            max_trials=order.max_trials,
            max_seconds=seconds,
            jobs=search.jobs,
            tell=order.tell,
        )
        found = fix(asked, CureRuns(runner, trees))
        lab.store.run = lab.store.run.model_copy(update={"interrupted": found.stopped == INTERRUPTED})
        return found


def _request(search: SearchRequest, version: str) -> Request:
    """Return the request for one release; raises UsageError where there is none."""
    requests = expand(search.file.with_axes(torch=(version,)), cache=search.home / "cache").requests
    if len(requests) != 1:
        raise UsageError(f"{version} names {len(requests)} environments", hint="name a release, such as 2.11.0")
    return requests[0]


def usable(lab: Lab, requests: Sequence[Request]) -> list[Environment]:
    """Make environments ready; raise PreventedError, before the next one is made, for one that cannot be used."""
    made: list[Environment] = []
    with lab.shown():
        for request in requests:
            made.append(environment := lab.acquire(request))
            if not environment.is_usable:
                why = environment.reason or environment.outcome
                raise PreventedError(f"{environment.label} cannot be used: {why}")
    return made
