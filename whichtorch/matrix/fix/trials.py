"""What a search for a fix asks -> runs of the script with changed files, each made once."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING

from whichtorch.matrix.diagnosis.tracebacks import CodeFrame  # noqa: TC001  pydantic reads it
from whichtorch.matrix.search.runs_oracle import Inquiry
from whichtorch.matrix.source.syntax import parse_module

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from whichtorch.matrix.fix.tree_change import TreeChange
    from whichtorch.matrix.fix.units import Proposal


class TrialEffect(StrEnum):
    """What a change does to the failure that is asked about."""

    CURED = "cured"
    SAME = "same"  # the script fails as before
    UNRESOLVED = "unresolved"  # it fails in another way


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The result of trying a proposal."""

    effect: TrialEffect
    exception: str = ""  # if unresolved: its type and the first line of its message
    frames: tuple[CodeFrame, ...] = ()  # innermost first
    seconds: float = 0


GUESS = Trial(effect=TrialEffect.SAME)  # most changes do nothing to a failure, and most of a cure is needed


@dataclass(frozen=True, slots=True, kw_only=True)
class Trials:
    """How proposals are tried."""

    change: TreeChange
    question: str  # digest of script, variant, environment and failure: with the files, what makes two trials the same
    test: Callable[[Mapping[str, str | None]], Trial]  # texts of files -> what came of a run with them; on any thread

    def __call__(self, proposal: Proposal) -> Inquiry[Trial]:
        """Return the run of a proposal; none is needed where Python could not even read its files."""
        files = self.change.texts(proposal)
        key = content_key(self.question, files)
        problem = _unreadable(files)
        answer = Trial(effect=TrialEffect.UNRESOLVED, exception=problem) if problem else None
        return Inquiry(key=key, run=partial(self.test, files), answer=answer)


def content_key(question: str, files: Mapping[str, str | None]) -> str:
    """Return the key of a trial: what is asked (script, environment, failure), and the files that differ."""
    text = json.dumps([question, sorted(files.items())])
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:20]


def _unreadable(files: Mapping[str, str | None]) -> str:
    """Return why Python could not read one of the files, "" where it can read them all."""
    for path, text in files.items():
        try:
            parse_module(text or "")
        except (SyntaxError, ValueError) as error:
            return f"{type(error).__name__}: {path}: {error}"
    return ""


def in_words(number: int, proposal: Proposal, trial: Trial) -> str:
    """Return the line of progress on a trial."""
    names = sorted(unit.name for unit in proposal.units)
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    part = " (in part)" if proposal.drafts else ""
    because = f", {trial.exception}" if trial.effect is TrialEffect.UNRESOLVED else ""
    return f"trial {number}: {shown}{part}: {trial.effect}{because}"
