"""The two ways to try edits with few questions: independent ones in halves, and steps that build on each other.

Both are generators: they yield a program, are sent whether it still fails in the same way, and return the smallest one.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from whichtorch.matrix.search.delta import lowest
from whichtorch.matrix.source.names import compiles, unbound_names
from whichtorch.matrix.source.syntax import head_nodes, statements_in
from whichtorch.matrix.triage.minimise.deletion import cleaned
from whichtorch.matrix.triage.minimise.tree_edit import Edit, InvalidEditError, Program

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

    Reducing = Generator[Program, bool, Program]
    Rule = Callable[[Program, "ReductionState"], Iterator[Edit]]

MOST_STEPS = 60  # that are built on each other before one is tried
MOST_ROWS = 100  # rows of such steps: more than a reduction with a few hundred questions can use
MOST_REPAIRS = 5  # times that what used a deleted name is deleted, too
SLACK = 3  # lines that a step may add, for others to remove


@dataclass(kw_only=True)
class ReductionState:
    """What is known of the script that is reduced, and what was refused so far."""

    executed: frozenset[int] | None = None  # lines
    failing_lines: tuple[int, ...] = ()  # those that it was in when it failed, the innermost last
    given: frozenset[str] = frozenset()  # names that nothing binds in the script itself
    omitted: frozenset[str] = frozenset()  # names of rules that are not used
    max_rejections: int = 4  # in a row, after which the next kind of edit is tried
    refused: set[str] = field(default_factory=set)  # keys of edits that did not work alone
    blocked: set[str] = field(default_factory=set)  # keys of steps that did not work in the program as it was then

    @classmethod
    def of(cls, program: Program, executed: Iterable[int] | None, failing_lines: Iterable[int]) -> ReductionState:
        """Return the state before the first question about a program that compiles."""
        return cls(
            executed=None if executed is None else frozenset(executed),
            failing_lines=tuple(failing_lines),
            given=unbound_names(program.source),
        )

    def fails_in(self, statement: ast.AST) -> bool:
        """Return whether the script was in this very statement when it failed, or in something inside of it."""
        return _holds(statement, self.failing_lines[-1:])

    def is_open(self, statement: ast.AST) -> bool:
        """Return whether the script was in a statement, or in what it called, when it failed."""
        return _holds(statement, self.failing_lines)

    def edits(self, rule: Rule, program: Program) -> Iterator[Edit]:
        """Yield what a rule proposes."""
        return rule(program, self) if rule.__name__ not in self.omitted else iter(())

    def candidate(self, program: Program, edits: Sequence[Edit], *, repairs: bool = False) -> Program | None:
        """Return a program with edits, and without what nothing uses any more; None where it cannot run."""
        try:
            tried = cleaned(program.edited(edits), before=program)
            for repairs_left in reversed(range(1 + MOST_REPAIRS * repairs)):
                if not compiles(tried.source):
                    return None
                names = unbound_names(tried.source) - self.given
                if not names:
                    return tried
                if repairs_left:
                    tried = cleaned(tried.edited(self._users(tried, names)), before=tried)
        except (InvalidEditError, ValueError, TypeError, AttributeError):  # the last three: `ast` cannot write the tree
            pass
        return None

    def _users(self, program: Program, names: frozenset[str]) -> Iterator[Edit]:
        """Yield the deletion of each statement that reads one of some names. Raises InvalidEditError."""
        for statement in statements_in(program.tree):
            head = [node for part in head_nodes(statement) for node in ast.walk(part)]
            if any(isinstance(node, ast.Name) and node.id in names for node in head):
                if self.fails_in(statement):
                    raise InvalidEditError
                yield Edit(key="", replaced={statement: []})


def _holds(statement: ast.AST, lines: tuple[int, ...]) -> bool:
    first, last = getattr(statement, "lineno", 0), getattr(statement, "end_lineno", 0)
    if any(first <= line <= (last or first) for line in lines):
        return True
    return any(getattr(node, "lineno", 0) in lines for node in ast.walk(statement))


def in_halves(
    program: Program,
    rules: Sequence[Rule],
    state: ReductionState,
    *,
    at_once: int = 0,
    repairs: bool = False,
    grows: bool = False,
) -> Reducing:
    """Return the program with as many edits as work together: all at first, or groups of some; then halves.

    What `grows` may have more nodes than before, for later edits to remove; never more lines. Whatever the answers,
    there are fewer than two questions an edit.
    """
    proposed = [edit for rule in rules for edit in state.edits(rule, program) if edit.key not in state.refused]
    size = at_once or max(1, len(proposed))
    waiting = [proposed[begin : begin + size] for begin in range(0, len(proposed), size)][::-1]
    chosen: list[Edit] = []
    best = program
    rejections = 0
    while waiting and rejections < state.max_rejections:
        group = waiting.pop()
        candidate = state.candidate(program, [*chosen, *group], repairs=repairs)
        is_worth = candidate is not None and _is_worth(candidate, best, grows=grows)
        if candidate is not None and is_worth and (yield candidate):
            chosen += group
            best, rejections = candidate, 0
            continue
        rejections += is_worth
        if len(group) > 1:
            middle = len(group) // 2
            waiting += [group[middle:], group[:middle]]
        elif is_worth:
            state.refused.add(group[0].key)
    return best


def _is_worth(candidate: Program, best: Program, *, grows: bool) -> bool:
    return candidate.size < best.size or (grows and candidate.lines <= best.lines and candidate.source != best.source)


def step_by_step(program: Program, rules: Sequence[Rule], state: ReductionState) -> Reducing:
    """Return the program after as many steps as work: all of them at once, else the longest row of first ones.

    Whatever the answers, there are at most MOST_ROWS rows, and a question for each halving of a row's MOST_STEPS steps.
    """
    rejections = 0
    for _ in range(MOST_ROWS):
        steps = list(_steps(program, rules, state))
        if not steps or rejections >= state.max_rejections:
            break
        works = yield from _longest(program, [candidate for _, candidate in steps])
        if works < len(steps):
            state.blocked.add(steps[works][0])
            rejections += 1
        if works:
            program = steps[works - 1][1]
    return program


def _longest(program: Program, steps: Sequence[Program]) -> Generator[Program, bool, int]:
    """Return how many first steps work together: all, or one less than the fewest that do not."""

    def is_rejected(count: int) -> Generator[Program, bool, bool]:
        step = steps[count - 1]
        is_worth = step.lines <= program.lines + SLACK and step.source != program.source
        return not (is_worth and (yield step))

    if (yield from is_rejected(len(steps))):
        return (yield from lowest(is_rejected, 1, len(steps))) - 1
    return len(steps)


def _steps(program: Program, rules: Sequence[Rule], state: ReductionState) -> Iterator[tuple[str, Program]]:
    """Yield keys and programs, each a step further than the one before."""
    done = set(state.blocked)
    for _ in range(MOST_STEPS):
        found = _next_step(program, rules, state, done)
        if found is None:
            return
        key, program = found
        done.add(key)
        yield key, program


def _next_step(
    program: Program, rules: Sequence[Rule], state: ReductionState, done: set[str]
) -> tuple[str, Program] | None:
    for rule in rules:
        for edit in state.edits(rule, program):
            if edit.key in done:
                continue
            candidate = state.candidate(program, [edit])
            if candidate is not None and candidate.source != program.source:
                return edit.key, candidate
            done.add(edit.key)
    return None
