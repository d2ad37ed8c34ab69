"""The source of a script that fails -> the smallest source that still does, with few questions to an oracle.

Rules propose edits of a tree. Independent edits are tried in halves, and those that build on each other step by step.
What removes most for a question comes first, and again while anything helps.
"""

from __future__ import annotations

import ast
import hashlib
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass

from whichtorch.search.delta import lowest
from whichtorch.source.names import compiles, unbound_names
from whichtorch.source.syntax import parse_module
from whichtorch.triage.minimise import expressions, statements
from whichtorch.triage.minimise.inlining import inline_functions
from whichtorch.triage.minimise.single_instance import inline_single_instance
from whichtorch.triage.minimise.tree_edit import Edit, InvalidEditError, Program, ReductionState, lines_of

Reducing = Generator[Program, bool, Program]
Rule = Callable[[Program, ReductionState], Iterator[Edit]]

MOST_STEPS = 60  # that are built on each other before one is tried
MOST_ROWS = 100  # rows of such steps: more than a reduction with a few hundred questions can use
SLACK = 3  # lines that a step may add, for others to remove
MOST_ROUNDS = 12
FIRST_REJECTIONS = 4  # in a row, of one kind of edit: what is left is tried again later, with more of them
MOST_REJECTIONS = 60
_STRUCTURE = (inline_functions, inline_single_instance)
_EXPRESSIONS = (statements.drop_decorators, expressions.drop_keywords)
MOST_QUESTIONS = 150  # from then on hardly anything is gained
SHORT = 15  # lines: a script so short is read at a glance
MOST_IN_VAIN = 30  # questions in a row that left out no line of so short a script


def try_edits(state: ReductionState, program: Program, edits: Sequence[Edit]) -> Program | None:
    """Return a program with edits, and without what nothing uses any more; None where it cannot run."""
    try:
        tried = statements.cleaned(program.edited(edits), before=program)
        return tried if compiles(tried.source) and unbound_names(tried.source) <= state.given else None
    except (InvalidEditError, ValueError, TypeError, AttributeError):  # the last three: `ast` cannot write the tree
        return None


def in_halves(
    program: Program, rule: Rule, state: ReductionState, *, at_once: int = 0, grows: bool = False
) -> Reducing:
    """Return the program with as many edits as work together: all at first, or groups of some; then halves.

    What `grows` may have more nodes than before, for later edits to remove; never more lines. Whatever the answers,
    there are fewer than two questions an edit.
    """
    proposed = [edit for edit in rule(program, state) if edit.key not in state.refused]
    size = at_once or max(1, len(proposed))
    waiting = [proposed[begin : begin + size] for begin in range(0, len(proposed), size)][::-1]
    chosen: list[Edit] = []
    best = program
    rejections = 0
    while waiting and rejections < state.max_rejections:
        group = waiting.pop()
        candidate = try_edits(state, program, [*chosen, *group])
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
        for edit in rule(program, state):
            if edit.key in done:
                continue
            candidate = try_edits(state, program, [edit])
            if candidate is not None and candidate.source != program.source:
                return edit.key, candidate
            done.add(edit.key)
    return None


def smallest(program: Program, state: ReductionState) -> Reducing:
    """Return the smallest program that was found, after at most MOST_ROUNDS rounds whatever the answers."""
    program = yield from step_by_step(program, [statements.drop_async], state)
    for turn in range(MOST_ROUNDS):
        before = program.source
        state.max_rejections = FIRST_REJECTIONS << turn
        state.blocked.clear()
        program = yield from _less_structure(program, state)
        program = yield from in_halves(program, statements.drop_any_statement, state)
        program = yield from _less_structure(program, state)
        program = yield from _plainer(program, state)
        if program.source == before:
            state.refused.clear()
            if state.max_rejections > MOST_REJECTIONS:
                break
    return program


def _less_structure(program: Program, state: ReductionState) -> Reducing:
    """Return the program with less structure around fewer statements."""
    for _ in range(MOST_ROUNDS):
        before = program.source
        program = yield from in_halves(program, statements.drop_unneeded, state)
        program = yield from in_halves(program, statements.unwrap_blocks, state, grows=True)
        program = yield from step_by_step(program, _STRUCTURE, state)
        if program.source == before:
            break
    return program


def _plainer(program: Program, state: ReductionState) -> Reducing:
    """Return the program with smaller expressions, in fewer lines."""
    for rule in _EXPRESSIONS:
        program = yield from in_halves(program, rule, state)
    program = yield from step_by_step(program, [expressions.inline_variables], state)
    # it takes the most questions for what it leaves out
    return (yield from in_halves(program, expressions.keep_any_part, state, at_once=1))


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
    source: str, failing_lines: Iterable[int] = (), *, most_questions: int = MOST_QUESTIONS
) -> Generator[str, bool, Reduction]:
    """Ask whether smaller sources still fail in the same way; return the smallest, itself where it is no Python.

    No source is asked for twice, and the same answers lead to the same questions. `failing_lines` are those that were
    on the stack when it failed, the innermost last: they make it faster, and need not be true.
    """
    program, before = _read(source), lines_of(source)
    if program is None:
        return Reduction(source=source, lines=before, lines_before=before, questions=0, is_complete=True)
    state = ReductionState.of(program, failing_lines)
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
        with warnings.catch_warnings(action="ignore"):
            program = Program(tree=parse_module(source))
            return program if compiles(program.source) else None
    except (SyntaxError, ValueError, RecursionError):
        return None
