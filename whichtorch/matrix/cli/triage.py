"""`whichtorch triage`: from a failing script to a case."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from whichtorch.matrix.cli import command
from whichtorch.matrix.cli.command import Exit, OutputOption, RunningOption
from whichtorch.matrix.environments.cache import EnvironmentCache
from whichtorch.matrix.errors import UsageError
from whichtorch.matrix.plan.planning import RunOptions
from whichtorch.matrix.privacy.redaction import Redactor
from whichtorch.matrix.records import store
from whichtorch.matrix.triage.step import Step

if TYPE_CHECKING:
    from whichtorch.matrix.triage.case import Case

CASES = Path("output") / "cases"
OneInterpreter = Annotated[
    Path | None, command.EnvironmentOption("--interpreter", metavar="PYTHON", help="Your own environment, as it is.")
]
_STEPS = ", ".join(Step)


def triage(  # one parameter per option
    test: command.Test,
    torch: Annotated[
        list[str] | None, command.EnvironmentOption(metavar="VERSION", help="Where it fails. [default: latest]")
    ] = None,
    python: command.OnePython = None,
    build: command.OneBuild = None,
    config_name: command.OneConfig = None,
    patch: command.OnePatch = None,
    interpreter: OneInterpreter = None,
    matrix_file: command.MatrixPath = None,
    disk: command.Disk = None,
    timeout: command.Timeout = None,
    look_longer: command.LookLonger = False,
    until: Annotated[str | None, RunningOption(metavar="STEP", help=f"The last step: {_STEPS}.")] = None,
    only: Annotated[
        list[str] | None, RunningOption(metavar="STEP", help="Take this step, and what it needs. Repeatable.")
    ] = None,
    fresh: Annotated[bool, RunningOption("--fresh", help="Take all steps again.")] = False,
    max_time: Annotated[
        str | None, RunningOption(metavar="TIME", help="Stop after 90s, 30m, 2h, ..., with what is known.")
    ] = None,
    case_folder: Annotated[
        Path | None, OutputOption("--case", metavar="FOLDER", help="The case's folder. [default: output/cases/NAME]")
    ] = None,
    json_file: Annotated[Path | None, OutputOption("--json", metavar="FILE", help="Write the case as JSON.")] = None,
) -> None:
    """Make a case of a failing script: what fails, at which layer of the compiler, of what kind, with the logs.

    Each step is kept in the case's folder as soon as it is done, and the same command goes on where it was
    interrupted. Exit code: 0 the failure was seen and classified; 4 it was not; 2 wrong usage; 3 the environment
    cannot be had; 130 interrupted.
    """
    # imported here, because other commands start without them
    from whichtorch.matrix.triage.casework import triage as make_case
    from whichtorch.matrix.triage.classification import UNCLASSIFIED
    from whichtorch.matrix.triage.places import CasePlace, CaseTest
    from whichtorch.matrix.triage.step import TriageOrder
    from whichtorch.reports.case_text import case_lines

    command.check_folders_of(json_file)
    steps = _chosen(until, only)
    file = command.read_search_matrix(
        matrix_file, torch or ["latest"], python=python, build=build, config=config_name, patch=patch
    )
    scenario, variant = command.one_test(test)
    home = store.state_folder()
    console = Console()
    folder = case_folder or CASES / scenario.path.stem
    order = TriageOrder(
        place=CasePlace(home=home, file=file, interpreter=interpreter, beside=Path.cwd()),
        test=CaseTest(scenario=scenario, variant=variant, options=RunOptions(timeout=timeout, look_longer=look_longer)),
        folder=folder,
        steps=steps,
        fresh=fresh,
        max_seconds=command.seconds(max_time),
        tell=partial(console.print, markup=False, highlight=False, soft_wrap=True),
        shown=partial(_keep, folder),
    )
    cache = EnvironmentCache(home, disk_budget_mb=command.megabytes(disk))
    with command.going_on_later(order.max_seconds):
        case = make_case(order, cache, command.progress_on(console))
        if json_file:
            command.write_json(json_file, case)
        order.shown(case)
        print(*case_lines(case, folder), sep="\n")
        if case.stopped and case.stopped.is_interrupted:
            raise KeyboardInterrupt
    if case.environment is not None and case.environment.problem:
        raise typer.Exit(Exit.PREVENTED)
    found = case.classification
    is_known = found is not None and found.category != UNCLASSIFIED
    raise typer.Exit(Exit.GOOD if is_known or steps != tuple(Step) else Exit.UNANSWERED)


def _chosen(until: str | None, only: list[str] | None) -> tuple[Step, ...]:
    """Return the steps that are asked for, in their order, with those that they need."""
    unknown = [name for name in (*filter(None, [until]), *(only or ())) if name not in set(Step)]
    if unknown:
        raise UsageError(f"no step is called {unknown[0]!r}", hint=f"they are {_STEPS}")
    steps = tuple(Step)[: tuple(Step).index(Step(until)) + 1] if until else tuple(Step)
    needed = {step for name in only for step in Step(name).needs} if only else set(steps)
    return tuple(step for step in steps if step in needed)


def _keep(folder: Path, case: "Case") -> None:
    """Write what is known so far for people, and pack it."""
    from whichtorch.matrix.triage.archive import pack
    from whichtorch.reports.case_text import case_markdown

    command.write_lines(folder / "CASE.md", case_markdown(case))
    pack(folder, Redactor.of_this_machine())


def replay(  # one parameter per option
    archive: Annotated[Path, typer.Argument(metavar="CASE.ZIP", help="A case, as triage packs it.")],
    torch: Annotated[
        list[str] | None, command.EnvironmentOption(metavar="VERSION", help="Where it is run. [default: the case's]")
    ] = None,
    python: command.OnePython = None,
    build: command.OneBuild = None,
    config_name: command.OneConfig = None,
    patch: command.OnePatch = None,
    interpreter: OneInterpreter = None,
    matrix_file: command.MatrixPath = None,
    disk: command.Disk = None,
    whole: Annotated[bool, RunningOption("--whole", help="Run the script as it was, instead of the smallest.")] = False,
    json_file: Annotated[Path | None, OutputOption("--json", metavar="FILE", help="Write the answer as JSON.")] = None,
) -> None:
    """Run a case from elsewhere, and say whether it reproduces here.

    The case is unpacked into a folder of its own, which is gone afterwards. What it holds is code, and it is run.
    Exit code: 0 it reproduces; 1 it does not; 4 that cannot be told; 2 no case; 3 the environment cannot be had.
    """
    # imported here, because other commands start without them
    from whichtorch.matrix.triage.archive import packed_case
    from whichtorch.matrix.triage.places import CasePlace
    from whichtorch.matrix.triage.replay import ReplayOrder
    from whichtorch.matrix.triage.replay import replay as run_case

    command.check_folders_of(json_file)
    case = packed_case(archive)
    release = case.environment.torch.partition("+")[0] if case.environment is not None else "latest"
    file = command.read_search_matrix(
        matrix_file, torch or [release], python=python, build=build, config=config_name, patch=patch
    )
    home = store.state_folder()
    place = CasePlace(home=home, file=file, interpreter=interpreter, beside=Path.cwd())
    cache = EnvironmentCache(home, disk_budget_mb=command.megabytes(disk))
    order = ReplayOrder(archive=archive, whole=whole, place=place)
    with command.going_on_later():
        replayed = run_case(order, cache, command.progress_on(Console()))
    verdict = {True: "reproduces", False: "does not reproduce", None: "cannot be told"}[replayed.reproduces]
    print(f"{replayed.name} {verdict} in {replayed.environment}: {replayed.script} was run {len(replayed.seen)} times")
    print(f"  the case:  {replayed.expected}")
    print(*(f"  seen here: {seen}" for seen in dict.fromkeys(replayed.seen)), sep="\n")
    if json_file:
        command.write_json(json_file, replayed)
    raise typer.Exit({True: Exit.GOOD, False: Exit.RED, None: Exit.UNANSWERED}[replayed.reproduces])


def new_scenario(
    test: command.Test,
    case_folder: Annotated[
        Path | None, typer.Option("--case", metavar="FOLDER", help="Its case. [default: output/cases/NAME]")
    ] = None,
    file: Annotated[
        Path | None, OutputOption("--output", metavar="FILE", help="Write it here. [default: shown]")
    ] = None,
) -> None:
    """Write a script with a header that says what its triage found: kind, timeout, and what fails in which releases.

    The smallest script is taken where there is one. Exit code: 0 written; 2 there is no case, or the file is there.
    """
    from whichtorch.matrix.triage.case import CaseFolder
    from whichtorch.matrix.triage.scenario_header import scenario_of

    scenario, _ = command.one_test(test)
    folder = case_folder or CASES / scenario.path.stem
    case = CaseFolder(folder).read()
    if case is None or case.reproduction is None:
        raise UsageError(f"{folder} holds no case", hint=f"make it with {command.called('triage')} {test}")
    source = (folder / case.smallest).read_text(encoding="utf-8")
    text = scenario_of(case, source)
    if file is None:
        print(text, end="")
        return
    if file.exists():
        raise UsageError(f"{file} is there already", hint="name another file with --output")
    command.check_folders_of(file)
    file.write_text(text, encoding="utf-8")
    print(f"written: {file}; try it with {command.called('matrix')} --script {file}")
