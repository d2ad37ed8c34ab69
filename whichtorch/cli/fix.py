"""`whichtorch fix`: the smallest change of the bad release's Python that makes a test pass, as a patch."""

import shlex
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from whichtorch.base.errors import UsageError
from whichtorch.base.option import (
    STDOUT,
    Strings,
    group,
    json_output,
    markdown_output,
    max_time,
    option,
    output_file,
    output_path,
)
from whichtorch.bisect.search_request import Budget, SearchRequest
from whichtorch.cli import command
from whichtorch.cli.command import ClusterAddress, Display, Exit, NamedTestOrCommand, failure_option, git_option
from whichtorch.environments.additions import environment_option
from whichtorch.matrix.options import CHAINED, RunOptions, SearchAxes, Storage, jobs_option, running_option

if TYPE_CHECKING:
    from whichtorch.fix.commission import FixAnswer
    from whichtorch.model import Scenario

PATCH = Path("output") / "fix.diff"
_release_option = partial(option, panel="The two releases", metavar="VERSION")


def _patch_path(text: str) -> Path:
    if text == str(STDOUT):
        raise UsageError("the patch needs a file, because it is read again", hint=f"leave it out: it is {PATCH}")
    return PATCH if Path(text) == PATCH else output_path(text)  # the folder of the default is created


@dataclass(frozen=True, kw_only=True)
class FixOptions(NamedTestOrCommand):
    """The options of `fix`."""

    bad: str | None = _release_option(help="The release that fails. [default: found by a bisection]")
    good: str | None = _release_option(help="The release that passes.")
    failure: str = failure_option(panel="The two releases")
    torch: Strings = environment_option(default=(), metavar="SPEC[,SPEC]", help="The versions that are bisected.")
    axes: SearchAxes = group(SearchAxes, "path", "python", "build", "config", "added")
    storage: Storage = group(Storage, "disk_budget_mb")
    run_options: RunOptions = group(RunOptions, "timeout", "memory", "sandbox", *CHAINED)
    cluster: ClusterAddress = group(ClusterAddress)
    jobs: int | None = jobs_option()
    max_seconds: float | None = max_time(panel="How it runs")
    max_trials: int | None = running_option(
        metavar="N", least=1, help="Make at most N trials. [default: 60 in 10 minutes, without --max-time]"
    )
    checkout: Path | None = git_option(panel="Output")
    patch_file: Path = output_file("--output", default=PATCH, parse=_patch_path, help="Write the patch here.")
    json_file: Path | None = json_output()
    markdown_file: Path | None = markdown_output()
    display: Display = group(Display)


def fix(options: FixOptions) -> Exit:
    """Find the smallest change of Python that makes a bad release pass.

    Without --bad and --good, a bisection finds the two. Parts of the good release are tried in the bad one, in
    overlays that leave both installations as they are, until one cures the test; then all that is not needed is left
    out. The patch is run three times with and without. Where no change of Python cures it, the evidence is told. The
    same command goes on where it was interrupted. Exit code: 0 cured, or not in Python alone; 4 not known; 2 wrong
    usage; 3 a release cannot be had; 130 interrupted.
    """
    from whichtorch.fix.commission import FixRequest, fix_of

    display, home = options.display, command.state_folder()
    search = _search_request(options, home)
    say = partial(display.console.print, markup=False, highlight=False, soft_wrap=True)
    cache = options.storage.cache(home)
    with command.resumable(search.budget.seconds), options.cluster.searching(cache, options.jobs) as (machines, jobs):
        search = replace(search, machines=machines, jobs=jobs)
        order = FixRequest(search=search, max_trials=options.max_trials, checkout=options.checkout, tell=say)
        answer = fix_of(order, cache, display.progress)
        is_cured = _write_patch(answer, options.patch_file)
        _write_answer(answer.model_copy(update={"command": command.repeated_call("fix")}), options, search.scenario)
        if answer.interrupted:
            raise KeyboardInterrupt
    is_known = is_cured or (answer.fix is not None and bool(answer.fix.why_not))
    return Exit.GOOD if is_known else Exit.UNANSWERED


def _search_request(options: FixOptions, home: Path) -> SearchRequest:
    """Return the request to search for the two releases."""
    from whichtorch.environments.index.releases import EVERY_RELEASE
    from whichtorch.suite.chain import check_own_caches

    file = options.axes.file(options.torch or [EVERY_RELEASE])
    scenario, variant = options.one(file, options.run_options)
    check_own_caches(variant)
    file = command.announced(file.for_script(scenario))
    return SearchRequest(
        home=home,
        file=file,
        scenario=scenario,
        variant=variant,
        good=options.good,
        bad=options.bad,
        failure=command.failure_words(options.failure, (scenario, variant), home),
        any_failure=options.failure == command.ANY_FAILURE,
        run_options=options.run_options,
        budget=Budget(seconds=options.max_seconds),
    )


def _write_patch(answer: "FixAnswer", patch_file: Path) -> bool:
    """Write the patch as soon as it is known; return whether there is one."""
    if not (answer.fix and answer.fix.patch):
        return False
    patch_file.parent.mkdir(parents=True, exist_ok=True)
    patch_file.write_text(answer.fix.patch, encoding="utf-8", errors="surrogateescape")
    return True


def _write_answer(answer: "FixAnswer", options: FixOptions, scenario: "Scenario") -> None:
    """Print the answer, and write the requested files."""
    from whichtorch.reports.document import markdown
    from whichtorch.reports.fix_text import fix_blocks, fix_lines
    from whichtorch.suite.chain import Chain

    patch = str(options.patch_file)
    script_arguments = ["--", *options.script_arguments] if options.script_arguments else []
    chain, added = Chain.of(options.run_options.chain), options.axes.added
    words = [
        *([options.test] if options.test else []),
        *("--torch", answer.bad, "--patch", patch),
        *(*added.package_options, *added.variable_options, *scenario.command_options),
        *(chain.options if chain else ()),
        *(["--executor", options.cluster.executor] if options.cluster.executor else []),
        *script_arguments,
    ]
    rerun = f"{command.called('matrix')} {shlex.join(words)}"
    command.write_json(options.json_file, answer)
    if options.markdown_file:
        command.write_lines(options.markdown_file, markdown(fix_blocks(answer, patch, rerun)))
    options.display.say(fix_lines(answer, patch, rerun))
