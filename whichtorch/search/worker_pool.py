"""Calls that run side by side, and none of which is left running."""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any, Self, TypeVar

from whichtorch.base.errors import SIGNAL_CHECK

Result = TypeVar("Result")


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
