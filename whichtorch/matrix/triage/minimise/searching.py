"""The two ways to try edits with few questions: independent ones in halves, and steps that build on each other.

Both are generators: they yield a program, are sent whether it still fails in the same way, and return the smallest one.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from whichtorch.matrix.source.missing_names import compiles, missing, unbound
from whichtorch.matrix.source.syntax import blocks_of, head_nodes
from whichtorch.matrix.triage.minimise.cleaning import cleaned
from whichtorch.matrix.triage.minimise.rewriting import Edit, Misfit, Program

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

    Reducing = Generator[Program, bool, Program]
    Rule = Callable[[Program, "Knowledge"], Iterator[Edit]]

MOST_STEPS = 60  # that are built on each other before one is tried
MOST_ROWS = 100  # rows of such steps: more than a reduction with a few hundred questions can use
MOST_REPAIRS = 5  # times that what used a deleted name is deleted, too
SLACK = 3  # lines that a step may add, for others to remove


@dataclass(kw_only=True)
class Knowledge:
    """What is known of the script that is reduced, and what was refused so far."""

    executed: frozenset[int] | None = None  # lines
    failing_lines: tuple[int, ...] = ()  # those that it was in when it failed, the innermost last
    refused: set[str] = field(default_factory=set)  # keys of edits that did not work alone
    blocked: set[str] = field(default_factory=set)  # keys of steps that did not work in the program as it was then
    width: int = 100  # characters of the longest line that is made of several
    given: frozenset[str] = frozenset()  # names that nothing binds in the script itself
    patience: int = 4  # refusals in a row after which the next kind of edit is tried

    @classmethod
    def of(cls, program: Program, executed: frozenset[int] | None, failing_lines: Iterable[int]) -> Knowledge:
        """Return the case of a program that compiles."""
        lines = tuple(failing_lines)
        return cls(executed=executed, failing_lines=lines, given=missing(program.tree, program.source))

    def fails_in(self, statement: ast.AST) -> bool:
        """Return whether the script was in this very statement when it failed, or in something inside of it."""
        return self._holds(statement, self.failing_lines[-1:])

    def is_open(self, statement: ast.AST) -> bool:
        """Return whether the script was in a statement, or in what it called, when it failed."""
        return self._holds(statement, self.failing_lines)

    @staticmethod
    def _holds(statement: ast.AST, lines: tuple[int, ...]) -> bool:
        first, last = getattr(statement, "lineno", 0), getattr(statement, "end_lineno", 0)
        if any(first <= line <= (last or first) for line in lines):
            return True
        return any(getattr(node, "lineno", 0) in lines for node in ast.walk(statement))

    def is_sound(self, program: Program) -> bool:
        """Return whether a candidate may run at all."""
        return compiles(program.source) and missing(program.tree, program.source) <= self.given

    def candidate(self, program: Program, edits: Sequence[Edit], *, repairs: bool = False) -> Program | None:
        """Return a program with edits, and without what nothing uses any more; None where it cannot run."""
        try:
            tried = program.edited(edits)
            words = tried.made_by
            tried = cleaned(tried, before=program)
            for _ in range(MOST_REPAIRS if repairs else 0):
                if not compiles(tried.source):
                    return None
                names = unbound(tried.tree, tried.source) - self.given
                if not names:
                    break
                tried = cleaned(tried.edited(self._users(tried, names)), before=tried)
            return replace(tried, made_by=words) if self.is_sound(tried) else None
        except (Misfit, ValueError, TypeError, AttributeError):  # the last three: `ast` cannot write such a tree
            return None

    def _users(self, program: Program, names: frozenset[str]) -> Iterator[Edit]:
        """Yield the deletion of statements that use names; raises Misfit where one of them is where it fails."""
        for block in blocks_of(program.tree):
            for statement in block:
                head = head_nodes(statement)
                if any(isinstance(node, ast.Name) and node.id in names for part in head for node in ast.walk(part)):
                    if self.fails_in(statement):
                        raise Misfit
                    yield Edit(key="", replaced={statement: []})


def in_halves(
    program: Program,
    edits: Iterable[Edit],
    facts: Knowledge,
    *,
    at_once: int = 0,
    repairs: bool = False,
    grows: bool = False,
) -> Reducing:
    """Return the program with as many of its edits as work together: all at first, or groups of some; then halves.

    What `grows` may have more nodes than before, for later edits to remove; never more lines. Whatever the answers,
    there are fewer than two questions an edit.
    """
    fresh = [edit for edit in edits if edit.key not in facts.refused]
    size = at_once or max(1, len(fresh))
    waiting = [fresh[begin : begin + size] for begin in range(0, len(fresh), size)][::-1]
    chosen: list[Edit] = []
    best = program
    refusals = 0
    while waiting and refusals < facts.patience:
        group = waiting.pop()
        candidate = facts.candidate(program, [*chosen, *group], repairs=repairs)
        is_worth = candidate is not None and _is_worth(candidate, best, grows=grows)
        if candidate is not None and is_worth and (yield candidate):
            chosen += group
            best, refusals = candidate, 0
            continue
        refusals += is_worth
        if len(group) > 1:
            middle = len(group) // 2
            waiting += [group[middle:], group[:middle]]
        elif is_worth:
            facts.refused.add(group[0].key)
    return best


def _is_worth(candidate: Program, best: Program, *, grows: bool) -> bool:
    return candidate.size < best.size or (grows and candidate.lines <= best.lines and candidate.source != best.source)


def step_by_step(program: Program, rules: Sequence[Rule], facts: Knowledge) -> Reducing:
    """Return the program after as many steps as work: all of them at once, else the longest row of first ones.

    Whatever the answers, there are at most MOST_ROWS rows, and a question for each halving of a row's MOST_STEPS steps.
    """
    refusals = 0
    for _ in range(MOST_ROWS):
        steps = list(_steps(program, rules, facts))
        works, fails = 0, len(steps) + 1  # how many steps
        tried = len(steps)
        while fails - works > 1:
            candidate = steps[tried - 1][1]
            is_worth = candidate.lines <= program.lines + SLACK and candidate.source != program.source
            if is_worth and (yield candidate):
                works = tried
            else:
                fails = tried
            tried = (works + fails) // 2
        if fails <= len(steps):
            facts.blocked.add(steps[fails - 1][0])
            refusals += 1
        if works:
            program = steps[works - 1][1]
        if not steps or refusals >= facts.patience:
            break
    return program


def _steps(program: Program, rules: Sequence[Rule], facts: Knowledge) -> Iterator[tuple[str, Program]]:
    """Yield keys and programs, each a step further than the one before."""
    done = set(facts.blocked)
    for _ in range(MOST_STEPS):
        found = _next_step(program, rules, facts, done)
        if found is None:
            return
        key, program = found
        done.add(key)
        yield key, program


def _next_step(program: Program, rules: Sequence[Rule], facts: Knowledge, done: set[str]) -> tuple[str, Program] | None:
    for rule in rules:
        for edit in rule(program, facts):
            if edit.key in done:
                continue
            candidate = facts.candidate(program, [edit])
            if candidate is not None and candidate.source != program.source:
                return edit.key, candidate
            done.add(edit.key)
    return None
