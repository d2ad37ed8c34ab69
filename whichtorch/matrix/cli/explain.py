"""`whichtorch explain`: why a test fails in some environments and not in others."""

import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from whichtorch.matrix.cli import command
from whichtorch.matrix.cli.cluster import Executor, TlsFolder, machines_at
from whichtorch.matrix.cli.command import EnvironmentOption, Exit, OutputOption, RunningOption, called
from whichtorch.matrix.environments.cache import EnvironmentCache
from whichtorch.matrix.plan import planning
from whichtorch.matrix.records import store


def explain(  # one parameter per option
    test: command.Test,
    here: Annotated[Path | None, EnvironmentOption(metavar="PYTHON", help="Why not with this interpreter?")] = None,
    env: Annotated[str | None, EnvironmentOption(metavar="ID|LABEL", help="Why not in this known environment?")] = None,
    run: Annotated[bool, RunningOption("--run", help="Run the cells that tell more, and confirm the answer.")] = False,
    matrix_file: command.MatrixPath = None,
    torch: command.OnlyTorch = None,
    python: command.OnlyPython = None,
    build: command.OnlyBuild = None,
    config_names: command.OnlyConfig = None,
    patch: command.OnlyPatch = None,
    timeout: command.Timeout = None,
    look_longer: command.LookLonger = False,
    repeat: command.Repeat = 1,
    executor: Executor = None,
    tls: TlsFolder = None,
    disk: command.Disk = None,
    json_file: Annotated[Path | None, OutputOption("--json", metavar="FILE", help="Write the answers as JSON.")] = None,
) -> None:
    """Say why a test hangs or fails in some environments and not in others, from what is recorded.

    The answer is an environment, a version, conditions that were not met, or that the test does fail here. With
    --run, it runs as few cells as possible to decide. Options that name environments leave the others out.
    --json writes {"schema_version": 1, "explanations": [...]}: each with its test, reference outcome and
    signature, answers (kind, rule, counts, histories, unmet conditions), observations, experiment, and the cells
    that are missing. Exit code: 0 answered; 4 not answered; 2 wrong usage; 130 interrupted.
    """
    # imported here, because these imports take longer than `matrix` needs to answer from its records
    from whichtorch.matrix.explain import explainer
    from whichtorch.matrix.run.site import ThisMachine
    from whichtorch.reports.explanation_text import explanation_lines

    home = store.state_folder()
    command.check_folders_of(json_file)
    request = explainer.ExplainRequest(
        home=home,
        file=command.read_matrix(matrix_file, torch, python=python, build=build, config=config_names, patch=patch),
        is_narrowed=any((torch, python, build, config_names, patch)),
        here=here.absolute() if here else None,
        env=env,
        may_run=run,
        options=planning.RunOptions(timeout=timeout, look_longer=look_longer, repeat=repeat),
    )
    suite = command.scenarios_of(test)
    cache = EnvironmentCache(home, disk_budget_mb=command.megabytes(disk))
    again = "" if run else f"{called('explain')} {shlex.join([*sys.argv[2:], '--run'])}"
    with command.going_on_later():
        with machines_at(executor if run else None, tls, ThisMachine(environments=cache)) as machines:
            request = replace(request, machines=machines)
            explanations = explainer.answers(request, suite, cache, command.progress_on(Console()))
        if json_file:
            command.write_json(json_file, explanations)
        for explanation in explanations.explanations:
            print(*explanation_lines(explanation, called("matrix"), again), sep="\n")
        if explanations.interrupted:
            raise KeyboardInterrupt
    raise typer.Exit(Exit.GOOD if explanations.is_answered else Exit.UNANSWERED)
