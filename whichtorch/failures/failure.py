"""A failure, and whether another one is the same, with the evidence in words.

The signature has exception, words and lines. The script's own functions and lines go away when it is cut down, and
numbers in its message change. What stays then are the exceptions, a library's frames, and the rest of the message.
"""

from __future__ import annotations

import builtins
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from whichtorch.failures.signature import STUCK, Signature, without_lines
from whichtorch.model import Cell, ChainEvidence, Model, Outcome, Record
from whichtorch.source.code_owner import GENERATED, Component, normalized

if TYPE_CHECKING:
    from whichtorch.failures.tracebacks import RaisedException

Item = TypeVar("Item")

ALIKE = 0.7  # share of two messages that must agree
REWORDED = 0.3  # the same, where one function of a library raises both
TELLING_FRAMES = 3  # that two hangs must share: the innermost ones alone are a lock's or a loop's
PLACE_FRAMES = 2  # innermost ones of libraries, where the script is cut down
MESSAGE_READ = 400  # characters of a message, where the script is cut down

_INTERNAL = re.compile(r"INTERNAL ASSERT|internal error", re.IGNORECASE)
_OPERATORS = re.compile(r"(?:(?<=\baten::)|(?<=\baten\.))\w+|\b\w+(?=\(\))")  # of aten, or with "()" behind
_SAYS_NOTHING = 3  # characters of a message that is no more than a name
_UNLOCATED = {"", "idle", "spins", "spins, moving"}  # say that it hangs, not where: no evidence of another hang
_VARYING = re.compile(r"'[^']*'|\"[^\"]*\"|\[[^\]]*\]|\([^)]*\)|0x[0-9a-f]+|-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")
_PASSING_ON = ("torch/nn/modules/module.py", "torch/_dynamo/eval_frame.py")  # calls: of a module, of what is compiled

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
_PROXIED = re.compile(r"module 'torch\b|'_OpNamespace'")  # what those say: numpy has such a function, too


class Changed(Enum):
    """What may differ between two runs of one failure: such a difference is ignored."""

    RELEASE = auto()  # or nothing: releases move, rename and hide frames of theirs
    LINES = auto()  # of the script, which was edited; and the release
    SCRIPT = auto()  # which was cut down
    SCRIPT_AND_RELEASE = auto()  # or the machine


class FailureMatch(NamedTuple):
    """Whether two failures are the same, and by which evidence."""

    is_same: bool
    why: str

    def __bool__(self) -> bool:
        """Return whether they are the same."""
        return self.is_same


class Failure(Model):
    """How a run failed."""

    outcome: Outcome
    signature: str | None = None
    message: str = ""  # of the exception
    signal: str = ""
    exceptions: tuple[str, ...] = ()  # types of the chain, the effect first
    place: tuple[str, ...] = ()  # innermost frames outside the script, of the first cause
    words: str = ""  # of the first cause, without what varies
    hang: str = ""  # a HangKind
    needs_earlier_run: bool = False  # of a chain: its first run passes
    reads_cache: bool | None = None  # of a chain: some run has read what an earlier one had cached; None: not known

    @classmethod
    def of(cls, record: Record, chain: Sequence[RaisedException] = ()) -> Failure:
        """Return what a record shows; of a script that will be cut down, with the exceptions that ended it."""
        attempt, told = record.attempt, record.attempt.evidence.chain
        return cls(
            outcome=attempt.outcome,
            signature=record.signature,
            message=attempt.message,
            signal=attempt.signal or "",
            exceptions=tuple(link.name for link in chain),
            place=_place(chain[-1]) if chain else (),
            words=_stable(chain[-1].message) if chain else "",
            hang=attempt.diagnosis.kind if attempt.outcome is Outcome.HANG and attempt.diagnosis else "",
            needs_earlier_run=_needs_earlier_run(told),
            reads_cache=None if told is None or told.read is None else bool(told.read),
        )

    @property
    def provisional(self) -> Failure:
        """The failure as it counts until a longer look decides: what is slow is a hang."""
        return self.model_copy(update={"outcome": Outcome.HANG}) if self.outcome is Outcome.SLOW else self

    def has_words(self, words: str) -> bool:
        """Return whether its outcome, signature or message has some words, ignoring case."""
        return words.casefold() in f"{self.outcome}: {self.signature or ''}: {self.message}".casefold()

    @property
    def is_missing_api(self) -> bool:
        """True where the release lacks what the script uses: that is not a bug of torch.

        Only what is raised in the script itself counts: deeper down a missing attribute is torch's own bug.
        """
        signature = Signature.parse(self.signature)
        inner = next(iter(signature.frames), "")
        pattern = _MISSING_API.get(signature.head)
        says_so = pattern is not None and pattern.search(self.message) is not None
        is_proxy = inner.startswith(_PROXY) and _PROXIED.match(self.message) is not None
        is_scripts_own = signature.is_raised_in_script or is_proxy
        return inner.startswith(_UNSUPPORTED) or (says_so and is_scripts_own)

    def compare(self, other: Failure, changed: Changed = Changed.RELEASE) -> FailureMatch:
        """Return whether another run shows this failure."""
        if self.outcome is Outcome.HANG and other.outcome is Outcome.SLOW:
            return FailureMatch(True, "it exceeded the limit that tells this hang from a pass")
        if self.outcome is not other.outcome:
            return _differ("outcome", self.outcome, other.outcome)
        if self.needs_earlier_run is not other.needs_earlier_run:
            return _differ("run", *("a later one" if each.needs_earlier_run else "the first" for each in (self, other)))
        if changed in {Changed.SCRIPT, Changed.SCRIPT_AND_RELEASE}:
            return self._compare_causes(other, elsewhere=changed is Changed.SCRIPT_AND_RELEASE)
        texts = self.signature, other.signature
        first, second = (
            Signature.parse(without_lines(text) if changed is Changed.LINES else text).comparable for text in texts
        )
        if first == second:
            return FailureMatch(True, "the signatures are equal")
        if first.head.startswith(STUCK) and second.head.startswith(STUCK):
            return _compare_hangs(first, second)
        if not {str(first), str(second)}.isdisjoint(_UNLOCATED):
            return FailureMatch(True, "of one of them it is not known where it hangs")
        return _compare_signatures(first, second, self.message, other.message)

    def _compare_causes(self, other: Failure, *, elsewhere: bool) -> FailureMatch:
        """Compare what does not depend on the script's own functions; frames have other names elsewhere."""
        kinds = slice(-1, None) if elsewhere else slice(None)
        rows = (
            ("signal", self.signal, other.signal),
            ("kind of hang", self.hang, other.hang),
            ("exceptions", self.exceptions[kinds], other.exceptions[kinds]),
            ("frames", () if elsewhere else self.place, () if elsewhere else other.place),
        )
        different = next((row for row in rows if row[1] != row[2]), None)
        if different:
            return _differ(*different)
        if {self.reads_cache, other.reads_cache} == {True, False}:
            return _differ("reads of caches", *("some" if each.reads_cache else "none" for each in (self, other)))
        return _alike(SequenceMatcher(None, self.words, other.words, autojunk=False).ratio(), ALIKE)


def _needs_earlier_run(chain: ChainEvidence | None) -> bool:
    return chain is not None and chain.run > 1


def _differ(what: str, first: object, second: object) -> FailureMatch:
    return FailureMatch(False, f"another {what}: {second or 'none'}, not {first or 'none'}")


def _alike(share: float, needed: float) -> FailureMatch:
    return FailureMatch(share >= needed, f"{share:.0%} of the messages agree, of {needed:.0%} that must")


def _place(cause: RaisedException) -> tuple[str, ...]:
    """Return the innermost frames outside the script.

    Where an operator raised it, none: which wrapper of torch called that one is no part of the failure.
    """
    if not (cause.frames and cause.frames[0].raises):
        return ()
    outside = [frame for frame in cause.frames if frame.component is not Component.SCRIPT]
    return tuple(frame.name for frame in outside if not frame.file.endswith(_PASSING_ON))[:PLACE_FRAMES]


def _stable(message: str) -> str:
    """Return the first lines of a message, up to what torch adds for people, without what varies."""
    return " ".join(_VARYING.sub("", message.strip().partition("\n\n")[0][:MESSAGE_READ]).split())


def _compare_signatures(first: Signature, second: Signature, *messages: str) -> FailureMatch:
    """Compare exceptions, or crashes.

    Exception, message and the user's own lines weigh more than the frames of a library, which releases move, rename
    and hide: 2.8.0 raises in C++ what 2.9.0 raises through `compile_wrapper`, with the same words. Frames decide where
    a message says nothing, or is worded anew. Two different built-in exceptions never are one failure; one of torch's
    own may have been a built-in one in an earlier release.
    """
    frames = first.library_frame, second.library_frame
    is_crash = first.head.startswith("SIG") or second.head.startswith("SIG")
    is_renamed = not is_crash and _is_builtin(first.head) != _is_builtin(second.head)
    if first.head != second.head and not is_renamed:
        return _differ("exception or signal", first.head, second.head)
    if not first.is_at_lines_of(second):
        return _differ("line of the script", first, second)
    if is_crash:  # it has no words, and its frames of a library may have moved
        is_same = frames[0].startswith(GENERATED) == frames[1].startswith(GENERATED)
        return FailureMatch(
            is_same, "both are in generated code, or neither" if is_same else "one is in generated code"
        )
    texts = [
        normalized(message) or signature.message for message, signature in zip(messages, (first, second), strict=True)
    ]
    operators = [set(_OPERATORS.findall(text)) for text in texts]
    if all(operators) and operators[0].isdisjoint(operators[1]):
        return _differ("operator", *(", ".join(sorted(names)) for names in operators))
    is_same_place = frames[0] == frames[1] and bool(frames[0] or not is_renamed)
    if all(len(text) > _SAYS_NOTHING and not _INTERNAL.search(text) for text in texts):
        share = SequenceMatcher(None, texts[0].split(), texts[1].split(), autojunk=False).ratio()
        return _alike(share, REWORDED if is_same_place and frames[0] else ALIKE)
    return FailureMatch(True, "the same place, and no words") if is_same_place else _differ("frame", *frames)


def _compare_hangs(first: Signature, second: Signature) -> FailureMatch:
    """Compare hangs by kind and the user's lines, or by native frames where those are not known."""
    if not (first.frames or second.frames):
        return _differ("wait", first, second)
    is_unknown = STUCK in {first.head, second.head} and first.head != second.head
    if is_unknown or not (first.frames and second.frames):
        return FailureMatch(True, "of one of them it is not known where or how it is stuck")
    if first.head == second.head == STUCK:
        frames, others = first.stuck_frames, second.stuck_frames
        shared = min(len(frames), len(others))  # signatures are cut, so one list may go on
        is_same = frames[:shared] == others[:shared] and (shared >= TELLING_FRAMES or frames == others)
    else:
        fewer, more = sorted((set(first.frames), set(second.frames)), key=len)
        is_same = first.head == second.head and fewer <= more
    return FailureMatch(True, "they wait at the same place") if is_same else _differ("wait", first, second)


def _is_builtin(exception: str) -> bool:
    return isinstance(getattr(builtins, exception, None), type)


def references(cells: Iterable[Cell]) -> dict[str, Cell]:
    """Return a cell with each test's reference failure, by the cells' names.

    It has the most common outcome of the red cells, and the most common signature among those; of equals the first.
    """
    red: dict[str, list[Cell]] = {}
    for cell in cells:
        if cell.is_red:
            red.setdefault(cell.name, []).append(cell)
    return {name: _most_common(failures) for name, failures in red.items()}


def _most_common(failures: Sequence[Cell]) -> Cell:
    outcome = _mode([cell.outcome for cell in failures])
    alike = [cell for cell in failures if cell.outcome is outcome]
    kinds = [Signature.parse(cell.signature).comparable for cell in alike]
    return alike[kinds.index(_mode(kinds))]


def _mode(items: Sequence[Item]) -> Item:
    """Return the most common item, of equals the first; importing `statistics` takes longer than all of this room."""
    return Counter(items).most_common(1)[0][0]


def different(cells: Iterable[Cell]) -> frozenset[tuple[str, str]]:
    """Return name and environment of the red cells that fail in another way than their test's reference."""
    cells = tuple(cells)
    reference = references(cells)
    red = [cell for cell in cells if cell.is_red]
    return frozenset((cell.name, cell.environment) for cell in red if not is_alike(cell, reference[cell.name]))


def is_alike(cell: Cell, other: Cell) -> bool:
    """Return whether two red cells of one test fail alike; lines do not count where its script was edited."""
    first, second = (
        Failure(
            outcome=each.outcome,
            signature=each.signature,
            message=each.message,
            needs_earlier_run=_needs_earlier_run(each.chain),
        ).provisional
        for each in (cell, other)
    )
    return bool(first.compare(second, Changed.LINES if cell.source_hash != other.source_hash else Changed.RELEASE))
