"""The cells of a matrix, measured: the environments of each test take turns in one series."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from whichtorch.matrix.environments.provider import lent
from whichtorch.matrix.errors import why_stopped
from whichtorch.matrix.events import CellDone, EnvironmentReady, Interrupted, NumbersCompared
from whichtorch.matrix.grouping import grouped
from whichtorch.matrix.records.known_records import Records
from whichtorch.matrix.run.pipeline import opened_run
from whichtorch.matrix.run.signals import answering
from whichtorch.matrix.trial.interleaving import Series, measured_cell, opened_meter

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from whichtorch.matrix.events import Show
    from whichtorch.matrix.measure.measure import Measure
    from whichtorch.matrix.model import Environment
    from whichtorch.matrix.plan.planning import Plan, PlannedCell
    from whichtorch.matrix.records.store import RunStore
    from whichtorch.matrix.run.site import LocalSite, ThisMachine
    from whichtorch.matrix.trial.sample import NoNumberError


@contextmanager
def measured_run(
    planned: Plan, measures: tuple[Measure, ...], machines: ThisMachine, show: Show
) -> Iterator[tuple[RunStore, tuple[str, ...]]]:
    """Measure the cells of a plan in a stored run, test by test; yield the run, still open, and notes on the numbers.

    An interrupt ends it, with what was measured kept.
    """
    with opened_run(machines.environments.home, len(planned)) as store:
        notes: dict[str, None] = {}
        with show(len(planned)) as emit, machines.site(Records(), store, emit) as site, ExitStack() as held:
            try:
                with answering(site.running_lines, emit, lambda: site.running):
                    environments = _acquired(planned, site, held)
                    tests = grouped(enumerate(planned), lambda placed: (placed[1].scenario.source_hash, placed[1].name))
                    for cells in tests.values():
                        notes |= dict.fromkeys(_measure(dict(cells), environments, measures, site))
            except KeyboardInterrupt as interrupt:
                emit(Interrupted(why=why_stopped(interrupt)))
                store.run = store.run.model_copy(update={"interrupted": True})
        yield store, tuple(notes)


def _acquired(planned: Plan, site: LocalSite, held: ExitStack) -> Mapping[tuple[str, ...], Environment]:
    """Make the environments of a plan ready, by the keys of their requests."""
    environments: dict[tuple[str, ...], Environment] = {}
    for request, tests in zip(planned.requests, planned.tests, strict=True):
        made = held.enter_context(lent(site.environments, request, site.emit))
        environment = environments[request.key] = site.with_variables(request, made)
        site.store.add_environment(environment)
        site.emit(EnvironmentReady(environment=environment, cells=len(tests)))
    return environments


def _measure(
    cells: Mapping[int, PlannedCell],
    environments: Mapping[tuple[str, ...], Environment],
    measures: tuple[Measure, ...],
    site: LocalSite,
) -> Sequence[str]:
    """Measure one test in its environments, and store a cell of each, by its position; return notes on the numbers.

    An interrupt passes through, after what was measured is stored.
    """
    first, own = next(iter(cells.values())), [environments[cell.request.key] for cell in cells.values()]
    usable = [environment for environment in own if environment.is_usable]
    own_cells = {environment.id: cell for environment, cell in zip(own, cells.values(), strict=True)}
    site.store.add_scenario(first.scenario)
    missing: dict[str, NoNumberError] = {}
    notes: Sequence[str] = ()
    series: Series | None = None
    interrupt: KeyboardInterrupt | None = None
    while usable:
        with opened_meter(site, own_cells, usable[0], measures, len(usable)) as meter:
            series = Series(meter=meter, environments=usable)
            try:
                series.run(_is_decided)
            except KeyboardInterrupt as stopped:
                interrupt = stopped
            notes = tuple(meter.notes)
        missing |= series.missing
        if usable[0].id not in series.missing or interrupt:
            break
        usable = usable[1:]  # without a reference, there is nothing to compare with
    for (position, cell), environment in zip(cells.items(), own, strict=True):
        numbers = [series.measurement(each, environment) for each in measures] if series else []
        seconds = series.seconds if series else 0.0
        known = tuple(filter(None, numbers))
        if done := measured_cell(cell, environment, known, missing.get(environment.id), seconds):
            site.store.add_cell(done, [], position)
            site.emit(CellDone(environment=environment, cell=done))
    if interrupt:
        raise interrupt
    return notes


def _is_decided(series: Series) -> bool:
    """Return whether each number is told from the reference's, or is known to be alike; tell what is known so far."""
    is_done = True
    for environment in series.environments[1:]:
        words = []
        for measure in series.meter.measures:
            found = series.difference(measure, environment)
            is_done = is_done and (
                environment.id in series.missing or (found is not None and measure.threshold.is_decided(found))
            )
            words += [f"{measure.name} {measure.words(found)}"] if found else []
        if words:
            series.meter.emit(
                NumbersCompared(environment=environment.label, reference=series.reference.label, what=", ".join(words))
            )
    return is_done
