"""The order in which edits are tried: what removes most for a question first, and again while anything helps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whichtorch.matrix.triage.minimise.deletion import annotated, any_statement, chatter, decorators, heirs, idle
from whichtorch.matrix.triage.minimise.dissolving import bases_merged, classes_dissolved
from whichtorch.matrix.triage.minimise.expressions import (
    elements,
    keywords,
    peeled,
    peeled_anywhere,
    plain_names,
    smaller_numbers,
)
from whichtorch.matrix.triage.minimise.first_items import first_items, lambdas_called, lists_of_one, sole_objects
from whichtorch.matrix.triage.minimise.inlining import functions_inlined, lambdas, parameters_unused
from whichtorch.matrix.triage.minimise.members import (
    fields_unread,
    methods_inlined,
    registered,
    spread,
)
from whichtorch.matrix.triage.minimise.searching import in_halves, step_by_step
from whichtorch.matrix.triage.minimise.settings import constants, fields
from whichtorch.matrix.triage.minimise.slices import unneeded
from whichtorch.matrix.triage.minimise.unwrapping import in_step, unwrapped
from whichtorch.matrix.triage.minimise.variables import aliases, modules_merged, read_once

if TYPE_CHECKING:
    from whichtorch.matrix.triage.minimise.rewriting import Program
    from whichtorch.matrix.triage.minimise.searching import Reducing, ReductionState

MOST_ROUNDS = 12
FIRST_REJECTIONS = 4  # in a row, of one kind of edit: what is left is tried again later, with more of them
MOST_REJECTIONS = 60
_SETTINGS = (fields, constants, in_step)
_STRUCTURE = (
    spread,
    methods_inlined,
    registered,
    lists_of_one,  # what is in a list is no class's only object
    lambdas_called,
    first_items,
    functions_inlined,
    bases_merged,
    sole_objects,
    classes_dissolved,
    fields_unread,
    aliases,
    constants,
    parameters_unused,
)


def smallest(program: Program, state: ReductionState) -> Reducing:
    """Return the smallest program that was found, after at most MOST_ROUNDS rounds whatever the answers."""
    for rule in (chatter, idle):
        program = yield from in_halves(program, [rule], state)
    program = yield from step_by_step(program, _SETTINGS, state)
    for turn in range(MOST_ROUNDS):
        before = program.source
        state.max_rejections = FIRST_REJECTIONS << turn
        state.blocked.clear()
        program = yield from _less_structure(program, state)
        program = yield from in_halves(program, [any_statement], state, repairs=True)
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
        program = yield from in_halves(program, [unneeded], state, repairs=True)
        program = yield from in_halves(program, [unwrapped, annotated], state, grows=True)
        program = yield from step_by_step(program, _STRUCTURE, state)
        if program.source == before:
            break
    return program


def _plainer(program: Program, state: ReductionState) -> Reducing:
    """Return the program with smaller expressions, in fewer lines."""
    for rule in (decorators, plain_names, peeled, keywords):
        program = yield from in_halves(program, [rule], state)
    program = yield from in_halves(program, [modules_merged], state, grows=True)
    program = yield from step_by_step(program, (read_once, lambdas), state)
    program = yield from in_halves(program, [smaller_numbers], state)
    program = yield from in_halves(program, [heirs], state, at_once=1)
    program = yield from in_halves(program, [elements], state, at_once=2)
    return (yield from in_halves(program, [peeled_anywhere], state, at_once=1))
