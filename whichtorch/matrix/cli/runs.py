"""The commands about stored runs: `whichtorch runs`, `compare`, `merge`, `history` and `report`."""

import re
import sys
import time
from collections.abc import Sequence
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated

import typer

from whichtorch.matrix.cli.command import Exit, JsonOption, called, check_folders_of, write_json, write_lines
from whichtorch.matrix.errors import UsageError
from whichtorch.matrix.model import Model
from whichtorch.matrix.privacy.redaction import Redactor
from whichtorch.matrix.records import store, stored_runs
from whichtorch.reports.cell_text import where_it_ran
from whichtorch.reports.formats import FORMATS, ReportFormat, gather

DAY = 86400.0  # seconds
OUTPUT = Path("output")  # where reports go for which no file is named
runs = typer.Typer(invoke_without_command=True, rich_markup_mode=None)
_NAME = re.compile(r"[A-Za-z][\w.-]*")
_TAKEN = re.compile(r"latest(~\d+)?")
Which = Annotated[str, typer.Argument(metavar="RUN", help="Its id or the beginning of it, name, latest, or day.")]


@runs.callback()
def list_runs(
    context: typer.Context, json_file: Annotated[Path | None, JsonOption(help="Write the list as JSON.")] = None
) -> None:
    """List the stored runs, oldest first; `runs name` gives one a name, `runs prune` removes old ones.

    Exit code: 0; 2 wrong usage.
    """
    if context.invoked_subcommand is not None:
        return
    from whichtorch.reports.stored_run_text import Runs, run_lines

    check_folders_of(json_file)
    stored = tuple(head.run for head in stored_runs.all_runs(store.state_folder()))
    print(*run_lines(stored), sep="\n")
    if json_file:
        write_json(json_file, Runs(runs=stored))


@runs.command()
def name(run: Which, text: Annotated[str, typer.Argument(metavar="NAME", help="What to call it from now on.")]) -> None:
    """Give a run a name: `compare`, `report` and `runs` know it by that, and `runs prune` spares it.

    Exit code: 0; 2 no such run, or no name.
    """
    home = store.state_folder()
    if not _NAME.fullmatch(text) or _TAKEN.fullmatch(text):
        raise UsageError(f"{text!r} cannot be a name", hint="begin with a letter, then letters, digits, . _ and -")
    head = stored_runs.find(run, home)
    if head.folder.parent != home / "runs":
        raise UsageError(f"{head.folder} is not among the stored runs", hint="`whichtorch merge` takes it in")
    bearers = [other.run.id for other in stored_runs.all_runs(home) if text in {other.run.name, other.run.id}]
    if bearers and bearers[0] != head.run.id:
        raise UsageError(f"{bearers[0]} is called {text}", hint="choose another name")
    store.write_run(head.folder, head.run.model_copy(update={"name": text}), Redactor.of_this_machine())
    print(f"{head.run.id} is called {text}")


@runs.command()
def prune(
    keep: Annotated[int, typer.Option(metavar="N", min=0, help="How many of the latest runs stay.")],
    wheels: Annotated[
        float | None, typer.Option(metavar="DAYS", min=0, help="Also the kept wheels of nightlies not used so long.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would go, and remove nothing.")] = False,
) -> None:
    """Remove all but the latest runs, and what they have found out: it will be run again when it is asked for.

    Runs with a name stay, and what the runs that stay rest on. A wheel of a nightly that its index has dropped cannot
    be had again. Exit code: 0; 2 wrong usage.
    """
    from whichtorch.matrix.environments.disk import Disk
    from whichtorch.reports.stored_run_text import prune_lines

    home = store.state_folder()
    kept = Disk(home).kept_wheels() if wheels is not None else []
    last = time.time() - (wheels or 0) * DAY
    old = [path for path in kept if path.stat().st_atime < last]
    heads = stored_runs.all_runs(home)
    chosen = stored_runs.removable(heads, keep)
    if dry_run:
        for head in chosen:
            print(f"would remove {head.run.id}")
        for path in old:
            print(f"would remove {path.name}")
    else:
        others = [head for head in heads if head not in chosen]
        print(*prune_lines(stored_runs.prune(home, chosen, others)), sep="\n")
        for path in old:
            path.unlink(missing_ok=True)
            print(f"removed {path.name}")


def compare(
    old: Annotated[str, typer.Argument(metavar="OLD", help="A run: id or its beginning, name, latest~1, day, folder.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="Another one, such as latest.")],
    json_file: Annotated[Path | None, JsonOption(help="Write the comparison as JSON.")] = None,
) -> None:
    """Compare two runs cell by cell: regressions, fixes, new and different failures, what came and went.

    A run is named by its id or the beginning of it, by its name, by `latest` or `latest~1`, by a day (the last run
    started on 2026-11-20, UTC), or by a folder from elsewhere. Cells are matched by test and environment; a nightly
    is compared with the one of the other night. Exit code: 0 nothing got worse; 1 a regression; 2 no such run.
    """
    from whichtorch.matrix.compare import comparison
    from whichtorch.reports.stored_run_text import comparison_lines

    home = store.state_folder()
    check_folders_of(json_file)
    before, after = (stored_runs.find(text, home).read() for text in (old, new))
    compared = comparison.compare(before.result, after.result)
    print(*comparison_lines(compared, before, after, where_it_ran(called, after.result.run)), sep="\n")
    if json_file:
        write_json(json_file, compared)
    raise typer.Exit(Exit.RED if compared.is_worse else Exit.GOOD)


def merge(
    folders: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="Folders of runs, or such that hold some, as downloaded.")
    ],
) -> None:
    """Make one run of runs that were made on several machines or by several jobs of a CI service.

    The same record twice is kept once; conflicting ones are both kept, and the cells that rest on them told. The
    parts stay as they are; the merged run is then the `latest` one. Exit code: 0; 2 a folder holds no run.
    """
    from whichtorch.matrix.records import merging
    from whichtorch.reports.stored_run_text import merge_lines

    home = store.state_folder()
    heads = []
    problems = []
    for folder in folders:
        try:
            heads += stored_runs.runs_below(folder)
        except UsageError as error:
            problems.append(error.message)
    if problems:
        raise UsageError("\n".join(problems), hint="name a folder with a run.json, or one above it")
    with store.new_run(home, tuple(sys.argv[1:])) as run_store:
        merged = merging.merge(heads, run_store)
        run_store.finish(run_store.run)
    print(*merge_lines(merged, run_store.run), sep="\n")


def history(
    scenario: Annotated[str, typer.Argument(metavar="SCENARIO", help="A test by name, with or without its variant.")],
    json_file: Annotated[Path | None, JsonOption(help="Write the lines as JSON.")] = None,
) -> None:
    """Tell what stored runs made of a test: one line per night and environment, and where that changed.

    Exit code: 0; 2 no run has it.
    """
    from whichtorch.matrix.compare import nights
    from whichtorch.reports.stored_run_text import history_lines

    home = store.state_folder()
    check_folders_of(json_file)
    heads = [head for head in stored_runs.all_runs(home) if head.run.kind in stored_runs.COMPARABLE]
    histories = nights.history(scenario, heads)
    if not histories:
        raise UsageError(f"no stored run has a cell {scenario}", hint="`whichtorch runs` lists the runs")
    print(*history_lines(histories), sep="\n")
    if json_file:
        write_json(json_file, nights.Histories(histories=histories))


def report(
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="Its id or the beginning of it, name, latest, day, or folder.")
    ] = "latest",
    baseline: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="What changed since this run? [default: the last with half its cells]"),
    ] = None,
    **paths: Path | None,
) -> None:
    """Make the reports of a stored run: by default all of them, of the latest run, in the folder output.

    They are made from the records alone: at any time, and of a run from another machine, too. Exit code: 0; 2 no
    such run, or nowhere to write.
    """
    from whichtorch.reports.table import shown_path

    named = [(row, path) for row in FORMATS if (path := paths[row.name])]
    check_folders_of(*(path for _, path in named))
    files = [(row, path / row.file if row.in_folder else path) for row, path in named]
    files = files or [(row, OUTPUT / row.file) for row in FORMATS]
    home = store.state_folder()
    facts = gather(stored_runs.find(run, home), home, stored_runs.find(baseline, home) if baseline else None)
    there = where_it_ran(called, facts.stored.result.run)
    for row, file in files:
        file.parent.mkdir(exist_ok=True)
        content = row.content(facts, there)
        if isinstance(content, Model):
            write_json(file, content)
        elif isinstance(content, bytes):
            file.write_bytes(content if row.is_redacted else Redactor.of_this_machine().data(content))
        else:
            write_lines(file, content)
    for _, file in files:
        print(f"wrote {shown_path(file)}")


def offer(formats: Sequence[ReportFormat]) -> None:
    """Give `report` an option for each format: typer reads the options of a command from its signature."""
    own = signature(report).parameters.values()
    given = [parameter for parameter in own if parameter.kind is Parameter.POSITIONAL_OR_KEYWORD]
    report.__dict__["__signature__"] = Signature([*given, *map(_option, formats)])


def _option(row: ReportFormat) -> Parameter:
    option = typer.Option(f"--{row.name}", metavar="DIR" if row.in_folder else "FILE", help=row.help)
    return Parameter(row.name, Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[Path | None, option])


offer(FORMATS)
