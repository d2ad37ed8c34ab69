"""Series of measured runs: who runs when, what is compared, and what becomes of environments without a number."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import cast

import pytest

from tests.results import environment
from whichtorch.matrix.interleaving import Meter, Series
from whichtorch.matrix.lab import Runner
from whichtorch.matrix.sample import NoNumberError, Part, Sample
from whichtorch.measure.measure import measures_named
from whichtorch.model import Basis, Effect, Environment, MachineState
from whichtorch.search.step_search import FIRST_LOOK

OLD, NEW, OTHER = (environment(version) for version in ("2.1.0", "2.2.0", "2.3.0"))


class FakeMeter(Meter):
    """Answers with what `run` says of an environment and the number of its run, and how long that waited for a core."""

    def __init__(
        self, run: Callable[[Environment, int], float | Sample], most: int = 12, name: str = "loss", **options: str
    ) -> None:
        given: dict[str, str | None] = {"pattern": None, "worse": None}
        measures = measures_named([name], **(given | options))
        super().__init__(runner=cast("Runner", None), cells={}, measures=measures, most=most)
        self.answer = run
        self.runs: list[tuple[str, int]] = []  # version and seed
        self.rounds: list[int] = []  # of each run

    def sample(self, environment: Environment, seed: int, round_number: int) -> Sample:
        self.runs.append((environment.torch, seed))
        self.rounds.append(round_number)
        value = self.answer(environment, [version for version, _ in self.runs].count(environment.torch))
        return value if isinstance(value, Sample) else Sample(values={self.measures[0].name: value})


def waiting(value: float, waited: float, *, cpu: float = 1.0, threads: int = 1, name: str = "ms") -> Sample:
    """Return a run that waited for a core for a share of its time."""
    parts, machine = {name: Part(cpu=cpu, waited=waited)}, MachineState(waited=waited)
    return Sample(values={name: value}, parts=parts, threads=threads, machine=machine)


def series(meter: FakeMeter, *environments: Environment) -> Series:
    return Series(meter=meter, environments=environments or (OLD, NEW))


def never(_series: Series) -> bool:
    return False


def test_environments_take_turns() -> None:
    """A round has a run of each, all with one seed, and every second round is the one before, turned around."""
    meter = FakeMeter(lambda _environment, _number: 1.0)
    series(meter, OLD, NEW, OTHER).run(never)
    rounds = [meter.runs[start : start + 3] for start in range(0, 36, 3)]
    assert [version for version, _ in rounds[0]] == [OLD.torch, NEW.torch, OTHER.torch]
    for number, each in enumerate(rounds, start=1):
        assert {version for version, _ in each} == {OLD.torch, NEW.torch, OTHER.torch}
        assert {seed for _, seed in each} == {number}
    for there, back in zip(rounds[::2], rounds[1::2], strict=True):
        assert [version for version, _ in back] == [version for version, _ in reversed(there)]
    assert len({tuple(version for version, _ in each) for each in rounds}) > 2


def test_a_later_series_has_other_seeds() -> None:
    """What a seed of hashes costs is no part of what many series say together; its rounds begin at 1 again."""
    meter = FakeMeter(lambda _environment, _number: 1.0)
    Series(meter=meter, environments=(OLD, NEW), rounds_before=40).run(never)
    assert {seed for _, seed in meter.runs} == set(range(41, 53))
    assert set(meter.rounds) == set(range(1, 13))


def test_a_drift_of_the_machine_cancels_out() -> None:
    """Each run of all takes 1 % more than the one before; the two environments do not differ."""
    made: list[int] = []

    def slower(_environment: Environment, _number: int) -> float:
        made.append(0)
        return 1.01 ** len(made)

    done = series(FakeMeter(slower, most=40)).run(never)
    measure = done.meter.measures[0]
    found = done.difference(measure, NEW)
    assert found is not None
    assert found.low < 0 < found.high


def test_a_series_ends_when_it_is_told() -> None:
    """It is asked after three rounds, and then at each look."""
    asked: list[int] = []

    def is_enough(so_far: Series) -> bool:
        asked.append(so_far.rounds)
        return so_far.rounds >= 18

    done = series(FakeMeter(lambda _environment, _number: 1.0, most=96)).run(is_enough)
    assert (asked, done.rounds) == ([3, 4, 6, 9, 14, 21], 21)


def test_a_measurement_has_its_change_from_the_reference() -> None:
    """The reference has none, and all runs are kept, in order."""
    dice = random.Random(29)
    meter = FakeMeter(lambda where, _number: (1.2 if where is NEW else 1.0) * (1 + dice.gauss(0, 0.01)), worse="10%")
    done = series(meter).run(never)
    reference, other = (done.measurement(meter.measures[0], each) for each in (OLD, NEW))
    assert reference is not None
    assert other is not None
    assert (reference.reference, reference.change, reference.effect) == ("", None, None)
    assert (other.reference, other.effect, other.threshold) == (OLD.label, Effect.WORSE, 0.1)
    assert other.change is not None
    assert other.change[1] < 0.2 < other.change[2]
    assert len(other.samples) == len(reference.samples) == 12


def test_one_run_without_a_number_is_made_again() -> None:
    """A second one in a row leaves the environment out, and the others go on."""

    def sometimes(where: Environment, number: int) -> float:
        if (where is NEW and number == 5) or (where is OTHER and number in {3, 4}):
            raise NoNumberError("it prints no loss")
        return 1.0

    done = series(FakeMeter(sometimes), OLD, NEW, OTHER).run(never)
    assert set(done.missing) == {OTHER.id}
    measure = done.meter.measures[0]
    assert [len(done.values(measure, each)) for each in (OLD, NEW, OTHER)] == [12, 12, 0]
    assert done.measurement(measure, OTHER) is None


def test_without_its_reference_a_series_ends() -> None:
    """There is nothing to compare with."""

    def fails(where: Environment, _number: int) -> float:
        if where is OLD:
            raise NoNumberError("it prints no loss")
        return 1.0

    meter = FakeMeter(fails, most=96)
    assert set(series(meter).run(never).missing) == {OLD.id}
    assert len(meter.runs) <= 4


@pytest.mark.parametrize("zero", [OLD, NEW])
def test_a_number_that_has_no_share_is_its_own_environments(zero: Environment) -> None:
    """The one whose number is 0 is left out, not the one that is compared with it."""
    done = series(FakeMeter(lambda where, _number: 0.0 if where is zero else 1.0))
    done.run(lambda so_far: so_far.difference(so_far.meter.measures[0], NEW) is not None)
    assert set(done.missing) == {zero.id}
    assert str(done.missing[zero.id]) == "loss is 0, and a share of that says nothing"


def test_a_run_that_waited_for_a_core_says_nothing_of_time() -> None:
    """Its round does not count, and the numbers are those of the others; a number that never changes always counts."""
    dice = random.Random(3)

    def now_and_then(where: Environment, number: int) -> Sample:
        is_hit = where is NEW and number % 3 == 0
        return waiting((2.0 + 50 * is_hit) * (1 + dice.gauss(0, 0.01)), 0.9 * is_hit)

    meter = FakeMeter(now_and_then, name="ms")
    found = series(meter).run(never).measurement(meter.measures[0], NEW)
    assert found is not None
    assert (len(found.samples), found.disturbed, found.basis) == (8, 4, Basis.ASKED)
    assert max(found.samples) < 3
    exact = FakeMeter(lambda _where, _number: waiting(2.0, 0.9), name="ms")
    assert series(exact).run(never).difference(exact.measures[0], NEW) is not None
    assert not exact.because


def test_where_most_runs_wait_one_thread_decides() -> None:
    """The runs so far do not count, and it is said why."""
    meter = FakeMeter(lambda where, number: answer(where, number), name="ms")
    dice = random.Random(3)

    def answer(where: Environment, number: int) -> Sample:
        if meter.is_single:
            return waiting(20 * (1 + dice.gauss(0, 0.005)), 0.0)
        return waiting(5000 if (number + (where is NEW)) % 2 else 30, 0.6, threads=2)

    done = series(meter, OLD, NEW).run(never)
    found = done.measurement(meter.measures[0], NEW)
    assert found is not None
    assert (found.effect, found.basis, done.rounds, len(meter.runs)) == (
        Effect.SAME,
        Basis.ONE_THREAD,
        12,
        2 * (3 + 12),
    )
    assert found.because.startswith("a core was missing for 60% of the time")


def test_cpu_time_of_several_threads_that_wait_is_measured_with_one() -> None:
    """They spin while they wait for each other; the CPU time of one thread is the same whoever waits."""
    dice = random.Random(3)

    def spins(_where: Environment, _number: int) -> Sample:
        if meter.is_single:
            return waiting(2 * (1 + dice.gauss(0, 0.005)), 0.5, name="cpu")
        return waiting(dice.uniform(2, 90), 0.6, threads=2, name="cpu")

    meter = FakeMeter(spins, name="cpu")
    done = series(meter, OLD, NEW).run(never)
    found = done.measurement(meter.measures[0], NEW)
    assert found is not None
    assert (found.effect, found.basis, found.disturbed, done.rounds) == (Effect.SAME, Basis.ONE_THREAD, 0, 12)
    assert found.because.endswith("CPU time cannot be measured beside this with two threads or more")


def test_where_one_thread_waits_cpu_time_decides() -> None:
    """In seconds, as a share of which more is worse, whatever the number was; it needs no more runs than others."""
    dice = random.Random(3)

    def busy(where: Environment, _number: int) -> Sample:
        return waiting(dice.uniform(20, 90), 0.5, cpu=(2.2 if where is NEW else 1.0) * (1 + dice.gauss(0, 0.02)))

    meter = FakeMeter(busy, name="ms")
    done = series(meter).run(lambda so_far: so_far.rounds >= FIRST_LOOK)
    found = done.measurement(meter.measures[0], NEW)
    assert found is not None
    assert found.change is not None
    assert (found.effect, found.basis, found.unit, len(meter.runs)) == (Effect.WORSE, Basis.CPU, "s", 2 * FIRST_LOOK)
    assert found.change[1] < 1.2 < found.change[2]
