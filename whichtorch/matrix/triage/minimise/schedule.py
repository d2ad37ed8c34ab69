"""The order in which edits are tried: what removes most for a question first, and again while anything helps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whichtorch.matrix.triage.minimise.deletion import (
    drop_any_statement,
    drop_decorators,
    drop_output,
    drop_unexecuted,
    drop_variable_hints,
)
from whichtorch.matrix.triage.minimise.dependencies import drop_unneeded
from whichtorch.matrix.triage.minimise.edit_search import in_halves, step_by_step
from whichtorch.matrix.triage.minimise.expressions import (
    drop_elements,
    drop_keywords,
    keep_any_part,
    keep_one_name,
    shrink_numbers,
)
from whichtorch.matrix.triage.minimise.inlining import drop_parameters, functions_to_lambdas, inline_functions
from whichtorch.matrix.triage.minimise.members import (
    drop_fields,
    inline_methods,
    inline_registered,
    inline_unpacking,
)
from whichtorch.matrix.triage.minimise.single_instance import inline_single_instance
from whichtorch.matrix.triage.minimise.unwrapping import (
    drop_async,
    inline_first_items,
    keep_first_element,
    unwrap_blocks,
)
from whichtorch.matrix.triage.minimise.variables import inline_constants, inline_fields, inline_variables, merge_imports

if TYPE_CHECKING:
    from whichtorch.matrix.triage.minimise.edit_search import Reducing, ReductionState
    from whichtorch.matrix.triage.minimise.tree_edit import Program

MOST_ROUNDS = 12
FIRST_REJECTIONS = 4  # in a row, of one kind of edit: what is left is tried again later, with more of them
MOST_REJECTIONS = 60
_UNUSED = (drop_output, drop_unexecuted)
_SETTINGS = (inline_fields, inline_constants, drop_async)
_STRUCTURE = (
    inline_unpacking,
    inline_methods,
    inline_registered,
    keep_first_element,  # what is in a list is no class's only object
    inline_first_items,
    inline_functions,
    inline_single_instance,
    drop_fields,
    inline_constants,
    drop_parameters,
)
_BLOCKS = (unwrap_blocks, drop_variable_hints)
_EXPRESSIONS = (drop_decorators, keep_one_name, drop_keywords)
_NAMES = (inline_variables, functions_to_lambdas)
_LAST = (drop_elements, keep_any_part)  # they take most questions for what they leave out
_ALONE = (drop_unneeded, drop_any_statement, merge_imports, shrink_numbers)
RULES = frozenset((*_UNUSED, *_SETTINGS, *_STRUCTURE, *_BLOCKS, *_EXPRESSIONS, *_NAMES, *_LAST, *_ALONE))


def smallest(program: Program, state: ReductionState) -> Reducing:
    """Return the smallest program that was found, after at most MOST_ROUNDS rounds whatever the answers."""
    for rule in _UNUSED:
        program = yield from in_halves(program, [rule], state)
    program = yield from step_by_step(program, _SETTINGS, state)
    for turn in range(MOST_ROUNDS):
        before = program.source
        state.max_rejections = FIRST_REJECTIONS << turn
        state.blocked.clear()
        program = yield from _less_structure(program, state)
        program = yield from in_halves(program, [drop_any_statement], state, repairs=True)
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
        program = yield from in_halves(program, [drop_unneeded], state, repairs=True)
        program = yield from in_halves(program, _BLOCKS, state, grows=True)
        program = yield from step_by_step(program, _STRUCTURE, state)
        if program.source == before:
            break
    return program


def _plainer(program: Program, state: ReductionState) -> Reducing:
    """Return the program with smaller expressions, in fewer lines."""
    for rule in _EXPRESSIONS:
        program = yield from in_halves(program, [rule], state)
    program = yield from in_halves(program, [merge_imports], state, grows=True)
    program = yield from step_by_step(program, _NAMES, state)
    program = yield from in_halves(program, [shrink_numbers], state)
    for rule in _LAST:
        program = yield from in_halves(program, [rule], state, at_once=1)
    return program
