"""Trials side by side: what is run ahead changes neither the answer of a search nor what it asks for."""

import json
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fix.packages import effect, independent
from tests.patience import PATIENCE
from whichtorch.base.errors import PreventedError
from whichtorch.fix.closure import Closure
from whichtorch.fix.cure_search import GUESS, CureSearch, Trial, each_once, in_words, inquiry, smallest
from whichtorch.fix.units import Proposal, Unit
from whichtorch.search.runs_oracle import BudgetSpentError, Deferred, Journal, RunsOracle, WorkerPool, drive

NAMES = [f"f{number:02}" for number in range(14)]
CHANGE = independent(NAMES)
UNITS = list(CHANGE.units(["torch/m.py"]))


def applied(files: Mapping[str, str | None]) -> frozenset[str]:
    """Return the functions that a trial's files have from the good release."""
    text = files["torch/m.py"] or ""
    return frozenset(name for name in NAMES if f"def {name}():\n    return 1\n" in text)


@dataclass
class Stand:
    """Stands in for the runs of a script, counts them, and searches."""

    folder: Path
    answer: Callable[[frozenset[str]], Trial]
    jobs: int = 1
    most: int | None = None
    ran: list[frozenset[str]] = field(default_factory=list)  # as they began
    said: list[str] = field(default_factory=list)
    stopped: threading.Event = field(default_factory=threading.Event)
    most_at_once: int = 0
    _running: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, files: Mapping[str, str | None]) -> Trial:
        names = applied(files)
        with self._lock:
            self.ran.append(names)
            self._running += 1
            self.most_at_once = max(self.most_at_once, self._running)
        try:
            return self.answer(names)
        finally:
            with self._lock:
                self._running -= 1

    @contextmanager
    def oracle(self) -> Iterator[RunsOracle[Proposal, Trial]]:
        with RunsOracle(
            inquiry=partial(inquiry, CHANGE, "q", self.run),
            journal=Journal(self.folder / "trials.jsonl", Trial),
            pool=WorkerPool(self.jobs, self.stopped.set),
            guess=GUESS,
            answered=lambda proposal, trial: self.said.append(in_words(oracle.made, proposal, trial)),
            most=self.most,
        ) as oracle:
            yield oracle
        assert self._running == 0

    def search(self) -> tuple[set[str] | None, RunsOracle[Proposal, Trial]]:
        """Return the names of the smallest cure, and the oracle."""
        closure = Closure(CHANGE)
        with self.oracle() as oracle:
            cure = drive(CureSearch(closure).run(UNITS), oracle, lambda: CureSearch(closure).run(UNITS))
            if cure is None:
                return None, oracle
            least = drive(smallest(cure, closure), oracle, lambda: smallest(cure, closure))
        return {unit.name for unit in least.units}, oracle

    def kept(self) -> list[str]:
        """Return the keys in the journal, each line of which must be whole."""
        return [json.loads(line)["key"] for line in (self.folder / "trials.jsonl").read_text().splitlines()]


@given(
    cure=st.sets(st.sampled_from(NAMES), min_size=1, max_size=3),
    poison=st.sets(st.sampled_from(NAMES), max_size=2),
    pace=st.integers(0, 5),
)
@settings(max_examples=25, deadline=None)
def test_any_number_of_jobs_gives_one_answer(cure: set[str], poison: set[str], pace: int) -> None:
    """The cure, and the trials that were asked for in their order, are those of one job."""

    def answer(names: frozenset[str]) -> Trial:
        time.sleep(sum(map(NAMES.index, names)) * pace % 4 / 2000)  # so that they end in another order
        return effect(names, cure, poison - cure)

    expected = None
    for jobs in (1, 2, 4):
        with tempfile.TemporaryDirectory() as folder:
            stand = Stand(Path(folder), answer, jobs)
            found, oracle = stand.search()
            expected = expected or (found, stand.said)
            assert (found, stand.said) == expected
            assert stand.most_at_once <= jobs
            assert len(stand.ran) == len(set(stand.ran)) == len(stand.kept()) == oracle.made + oracle.ahead
            assert jobs > 1 or oracle.ahead == 0


def test_a_wrong_guess(tmp_path: Path) -> None:
    """What was begun because no cure was expected is kept, counted apart, and has no say in the answer."""
    second = threading.Event()

    def answer(names: frozenset[str]) -> Trial:
        if names != {NAMES[0]}:
            second.set()
        assert second.wait(PATIENCE)
        return effect(names, {NAMES[0]}, set())

    stand = Stand(tmp_path, answer, jobs=2)
    found, oracle = stand.search()
    assert (found, oracle.made) == ({NAMES[0]}, 1)
    assert stand.ran[:2] == [{NAMES[0]}, {NAMES[1]}]
    assert len(stand.kept()) == len(stand.ran) == 1 + oracle.ahead


def test_a_right_guess(tmp_path: Path) -> None:
    """Two trials run side by side where the first one cures nothing: neither ends before the other has begun."""
    both = threading.Barrier(2)

    def answer(names: frozenset[str]) -> Trial:
        if names <= set(NAMES[:2]):
            both.wait(PATIENCE)
        return effect(names, {NAMES[1]}, set())

    found, oracle = Stand(tmp_path, answer, jobs=2).search()
    assert (found, oracle.made) == ({NAMES[1]}, 2)


def test_a_forecast_asks_for_no_run(tmp_path: Path) -> None:
    """What only a run tells is found out when the search itself asks: a cure among what is known comes first."""

    def later() -> list[Unit]:
        raise AssertionError("nobody asked")

    tiers: list[Callable[[], list[Unit]]] = [lambda: UNITS[:2], Deferred(later)]
    stand = Stand(tmp_path, lambda names: effect(names, {NAMES[1]}, set()), jobs=4)
    closure = Closure(CHANGE)
    seen: dict[Unit, None] = {}
    with stand.oracle() as oracle:
        cure = drive(
            CureSearch(closure).run(each_once(tiers, seen)),
            oracle,
            lambda: CureSearch(closure).run(each_once(tiers, {})),
        )
    assert cure is not None
    assert list(seen) == UNITS[:2]


@pytest.mark.parametrize("jobs", [1, 2, 4])
def test_the_budget_counts_all_runs(tmp_path: Path, jobs: int) -> None:
    """Runs ahead use up the budget as others do; more of it goes on where it ended."""
    stand = Stand(tmp_path, lambda names: effect(names, {"none"}, set()), jobs=jobs, most=3)
    with pytest.raises(BudgetSpentError):
        stand.search()
    assert len(stand.ran) == 3
    stand.most = None
    assert stand.search()[0] is None
    assert len(stand.ran) == len(set(stand.ran))


def test_an_interrupt(tmp_path: Path) -> None:
    """It ends what runs, keeps what has ended, and the same search goes on from there."""
    second = threading.Event()
    main = threading.main_thread().ident
    assert main == threading.get_ident()

    def answer(names: frozenset[str]) -> Trial:
        if names == {NAMES[0]} and not stand.stopped.is_set():
            assert second.wait(PATIENCE)
            signal.pthread_kill(main, signal.SIGINT)
            assert stand.stopped.wait(PATIENCE)
            raise KeyboardInterrupt
        if names != {NAMES[1]} and not stand.stopped.is_set():
            assert stand.stopped.wait(PATIENCE)
            raise KeyboardInterrupt
        time.sleep(0.1)  # until the main thread waits
        second.set()
        return effect(names, {NAMES[4]}, set())

    stand = Stand(tmp_path, answer, jobs=2)
    with pytest.raises(KeyboardInterrupt):
        stand.search()
    assert len(stand.kept()) == 1
    assert stand.search()[0] == {NAMES[4]}
    assert stand.ran.count(frozenset({NAMES[1]})) == 1
    assert len(stand.kept()) == len(set(stand.kept()))


@pytest.mark.parametrize("place", [0, 1])
def test_a_run_ahead_that_fails(tmp_path: Path, place: int) -> None:
    """It fails the search only where its trial is asked for."""
    second = threading.Event()

    def answer(names: frozenset[str]) -> Trial:
        if names == {NAMES[1]}:
            second.set()
            raise PreventedError("no memory")
        assert second.wait(PATIENCE)
        return effect(names, {NAMES[place]}, set())

    stand = Stand(tmp_path, answer, jobs=2)
    if place == 0:
        assert stand.search()[0] == {NAMES[0]}
    else:
        with pytest.raises(PreventedError):
            stand.search()
