"""A case: what is known of one failing script, step by step, and the folder that it is kept in.

output/cases/NAME/
case.json     what each step found; a step that is in it is not taken again
script.py     the script as it was, and beside it the modules of its own
minimal.py    the smallest script that fails in the same way
fix.patch     what cures the script, of a healthy release's Python
logs/         what the category asks for
CASE.md       all of it, to be pasted into an issue
case.zip      the same, for another machine
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath

from pydantic import Field

from whichtorch.base.errors import INTERRUPTED
from whichtorch.bisect.bisection import Bisection  # noqa: TC001  pydantic reads it
from whichtorch.failures.failure import Failure
from whichtorch.failures.tracebacks import CodeFrame, RaisedException, read_chain
from whichtorch.fix.commission import FixAnswer  # noqa: TC001  pydantic reads it
from whichtorch.model import Environment, Model, Outcome
from whichtorch.search.search_state import Change
from whichtorch.source.code_owner import Component
from whichtorch.source.syntax import parse_module
from whichtorch.suite.chain import Chain

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


class Ladder(Model):
    """The script at one layer after another."""

    rungs: tuple[Rung, ...] = ()
    graph_breaks: int = 0  # that torch logs in a plain run
    recompilations: int = 0
    guilty: str = ""  # the first application of a part of the compiler with which it fails
    is_complete: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureFacts:
    """All that is known of a failure when it is classified."""

    failure: Failure
    chain: tuple[RaisedException, ...] = ()  # the effect first
    calls: tuple[CompileCall, ...] = ()
    ladder: Ladder = field(default_factory=Ladder)
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
        return next((rung for rung in self.ladder.rungs if rung.name == "off"), None)

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
        ladder=case.ladder or Ladder(),
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
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} - set(dir(builtins)) - {"torch"}


SCHEMA = 1
FILE = "case.json"
_REMEDIES = {
    Outcome.UNBUILDABLE: "name another --python or --torch; the log of the install says what was missing",
    Outcome.BROKEN: "`whichtorch doctor` tells what keeps torch from running",
}
BRIEF_HANG = 10.0  # seconds for a forked run that may hang: passes take less than one, on a busy machine a few
COLD_MARGIN = 3.0  # times as long where torch is imported first
MINIMAL, PATCH = "minimal.py", "fix.patch"
ANSWERS = ".answers.jsonl"


class CaseEnvironment(Model):
    """Where it fails."""

    id: str = ""
    label: str
    torch: str
    git_version: str = ""
    python: str
    system: str = ""
    processor: str = ""
    packages: dict[str, str] = Field(default_factory=dict)
    options: tuple[str, ...] = ()  # that ask for it again
    problem: str = ""  # why torch cannot be used there
    remedy: str = ""

    @classmethod
    def of(cls, environment: Environment) -> CaseEnvironment:
        """Return what a maintainer asks about an environment, and what to do where torch cannot be used in it."""
        fingerprint = environment.fingerprint
        processor = fingerprint.cpu
        problem = "" if environment.is_usable else environment.reason or str(environment.outcome)
        return cls(
            id=environment.id,
            label=environment.label,
            torch=environment.torch,
            git_version=fingerprint.git_version or "",
            python=environment.python,
            system=" ".join(filter(None, (fingerprint.system, fingerprint.machine, fingerprint.glibc))),
            processor=processor.model if processor is not None and not isinstance(processor, str) else "",
            packages=environment.packages,
            options=environment.options,
            problem=problem,
            remedy=_REMEDIES.get(environment.outcome or Outcome.ERROR, "") if problem else "",
        )


class Reproduction(Model):
    """How often the script was seen to fail, and how."""

    failing: int  # runs that showed this failure
    runs: int
    outcome: Outcome
    signal: str = ""
    signature: str = ""
    message: str = ""
    where: str = ""  # of a hang: where it is stuck, in words
    hang_kind: str = ""  # a HangKind
    seconds: float  # of the longest
    limit: float  # seconds that still tell this failure from a pass
    stderr: str = ""  # its end, redacted
    others: tuple[str, ...] = ()  # what other runs showed
    shape: Failure | None = None  # None in a case of before
    chain: str = ""  # of runs that share caches: which of them failed, and with which cache, in words

    def brief_limit(self, *, forks: bool) -> float:
        """Return the seconds for a run that is to show no more than whether it may be this failure."""
        if self.outcome is not Outcome.HANG:
            return self.limit
        return min(self.limit, BRIEF_HANG if forks else COLD_MARGIN * BRIEF_HANG)

    @property
    def failure(self) -> Failure:
        """The failure that the case is about."""
        return Failure(
            outcome=self.outcome,
            signature=self.signature or None,
            message=self.message,
            signal=self.signal,
            hang=self.hang_kind,
            needs_earlier_run=self.shape is not None and self.shape.needs_earlier_run,
        )


class Classification(Model):
    """What kind of failure it is."""

    category: str  # "unclassified" where no rule applies
    words: str
    layer: str
    mode: str  # "eager", "torch.compile", "torch.export (strict)", ...
    stage: str = ""  # "while tracing", "while running"
    evidence: tuple[str, ...] = ()
    nearest: str = ""  # of what is unclassified


class Minimal(Model):
    """The smallest script found."""

    source: str
    method: str  # how it was found
    lines: int  # of code: neither blank nor a comment alone
    lines_before: int
    runs: int
    seconds: float
    is_verified: bool  # in a fresh process, with fresh caches
    healthy_in: str = ""  # where the same script passes
    shape: Failure | None = None  # of its failure: a comparison of its own may say it in other words
    error: str = ""  # the end of its own stderr, redacted; "" in a case of before


class ShownTest(Model):
    """A unit test of the failure, and where it was seen to fail and to pass."""

    file: str  # for pytest, in the case's folder
    test_case: str  # the same in the form of PyTorch's own tests, in the case's folder
    place: str  # where PyTorch's tree has tests of this kind
    fails_in: str = ""  # label of an environment, "" where it was not seen to
    passes_in: str = ""


class Newest(Model):
    """What the smallest script comes to in the newest release."""

    torch: str
    outcome: Outcome
    signature: str = ""
    message: str = ""
    is_same: bool  # it shows the failure that the case is about


class Stopped(Model):
    """Where a triage ended before its last step."""

    step: str  # that was not finished; it is taken again
    why: str  # INTERRUPTED, or that the time is over
    run: str = ""  # how long the script had run by then, and where it was

    @property
    def is_interrupted(self) -> bool:
        """True where a user or a signal stopped it."""
        return self.why == INTERRUPTED

    @property
    def words(self) -> str:
        """It in one line."""
        return f"{self.why} during the {self.step} step" + (f": {self.run}" if self.run else "")


class Case(Model):
    """What `case.json` holds."""

    schema_: int = Field(default=SCHEMA, alias="schema")
    name: str
    script: str  # its file, in the case's folder
    source_hash: str
    variant: dict[str, str] = Field(default_factory=dict)
    arguments: tuple[str, ...] = ()  # of the script
    requirements: tuple[str, ...] = ()  # what it was given beside torch
    overrides: tuple[str, ...] = ()  # versions that replaced what packages ask for
    variables: dict[str, str] = Field(default_factory=dict)  # that options gave it, without secrets
    environment: CaseEnvironment | None = None
    reproduction: Reproduction | None = None
    calls: tuple[CompileCall, ...] = ()
    ladder: Ladder | None = None
    classification: Classification | None = None
    logs: dict[str, str] | None = None  # path in the case's folder -> what it is
    minimal: Minimal | None = None
    bisection: Bisection | None = None
    bisected: str = ""  # the file of the smallest script that is known to fail and to pass at the change
    unit_test: ShownTest | None = None
    newest: Newest | None = None
    fix: FixAnswer | None = None
    cold_because: str | None = None  # why no run is forked; "" where they are, None where it was not tried
    seconds: dict[str, float] = Field(default_factory=dict)  # by step
    stopped: Stopped | None = None  # None where it came to its end
    command: str = ""

    @property
    def chain(self) -> Chain | None:
        """How each of its runs is a chain of runs, None where it is a single run."""
        return Chain.of(self.variant)

    @property
    def smallest(self) -> str:
        """The file of the smallest script that is known, in the case's folder."""
        return self.script if self.minimal is None else MINIMAL

    @property
    def smallest_failure(self) -> Failure | None:
        """How the smallest script fails."""
        known = self.minimal or self.reproduction
        return known.shape if known is not None else None

    @property
    def healthy_release(self) -> str:
        """The release nearest to the failing ones in which the script passes, "" where none is known."""
        if self.bisection is None:
            return ""
        if self.bisection.boundaries:
            return self.bisection.boundaries[-1].good
        passing = [probe.value for probe in self.bisection.probes if probe.outcome is Outcome.PASS]
        return passing[-1] if passing else ""

    @property
    def failing_release(self) -> str:
        """The release nearest to the healthy one in which it fails, in this way or in another."""
        if self.bisection is None or not self.bisection.boundaries:
            return self.environment.torch if self.environment else ""
        newest = self.bisection.boundaries[-1]
        others = newest.different_between or (newest.bad,)
        return others[-1] if newest.change is Change.FIX else others[0]
