"""What a cell asks for with each of its attempts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from whichtorch.model import Role

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from whichtorch.model import SharedProcess


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRequest:
    """How one attempt is to be made."""

    limit: float  # seconds
    role: Role = Role.JUDGE
    goal: float | None = None  # seconds with a core, of a longer look at what was slow
    idle_limit: float | None = None  # seconds without headway that end it
    rerun_because: str = ""  # why it is made
    is_again: bool = False  # after one that was slow, however long it waits for a core
    fork_level: str = ""  # of imports: it is forked from a process that has made them; "": it starts cold
    cold_because: str = ""  # why it may not fork, where other attempts of its cell may
    is_brief: bool = False  # shorter than `Patience.due`: a busy run is only slow then, unless it hung there before
    native: Path | None = None  # the module that was built from the scenario's native sources
    scratch: Path | None = None  # for temporary files, and the folder of the suite's scripts; None: an empty one
    caches: Path | None = None  # of compilers, kept from run to run; None: empty ones
    arguments: tuple[str, ...] = ()  # instead of the script's own
    folder: Path | None = None  # that it runs in; None: a scratch one for the suite's scripts, the user's for others
    notes: Path | None = None  # a folder that its hooks write to
    only: Sequence[str] | None = None  # ids of the command's tests that are run; None: all
    skip: Sequence[str] = ()  # ids that are not
    shared: SharedProcess | None = None  # how the test ran with others before
    hung_before: Callable[[str], bool] = lambda _: False  # a longer look has shown this signature to be a hang
    cancelled: threading.Event | None = None  # ends it once it is set
