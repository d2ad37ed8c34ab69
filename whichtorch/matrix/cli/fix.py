"""`whichtorch fix`: the smallest change of the bad release's Python that makes a test pass, as a patch."""

import shlex
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from whichtorch.matrix.bisect.request import Budget, SearchRequest
from whichtorch.matrix.cli import command
from whichtorch.matrix.cli.command import Exit, OutputOption, RunningOption, called
from whichtorch.matrix.environments.cache import EnvironmentCache
from whichtorch.matrix.environments.index.version_specs import EVERY_RELEASE
from whichtorch.matrix.errors import INTERRUPTED, why_stopped
from whichtorch.matrix.plan.planning import RunOptions
from whichtorch.matrix.records import store

if TYPE_CHECKING:
    from whichtorch.matrix.fix.commission import FixAnswer

PATCH = Path("output") / "fix.diff"
_Release = partial(typer.Option, rich_help_panel="The two releases", metavar="VERSION")


def fix(  # one parameter per option
    test: command.Test,
    bad: Annotated[str | None, _Release(help="The release that fails. [default: found by a bisection]")] = None,
    good: Annotated[str | None, _Release(help="The release that passes.")] = None,
    failure: Annotated[
        str, _Release(metavar="WORDS", help="Which failure: words of it, or RUN:ENVIRONMENT. [default: newest]")
    ] = "",
    matrix_file: command.MatrixPath = None,
    torch: Annotated[
        list[str] | None, command.EnvironmentOption(metavar="SPEC[,SPEC]", help="The versions that are bisected.")
    ] = None,
    python: command.OnePython = None,
    build: command.OneBuild = None,
    config_name: command.OneConfig = None,
    disk: command.Disk = None,
    timeout: command.Timeout = None,
    look_longer: command.LookLonger = False,
    jobs: Annotated[
        int, RunningOption(metavar="N", min=1, help="Trials at once, and candidates of the bisection.")
    ] = 1,
    max_time: Annotated[
        str | None, RunningOption(metavar="TIME", help="Stop after 90s, 30m, 2h, ..., with what is known.")
    ] = None,
    max_trials: Annotated[int | None, RunningOption(metavar="N", min=1, help="Make at most so many trials.")] = None,
    git: Annotated[
        Path | None,
        OutputOption("--git", metavar="CHECKOUT", help="Name the commits of the patch, by a git checkout of PyTorch."),
    ] = None,
    check_suite: Annotated[
        bool, RunningOption("--check-suite", help="Run the suite with the patch and without it, and compare.")
    ] = False,
    patch_file: Annotated[Path, OutputOption("--output", metavar="FILE", help="Write the patch here.")] = PATCH,
    json_file: Annotated[Path | None, OutputOption("--json", metavar="FILE", help="Write the answer as JSON.")] = None,
    report_file: Annotated[
        Path | None, OutputOption("--report", metavar="FILE", help="Write Markdown, ready for an issue.")
    ] = None,
) -> None:
    """Find the smallest change of a bad release's Python that makes a test pass, from the good release's wheel.

    Without --bad and --good, a bisection finds the two. Parts of the good release are tried in the bad one, in
    overlays that leave both installations as they are, until one cures the test; then all that is not needed is left
    out. The patch is run three times with and without. Where no change of Python cures it, the evidence is told. The
    same command goes on where it was interrupted. Exit code: 0 cured, or not in Python alone; 1 cured, but the patch
    breaks the suite that --check-suite runs; 4 not known; 2 wrong usage; 3 a release cannot be had; 130 interrupted.
    """
    # imported here, because other commands start without them
    from whichtorch.matrix.fix.commission import FixOrder, fix_of, with_suite
    from whichtorch.reports.fix_text import fix_lines, fix_markdown

    command.check_folders_of(json_file, report_file, patch_file if patch_file != PATCH else None)
    specs = torch or [EVERY_RELEASE]
    file = command.read_search_matrix(matrix_file, specs, python=python, build=build, config=config_name)
    scenario, variant = command.one_test(test)
    home = store.state_folder()
    search = SearchRequest(
        home=home,
        file=file,
        scenario=scenario,
        variant=variant,
        good=good,
        bad=bad,
        failure=command.failure_words(failure, (scenario, variant), home),
        run_options=RunOptions(timeout=timeout, look_longer=look_longer),
        jobs=jobs,
        budget=Budget(seconds=command.seconds(max_time)),
    )
    console = Console()
    say = partial(console.print, markup=False, highlight=False, soft_wrap=True)
    cache = EnvironmentCache(home, disk_budget_mb=command.megabytes(disk))
    with command.going_on_later(search.budget.seconds):
        order = FixOrder(search=search, max_trials=max_trials, checkout=git, tell=say)
        answer = fix_of(order, cache, command.progress_on(console))
        is_cured = _keep_patch(answer, patch_file)
        if check_suite and is_cured and not answer.interrupted:
            say(f"cured, the patch is in {patch_file}; the suite runs on {answer.bad} without it and with it")
            try:
                answer = with_suite(answer, search, patch_file, cache, command.progress_on(console))
            except KeyboardInterrupt as interrupt:
                answer = answer.model_copy(update={"interrupted": why_stopped(interrupt) == INTERRUPTED})
        answer = answer.model_copy(update={"command": f"{called('fix')} {shlex.join(sys.argv[2:])}"})
        rerun = f"{called('matrix')} --torch {answer.bad} --patch {patch_file} {_option(test)}"
        if json_file:
            command.write_json(json_file, answer)
        if report_file:
            command.write_lines(report_file, fix_markdown(answer, str(patch_file), rerun))
        print(*fix_lines(answer, str(patch_file), rerun), sep="\n")
        if answer.interrupted:
            raise KeyboardInterrupt
    is_known = is_cured or (answer.fix is not None and bool(answer.fix.why_not))
    code = Exit.GOOD if is_known else Exit.UNANSWERED
    raise typer.Exit(Exit.RED if answer.suite and answer.suite.is_worse else code)


def _keep_patch(answer: "FixAnswer", patch_file: Path) -> bool:
    """Write the patch, before anything else takes its time; return whether there is one."""
    if not (answer.fix and answer.fix.patch):
        return False
    patch_file.parent.mkdir(parents=True, exist_ok=True)
    patch_file.write_text(answer.fix.patch, encoding="utf-8", errors="surrogateescape")
    return True


def _option(test: str) -> str:
    return f"--{'script' if Path(test.partition('[')[0]).suffix == '.py' else 'scenario'} {shlex.quote(test)}"
