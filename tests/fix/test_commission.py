"""The two releases of a search for a fix."""

from pathlib import Path

import pytest

from tests.fakes import FakeCache, shows_nothing
from tests.matrix.cluster.fakes import FakeEngine, FakeWorker
from tests.matrix.test_lab import requests
from whichtorch.base.errors import PreventedError
from whichtorch.fix.commission import usable
from whichtorch.matrix.cluster.cluster_site import ClusterMachines
from whichtorch.matrix.lab import opened_lab
from whichtorch.matrix.site import ThisMachine
from whichtorch.records.line_index import Records


@pytest.mark.parametrize("where", ["here", "cluster"])
def test_nothing_is_made_after_an_environment_that_is_refused(tmp_path: Path, where: str) -> None:
    """The second of two releases is not installed where the first one is of no use."""
    worker = FakeWorker(tmp_path, "w1")
    cache = worker.cache if where == "cluster" else FakeCache(tmp_path)
    cache.missing = frozenset({"2.0.0"})
    machines = ClusterMachines(FakeEngine(worker), tmp_path) if where == "cluster" else ThisMachine(environments=cache)
    asked = requests("2.0.0", "2.1.0")
    with opened_lab(machines, Records(), shows_nothing) as lab, pytest.raises(PreventedError, match="cannot be used"):
        usable(lab, asked)
    worker.host.finish()
    assert cache.acquired == [asked[0].label]
