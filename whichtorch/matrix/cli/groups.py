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
    from whichtorch.matrix.environments.cache import EnvironmentCache
    from whichtorch.matrix.run.site import ThisMachine
    from whichtorch.matrix.run.work import Machines

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

    @property
    def arguments(self) -> list[str]:
        """The options that name the same cluster again."""
        given = {"--executor": self.executor, "--tls": self.tls and str(self.tls)}
        return [word for name, value in given.items() if value and self.executor for word in (name, value)]

    @contextmanager
    def machines(self, here: "ThisMachine", jobs: int | None = None) -> Iterator["Machines"]:
        """Yield the workers of the cluster, or `here` if no scheduler is given; print which workers cannot be used."""
        if self.executor is None:
            yield here
            return
        from whichtorch.matrix.cluster.cluster_machines import ClusterMachines
        from whichtorch.matrix.cluster.engine import DaskEngine

        engine = DaskEngine(self.executor, self.certificates)
        try:
            machines = ClusterMachines(engine, here.environments.home, jobs)
            for line in machines.remarks():
                print(line, file=sys.stderr)
            yield machines
        finally:
            engine.close()

    @contextmanager
    def searching(self, cache: "EnvironmentCache", jobs: int | None) -> Iterator[tuple["Machines | None", int]]:
        """Yield the same for a search, and how much it tries at once; None stands for this machine."""
        from whichtorch.matrix.run.site import ThisMachine

        here = ThisMachine(environments=cache, jobs=jobs or 1)
        with self.machines(here, jobs) as machines:
            yield (None if machines is here else machines), jobs or max(1, machines.slots)
