"""`whichtorch explain`: why a test fails in some environments and not in others."""

import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from whichtorch.base.errors import UsageError
from whichtorch.base.option import group, json_output
from whichtorch.cli import command
from whichtorch.cli.command import ClusterAddress, Display, Exit, MeasureOptions, NamedTestOrCommand, measured
from whichtorch.environments.additions import environment_option
from whichtorch.matrix.options import CHAINED, KnownAxes, RunOptions, Storage, known_environment, running_option

if TYPE_CHECKING:
    from whichtorch.measure.measure import Measure
    from whichtorch.model import Scenario


@dataclass(frozen=True, kw_only=True)
class ExplainOptions(NamedTestOrCommand):
    """The options of `explain`."""

    here: Path | None = environment_option(metavar="PYTHON", help="Why not with this Python?")
    env: str | None = known_environment()
    may_run: bool = running_option("--run", default=False, help="Run the cells that tell more, and confirm the answer.")
    axes: KnownAxes = group(KnownAxes, "path", "torch", "python", "build", "config", "patch", "added")
    run: RunOptions = group(RunOptions, "timeout", "memory", "repeat", "sandbox", *CHAINED)
    cluster: ClusterAddress = group(ClusterAddress)
    storage: Storage = group(Storage, "disk_budget_mb")
    numbers: MeasureOptions = group(MeasureOptions)
    json_file: Path | None = json_output()
    display: Display = group(Display)


def explain(options: ExplainOptions) -> Exit:
    """Say why a test fails in some environments and not in others.

    The answer is an environment, a version, conditions that were not met, or that the test does fail here. With
    --run, it runs as few cells as possible to decide. With --measure, it measures a number in the environments that
    options name, and says by how much they differ, or that the machine is too busy to tell. Options that name
    environments leave the others out. --json writes {"schema_version": 1, "explanations": [...]}: each with its test,
    reference outcome and signature, answers (kind, rule, counts, histories, unmet conditions), observations,
    experiment, and the cells that are missing. Exit code: 0 answered; 4 not answered; 2 wrong usage; 130 interrupted.
    """
    from whichtorch.explain import explainer
    from whichtorch.matrix.site import ThisMachine
    from whichtorch.reports.explanation_text import explanation_lines

    measures, home, file = options.numbers.measures, command.state_folder(), options.axes.file
    suite = options.scenarios(file)
    if measures:
        return _measured(options, suite, measures, home)
    if len(suite) == 1:  # the scripts of a glob have no needs in common
        file = command.announced(file.for_script(suite[0]))
    request = explainer.ExplainRequest(
        home=home,
        file=file,
        is_narrowed=options.axes.is_narrowed,
        here=options.here.absolute() if options.here else None,
        env=options.env,
        may_run=options.may_run,
        options=options.run,
    )
    cluster = options.cluster if options.may_run else ClusterAddress()
    again = "" if options.may_run else command.repeated_call("explain", "--run")
    own = (word for scenario in suite for word in scenario.command_options)
    added = options.axes.added
    matrix = " ".join(
        [command.called("matrix"), *map(shlex.quote, (*added.package_options, *added.variable_options, *own))]
    )
    with command.resumable():
        cache = options.storage.cache(home)
        with cluster.machines(ThisMachine(environments=cache)) as machines:
            request = replace(request, machines=machines)
            explanations = explainer.answers(request, suite, cache, options.display.progress)
        command.write_json(options.json_file, explanations)
        for explanation in explanations.explanations:
            options.display.say(explanation_lines(explanation, matrix, again))
        if explanations.interrupted:
            raise KeyboardInterrupt
    return Exit.GOOD if explanations.is_answered else Exit.UNANSWERED


def _measured(options: ExplainOptions, suite: "list[Scenario]", measures: "tuple[Measure, ...]", home: Path) -> Exit:
    """Measure a number in the environments that options name, and say how they differ.

    Raises UsageError where there are not two of them.
    """
    from whichtorch.environments.expansion import expand
    from whichtorch.explain.explainer import Explanations
    from whichtorch.matrix.planning import plan
    from whichtorch.matrix.site import ThisMachine
    from whichtorch.model import Effect
    from whichtorch.reports.numbers_text import answer_lines

    if options.cluster.executor or options.run.chain or options.here or options.env:
        raise UsageError("--measure goes with the options that name several environments of this machine")
    file = command.announced(options.axes.file.for_script(suite[0]))
    requests = expand(file, cache=home / "cache").requests
    if len(requests) < 2:
        raise UsageError("a number is compared between environments", hint="name two with --torch, as 2.9.1,2.15.0")
    machines = ThisMachine(environments=options.storage.cache(home))
    display = options.display
    stored, code = measured(plan(requests, suite, options.run), measures, machines, display)
    cells = stored.result.cells
    command.write_json(options.json_file, Explanations(explanations=(), cells=cells))
    display.say(answer_lines(stored.result))
    numbers = [number for cell in cells for number in cell.numbers if number.reference]
    if code is not Exit.GOOD and not any(number.effect and number.effect.counts for number in numbers):
        return code
    is_told = bool(numbers) and all(number.effect not in {None, Effect.UNDECIDED} for number in numbers)
    return Exit.GOOD if is_told else Exit.UNANSWERED
