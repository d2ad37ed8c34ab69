"""The test and the cluster, as options that several commands share."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from whichtorch.matrix.cli.command import state_folder
from whichtorch.matrix.plan.option import argument
from whichtorch.matrix.plan.run_options import running_option

if TYPE_CHECKING:
    from whichtorch.matrix.run.site import OtherMachines

test_argument = partial(argument, "SCENARIO|SCRIPT", "One test, as NAME or NAME[variant=value].")


@dataclass(frozen=True, kw_only=True)
class ClusterAddress:
    """Which cluster runs the cells."""

    executor: str | None = running_option(
        metavar="ADDRESS", help="Run on the workers of a scheduler, tls://head:8786. [default: here]"
    )
    tls: Path | None = running_option(
        metavar="DIR", help="A cluster's certificates. [default: tls in the state folder]"
    )

    @property
    def certificates(self) -> Path:
        """The folder of the cluster's certificates."""
        return self.tls or state_folder() / "tls"

    @contextmanager
    def machines(self, home: Path, jobs: int | None = None) -> Iterator["OtherMachines | None"]:
        """Yield the workers of the cluster, or None if no scheduler is given; print which workers cannot be used."""
        if self.executor is None:
            yield None
            return
        from whichtorch.matrix.cluster.cluster_site import machines_of
        from whichtorch.matrix.cluster.engine import DaskEngine
        from whichtorch.matrix.cluster.membership import Cluster

        engine = DaskEngine(self.executor, self.certificates)
        try:
            cluster = Cluster(engine, jobs)
            for line in cluster.remarks():
                print(line, file=sys.stderr)
            yield machines_of(cluster, home)
        finally:
            engine.close()
