"""Signatures, and whether two failures are the same one by their outcomes and signatures.

A signature is the head of a failure (its exception type, its signal, "stuck", ...) and the frames where it happened:

    RuntimeError in merge_devices (fake_tensor.py) < add (repro.py)
"""

from __future__ import annotations

import builtins
import re
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from matrix.model import Cell

_NUMBER = re.compile(r"0x[0-9a-f]+|\d+")
_COUNT = re.compile(r"\b\d+ x ")
_GLUE = re.compile(r"at::wrapper_\w+|c10::impl::\w+(?:::\w+)*|c10::Dispatcher::\w+")  # frames named anew by releases
_LAMBDA = re.compile(r"::\{lambda.*$")
STUCK = "stuck"  # head of the signature of a hang whose stacks were read
TELLING_FRAMES = 3  # that two hangs must share: the innermost ones alone are a lock's or a loop's
_UNLOCATED = {"", "idle", "spins", "spins, moving"}  # say that it hangs, not where: no evidence of another hang

# exception -> what its message says where the script asks for what this release does not have
_MISSING_API = {
    "AttributeError": re.compile(
        r"module '[\w.]+' has no attribute|'(Tensor|Parameter|Generator)' object has no attribute"
        r"|'_OpNamespace' '\w+' object has no attribute|type object '\w+' has no attribute"
    ),
    "ImportError": re.compile(r"cannot import name"),
    "ModuleNotFoundError": re.compile(r"No module named"),
    "TypeError": re.compile(r"unexpected keyword argument|invalid keyword argument"),
    "NotImplementedError": re.compile(r"not (yet )?supported on (Python|Windows|macOS)", re.IGNORECASE),
}
# torch 2.0 raises "Python 3.11+ not yet supported for torch.compile" there (torch/_dynamo/eval_frame.py)
_UNSUPPORTED = "check_if_dynamo_supported ("
_PROXY = "__getattr__ ("  # of torch/__init__.py and torch/_ops.py: raises for the script


class Signature(NamedTuple):
    """What makes two failures the same one."""

    head: str  # "RuntimeError", "SIGSEGV", "stuck", "stuck: 2 x futex", "exit code 3", "idle", ...
    frames: tuple[str, ...] = ()  # innermost first

    @classmethod
    def parse(cls, text: str | None) -> Signature:
        """Return the signature that a record holds as text; an empty one for none."""
        head, _, frames = (text or "").partition(" in ")
        return cls(head, tuple(frames.split(" < ")) if frames else ())

    def __str__(self) -> str:
        """Return the text that a record holds."""
        return f"{self.head} in {' < '.join(self.frames)}" if self.frames else self.head

    @property
    def comparable(self) -> Signature:
        """The signature without the number of waiting threads, which differs from machine to machine."""
        kind, colon, waits = self.head.partition(": ")
        if not colon:
            return self
        return Signature(kind + colon + ", ".join(sorted(set(_COUNT.sub("", waits).split(", ")))), self.frames)

    @property
    def is_in_library(self) -> bool:
        """True where a library's frame stands above the script's: "merge_devices (x.py) < f (repro.py)"."""
        return len(self.frames) > 1 and _file(self.frames[0]) != _file(self.frames[-1])

    @property
    def stuck_frames(self) -> list[str]:
        """The frames of a stuck thread, without those that releases name anew.

        These are the glue between the dispatcher and its kernels (`at::wrapper_mul_Tensor` of 1.13 is
        `at::wrapper_CPU_mul_Tensor` from 2.0 on), and lambdas of kernels, which 2.3 has and 2.2 has not.
        """
        names = [name for frame in self.frames if not _GLUE.fullmatch(name := _LAMBDA.sub("", frame))]
        return [name for name, before in zip(names, [None, *names], strict=False) if name != before]


def is_same_failure(first: str | None, second: str | None, says: str = "", other_says: str = "") -> bool:
    """Return whether two signatures of one outcome, and the messages of the two exceptions, mean one failure.

    A type of torch's own may have been a built-in one in an earlier release (2.15.0 raises
    FakeTensorDeviceMismatchError where 2.12.1 raised RuntimeError): raised at the same place, they are one failure.
    Two different built-in types never are. What torch raises for the same line of the script with the same words is
    one failure, wherever in torch it comes from: 2.10.0 raises in `_check_with` what 2.11.0 raises in
    `_get_fake_value_impl` (both say "expand: the requested shape has too few dimensions!").
    """
    signature, other_signature = Signature.parse(first).comparable, Signature.parse(second).comparable
    if signature.head == other_signature.head == STUCK:
        frames, others = signature.stuck_frames, other_signature.stuck_frames
        shared = min(len(frames), len(others))  # signatures are cut, so one list may go on
        return frames[:shared] == others[:shared] and (shared >= TELLING_FRAMES or frames == others)
    if signature == other_signature or str(signature) in _UNLOCATED or str(other_signature) in _UNLOCATED:
        return True
    if signature.head != other_signature.head and _is_builtin(signature.head) and _is_builtin(other_signature.head):
        return False
    if not (signature.is_in_library and other_signature.is_in_library):
        return False
    if signature.frames == other_signature.frames:
        return True
    is_same_line = signature.frames[-1] == other_signature.frames[-1]
    return is_same_line and bool(says) and _NUMBER.sub("N", says) == _NUMBER.sub("N", other_says)


def references(cells: Iterable[Cell]) -> dict[str, Cell]:
    """Return a cell with each test's reference failure, by the cells' names.

    It has the most common outcome of the red cells, and the most common signature among those; of equals the first.
    """
    red: dict[str, list[Cell]] = {}
    for cell in cells:
        if cell.outcome.is_red:
            red.setdefault(cell.name, []).append(cell)
    return {name: _most_common(failures) for name, failures in red.items()}


def _most_common(failures: Sequence[Cell]) -> Cell:
    ((outcome, _),) = Counter(cell.outcome for cell in failures).most_common(1)
    signatures = [(Signature.parse(cell.signature).comparable, cell) for cell in failures if cell.outcome is outcome]
    ((common, _),) = Counter(signature for signature, _ in signatures).most_common(1)
    return next(cell for signature, cell in signatures if signature == common)


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


def _is_builtin(exception: str) -> bool:
    return isinstance(getattr(builtins, exception, None), type)


def is_missing_api(signature: str | None, message: str) -> bool:
    """Return whether a script failed because this release lacks what it uses: that is no failure of torch's.

    Only what is raised in the script itself counts: deeper down a missing attribute is torch's own bug.
    """
    head, frames = Signature.parse(signature)
    inner, pattern = frames[0] if frames else "", _MISSING_API.get(head)
    if inner.startswith(_UNSUPPORTED):
        return True
    # The outer frame is the script's. An inner frame in the same file is a function of the script.
    is_scripts_own = len(frames) < 2 or _file(inner) == _file(frames[-1]) or inner.startswith(_PROXY)
    return pattern is not None and is_scripts_own and pattern.search(message) is not None


def _file(frame: str) -> str:
    return frame.rpartition(" (")[2]
