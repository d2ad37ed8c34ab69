"""A failure, its signature, and whether another one is the same, with the evidence in words.

A signature is what stays the same of a failure from run to run, as records hold it in a line of text: its head (an
exception type, a signal, "stuck", ...) and the frames where it happened:

    RuntimeError in merge_devices (fake_tensor.py) < add (repro.py:33)

It is taken from the exception and its frames, never from the last line of output, which is often only a warning.
Releases and layers of torch word the same failure differently, so the words are left out where a frame of a library
tells what failed:

    torch._dynamo.exc.BackendCompilerFailed: backend='aot_eager' raised:
    RuntimeError: Unhandled FakeTensor Device Propagation for aten.add.Tensor, found two different devices cpu, meta

is a RuntimeError, raised in `merge_devices` of torch, on behalf of the script's `add`.

The script's own functions and lines go away when it is cut down, and numbers in its message change. What stays then
are the exceptions, a library's frames, and the rest of the message.

Of what was not found, the package that lacks it, or that is to be added, is told by pyimport2pkg's table of PyPI.
"""

from __future__ import annotations

import builtins
import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import closing
from difflib import SequenceMatcher
from enum import Enum, auto
from importlib.resources import files
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from packaging.utils import canonicalize_name

from whichtorch.model import Cell, ChainEvidence, Model, Outcome, Record
from whichtorch.source.code_owner import FORK_SERVER, GENERATED, Component, frame_name, is_rest_of, normalized
from whichtorch.source.syntax import statement_line

if TYPE_CHECKING:
    from collections.abc import Container

    from whichtorch.failures.tracebacks import CodeFrame, RaisedException

STUCK = "stuck"  # head of the signature of a hang whose stacks were read
ENDLESS = 30  # times that a frame recurs in a recursion without end; faulthandler shows 100 frames of it
MESSAGE_KEPT = 80  # characters of a message that a signature holds

_WRITTEN = re.compile(r'([^" ]*(?: (?!in |")[^" ]*)*)(?: "([^"]*)")?(?: in (.*))?', re.DOTALL)  # as `__str__` does it
_LINE = re.compile(r":\d+(?=\)$|$)")  # of a frame
_LINES = re.compile(r":\d+(?=\)| < |$)")  # of all frames of a signature
_COUNT = re.compile(r"\b\d+ x ")
_GLUE = re.compile(r"at::wrapper_\w+|c10::impl::\w+(?:::\w+)*|c10::Dispatcher::\w+")  # frames named anew by releases
_LAMBDA = re.compile(r"::\{lambda.*$")
# functions that raise, or call, for others: their names tell nothing
_HELPERS = re.compile(r"<lambda>|_fn|fn|inner|wrapper\w*|wrapped\w*|_wrap\w*|unimplemented\w*|raise_\w+|__call__")
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

_NOT_FOUND = re.compile(r"No module named '(?P<module>(?P<top>\w+)[\w.]*)'$")
_PART = re.compile(
    r"(?:No module named|cannot import name '\w+' from|(?<!initialized )module(?= '[\w.]+' has no attribute))"
    r" '(?P<top>\w+)"
)
_PACKAGES = "select package_name from mappings natural join packages where module_name = ? order by download_count desc"


class Signature(NamedTuple):
    """What makes two failures the same one."""

    head: str  # "RuntimeError", "SIGSEGV", "stuck", "stuck: wait for a queue", "exit code 3", "idle", ...
    frames: tuple[str, ...] = ()  # innermost first; each of the user's has its line
    message: str = ""  # of an exception, normalized, where no frame of a library tells what failed

    @classmethod
    def parse(cls, text: str | None) -> Signature:
        """Return the signature that a record holds as text; an empty one for none."""
        match = _WRITTEN.fullmatch(text or "")
        if match is None:  # of a record that somebody else wrote
            return cls(text or "")
        head, message, frames = match.groups(default="")
        return cls(head, tuple(frames.split(" < ")) if frames else (), message)

    @classmethod
    def of(cls, exception: RaisedException) -> Signature:
        """Return its type and place, and what it says where no frame of a library tells."""
        source = exception.frames[0].source if exception.frames else ""
        is_told = bool(exception.frames) and exception.frames[0].raises and not exception.frames[0].is_users
        is_told |= exception.name == RecursionError.__name__  # the words tell what was called last, by chance
        return cls(exception.name, place_of(exception.frames), "" if is_told else kept(exception.first_line or source))

    def __str__(self) -> str:
        """Return the text that a record holds."""
        head = f'{self.head} "{self.message}"' if self.message else self.head
        return f"{head} in {' < '.join(self.frames)}" if self.frames else head

    @property
    def comparable(self) -> Signature:
        """The signature without the number of waiting threads, which differs from machine to machine."""
        kind, colon, waits = self.head.partition(": ")
        waits = ", ".join(sorted(set(_COUNT.sub("", waits).split(", "))))
        return self._replace(head=kind + colon + waits)

    @property
    def library_frame(self) -> str:
        """The frame above the user's own, "merge_devices (x.py)" of "merge_devices (x.py) < f (a.py:3)", or ""."""
        return "" if self.is_raised_in_script or _LINE.search(self.frames[0]) else self.frames[0]

    @property
    def is_raised_in_script(self) -> bool:
        """True where the outer frame, which is the script's, is the only one or in the same file as the inner one."""
        return len(self.frames) < 2 or _file(self.frames[0]) == _file(self.frames[-1])

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


def place_of(frames: Sequence[CodeFrame]) -> tuple[str, ...]:
    """Return the innermost frame that means something, and the user's own line that led there.

    Where that frame is the user's own, or generated code, the user's two innermost lines are returned: no function of
    a library tells two failures apart. So they are where the first of them was only being compiled: a release may not
    tell that line. Of a recursion without end it is a line that recurs: where the stack was full is chance.
    """
    recurring = [frame for frame, count in Counter(frames).items() if count >= ENDLESS and frame.is_users]
    # the fork server's frames lie below the script's and do not count
    frames = [min(recurring)] if recurring else [frame for frame in frames if not frame.file.endswith(FORK_SERVER)]
    written = [frame for frame in frames if not frame.generator]
    users = [frame for frame in written if frame.is_users] or written[-1:]
    parts = zip([None, *users], users, strict=False)  # a function that Dynamo has split is told by its innermost part
    users = [frame for inner, frame in parts if inner is None or not is_rest_of(inner.function, frame.function)]
    telling = next((frame for frame in frames if not _HELPERS.fullmatch(frame.function)), next(iter(frames), None))
    inner = [telling] if telling is not None and telling not in users else []
    is_of_library = bool(inner) and not inner[0].generator
    is_enough = is_of_library and not any(frame.is_traced for frame in users[:1])
    lines = [(frame, statement_line(frame.file, frame.line)) for frame in users[: 1 if is_enough else 2]]
    return (*(frame.name for frame in inner), *(frame_name(frame.file, frame.function, line) for frame, line in lines))


def kept(message: str) -> str:
    """Return what a signature holds of a message: its beginning, without what differs from run to run."""
    return normalized(message).replace('"', "'")[:MESSAGE_KEPT].rstrip()


def described(signature: str | None, message: str) -> str:
    """Return signature and message for people, without saying the message twice: "ValueError: no x, in f (a.py:3)"."""
    shown = Signature.parse(signature)
    if not message:
        return str(shown)
    place = f"in {' < '.join(shown.frames)}" if shown.frames else ""
    return ", ".join(filter(None, (": ".join(filter(None, (shown.head, message))), place)))


def gist(signature: str | None) -> str:
    """Return what a signature says beside the script's own lines, which differ from test to test."""
    shown = Signature.parse(signature)
    return str(shown._replace(frames=(shown.library_frame,) if shown.frames and shown.library_frame else ()))


def without_lines(signature: str | None) -> str:
    """Return a signature of a script that was edited, whose lines tell nothing."""
    return _LINES.sub("", signature or "")


def _file(frame: str) -> str:
    return _LINE.sub("", frame).rpartition(" (")[2]


Item = TypeVar("Item")


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


class Absence(NamedTuple):
    """What is missing."""

    words: str
    options: tuple[str, ...] = ()  # that bring it; none where none helps

    def __str__(self) -> str:
        """Return it as a sentence with its remedy."""
        return f"{self.words}; add {' '.join(self.options)}" if self.options else self.words


def missing_module(signature: str | None, message: str) -> str:
    """Return the module that a script lacks; "" if it is part of torch, or the failure is another one."""
    match = _NOT_FOUND.match(message) if (signature or "").startswith(ModuleNotFoundError.__name__) else None
    return match["module"] if match and match["top"] != "torch" else ""


def needs_package(signature: str | None, message: str, installed: Container[str]) -> bool:
    """Return whether a script lacks a package, rather than a part of an installed one, which another release may have.

    A module that no package is known to have may be such a part.
    """
    module = missing_module(signature, message)
    return module.isidentifier() and bool(package_of(module)) and not lacking_package(message, installed)


def lacking_package(message: str, installed: Container[str]) -> str:
    """Return which of the installed packages lacks what was not found; "" where that is not known."""
    part = _PART.search(message)
    names = (canonicalize_name(part["top"]), package_of(part["top"])) if part else ()
    return next((name for name in names if name in installed), "")


def missing_in_all(failures: Iterable[tuple[str | None, str]]) -> list[str]:
    """Return a sentence on what is missing if all that was tried, by signature and message, lacks the same module."""
    modules = {missing_module(*failure) for failure in failures}
    return [f"fails wherever it was tried: {absence(module)}" for module in modules if module and len(modules) == 1]


def package_of(module: str) -> str:
    """Return the most downloaded package that has a module; "" if the table has none."""
    import sqlite3  # a Python may be built without it

    table = Path(str(files("pyimport2pkg")), "data", "mapping.db").as_uri()
    with closing(sqlite3.connect(f"{table}?immutable=1", uri=True)) as mapping:
        row = mapping.execute(_PACKAGES, (module,)).fetchone()
    return str(row[0]) if row else ""


def absence(module: str) -> Absence:
    """Return what is missing where a module was not found."""
    top, folder = module.partition(".")[0], Path.cwd()
    names = (f"{place}{top}{kind}" for place in ("", "*/") for kind in (".py", "/__init__.py"))
    if own := next(chain.from_iterable(map(folder.glob, names)), None):
        here = own.relative_to(folder)
        place = next(parent for parent in here.parents if not (parent / "__init__.py").exists())
        is_project = place.name and any((folder / name).exists() for name in ("pyproject.toml", "setup.py"))
        options = ("--install", ".") if is_project else ("--env", f"PYTHONPATH={place}")
        return Absence(f"module {module!r} is your {here}, which is not beside the script", options)
    if top != module:
        return Absence(f"the installed {top!r} has no {module!r}: bisect --package {top} searches its releases")
    if top in sys.stdlib_module_names:
        return Absence(f"module {module!r} is not in this Python's standard library: an older --python has it")
    return Absence(f"module {module!r} is not installed", ("--with", package_of(top) or "PACKAGE"))
