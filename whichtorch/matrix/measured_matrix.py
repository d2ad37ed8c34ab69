"""The cells of a matrix, measured: the environments of each test take turns in one series."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from whichtorch.base.errors import why_stopped
from whichtorch.base.grouping import grouped
from whichtorch.matrix.interleaving import Meter, Series, measured_cell
from whichtorch.matrix.lab import Lab, opened_lab
from whichtorch.model.events import CellDone, EnvironmentReady, Interrupted, NumbersCompared, Show
from whichtorch.records.known_records import Records

if TYPE_CHECKING:
    from whichtorch.matrix.planning import Plan, PlannedCell
    from whichtorch.matrix.sample import NoNumberError
    from whichtorch.matrix.site import ThisMachine
    from whichtorch.measure.measure import Measure
    from whichtorch.model import Environment
    from whichtorch.records.store import RunStore


@contextmanager
def measured_run(
    planned: Plan, measures: tuple[Measure, ...], machines: ThisMachine, show: Show
) -> Iterator[tuple[RunStore, tuple[str, ...]]]:
    """Measure the cells of a plan in a stored run, test by test; yield the run, still open, and notes on the numbers.

    An interrupt ends it, with what was measured kept.
    """
    notes: dict[str, None] = {}
    with opened_lab(machines, Records(), show, len(planned)) as lab:
        with lab.shown(len(planned)):
            try:
                environments = _acquired(planned, lab)
                tests = grouped(enumerate(planned), lambda placed: (placed[1].scenario.source_hash, placed[1].name))
                for cells in tests.values():
                    notes |= dict.fromkeys(_measure(dict(cells), environments, measures, lab))
            except KeyboardInterrupt as interrupt:
                lab.site.emit(Interrupted(why=why_stopped(interrupt)))
                lab.store.run = lab.store.run.model_copy(update={"interrupted": True})
        yield lab.store, tuple(notes)


def _acquired(planned: Plan, lab: Lab) -> Mapping[tuple[str, ...], Environment]:
    """Make the environments of a plan ready, by the keys of their requests."""
    environments: dict[tuple[str, ...], Environment] = {}
    for request, tests in zip(planned.requests, planned.tests, strict=True):
        environment = environments[request.key] = lab.site.with_variables(request, lab.acquire(request))
        lab.store.add_environment(environment)
        lab.site.emit(EnvironmentReady(environment=environment, cells=len(tests)))
    return environments


def _measure(
    cells: Mapping[int, PlannedCell],
    environments: Mapping[tuple[str, ...], Environment],
    measures: tuple[Measure, ...],
    lab: Lab,
) -> Sequence[str]:
    """Measure one test in its environments, and store a cell of each, by its position; return notes on the numbers.

    An interrupt passes through, after what was measured is stored.
    """
    first, own = next(iter(cells.values())), [environments[cell.request.key] for cell in cells.values()]
    usable = [environment for environment in own if environment.is_usable]
    own_cells = {environment.id: cell for environment, cell in zip(own, cells.values(), strict=True)}
    lab.store.add_scenario(first.scenario)
    missing: dict[str, NoNumberError] = {}
    notes: Sequence[str] = ()
    series: Series | None = None
    interrupt: KeyboardInterrupt | None = None
    while usable:
        meter = Meter.of(lab, own_cells, usable[0], measures)
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
            lab.store.add_cell(done, [], position)
            lab.site.emit(CellDone(environment=environment, cell=done))
    if interrupt:
        raise interrupt
    return notes


def _is_decided(series: Series) -> bool:
    """Return whether each number is told from the reference's, or is known to be alike; tell what is known so far."""
    is_done = True
    for environment in series.environments[1:]:
        words = []
        for measure in series.meter.measures:
            found, by = series.difference(measure, environment), series.meter.by_basis(measure)
            is_done = is_done and (
                environment.id in series.missing or (found is not None and by.threshold.is_decided(found))
            )
            words += [f"{measure.name} {by.words(found)}"] if found else []
        if words:
            series.meter.emit(
                NumbersCompared(environment=environment.label, reference=series.reference.label, what=", ".join(words))
            )
    return is_done
