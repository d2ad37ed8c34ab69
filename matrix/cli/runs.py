"""`whichtorch runs`: list, name and remove stored runs."""

import re
from pathlib import Path
from typing import Annotated

import typer

from matrix.cli.session import Exit, check_folders_of, print_lines, write_json
from matrix.errors import UsageError
from matrix.privacy.redaction import Redactor
from matrix.records import store
from matrix.records import stored_runs as stored

runs = typer.Typer(invoke_without_command=True, rich_markup_mode=None)
_NAME = re.compile(r"[A-Za-z][\w.-]*")
_TAKEN = re.compile(r"latest(~\d+)?")
Which = Annotated[str, typer.Argument(metavar="RUN", help="Its id or the beginning of it, name, latest, or day.")]


@runs.callback()
def list_runs(
    context: typer.Context,
    json_file: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the list as JSON.")] = None,
) -> None:
    """List the stored runs, oldest first; `runs name` gives one a name, `runs prune` removes old ones.

    Exit code: 0; 2 wrong usage.
    """
    if context.invoked_subcommand is not None:
        return
    from reports.stored_run_text import Runs, run_lines

    check_folders_of(json_file)
    heads = stored.all_runs(store.state_folder())
    print_lines(run_lines([head.run for head in heads]))
    if json_file:
        write_json(json_file, Runs(runs=tuple(head.run for head in heads)))


@runs.command()
def name(run: Which, text: Annotated[str, typer.Argument(metavar="NAME", help="What to call it from now on.")]) -> None:
    """Give a run a name: `compare`, `report` and `runs` know it by that, and `runs prune` spares it.

    Exit code: 0; 2 no such run, or no name.
    """
    home = store.state_folder()
    if not _NAME.fullmatch(text) or _TAKEN.fullmatch(text):
        raise UsageError(f"{text!r} cannot be a name", hint="begin with a letter, then letters, digits, . _ and -")
    head = stored.find(run, home)
    if head.folder.parent != home / "runs":
        raise UsageError(f"{head.folder} is not among the stored runs", hint="`whichtorch merge` takes it in")
    namesake = next(
        (other.run.id for other in stored.all_runs(home) if text in {other.run.name, other.run.id}), head.run.id
    )
    if namesake != head.run.id:
        raise UsageError(f"{namesake} is called {text}", hint="choose another name")
    store.write_run(head.folder, head.run.model_copy(update={"name": text}), Redactor.of_this_machine())
    print(f"{head.run.id} is called {text}")
    raise typer.Exit(Exit.GOOD)


@runs.command()
def prune(
    keep: Annotated[int, typer.Option(metavar="N", min=0, help="How many of the latest runs stay.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would go, and remove nothing.")] = False,
) -> None:
    """Remove all but the latest runs, and what they have found out: it will be run again when it is asked for.

    Runs with a name stay, and what the runs that stay rest on. Exit code: 0; 2 wrong usage.
    """
    from reports.stored_run_text import prune_lines

    home = store.state_folder()
    heads = stored.all_runs(home)
    chosen = stored.removable(heads, keep)
    others = [head for head in heads if head not in chosen]
    if dry_run:
        print_lines(f"would remove {head.run.id}" for head in chosen)
        raise typer.Exit(Exit.GOOD)
    print_lines(prune_lines(stored.prune(home, chosen, others)))
    raise typer.Exit(Exit.GOOD)
