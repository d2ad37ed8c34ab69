"""Signatures, and whether two failures are the same one by their outcomes and signatures.

A signature is the head of a failure (its exception type, its signal, "stuck", ...) and the frames where it happened:

    RuntimeError in merge_devices (fake_tensor.py) < add (repro.py:33)
"""

from __future__ import annotations

import builtins
import re
from collections import Counter
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, NamedTuple

from whichtorch.matrix.diagnosis.code_owner import GENERATED, steady

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from whichtorch.matrix.model import Cell

_WRITTEN = re.compile(r'(?P<head>[^" ]*(?: (?!in |")[^" ]*)*)(?: "(?P<says>[^"]*)")?(?: in (?P<frames>.*))?', re.DOTALL)
_LINE = re.compile(r":\d+(?=\)$|$)")  # of a frame
_LINES = re.compile(r":\d+(?=\)| < |$)")  # of all frames of a signature
_INTERNAL = re.compile(r"INTERNAL ASSERT|internal error", re.IGNORECASE)
_OPERATORS = re.compile(r"(?:(?<=\baten::)|(?<=\baten\.))\w+|\b\w+(?=\(\))")  # of aten, or with "()" behind
ALIKE = 0.7  # of the words of two messages
REWORDED = 0.3  # of the words of two messages from the same function of a library
SAID = 80  # characters of a message that a signature holds
SAYS_NOTHING = 3  # characters of a message that is no more than a name
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

    head: str  # "RuntimeError", "SIGSEGV", "stuck", "stuck: wait for a queue", "exit code 3", "idle", ...
    frames: tuple[str, ...] = ()  # innermost first; each of the user's has its line
    says: str = ""  # the message of an exception, steady from run to run, where no frame of a library tells what failed

    @classmethod
    def parse(cls, text: str | None) -> Signature:
        """Return the signature that a record holds as text; an empty one for none."""
        match = _WRITTEN.fullmatch(text or "")
        if match is None:  # of a record that somebody else wrote
            return cls(text or "")
        return cls(match["head"], tuple(match["frames"].split(" < ")) if match["frames"] else (), match["says"] or "")

    def __str__(self) -> str:
        """Return the text that a record holds."""
        head = f'{self.head} "{self.says}"' if self.says else self.head
        return f"{head} in {' < '.join(self.frames)}" if self.frames else head

    @property
    def comparable(self) -> Signature:
        """The signature without the number of waiting threads, which differs from machine to machine."""
        kind, colon, waits = self.head.partition(": ")
        if not colon:
            return self
        head = kind + colon + ", ".join(sorted(set(_COUNT.sub("", waits).split(", "))))
        return self._replace(head=head)

    @property
    def library_frame(self) -> str:
        """The frame above the user's own, "merge_devices (x.py)" of "merge_devices (x.py) < f (a.py:3)", or ""."""
        is_above = len(self.frames) > 1 and not _LINE.search(self.frames[0])
        return self.frames[0] if is_above and _file(self.frames[0]) != _file(self.frames[-1]) else ""

    def is_at_lines_of(self, other: Signature) -> bool:
        """Return whether the user's lines of one signature are all among those of the other: a release may hide some.

        If either has no lines (an older record, or an edited script), the outermost functions decide.
        """
        lines = [set(filter(_LINE.search, signature.frames)) for signature in (self, other)]
        if all(lines):
            return lines[0] <= lines[1] or lines[1] <= lines[0]
        ends = [_LINE.sub("", signature.frames[-1]) if signature.frames else "" for signature in (self, other)]
        return bool(ends[0]) and ends[0] == ends[1]

    @property
    def stuck_frames(self) -> list[str]:
        """The frames of a stuck thread, without those that releases name anew.

        These are the glue between the dispatcher and its kernels (`at::wrapper_mul_Tensor` of 1.13 is
        `at::wrapper_CPU_mul_Tensor` from 2.0 on), and lambdas of kernels, which 2.3 has and 2.2 has not.
        """
        names = [name for frame in self.frames if not _GLUE.fullmatch(name := _LAMBDA.sub("", frame))]
        return [name for name, before in zip(names, [None, *names], strict=False) if name != before]


def described(signature: str | None, message: str) -> str:
    """Return signature and message for people, without saying the message twice."""
    shown = Signature.parse(signature)
    return ": ".join(filter(None, (str(shown._replace(says="") if message else shown), message)))


def says(words: str) -> str:
    """Return what a signature holds of a message: its beginning, without what differs from run to run."""
    return steady(words).replace('"', "'")[:SAID].rstrip()


def is_same_failure(first: str | None, second: str | None, words: str = "", other_words: str = "") -> bool:
    """Return whether two signatures of one outcome, and the messages of the two exceptions, mean one failure.

    Exception, message and the user's own lines weigh more than the frames of a library, which releases move, rename
    and hide: 2.8.0 raises in C++ what 2.9.0 raises through `compile_wrapper`, with the same words. Frames decide where
    a message says nothing, or is worded anew. Two different built-in exceptions never are one failure; one of torch's
    own may have been a built-in one in an earlier release. Of a hang the kind and the user's lines that wait decide.
    """
    signature, other = Signature.parse(first).comparable, Signature.parse(second).comparable
    if signature == other:
        return True
    if signature.head.startswith(STUCK) and other.head.startswith(STUCK):
        return _is_same_hang(signature, other)
    if not {str(signature), str(other)}.isdisjoint(_UNLOCATED):
        return True
    frames = signature.library_frame, other.library_frame
    is_crash = signature.head.startswith("SIG") or other.head.startswith("SIG")
    is_renamed = not is_crash and _is_builtin(signature.head) != _is_builtin(other.head)
    if not (signature.head == other.head or is_renamed) or not signature.is_at_lines_of(other):
        return False
    if is_crash:  # it has no words, and its frames of a library may have moved
        return frames[0].startswith(GENERATED) == frames[1].startswith(GENERATED)
    texts = steady(words) or signature.says, steady(other_words) or other.says
    operators = [set(_OPERATORS.findall(text)) for text in texts]
    if all(operators) and operators[0].isdisjoint(operators[1]):
        return False
    likeness = _likeness(*texts) if all(map(_is_telling, texts)) else None
    if frames[0] == frames[1] and (frames[0] or not is_renamed):
        return likeness is None or likeness >= (REWORDED if frames[0] else ALIKE)
    return likeness is not None and likeness >= ALIKE


def _is_same_hang(signature: Signature, other: Signature) -> bool:
    """Return whether two hangs are one: by kind and the user's lines, or by native frames where those are not known."""
    if not (signature.frames and other.frames):
        return bool(signature.frames or other.frames)  # nothing tells where one of them is
    if signature.head == other.head == STUCK:
        frames, others = signature.stuck_frames, other.stuck_frames
        shared = min(len(frames), len(others))  # signatures are cut, so one list may go on
        return frames[:shared] == others[:shared] and (shared >= TELLING_FRAMES or frames == others)
    if STUCK in {signature.head, other.head}:
        return True  # one is from a record older than the kinds
    places, more = sorted((set(signature.frames), set(other.frames)), key=len)
    return signature.head == other.head and places <= more


def _likeness(words: str, other: str) -> float:
    """Return how much of the words of two messages, without what varies, is the same."""
    return SequenceMatcher(None, words.split(), other.split(), autojunk=False).ratio()


def _is_telling(words: str) -> bool:
    return len(words) > SAYS_NOTHING and not _INTERNAL.search(words)


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
    alike = [cell for cell in failures if cell.outcome is outcome]
    kinds = [Signature.parse(cell.signature).comparable for cell in alike]
    ((common, _),) = Counter(kinds).most_common(1)
    return alike[kinds.index(common)]


def different(cells: Iterable[Cell]) -> frozenset[tuple[str, str]]:
    """Return name and environment of the red cells that fail in another way than their test's reference."""
    cells = tuple(cells)
    reference = references(cells)
    return frozenset(
        (cell.name, cell.environment)
        for cell in cells
        if cell.outcome.is_red and not is_alike(cell, reference[cell.name])
    )


def is_alike(cell: Cell, other: Cell) -> bool:
    """Return whether two red cells of one test fail alike; lines do not count where its script was edited."""
    signatures = cell.signature or "", other.signature or ""
    if cell.source_hash != other.source_hash:
        signatures = _LINES.sub("", signatures[0]), _LINES.sub("", signatures[1])
    return cell.outcome is other.outcome and is_same_failure(*signatures, cell.message, other.message)


def _is_builtin(exception: str) -> bool:
    return isinstance(getattr(builtins, exception, None), type)


def is_missing_api(signature: str | None, message: str) -> bool:
    """Return whether a script failed because this release lacks what it uses: that is no failure of torch's.

    Only what is raised in the script itself counts: deeper down a missing attribute is torch's own bug.
    """
    head, frames, _ = Signature.parse(signature)
    inner = frames[0] if frames else ""
    pattern = _MISSING_API.get(head)
    if inner.startswith(_UNSUPPORTED):
        return True
    # The outer frame is the script's. An inner frame in the same file is a function of the script.
    is_scripts_own = len(frames) < 2 or _file(inner) == _file(frames[-1]) or inner.startswith(_PROXY)
    return pattern is not None and is_scripts_own and pattern.search(message) is not None


def _file(frame: str) -> str:
    return _LINE.sub("", frame).rpartition(" (")[2]
