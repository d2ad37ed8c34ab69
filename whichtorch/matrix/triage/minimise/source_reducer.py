"""The source of a script that fails -> the smallest source that still does, with few questions to an oracle."""

from __future__ import annotations

import ast
import hashlib
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from whichtorch.matrix.source.missing_names import compiles
from whichtorch.matrix.triage.minimise.rewriting import Program, lines_of
from whichtorch.matrix.triage.minimise.schedule import smallest
from whichtorch.matrix.triage.minimise.searching import Knowledge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, MutableMapping

MOST_CALLS = 150  # of the oracle: from then on hardly anything is gained
FEW = 15  # lines: a script so short is read at a glance
MOST_IN_VAIN = 30  # calls in a row that left out no line of so short a script


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduction:
    """What came of a reduction."""

    source: str
    lines: int  # that are not empty
    lines_before: int
    calls: int  # of the oracle; what was known from before is not counted
    is_complete: bool  # False where the calls were used up, and more may be left out
    larger: tuple[str, ...] = ()  # sources that were the smallest for a time, the last ones first

    @property
    def is_smaller(self) -> bool:
        """True where anything could be left out."""
        return self.lines < self.lines_before


@dataclass(frozen=True, slots=True, kw_only=True)
class ReductionStep:
    """What a caller may show while it waits."""

    calls: int  # so far
    lines: int  # of the smallest source so far
    is_same: bool
    tried: str = ""  # what was left out, in words


@dataclass(slots=True, kw_only=True)
class SourceReducer:
    """Reduces one script. The same oracle, script and facts lead to the same questions, in the same order."""

    is_same: Callable[[str], bool]  # whether a source fails in the same way; may be slow
    known: MutableMapping[str, bool] = field(default_factory=dict)  # answers by digest: kept, a reduction goes on
    most_calls: int = MOST_CALLS
    tell: Callable[[ReductionStep], None] = lambda _: None
    calls: int = 0
    in_vain: int = 0  # calls since a line was left out
    _accepted: list[Program] = field(default_factory=list)  # each smaller than the one before

    def reduced(
        self, source: str, executed: Iterable[int] | None = None, failing_lines: Iterable[int] = ()
    ) -> Reduction:
        """Return the smallest source that was found; the source itself where it is no Python.

        `executed` are the lines that ran; `failing_lines` those that were on the stack when it failed, the innermost
        last. Both make it faster, and neither needs to be true.
        """
        program = _read(source)
        lines = lines_of(source)
        if program is None:
            return Reduction(source=source, lines=lines, lines_before=lines, calls=0, is_complete=True)
        best, is_complete = self._searched(program, executed, failing_lines)
        text = source if best is program else best.source
        return Reduction(
            source=text,
            lines=lines_of(text),
            lines_before=lines,
            calls=self.calls,
            is_complete=is_complete,
            larger=tuple(program.source for program in self._accepted[-2::-1]),
        )

    def _searched(
        self, program: Program, executed: Iterable[int] | None, failing_lines: Iterable[int]
    ) -> tuple[Program, bool]:
        """Return the smallest program, and whether the search came to its end."""
        facts = Knowledge.of(program, None if executed is None else frozenset(executed), failing_lines)
        search, best = smallest(program, facts), program
        try:
            candidate = next(search)
            while True:
                answer = self._answer(candidate, best)
                if answer is None:
                    return best, False
                if answer and candidate.size < best.size:
                    best = candidate
                    self._accepted.append(best)
                candidate = search.send(answer)
        except StopIteration:
            return best, True
        except RecursionError:  # an expression that is nested too deeply to be read
            return best, False

    def _answer(self, candidate: Program, best: Program) -> bool | None:
        """Return whether a candidate fails in the same way; None where no call is left to find out."""
        digest = digest_of(candidate.source)
        if digest not in self.known:
            if self.calls >= self.most_calls or (best.lines <= FEW and self.in_vain >= MOST_IN_VAIN):
                return None
            self.calls += 1
            self.known[digest] = self.is_same(candidate.source)
            lines = min(candidate, best, key=lambda each: each.size).lines if self.known[digest] else best.lines
            self.in_vain = self.in_vain + 1 if lines == best.lines else 0
            self.tell(
                ReductionStep(
                    calls=self.calls,
                    lines=lines,
                    is_same=self.known[digest],
                    tried=candidate.made_by,
                )
            )
        return self.known[digest]


def digest_of(source: str) -> str:
    """Return the key of a source: the same for sources that only differ in their form."""
    return hashlib.sha256(ast.dump(ast.parse(source)).encode(errors="surrogatepass")).hexdigest()[:20]


def _read(source: str) -> Program | None:
    """Return a source's program, None where Python cannot read it, or where writing it anew changes it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = Program(tree=ast.parse(source))
            return program if compiles(program.source) else None
    except (SyntaxError, ValueError, RecursionError):
        return None
