"""What a search will ask next, while its question is still open: it is run again, with a guess for what is not known.

A search is a function of the answers that it was sent. So the same answers lead a fresh one to the same question, and a
guess leads it on to the next. A wrong guess costs a run that nobody needs; it never changes an answer.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Generic, TypeVar

from whichtorch.matrix.fix.trial import Effect, Trial

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from whichtorch.matrix.fix.units import Proposal

GUESS = Trial(effect=Effect.SAME)  # most changes do nothing to a failure, and most of a cure is needed

Value = TypeVar("Value")
_is_guessing: ContextVar[bool] = ContextVar("is_guessing", default=False)


class Unforeseen(Exception):  # noqa: N818 - no error
    """A guess leads to what only a run would tell."""


class Deferred(Generic[Value]):
    """What a run tells, made when a search first asks for it; a forecast ends there instead."""

    def __init__(self, make: Callable[[], Value]) -> None:
        self._make = make
        self._made: list[Value] = []

    def __call__(self) -> Value:
        """Return it; raises Unforeseen where a forecast is the first to ask."""
        if not self._made:
            if _is_guessing.get():
                raise Unforeseen
            self._made.append(self._make())
        return self._made[0]


def follow(
    search: Generator[Proposal, Trial, object], answers: Sequence[Trial], expected: Callable[[Proposal], Trial | None]
) -> None:
    """Take a fresh search to where its answers end, and on with what `expected` returns, until that is None."""
    token = _is_guessing.set(True)
    try:
        proposal = next(search)
        for trial in answers:
            proposal = search.send(trial)
        while (guess := expected(proposal)) is not None:
            proposal = search.send(guess)
    except (StopIteration, Unforeseen):
        return
    finally:
        _is_guessing.reset(token)
