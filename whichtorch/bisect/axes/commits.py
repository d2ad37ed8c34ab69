"""The commits of a git history as an axis: `git bisect` chooses them, and they are built, run and recorded here.

The checkout is borrowed for the search, and the bounds say which change is meant.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from whichtorch.base.errors import UsageError
from whichtorch.bisect.axes.commit_search import CommitSearch
from whichtorch.bisect.axes.git import Checkout, borrowed, refuse
from whichtorch.bisect.workbench import workbench
from whichtorch.environments.built_commits import BuiltCommits, CommitBuild
from whichtorch.environments.expansion import config_of
from whichtorch.matrix.site import ThisMachine
from whichtorch.search.search_state import Change, Find

if TYPE_CHECKING:
    from pathlib import Path

    from whichtorch.bisect.bisection import Bisection
    from whichtorch.bisect.search_request import SearchRequest, Source
    from whichtorch.environments.provider import Environments
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
