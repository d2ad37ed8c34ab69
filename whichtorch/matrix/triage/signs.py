"""What a failing run tells, as the rules of `categories.py` ask for it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePath
from typing import TYPE_CHECKING

from whichtorch.matrix.diagnosis.sameness import is_missing_api
from whichtorch.matrix.model import Model, Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable

    from whichtorch.matrix.diagnosis.traceback_chain import CodeFrame, LinkedException

_GENERATED = re.compile(r"/[a-z0-9]{2}/c[a-z0-9]{30,}\.py$")  # of Inductor: two letters of a hash, then the hash
_QUOTED = re.compile(r"(?m)^\s*(?:[\w.]+\.)?(\w+):")  # a type at the beginning of a message's line
_LOWER = "call_user_compiler"  # of torch/_dynamo/output_graph.py: below it the backend works


class Owner(StrEnum):
    """Whose code a frame is."""

    GENERATED = "generated code"
    INDUCTOR = "Inductor"
    AOT = "AOTAutograd"
    DYNAMO = "Dynamo"
    FAKE = "fake tensors"
    META = "meta kernels"
    EXPORT = "torch.export"
    DATA = "DataLoader"
    TORCH = "torch"
    LIBRARY = "another library"
    PYTHON = "Python"
    SCRIPT = "the script"


_FOLDERS = (  # of torch; the first that a path begins with
    ("torch/_inductor/", Owner.INDUCTOR),
    ("torch/_functorch/", Owner.AOT),
    ("torch/_dynamo/", Owner.DYNAMO),
    ("torch/_subclasses/", Owner.FAKE),
    ("torch/_meta_registrations.py", Owner.META),
    ("torch/_prims", Owner.META),
    ("torch/_refs/", Owner.META),
    ("torch/_decomp/", Owner.META),
    ("torch/export/", Owner.EXPORT),
    ("torch/_export/", Owner.EXPORT),
    ("torch/utils/data/", Owner.DATA),
    ("torch/", Owner.TORCH),
)


def owner_of(frame: CodeFrame) -> Owner:
    """Return whose code a frame is, by where its file lies."""
    if _GENERATED.search(frame.file):
        return Owner.GENERATED
    if frame.file.startswith("<"):
        return Owner.GENERATED if "eval_with_key" in frame.file else Owner.PYTHON
    _, installed, path = frame.file.rpartition("/site-packages/")
    if not installed:
        return Owner.PYTHON if re.search(r"/lib/python3\.\d+/", frame.file) else Owner.SCRIPT
    return next((owner for folder, owner in _FOLDERS if path.startswith(folder)), Owner.LIBRARY)


class CompileCall(Model):
    """One call of torch.compile, torch._dynamo.optimize or torch.export.export, as the start-up hook noted it."""

    call: str
    backend: str = ""
    own: bool = False  # a backend of the script's, or of another library
    fullgraph: bool = False
    dynamic: bool | None = None
    strict: bool | None = None


class Rung(Model):
    """The script at one layer, everything else the same."""

    name: str  # "off", "eager", "aot_eager", ..., "dynamic", "static", "strict", "non-strict"
    outcome: Outcome
    signature: str = ""
    message: str = ""
    is_same: bool  # it shows the failure that is asked about
    seconds: float = 0

    @property
    def is_healthy(self) -> bool:
        """True where the script passes."""
        return self.outcome is Outcome.PASS


@dataclass(frozen=True, slots=True, kw_only=True)
class Signs:
    """All that is known of a failure when it is classified."""

    outcome: Outcome
    signal: str = ""
    chain: tuple[LinkedException, ...] = ()  # the effect first
    message: str = ""
    signature: str = ""
    calls: tuple[CompileCall, ...] = ()
    rungs: tuple[Rung, ...] = ()
    graph_breaks: int = 0  # that the logs name
    recompilations: int = 0
    guilty: str = ""  # what of a layer it fails with
    uses_meta: bool = False  # the script names the meta device
    checks_backend: bool = False  # the check that fails reads what a backend of the script's own keeps
    hang_kind: str = ""  # a HangKind

    @property
    def cause(self) -> LinkedException | None:
        """What was raised first."""
        return self.chain[-1] if self.chain else None

    @property
    def names(self) -> frozenset[str]:
        """The types of all exceptions of the chain, and of those that their messages begin with."""
        quoted = (name for link in self.chain for name in _QUOTED.findall(link.message))
        return frozenset([*(link.name for link in self.chain), *quoted])

    @property
    def text(self) -> str:
        """The messages of all exceptions of the chain."""
        return "\n".join(link.message for link in self.chain)

    @property
    def frames(self) -> tuple[CodeFrame, ...]:
        """The frames of all exceptions, those of the first cause first, innermost first."""
        return tuple(frame for link in reversed(self.chain) for frame in link.frames)

    @property
    def owners(self) -> tuple[Owner, ...]:
        """Whose code was being run, as `frames`."""
        return tuple(map(owner_of, self.frames))

    @property
    def innermost(self) -> Owner | None:
        """Whose code raised what was raised first, Python's own library aside."""
        return next((owner for owner in self.owners if owner is not Owner.PYTHON), None)

    @property
    def compiles(self) -> bool:
        """True where the script compiles something."""
        return any(call.call != "export" for call in self.calls)

    @property
    def exports(self) -> bool:
        """True where the script exports something."""
        return any(call.call == "export" for call in self.calls)

    def rung(self, name: str) -> Rung | None:
        """Return a rung of the ladder, None where it was not tried."""
        return next((rung for rung in self.rungs if rung.name == name), None)

    @property
    def is_right_eagerly(self) -> bool | None:
        """Whether the script passes with nothing compiled; None: not known."""
        rung = self.rung("off")
        return None if rung is None else rung.is_healthy

    @property
    def is_same_eagerly(self) -> bool:
        """True where nothing that is compiled has a part in it. A backend that is never called keeps nothing."""
        rung = self.rung("off")
        return not self.calls or (rung is not None and rung.is_same and not self.checks_backend)

    @property
    def is_raised_by_script(self) -> bool:
        """True where the first cause is an assertion or a `raise` of the script itself."""
        cause = self.cause
        if cause is None or not cause.frames:
            return False
        innermost = cause.frames[0]
        raises = innermost.source.startswith(("assert ", "assert(", "raise ", "raise("))
        return (owner_of(innermost) is Owner.SCRIPT and raises) or _is_comparison(cause.frames)

    @property
    def lacks_api(self) -> bool:
        """True where the script asks for something that this torch does not have."""
        return is_missing_api(self.signature, self.message)

    @property
    def backend_owner(self) -> Owner | None:
        """Whose backend was at work below Dynamo when it failed; None where none was."""
        for link in self.chain:
            below = _below(link.frames, _LOWER)
            outside = [owner_of(frame) for frame in below if not _is_glue(frame)]
            if outside:
                return outside[0]
        return None


def _below(frames: Iterable[CodeFrame], function: str) -> list[CodeFrame]:
    """Return the frames that a function called, outermost first; none where it is not among them."""
    found: list[CodeFrame] = []
    for frame in frames:
        if function in frame.function:
            return found[::-1]
        found.append(frame)
    return []


def _is_glue(frame: CodeFrame) -> bool:
    """Return whether a frame only passes a graph on to a backend."""
    return owner_of(frame) in {Owner.DYNAMO, Owner.PYTHON} or frame.file.endswith("site-packages/torch/__init__.py")


def _is_comparison(frames: tuple[CodeFrame, ...]) -> bool:
    """Return whether the script compares values with a function that is made for tests."""
    inner = [frame for frame in frames if owner_of(frame) is not Owner.SCRIPT]
    return bool(inner) and all(_is_testing(PurePath(frame.file)) for frame in inner)


def _is_testing(path: PurePath) -> bool:
    return bool({"testing", "_testing", "unittest"}.intersection(path.parts)) or path.name == "contextlib.py"
