"""Say whether two failures are the same one, from their outcomes and signatures."""

from __future__ import annotations

import builtins
import re
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from matrix.model import Cell, Outcome

_COUNT = re.compile(r"\b\d+ x ")
_GLUE = re.compile(r"at::wrapper_\w+|c10::impl::\w+(?:::\w+)*|c10::Dispatcher::\w+")  # frames named anew by releases
_UNLOCATED = {"", "idle", "spins", "spins, moving"}  # say that it hangs, not where: no evidence of another hang


def is_same_failure(first: str | None, second: str | None) -> bool:
    """Return whether two signatures of one outcome mean one failure.

    How many threads wait is a matter of the machine. A type of torch's own may have been a built-in one in
    an earlier release (2.15.0 raises FakeTensorDeviceMismatchError where 2.12.1 raised RuntimeError): raised
    at the same place, they are one failure. Two built-in types never are.
    """
    one, other = _essence(first), _essence(second)
    if one == other or one in _UNLOCATED or other in _UNLOCATED:
        return True
    (type_, _, place), (other_type, _, other_place) = one.partition(" in "), other.partition(" in ")
    has_own_type = not (_is_builtin(type_) and _is_builtin(other_type))
    return bool(place) and place == other_place and has_own_type and _is_inside_library(place)


def references(cells: Iterable[Cell]) -> dict[str, tuple[Outcome, str | None]]:
    """Return outcome and signature of each test's reference failure, by the cells' names.

    It is the most common outcome among the red cells, and among those the most common signature; of
    equals the first.
    """
    red: dict[str, list[Cell]] = {}
    for cell in cells:
        if cell.outcome.is_red:
            red.setdefault(cell.name, []).append(cell)
    found = {}
    for name, failures in red.items():
        outcome = Counter(cell.outcome for cell in failures).most_common(1)[0][0]
        signatures = [_essence(cell.signature) for cell in failures if cell.outcome is outcome]
        common = Counter(signatures).most_common(1)[0][0]
        first = next(cell for cell in failures if cell.outcome is outcome and _essence(cell.signature) == common)
        found[name] = (outcome, first.signature)
    return found


def different(cells: Iterable[Cell]) -> frozenset[tuple[str, str]]:
    """Return name and environment of the red cells that fail in another way than their test's reference."""
    cells = tuple(cells)
    reference = references(cells)
    return frozenset(
        (cell.name, cell.environment)
        for cell in cells
        if cell.outcome.is_red
        and not (cell.outcome is reference[cell.name][0] and is_same_failure(cell.signature, reference[cell.name][1]))
    )


def _essence(signature: str | None) -> str:
    """Return a signature without what differs from run to run or release to release.

    That is how many threads wait, and the glue between the dispatcher and its kernels: `at::wrapper_mul_Tensor`
    of 1.13 is `at::wrapper_CPU_mul_Tensor` from 2.0 on, while `at::_ops::mul_Tensor` beside it stays.
    """
    if signature is None:
        return ""
    what, stuck, frames = signature.partition("stuck in ")
    if stuck and not what:
        return stuck + " < ".join(frame for frame in frames.split(" < ") if not _GLUE.fullmatch(frame))
    kind, colon, waits = signature.partition(": ")
    if not colon or " in " in kind:
        return signature
    return kind + colon + ", ".join(sorted(set(_COUNT.sub("", waits).split(", "))))


def _is_builtin(type_: str) -> bool:
    return isinstance(getattr(builtins, type_, None), type)


def _is_inside_library(place: str) -> bool:
    """Return whether a place names a library's frame above the script's: "merge_devices (x.py) < f (repro.py)"."""
    inner, arrow, outer = place.partition(" < ")
    return bool(arrow) and inner.rpartition(" (")[2] != outer.rpartition(" (")[2]
