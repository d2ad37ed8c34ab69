"""A search is driven: its questions are answered from memory, from the question alone, from a journal, or by a run.

A search is a generator, and a function of the answers that it was sent: the same answers lead a new one to the same
question. So an interrupted search goes on from the answers that were kept, and a guess in place of an answer tells
which question will come next. Several runs may be made at once: the one that the search waits for, and those that it
is expected to ask for next. They run side by side in a pool of workers, and none of them is left running.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Generic, Protocol, Self, TypeVar

from pydantic import TypeAdapter

from whichtorch.base.errors import SIGNAL_CHECK

Question = TypeVar("Question")
Answer = TypeVar("Answer")
Found = TypeVar("Found")
Value = TypeVar("Value")
_Asked = TypeVar("_Asked", contravariant=True)
_Told = TypeVar("_Told", covariant=True)
_is_guessing: ContextVar[bool] = ContextVar("is_guessing", default=False)

Result = TypeVar("Result")


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


class BudgetSpentError(Exception):
    """The runs or the time that may be used are used up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inquiry(Generic[Answer]):
    """A question that is ready to be run."""

    key: str  # questions of one key have one answer
    run: Callable[[], Answer]  # on any thread
    answer: Answer | None = None  # where no run is needed


@dataclass(slots=True, kw_only=True)
class RunsOracle(Generic[Question, Answer]):
    """The runs of one search, and what they may cost. When its context ends, nothing runs, and what ended is kept."""

    inquiry: Callable[[Question], Inquiry[Answer]]
    pool: WorkerPool | None = None  # None: runs are made one at a time, on the search's own thread
    journal: Journal[Answer] | None = None  # written by the search's own thread only
    guess: Answer | None = None  # what most runs come to; None: nothing is run ahead
    answered: Callable[[Question, Answer], None] = lambda _question, _answer: None  # told of each new answer
    most: int | None = None  # runs
    until: float | None = None  # on the monotonic clock
    made: int = 0  # runs that the search asked for; those that the journal answered are counted, too
    _answers: dict[str, Answer] = field(default_factory=dict)  # by key
    _asked: set[str] = field(default_factory=set)  # keys
    _ahead: set[str] = field(default_factory=set)  # keys of runs that were begun, and not asked for so far
    _begun: dict[str, Future[Answer]] = field(default_factory=dict)  # runs that are not known to have ended

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self.pool is not None:
            self.pool.__exit__(kind)
        self._keep_ended()
        self._ahead -= {key for key, future in self._begun.items() if future.cancelled()}

    @property
    def ahead(self) -> int:
        """How many runs were made ahead that no search asked for."""
        return len(self._ahead)

    def answer(
        self,
        question: Question,
        look_ahead: Callable[[Callable[[Question], Answer | None]], None] = lambda _guess: None,
    ) -> Answer:
        """Return the answer to a question; raises BudgetSpentError where that takes a run, and none is left."""
        inquiry = self.inquiry(question)
        if inquiry.answer is not None:
            return inquiry.answer
        key = inquiry.key
        answer = self._known(key)
        if answer is None and key not in self._begun and self._is_spent():
            raise BudgetSpentError
        self._ahead.discard(key)
        self.made += key not in self._asked
        if answer is None:
            answer = self._run(inquiry, look_ahead)
        if key not in self._asked:
            self._asked.add(key)
            self.answered(question, answer)
        return answer

    def _run(
        self, inquiry: Inquiry[Answer], look_ahead: Callable[[Callable[[Question], Answer | None]], None]
    ) -> Answer:
        """Return what comes of a run; whenever another one has ended, look ahead with what is known then."""
        if self.pool is None:
            return self._keep(inquiry.key, inquiry.run())
        if inquiry.key not in self._begun:
            self._begun[inquiry.key] = self.pool.start(inquiry.run)
        future = self._begun[inquiry.key]
        while not future.done():
            if self.guess is not None and self.pool.free:
                look_ahead(partial(self._guessed, future))
            self.pool.await_any([each for each in self._begun.values() if each is future or not _has_failed(each)])
            self._keep_ended()
        self._keep_ended()  # it may have ended since
        return future.result()

    def _guessed(self, awaited: Future[Answer], question: Question) -> Answer | None:
        """Return what a question's run shows or may show, and see that it runs.

        None if no other run may begin, or if the awaited one has ended.
        """
        assert self.pool is not None
        if awaited.done() or not self.pool.free or self._is_spent():
            return None
        inquiry = self.inquiry(question)
        answer = self._known(inquiry.key) if inquiry.answer is None else inquiry.answer
        if answer is None and inquiry.key not in self._begun:
            self._begun[inquiry.key] = self.pool.start(inquiry.run)
            self._ahead.add(inquiry.key)
        return self.guess if answer is None else answer

    def _known(self, key: str) -> Answer | None:
        if key not in self._answers and self.journal is not None:
            return self.journal.get(key)
        return self._answers.get(key)

    def _keep(self, key: str, answer: Answer) -> Answer:
        self._answers[key] = answer
        if self.journal is not None and self.journal.get(key) is None:  # an interrupt may have come in between
            self.journal.add(key, answer)
        return answer

    def _keep_ended(self) -> None:
        """Keep the answers of what has ended. A run ahead that failed raises only if the search asks for it."""
        for key, future in list(self._begun.items()):
            if future.done() and not _has_failed(future):
                self._keep(key, future.result())
                del self._begun[key]

    def _is_spent(self) -> bool:
        is_late = self.until is not None and time.monotonic() > self.until
        return is_late or (self.most is not None and self.made + len(self._ahead) >= self.most)


def asking(test: Callable[[Question], Answer]) -> RunsOracle[Question, Answer]:
    """Return an oracle that puts texts or numbers to a test, one after another and each once."""
    return RunsOracle(inquiry=lambda question: Inquiry(key=str(question), run=partial(test, question)))


def inquiry_of(
    test: Callable[[frozenset[str]], bool], widened: Callable[[frozenset[str]], frozenset[str]] = lambda names: names
) -> Callable[[frozenset[str]], Inquiry[bool]]:
    """Return how sets of names are put to a test, which may be of more names than those that are asked about."""

    def inquiry(names: frozenset[str]) -> Inquiry[bool]:
        tested = widened(names)
        return Inquiry(key="\n".join(sorted(tested)), run=lambda: test(tested))

    return inquiry


def _has_failed(future: Future[Answer]) -> bool:
    return future.done() and (future.cancelled() or future.exception() is not None)


class Journal(Generic[Answer]):
    """Answers by their keys, in a file that is appended to; a truncated line is skipped."""

    def __init__(self, path: Path, kind: type[Answer]) -> None:
        self._path, self._adapter = path, TypeAdapter[Any](kind)
        self._answers: dict[str, Answer] = {}
        for line in path.read_bytes().splitlines() if path.exists() else ():
            try:
                fields = json.loads(line)
                self._answers[fields["key"]] = self._adapter.validate_python(fields["answer"])
            except (ValueError, KeyError, TypeError):
                continue

    def get(self, key: str) -> Answer | None:
        """Return the answer of a key, None where there is none."""
        return self._answers.get(key)

    def add(self, key: str, answer: Answer) -> None:
        """Keep an answer; it is on disk when this returns."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps({"key": key, "answer": self._adapter.dump_python(answer, mode="json")})
        with self._path.open("a", encoding="utf-8") as file:
            file.write("\n" * self._is_torn() + line + "\n")
        self._answers[key] = answer

    def _is_torn(self) -> bool:
        content = self._path.read_bytes()[-1:] if self._path.exists() else b""
        return content not in {b"", b"\n"}


def await_all(futures: Collection[Future[Any]], meanwhile: Callable[[], None] = lambda: None) -> None:
    """Wait until calls have ended; a signal that another thread took is seen soon, too."""
    while wait(futures, SIGNAL_CHECK).not_done:
        meanwhile()


class WorkerPool:
    """Runs so many calls at once; others wait. Only the thread that opened it uses it.

    Its context ends when all that runs has ended. An interrupt has `stop` end that early; what has not begun never
    begins.
    """

    def __init__(self, size: int, stop: Callable[[], None]) -> None:
        self._size, self._stop = size, stop
        self._threads = ThreadPoolExecutor(size)
        self._running: list[Future[Any]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            self._stop()
        try:
            self._threads.shutdown(cancel_futures=True)
        except KeyboardInterrupt:  # while it waits
            self._stop()
            self._threads.shutdown(cancel_futures=True)
            raise

    @property
    def free(self) -> int:
        """How many more calls would run at once."""
        self._running = [future for future in self._running if not future.done()]
        return self._size - len(self._running)

    def start(self, call: Callable[[], Result]) -> Future[Result]:
        """Begin a call as soon as there is room for it."""
        future = self._threads.submit(call)
        self._running.append(future)
        return future

    def await_any(self, futures: Collection[Future[Any]]) -> None:
        """Wait until a call has ended, of one or more; a signal that another thread took is seen soon, too."""
        while not wait(futures, SIGNAL_CHECK, FIRST_COMPLETED).done:
            pass

    def results(self, *calls: Callable[[], Result]) -> list[Result]:
        """Return what calls return, side by side; raise what the first of them raises."""
        futures = [self.start(call) for call in calls]
        await_all(futures)
        return [future.result() for future in futures]
