"""What a failing run tells, as the rules of `categories.py` ask for it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING

from whichtorch.matrix.model import Model, Outcome
from whichtorch.matrix.source.code_owner import Component

if TYPE_CHECKING:
    from collections.abc import Sequence

    from whichtorch.matrix.diagnosis.failure import Failure
    from whichtorch.matrix.diagnosis.tracebacks import CodeFrame, RaisedException

_QUOTED = re.compile(r"(?m)^\s*(?:[\w.]+\.)?(\w+):")  # a type at the beginning of a message's line
_TESTING = {"testing", "_testing", "unittest"}  # folders
_LOWER = "call_user_compiler"  # of torch/_dynamo/output_graph.py: below it the backend works


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
class FailureFacts:
    """All that is known of a failure when it is classified."""

    failure: Failure
    chain: tuple[RaisedException, ...] = ()  # the effect first
    calls: tuple[CompileCall, ...] = ()
    rungs: tuple[Rung, ...] = ()
    graph_breaks: int = 0  # that the logs name
    recompilations: int = 0
    guilty: str = ""  # what of a layer it fails with
    uses_meta: bool = False  # the script names the meta device
    checks_backend: bool = False  # the check that fails reads what a backend of the script's own keeps

    @property
    def cause(self) -> RaisedException | None:
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
    def components(self) -> tuple[Component, ...]:
        """Whose code was being run, as `frames`."""
        return tuple(frame.component for frame in self.frames)

    @property
    def innermost(self) -> Component | None:
        """Whose code raised what was raised first, Python's own library aside."""
        return next((part for part in self.components if part is not Component.PYTHON), None)

    @property
    def exports(self) -> bool:
        """True where the script exports something."""
        return any(call.call == "export" for call in self.calls)

    @property
    def eager_rung(self) -> Rung | None:
        """The rung at which nothing is compiled, None where it was not tried."""
        return next((rung for rung in self.rungs if rung.name == "off"), None)

    @property
    def is_right_eagerly(self) -> bool | None:
        """Whether the script passes with nothing compiled; None: not known."""
        return None if self.eager_rung is None else self.eager_rung.is_healthy

    @property
    def is_same_eagerly(self) -> bool:
        """True where nothing that is compiled has a part in it. A backend that is never called keeps nothing."""
        rung = self.eager_rung
        return not self.calls or (rung is not None and rung.is_same and not self.checks_backend)

    @property
    def is_raised_by_script(self) -> bool:
        """True where the first cause is an assertion or a `raise` of the script itself."""
        frames = self.cause.frames if self.cause else ()
        is_scripts_own = bool(frames) and frames[0].component is Component.SCRIPT and frames[0].raises
        return is_scripts_own or _is_comparison(frames)

    @property
    def backend_component(self) -> Component | None:
        """Whose backend was at work below Dynamo when it failed; None where none was."""
        below = (frame for link in self.chain for frame in _below(link.frames, _LOWER))
        return next((frame.component for frame in below if not _is_glue(frame)), None)


def _below(frames: Sequence[CodeFrame], function: str) -> Sequence[CodeFrame]:
    """Return the frames that a function called, outermost first; none where it is not among them."""
    position = next((position for position, frame in enumerate(frames) if function in frame.function), 0)
    return frames[:position][::-1]


def _is_glue(frame: CodeFrame) -> bool:
    """Return whether a frame only passes a graph on to a backend."""
    return frame.component in {Component.DYNAMO, Component.PYTHON} or frame.path == "torch/__init__.py"


def _is_comparison(frames: tuple[CodeFrame, ...]) -> bool:
    """Return whether the script compares values with a function that is made for tests."""
    inner = [PurePath(frame.file) for frame in frames if frame.component is not Component.SCRIPT]
    return bool(inner) and all(path.name == "contextlib.py" or _TESTING.intersection(path.parts) for path in inner)
