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
    shorter_strings,
    smaller_numbers,
)
from whichtorch.matrix.triage.minimise.first_items import first_items, lambdas_called, lists_of_one, sole_objects
from whichtorch.matrix.triage.minimise.inlining import functions_inlined, lambdas, parameters_unused, returns_merged
from whichtorch.matrix.triage.minimise.members import (
    entries,
    fields_unread,
    methods_inlined,
    registered,
    scattered,
    spread,
)
from whichtorch.matrix.triage.minimise.searching import in_halves, step_by_step
from whichtorch.matrix.triage.minimise.settings import constants, fields, options
from whichtorch.matrix.triage.minimise.slices import unneeded
from whichtorch.matrix.triage.minimise.unwrapping import in_step, otherwise_unwrapped, unwrapped
from whichtorch.matrix.triage.minimise.variables import aliases, modules_merged, read_once

if TYPE_CHECKING:
    from whichtorch.matrix.triage.minimise.rewriting import Program
    from whichtorch.matrix.triage.minimise.searching import Knowledge, Reducing

MOST_ROUNDS = 12
FIRST_PATIENCE = 4  # refusals in a row, of one kind of edit: what is left is tried again later, with more patience
MOST_PATIENCE = 60
_SETTINGS = (options, fields, constants, in_step)
_STRUCTURE = (
    returns_merged,
    spread,
    methods_inlined,
    registered,
    entries,
    lists_of_one,  # what is in a list is no class's only object
    lambdas_called,
    first_items,
    functions_inlined,
    bases_merged,
    sole_objects,
    classes_dissolved,
    scattered,
    fields_unread,
    aliases,
    constants,
    parameters_unused,
)


def smallest(program: Program, facts: Knowledge) -> Reducing:
    """Return the smallest program that was found, after at most MOST_ROUNDS rounds whatever the answers."""
    program = yield from in_halves(program, chatter(program, facts), facts)
    program = yield from in_halves(program, idle(program, facts), facts)
    program = yield from step_by_step(program, _SETTINGS, facts)
    for turn in range(MOST_ROUNDS):
        before = program.source
        facts.patience = FIRST_PATIENCE << turn
        facts.blocked.clear()
        program = yield from _less_structure(program, facts)
        program = yield from in_halves(program, any_statement(program, facts), facts, repairs=True)
        program = yield from _less_structure(program, facts)
        program = yield from _plainer(program, facts)
        if program.source == before:
            facts.refused.clear()
            if facts.patience > MOST_PATIENCE:
                break
    return program


def _less_structure(program: Program, facts: Knowledge) -> Reducing:
    """Return the program with less structure around fewer statements."""
    for _ in range(MOST_ROUNDS):
        before = program.source
        program = yield from in_halves(program, unneeded(program, facts), facts, repairs=True)
        blocks = [*unwrapped(program, facts), *annotated(program, facts)]
        program = yield from in_halves(program, blocks, facts, grows=True)
        program = yield from step_by_step(program, _STRUCTURE, facts)
        if program.source == before:
            break
    return program


def _plainer(program: Program, facts: Knowledge) -> Reducing:
    """Return the program with smaller expressions, in fewer lines."""
    program = yield from in_halves(program, decorators(program, facts), facts)
    program = yield from in_halves(program, plain_names(program, facts), facts)
    program = yield from in_halves(program, peeled(program, facts), facts)
    program = yield from in_halves(program, keywords(program, facts), facts)
    program = yield from in_halves(program, modules_merged(program, facts), facts, grows=True)
    program = yield from step_by_step(program, (read_once, lambdas), facts)
    program = yield from in_halves(program, smaller_numbers(program, facts), facts)
    program = yield from in_halves(program, otherwise_unwrapped(program, facts), facts, at_once=1, grows=True)
    program = yield from in_halves(program, heirs(program, facts), facts, at_once=1)
    program = yield from in_halves(program, elements(program, facts), facts, at_once=2)
    program = yield from in_halves(program, peeled_anywhere(program, facts), facts, at_once=1)
    return (yield from in_halves(program, shorter_strings(program, facts), facts))
