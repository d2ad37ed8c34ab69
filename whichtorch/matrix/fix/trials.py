"""Answer what a search wants to try: from the text alone, from the journal, or by a run of the script.

Several runs may be made at once: the one that the search waits for, and those that it is expected to ask for next.
"""

from __future__ import annotations

import ast
import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Self, TypeVar

from whichtorch.matrix.fix.forecast import GUESS, follow
from whichtorch.matrix.fix.journal import Journal, content_key
from whichtorch.matrix.fix.trial import Effect, Trial

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping
    from concurrent.futures import Future

    from whichtorch.matrix.fix.lanes import Lanes
    from whichtorch.matrix.fix.tree_change import TreeChange
    from whichtorch.matrix.fix.units import Proposal

Found = TypeVar("Found")


class BudgetSpent(Exception):  # noqa: N818 - no error
    """The trials or the time that may be used are used up."""


@dataclass(slots=True, kw_only=True)
class Trials:
    """The trials of one search, and what they may cost. When it is left, nothing runs, and what ended is kept."""

    change: TreeChange
    journal: Journal  # written by the search's own thread only
    question: str  # script, environment, failure and limit: what makes two trials the same one, beside the files
    test: Callable[[Mapping[str, str | None]], Trial]  # texts of files -> what came of a run with them; on any thread
    tell: Callable[[str], None]
    lanes: Lanes
    most: int | None = None
    until: float | None = None  # on the monotonic clock
    made: int = 0  # those that the search asked for; those that the journal answered are counted, too
    seconds: float = 0
    cure: Proposal | None = None  # the last one: a search proposes nothing greater once it has a cure
    last: Trial | None = None
    _asked: dict[str, Trial] = field(default_factory=dict)  # by key: another proposal may make the same files
    _ahead: set[str] = field(default_factory=set)  # keys of runs that were begun, and not asked for so far
    _problems: dict[str, str] = field(default_factory=dict)  # by key: why files need no run, "" where they do
    _begun: dict[str, Future[Trial]] = field(default_factory=dict)  # runs that are not in the journal so far

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.lanes.__exit__(kind)
        self._keep()
        self._ahead -= {key for key, future in self._begun.items() if future.cancelled()}

    @property
    def ahead(self) -> int:
        """How many runs were made ahead that no search asked for."""
        return len(self._ahead)

    def drive(
        self,
        search: Generator[Proposal, Trial, Found],
        again: Callable[[], Generator[Proposal, Trial, object]],
    ) -> Found:
        """Run a search to its end and return its answer; `again` begins the same one anew. Raises BudgetSpent."""
        answers: list[Trial] = []
        try:
            proposal = next(search)
            while True:
                answers.append(
                    self._trial(proposal, lambda run: follow(again(), answers, partial(self._expected, run)))
                )
                proposal = search.send(answers[-1])
        except StopIteration as end:
            answer: Found = end.value
            return answer

    def _trial(self, proposal: Proposal, look_ahead: Callable[[Future[Trial]], None]) -> Trial:
        key, files, trial = self._looked_up(proposal)
        if trial is not None and (not key or key in self._asked):
            return trial
        if trial is None and key not in self._begun:
            if self._is_spent():
                raise BudgetSpent
            self._begin(key, files)
        self._ahead.discard(key)
        self.made += 1
        trial = trial or self._awaited(key, look_ahead)
        self._asked[key] = trial
        self.seconds += trial.seconds
        self.last = trial
        if trial.effect is Effect.CURED:
            self.cure = proposal
        self.tell(f"trial {self.made}: {_words(proposal)}: {trial.effect}{_because(trial)}")
        return trial

    def _looked_up(self, proposal: Proposal) -> tuple[str, Mapping[str, str | None], Trial | None]:
        """Return a proposal's key, "" where it needs no run; its files; and its trial, where that is known."""
        files = self.change.texts(proposal)
        key = content_key(self.question, files)
        if key not in self._problems:
            self._problems[key] = _unreadable(files)
        if problem := self._problems[key]:
            return "", files, Trial(effect=Effect.UNRESOLVED, exception=problem)
        return key, files, self.journal.get(key)

    def _expected(self, awaited: Future[Trial], proposal: Proposal) -> Trial | None:
        """Return what a proposal's trial shows or may show, and see that it runs.

        None where no other run may begin, or what the search waits for is there.
        """
        if awaited.done() or not self.lanes.free or self._is_spent():
            return None
        key, files, trial = self._looked_up(proposal)
        if trial is None and key not in self._begun:
            self._begin(key, files)
            self._ahead.add(key)
        return trial or GUESS

    def _begin(self, key: str, files: Mapping[str, str | None]) -> None:
        self._begun[key] = self.lanes.start(partial(self.test, files))

    def _awaited(self, key: str, look_ahead: Callable[[Future[Trial]], None]) -> Trial:
        """Return what comes of a run; whenever another one has ended, look ahead with what is known then."""
        future = self._begun[key]
        while not future.done():
            if self.lanes.free:
                look_ahead(future)
            self.lanes.await_any([each for each in self._begun.values() if each is future or not _has_failed(each)])
            self._keep()
        self._keep()  # it may have ended since
        return future.result()

    def _keep(self) -> None:
        """Write what has ended into the journal. What failed ahead fails the search only where that asks for it."""
        for key, future in list(self._begun.items()):
            if future.done() and not _has_failed(future):
                self.journal.add(key, future.result())
                del self._begun[key]

    def _is_spent(self) -> bool:
        is_late = self.until is not None and time.monotonic() > self.until
        return is_late or (self.most is not None and self.made + len(self._ahead) >= self.most)


def _has_failed(future: Future[Trial]) -> bool:
    return future.done() and (future.cancelled() or future.exception() is not None)


def _unreadable(files: Mapping[str, str]) -> str:
    """Return why Python could not even read one of the files, "" where it can read them all."""
    for path, text in files.items():
        try:
            ast.parse(text)
        except (SyntaxError, ValueError) as error:
            return f"{type(error).__name__}: {path}: {error}"
    return ""


def _words(proposal: Proposal) -> str:
    names = sorted(unit.name for unit in proposal.units)
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return f"{shown} (in part)" if proposal.drafts else shown


def _because(trial: Trial) -> str:
    return f", {trial.exception}" if trial.effect is Effect.UNRESOLVED else ""
