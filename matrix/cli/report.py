"""`whichtorch report`: pages and files about a stored run, for people and for machines."""

from collections.abc import Sequence
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated

import typer

from matrix.cli.session import Exit, called, check_folders_of, write_json, write_lines
from matrix.model import Model
from matrix.privacy.redaction import Redactor
from matrix.records import store, stored_runs
from reports.formats import FORMATS, ReportFormat, gather

OUTPUT = Path("output")  # where reports go for which no file is named


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
    from reports.table import short

    named = [(row, path) for row in FORMATS if (path := paths[row.name])]
    check_folders_of(*(path for _, path in named))
    files = [(row, path / row.file if row.in_folder else path) for row, path in named]
    files = files or [(row, OUTPUT / row.file) for row in FORMATS]
    home = store.state_folder()
    facts = gather(stored_runs.find(run, home), home, stored_runs.find(baseline, home) if baseline else None)
    for row, file in files:
        file.parent.mkdir(exist_ok=True)
        content = row.content(facts, called)
        if isinstance(content, Model):
            write_json(file, content)
        elif isinstance(content, bytes):
            file.write_bytes(content if row.is_redacted else Redactor.of_this_machine().data(content))
        else:
            write_lines(file, content)
    for _, file in files:
        print(f"wrote {short(file)}")
    raise typer.Exit(Exit.GOOD)


def offer(formats: Sequence[ReportFormat]) -> None:
    """Give `report` an option for each format: typer reads the options of a command from its signature."""
    own = signature(report).parameters.values()
    given = [parameter for parameter in own if parameter.kind is Parameter.POSITIONAL_OR_KEYWORD]
    report.__dict__["__signature__"] = Signature([*given, *map(_option, formats)])


def _option(row: ReportFormat) -> Parameter:
    option = typer.Option(f"--{row.name}", metavar="DIR" if row.in_folder else "FILE", help=row.help)
    return Parameter(row.name, Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[Path | None, option])


offer(FORMATS)
