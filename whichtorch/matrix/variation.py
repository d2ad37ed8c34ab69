"""How a run of a script differs from the script as its user runs it, and what it may take."""

from __future__ import annotations

import json
from collections.abc import Mapping  # noqa: TC003  pydantic reads it
from pathlib import Path  # noqa: TC003  pydantic reads it
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PlainSerializer, ValidationInfo

from whichtorch.model import Model

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
