"""Drive a search: put its questions to an oracle, and send it the answers, until it returns what it has found.

A search is a generator, and a function of the answers that it was sent: the same answers lead a new one to the same
question. So an interrupted search goes on from the answers that were kept, and a guess in place of an answer tells
which question will come next.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

Question = TypeVar("Question")
Answer = TypeVar("Answer")
Found = TypeVar("Found")
Value = TypeVar("Value")
_Asked = TypeVar("_Asked", contravariant=True)
_Told = TypeVar("_Told", covariant=True)
_is_guessing: ContextVar[bool] = ContextVar("is_guessing", default=False)


class UnknownYetError(Exception):
    """A guess leads to what only a run would tell."""


class Oracle(Protocol[_Asked, _Told]):
    """Answers the questions of a search."""

    def answer(self, question: _Asked, look_ahead: Callable[[Callable[[_Asked], _Told | None]], None]) -> _Told:
        """Return the answer to a question.

        `look_ahead` continues the search from here on guesses, as long as its argument returns one.
        """


def drive(
    search: Generator[Question, Answer, Found],
    oracle: Oracle[Question, Answer],
    again: Callable[[], Generator[Question, Answer, object]] | None = None,
) -> Found:
    """Run a search to its end and return what it has found.

    `again` begins the same search anew; without it nothing can be asked ahead.
    """
    answers: list[Answer] = []

    def look_ahead(guess: Callable[[Question], Answer | None]) -> None:
        if again is not None:
            _follow(again(), answers, guess)

    while True:
        try:
            question = search.send(answers[-1]) if answers else next(search)
        except StopIteration as end:
            found: Found = end.value
            return found
        answers.append(oracle.answer(question, look_ahead))


def _follow(
    search: Generator[Question, Answer, object], answers: Sequence[Answer], guess: Callable[[Question], Answer | None]
) -> None:
    """Take a new search to where its answers end, and on with guesses, until there is none."""
    token = _is_guessing.set(True)
    try:
        question = next(search)
        for answer in answers:
            question = search.send(answer)
        while (guessed := guess(question)) is not None:
            question = search.send(guessed)
    except (StopIteration, UnknownYetError):
        return
    finally:
        _is_guessing.reset(token)


class Deferred(Generic[Value]):
    """A value that takes a run, computed when a search first asks for it. A look ahead ends there instead."""

    def __init__(self, make: Callable[[], Value]) -> None:
        self._make = make
        self._made: list[Value] = []

    def __call__(self) -> Value:
        """Return it; raises UnknownYetError where a look ahead is the first to ask."""
        if not self._made:
            if _is_guessing.get():
                raise UnknownYetError
            self._made.append(self._make())
        return self._made[0]
