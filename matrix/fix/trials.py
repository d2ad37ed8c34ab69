"""Answer what a search wants to try: from the text alone, from the journal, or by a run of the script."""

from __future__ import annotations

import ast
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from matrix.fix.journal import Journal, content_key
from matrix.fix.trial import Effect, Trial

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from matrix.fix.tree_change import TreeChange
    from matrix.fix.units import Proposal

Found = TypeVar("Found")


class BudgetSpent(Exception):  # noqa: N818 - no error
    """The trials or the time that may be used are used up."""


@dataclass(slots=True, kw_only=True)
class Trials:
    """The trials of one search, and what they may cost."""

    change: TreeChange
    journal: Journal
    question: str  # script, environment, failure and limit: what makes two trials the same one, beside the files
    test: Callable[[Mapping[str, str | None]], Trial]  # texts of files -> what came of a run with them
    tell: Callable[[str], None]
    most: int | None = None
    until: float | None = None  # on the monotonic clock
    made: int = 0  # those that the journal answered are counted, too
    seconds: float = 0
    cure: Proposal | None = None  # the last one: a search proposes nothing greater once it has a cure
    last: Trial | None = None
    _asked: dict[str, Trial] = field(default_factory=dict)  # by key: another proposal may make the same files

    def drive(self, search: Generator[Proposal, Trial, Found]) -> Found:
        """Run a search to its end and return its answer. Raises BudgetSpent."""
        try:
            proposal = next(search)
            while True:
                proposal = search.send(self._trial(proposal))
        except StopIteration as end:
            answer: Found = end.value
            return answer

    def _trial(self, proposal: Proposal) -> Trial:
        files = self.change.texts(proposal)
        if problem := _unreadable(files):
            return Trial(effect=Effect.UNRESOLVED, exception=problem)
        key = content_key(self.question, files)
        if key in self._asked:
            return self._asked[key]
        trial = self.journal.get(key)
        if trial is None:
            is_late = self.until is not None and time.monotonic() > self.until
            if is_late or (self.most is not None and self.made >= self.most):
                raise BudgetSpent
            trial = self.test(files)
            self.journal.add(key, trial)
        self._asked[key] = trial
        self.made += 1
        self.seconds += trial.seconds
        self.last = trial
        if trial.effect is Effect.CURED:
            self.cure = proposal
        self.tell(f"trial {self.made}: {_words(proposal)}: {trial.effect}{_because(trial)}")
        return trial


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
