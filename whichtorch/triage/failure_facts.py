"""What a failing run tells, as the rules of `categories.py` ask for it."""

from __future__ import annotations

import ast
import builtins
import re
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING

from whichtorch.failures.tracebacks import read_chain
from whichtorch.model import Model, Outcome
from whichtorch.source.code_owner import Component
from whichtorch.source.syntax import parse_module

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from whichtorch.failures.failure import Failure
    from whichtorch.failures.tracebacks import CodeFrame, RaisedException
    from whichtorch.triage.case import Case

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


def facts_of(case: Case, script: Path) -> FailureFacts:
    """Return what a case says of its failure."""
    seen = case.reproduction
    assert seen is not None
    chain, tree = read_chain(seen.stderr) if seen.outcome is Outcome.FAIL else (), _parsed(script)
    return FailureFacts(
        failure=seen.failure,
        chain=chain,
        calls=case.calls,
        rungs=case.ladder.rungs if case.ladder else (),
        graph_breaks=case.ladder.graph_breaks if case.ladder else 0,
        recompilations=case.ladder.recompilations if case.ladder else 0,
        guilty=case.ladder.guilty if case.ladder else "",
        uses_meta=any(isinstance(node, ast.Constant) and node.value == "meta" for node in ast.walk(tree)),
        checks_backend=bool(chain and chain[-1].frames) and checks_backend(tree, chain[-1].frames[0].line),
    )


def _parsed(script: Path) -> ast.Module:
    """Return the tree of a script, an empty one where it cannot be read."""
    try:
        return parse_module(script.read_bytes())
    except (OSError, ValueError, SyntaxError):
        return ast.Module(body=[], type_ignores=[])


def checks_backend(tree: ast.Module, line: int) -> bool:
    """Return whether the `assert` or `raise` at a line of a script depends on what a backend of the script's keeps.

    A backend is what a call gets as `backend`. What it keeps is itself, and the names that a function of its name
    has from elsewhere than its arguments.
    """
    backends = {
        node.value.id
        for node in ast.walk(tree)
        if isinstance(node, ast.keyword) and node.arg == "backend" and isinstance(node.value, ast.Name)
    }
    kept, read = set(backends), set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name in backends:
            kept |= _names(node) - {argument.arg for argument in node.args.args}
        if isinstance(node, ast.Assert | ast.Raise) and node.lineno <= line <= (node.end_lineno or node.lineno):
            read |= _names(node)
        if isinstance(node, ast.If) and any(isinstance(each, ast.Raise) and each.lineno == line for each in node.body):
            read |= _names(node.test)
    return bool(kept & read)


def _names(tree: ast.AST) -> set[str]:
    """Return the names that code reads or writes, but for those of Python and torch themselves."""
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return names - set(dir(builtins)) - {"torch"}
