"""`whichtorch triage` makes a case of a failing script; `replay` runs one from elsewhere."""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from whichtorch.base.grouping import counted
from whichtorch.base.option import Strings, argument, group, json_output, max_time, option
from whichtorch.cli import command
from whichtorch.cli.command import ClusterAddress, Display, Exit, NamedTest
from whichtorch.environments.additions import environment_option
from whichtorch.matrix.options import (
    CHAINED,
    RunOptions,
    SearchAxes,
    Storage,
    fresh_option,
    interpreter_option,
    jobs_option,
    running_option,
    sandbox_option,
)
from whichtorch.process.sandbox import Sandbox
from whichtorch.triage.step import Step, step_named

if TYPE_CHECKING:
    from whichtorch.triage.case import Case
    from whichtorch.triage.places import CasePlace

CASES = Path("output") / "cases"
_torch = partial(environment_option, default=(), metavar="VERSION")


@dataclass(frozen=True, kw_only=True)
class CaseEnvironmentOptions:
    """The environment that runs the script of a case."""

    axes: SearchAxes = group(SearchAxes, "path", "python", "build", "config", "patch", "added")
    interpreter: Path | None = interpreter_option()
    storage: Storage = group(Storage, "disk_budget_mb")

    def place(self, torch: Strings, home: Path) -> "CasePlace":
        """Return the place that runs the script."""
        from whichtorch.triage.places import CasePlace

        return CasePlace(home=home, file=self.axes.file(torch), interpreter=self.interpreter, beside=Path.cwd())


@dataclass(frozen=True, kw_only=True)
class TriageOptions(NamedTest):
    """The options of `triage`."""

    torch: Strings = _torch(help="Where it fails. [default: latest]")
    environment: CaseEnvironmentOptions = group(CaseEnvironmentOptions)
    run: RunOptions = group(RunOptions, "timeout", "memory", "sandbox", *CHAINED)
    cluster: ClusterAddress = group(ClusterAddress)
    jobs: int | None = jobs_option()
    until: Step | None = running_option(metavar="STEP", parse=step_named, help=f"The last step: {', '.join(Step)}.")
    only: tuple[Step, ...] = running_option(
        default=(), metavar="STEP", parse=step_named, help="Take this step, and what it needs. Repeatable."
    )
    fresh: bool = fresh_option()
    max_seconds: float | None = max_time(panel="How it runs")
    case_folder: Path | None = option(
        "--case", metavar="DIR", panel="Output", help="The case's folder. [default: output/cases/NAME]"
    )
    json_file: Path | None = json_output()
    display: Display = group(Display)

    @property
    def steps(self) -> tuple[Step, ...]:
        """The requested steps and the steps that they need, in order."""
        steps = tuple(Step)[: tuple(Step).index(self.until) + 1] if self.until else tuple(Step)
        needed = {step for name in self.only for step in name.needs} if self.only else set(steps)
        return tuple(step for step in steps if step in needed)


def triage(options: TriageOptions) -> Exit:
    """Make a case of a failing script, for a maintainer.

    Each step is kept in the case's folder as soon as it is done, and the same command goes on where it was
    interrupted. Exit code: 0 the failure was seen and classified; 4 it was not; 2 wrong usage; 3 the environment
    cannot be had; 130 interrupted.
    """
    from whichtorch.reports.case_text import case_lines
    from whichtorch.suite.chain import check_own_caches
    from whichtorch.triage.casework import triage as make_case
    from whichtorch.triage.categories import HEALTHY, UNCLASSIFIED
    from whichtorch.triage.places import CaseTest
    from whichtorch.triage.step import TriageRequest

    place = options.environment.place(options.torch or ("latest",), command.state_folder())
    scenario, variant = options.one(place.file, options.run)
    check_own_caches(variant)
    place = replace(place, file=command.announced(place.file.for_script(scenario)))
    folder = options.case_folder or CASES / scenario.path.stem
    order = TriageRequest(
        place=place,
        test=CaseTest(scenario=scenario, variant=variant, options=options.run),
        folder=folder,
        steps=options.steps,
        fresh=options.fresh,
        max_seconds=options.max_seconds,
        tell=partial(options.display.console.print, markup=False, highlight=False, soft_wrap=True),
        shown=partial(_keep, folder),
    )
    cache = options.environment.storage.cache(place.home)
    with command.resumable(order.max_seconds), options.cluster.searching(cache, options.jobs) as (machines, jobs):
        order = replace(order, place=replace(place, machines=machines, jobs=jobs))
        case = make_case(order, cache, options.display.progress)
        command.write_json(options.json_file, case)
        order.shown(case)
        options.display.say(case_lines(case, folder))
        if case.stopped and case.stopped.is_interrupted:
            raise KeyboardInterrupt
    if case.environment is not None and case.environment.problem:
        return Exit.PREVENTED
    found, seen = case.classification, case.reproduction
    is_known = found is not None and found.category not in {HEALTHY, UNCLASSIFIED}
    is_enough = order.steps != tuple(Step) and (Step.REPRODUCE not in order.steps or (seen and seen.outcome.is_red))
    return Exit.GOOD if is_known or is_enough else Exit.UNANSWERED


def _keep(folder: Path, case: "Case") -> None:
    """Write the case so far as Markdown, and pack its folder."""
    from whichtorch.base.redaction import Redactor
    from whichtorch.reports.case_text import case_document
    from whichtorch.reports.document import markdown
    from whichtorch.triage.replay import pack

    command.write_lines(folder / "CASE.md", markdown(case_document(case)))
    pack(folder, Redactor.of_this_machine())


@dataclass(frozen=True, kw_only=True)
class ReplayOptions:
    """The options of `replay`."""

    archive: Path = argument("CASE.ZIP", "A case, as triage packs it.")
    torch: Strings = _torch(help="Where it is run. [default: the case's]")
    environment: CaseEnvironmentOptions = group(CaseEnvironmentOptions)
    cluster: ClusterAddress = group(ClusterAddress)
    whole: bool = running_option(default=False, help="Run the script as it was, instead of the smallest.")
    sandbox: Sandbox = sandbox_option(default=Sandbox.BUBBLEWRAP)
    json_file: Path | None = json_output()
    display: Display = group(Display)


def replay(options: ReplayOptions) -> Exit:
    """Run a case from elsewhere, and say whether it reproduces here.

    The case is unpacked into a folder of its own, which is gone afterwards. What it holds is code, and it is run in a
    sandbox, unless you say --sandbox off.
    Exit code: 0 it reproduces; 1 it does not; 4 that cannot be told; 2 no case; 3 the environment cannot be had.
    """
    from whichtorch.triage.replay import ReplayRequest, packed_case
    from whichtorch.triage.replay import replay as run_case

    case = packed_case(options.archive)
    release = case.environment.torch.partition("+")[0] if case.environment is not None else "latest"
    place = options.environment.place(options.torch or (release,), command.state_folder())
    cache = options.environment.storage.cache(place.home)
    with command.resumable(), options.cluster.searching(cache, None) as (machines, _):
        where = replace(place, machines=machines)
        order = ReplayRequest(archive=options.archive, whole=options.whole, sandbox=options.sandbox, place=where)
        replayed = run_case(order, cache, options.display.progress)
    verdict = {True: "reproduces", False: "does not reproduce", None: "cannot be told"}[replayed.reproduces]
    print(
        f"{replayed.name} {verdict} in {replayed.environment}: "
        f"{replayed.script} was run {counted(len(replayed.seen), 'time')}"
    )
    print(f"  the case:  {replayed.expected}")
    print(*(f"  seen here: {seen}" for seen in dict.fromkeys(replayed.seen)), sep="\n")
    command.write_json(options.json_file, replayed)
    return {True: Exit.GOOD, False: Exit.RED, None: Exit.UNANSWERED}[replayed.reproduces]
