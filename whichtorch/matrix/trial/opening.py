"""Open a runner for trials of one test: on this machine, or on the workers of a cluster."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from whichtorch.matrix.environments.provider import acquired
from whichtorch.matrix.process.executor import SERVERS, ForkingExecutor, LocalExecutor
from whichtorch.matrix.process.script_reading import read_script
from whichtorch.matrix.process.temporary_folders import temporary_folder
from whichtorch.matrix.run.pipeline import opened_run
from whichtorch.matrix.run.signals import Lookout
from whichtorch.matrix.run.site import ThisMachine
from whichtorch.matrix.trial.remote import remote_trials
from whichtorch.matrix.trial.runner import Runner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from whichtorch.matrix.events import Show
    from whichtorch.matrix.model import Environment, Request
    from whichtorch.matrix.plan.planning import PlannedCell
    from whichtorch.matrix.run.work import Machines


@contextmanager
def opened_runner(
    planned: PlannedCell,
    requests: Sequence[Request],
    machines: Machines,
    show: Show,
    jobs: int = 1,
    check: Callable[[Environment], None] = lambda _: None,
) -> Iterator[tuple[Runner, list[Environment]]]:
    """Make environments ready; yield a runner in the first one, and all of them. Stop what still runs at the end.

    An environment that cannot be made is yielded, too: its outcome says why. `check` is called with each one before the
    next is made, and may raise.
    """
    home = machines.environments.home
    environments: list[Environment] = []
    with ExitStack() as held:
        if isinstance(machines, ThisMachine):
            for each in requests:
                environments.append(held.enter_context(acquired(machines.environments, each, show)))
                check(environments[-1])
            store, remote = held.enter_context(opened_run(home)), None
        else:
            machines.check(requests)
            store = held.enter_context(opened_run(home))
            remote = held.enter_context(remote_trials(machines, store))
            for each in requests:
                environments.append(remote.acquire(each, show))
                check(environments[-1])
        executor = LocalExecutor()
        level = "torch" if planned.scenario.command else read_script(planned.scenario.path).level
        forking = held.enter_context(ForkingExecutor(SERVERS * jobs, level=level))
        held.callback(executor.interrupt)
        held.callback(forking.interrupt)
        caches = held.enter_context(temporary_folder())
        runner = Runner(
            planned=planned,
            environment=environments[0],
            executor=executor,
            forking=forking,
            home=home,
            store=store,
            caches=caches,
            lookout=held.enter_context(Lookout(lambda: (*executor.running, *forking.running))),
            remote=remote,
        )
        yield runner, environments
