"""A trial: one run of a script with what is changed for it, on the machine that has the environment."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from whichtorch.base.atomic_files import text_of
from whichtorch.environments.overlay import overlays_below
from whichtorch.matrix.variation import NOTES, AttemptRequest, Variation
from whichtorch.matrix.work import CellEnd
from whichtorch.process.executor import BRIEF_EXIT
from whichtorch.process.script_reading import read_script
from whichtorch.process.temporary_folders import temporary_folder
from whichtorch.suite.companions import companions_of, copy_companions

if TYPE_CHECKING:
    from whichtorch.matrix.planning import PlannedCell
    from whichtorch.matrix.site import LocalSite, ReadyCell

MOST_NOTED = 50_000_000  # bytes of a file of notes; a larger one, such as a long trace, is left out


def run_trial(variation: Variation, cell: ReadyCell, site: LocalSite) -> CellEnd | None:
    """Run a cell's script once, with what is changed, on the machine that has the environment.

    Return its record, which says nothing about the cell, and its notes; None where it was interrupted.
    """
    home, planned, environment = site.environments.home, cell.planned, cell.environment
    with ExitStack() as held:
        workshop = held.enter_context(temporary_folder())
        notes = workshop / "notes"
        notes.mkdir()
        script = planned.scenario
        level = "" if script.command else read_script(script.path).level  # alike for all variations of its source
        may_fork = variation.may_fork and planned.chain is None and site.forking is not None
        folder = None
        if variation.in_scratch or variation.source is not None:
            folder = workshop / "work"
            planned = _in_scratch(planned, variation, folder, notes)
        env = variation.environ(str(notes)) | ({BRIEF_EXIT: "1"} if variation.is_brief else {})
        planned = planned.configured(env, list(variation.hooks))
        if variation.files:
            environment = held.enter_context(overlays_below(home).laid(environment, variation.files))
        planned = replace(planned, options=replace(planned.options, in_search=not variation.names_cache))
        order = AttemptRequest(
            limit=variation.limit,
            goal=variation.goal,
            folder=folder,
            notes=notes,
            arguments=tuple(argument.replace(NOTES, str(notes)) for argument in variation.arguments),
            caches=site.caches if may_fork else None,
            fork_level=(level or "torch") if may_fork else "",
            hung_before=lambda signature: signature == variation.hung_at,
            cancelled=cell.cancelled,
        )
        record = site.attempt(planned, environment, order)
        texts = {
            str(path.relative_to(notes)): text_of(path)
            for path in sorted(notes.rglob("*"))
            if path.is_file() and path.stat().st_size <= MOST_NOTED
        }
    return CellEnd(position=cell.position, records=(record,), notes=texts) if record else None


def _in_scratch(planned: PlannedCell, variation: Variation, folder: Path, notes: Path) -> PlannedCell:
    """Return the cell with its script in a folder of its own, which is its home as well."""
    folder.mkdir()
    scenario, source = planned.scenario, variation.source
    if not variation.is_alone:
        copy_companions(companions_of(scenario, scenario.folder or variation.beside or scenario.path.parent), folder)
    script = folder / f"{scenario.path.stem}.py"
    if source is None:
        script.write_bytes(scenario.path.read_bytes())
    else:
        script.write_text(source.replace(NOTES, str(notes)), encoding="utf-8")
    scenario = scenario.model_copy(update={"path": script, "command": None})
    return replace(planned, scenario=scenario).configured({"HOME": str(folder)})
