"""The source of a script that fails -> the smallest source that still does, with few questions to an oracle."""

from __future__ import annotations

import ast
import hashlib
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

from whichtorch.matrix.source.names import compiles
from whichtorch.matrix.source.syntax import parse_module
from whichtorch.matrix.triage.minimise.edit_search import ReductionState
from whichtorch.matrix.triage.minimise.schedule import smallest
from whichtorch.matrix.triage.minimise.tree_edit import Program, lines_of

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterable

    from whichtorch.matrix.triage.minimise.edit_search import Reducing

MOST_QUESTIONS = 150  # from then on hardly anything is gained
SHORT = 15  # lines: a script so short is read at a glance
MOST_IN_VAIN = 30  # questions in a row that left out no line of so short a script


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduction:
    """What came of a reduction."""

    source: str
    lines: int  # that are not empty
    lines_before: int
    questions: int
    is_complete: bool  # False where the questions were used up, and more may be left out
    larger: tuple[str, ...] = ()  # sources that were the smallest for a time, the last ones first

    @property
    def is_smaller(self) -> bool:
        """True where anything could be left out."""
        return self.lines < self.lines_before


def reduced(
    source: str,
    executed: Iterable[int] | None = None,
    failing_lines: Iterable[int] = (),
    *,
    most_questions: int = MOST_QUESTIONS,
    omitted: Collection[str] = (),
) -> Generator[str, bool, Reduction]:
    """Ask whether smaller sources still fail in the same way; return the smallest, itself where it is no Python.

    No source is asked for twice, and the same answers lead to the same questions. `executed` are the lines that ran;
    `failing_lines` those that were on the stack when it failed, the innermost last. Both make it faster, and neither
    needs to be true. Rules whose names are `omitted` are not used.
    """
    program, before = _read(source), lines_of(source)
    if program is None:
        return Reduction(source=source, lines=before, lines_before=before, questions=0, is_complete=True)
    state = ReductionState.of(program, executed, failing_lines)
    state.omitted = frozenset(omitted)
    accepted, questions, is_complete = yield from _asked(smallest(program, state), program, most_questions)
    *larger, text = [source, *accepted]
    return Reduction(
        source=text,
        lines=lines_of(text),
        lines_before=before,
        questions=questions,
        is_complete=is_complete,
        larger=tuple(larger[:0:-1]),
    )


def _asked(search: Reducing, best: Program, most: int) -> Generator[str, bool, tuple[list[str], int, bool]]:
    """Ask what a search wants to know and is not known.

    Return what was accepted, each smaller than the one before, how much was asked, and whether that came to its end.
    """
    answers: dict[str, bool] = {}  # by digest
    accepted: list[str] = []
    in_vain = 0
    try:
        candidate = next(search)
        while True:
            digest = digest_of(candidate.source)
            if digest not in answers:
                if len(answers) >= most or (best.lines <= SHORT and in_vain >= MOST_IN_VAIN):
                    return accepted, len(answers), False
                answers[digest] = yield candidate.source
                in_vain = 0 if answers[digest] and candidate.lines < best.lines else in_vain + 1
            if answers[digest] and candidate.size < best.size:
                best = candidate
                accepted.append(candidate.source)
            candidate = search.send(answers[digest])
    except StopIteration:
        return accepted, len(answers), True
    except RecursionError:  # an expression that is nested too deeply to be read
        return accepted, len(answers), False


def digest_of(source: str) -> str:
    """Return the key of a source: the same for sources that only differ in their form."""
    return hashlib.sha256(ast.dump(parse_module(source)).encode(errors="surrogatepass")).hexdigest()[:20]


def _read(source: str) -> Program | None:
    """Return a source's program, None where Python cannot read it, or where writing it anew changes it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = Program(tree=parse_module(source))
            return program if compiles(program.source) else None
    except (SyntaxError, ValueError, RecursionError):
        return None
