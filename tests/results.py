"""Runs that are made up, and stored as real ones are."""

from collections.abc import Sequence
from pathlib import Path

from whichtorch.model import Attempt, Cell, Environment, Outcome, Result, Run, StoppedBy
from whichtorch.records import store
from whichtorch.records.store import RunFolder

PASS, FAIL, HANG = Outcome.PASS, Outcome.FAIL, Outcome.HANG


def environment(torch: str = "2.11.0", *, config: str = "default", **fields: object) -> Environment:
    label = f"torch-{torch}-pypi" + ("" if config == "default" else f"-{config}")
    values: dict[str, object] = {
        "id": f"{torch}/{config}",
        "label": label,
        "torch": torch,
        "python": "3.11.7",
        "build": "pypi",
        "config": config,
        "options": ("--torch", torch, "--build", "pypi"),
    }
    return Environment.model_validate(values | fields)


def attempt(outcome: Outcome, **fields: object) -> Attempt:
    values = {"outcome": outcome, "seconds": 1.5, "stopped_by": StoppedBy.EXIT}
    return Attempt.model_validate(values | fields)


def cell(where: Environment, outcome: Outcome, name: str = "family/case", **fields: object) -> Cell:
    values: dict[str, object] = {
        "environment": where.id,
        "scenario": name,
        "source_hash": name,
        "outcome": outcome,
        "expected": outcome is PASS,
        "seconds": 1.5,
        "attempts": () if outcome.is_prevented else (attempt(outcome),),
    }
    return Cell.model_validate(values | fields)


def flaky(where: Environment, outcome: Outcome, seen: int, of: int, name: str = "family/case") -> Cell:
    """Return a cell with so many attempts of an outcome, and passes."""
    attempts = [attempt(outcome)] * seen + [attempt(PASS)] * (of - seen)
    return cell(where, outcome, name, attempts=tuple(attempts))


def result(environments: Sequence[Environment], cells: Sequence[Cell], id_: str = "r") -> Result:
    run = Run(id=id_, started="2026-11-01T00:00:00+00:00", ended=True, command=("matrix",))
    return Result(run=run, environments=tuple(environments), cells=tuple(cells))


def stored(home: Path, made: Result, *, day: str = "2026-11-01", ended: bool = True, **fields: object) -> RunFolder:
    """Store a run as the tool does, as if it had been started on a day."""
    with store.new_run(home, made.run.command, len(made.cells)) as run_store:
        started = f"{day}T02:00:00+00:00"
        run_store.run = run_store.run.model_copy(update={"started": started, **fields})
        for scenario in made.scenarios:
            run_store.add_scenario(scenario)
        for made_environment in made.environments:
            run_store.add_environment(made_environment)
        for index, made_cell in enumerate(made.cells):
            run_store.add_cell(made_cell, [], index)
        if ended:
            run_store.finish(run_store.run)
        else:
            store.write_run(run_store.folder, run_store.run, run_store.redactor)
    return RunFolder(folder=run_store.folder, run=run_store.run)
