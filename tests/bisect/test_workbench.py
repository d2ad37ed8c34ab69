"""The workbench that the searches of one command share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.bisect.driving import FakeReleases, MadeUpBench, versions
from tests.cli.shell import wait_for
from tests.fakes import PASSED
from whichtorch.matrix.options import RunOptions
from whichtorch.matrix.planning import PlannedCell
from whichtorch.records.store import new_run

if TYPE_CHECKING:
    from pathlib import Path


def test_a_search_does_not_see_the_probes_of_the_previous_one(tmp_path: Path) -> None:
    """A probe that ends as its search does is not reported to the next one, where its position means another value."""
    releases = FakeReleases(tmp_path, values=versions(2))
    old, new = (
        [PlannedCell(request=request, scenario=releases.scenario, variant={}, options=RunOptions())]
        for request in releases.requests
    )
    with new_run(tmp_path, ()) as run_store:
        bench = MadeUpBench(releases.cache, run_store, lambda _request: PASSED)
        bench.start(7, old)
        wait_for(lambda: bench.runs == 1)
        bench.close()
        bench.start(0, new)
        (probed,) = bench.wait()
        bench.close()
    assert probed.position == 0
    assert probed.environment is not None
    assert probed.environment.torch == releases.values[1]
