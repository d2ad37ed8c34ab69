"""What the diagnosis of a hang tells of the call that is stuck, in the words of the observer.

Rows as `environments/inside/startup/observe.py` writes them: one for the operator in which the thread is stuck, one
for each that encloses it. What has returned leaves no frame, so an operator without a row may have been dispatched;
grad mode shows nowhere, and keys only where a kernel or the environment's table names them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from matrix.diagnosis.conditions import STACKS
from matrix.diagnosis.dispatch.call_path import Stage, Status
from matrix.diagnosis.symbols import UNNAMED

if TYPE_CHECKING:
    from matrix.diagnosis.dispatch.call_path import Place
    from matrix.diagnosis.hang.hang_diagnosis import Diagnosis

_PYTHON = "Python"  # the key of dispatch modes and tensor subclasses
_ALIAS = "Composite"  # begins names of kernels for many keys, which no tensor has


def observation_of(diagnosis: Diagnosis) -> dict[str, Any]:
    """Return what an observer would have written of the calls that have not returned."""
    place = diagnosis.place
    names = [place.operator or UNNAMED, *reversed(place.enclosing)] if place else []
    calls = [name.partition(".")[0] for name in names]  # conditions name no overloads
    is_main = diagnosis.stuck_thread == diagnosis.stuck_pid
    rows = [
        {
            "op": op,
            "under": calls[at + 1 :],
            "keys": _keys(place) if place and at == 0 else [],
            "keys_from": STACKS,
            "grad_mode": None,
            "python_key": True if place and at == 0 and place.key == _PYTHON else None,
            "thread": None if diagnosis.stuck_thread is None else "main" if is_main else "other",
        }
        for at, op in enumerate(calls)
    ]
    return {"operators": [row for row in rows if row["op"] != UNNAMED], "from": STACKS}


def _keys(place: Place) -> list[str]:
    """Return the keys that the tensors of a call must have, to have come where it is."""
    if place.keys:
        return sorted(place.keys)
    if place.key is None or place.key.startswith(_ALIAS):
        return []
    entered = {step.stage for step in place.steps if step.seen and step.status is not Status.NEVER}
    of_backend = place.kernel is not None and place.key != _PYTHON
    return sorted({place.key, *([f"Autograd{place.key}"] if of_backend and Stage.AUTOGRAD in entered else [])})
