"""The commands about stored runs: `whichtorch runs`, `compare`, `merge`, `history` and `report`."""

import re
import sys
import time
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whichtorch.base.errors import UsageError
from whichtorch.base.option import argument, group, json_output, option
from whichtorch.cli import command
from whichtorch.cli.command import Display, Exit, baseline_option, called, format_options, state_folder, write_json
from whichtorch.reports.formats import FORMATS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from whichtorch.records.store import RunFolder

DAY = 86400.0  # seconds
OUTPUT = Path("output")  # where reports go by default
_NAME = re.compile(r"[A-Za-z][\w.-]*")


@dataclass(frozen=True, kw_only=True)
class RunsOptions:
    """The options of `runs` without a subcommand."""

    json_file: Path | None = json_output()


def runs(options: RunsOptions) -> None:
    """List the stored runs; name one, or remove old ones.

    Exit code: 0; 2 wrong usage.
    """
    from whichtorch.records import stored_runs
    from whichtorch.reports.stored_run_text import Runs, run_lines

    home = state_folder()
    heads = stored_runs.all_runs(home)
    stored = tuple(head.run for head in heads)
    running = {head.run.id for head in heads if not head.run.ended and head.is_running}
    Display().say(run_lines(stored, running))
    _tell_damage(home, heads, 1)
    write_json(options.json_file, Runs(runs=stored))


def _tell_damage(home: Path, heads: "Sequence[RunFolder]", lines: int | None = None) -> None:
    from whichtorch.records import stored_runs

    for text in stored_runs.damage(home, heads, lines):
        print(f"note: {text}", file=sys.stderr)


@dataclass(frozen=True, kw_only=True)
class NameOptions:
    """The options of `runs name`."""

    run: str = argument("RUN", "Its id or the beginning of it, name, latest, or day.")
    text: str = argument("NAME", "What to call it from now on.")


def runs_name(options: NameOptions) -> None:
    """Give a run a name: `compare`, `report` and `runs` know it by that, and `runs prune` spares it.

    Exit code: 0; 2 no such run, or no name.
    """
    from whichtorch.base.redaction import Redactor
    from whichtorch.records import store, stored_runs

    home, text = state_folder(), options.text
    if not _NAME.fullmatch(text) or stored_runs.LATEST.fullmatch(text):
        raise UsageError(f"{text!r} cannot be a name", hint="begin with a letter, then letters, digits, . _ and -")
    head = stored_runs.find(options.run, home)
    if head.folder.parent != home / "runs":
        raise UsageError(f"{head.folder} is not among the stored runs", hint="`whichtorch merge` takes it in")
    bearers = [other.run.id for other in stored_runs.all_runs(home) if text in {other.run.name, other.run.id}]
    if bearers and bearers[0] != head.run.id:
        raise UsageError(f"{bearers[0]} is called {text}", hint="choose another name")
    store.write_run(head.folder, head.run.model_copy(update={"name": text}), Redactor.of_this_machine())
    print(f"{head.run.id} is called {text}")


@dataclass(frozen=True, kw_only=True)
class PruneOptions:
    """The options of `runs prune`."""

    keep: int = option(default=MISSING, metavar="N", least=0, help="How many of the latest runs stay.")
    wheels: float | None = option(metavar="DAYS", least=0, help="Also remove nightly wheels unused for this long.")
    dry_run: bool = option(default=False, help="Say what would go, and remove nothing.")


def runs_prune(options: PruneOptions) -> None:
    """Remove all but the latest runs, and what they have found out: it will be run again when it is asked for.

    Runs with a name stay, and what the runs that stay rest on. A wheel of a nightly that its index has dropped cannot
    be had again. Exit code: 0; 2 wrong usage.
    """
    from whichtorch.environments.disk import Disk
    from whichtorch.records import stored_runs
    from whichtorch.reports.stored_run_text import prune_lines

    home = state_folder()
    kept = Disk(home).kept_wheels() if options.wheels is not None else []
    last = time.time() - (options.wheels or 0) * DAY
    old = [path for path in kept if path.stat().st_atime < last]
    heads = stored_runs.all_runs(home)
    chosen = stored_runs.removable(heads, options.keep)
    if options.dry_run:
        for name in (*(head.run.id for head in chosen), *(path.name for path in old)):
            print(f"would remove {name}")
        return
    others = [head for head in heads if head not in chosen]
    print(*prune_lines(stored_runs.prune(home, chosen, others)), sep="\n")
    for path in old:
        path.unlink(missing_ok=True)
        print(f"removed {path.name}")


@dataclass(frozen=True, kw_only=True)
class CompareOptions:
    """The options of `compare`."""

    old: str = argument(
        "OLD",
        "A run: id or its beginning, name, latest~1, day, folder. [default: the last before NEW like it]",
        default="",
    )
    new: str = argument("NEW", "Another one. [default: latest]", default="latest")
    json_file: Path | None = json_output()


def compare(options: CompareOptions) -> Exit:
    """Compare two runs: what got worse, is fixed, new or different.

    A run is named by its id or the beginning of it, by its name, by `latest` or `latest~1`, by a day (the last run
    started on 2026-11-20, UTC), or by a folder from elsewhere. Cells are matched by test and environment; a nightly
    is compared with the one of the other night. Numbers that were measured are compared by their change from the
    same reference. What passed and fails now is a regression, whatever changed; what did is told beside it.
    Exit code: 0 nothing got worse; 1 a regression, or a number that is worse in two runs in a row; 2 no such run.
    """
    from whichtorch.records import stored_runs
    from whichtorch.records.compare import comparison
    from whichtorch.records.compare.nights import measured_before
    from whichtorch.reports.cell_text import where_it_ran
    from whichtorch.reports.run_facts import run_before
    from whichtorch.reports.stored_run_text import comparison_lines

    home = state_folder()
    after = stored_runs.find(options.new, home)
    heads = [stored_runs.find(options.old, home) if options.old else run_before(after, home), after]
    _tell_damage(home, heads)
    old, new = (head.read() for head in heads)
    compared = comparison.compare(old.result, new.result, measured_before(new.result, home), home)
    Display().say(comparison_lines(compared, old, new, where_it_ran(called, new.result.run)))
    write_json(options.json_file, compared)
    return Exit.RED if compared.is_worse else Exit.GOOD


@dataclass(frozen=True, kw_only=True)
class MergeOptions:
    """The options of `merge`."""

    folders: tuple[Path, ...] = argument("DIR...", "Folders of runs, or such that hold some, as downloaded.")


def merge(options: MergeOptions) -> None:
    """Make one run of those made on several machines.

    The same record twice is kept once; conflicting ones are both kept, and the cells that rest on them told. The
    parts stay as they are; the merged run is then the `latest` one. Exit code: 0; 2 a folder holds no run.
    """
    from whichtorch.records import store, stored_runs
    from whichtorch.reports.stored_run_text import merge_lines

    heads = []
    problems = []
    for folder in options.folders:
        try:
            heads += stored_runs.runs_below(folder)
        except UsageError as error:
            problems.append(error.message)
    if problems:
        raise UsageError("\n".join(problems), hint="name a folder with a run.json, or one above it")
    with store.new_run(state_folder(), tuple(sys.argv[1:])) as run_store:
        merged = stored_runs.merge(heads, run_store)
        run_store.finish(run_store.run)
    print(*merge_lines(merged, run_store.run), sep="\n")


@dataclass(frozen=True, kw_only=True)
class HistoryOptions:
    """The options of `history`."""

    scenario: str = argument("TEST", "A test by its name or a part of it, with or without its variant.")
    json_file: Path | None = json_output()


def history(options: HistoryOptions) -> None:
    """Tell what became of a test, night after night.

    Of a number that was measured: from which night on it has another level. Of a test that comes and goes: how often
    it fails.
    Exit code: 0; 2 no run has it.
    """
    from whichtorch.records import stored_runs
    from whichtorch.records.compare import nights
    from whichtorch.reports.stored_run_text import history_lines

    heads = [head for head in stored_runs.all_runs(state_folder()) if head.run.kind in stored_runs.COMPARABLE]
    histories = nights.history(options.scenario, heads)
    if not histories:
        raise UsageError(f"no stored run has a cell {options.scenario}", hint="`whichtorch runs` lists the runs")
    told = nights.Histories.of(histories)
    Display().say(history_lines(told))
    write_json(options.json_file, told)


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """The options of `report`."""

    run: str = argument(
        "RUN", "Its id or the beginning of it, name, latest, day, or folder. [default: latest]", default="latest"
    )
    baseline: str | None = baseline_option()
    files: Any = group(format_options(FORMATS))  # the path of each format, by its name


def report(options: ReportOptions) -> None:
    """Make the page, Markdown, JUnit and JSON of a stored run.

    They are made from the records alone: at any time, and of a run from another machine, too. Exit code: 0; 2 no
    such run, or nowhere to write.
    """
    from whichtorch.records import stored_runs

    files = command.named_files(options.files) or [(row, OUTPUT / row.file) for row in FORMATS if row.file]
    home = state_folder()
    baseline = stored_runs.find(options.baseline, home) if options.baseline else None
    head = stored_runs.find(options.run, home)
    _tell_damage(home, [head, *([baseline] if baseline else [])])
    command.write_reports(files, head, home, baseline)
