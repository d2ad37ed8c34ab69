"""Search a git history for the change: `git bisect` chooses the commits, and they are built, run and recorded here.

git knows what a history looks like, and what to try next around what cannot be built.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from matrix.bisect.axes.commit_search import CommitSearch
from matrix.bisect.axes.git import Checkout, borrowed, refuse
from matrix.bisect.axes.tried_commits import TriedCommits
from matrix.bisect.question import workbench
from matrix.bisect.strategy.evidence import Change, Find
from matrix.environments import configs
from matrix.environments.built_commits import BuiltCommits, CommitBuild
from matrix.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from matrix.bisect.bisection import Bisection
    from matrix.bisect.question import SearchQuestion
    from matrix.events import Show

BUILD_TIMEOUT = 14400.0  # seconds: all of torch takes an hour on eight cores


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A history, and how a commit of it becomes something to run."""

    checkout: Path
    command: str  # for the shell, in the checkout's top folder
    interpreter: Path | None = None  # the Python that sees the build; None: the checkout's own .venv
    timeout: float = BUILD_TIMEOUT  # seconds, of one build


def search_commits(question: SearchQuestion, source: Source, show: Show) -> Bisection:
    """Search the commits between the question's two bounds.

    Raises UsageError where the bounds, the checkout or the interpreter will not do, PreventedError where git
    fails; KeyboardInterrupt passes through. The checkout is given back as it was.
    """
    checkout = Checkout.at(source.checkout)
    bounds, change = _bounds(question, checkout)
    build = CommitBuild(
        folder=checkout.folder,
        command=source.command,
        interpreter=_interpreter(source, checkout),
        timeout=source.timeout,
    )
    config = configs.config_named(question.file.axes.config[0], question.file.configs)
    cache = BuiltCommits(question.home, build, config, checkout.go_to, fresh=question.fresh)
    refuse(checkout)
    with workbench(question, cache, show) as bench, borrowed(checkout, question.home):
        tried = TriedCommits(
            checkout=checkout, bounds=bounds, change=change, asked=question.asked, any_failure=question.any_failure
        )
        search = CommitSearch(question=question, cache=cache, bench=bench, tried=tried)
        try:
            return search.run()
        finally:
            bench.prober.close()  # a build must have ended before the checkout is given back


def _bounds(question: SearchQuestion, checkout: Checkout) -> tuple[tuple[str, str], Change]:
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
