"""Driving a search: its answers, its end, and the calls that are left running."""

import threading
from collections.abc import Generator

import pytest

from whichtorch.search.runs_oracle import Inquiry, RunsOracle, WorkerPool, asking, drive


def doubled(start: int) -> Generator[int, int, list[int]]:
    """Ask for the double of a number and of its answer, and return both."""
    first = yield start
    return [first, (yield first)]


def test_a_search_is_sent_its_answers() -> None:
    """Each answer leads to the next question, and the last one to what was found."""
    assert drive(doubled(2), asking(lambda number: 2 * number)) == [4, 8]


def test_an_error_of_an_oracle_is_no_end_of_the_search() -> None:
    """What a run raises is raised, even where it is what ends a generator."""

    def answer(_number: int) -> int:
        raise StopIteration

    with pytest.raises(StopIteration):
        drive(doubled(2), asking(answer))


def test_a_question_is_run_once() -> None:
    """The same key again is answered from memory."""
    ran: list[int] = []

    def run(number: int) -> int:
        ran.append(number)
        return 0

    oracle = RunsOracle[int, int](inquiry=lambda number: Inquiry(key="same", run=lambda: run(number)))
    assert drive(doubled(1), oracle) == [0, 0]
    assert (ran, oracle.made) == ([1], 1)


def test_an_interrupt_while_the_pool_ends_stops_what_runs() -> None:
    """A Ctrl-C that comes while the last calls are waited for ends these, too."""
    stopped = threading.Event()

    class Interrupted(WorkerPool):
        waits = 0

        def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
            shutdown = self._threads.shutdown

            def once(**options: bool) -> None:
                self.waits += 1
                if self.waits == 1:
                    raise KeyboardInterrupt
                shutdown(**options)

            self._threads.shutdown = once  # type: ignore[method-assign, assignment]
            super().__exit__(kind, *rest)

    with pytest.raises(KeyboardInterrupt), Interrupted(1, stopped.set) as pool:
        pool.start(stopped.wait)
    assert stopped.is_set()
