"""Where trials are made: what is opened, and what is not."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.cluster.fakes import FakeEngine, FakeWorker
from tests.fakes import FakeCache
from tests.run.test_pipeline import requests, scenario
from whichtorch.matrix.cluster.cluster_machines import ClusterMachines
from whichtorch.matrix.errors import PreventedError
from whichtorch.matrix.model import Environment
from whichtorch.matrix.plan.planning import PlannedCell, RunOptions
from whichtorch.matrix.run.site import ThisMachine
from whichtorch.matrix.trial.opening import opened_runner


def refuse(environment: Environment) -> None:
    if not environment.is_usable:
        raise PreventedError(f"{environment.label} cannot be used")


@pytest.mark.parametrize("where", ["here", "cluster"])
def test_nothing_is_made_after_an_environment_that_is_refused(tmp_path: Path, where: str) -> None:
    """The second of two releases is not installed where the first one is of no use; here, no run is stored either."""
    worker = FakeWorker(tmp_path, "w1")
    cache = worker.cache if where == "cluster" else FakeCache(tmp_path)
    cache.missing = frozenset({"2.0.0"})
    machines = ClusterMachines(FakeEngine(worker), tmp_path) if where == "cluster" else ThisMachine(environments=cache)
    asked = requests("2.0.0", "2.1.0")
    planned = PlannedCell(request=asked[0], scenario=scenario(tmp_path, "s"), variant={}, options=RunOptions())
    opening = opened_runner(planned, asked, machines, lambda _: nullcontext(lambda _event: None), check=refuse)
    with pytest.raises(PreventedError, match="cannot be used"), opening:
        pass
    worker.host.finish()
    assert cache.acquired == [asked[0].label]
    assert where == "cluster" or not list(tmp_path.glob("runs/*"))
