"""Say whether two failures are the same one, from their outcomes and signatures."""

from __future__ import annotations

import builtins
import re
from collections import Counter
from typing import TYPE_CHECKING, TypeGuard

if TYPE_CHECKING:
    from collections.abc import Iterable

    from matrix.model import Cell

_NUMBER = re.compile(r"0x[0-9a-f]+|\d+")
_COUNT = re.compile(r"\b\d+ x ")
_GLUE = re.compile(r"at::wrapper_\w+|c10::impl::\w+(?:::\w+)*|c10::Dispatcher::\w+")  # frames named anew by releases
_LAMBDA = re.compile(r"::\{lambda.*$")
_STUCK = "stuck in "
TELLING_FRAMES = 3  # that two places must share: the innermost ones alone are a lock's or a loop's
_UNLOCATED = {"", "idle", "spins", "spins, moving"}  # say that it hangs, not where: no evidence of another hang


def is_same_failure(first: str | None, second: str | None, says: str = "", other_says: str = "") -> bool:
    """Return whether two signatures of one outcome, and what the two exceptions say, mean one failure.

    How many threads wait is a matter of the machine. A type of torch's own may have been a built-in one in
    an earlier release (2.15.0 raises FakeTensorDeviceMismatchError where 2.12.1 raised RuntimeError): raised
    at the same place, they are one failure. Two different built-in types never are. What torch raises on behalf
    of the same line of the script with the same words is one failure, wherever in torch it comes from: 2.10.0
    raises in `_check_with` what 2.11.0 raises in `_get_fake_value_impl` (shared by its words, "expand: the
    requested shape has too few dimensions!").
    """
    if _is_stuck(first) and _is_stuck(second):
        return _is_same_place(_frames(first), _frames(second))
    one, other = _essence(first), _essence(second)
    if one == other or one in _UNLOCATED or other in _UNLOCATED:
        return True
    (type_, _, place), (other_type, _, other_place) = one.partition(" in "), other.partition(" in ")
    if type_ != other_type and _is_builtin(type_) and _is_builtin(other_type):
        return False
    if not (place and _is_inside_library(place) and _is_inside_library(other_place)):
        return False
    if place == other_place:
        return True
    is_same_line = place.rpartition(" < ")[2] == other_place.rpartition(" < ")[2]
    return is_same_line and bool(says) and _NUMBER.sub("N", says) == _NUMBER.sub("N", other_says)


def references(cells: Iterable[Cell]) -> dict[str, Cell]:
    """Return a cell with each test's reference failure, by the cells' names.

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
        found[name] = first
    return found


def different(cells: Iterable[Cell]) -> frozenset[tuple[str, str]]:
    """Return name and environment of the red cells that fail in another way than their test's reference."""
    cells = tuple(cells)
    reference = references(cells)
    return frozenset(
        (cell.name, cell.environment)
        for cell in cells
        if cell.outcome.is_red and not _is_alike(cell, reference[cell.name])
    )


def _is_alike(cell: Cell, other: Cell) -> bool:
    is_same = is_same_failure(cell.signature, other.signature, cell.message, other.message)
    return cell.outcome is other.outcome and is_same


def _essence(signature: str | None) -> str:
    """Return a signature without what differs from run to run: how many threads wait."""
    if signature is None:
        return ""
    kind, colon, waits = signature.partition(": ")
    if not colon or " in " in kind:
        return signature
    return kind + colon + ", ".join(sorted(set(_COUNT.sub("", waits).split(", "))))


def _is_stuck(signature: str | None) -> TypeGuard[str]:
    return signature is not None and signature.startswith(_STUCK)


def _frames(signature: str) -> list[str]:
    """Return the frames of a stuck thread, innermost first, without what releases name anew.

    That is the glue between the dispatcher and its kernels, `at::wrapper_mul_Tensor` of 1.13 that is
    `at::wrapper_CPU_mul_Tensor` from 2.0 on, and the lambdas of a kernel, which 2.3 has and 2.2 has not.
    """
    names = (_LAMBDA.sub("", frame) for frame in signature.removeprefix(_STUCK).split(" < "))
    kept = [name for name in names if not _GLUE.fullmatch(name)]
    return [name for place, name in enumerate(kept) if kept[place - 1 : place] != [name]]


def _is_same_place(frames: list[str], others: list[str]) -> bool:
    """Return whether two threads are stuck in one place: a signature holds so many frames, so one list may go on."""
    shared = min(len(frames), len(others))
    return frames[:shared] == others[:shared] and (shared >= TELLING_FRAMES or frames == others)


def _is_builtin(type_: str) -> bool:
    return isinstance(getattr(builtins, type_, None), type)


def _is_inside_library(place: str) -> bool:
    """Return whether a place names a library's frame above the script's: "merge_devices (x.py) < f (repro.py)"."""
    inner, arrow, outer = place.partition(" < ")
    return bool(arrow) and inner.rpartition(" (")[2] != outer.rpartition(" (")[2]
