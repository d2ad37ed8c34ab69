"""The work of `whichtorch dispatch`: take dispatch tables live inside environments, and compare them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from whichtorch import inside
from whichtorch.base.errors import PreventedError, UsageError
from whichtorch.environments.configs import cell_environ
from whichtorch.environments.expansion import EXISTING, axes_of, environment_named, request_for
from whichtorch.hangs.dispatch.call_path import KernelDifference, Table, compare_tables, difference_lines, parse_table
from whichtorch.model import Environment, Model, Request
from whichtorch.process.marks import temporary_folder
from whichtorch.process.supervision import Task
from whichtorch.records import store

if TYPE_CHECKING:
    from whichtorch.environments.matrix_file import MatrixFile
    from whichtorch.environments.provider import Environments
    from whichtorch.process.executor import Executor

SCRIPT = inside.path("native_dump.py")
TIMEOUT = 300.0  # seconds: `import torch` from a cold disk takes up to a minute


class EnvironmentTable(Model):
    """An operator's dispatch table in one environment."""

    environment: str  # label
    id: str
    torch: str
    table: Table


class TableComparison(Model):
    """What `dispatch --json` writes; no differences where one environment is named."""

    operator: str
    tables: tuple[EnvironmentTable, ...]
    differences: tuple[KernelDifference, ...] = ()


def compare_operator(
    operator: str, names: Sequence[str], file: MatrixFile, environments: Environments, executor: Executor
) -> TableComparison:
    """Compare the tables of an operator in two environments, or return that in one.

    A name is the label or id of a known environment, or a Python's path. Raises UsageError for a name that means no
    environment, or an operator that is nowhere; PreventedError where an environment cannot be had.
    """
    if not 1 <= len(names) <= 2:
        raise UsageError(f"{len(names)} environments cannot be compared", hint="name one, to see it, or two")
    operator = operator if "::" in operator else f"aten::{operator}"
    requests = [_request(name, file, environments.home) for name in names]
    tables = [_table_in(request, operator, environments, executor) for request in requests]
    if not any(each.table.rows for each in tables):
        raise UsageError(f"no operator {operator!r} in {tables[0].environment}", hint="write it as aten::add.Tensor")
    differences = compare_tables(tables[0].table, tables[-1].table)
    return TableComparison(operator=operator, tables=tuple(tables), differences=differences)


def comparison_lines(comparison: TableComparison) -> Iterator[str]:
    """Yield the differences for people, or one environment's table."""
    first, last = comparison.tables[0], comparison.tables[-1]
    if first is last:
        yield f"{comparison.operator} in {first.environment} (torch {first.torch}), highest priority last:"
        yield from (f"    {row.words}" for row in first.table.rows)
        return
    total = len({row.key for each in comparison.tables for row in each.table.rows})
    yield f"{comparison.operator}: first in {first.environment} (torch {first.torch}),"
    yield f"{' ' * len(comparison.operator)}  then in {last.environment} (torch {last.torch})"
    if not comparison.differences:
        yield f"all {total} dispatch keys lead to the same kernels"
        return
    yield f"{len(comparison.differences)} of {total} dispatch keys lead to another kernel:"
    yield from difference_lines(comparison.differences)


def _request(name: str, file: MatrixFile, home: Path) -> Request:
    """Return the request for a Python by its path, or for a known environment by its label or id."""
    path = Path(name)
    if "/" in name or path.is_file():
        request = request_for(file, home, {"config": "default"}, path.absolute())
        assert request is not None
        return request
    environment = environment_named(name, store.read_environments(home))
    interpreter = environment.interpreter if environment.build == EXISTING else None
    request = request_for(file, home, axes_of(environment), interpreter)
    if request is None or request.axes["patch"] != environment.patch:  # a patch may have been edited
        hint = "name the matrix file that has its build, config and patch with --matrix"
        raise UsageError(f"{environment.label} cannot be asked for again", hint=hint)
    return request


def _table_in(request: Request, operator: str, environments: Environments, executor: Executor) -> EnvironmentTable:
    environment = environments.acquire(request)
    if not environment.is_usable:
        log = f"; log {environment.log}" if environment.log else ""
        raise PreventedError(f"{environment.label} is {environment.outcome}: {environment.reason}{log}")
    try:
        dump = _dump(operator, environment, cell_environ(request, environment, environments.home), executor)
    finally:
        environments.release(request)
    table = parse_table(dump or "", operator)
    return EnvironmentTable(environment=environment.label, id=environment.id, torch=environment.torch, table=table)


def _dump(operator: str, environment: Environment, environ: dict[str, str], executor: Executor) -> str | None:
    """Return an operator's table as torch prints it inside an environment; None where there is no such operator."""
    with temporary_folder() as folder:
        script, answer, log = folder / "tables.py", folder / "answer.json", folder / "output.txt"
        shutil.copyfile(SCRIPT, script)  # alone in its folder, so that none of the tool's modules can be imported
        task = Task(
            argv=(str(environment.interpreter), str(script), str(answer), operator),
            cwd=str(folder),
            env=environ,
            stdout=str(log),
            stderr=str(log),
            timeout=TIMEOUT,
        )
        ending = executor.run(task)
        assert ending is not None  # nothing interrupts this executor before it starts the task
        try:
            tables: dict[str, str | None] = json.loads(answer.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            output = log.read_text(encoding="utf-8", errors="replace").strip()
            last = (output.splitlines() or [ending.stopped_by])[-1]
            raise PreventedError(f"{environment.label} did not tell its dispatch table: {last}") from None
    return tables[operator]
