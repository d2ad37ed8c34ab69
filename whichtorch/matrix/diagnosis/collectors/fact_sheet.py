"""Read what `process.evidence.facts` writes; whatever the file holds, it is read as far as it makes sense."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from whichtorch.matrix.diagnosis.collectors.json_rows import dictionaries, read_json
from whichtorch.matrix.diagnosis.stacks import Descriptor, Process, Thread

if TYPE_CHECKING:
    from whichtorch.matrix.model import Model


def parse_facts(text: str, _pid: int = 0) -> tuple[Process, ...]:
    """Read the facts of a tree.

        {"processes": [
        {"pid": 7, "parent": 5, "command": "ENV/bin/python x.py", "environ": {"RANK": "0"},
         "descriptors": [{"number": 4, "link": "pipe:[123]", "holders": [7, 8]}],
         "threads": [{"tid": 7, "descriptor": 4}, {"tid": 9, "name": "pt_data_pin", "owner": 7}]},
        {"pid": 8, "parent": 7, "command": "python", "ended": "SIGKILL"}
        ]}

    A field that is missing is not known. A process, thread or descriptor that cannot be read is left out.
    """
    content = read_json(text)
    processes = []
    for row in dictionaries(content.get("processes") if isinstance(content, dict) else None):
        environ = row.get("environ")
        variables = environ.items() if isinstance(environ, dict) else ()
        parts = {
            "environ": {name: value for name, value in variables if isinstance(value, str)},
            "descriptors": _read_all(Descriptor, row.get("descriptors")),
            "threads": _read_all(Thread, row.get("threads")),
        }
        process = _read(Process, row | parts)
        if process and process.pid:
            processes.append(process)
    return tuple(processes)


def _read_all(kind: type[Model], value: object) -> tuple[Any, ...]:
    return tuple(filter(None, (_read(kind, row) for row in dictionaries(value))))


def _read(kind: type[Model], row: dict[str, Any]) -> Any:
    """Return a model of a row, None where the row is none."""
    try:
        return kind.model_validate({name: value for name, value in row.items() if name in kind.model_fields})
    except ValidationError:
        return None
