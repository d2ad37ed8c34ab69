"""How one run is made: what differs from the script as its user runs it, what it may take, and what it showed."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PlainSerializer, ValidationInfo

from whichtorch.failures.failure import Failure
from whichtorch.failures.tracebacks import RaisedException, read_chain
from whichtorch.model import Model, Outcome, Record, Role, SharedProcess

# stands, in a variation's texts, for the folder whose files come back as the notes of the run
NOTES = "@whichtorch-notes@"
# start-up hooks, and the variable in which each is told what to do, as a text or as JSON
HOOK_VARIABLES = {
    "compile_layer": "WHICHTORCH_LADDER",
    "note_numbers": "WHICHTORCH_MEASURE",
    "last_operator": "WHICHTORCH_OPERATORS",
    "note_functions": "WHICHTORCH_FUNCTIONS",
}


def _as_json(text: str | None) -> str | None:
    """Return a source file's text as JSON can hold it: a character for each byte, because some are not UTF-8."""
    return None if text is None else text.encode("utf-8", "surrogateescape").decode("latin-1")


def _of_json(text: str | None, info: ValidationInfo) -> str | None:
    if text is None or info.mode != "json":
        return text
    return text.encode("latin-1").decode("utf-8", "surrogateescape")


SourceFile = Annotated[str | None, PlainSerializer(_as_json, when_used="json"), BeforeValidator(_of_json)]


class Variation(Model):
    """What is changed for a run. It is JSON, so that another machine can make the run."""

    limit: float = 0  # seconds
    source: str | None = None  # instead of the script; such a run is always in a scratch folder
    arguments: tuple[str, ...] = ()  # instead of the script's own
    beside: Path | None = Field(default=None, exclude=True)  # the folder that its user started the script in, if here
    in_scratch: bool = False  # in a folder and a home of its own, with copies of what the script reads
    is_alone: bool = False  # without these copies
    files: Mapping[str, SourceFile] = Field(default_factory=dict)  # of site-packages: new texts; None: deleted
    variables: Mapping[str, str] = Field(default_factory=dict)
    hooks: Mapping[str, Any] = Field(default_factory=dict)  # by name: what each is told
    goal: float | None = None  # seconds with a core, of a longer look at what was slow
    hung_at: str | None = None  # signature of a hang that a longer look has shown: what is busy there hangs, too
    may_fork: bool = False  # from a process that has imported torch, with compilers' caches of the runs before
    names_cache: bool = False  # of a chain that fails: which cache it takes is found out, as in a matrix
    is_brief: bool = False  # a fork ends without taking torch apart, so that a crash there is not seen

    def environ(self, notes: str) -> dict[str, str]:
        """Return the variables of a run that writes its notes into the folder `notes`."""
        told = {
            HOOK_VARIABLES[name]: each if isinstance(each, str) else json.dumps(each)
            for name, each in self.hooks.items()
        }
        return {name: text.replace(NOTES, notes) for name, text in {**self.variables, **told}.items()}


PLAIN = Variation()
FORKED = Variation(may_fork=True)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """A run's record, and what it wrote."""

    record: Record
    stderr: str
    notes: Mapping[str, str] = field(default_factory=dict)  # texts of the files in its notes folder, by path

    @property
    def failure(self) -> Failure:
        """What it shows."""
        return Failure.of(self.record, self.chain)

    @property
    def chain(self) -> tuple[RaisedException, ...]:
        """The exception that ended it, and its causes."""
        return read_chain(self.stderr) if self.record.attempt.outcome is Outcome.FAIL else ()
