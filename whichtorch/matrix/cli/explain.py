"""`whichtorch explain`: why a test fails in some environments and not in others."""

import shlex
from dataclasses import dataclass, replace
from pathlib import Path

from whichtorch.matrix.cli import command
from whichtorch.matrix.cli.command import ClusterAddress, Exit, NamedTestOrCommand
from whichtorch.matrix.cli.display import Display
from whichtorch.matrix.plan.environment_options import KnownAxes, Storage, environment_option, known_environment
from whichtorch.matrix.plan.option import filled, group, json_output
from whichtorch.matrix.plan.run_options import CHAINED, RunOptions, running_option


@dataclass(frozen=True, kw_only=True)
class ExplainOptions(NamedTestOrCommand):
    """The options of `explain`."""

    here: Path | None = environment_option(metavar="PYTHON", help="Why not with this Python?")
    env: str | None = known_environment()
    may_run: bool = running_option("--run", default=False, help="Run the cells that tell more, and confirm the answer.")
    axes: KnownAxes = group(KnownAxes, "path", "torch", "python", "build", "config", "patch", "added")
    run: RunOptions = group(RunOptions, "timeout", "look_longer", "memory", "repeat", *CHAINED)
    cluster: ClusterAddress = group(ClusterAddress)
    storage: Storage = group(Storage, "disk_budget_mb")
    json_file: Path | None = json_output()
    display: Display = group(Display)


def explain(options: ExplainOptions) -> Exit:
    """Say why a test hangs or fails in some environments and not in others, from what is recorded.

    The answer is an environment, a version, conditions that were not met, or that the test does fail here. With
    --run, it runs as few cells as possible to decide. Options that name environments leave the others out.
    --json writes {"schema_version": 1, "explanations": [...]}: each with its test, reference outcome and
    signature, answers (kind, rule, counts, histories, unmet conditions), observations, experiment, and the cells
    that are missing. Exit code: 0 answered; 4 not answered; 2 wrong usage; 130 interrupted.
    """
    from whichtorch.matrix.explain import explainer
    from whichtorch.matrix.run.site import ThisMachine
    from whichtorch.reports.explanation_text import explanation_lines

    home, file = command.state_folder(), options.axes.file
    suite = options.scenarios(file)
    if len(suite) == 1:  # the scripts of a glob have no needs in common
        file = command.announced(file.for_script(suite[0]))
    request = filled(
        explainer.ExplainRequest,
        options,
        home=home,
        file=file,
        is_narrowed=options.axes.is_narrowed,
        here=options.here.absolute() if options.here else None,
        options=options.run,
    )
    cluster = options.cluster if options.may_run else ClusterAddress()
    again = "" if options.may_run else command.rerun_command("explain", "--run")
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
