"""`whichtorch explain`: why a test fails in some environments and not in others."""

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from matrix.cli import options
from matrix.cli.session import Exit, called, check_folders_of, going_on_later, print_lines, progress_on, write_json
from matrix.environments.cache import EnvironmentCache
from matrix.plan import planning
from matrix.records import store


def explain(  # one parameter per option
    test: options.Test,
    here: Annotated[Path | None, typer.Option(metavar="PYTHON", help="Why not in the environment of this one?")] = None,
    env: Annotated[str | None, typer.Option(metavar="ID|LABEL", help="Why not in this known environment?")] = None,
    run: Annotated[bool, typer.Option("--run", help="Run the cells that tell more, and confirm the answer.")] = False,
    matrix_file: options.MatrixPath = None,
    torch: options.OnlyTorch = None,
    python: options.OnlyPython = None,
    build: options.OnlyBuild = None,
    config_names: options.OnlyConfig = None,
    timeout: options.Timeout = None,
    repeat: options.Repeat = 1,
    disk: options.Disk = None,
    json_file: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the answers as JSON.")] = None,
) -> None:
    """Say why a test hangs or fails in some environments and not in others, from what is recorded.

    The answer is an environment, a version, conditions that were not met, or that it does fail here; with --run
    the cells that decide are run, as few as can be. Options that name environments leave the others out.
    --json writes {"schema_version": 1, "explanations": [...]}: each with its test, reference outcome and
    signature, answers (kind, rule, counts, histories, unmet conditions), observations, experiment, and what is
    missing. Exit code: 0 answered; 4 not; 2 wrong usage; 130 interrupted.
    """
    # imported here: `matrix` answers from its records in less time than these take
    from matrix.explain import explainer
    from reports.explanation_text import explanation_lines

    home = store.state_folder()
    check_folders_of(json_file)
    question = explainer.ExplainQuestion(
        home=home,
        file=options.read_matrix(matrix_file, torch, python, build, config_names),
        is_narrowed=any((torch, python, build, config_names)),
        here=here.absolute() if here else None,
        env=env,
        may_run=run,
        options=planning.RunOptions(timeout=timeout, repeat=repeat),
    )
    suite = options.scenarios_of(test)
    cache = EnvironmentCache(home, disk_budget_mb=options.megabytes(disk))
    with going_on_later():
        explanations = explainer.answers(question, suite, cache, progress_on(Console()))
    again = "" if run else f"{called('explain')} {shlex.join([*sys.argv[2:], '--run'])}"
    for explanation in explanations:
        print_lines(explanation_lines(explanation, called("matrix"), again))
    if json_file:
        write_json(json_file, explainer.Explanations(explanations=explanations))
    raise typer.Exit(Exit.GOOD if explainer.is_answered(explanations) else Exit.UNANSWERED)
