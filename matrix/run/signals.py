"""Answer SIGQUIT and SIGUSR1 during a run: say what runs, and where it is, and go on."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from matrix.events import Asked
from matrix.process.evidence import peek

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import FrameType

    from matrix.events import Emit
    from matrix.process.supervision import Supervised

SIGNALS = tuple(getattr(signal, name) for name in ("SIGQUIT", "SIGUSR1") if hasattr(signal, name))


@contextmanager
def answering(running: Callable[[], Iterable[Supervised]], emit: Emit) -> Iterator[None]:
    """Emit `Asked` whenever one of SIGNALS comes, with what runs then.

    A thread of its own does it: the handler runs between any two instructions of the main one, which may hold locks.
    """
    one_at_a_time = threading.Lock()

    def answer() -> None:
        with one_at_a_time:
            emit(Asked(lines=tuple(peek.running_lines(tuple(running())))))

    def handle(_number: int, _frame: FrameType | None) -> None:
        threading.Thread(target=answer, name="asked", daemon=True).start()

    before = {number: signal.signal(number, handle) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
