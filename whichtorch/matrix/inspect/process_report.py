"""What `whichtorch stacks` tells, for people and for programs, of one machine or of several."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pydantic import Field, ValidationError

from whichtorch.matrix.diagnosis import portable
from whichtorch.matrix.diagnosis.hang import stack_folder
from whichtorch.matrix.diagnosis.hang.hang_diagnosis import HangDiagnosis, diagnose
from whichtorch.matrix.diagnosis.stacks import Process
from whichtorch.matrix.errors import UsageError
from whichtorch.matrix.model import Model
from whichtorch.matrix.privacy.redaction import Redactor

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

SCHEMA = 1
AGAIN = "write each with `whichtorch stacks PID --json` on its machine, into a file that bears its name: host1.json"


class ProcessReport(Model):
    """The stacks of a process and its descendants, or of those of several machines, and what they show."""

    schema_: int = Field(default=SCHEMA, alias="schema")
    diagnosis: HangDiagnosis
    processes: tuple[Process, ...]
    notes: tuple[str, ...] = ()  # what could not be read, and why

    @property
    def lines(self) -> Iterator[str]:
        """The report for people, the stuck thread first."""
        return stack_folder.diagnosis_lines(self.diagnosis, self.processes)

    @property
    def json_text(self) -> str:
        """The report for programs, redacted; `merged` reads it on another machine."""
        processes = [
            portable.portable(process).model_dump(mode="json", exclude_defaults=True) for process in self.processes
        ]
        fields = {
            "schema": SCHEMA,
            "diagnosis": self.diagnosis.model_dump(mode="json"),
            "processes": processes,
            "notes": self.notes,
        }
        return Redactor.of_this_machine().json_line(json.dumps(fields, indent=1))


def merged(paths: Sequence[Path]) -> ProcessReport:
    """Return one report of what was seen on several machines; each is called as its file is, without the suffix.

    Raises UsageError that names every file that cannot be used.
    """
    problems: list[str] = []
    pictures: dict[str, tuple[Process, ...]] = {}
    notes: list[str] = []
    for path in paths:
        try:
            processes, own_notes = _read(path)
        except ValueError as error:
            problems.append(f"{path}: {error}")
            continue
        host = path.stem
        if host in pictures:
            problems.append(f"{path}: another file is called {host}, too, and the name tells the machines apart")
        elif twin := next((other for other, known in pictures.items() if known == processes), None):
            problems.append(f"{path}: it holds the same as that of {twin}")
        else:
            pictures[host] = processes
            notes += [f"{host}: {note}" for note in own_notes]
    if problems:
        raise UsageError("\n".join(problems), hint=AGAIN)
    together = portable.merged(list(pictures.items()))
    return ProcessReport(diagnosis=diagnose(together), processes=together, notes=tuple(notes))


def _read(path: Path) -> tuple[tuple[Process, ...], list[str]]:
    """Return the processes and notes that a file holds. Raises ValueError that says what is wrong with it."""
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise ValueError(error.strerror or repr(error)) from None
    except (ValueError, RecursionError):
        raise ValueError("it is no JSON, or was cut off") from None
    if not isinstance(content, dict) or not isinstance(content.get("processes"), list):
        raise ValueError("it was not written by `whichtorch stacks`")  # noqa: TRY004 - as all that is wrong with a file
    schema = content.get("schema")
    if schema != SCHEMA:
        other = f"of form {schema}" if schema else "of an older whichtorch"
        raise ValueError(f"it is {other}, and this one reads form {SCHEMA}: use one version on all machines")
    try:
        processes = tuple(Process.model_validate(known(Process, row)) for row in content["processes"])
    except (ValidationError, TypeError, AttributeError) as error:
        what = error.errors()[0]["loc"] if isinstance(error, ValidationError) else ()
        where = ".".join(map(str, what))
        raise ValueError(f"it is damaged{f' at {where}' if where else ''}") from None
    if not processes:
        raise ValueError("it holds no processes")
    if any(process.host for process in processes):
        raise ValueError("it is of several machines already: merge the files that it was made from")
    notes = content.get("notes")
    return processes, [str(note) for note in notes] if isinstance(notes, list) else []


def known(kind: type[Model], row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row without the fields that a newer version has added, at any depth."""
    return {
        name: _known_within(kind.model_fields[name].annotation, value)
        for name, value in row.items()
        if name in kind.model_fields
    }


def _known_within(annotation: Any, value: Any) -> Any:
    """Return a field's value without unknown fields of the models in it."""
    kinds = [annotation, *getattr(annotation, "__args__", ())]
    model = next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Model)), None)
    if model is None:
        return value
    if isinstance(value, list):
        return [known(model, row) for row in value]
    return known(model, value) if isinstance(value, dict) else value
