"""The driver of a search, over fake environments: what runs, what counts, what it costs, what comes out."""

import threading
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.bisect.driving import (
    CRASHED,
    NOT_APPLICABLE,
    STUCK,
    Behaviour,
    EndOfRun,
    Executor,
    FakeReleases,
    Raises,
    as_listed,
    failing,
    versions,
)
from tests.cli.shell import wait_for
from tests.fakes import MOVING, PASSED
from whichtorch.base.grouping import counted
from whichtorch.bisect import ledger, workbench
from whichtorch.bisect.bisection import Bisection
from whichtorch.bisect.ledger import observations_of
from whichtorch.bisect.search_request import Budget
from whichtorch.matrix import planning
from whichtorch.matrix.cell_scheduler import CellScheduler
from whichtorch.matrix.lab import MatrixRun
from whichtorch.matrix.site import LocalSite
from whichtorch.model import Outcome, Record
from whichtorch.model.events import AttemptStarted, Event, Interrupted, ProbeChosen, StatusShown
from whichtorch.process.supervision import Ending, Task
from whichtorch.records.line_index import Records
from whichtorch.records.store import new_run
from whichtorch.search.search_state import AnswerKind, Change, Find, ProbeRun, Purpose, SearchOptions, SearchVerdict

AS_IT_WAS = Raises("AssertionError: as it was")
OTHER = Raises("ValueError: something else")
ABSENT = Raises("AttributeError: module 'torch' has no attribute 'compile'")
OLD = versions(8)[:3]  # 2.0.0 to 2.2.0
FAILS_IN_TWO_WAYS: dict[str, EndOfRun] = {**dict.fromkeys(OLD, STUCK), **dict.fromkeys(versions(8)[3:5], OTHER)}


def boundaries(bisection: Bisection) -> list[tuple[str, str, Change]]:
    return [(boundary.from_, boundary.to, boundary.change) for boundary in bisection.boundaries]


def verdicts(bisection: Bisection) -> dict[str, SearchVerdict]:
    return {probe.value: probe.verdict for probe in bisection.probes}


def test_a_fix_is_found(tmp_path: Path) -> None:
    """The boundary, the failure, and what each probe showed are told, and every record is on disk."""
    releases = FakeReleases(tmp_path, failing(OLD, AS_IT_WAS))
    bisection = releases.search()
    assert bisection.answer is AnswerKind.BOUNDARY
    assert boundaries(bisection) == [("2.2.0", "2.3.0", Change.FIX)]
    assert bisection.reference == (Outcome.FAIL, 'AssertionError "as it was" in <module> (repro.py:3)')
    assert [(probe.value, probe.outcome, probe.k, probe.n) for probe in bisection.probes] == [
        ("2.0.0", "fail", 3, 3),
        ("2.1.0", "fail", 1, 1),
        ("2.2.0", "fail", 2, 2),
        ("2.3.0", "pass", 5, 5),
        ("2.7.0", "pass", 1, 1),
    ]
    assert bisection.runs == sum(releases.runs.values()) == 12
    assert bisection.installs == len(bisection.probes) == 5
    assert bisection.order == ("2.0.0", "2.7.0", "2.3.0", "2.1.0", "2.2.0")


def test_a_second_run_costs_nothing(tmp_path: Path) -> None:
    """The same search again is answered from the records alone."""
    releases = FakeReleases(tmp_path, failing(OLD, STUCK))
    first = releases.search()
    before = releases.runs.copy()
    again = releases.search()
    assert releases.runs == before
    assert (again.runs, again.installs) == (0, 0)
    assert again.boundaries == first.boundaries
    assert [probe.reused for probe in again.probes] == [probe.n for probe in first.probes]
    assert all(probe.purpose is None for probe in again.probes)


def test_order_and_origin_of_the_evidence_do_not_matter(tmp_path: Path) -> None:
    """With any part of the records kept, in any order, the answer is the same and the rest is run again."""
    releases = FakeReleases(tmp_path, failing(OLD, AS_IT_WAS))
    first = releases.search()
    (file,) = tmp_path.glob("runs/*/records.jsonl")
    lines = file.read_text().splitlines(keepends=True)
    random = Random(4)
    for kept in range(0, len(lines) + 1, 2):
        for later in tmp_path.glob("runs/*/records.jsonl"):
            later.write_text("")
        file.write_text("".join(random.sample(lines, kept)))
        again = releases.search()
        assert boundaries(again) == boundaries(first)
        assert sum(probe.n for probe in again.probes) == again.runs + kept


def test_what_a_matrix_has_run_counts(tmp_path: Path) -> None:
    """A search begins from the cells of a matrix, and runs only what they leave open."""
    releases = FakeReleases(tmp_path, failing(OLD, STUCK))
    planned = planning.plan(releases.requests, [releases.scenario], planning.RunOptions())
    with new_run(tmp_path, ()) as store:
        site = LocalSite(releases.cache, Records(tmp_path), store, releases.events.append, Executor(releases))
        MatrixRun(planned, CellScheduler(site)).run()
    bisection = releases.search()
    assert boundaries(bisection) == [("2.2.0", "2.3.0", Change.FIX)]
    # Two more runs of the bad bound; of the final pair, one more of the version that fails and four of the other.
    assert bisection.runs == 7
    assert [probe.reused for probe in bisection.probes] == [1] * 8


def test_records_under_other_limits_do_not_count(tmp_path: Path) -> None:
    """Given another timeout, a search begins anew: a pass within 60 s says nothing about 30 s."""
    releases = FakeReleases(tmp_path, failing(OLD, STUCK))
    releases.search()
    releases.fields = {"timeout": 30}
    assert releases.search().runs == 12


def test_another_failure_is_neither_good_nor_bad(tmp_path: Path) -> None:
    """What fails in another way than the bad bound is shown as different, and lies inside the bracket."""
    releases = FakeReleases(tmp_path, as_listed(FAILS_IN_TWO_WAYS))
    bisection = releases.search(failure="HANG")
    assert boundaries(bisection) == [("2.2.0", "2.5.0", Change.FIX)]
    assert bisection.boundaries[0].different_between == ("2.3.0", "2.4.0")
    assert verdicts(bisection)["2.3.0"] is SearchVerdict.DIFFERENT


def test_the_newest_failure_is_searched_and_the_others_are_told(tmp_path: Path) -> None:
    """Where the oldest values fail in another way, the last failure before what passes now is meant; both are told."""
    listed: dict[str, EndOfRun] = {**dict.fromkeys(versions(8)[:2], OTHER), **dict.fromkeys(versions(8)[3:6], STUCK)}
    bisection = FakeReleases(tmp_path, as_listed(listed)).search()
    assert boundaries(bisection)[-1] == ("2.5.0", "2.6.0", Change.FIX)
    seen = [(stretch.values[0], stretch.outcome, stretch.verdict) for stretch in bisection.timeline]
    assert seen[0] == ("2.0.0", Outcome.FAIL, SearchVerdict.DIFFERENT)
    assert seen[-1] == (bisection.boundaries[-1].to, Outcome.PASS, SearchVerdict.GOOD)
    assert any(reason.startswith("also: another failure, fail in 2.0.0") for reason in bisection.reasons)


def test_any_failure_counts_where_that_is_asked_for(tmp_path: Path) -> None:
    """With any failure bad, a change of the failure is no boundary."""
    releases = FakeReleases(tmp_path, as_listed(FAILS_IN_TWO_WAYS))
    assert boundaries(releases.search(any_failure=True)) == [("2.4.0", "2.5.0", Change.FIX)]


def test_a_release_without_the_feature_is_untestable(tmp_path: Path) -> None:
    """A script's AttributeError on torch in old releases is no failure of theirs: the regression is found."""
    releases = FakeReleases(
        tmp_path, as_listed({**dict.fromkeys(OLD, ABSENT), **dict.fromkeys(versions(8)[5:], STUCK)})
    )
    bisection = releases.search()
    assert boundaries(bisection) == [("2.4.0", "2.5.0", Change.REGRESSION)]
    assert verdicts(bisection)["2.0.0"] is SearchVerdict.UNTESTABLE


def test_a_feature_that_was_taken_away_is_a_regression(tmp_path: Path) -> None:
    """Where something older passes and nothing else fails, the lack is what is searched."""
    releases = FakeReleases(tmp_path, failing(versions(8)[5:], ABSENT))
    assert boundaries(releases.search()) == [("2.4.0", "2.5.0", Change.REGRESSION)]


def test_a_feature_that_came_is_found_where_a_fix_is_asked_for(tmp_path: Path) -> None:
    """Asked for the fix of a lack, the release that brought it is named."""
    releases = FakeReleases(tmp_path, failing(OLD, ABSENT))
    assert boundaries(releases.search(SearchOptions(find=Find.FIX))) == [("2.2.0", "2.3.0", Change.FIX)]


@pytest.mark.parametrize(
    "missing",
    [
        "ModuleNotFoundError: No module named 'torchvision.transforms.functional_tensor'",
        "AttributeError: module 'torchvision.io' has no attribute 'read_video'",
        "ImportError: cannot import name 'read_video' from 'torchvision.io' (/env/torchvision/io/__init__.py)",
        "ModuleNotFoundError: No module named 'pkg_resources'",  # no package of that name is known
        "ImportError: libtorchvision.so.1: cannot open shared object file: No such file or directory",
        "OSError: /env/torchvision/_C.so: undefined symbol: _ZN5torch",
        "KeyError: 'nms'",  # of entry points
        "importlib.metadata.PackageNotFoundError: No package metadata was found for torchvision-extra",
    ],
)
def test_a_part_that_is_missing_does_not_end_the_search(tmp_path: Path, missing: str) -> None:
    """Of thirty releases the two that have it are found, though nothing can be installed before them."""
    thirty = versions(30)
    releases = FakeReleases(
        tmp_path, failing(thirty[7:], Raises(missing)), values=thirty, missing=frozenset(thirty[:5])
    )
    bisection = releases.search()
    assert boundaries(bisection) == [("2.6.0", "2.7.0", Change.REGRESSION)]
    assert len(bisection.probes) <= 12


def test_a_package_that_no_release_brings_is_asked_for(tmp_path: Path) -> None:
    """None of the failures is evidence, no release is blamed, and the sentence speaks of what was tried."""
    thirty = versions(30)
    needy = Raises("ModuleNotFoundError: No module named 'einops'")
    bisection = FakeReleases(tmp_path, failing(thirty, needy), values=thirty).search()
    assert (bisection.answer, bisection.boundaries) == (AnswerKind.INCONCLUSIVE, ())
    assert len(bisection.probes) < len(thirty)
    told = "fails wherever it was tried: module 'einops' is not installed; add --with einops"
    assert bisection.reasons[0] == told


def test_a_part_that_no_release_has_is_no_request_for_a_package(tmp_path: Path) -> None:
    """No release fixes it, and another one of its package may."""
    removed = Raises("ModuleNotFoundError: No module named 'torchvision.nothing'")
    bisection = FakeReleases(tmp_path, failing(versions(8), removed)).search()
    assert bisection.answer is AnswerKind.NONE
    told = "fails wherever it was tried: the installed 'torchvision' has no "
    assert bisection.reasons[0] == f"{told}'torchvision.nothing': bisect --package torchvision searches its releases"


def moving_until_longer(bad: tuple[str, ...], longer: EndOfRun) -> Behaviour:
    """Return the behaviour of versions that are still moving when the clock ends, but for the longer look."""

    def behave(version: str, _run: int, task: Task) -> EndOfRun:
        if version not in bad:
            return PASSED
        return MOVING if task.goal is None and (task.timeout or 0) <= 60 else longer

    return behave


def test_only_the_final_pair_pays_the_longer_look(tmp_path: Path) -> None:
    """What the clock ended while it moved is taken for a hang, until the boundary stands: there it is settled."""
    releases = FakeReleases(tmp_path, moving_until_longer(OLD, replace(MOVING, seconds=240.0)))
    bisection = releases.search()
    assert boundaries(bisection) == [("2.2.0", "2.3.0", Change.FIX)]
    longer = [task.name.partition("torch-")[2] for task in releases.tasks if task.goal is not None]
    assert set(longer) == {"2.2.0-pypi"}
    timeouts = [task.timeout for task in releases.tasks if task.name.endswith("2.0.0-pypi")]
    assert timeouts == [60, 10]  # what has hung before is looked at briefly, and twice is enough
    assert {probe.value: probe.outcome for probe in bisection.probes}["2.2.0"] == "hang"


def test_a_search_built_on_a_slow_run_that_passes_goes_back(tmp_path: Path) -> None:
    """What seemed to hang at the edge but ends well, given time, moves the boundary."""
    really = OLD[:2]

    def behave(version: str, run: int, task: Task) -> EndOfRun | None:
        if version in really:
            return STUCK
        return moving_until_longer(OLD, replace(PASSED, seconds=240.0))(version, run, task)

    assert boundaries(FakeReleases(tmp_path, behave).search()) == [("2.1.0", "2.2.0", Change.FIX)]


def test_a_vacuous_pass_is_no_evidence(tmp_path: Path) -> None:
    """A pass whose conditions nobody could observe says nothing: no boundary rests on it."""
    conditions = ({"op": "aten::mm"},)
    releases = FakeReleases(tmp_path, failing(OLD, STUCK), fields={"conditions": conditions})
    bisection = releases.search()
    assert bisection.answer is AnswerKind.INCONCLUSIVE
    assert verdicts(bisection)["2.7.0"] is SearchVerdict.UNTESTABLE
    assert verdicts(bisection)["2.0.0"] is SearchVerdict.BAD
    assert bisection.reasons[0] == "2 positions were tested, none of them newer than 2.2.0: all are bad"


def test_what_does_not_apply_is_run_once(tmp_path: Path) -> None:
    """A bound that says that the test does not apply there is not asked three times."""
    releases = FakeReleases(tmp_path, as_listed({"2.0.0": NOT_APPLICABLE, "2.1.0": CRASHED, "2.2.0": CRASHED}))
    bisection = releases.search()
    assert boundaries(bisection) == [("2.2.0", "2.3.0", Change.FIX)]
    assert releases.runs["2.0.0"] == 1


def test_what_cannot_be_installed_is_untestable(tmp_path: Path) -> None:
    """A bound without an environment is replaced, and what lies at the boundary is listed."""
    releases = FakeReleases(tmp_path, failing(OLD, STUCK), missing=frozenset({"2.2.0", "2.3.0", "2.7.0"}))
    bisection = releases.search()
    assert boundaries(bisection) == [("2.1.0", "2.4.0", Change.FIX)]
    assert bisection.boundaries[0].untestable_between == ("2.2.0", "2.3.0")
    assert {probe.value: probe.message for probe in bisection.probes}["2.7.0"] == "no wheel"


def test_an_index_in_the_way_ends_the_search_and_is_no_evidence(tmp_path: Path) -> None:
    """Installs that fail because the index is gone make no version untestable; later the search goes on."""
    releases = FakeReleases(tmp_path, failing(OLD, STUCK))
    releases.cache.missing = frozenset({"2.2.0", "2.3.0"})
    releases.cache.unreachable = "the index http://nowhere cannot be read: the connection is refused"
    bisection = releases.search()
    assert bisection.answer is AnswerKind.INCONCLUSIVE
    assert bisection.reasons[0] == releases.cache.unreachable
    assert [(boundary.from_, boundary.to, boundary.untestable_between) for boundary in bisection.boundaries] == [
        ("2.0.0", "2.7.0", ())
    ]
    assert set(verdicts(bisection)) == {"2.0.0", "2.7.0"}
    releases.cache.missing, releases.cache.unreachable = frozenset(), None
    assert boundaries(releases.search()) == [("2.2.0", "2.3.0", Change.FIX)]
    assert sum(releases.runs.values()) == 12


@pytest.mark.parametrize("jobs", [1, 2, 3])
@pytest.mark.parametrize("installs", [1, 2, 3])
def test_no_more_installs_than_allowed(tmp_path: Path, jobs: int, installs: int) -> None:
    """With the installs used up the search says so with its bracket, whatever runs at once; with more it goes on."""
    releases = FakeReleases(tmp_path, failing(versions(64)[:20], STUCK), values=versions(64))
    bisection = releases.search(budget=Budget(installs=installs), jobs=jobs)
    assert len(releases.cache.installed) == bisection.installs == installs
    assert bisection.answer is AnswerKind.INCONCLUSIVE
    assert bisection.reasons[0] == f"the limit of {counted(installs, 'install')} is reached"
    for boundary in bisection.boundaries:
        assert int(boundary.from_.split(".")[1]) < 20 <= int(boundary.to.split(".")[1])
    assert boundaries(releases.search()) == [("2.19.0", "2.20.0", Change.FIX)]


def test_what_is_installed_may_run_when_the_installs_are_used_up(tmp_path: Path) -> None:
    """The budget of installs stops installs alone: confirming needs none."""
    releases = FakeReleases(tmp_path, failing(OLD, STUCK))
    bisection = releases.search(budget=Budget(installs=5))
    assert bisection.answer is AnswerKind.BOUNDARY
    assert bisection.installs == 5


def test_the_time_is_bounded(tmp_path: Path) -> None:
    """When the time is over the search ends with what it knows, and says so."""
    releases = FakeReleases(tmp_path, failing(versions(64)[:20], STUCK), values=versions(64))
    ticks = count(0, 10)
    bisection = releases.search(budget=Budget(seconds=100), seconds=lambda: float(next(ticks)))
    assert bisection.answer is AnswerKind.INCONCLUSIVE
    assert bisection.reasons[0] == "the time limit of 100 s is over"
    (boundary,) = bisection.boundaries
    assert int(boundary.from_.split(".")[1]) < 20 <= int(boundary.to.split(".")[1])


def test_time_ends_a_probe_that_is_running(tmp_path: Path) -> None:
    """A probe that would take longer than the time that is left is cancelled, and is no evidence."""
    releases = FakeReleases(tmp_path, waits={"2.7.0": threading.Event()})
    bisection = releases.search(budget=Budget(seconds=0.5))
    assert bisection.answer is AnswerKind.INCONCLUSIVE
    assert set(verdicts(bisection)) == {"2.0.0"}
    assert [record.attempt.outcome for record in all_records(releases)] == ["pass"]


class Watched(list[Event]):
    """Events, of which each is handed on as it comes."""

    def __init__(self, heard: Callable[[Event], None]) -> None:
        super().__init__()
        self.heard = heard

    def append(self, event: Event) -> None:
        super().append(event)
        self.heard(event)


def test_an_interrupt_ends_with_what_is_known(tmp_path: Path) -> None:
    """Wherever the search is interrupted, it tells what it has seen, the runs of an unfinished probe included."""
    for place in range(1, 6):
        releases = FakeReleases(tmp_path / str(place), failing(OLD, AS_IT_WAS))
        releases.home.mkdir()

        def heard(event: Event, place: int = place) -> None:
            if isinstance(event, ProbeChosen) and event.number == place:
                raise KeyboardInterrupt

        releases.events = Watched(heard)
        bisection = releases.search()
        assert bisection.interrupted
        assert (bisection.answer, bisection.reasons[0]) == (AnswerKind.INCONCLUSIVE, "interrupted")
        assert len(bisection.probes) == place - 1
        assert sum(probe.n for probe in bisection.probes) == len(all_records(releases))
        releases.events = []
        assert boundaries(releases.search()) == [("2.2.0", "2.3.0", Change.FIX)]


def test_runs_of_an_unfinished_probe_count(tmp_path: Path) -> None:
    """A probe that is stopped in its second run is told by its first."""
    releases = FakeReleases(tmp_path)

    def behave(_version: str, run: int, _task: Task) -> EndOfRun:
        if run == 2:
            releases.waits["2.0.0"] = threading.Event()
        return AS_IT_WAS

    def heard(event: Event) -> None:
        if isinstance(event, AttemptStarted) and releases.runs["2.0.0"] == 1:
            releases.waits["2.0.0"] = threading.Event()

    releases.behave, releases.events = behave, Watched(heard)
    bisection = releases.search(budget=Budget(seconds=1))
    assert [(probe.value, probe.k, probe.n, probe.reused) for probe in bisection.probes] == [("2.0.0", 1, 1, 0)]


def test_a_second_interrupt_ends_at_once(tmp_path: Path) -> None:
    """It passes through, whatever is known."""

    def twice(event: Event) -> None:
        if isinstance(event, Interrupted) or (isinstance(event, ProbeChosen) and event.number == 2):
            raise KeyboardInterrupt

    releases = FakeReleases(tmp_path, waits={"2.0.0": threading.Event()}, events=Watched(twice))
    with pytest.raises(KeyboardInterrupt):
        releases.search(jobs=2)


def test_it_says_what_it_waits_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing comes for long, what the search waits for is told, and it goes on."""
    monkeypatch.setattr(workbench, "QUIET", 0.01)
    monkeypatch.setattr(workbench, "QUIET_PROBES", 0)
    gate = threading.Event()

    def heard(event: Event) -> None:
        if isinstance(event, StatusShown):
            gate.set()

    releases = FakeReleases(tmp_path, failing(OLD, STUCK), waits={"2.7.0": gate}, events=Watched(heard))
    assert boundaries(releases.search()) == [("2.2.0", "2.3.0", Change.FIX)]
    asked = [event for event in releases.events if isinstance(event, StatusShown)]
    assert asked
    assert all(event.why.startswith("nothing has ended for ") for event in asked)


def all_records(releases: FakeReleases) -> list[Record]:
    return Records(releases.home).of_test("hash", {})


def test_a_probe_that_is_not_needed_any_more_is_cancelled(tmp_path: Path) -> None:
    """Of two candidates at once, the one that a result makes useless ends at once and leaves no record."""
    values = versions(64)
    middle, beside = "2.31.0", "2.47.0"

    def behave(version: str, _run: int, _task: Task) -> EndOfRun:
        if version == middle:
            wait_for(lambda: releases.runs[beside] == 1)
        return STUCK if version in values[:10] else PASSED

    releases = FakeReleases(tmp_path, behave, values=values, waits={beside: threading.Event()})
    bisection = releases.search(jobs=2)
    assert boundaries(bisection) == [("2.9.0", "2.10.0", Change.FIX)]
    assert releases.runs[beside] == 1
    assert beside not in verdicts(bisection)


def test_a_search_without_anything_to_show_for_its_runs_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked for the same again and again in vain, the search ends and says so."""
    releases = FakeReleases(tmp_path, failing(OLD, STUCK))
    monkeypatch.setattr(ledger, "observations_of", lambda *_, **__: ())
    bisection = releases.search()
    assert bisection.answer is AnswerKind.INCONCLUSIVE
    assert bisection.reasons[0] == "2.0.0 was run again and again without a result"


def test_one_run_that_says_nothing_does_not_end_the_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bound whose further runs add nothing rests on those it has; the search goes on with it and says so."""
    releases = FakeReleases(tmp_path, failing(OLD, STUCK))
    observed = observations_of

    def two_of_the_oldest(*arguments: Any, **options: Any) -> tuple[ProbeRun, ...]:
        runs = observed(*arguments, **options)
        return (*[run for run in runs if run.position == 0][:2], *[run for run in runs if run.position])

    monkeypatch.setattr(ledger, "observations_of", two_of_the_oldest)
    bisection = releases.search()
    assert boundaries(bisection) == [("2.2.0", "2.3.0", Change.FIX)]
    assert "2.0.0 was run again and showed nothing more, so its verdict rests on fewer runs" in bisection.reasons


@pytest.mark.parametrize("jobs", [2, 3, 5])
@pytest.mark.parametrize("culprit", [1, 7, 20, 63])
def test_the_answer_is_the_same_with_several_at_once(tmp_path: Path, jobs: int, culprit: int) -> None:
    """What runs beside the next probe speeds a search up and never turns it."""
    values = versions(64)
    releases = FakeReleases(tmp_path, failing(values[culprit:], AS_IT_WAS), values=values)
    assert boundaries(releases.search(jobs=jobs)) == [(values[culprit - 1], values[culprit], Change.REGRESSION)]


def test_a_flaky_failure_is_found(tmp_path: Path) -> None:
    """A version that passes and fails makes the search repeat what it knows, until it is sure."""
    random = Random(1)
    bad = versions(16)[:9]

    def behave(version: str, _run: int, _task: Task) -> EndOfRun:
        return STUCK if version in bad and random.random() < 0.5 else PASSED

    bisection = FakeReleases(tmp_path, behave, values=versions(16)).search()
    assert boundaries(bisection) == [("2.8.0", "2.9.0", Change.FIX)]
    assert bisection.boundaries[0].confidence >= 0.95
    assert any(0 < probe.k < probe.n for probe in bisection.probes)


def test_a_defect_of_the_harness_is_raised(tmp_path: Path) -> None:
    """What goes wrong in a probe's thread ends the search, and nothing runs on."""

    def explode(_version: str, _run: int, _task: Task) -> Ending:
        raise RuntimeError("a defect")

    with pytest.raises(RuntimeError, match="a defect"):
        FakeReleases(tmp_path, explode).search()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("probe ")]


def test_every_probe_is_told_before_it_runs(tmp_path: Path) -> None:
    """The number of its value, the value, the reason and what is known around it are told of each."""
    releases = FakeReleases(tmp_path, failing(OLD, AS_IT_WAS))
    releases.search()
    assert [(event.number, event.value, event.purpose, event.left) for event in releases.chosen] == [
        (1, "2.0.0", Purpose.BOUND, 8),
        (2, "2.7.0", Purpose.BOUND, 8),
        (3, "2.3.0", Purpose.NARROW, 6),
        (4, "2.1.0", Purpose.NARROW, 2),
        (5, "2.2.0", Purpose.NARROW, 1),
        (5, "2.2.0", Purpose.CONFIRM, 1),
        (3, "2.3.0", Purpose.CONFIRM, 4),
    ]
    assert releases.chosen[2].between == ("2.0.0 (fail)", "2.7.0 (pass)")


def test_every_release_is_tried_before_it_is_said_to_pass_everywhere(tmp_path: Path) -> None:
    """Where nothing fails, each release is run once; --bad is named."""
    values = ("2.0.0", "2.1.0", "2.2.0", "2.3.0", "2.4.0", "2.5.0")
    bisection = FakeReleases(tmp_path, values=values).search()
    assert bisection.answer is AnswerKind.NONE
    assert set(bisection.order) == set(values)
    assert bisection.runs == len(values) + 2 * 2  # and two more of each bound
    assert "if you know a version where it fails, name it: --bad VERSION" in bisection.reasons


def test_a_failure_between_releases_that_pass_is_narrowed_on_both_sides(tmp_path: Path) -> None:
    """A single release that fails is found, with the change before it and the one after it."""
    releases = FakeReleases(tmp_path, failing(["2.5.0"], CRASHED))
    assert boundaries(releases.search()) == [("2.4.0", "2.5.0", Change.REGRESSION), ("2.5.0", "2.6.0", Change.FIX)]


def test_bounds_that_do_not_differ_are_named(tmp_path: Path) -> None:
    """Without a change each bound is told with what it showed."""
    bisection = FakeReleases(tmp_path, as_listed({}, STUCK)).search()
    assert bisection.answer is AnswerKind.NONE
    assert "2.0.0: hang, 3 of 3 runs: idle" in bisection.reasons
    assert "2.7.0: hang, 3 of 3 runs: idle" in bisection.reasons
