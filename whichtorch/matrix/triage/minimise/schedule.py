"""The order in which edits are tried: what removes most for a question first, and again while anything helps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whichtorch.matrix.triage.minimise import deletion, expressions, inlining, members, unwrapping, variables
from whichtorch.matrix.triage.minimise.dependencies import drop_unneeded
from whichtorch.matrix.triage.minimise.edit_search import in_halves, step_by_step
from whichtorch.matrix.triage.minimise.single_instance import inline_single_instance

if TYPE_CHECKING:
    from whichtorch.matrix.triage.minimise.edit_search import Reducing, ReductionState
    from whichtorch.matrix.triage.minimise.tree_edit import Program

MOST_ROUNDS = 12
FIRST_REJECTIONS = 4  # in a row, of one kind of edit: what is left is tried again later, with more of them
MOST_REJECTIONS = 60
_UNUSED = (deletion.drop_output, deletion.drop_unexecuted)
_SETTINGS = (variables.inline_fields, variables.inline_constants, unwrapping.drop_async)
_STRUCTURE = (
    members.inline_unpacking,
    members.inline_methods,
    members.inline_registered,
    unwrapping.keep_first_element,  # an object in a list does not count as a class's only one
    unwrapping.inline_first_items,
    inlining.inline_functions,
    inline_single_instance,
    members.drop_fields,
    variables.inline_constants,
    inlining.drop_parameters,
)
_BLOCKS = (unwrapping.unwrap_blocks, deletion.drop_variable_hints)
_EXPRESSIONS = (deletion.drop_decorators, expressions.keep_one_name, expressions.drop_keywords)
_NAMES = (variables.inline_variables, inlining.functions_to_lambdas)
_LAST = (expressions.drop_elements, expressions.keep_any_part)  # they take the most questions for what they leave out
_ALONE = (drop_unneeded, deletion.drop_any_statement, variables.merge_imports, expressions.shrink_numbers)
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
        program = yield from in_halves(program, [deletion.drop_any_statement], state, repairs=True)
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
    program = yield from in_halves(program, [variables.merge_imports], state, grows=True)
    program = yield from step_by_step(program, _NAMES, state)
    program = yield from in_halves(program, [expressions.shrink_numbers], state)
    for rule in _LAST:
        program = yield from in_halves(program, [rule], state, at_once=1)
    return program
